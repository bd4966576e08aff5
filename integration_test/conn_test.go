package integration

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// rawConn is a connection without a client library: it sends any bytes and
// shows replies exactly as they came.
type rawConn struct {
	t testing.TB
	s *server
	net.Conn
	r *bufio.Reader
}

// dial connects to the server.
func (s *server) dial() *rawConn {
	s.t.Helper()
	c, err := net.Dial("tcp", s.address())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	return &rawConn{t: s.t, s: s, Conn: c, r: bufio.NewReader(c)}
}

// send sends raw bytes.
func (c *rawConn) send(raw string) {
	c.t.Helper()
	c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, raw); err != nil {
		c.t.Fatalf("send %.80q: %v", raw, err)
	}
}

// do sends one command and returns its reply, see readReply.
func (c *rawConn) do(args ...string) string {
	c.t.Helper()
	c.send(frame(args...))
	return c.reply()
}

// reply returns the next reply.
func (c *rawConn) reply() string {
	c.t.Helper()
	reply, err := readReply(c.r)
	if err != nil {
		if isTimeout(err) {
			c.s.printStacks()
		}
		c.t.Fatalf("read a reply: %v", err)
	}
	return reply
}

// isTimeout reports whether err is that of a deadline.
func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

// want sends one command and expects a reply.
func (c *rawConn) want(reply string, args ...string) {
	c.t.Helper()
	if got := c.do(args...); got != reply {
		c.t.Errorf("%.200q:\n got %.300s\nwant %.300s", args, got, reply)
	}
}

// wantClosed expects that the server closes the connection without a word.
func (c *rawConn) wantClosed() {
	c.t.Helper()
	c.SetDeadline(time.Now().Add(patience))
	rest, err := io.ReadAll(c.r)
	if len(rest) > 0 {
		c.t.Errorf("before the connection closed there came %.200q", rest)
	}
	if isTimeout(err) {
		c.t.Errorf("the server does not close the connection")
	}
}

// frame renders a command as clients send it.
func frame(args ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b.String()
}

// readReply reads one reply and renders it on one line without losing its
// type:
//
//	+OK  -ERR text  :5  "bulk string"  $-1 (null)  *-1 (null array)  [:1 :2]
//	RESP3: _ (null)  #t  ,0.5  {"map" :1}  ~[set]  =txt:"verbatim"
func readReply(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line, ok := strings.CutSuffix(line, "\r\n")
	if !ok || line == "" {
		return "", fmt.Errorf("not a reply: %q", line)
	}
	switch line[0] {
	case '+', '-', ':', '_', '#', ',':
		return line, nil
	case '$', '=':
		return readBulk(r, line)
	case '*', '~', '%':
		return readAggregate(r, line)
	}
	return "", fmt.Errorf("not a reply: %q", line)
}

// readBulk reads the rest of a bulk or verbatim string.
func readBulk(r *bufio.Reader, line string) (string, error) {
	n, err := strconv.Atoi(line[1:])
	switch {
	case err != nil || n < -1:
		return "", fmt.Errorf("not a reply: %q", line)
	case n == -1:
		return line, nil
	}
	b := make([]byte, n+2)
	if _, err := io.ReadFull(r, b); err != nil {
		return "", err
	}
	text := string(b[:n])
	if line[0] == '=' {
		return "=" + text[:4] + strconv.Quote(text[4:]), nil
	}
	return strconv.Quote(text), nil
}

// readAggregate reads the rest of an array, a set or a map.
func readAggregate(r *bufio.Reader, line string) (string, error) {
	n, err := strconv.Atoi(line[1:])
	switch {
	case err != nil || n < -1:
		return "", fmt.Errorf("not a reply: %q", line)
	case n == -1:
		return line, nil
	}
	marks := map[byte][2]string{'*': {"[", "]"}, '~': {"~[", "]"}, '%': {"{", "}"}}[line[0]]
	if line[0] == '%' {
		n *= 2
	}
	parts := make([]string, n)
	for i := range parts {
		if parts[i], err = readReply(r); err != nil {
			return "", err
		}
	}
	return marks[0] + strings.Join(parts, " ") + marks[1], nil
}
