package server

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/fbfkv/fbfkv/commands"
	"github.com/fbfkv/fbfkv/server/rawio"
	"github.com/fbfkv/fbfkv/server/resp"
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
	state atomic.Uint32

	mu sync.Mutex // held to close fd, and to use it without owning the connection
	fd int        // -1: closed

	// What follows is the owner's.
	readable bool         // the socket may hold bytes, or the end of the stream
	last     bool         // no event will come any more: read to the end
	more     bool         // reader may hold complete requests
	starved  bool         // the last round had no room for it
	reader   *resp.Reader // nil: nothing was received that was not answered
	held     [][]byte     // a request that has to be carried out by itself
	unsent   *resp.Writer // replies that the client is not taking; nil: none
	sent     int          // how much of them was written
	err      error        // why the connection is to end
}

// The bits of polled.state: owned, and the events that wait for the owner.
const (
	owned = 1 << iota
	eventIn
	eventEnd // the peer will send no more, or the connection is broken
)

// errAgain: there is nothing to read for now.
var errAgain = errors.New("nothing to read")

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

// Read implements io.Reader for the connection's resp.Reader. It never waits.
func (c *polled) Read(b []byte) (int, error) {
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

// write sends what the socket takes and returns how much that is. It never
// waits.
func (c *polled) write(b []byte) (sent int, err error) {
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
		conn: conn{server: l.server, session: session, pipeline: commands.NewPipeline(&l.server.commands, session)},
		loop: l,
		fd:   fd,
	}
	c.line = c
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

// detach returns the socket as a connection of Go's, which may be waited for; the
// loop has forgotten it.
func (c *polled) detach() (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := os.NewFile(uintptr(c.fd), "client")
	c.fd = -1
	defer f.Close()
	return net.FileConn(f)
}

// close closes the socket.
func (c *polled) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	unix.Close(c.fd)
	c.fd = -1
}
