package cluster

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// errCut is what becomes of a connection that has lost bytes.
var errCut = errors.New("the connection has lost bytes")

// faults cut and delay the connections between the nodes of a test. A node gets its way
// to dial from dialer, and says at which address it listens. Methods are safe for
// concurrent use; the zero value has no faults.
type faults struct {
	memNet // in which nodes may listen

	mu     sync.Mutex
	names  map[string]string           // by address
	cuts   map[[2]string]bool          // from, to
	delays map[[2]string]time.Duration // from, to
	held   map[[2]string]chan struct{} // from, to: closed when it is released
	conns  map[*faultyConn]struct{}    // those that are open
}

// dialer returns NetOptions.Dial for a node.
func (f *faults) dialer(from string) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		f.mu.Lock()
		to := f.names[address]
		f.mu.Unlock()
		if f.isCut(from, to) || f.isCut(to, from) { // nobody answers
			<-ctx.Done()
			return nil, ctx.Err()
		}
		raw, err := f.dial(ctx, address)
		if err != nil {
			return nil, err
		}
		c := &faultyConn{Conn: raw, faults: f, from: from, to: to}
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.conns == nil {
			f.conns = map[*faultyConn]struct{}{}
		}
		f.conns[c] = struct{}{}
		return c, nil
	}
}

// listens says which node listens at an address.
func (f *faults) listens(address, name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.names == nil {
		f.names = map[string]string{}
	}
	f.names[address] = name
}

// cut loses from now on what one node sends to another; heal ends that. A connection that
// has lost bytes breaks once it is healed.
func (f *faults) cut(from, to string) { f.setCut(from, to, true) }

// heal ends cut.
func (f *faults) heal(from, to string) { f.setCut(from, to, false) }

func (f *faults) setCut(from, to string, is bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cuts == nil {
		f.cuts = map[[2]string]bool{}
	}
	f.cuts[[2]string{from, to}] = is
}

// isolate cuts a node off from the others, both ways; reconnect ends that.
func (f *faults) isolate(name string, others ...string) {
	for _, other := range others {
		f.setCut(name, other, true)
		f.setCut(other, name, true)
	}
}

// reconnect ends isolate.
func (f *faults) reconnect(name string, others ...string) {
	for _, other := range others {
		f.setCut(name, other, false)
		f.setCut(other, name, false)
	}
}

// delay makes what one node sends to another take this much longer.
func (f *faults) delay(from, to string, d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.delays == nil {
		f.delays = map[[2]string]time.Duration{}
	}
	f.delays[[2]string{from, to}] = d
}

// hold keeps what one node sends to another from arriving until release.
func (f *faults) hold(from, to string) (release func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held == nil {
		f.held = map[[2]string]chan struct{}{}
	}
	way, gate := [2]string{from, to}, make(chan struct{})
	f.held[way] = gate
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.held, way)
		close(gate)
	}
}

// wait takes the time that a message needs from one node to another.
func (f *faults) wait(from, to string) {
	f.mu.Lock()
	gate, delay := f.held[[2]string{from, to}], f.delays[[2]string{from, to}]
	f.mu.Unlock()
	if gate != nil {
		<-gate
	}
	time.Sleep(delay)
}

// reset breaks every connection between two nodes at once.
func (f *faults) reset(one, other string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		if c.from == one && c.to == other || c.from == other && c.to == one {
			c.Conn.Close()
		}
	}
}

func (f *faults) isCut(from, to string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cuts[[2]string{from, to}]
}

// faultyConn is a connection that one node has dialed: its writes go from -> to, its
// reads to -> from.
type faultyConn struct {
	net.Conn
	faults   *faults
	from, to string

	mu   sync.Mutex
	lost bool // bytes: the rest makes no sense
}

// loses reports whether a direction is cut now. One that lost bytes earlier breaks the
// connection.
func (c *faultyConn) loses(from, to string) (bool, error) {
	is := c.faults.isCut(from, to)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !is && c.lost {
		c.Conn.Close()
		return false, errCut
	}
	c.lost = c.lost || is
	return is, nil
}

// Write sends, or loses, what it is given.
func (c *faultyConn) Write(b []byte) (int, error) {
	c.faults.wait(c.from, c.to)
	switch lost, err := c.loses(c.from, c.to); {
	case err != nil:
		return 0, err
	case lost:
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// Read receives what has not been lost.
func (c *faultyConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil {
			return n, err
		}
		c.faults.wait(c.to, c.from)
		switch lost, err := c.loses(c.to, c.from); {
		case err != nil:
			return 0, err
		case !lost:
			return n, nil
		}
	}
}

// Close ends the connection.
func (c *faultyConn) Close() error {
	c.faults.mu.Lock()
	delete(c.faults.conns, c)
	c.faults.mu.Unlock()
	return c.Conn.Close()
}
