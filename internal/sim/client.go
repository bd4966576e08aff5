package sim

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/fbfkv/fbfkv/resp"
)

// Client sends commands to servers, by RESP. It keeps a connection to each server that it has
// asked. It is used by one goroutine.
type Client struct {
	life        *Life
	connections map[string]*clientConnection // by address
}

type clientConnection struct {
	net.Conn
	in *bufio.Reader
}

// replyError is an error that a server answered.
type replyError string

func (e replyError) Error() string { return string(e) }

// NewClient returns a client on a machine of its own.
func NewClient(w *World) *Client {
	return &Client{life: w.Client(), connections: make(map[string]*clientConnection)}
}

// Do sends a command to a server and returns its reply: a string, an int64, nil, or a list of these
// and of errors. A replyError is the server's answer; after any other error nobody knows whether
// the command was carried out.
func (c *Client) Do(to string, patience time.Duration, words ...string) (any, error) {
	replies, err := c.Send(to, patience, words)
	if err != nil {
		return nil, err
	}
	if refused, is := replies[0].(replyError); is {
		return nil, refused
	}
	return replies[0], nil
}

// Send sends commands to a server in one write, and returns the replies that came. There is one for
// each command unless there is an error.
func (c *Client) Send(to string, patience time.Duration, commands ...[]string) (replies []any, err error) {
	end := time.Now().Add(patience)
	conn, err := c.connect(to, end)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(end)
	var w resp.Writer
	for _, words := range commands {
		w.BulkStrings(words)
	}
	_, err = conn.Write(w.Bytes())
	for err == nil && len(replies) < len(commands) {
		var reply any
		if reply, err = readReply(conn.in); err == nil {
			replies = append(replies, reply)
		}
	}
	if err != nil {
		_ = conn.Close()
		delete(c.connections, to)
	}
	return replies, err
}

func (c *Client) connect(to string, end time.Time) (*clientConnection, error) {
	if conn := c.connections[to]; conn != nil {
		return conn, nil
	}
	nc, err := c.life.dialUntil(to, end)
	if err != nil {
		return nil, err
	}
	conn := &clientConnection{nc, bufio.NewReader(nc)}
	c.connections[to] = conn
	return conn, nil
}

// readReply reads one reply. A replyError is also a reply.
func readReply(in *bufio.Reader) (any, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return nil, io.ErrUnexpectedEOF
	}
	switch text := line[1:]; line[0] {
	case '+':
		return text, nil
	case '-':
		return replyError(text), nil
	case ':':
		return strconv.ParseInt(text, 10, 64)
	case '$', '*':
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return nil, err
		}
		if line[0] == '$' {
			b := make([]byte, n+2)
			_, err := io.ReadFull(in, b)
			return string(b[:n]), err
		}
		list := make([]any, n)
		for i := range list {
			if list[i], err = readReply(in); err != nil {
				return nil, err
			}
		}
		return list, nil
	}
	return nil, fmt.Errorf("a reply begins with %q", line)
}
