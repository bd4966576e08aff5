package cluster

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fbfkv/fbfkv/cluster/wire"
	"github.com/fbfkv/fbfkv/internal/testwait"
	"github.com/fbfkv/fbfkv/server/tlstest"
)

// logged is a log in memory.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write is io.Writer's.
func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// count returns how many lines contain a text.
func (l *logged) count(part string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, part) {
			n++
		}
	}
	return n
}

// until waits for a line.
func (l *logged) until(t testing.TB, part string) {
	t.Helper()
	for end := time.Now().Add(testwait.Limit); l.count(part) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the log never says %q:\n%s", part, l.text.String())
		}
	}
}

// listen starts a node, named by a digit, that echoes what KindAsk sends it.
func listen(t testing.TB, name string, o NetOptions) (*Net, *logged) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	lines := new(logged)
	o.Log = slog.New(slog.NewTextHandler(lines, nil))
	if o.Self == (Identity{}) {
		o.Self = Identity{Cluster: testID("c"), Node: testID(name), Format: 1}
	}
	o.patience = cmp.Or(o.patience, time.Minute) // a busy machine may take longer than handshakeTimeout
	n, err := Listen(l, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	n.Handle(KindAsk, func(c net.Conn, from Identity) {
		defer c.Close()
		fmt.Fprintf(c, "%s %d\n", from.Node, from.Format)
		io.Copy(c, c)
	})
	return n, lines
}

// TestRemovedNodeHearsSo: a node hears in the handshake that a later configuration than its own is
// without it, and does not from a node that knows an older one, which it may not be in yet.
func TestRemovedNodeHearsSo(t *testing.T) {
	t.Parallel()
	other, _ := listen(t, "1", NetOptions{Secret: testSecret, Version: func() uint64 { return 5 },
		Admit: func(Identity, byte) error { return errors.New("it is no member") }})
	for version, want := range map[uint64]int{0: 0, 4: 1, 5: 0, 6: 0} { // 0: it is about to join
		heard := 0
		gone, _ := listen(t, "2", NetOptions{Secret: testSecret, Version: func() uint64 { return version },
			Removed: func() { heard++ }})
		if err := speak(gone, other, testID("1")); err == nil {
			t.Error("it is let in")
		}
		if heard != want {
			t.Errorf("with version %d it hears %d times that it was removed, want %d", version, heard, want)
		}
	}
}

// speak dials and expects the greeting of listen's handler.
func speak(from, to *Net, node string) error {
	ctx, cancel := context.WithTimeout(context.Background(), testwait.Limit)
	defer cancel()
	c, err := from.Dial(ctx, node, to.Addr().String(), KindAsk)
	if err != nil {
		return err
	}
	defer c.Close()
	want := fmt.Sprintf("%s %d\nover", from.o.Self.Node, from.o.Self.Format)
	if _, err := c.Write([]byte("over")); err != nil {
		return err
	}
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		return fmt.Errorf("read %q: %v", got, err)
	}
	return nil
}

// certificate returns a TLS function with a certificate of an authority.
func certificate(t *testing.T, a *tlstest.Authority, name string) func() *tls.Config {
	t.Helper()
	cert, key := a.Issue(name, time.Now().Add(time.Hour))
	return configuration(t, cert, key, a.File)
}

// configuration returns a TLS function with the certificates of these files.
func configuration(t *testing.T, cert, key, authorities string) func() *tls.Config {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	pem, err := os.ReadFile(authorities)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	config := &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool}
	return func() *tls.Config { return config }
}

