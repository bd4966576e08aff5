package wire

import (
	"net"
	"net/netip"
	"slices"
	"time"
)

// Limits of the handshakes in progress at the cluster port.
const (
	MaxHandshakes  = 128 // one more, and one is dropped
	MaxFromNetwork = 16  // of strangers in one network; one more, and its oldest is dropped
	// how long an address stays known after a member's last connection began or ended
	knownFor = time.Hour
	maxKnown = 1024 // addresses
)

// Door holds the handshakes in progress, and decides which one is dropped when there are too many.
// A stranger can begin any number of handshakes and finish none, so the network with the most loses
// its oldest: that one is more likely stalled than slow. An address is known while a member has a
// connection from it or to it, and for an hour after. Handshakes from known addresses are dropped
// only when there are no others, so strangers do not keep members out.
//
// The zero value is ready. A Door has neither a lock nor a clock.
type Door struct {
	shaking []handshake // the oldest first
	known   map[netip.Addr]knownAddress
}

// handshake is one in progress.
type handshake struct {
	conn net.Conn
	from netip.Addr
}

// knownAddress is an address of a member.
type knownAddress struct {
	open int       // connections
	last time.Time // when the last one began or ended
}

// Enter adds a handshake, and returns the connection to close, which can be the new one; nil: none.
func (d *Door) Enter(c net.Conn, from netip.Addr, now time.Time) net.Conn {
	d.shaking = append(d.shaking, handshake{c, from})
	for _, known := range []bool{false, true} {
		crowds, most := map[netip.Prefix]int{}, 0
		for _, h := range d.shaking {
			if d.knows(h.from, now) == known {
				crowds[network(h.from)]++
				most = max(most, crowds[network(h.from)])
			}
		}
		if most > 0 && (len(d.shaking) > MaxHandshakes || !known && most > MaxFromNetwork) {
			i := slices.IndexFunc(d.shaking, func(h handshake) bool {
				return d.knows(h.from, now) == known && crowds[network(h.from)] == most
			})
			dropped := d.shaking[i].conn
			d.shaking = slices.Delete(d.shaking, i, i+1)
			return dropped
		}
	}
	return nil
}

// Conns returns the connections of the handshakes in progress.
func (d *Door) Conns() (conns []net.Conn) {
	for _, h := range d.shaking {
		conns = append(conns, h.conn)
	}
	return conns
}

// Leave removes a handshake that has ended.
func (d *Door) Leave(c net.Conn) {
	d.shaking = slices.DeleteFunc(d.shaking, func(h handshake) bool { return h.conn == c })
}

// knows reports whether an address is known.
func (d *Door) knows(a netip.Addr, now time.Time) bool {
	k, ok := d.known[a]
	return ok && (k.open > 0 || now.Sub(k.last) < knownFor)
}

// Opened notes a connection of a member, once its handshake has succeeded.
func (d *Door) Opened(a netip.Addr, now time.Time) { d.count(a, 1, now) }

// Closed notes that such a connection has ended.
func (d *Door) Closed(a netip.Addr, now time.Time) { d.count(a, -1, now) }

// count changes how many connections an address has.
func (d *Door) count(a netip.Addr, by int, now time.Time) {
	if d.known == nil {
		d.known = map[netip.Addr]knownAddress{}
	}
	if _, ok := d.known[a]; !ok {
		if by < 0 { // forgotten, or never remembered
			return
		}
		d.forget(now)
		if len(d.known) >= maxKnown {
			return
		}
	}
	k := d.known[a]
	d.known[a] = knownAddress{open: max(0, k.open+by), last: now}
}

// forget makes room for another address, if there is none: the addresses that are known no longer go.
func (d *Door) forget(now time.Time) {
	for a := range d.known {
		if len(d.known) >= maxKnown && !d.knows(a, now) {
			delete(d.known, a)
		}
	}
}

// AddressOf returns the IP address of a connection's other end. Of another kind of network it is
// invalid, and all such addresses count as one.
func AddressOf(a net.Addr) netip.Addr {
	at, _ := netip.ParseAddrPort(a.String())
	return at.Addr().Unmap().WithZone("")
}

// network is what counts as one source of handshakes: of IPv6 a network of 64 bits, all of which
// one machine can have.
func network(a netip.Addr) netip.Prefix {
	bits := 32
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits)
	return p
}
