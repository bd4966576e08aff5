package sim

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// window is how many bytes may be under way in one direction of a connection.
const window = 1 << 20

// direction is one direction of a connection. Its bytes arrive in order, late, or not at all.
type direction struct {
	network  *Network
	from, to *Machine
	latency  time.Duration // of this connection

	mu      sync.Mutex
	sent    []segment // the oldest first
	size    int       // of all in sent, bytes
	last    time.Time // when the last of them arrives
	closed  bool      // by the writer: the reader gets what was sent, and io.EOF
	ignored bool      // nobody reads any more: what is written is lost
	readErr error     // not nil: nothing is read any more
	sendErr error     // not nil: nothing is written any more
	changed chan struct{}
}

// segment is what one write sent, and when it arrives.
type segment struct {
	at time.Time
	b  []byte
}

func newDirection(n *Network, from, to *Machine) *direction {
	d := &direction{network: n, from: from, to: to, changed: make(chan struct{})}
	d.latency = n.w.Between(50*time.Microsecond, 800*time.Microsecond)
	if n.w.Chance(0.07) { // much slower than its neighbours, so that messages overtake each other
		d.latency = n.w.Between(5*time.Millisecond, 120*time.Millisecond)
	}
	return d
}

// signal wakes the readers and writers that wait. The caller holds the lock.
func (d *direction) signal() {
	close(d.changed)
	d.changed = make(chan struct{})
}

// update changes the direction, and wakes those that wait.
func (d *direction) update(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
	d.signal()
}

// breaks ends the direction with an error, at once.
func (d *direction) breaks(err error) {
	d.update(func() {
		if d.readErr == nil {
			d.readErr = err
		}
		if d.sendErr == nil {
			d.sendErr = err
		}
	})
}

// delay makes all that is under way arrive later.
func (d *direction) delay(by time.Duration) {
	d.update(func() {
		at := time.Now().Add(by)
		for i := range d.sent {
			if d.sent[i].at.Before(at) {
				d.sent[i].at = at
			}
		}
		if len(d.sent) > 0 && d.last.Before(at) {
			d.last = at
		}
	})
}

// deadline is a time that may be set again.
type deadline struct {
	mu sync.Mutex
	at time.Time
}

func (d *deadline) get() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.at
}

func (d *deadline) set(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at = at
}

// wait waits for a change, until a time (zero: for ever) or the deadline. The caller holds the
// lock, which is not held meanwhile.
func (d *direction) wait(end time.Time, until time.Time) {
	changed := d.changed
	d.mu.Unlock()
	defer d.mu.Lock()
	if until.IsZero() || !end.IsZero() && end.Before(until) {
		until = end
	}
	if until.IsZero() {
		<-changed
		return
	}
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-changed:
	case <-t.C:
	}
}

func (d *direction) read(b []byte, limit *deadline) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		now, end := time.Now(), limit.get()
		if !end.IsZero() && !now.Before(end) {
			return 0, os.ErrDeadlineExceeded
		}
		var until time.Time
		switch {
		case d.readErr != nil:
			return 0, d.readErr
		case d.network.frozen(d.to) || d.network.isCut(d.from, d.to):
		case len(d.sent) > 0 && !d.sent[0].at.After(now):
			s := &d.sent[0]
			n := copy(b, s.b)
			if s.b = s.b[n:]; len(s.b) == 0 {
				d.sent = d.sent[1:]
			}
			d.size -= n
			d.signal()
			return n, nil
		case len(d.sent) > 0:
			until = d.sent[0].at
		case d.closed:
			return 0, io.EOF
		}
		d.wait(end, until)
	}
}

func (d *direction) write(b []byte, limit *deadline) (n int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(b) > 0 {
		end := limit.get()
		switch {
		case d.sendErr != nil:
			return n, d.sendErr
		case d.closed:
			return n, net.ErrClosed
		case !end.IsZero() && !time.Now().Before(end):
			return n, os.ErrDeadlineExceeded
		case d.ignored:
			return n + len(b), nil
		case d.network.frozen(d.from) || d.size >= window:
			d.wait(end, time.Time{})
			continue
		}
		part := b[:min(len(b), window-d.size)]
		at := time.Now().Add(d.latency + d.network.lateness(d.from, d.to) +
			d.network.w.Between(0, 100*time.Microsecond))
		if at.Before(d.last) {
			at = d.last
		}
		d.last = at
		d.sent = append(d.sent, segment{at, append([]byte(nil), part...)})
		d.size += len(part)
		n, b = n+len(part), b[len(part):]
		d.signal()
	}
	return n, nil
}

// connection is one end of a connection.
type connection struct {
	network       *Network
	number        int64 // the order in which they were made
	owner         *Machine
	in, out       *direction
	local, remote address
	other         *connection

	readLimit, writeLimit deadline
}

// address is a net.Addr.
type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

func (c *connection) Read(b []byte) (int, error)  { return c.in.read(b, &c.readLimit) }
func (c *connection) Write(b []byte) (int, error) { return c.out.write(b, &c.writeLimit) }
func (c *connection) LocalAddr() net.Addr         { return c.local }
func (c *connection) RemoteAddr() net.Addr        { return c.remote }

func (c *connection) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

func (c *connection) SetReadDeadline(t time.Time) error {
	c.readLimit.set(t)
	c.in.update(func() {})
	return nil
}

func (c *connection) SetWriteDeadline(t time.Time) error {
	c.writeLimit.set(t)
	c.out.update(func() {})
	return nil
}

// Close closes this end. The bytes under way from here arrive. The other end's bytes are lost, and
// it learns that a while later.
func (c *connection) Close() error {
	if !c.network.forget(c) {
		return nil
	}
	c.out.update(func() { c.out.closed = true })
	c.in.update(func() {
		if c.in.readErr == nil {
			c.in.readErr = net.ErrClosed
		}
		c.in.ignored = true
	})
	time.AfterFunc(c.out.latency, func() {
		c.in.update(func() {
			if c.in.sendErr == nil {
				c.in.sendErr = syscall.EPIPE
			}
		})
	})
	return nil
}

// die is what happens to this end when its process does: what is under way arrives, and nothing follows.
func (c *connection) die() {
	c.network.forget(c)
	c.in.update(func() { c.in.readErr, c.in.ignored = syscall.ECONNABORTED, true })
	c.out.update(func() { c.out.sendErr = syscall.ECONNABORTED })
}

// reset breaks both directions.
func (c *connection) reset(err error) {
	c.in.breaks(err)
	c.out.breaks(err)
}