// TestMembersOnly lets nodes in that prove their membership, and says in both logs why it
// refuses others.
func TestMembersOnly(t *testing.T) {
	t.Parallel()
	us, them := tlstest.NewAuthority(t, "ours"), tlstest.NewAuthority(t, "theirs")
	const secret, another = testSecret, "another secret, as long"
	self := func(cluster, node string, format uint16) Identity {
		return Identity{Cluster: testID(cluster), Node: testID(node), Format: format}
	}
	for _, c := range []struct {
		name             string
		dialer, listener NetOptions
		node             string // wanted
		dialed, accepted string // what the logs say; empty: all is well
	}{
		{name: "loopback", node: testID("2")},
		{name: "secret", dialer: NetOptions{Secret: secret}, listener: NetOptions{Secret: secret},
			node: testID("2")},
		{name: "TLS", dialer: NetOptions{TLS: certificate(t, us, "1")},
			listener: NetOptions{TLS: certificate(t, us, "2")}},
		{name: "both", dialer: NetOptions{TLS: certificate(t, us, "1"), Secret: secret},
			listener: NetOptions{TLS: certificate(t, us, "2"), Secret: secret}},
		{
			name: "another secret", dialer: NetOptions{Secret: secret}, listener: NetOptions{Secret: another},
			dialed: "another cluster-secret", accepted: "another cluster-secret",
		}, {
			name: "TLS and another secret", dialer: NetOptions{TLS: certificate(t, us, "1"), Secret: another},
			listener: NetOptions{TLS: certificate(t, us, "2"), Secret: secret},
			dialed:   "another cluster-secret", accepted: "another cluster-secret",
		}, {
			name: "TLS and no secret", dialer: NetOptions{TLS: certificate(t, us, "1")},
			listener: NetOptions{TLS: certificate(t, us, "2"), Secret: secret},
			dialed:   "another cluster-secret", accepted: "another cluster-secret",
		}, {
			name: "no secret", listener: NetOptions{Secret: secret},
			dialed:   "only one of the two nodes uses TLS or a cluster-secret",
			accepted: "has no cluster-secret",
		}, {
			name: "a secret for one that has none", dialer: NetOptions{Secret: secret},
			dialed: "closes the connection", accepted: "does not speak this protocol",
		}, {
			name: "another authority", dialer: NetOptions{TLS: certificate(t, them, "1")},
			listener: NetOptions{TLS: certificate(t, us, "2")},
			dialed:   "certificate is refused", accepted: "refuses the TLS connection",
		}, {
			name: "a secret for TLS", dialer: NetOptions{Secret: secret},
			listener: NetOptions{TLS: certificate(t, us, "2"), Secret: secret},
			dialed:   "refuses the TLS connection", accepted: "certificate is refused",
		}, {
			name: "another cluster", dialer: NetOptions{Self: self("d", "1", 1), Secret: secret},
			listener: NetOptions{Secret: secret},
			dialed:   "another cluster", accepted: "another cluster",
		}, {
			name: "an old program", dialer: NetOptions{Secret: secret, Level: func() uint16 { return 1 }},
			listener: NetOptions{Self: self("c", "2", 2), Secret: secret},
			dialed:   "start this node with a newer program",
			accepted: "reads formats up to level 1, and the cluster writes level 2",
		}, {
			name: "an old listener", dialer: NetOptions{Self: self("c", "1", 2), Secret: secret},
			listener: NetOptions{Secret: secret},
			dialed:   "reads formats up to level 1, and the cluster writes level 2",
		}, {
			name: "another node", dialer: NetOptions{Secret: secret}, listener: NetOptions{Secret: secret},
			node:   testID("3"),
			dialed: "another node has this address", accepted: "looks for another node",
		}, {
			name: "a copied directory", dialer: NetOptions{Self: self("c", "2", 1), Secret: secret},
			listener: NetOptions{Secret: secret},
			dialed:   "the same id", accepted: "the same id",
		}, {
			name: "a stranger", dialer: NetOptions{Secret: secret},
			listener: NetOptions{Secret: secret,
				Admit: func(Identity, byte) error { return errors.New("who is that") }},
			dialed: "does not know the other", accepted: "who is that",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			from, dialerLog := listen(t, "1", c.dialer)
			to, listenerLog := listen(t, "2", c.listener)
			err := speak(from, to, c.node)
			if c.dialed == "" {
				if err != nil {
					t.Fatal(err)
				}
				if err := speak(to, from, ""); err != nil {
					t.Errorf("the other way: %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.dialed) {
				t.Errorf("Dial: %v", err)
			}
			dialerLog.until(t, c.dialed)
			if c.accepted != "" {
				listenerLog.until(t, c.accepted)
			}
			for range 3 { // a node that tries again and again
				speak(from, to, c.node)
			}
			if n := dialerLog.count("cannot be used"); n != 1 {
				t.Errorf("the dialer's log says it %d times", n)
			}
			if n := listenerLog.count("is refused"); n > 1 {
				t.Errorf("the listener's log says it %d times", n)
			}
		})
	}
}

// TestMembersCertificates shows every kind of certificate to a member, as dialer and as listener:
// only one for servers, of the cluster's authorities, makes another member.
func TestMembersCertificates(t *testing.T) {
	t.Parallel()
	a := tlstest.NewAuthority(t, "ours")
	member := certificate(t, a, "member")
	for _, c := range tlstest.Cases(t, a) {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			us, ourLog := listen(t, "1", NetOptions{TLS: member})
			other, _ := listen(t, "2", NetOptions{TLS: configuration(t, c.Cert, c.Key, a.File)})
			if err := speak(other, us, ""); (err == nil) != c.Server {
				t.Errorf("it dials: %v", err)
			}
			if err := speak(us, other, ""); (err == nil) != c.Server {
				t.Errorf("it is dialed: %v", err)
			}
			if !c.Server {
				ourLog.until(t, "certificate is refused")
			}
		})
	}
	if _, err := Listen(listener(t), NetOptions{
		Self: Identity{Cluster: testID("c"), Node: testID("1"), Format: 1}, TLS: func() *tls.Config {
			return &tls.Config{Certificates: member().Certificates}
		},
	}); err == nil {
		t.Error("TLS without authorities")
	}
}

