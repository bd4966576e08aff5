package main

import (
	"bytes"
	"errors"
	"strconv"
)

// errReply says that a server does not speak RESP, or answers what no workload asks for.
var errReply = errors.New("the server's reply is not an integer, a string, null, an error or an array of them")

// maxReply bounds a bulk string among the replies; none is longer than a counter.
const maxReply = 1 << 16

// maxElements bounds an array among the replies.
const maxElements = 64

// scanReply finds the first reply in b. It returns its length, or 0 if it is not
// there in full, and for an error reply its text.
func scanReply(b []byte) (n int, failure []byte, err error) {
	if len(b) < 3 {
		return 0, nil, nil
	}
	end := bytes.IndexByte(b, '\n')
	if end < 0 {
		if len(b) > maxReply {
			return 0, nil, errReply
		}
		return 0, nil, nil
	}
	if end < 2 || b[end-1] != '\r' {
		return 0, nil, errReply
	}
	switch b[0] {
	case ':', '+', '_', '#':
		return end + 1, nil, nil
	case '-':
		return end + 1, b[1 : end-1], nil
	case '*':
		elements, err := strconv.Atoi(string(b[1 : end-1]))
		if err != nil || elements < 1 || elements > maxElements || len(b) > end+1 && b[end+1] == '*' {
			return 0, nil, errReply
		}
		n = end + 1
		for range elements {
			size, refused, err := scanReply(b[n:])
			if size == 0 {
				return 0, nil, err
			}
			if n += size; failure == nil {
				failure = refused
			}
		}
		return n, failure, nil
	case '$':
		size, err := strconv.Atoi(string(b[1 : end-1]))
		switch {
		case err != nil || size < -1 || size > maxReply:
			return 0, nil, errReply
		case size == -1:
			return end + 1, nil, nil
		case len(b) < end+1+size+2:
			return 0, nil, nil
		case b[end+1+size] != '\r' || b[end+1+size+1] != '\n':
			return 0, nil, errReply
		}
		return end + 1 + size + 2, nil, nil
	}
	return 0, nil, errReply
}
