package server

import (
	"crypto/tls"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fbfkv/fbfkv/commands"
	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/server/rawio"
)

// polled is a connection served by the event loop. While it is idle it has no
// goroutine and no buffers.
//
// It is registered for edge-triggered events once and for all, so that serving
// it costs no more system calls than its read and its write. state says whose it
// is: the worker that first sees an event of a connection nobody owns owns it
// until release; whoever sees an event meanwhile leaves it in state for the
// owner, whose release then fails.
type polled struct {
	conn
	loop  *eventLoop
	tls   *tls.Conn // nil: plain TCP
	state atomic.Uint32

	mu sync.Mutex // held to close fd, and to use it without owning the connection
	fd int        // -1: closed

	// The fields below belong to the owner.
	readable bool         // the socket, or tls, may hold bytes or the end of the stream
	received bool         // the socket was read from since Read began; for tls
	last     bool         // no event will come any more: read to the end
	more     bool         // reader may hold complete requests
	starved  bool         // the last round had no room for it
	reader   *resp.Reader // nil: nothing was received that was not answered
	held     [][]byte     // a request that has to be carried out by itself
	unsent   *resp.Writer // what the client is not taking, encrypted if it uses TLS; nil: nothing
	sent     int          // how much of them was written
	err      error        // why the connection is to end
}

// The bits of polled.state: owned, and the events that wait for the owner.
const (
	owned = 1 << iota
	eventIn
	eventEnd // the peer will send no more, or the connection is broken
)

// errAgain: there is nothing to read for now. To crypto/tls, after the handshake, this is
// an error after which it goes on where it was.
var errAgain error = unix.EAGAIN

// claim notes events and reports whether the caller now owns the connection.
func (c *polled) claim(events uint32) bool {
	bits := uint32(owned)
	if events&(unix.EPOLLIN|unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		bits |= eventIn
	}
	if events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		bits |= eventEnd
	}
	if events&unix.EPOLLOUT != 0 {
		bits |= eventOut
	}
	return c.state.Or(bits)&owned == 0
}

// eventOut: the socket takes bytes again.
const eventOut = eventEnd << 1

// release gives the connection up. It fails when events came in the meantime.
func (c *polled) release() bool { return c.state.CompareAndSwap(owned, 0) }

// takeEvents moves the events that wait to where the owner looks.
func (c *polled) takeEvents() {
	events := c.state.And(owned)
	c.readable = c.readable || events&eventIn != 0
	c.last = c.last || events&eventEnd != 0
}

// Read implements io.Reader for the connection's resp.Reader. It reads from the socket
// once and never waits.
func (c *polled) Read(b []byte) (n int, err error) {
	if c.tls == nil {
		return c.receive(b)
	}
	for c.received = false; n < len(b) && err == nil; { // each of tls.Read returns a record at most
		var m int
		m, err = c.tls.Read(b[n:])
		n += m
	}
	if n == 0 {
		return 0, err
	}
	c.readable = c.readable || err != errAgain // tls may hold more, or will say again why there is no more
	return n, nil
}

// receive reads once from the socket.
func (c *polled) receive(b []byte) (int, error) {
	for {
		n, errno := rawio.Receive(c.fd, b)
		switch {
		case errno == unix.EINTR:
			continue
		case errno == unix.EAGAIN:
			c.readable = false
			return 0, errAgain
		case errno != 0:
			return 0, errno
		case n == 0:
			return 0, io.EOF
		}
		// A short read has emptied the socket: an edge will tell of more, unless
		// the last one came already.
		c.readable = n == len(b) || c.last
		c.in.Add(uint64(n))
		c.reads.Add(1)
		return n, nil
	}
}

// write sends replies. It never waits: unsent keeps what the socket does not take.
func (c *polled) write(b []byte) error {
	if c.tls == nil {
		return c.send(b)
	}
	_, err := c.tls.Write(b)
	return err
}

// send sends bytes as they are, after those that wait.
func (c *polled) send(b []byte) error {
	if c.unsent == nil {
		n, err := c.transmit(b)
		if err != nil || n == len(b) {
			return err
		}
		c.unsent, c.sent, b = new(resp.Writer), 0, b[n:]
	}
	c.unsent.Raw(b)
	c.waitsToWrite()
	return nil
}

// transmit sends what the socket takes and returns how much that is.
func (c *polled) transmit(b []byte) (sent int, err error) {
	for sent < len(b) {
		n, errno := rawio.Send(c.fd, b[sent:min(len(b), sent+maxWrite)])
		switch {
		case errno == unix.EINTR:
			continue
		case errno == unix.EAGAIN:
			return sent, nil
		case errno != 0:
			return sent, errno
		}
		sent += n
		c.out.Add(uint64(n))
		c.writes.Add(1)
	}
	return sent, nil
}

// newPolled returns the connection of a client that was admitted.
func newPolled(l *eventLoop, fd int, session *commands.Session) *polled {
	c := &polled{
		conn: conn{server: l.server, session: session,
			pipeline: commands.NewPipeline(&l.server.commands, session)},
		loop: l,
		fd:   fd,
	}
	c.line = c
	session.Gone = c.gone
	return c
}

func (c *polled) start() {
	if err := c.loop.register(c); err != nil {
		c.server.log.Warn("cannot serve a client", "client", c.session.Addr, "error", err)
		c.close()
		c.server.remove(&c.conn)
	}
}

// stop makes the end of the stream appear to have come, which wakes the loop. The
// loop reads nothing once the server is stopping.
func (c *polled) stop() { c.shutdown(unix.SHUT_RD) }

func (c *polled) cut() { c.shutdown(unix.SHUT_RDWR) }

// shutdown ends one or both directions. Whoever owns the connection notices.
func (c *polled) shutdown(how int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd >= 0 {
		unix.Shutdown(c.fd, how)
	}
}

// tlsPolled is the socket of a connection of the event loop, as its TLS sees it.
type tlsPolled struct {
	net.Conn // nil: after the handshake, crypto/tls uses nothing else
	c        *polled
}

func (s tlsPolled) Read(b []byte) (int, error) {
	if s.c.received {
		return 0, errAgain
	}
	s.c.received = true
	return s.c.receive(b)
}

func (s tlsPolled) Write(b []byte) (int, error) { return len(b), s.c.send(b) }

func (s tlsPolled) SetWriteDeadline(time.Time) error { return nil }

// detach returns the socket as a connection of Go's, which may be waited for; the
// loop has forgotten it, and nothing is unsent.
func (c *polled) detach() (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := os.NewFile(uintptr(c.fd), "client")
	c.fd = -1
	defer f.Close()
	nc, err := net.FileConn(f)
	if err != nil || c.tls == nil {
		return nc, err
	}
	c.tls.NetConn().(*tlsSocket).Conn = nc
	return c.tls, nil
}

// close closes the socket.
func (c *polled) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	unix.Close(c.fd)
	c.fd = -1
}