// listener returns a socket on the loopback interface.
func listener(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// TestReflection sends a dialer's messages back to it: they prove nothing.
func TestReflection(t *testing.T) {
	t.Parallel()
	n, _ := listen(t, "1", NetOptions{Secret: testSecret})
	l := listener(t)
	go func() {
		raw, err := l.Accept()
		if err != nil {
			return
		}
		defer raw.Close()
		c, _, err := n.secure(raw, false)
		if err == nil {
			io.Copy(c, c)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), testwait.Limit)
	defer cancel()
	if _, err := n.Dial(ctx, "", l.Addr().String(), KindAsk); err == nil ||
		!strings.Contains(err.Error(), "another cluster-secret") {
		t.Errorf("Dial: %v", err)
	}
	channel, randoms := make([]byte, 32), [2 * randomSize]byte{}
	if bytes.Equal(n.proof(roleDialer, channel, randoms, nil), n.proof(roleListener, channel, randoms, nil)) {
		t.Error("a dialer's proof is a listener's")
	}
}

// TestRelay stands between two members, with a TLS connection to each, and passes on what
// they say: proofs are bound to their connections.
func TestRelay(t *testing.T) {
	t.Parallel()
	from, _ := listen(t, "1", NetOptions{Secret: testSecret})
	to, toLog := listen(t, "2", NetOptions{Secret: testSecret})
	l := listener(t)
	go func() {
		first, err := l.Accept()
		if err != nil {
			return
		}
		defer first.Close()
		second, err := net.Dial("tcp", to.Addr().String())
		if err != nil {
			return
		}
		defer second.Close()
		a, _, err := from.secure(first, false)
		if err != nil {
			return
		}
		b, _, err := from.secure(second, true)
		if err != nil {
			return
		}
		go io.Copy(a, b)
		io.Copy(b, a)
	}()
	ctx, cancel := context.WithTimeout(t.Context(), testwait.Limit)
	defer cancel()
	if _, err := from.Dial(ctx, "", l.Addr().String(), KindAsk); err == nil {
		t.Error("a relay is let in")
	}
	toLog.until(t, "another cluster-secret")
}

// TestReplay sends what a dialer once said to the same listener again.
func TestReplay(t *testing.T) {
	t.Parallel()
	var from Net
	from.o.Secret = testSecret
	to, _ := listen(t, "2", NetOptions{Secret: testSecret})
	var said []byte
	for attempt := range 2 {
		raw, err := net.Dial("tcp", to.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer raw.Close()
		c, channel, err := from.secure(raw, true)
		if err != nil {
			t.Fatal(err)
		}
		randoms, err := exchange(c, true)
		if err != nil {
			t.Fatal(err)
		}
		if attempt == 0 {
			h := hello{kind: KindAsk, from: to.self}.append(nil)
			said = append(from.proof(roleDialer, channel, randoms, h), h...)
		}
		if _, err := c.Write(said); err != nil {
			t.Fatal(err)
		}
		var reply [proofSize + answerSize]byte
		if _, err := io.ReadFull(c, reply[:]); err != nil {
			t.Fatal(err)
		}
		if zero := bytes.Equal(reply[:], make([]byte, len(reply))); zero != (attempt == 1) {
			t.Errorf("attempt %d is answered %x", attempt, reply)
		}
	}
}

// TestHandshakesAreBounded keeps more strangers waiting than there may be handshakes from one
// address, and expects the oldest to be dropped and members to get in, whose address then is under
// no such limit.
func TestHandshakesAreBounded(t *testing.T) {
	t.Parallel()
	from, _ := listen(t, "1", NetOptions{Secret: testSecret})
	to, _ := listen(t, "2", NetOptions{Secret: testSecret, patience: time.Hour})
	stall := func(count int) (stalled []net.Conn) {
		for range count {
			c, err := net.Dial("tcp", to.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			stalled = append(stalled, c)
		}
		return stalled
	}
	stalled := stall(wire.MaxFromNetwork + 10)
	if err := speak(from, to, ""); err != nil {
		t.Error(err)
	}
	for _, c := range stalled[:10] {
		mustEnd(t, c)
	}
	stalled = stall(wire.MaxHandshakes + 10)
	if err := speak(from, to, ""); err != nil {
		t.Error(err)
	}
	for _, c := range stalled[:10] {
		mustEnd(t, c)
	}
	to.mu.Lock()
	defer to.mu.Unlock()
	if n := len(to.door.Conns()); n < wire.MaxHandshakes-1 || n > wire.MaxHandshakes {
		t.Errorf("%d handshakes at a time", n)
	}
}

// TestHandshakeHasDeadline drops a stranger who says nothing.
func TestHandshakeHasDeadline(t *testing.T) {
	t.Parallel()
	to, _ := listen(t, "2", NetOptions{patience: time.Millisecond})
	c, err := net.Dial("tcp", to.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	mustEnd(t, c)
}

// mustEnd waits until the other side has closed a connection, without another byte.
func mustEnd(t *testing.T, c net.Conn) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(testwait.Limit))
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the connection is not closed: %v", err)
	}
}

// TestConnsPerPeerAreBounded closes a member's oldest connection when it dials once too
// often, and no other.
func TestConnsPerPeerAreBounded(t *testing.T) {
	t.Parallel()
	from, _ := listen(t, "1", NetOptions{})
	other, _ := listen(t, "3", NetOptions{})
	to, _ := listen(t, "2", NetOptions{})
	dial := func(from *Net) net.Conn {
		c, err := from.Dial(t.Context(), "", to.Addr().String(), KindAsk)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if _, err := c.Read(make([]byte, 100)); err != nil { // the greeting: it is served
			t.Fatal(err)
		}
		return c
	}
	others := dial(other)
	var open []net.Conn
	for range maxConnsPerPeer + 1 {
		open = append(open, dial(from))
	}
	mustEnd(t, open[0])
	for _, c := range append(open[1:], others) {
		if _, err := c.Write([]byte("x")); err != nil {
			t.Error(err)
		}
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Error(err)
		}
	}
	open[1].Close()
	for end := time.Now().Add(testwait.Limit); ; time.Sleep(time.Millisecond) {
		to.mu.Lock()
		n := len(to.open)
		to.mu.Unlock()
		if n == maxConnsPerPeer {
			break
		} else if time.Now().After(end) {
			t.Fatalf("%d connections are open", n)
		}
	}
}

