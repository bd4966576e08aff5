package connect

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/fbfkv/fbfkv/resp"
)

const (
	dialTime = 5 * time.Second
	// rested is for how long a connection may have been idle to be used unasked.
	rested = 100 * time.Millisecond
)

// Client talks RESP2 to one server. It connects when it must, again after a connection broke,
// and keeps connections for the next call. It sends no command twice. Safe for concurrent
// use: each call has a connection to itself.
type Client struct {
	addr, user, password string
	database             string
	tls                  *tls.Config   // nil: without TLS
	timeout              time.Duration // for a command, or for a pipeline; 0: as long as it takes
	pingTime             time.Duration // for a PING, after which none of the idle ones is used; 0: timeout

	mu     sync.Mutex
	idle   []*Conn // the last used one is the last
	closed bool
}

// Addr returns HOST:PORT of the server.
func (c *Client) Addr() string { return c.addr }

// Close closes the connections that no call uses. The others are closed after their calls.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.drop()
}

// drop closes the connections that no call uses.
func (c *Client) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.idle {
		conn.net.Close()
	}
	c.idle = nil
}

// Do sends a command and returns its reply. Arguments are strings and integers.
func (c *Client) Do(ctx context.Context, args ...any) (r Reply) {
	if err := c.With(ctx, func(conn *Conn) error { r = conn.Do(args...); return r.err }); err != nil {
		r.err = err
	}
	return r
}

// Pipeline sends commands at once and returns their replies. The error is the connection's;
// those of the server are in the replies.
func (c *Client) Pipeline(ctx context.Context, commands [][]any) (replies []Reply, err error) {
	err = c.With(ctx, func(conn *Conn) error { replies, err = conn.Pipeline(commands); return err })
	return replies, err
}

// With calls use with a connection of its own, and returns its error. use must leave the
// connection as it was: without WATCH, for instance. What it waits for ends with ctx.
func (c *Client) With(ctx context.Context, use func(*Conn) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	conn, err := c.take(ctx)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { conn.net.Close() })
	err = use(conn)
	if !stop() {
		conn.broken = true
		if conn.err != nil {
			err = ctx.Err()
		}
	}
	c.release(conn)
	return err
}

// take returns a connection that nobody uses. Of one that was idle for long, a PING tells
// whether it still works.
func (c *Client) take(ctx context.Context) (*Conn, error) {
	for {
		c.mu.Lock()
		n := len(c.idle)
		if n == 0 {
			c.mu.Unlock()
			return c.dial(ctx)
		}
		conn := c.idle[n-1]
		c.idle = c.idle[:n-1]
		c.mu.Unlock()
		if time.Since(conn.used) > rested {
			conn.timeout = cmp.Or(c.pingTime, c.timeout)
			conn.Do("PING")
			conn.timeout = c.timeout
		}
		if !conn.broken {
			return conn, nil
		}
		conn.net.Close()
		if c.pingTime > 0 && errors.Is(conn.err, os.ErrDeadlineExceeded) {
			c.drop()
			return nil, conn.err
		}
	}
}

// release keeps a connection for the next call.
func (c *Client) release(conn *Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn.broken || c.closed {
		conn.net.Close()
		return
	}
	conn.used = time.Now()
	c.idle = append(c.idle, conn)
}

// dial connects and logs in.
func (c *Client) dial(ctx context.Context) (conn *Conn, err error) {
	d := net.Dialer{Timeout: dialTime}
	conn = &Conn{timeout: c.timeout}
	if c.tls == nil {
		conn.net, err = d.DialContext(ctx, "tcp", c.addr)
	} else {
		conn.net, err = (&tls.Dialer{NetDialer: &d, Config: c.tls}).DialContext(ctx, "tcp", c.addr)
	}
	if plain := (tls.RecordHeaderError{}); errors.As(err, &plain) {
		err = fmt.Errorf("the port does not speak TLS (leave out --tls): %w", err)
	}
	if err != nil {
		return nil, err
	}
	conn.in = bufio.NewReaderSize(conn.net, maxLine)
	var hello [][]any
	switch {
	case c.user != "":
		hello = append(hello, []any{"AUTH", c.user, c.password})
	case c.password != "":
		hello = append(hello, []any{"AUTH", c.password})
	}
	if c.database != "" {
		hello = append(hello, []any{"SELECT", c.database})
	}
	defer context.AfterFunc(ctx, func() { conn.net.Close() })()
	replies, err := conn.Pipeline(hello)
	if err == nil {
		err = FirstError(replies)
	}
	if err != nil {
		conn.net.Close()
		return nil, err
	}
	return conn, nil
}

// Conn is a connection. It is not safe for concurrent use.
type Conn struct {
	net     net.Conn
	in      *bufio.Reader
	out     resp.Writer
	timeout time.Duration
	used    time.Time // when it was last given back
	broken  bool
	err     error // what broke it

	answered bool // with a whole reply, ever
}

// Do is Client.Do on this connection.
func (c *Conn) Do(args ...any) Reply {
	replies, err := c.Pipeline([][]any{args})
	if err != nil {
		return Reply{err: err}
	}
	return replies[0]
}

// Pipeline is Client.Pipeline on this connection.
func (c *Conn) Pipeline(commands [][]any) ([]Reply, error) {
	if c.err != nil || len(commands) == 0 {
		return nil, c.err
	}
	replies, err := c.exchange(commands)
	if err != nil {
		c.broken, c.err = true, err
		return nil, err
	}
	return replies, nil
}

// exchange writes commands and reads their replies.
func (c *Conn) exchange(commands [][]any) ([]Reply, error) {
	if c.timeout > 0 {
		c.net.SetDeadline(time.Now().Add(c.timeout))
	}
	c.out.Reset()
	for _, command := range commands {
		c.out.Array(len(command))
		for _, arg := range command {
			c.out.BulkString(text(arg))
		}
	}
	if _, err := c.net.Write(c.out.Bytes()); err != nil {
		return nil, err
	}
	replies := make([]Reply, 0, len(commands))
	budget := maxSum
	for range commands {
		r, err := readReply(c.in, 0, &budget)
		if err != nil {
			return nil, c.suspectTLS(err)
		}
		c.answered = true
		replies = append(replies, r)
	}
	return replies, nil
}

// suspectTLS makes an error say what is likely if a server ends a connection without a word:
// a port that speaks TLS does so to a client that does not.
func (c *Conn) suspectTLS(err error) error {
	if _, secure := c.net.(*tls.Conn); secure || c.answered || !errors.Is(err, io.EOF) &&
		!errors.Is(err, syscall.ECONNRESET) {
		return err
	}
	return fmt.Errorf("the connection was closed without an answer (the port speaks TLS? use --tls): %v", err)
}

// text is an argument as it is sent.
func text(arg any) string {
	switch v := arg.(type) {
	case string:
		return v
	case []byte:
		return string(v)
	case int:
		return strconv.Itoa(v)
	case int64:
		return strconv.FormatInt(v, 10)
	}
	return fmt.Sprint(arg)
}
