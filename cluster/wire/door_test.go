package wire

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"
)

// namedConn is a connection that only has a name.
type namedConn struct {
	net.Conn
	name string
}

// TestDoor begins handshakes from addresses and expects to see which one is dropped for the last of them.
func TestDoor(t *testing.T) {
	t.Parallel()
	crowd := func(count int, from string) (addresses []string) { // a * in from is a number
		for i := range count {
			addresses = append(addresses, strings.ReplaceAll(from, "*", strconv.Itoa(i)))
		}
		return addresses
	}
	many := func(parts ...[]string) (all []string) {
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
	one := func(from string) []string { return []string{from} }
	const member = "10.0.0.1"
	for name, c := range map[string]struct {
		begin []string
		want  string // INDEX of the connection that the last one drops
	}{
		"few":          {crowd(MaxFromNetwork, "192.0.2.1"), ""},
		"one too many": {many(one("192.0.2.2"), crowd(MaxFromNetwork+1, "192.0.2.1")), "1"},
		"of one IPv6 network": {many(one("2001:db8::1"), crowd(MaxFromNetwork+1, "2001:db8:0:1::*")),
			"1"},
		"of many IPv6 networks": {crowd(MaxFromNetwork+1, "2001:db8:0:*::1"), ""},
		"IPv4 in IPv6": {many(one("2001:db8::1"), crowd(MaxFromNetwork, "192.0.2.1"),
			one("::ffff:192.0.2.1")), "1"},
		"all known":          {crowd(MaxHandshakes, member), ""},
		"one too many known": {crowd(MaxHandshakes+1, member), "0"},
		"strangers before members": {many(crowd(MaxHandshakes-1, member), one("192.0.2.1"), one(member)),
			fmt.Sprint(MaxHandshakes - 1)},
		"the new one is a stranger": {many(crowd(MaxHandshakes, member), one("192.0.2.1")),
			fmt.Sprint(MaxHandshakes)},
		"in sum, the crowd first": {many(crowd(MaxHandshakes-2, "192.0.2.*"), crowd(2, "198.51.100.1"),
			one("203.0.113.1")),
			fmt.Sprint(MaxHandshakes - 2)},
		"in sum, the oldest of equals": {crowd(MaxHandshakes+1, "192.0.2.*"), "0"},
	} {
		t.Run(name, func(t *testing.T) {
			var d Door
			now := time.Unix(1e9, 0)
			d.Opened(netip.MustParseAddr(member), now)
			for i, from := range c.begin {
				got, want := "", ""
				if dropped := d.Enter(&namedConn{name: fmt.Sprint(i)}, netip.MustParseAddr(from).Unmap(),
					now); dropped != nil {
					got = dropped.(*namedConn).name
				}
				if i == len(c.begin)-1 {
					want = c.want
				}
				if got != want {
					t.Fatalf("handshake %d drops %q, want %q", i, got, want)
				}
			}
		})
	}
}

// TestDoorKnows: an address is known while it has a connection and for an hour after, and the
// number of them is bounded.
func TestDoorKnows(t *testing.T) {
	t.Parallel()
	var d Door
	a, now := netip.MustParseAddr("10.0.0.1"), time.Unix(1e9, 0)
	know := func(want bool) {
		t.Helper()
		if d.knows(a, now) != want {
			t.Errorf("known: %v, want %v", !want, want)
		}
	}
	d.Closed(a, now) // of a connection that was never noted
	know(false)
	d.Opened(a, now)
	d.Opened(a, now)
	now = now.Add(100 * time.Hour)
	d.Closed(a, now)
	now = now.Add(100 * time.Hour)
	know(true) // it has the other connection
	d.Closed(a, now)
	now = now.Add(knownFor - 1)
	know(true)
	now = now.Add(1)
	know(false)

	for i := range maxKnown + 10 { // all have connections
		d.Opened(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), now)
	}
	if len(d.known) != maxKnown {
		t.Errorf("%d addresses are remembered", len(d.known))
	}
	know(false)
	d.Closed(netip.AddrFrom4([4]byte{10, 1, 0, 0}), now)
	now = now.Add(knownFor)
	d.Opened(a, now) // in the place of the one that is known no longer
	know(true)
	if d.knows(netip.AddrFrom4([4]byte{10, 1, 0, 0}), now) || len(d.known) != maxKnown {
		t.Errorf("%d addresses are remembered", len(d.known))
	}
}

// TestDoorForgetsHandshakes: a handshake that has ended counts no more.
func TestDoorForgetsHandshakes(t *testing.T) {
	t.Parallel()
	var d Door
	for range 3 * MaxHandshakes {
		c := &namedConn{}
		if dropped := d.Enter(c, netip.MustParseAddr("192.0.2.1"), time.Unix(1e9, 0)); dropped != nil {
			t.Fatal("a handshake is dropped")
		}
		d.Leave(c)
	}
	if n := len(d.Conns()); n != 0 {
		t.Errorf("%d handshakes are in progress", n)
	}
}