// TestUnknownKind refuses a kind of connection that nobody serves.
func TestUnknownKind(t *testing.T) {
	t.Parallel()
	from, _ := listen(t, "1", NetOptions{})
	to, _ := listen(t, "2", NetOptions{})
	if _, err := from.Dial(t.Context(), "", to.Addr().String(), KindMeta); err == nil ||
		!strings.Contains(err.Error(), "does not serve") {
		t.Errorf("Dial: %v", err)
	}
}

// TestRefusalsAreBounded logs a reason once in a while, for a bounded number of peers.
func TestRefusalsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r refusals
		for range 2 {
			for i := range 10 * maxSaid {
				if is := r.isNew(fmt.Sprint(i),
					"a reason"+strings.Repeat(" ", 48)+time.Now().String()); is != (i < maxSaid) {
					t.Fatalf("%d: %v", i, is)
				}
			}
			if r.isNew("0", "a reason"+strings.Repeat(" ", 48)+"later") {
				t.Error("a reason is logged twice")
			}
			time.Sleep(sayAgainAfter)
		}
	})
}

// TestCheckExposure needs a proof of membership beyond the loopback interface.
func TestCheckExposure(t *testing.T) {
	for _, c := range []struct {
		hosts  []string
		tls    bool
		secret string
		want   string
	}{
		{hosts: []string{"127.0.0.1", "::1", "localhost", "127.8.8.8"}},
		{hosts: []string{""}, want: "set cluster-secret or tls-cluster yes"},
		{hosts: []string{"127.0.0.1", "192.0.2.1"}, want: `"192.0.2.1"`},
		{hosts: []string{"example.org"}, want: "example.org"},
		{hosts: []string{"0.0.0.0"}, want: "0.0.0.0"},
		{hosts: []string{"::"}, tls: true},
		{hosts: []string{"0.0.0.0"}, secret: testSecret},
		{hosts: []string{"127.0.0.1"}, secret: "short", want: "at least 16"},
	} {
		if err := CheckExposure(c.hosts, c.tls, c.secret); (err == nil) != (c.want == "") || err != nil &&
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%v %v %q: %v", c.hosts, c.tls, c.secret, err)
		}
	}
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := Listen(l,
		NetOptions{Self: Identity{Cluster: testID("c"), Node: testID("1"), Format: 1}}); err == nil {
		t.Error("Listen opens the port to everyone")
	}
}
