package integration

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
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

// isTimeout reports whether err comes from a deadline.
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
