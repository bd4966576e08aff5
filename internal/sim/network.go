package sim

import (
	"context"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Network connects the machines of a world, as TCP does: connections keep the order of their bytes,
// and break as a whole. Bytes that are sent over a cut link arrive when the link is healed, unless
// the connection breaks then.
type Network struct {
	w *World

	mu          sync.Mutex
	listeners   map[address]*listener
	connections map[*connection]struct{}
	made        int64
	links       map[link]linkState
	stopped     map[*Machine]int  // frozen, by so many faults
	dark        map[*Machine]bool // it has no power: nobody answers, not even with a reset
}

// link is one direction between two machines.
type link struct{ from, to *Machine }

// linkState is what is wrong with a link.
type linkState struct {
	cuts int           // by so many faults
	late time.Duration // on top of what connections need
}

func newNetwork(w *World) *Network {
	return &Network{w: w, listeners: make(map[address]*listener), connections: make(map[*connection]struct{}),
		links: make(map[link]linkState), stopped: make(map[*Machine]int), dark: make(map[*Machine]bool)}
}

func (n *Network) isCut(from, to *Machine) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.links[link{from, to}].cuts > 0
}

func (n *Network) frozen(m *Machine) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stopped[m] > 0
}

func (n *Network) lateness(from, to *Machine) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.links[link{from, to}].late
}

// forget removes an end from the network's. It reports whether the end was there.
func (n *Network) forget(c *connection) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, there := n.connections[c]
	delete(n.connections, c)
	return there
}

// ends returns the ends of connections that match, the oldest first. The lock is held while match
// runs, which must not lock a direction: those who read and write lock that first.
func (n *Network) ends(match func(c *connection) bool) (ends []*connection) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.connections {
		if match(c) {
			ends = append(ends, c)
		}
	}
	slices.SortFunc(ends, func(a, b *connection) int { return int(a.number - b.number) })
	return ends
}

// listener is the one of a process.
type listener struct {
	network *Network
	owner   *Machine
	address address
	queue   chan *connection
	closed  chan struct{}
	once    sync.Once
}

// listen opens a port for a process. One that has died has no network any more, and takes no port
// from the next one.
func (n *Network) listen(by *Life, port int) *listener {
	m := by.Machine
	l := &listener{network: n, owner: m, address: m.address(port), queue: make(chan *connection, 256),
		closed: make(chan struct{})}
	n.mu.Lock()
	if by.Dead() {
		n.mu.Unlock()
		_ = l.Close() // never fails
		return l
	}
	n.listeners[l.address] = l
	delete(n.dark, m)
	n.mu.Unlock()
	// The peers of the machine's former process learn that it is gone.
	for _, c := range n.ends(func(c *connection) bool { return c.in.from == m }) {
		if c.in.ended() {
			c.reset(syscall.ECONNRESET)
		}
	}
	return l
}

// ended reports whether the writer is gone.
func (d *direction) ended() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sendErr != nil
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.network.mu.Lock()
		defer l.network.mu.Unlock()
		if l.network.listeners[l.address] == l {
			delete(l.network.listeners, l.address)
		}
	})
	return nil
}

func (l *listener) Addr() net.Addr { return l.address }

// dial opens a connection from a process to an address.
func (n *Network) dial(ctx context.Context, from *Life, to string) (net.Conn, error) {
	m := n.w.at(to)
	if m == nil {
		return nil, syscall.EHOSTUNREACH
	}
	for n.silent(from.Machine, m) { // as long as nobody answers, the first packet is sent again
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-from.Gone:
			return nil, net.ErrClosed
		case <-time.After(20 * time.Millisecond):
		}
	}
	there, back := newDirection(n, from.Machine, m), newDirection(n, m, from.Machine)
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(there.latency + back.latency + n.lateness(from.Machine, m) +
		n.lateness(m, from.Machine)):
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.listeners[address(to)]
	if l == nil || from.Dead() {
		return nil, syscall.ECONNREFUSED
	}
	n.made += 2
	a := &connection{network: n, number: n.made, owner: from.Machine, in: back, out: there,
		local: from.Machine.address(50000), remote: address(to)}
	b := &connection{network: n, number: n.made + 1, owner: m, in: there, out: back, local: address(to),
		remote: a.local, other: a}
	a.other = b
	select {
	case l.queue <- b:
	default:
		return nil, syscall.ECONNREFUSED
	}
	n.connections[a], n.connections[b] = struct{}{}, struct{}{}
	return a, nil
}

// silent reports whether a first packet from one machine to another stays without an answer.
func (n *Network) silent(from, to *Machine) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.links[link{from, to}].cuts > 0 || n.links[link{to, from}].cuts > 0 || n.dark[to] ||
		n.stopped[from] > 0
}

// Cut cuts the link from one machine to another, until it is healed as often.
func (n *Network) Cut(from, to *Machine) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.links[link{from, to}]
	s.cuts++
	n.links[link{from, to}] = s
}

// Heal undoes Cut. Some connections have not survived it; on the others what was sent is sent again.
func (n *Network) Heal(from, to *Machine) {
	n.mu.Lock()
	s := n.links[link{from, to}]
	s.cuts--
	n.links[link{from, to}] = s
	n.mu.Unlock()
	for _, c := range n.ends(func(c *connection) bool { return c.in.from == from && c.in.to == to }) {
		if n.w.Chance(0.3) {
			c.reset(syscall.ETIMEDOUT)
			continue
		}
		c.in.delay(n.w.Between(0, 400*time.Millisecond))
	}
}

// Slow makes everything from one machine to another so much later.
func (n *Network) Slow(from, to *Machine, by time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.links[link{from, to}]
	s.late = by
	n.links[link{from, to}] = s
}

// Reset breaks the connections between two machines.
func (n *Network) Reset(a, b *Machine) {
	for _, c := range n.ends(func(c *connection) bool {
		return c.in.from == a && c.in.to == b || c.in.from == b && c.in.to == a
	}) {
		c.reset(syscall.ECONNRESET)
	}
}

// Freeze stops all traffic of a machine, until it is thawed as often.
func (n *Network) Freeze(m *Machine) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stopped[m]++
}

// Thaw undoes Freeze.
func (n *Network) Thaw(m *Machine) {
	n.mu.Lock()
	n.stopped[m]--
	n.mu.Unlock()
	for _, c := range n.ends(func(*connection) bool { return true }) {
		c.in.update(func() {})
		c.out.update(func() {})
	}
}

// died ends the connections of a machine's process. The others are told, unless power was lost:
// then they wait.
func (n *Network) died(m *Machine, power bool) {
	n.mu.Lock()
	if power {
		n.dark[m] = true
	}
	var open []*listener
	for _, l := range n.listeners {
		if l.owner == m {
			open = append(open, l)
		}
	}
	n.mu.Unlock()
	for _, l := range open {
		_ = l.Close() // never fails
	}
	for _, c := range n.ends(func(c *connection) bool { return c.owner == m }) {
		c.die()
		if other := c.other; !power {
			time.AfterFunc(other.in.latency+time.Millisecond, func() { other.reset(syscall.ECONNRESET) })
		}
	}
}
