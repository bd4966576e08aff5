package connect

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Limits of a reply. A server is not trusted to keep to what it announces.
const (
	maxBulk  = 512 << 20 // bytes, as Redis'
	maxArray = 16 << 20  // elements
	maxDepth = 16        // arrays in arrays
	maxLine  = 64 << 10  // bytes
	// maxSum bounds all replies to what was sent at once, in bytes, with elementSize for each value.
	maxSum      = maxBulk + 64<<20
	elementSize = 48
)

// errSum is the error of replies that are too large in sum.
var errSum = fmt.Errorf("the server's replies are too large: more than %d bytes in sum", maxSum)

// Error is what a server answers instead of a result, such as "ERR …". Every other error is
// of the connection, and then nobody knows what became of the command.
type Error string

// Error returns the server's text.
func (e Error) Error() string { return string(e) }

// Nil is the error of a null reply where a value was asked for.
const Nil = Error("the reply is null")

// IsReply reports whether an error is a server's answer to a command.
func IsReply(err error) bool {
	var reply Error
	return errors.As(err, &reply)
}

// transient are the codes of errors after which the same command may be sent again.
var transient = []string{"TRYAGAIN", "UNKNOWN", "MISCONF", "CLUSTERDOWN", "MASTERDOWN", "READONLY", "LOADING",
	"OOM", "BUSY"}

// IsTransient reports whether an error is a server's, and the same command may be sent again.
func IsTransient(err error) bool {
	var reply Error
	if !errors.As(err, &reply) {
		return false
	}
	code, _, _ := strings.Cut(string(reply), " ")
	return slices.Contains(transient, code) ||
		strings.Contains(string(reply), "max number of clients reached")
}

// IsNoCluster reports whether an error is of a server that was started without cluster-enabled.
func IsNoCluster(err error) bool {
	return err != nil && strings.Contains(err.Error(), "cluster support disabled")
}

// Reply is what came of a command: a value or an error.
type Reply struct {
	value any // string, int64, []Reply, or nil
	err   error
}

// Err returns the error, nil for a null reply too.
func (r Reply) Err() error { return r.err }

// FirstError returns the first error among replies.
func FirstError(replies []Reply) error {
	for _, r := range replies {
		if r.err != nil {
			return r.err
		}
	}
	return nil
}

// Text returns a string; of an integer its digits.
func (r Reply) Text() (string, error) {
	switch v := r.value.(type) {
	case string:
		return v, r.err
	case int64:
		return strconv.FormatInt(v, 10), r.err
	}
	return "", r.not("a string")
}

// Int returns an integer, also one that is given as a string.
func (r Reply) Int() (int64, error) {
	switch v := r.value.(type) {
	case int64:
		return v, r.err
	case string:
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			err = fmt.Errorf("the reply %q is not an integer", v)
		}
		return n, err
	}
	return 0, r.not("an integer")
}

// List returns the elements of an array.
func (r Reply) List() ([]Reply, error) {
	if list, ok := r.value.([]Reply); ok {
		return list, r.err
	}
	return nil, r.not("an array")
}

// Ints returns an array of integers; as booleans they are 0 or not.
func (r Reply) Ints() ([]int64, error) {
	list, err := r.List()
	all := make([]int64, len(list))
	for i := 0; i < len(list) && err == nil; i++ {
		all[i], err = list[i].Int()
	}
	return all, err
}

// Texts returns an array of strings.
func (r Reply) Texts() ([]string, error) {
	list, err := r.List()
	all := make([]string, len(list))
	for i := 0; i < len(list) && err == nil; i++ {
		all[i], err = list[i].Text()
	}
	return all, err
}

// Pairs returns a map, or an array of its keys and values.
func (r Reply) Pairs() (map[string]Reply, error) {
	list, err := r.List()
	all := make(map[string]Reply)
	for i := 0; i+1 < len(list) && err == nil; i += 2 {
		var key string
		key, err = list[i].Text()
		all[key] = list[i+1]
	}
	return all, err
}

// not is why there is no value of a kind.
func (r Reply) not(kind string) error {
	switch {
	case r.err != nil:
		return r.err
	case r.value == nil:
		return Nil
	}
	return fmt.Errorf("the reply is not %s", kind)
}

// readReply reads a reply of RESP2, of as many bytes as are left in budget. An error is the
// connection's, which then is of no more use.
func readReply(in *bufio.Reader, depth int, budget *int) (r Reply, err error) {
	line, err := readLine(in)
	if err != nil {
		return r, err
	}
	if *budget -= elementSize; line[0] == '+' || line[0] == '-' {
		*budget -= len(line)
	}
	if *budget < 0 {
		return r, errSum
	}
	kind, rest := line[0], string(line[1:])
	switch kind {
	case '+':
		return Reply{value: rest}, nil
	case '-':
		return Reply{err: Error(rest)}, nil
	case ':':
		n, err := strconv.ParseInt(rest, 10, 64)
		if err != nil {
			return r, protocolError(line)
		}
		return Reply{value: n}, nil
	}
	n, err := strconv.Atoi(rest)
	switch {
	case err != nil || n < -1 || kind != '$' && kind != '*':
		return r, protocolError(line)
	case n == -1:
		return r, nil
	case kind == '$' && n <= maxBulk && n > *budget:
		return r, errSum
	case kind == '$':
		*budget -= n
		text, err := readBulk(in, n)
		return Reply{value: text}, err
	case n > maxArray || depth == maxDepth:
		return r, fmt.Errorf("the server's reply is too large: %d elements, %d arrays deep", n, depth+1)
	}
	list := make([]Reply, 0, min(n, 1024))
	for range n {
		element, err := readReply(in, depth+1, budget)
		if err != nil {
			return r, err
		}
		list = append(list, element)
	}
	return Reply{value: list}, nil
}

// readLine reads a line, which is not empty, without its end. It is valid until the next read.
func readLine(in *bufio.Reader) (line []byte, err error) {
	line, err = in.ReadSlice('\n') // whose buffer holds maxLine bytes
	if err != nil {
		return nil, err
	}
	if n := len(line); n < 3 || line[n-2] != '\r' {
		return nil, protocolError(line)
	}
	return line[:len(line)-2], nil
}

// readBulk reads a string of n bytes, and its end.
func readBulk(in *bufio.Reader, n int) (string, error) {
	if n > maxBulk {
		return "", fmt.Errorf("the server's reply is too large: %d bytes", n)
	}
	text := make([]byte, 0, min(n+2, maxLine)) // it grows as what was announced comes
	for len(text) < n+2 {
		if len(text) == cap(text) {
			text = append(text, 0)[:len(text)]
		}
		got, err := in.Read(text[len(text):min(cap(text), n+2)])
		if text = text[:len(text)+got]; err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return "", err
		}
	}
	if end := string(text[n:]); end != "\r\n" {
		return "", protocolError([]byte(end))
	}
	return string(text[:n]), nil
}

// protocolError is the error of bytes that are no reply.
func protocolError(line []byte) error {
	return fmt.Errorf("the server does not speak the Redis protocol: %.40q", line)
}
