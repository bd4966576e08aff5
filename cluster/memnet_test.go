package cluster

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// memNet is a network in memory, for nodes in one process: on virtual time nothing may wait for the
// operating system. The zero value has no listeners.
type memNet struct {
	mu        sync.Mutex
	listeners map[string]*memListener // by address; nil: there was one
	last      int                     // port that was given away
}

// memListener listens at an address.
type memListener struct {
	n       *memNet
	address *net.TCPAddr
	conns   chan net.Conn
	closed  chan struct{}
	close   sync.Once
}

// listen listens at a port; 0: at one that nobody had before.
func (n *memNet) listen(port int) *memListener {
	n.mu.Lock()
	defer n.mu.Unlock()
	if port == 0 {
		n.last++
		port = 17000 + n.last
	}
	l := &memListener{n: n, address: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port},
		conns: make(chan net.Conn), closed: make(chan struct{})}
	if n.listeners == nil {
		n.listeners = map[string]*memListener{}
	}
	n.listeners[l.address.String()] = l
	return l
}

func (l *memListener) Addr() net.Addr { return l.address }

func (l *memListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memListener) Close() error {
	l.close.Do(func() {
		close(l.closed)
		l.n.mu.Lock()
		defer l.n.mu.Unlock()
		if at := l.address.String(); l.n.listeners[at] == l {
			l.n.listeners[at] = nil
		}
	})
	return nil
}

// dial connects to a listener of this network, or to one of the operating system's where none of
// this one ever was.
func (n *memNet) dial(ctx context.Context, address string) (net.Conn, error) {
	n.mu.Lock()
	l, ours := n.listeners[address]
	n.mu.Unlock()
	switch {
	case !ours:
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	case l == nil:
		return nil, syscall.ECONNREFUSED
	}
	there, back := newMemStream(), newMemStream()
	from := &net.TCPAddr{IP: l.address.IP, Port: 50000}
	select {
	case l.conns <- &memConn{in: there, out: back, local: l.address, remote: from}:
		return &memConn{in: back, out: there, local: from, remote: l.address}, nil
	case <-l.closed:
		return nil, syscall.ECONNREFUSED
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// memStream is one direction of a connection: bytes that were written and not read yet.
type memStream struct {
	mu      sync.Mutex
	b       []byte
	at      time.Time     // when they arrive
	err     error         // that the reader gets behind them, and the writer at once
	changed chan struct{} // closed at the next change
}

func newMemStream() *memStream { return &memStream{changed: make(chan struct{})} }

// update changes the stream, and wakes those that wait.
func (s *memStream) update(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *memStream) end(err error) {
	s.update(func() {
		if s.err == nil {
			s.err = err
		}
	})
}

// memLatency is how long bytes are under way: time has to pass while nodes talk.
const memLatency = 50 * time.Microsecond

// memConn is one end of a connection. Writes never wait.
type memConn struct {
	in, out       *memStream
	local, remote net.Addr
	deadline      atomic.Pointer[time.Time] // of reads
	closed        atomic.Bool
}

func (c *memConn) Read(b []byte) (n int, err error) {
	for {
		c.in.mu.Lock()
		if wait := time.Until(c.in.at); wait > 0 && len(c.in.b) > 0 {
			c.in.mu.Unlock()
			time.Sleep(wait)
			continue
		}
		n, err = copy(b, c.in.b), c.in.err
		c.in.b = c.in.b[n:]
		changed := c.in.changed
		c.in.mu.Unlock()
		switch {
		case c.closed.Load():
			return 0, net.ErrClosed
		case n > 0 || len(b) == 0:
			return n, nil
		case err != nil:
			return 0, err
		}
		var late <-chan time.Time
		if end := c.deadline.Load(); end != nil && !end.IsZero() {
			if !time.Now().Before(*end) {
				return 0, os.ErrDeadlineExceeded
			}
			late = time.After(time.Until(*end))
		}
		select {
		case <-changed:
		case <-late:
		}
	}
}

func (c *memConn) Write(b []byte) (n int, err error) {
	if c.closed.Load() {
		return 0, net.ErrClosed
	}
	c.out.update(func() {
		if err = c.out.err; err == nil {
			if len(c.out.b) == 0 {
				c.out.at = time.Now().Add(memLatency)
			}
			c.out.b = append(c.out.b, b...)
			n = len(b)
		}
	})
	return n, err
}

// Close lets the other end read what was written; what it writes from now on is refused.
func (c *memConn) Close() error {
	c.closed.Store(true)
	c.out.end(io.EOF)
	c.in.end(syscall.EPIPE)
	return nil
}

func (c *memConn) LocalAddr() net.Addr  { return c.local }
func (c *memConn) RemoteAddr() net.Addr { return c.remote }

func (c *memConn) SetReadDeadline(t time.Time) error {
	c.deadline.Store(&t)
	c.in.update(func() {})
	return nil
}

func (c *memConn) SetWriteDeadline(time.Time) error { return nil }
func (c *memConn) SetDeadline(t time.Time) error    { return c.SetReadDeadline(t) }
