package integration

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// reply is one RESP reply as it came: kind is its first byte on the wire. Of
// an aggregate elements are set (of a map, keys and values in turn), of
// anything else text. A null keeps its kind and has null set.
type reply struct {
	kind     byte
	text     string
	elements []reply
	null     bool
}

// aggregates are the kinds with elements, and how they are shown.
var aggregates = map[byte][2]string{'*': {"[", "]"}, '~': {"~[", "]"}, '%': {"{", "}"}, '>': {">[", "]"}}

// String renders a reply on one line without losing its type:
//
//	+OK  -ERR text  :5  "bulk string"  $-1 (null)  *-1 (null array)  [:1 :2]
//	RESP3: _ (null)  #t  ,0.5  {"map" :1}  ~[set]  >[push]  =txt:"verbatim"
func (r reply) String() string {
	marks, aggregate := aggregates[r.kind]
	switch {
	case r.null:
		return string(r.kind) + "-1"
	case aggregate:
		parts := make([]string, len(r.elements))
		for i, e := range r.elements {
			parts[i] = e.String()
		}
		return marks[0] + strings.Join(parts, " ") + marks[1]
	case r.kind == '$':
		return strconv.Quote(r.text)
	case r.kind == '=' && len(r.text) >= 4:
		return "=" + r.text[:4] + strconv.Quote(r.text[4:])
	}
	return string(r.kind) + r.text
}

// readReply reads one reply and renders it, see reply.String.
func readReply(r *bufio.Reader) (string, error) {
	reply, err := readTree(r)
	if err != nil {
		return "", err
	}
	return reply.String(), nil
}

// readTree reads one reply.
func readTree(r *bufio.Reader) (reply, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return reply{}, err
	}
	line, ok := strings.CutSuffix(line, "\r\n")
	if !ok || line == "" {
		return reply{}, fmt.Errorf("not a reply: %q", line)
	}
	kind, text := line[0], line[1:]
	switch kind {
	case '+', '-', ':', '_', '#', ',':
		return reply{kind: kind, text: text}, nil
	case '$', '=', '*', '~', '%', '>':
	default:
		return reply{}, fmt.Errorf("not a reply: %q", line)
	}
	n, err := strconv.Atoi(text)
	switch {
	case err != nil || n < -1:
		return reply{}, fmt.Errorf("not a reply: %q", line)
	case n == -1:
		return reply{kind: kind, null: true}, nil
	case kind == '$' || kind == '=':
		b := make([]byte, n+2)
		if _, err := io.ReadFull(r, b); err != nil {
			return reply{}, err
		}
		if string(b[n:]) != "\r\n" {
			return reply{}, fmt.Errorf("a string of %d bytes does not end there", n)
		}
		return reply{kind: kind, text: string(b[:n])}, nil
	case kind == '%':
		n *= 2
	}
	elements := make([]reply, n)
	for i := range elements {
		if elements[i], err = readTree(r); err != nil {
			return reply{}, err
		}
	}
	return reply{kind: kind, elements: elements}, nil
}
