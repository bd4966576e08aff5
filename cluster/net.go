package cluster

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fbfkv/fbfkv/cluster/raftgroup"
	"github.com/fbfkv/fbfkv/cluster/raftmsg"
	"github.com/fbfkv/fbfkv/cluster/wire"
)

// The kinds of connection between the nodes of a cluster. The dialer names the kind in
// its handshake.
const (
	KindRaft  byte = 'R' // Raft's messages in a shard: Net.Transport
	KindMeta  byte = 'M' // those of the meta group
	KindAsk   byte = 'Q' // questions of all other kinds: package wire
	KindOlder byte = 'O' // to dial is to say that the other's directory is older than one that ran before
)

// Limits of the cluster port.
const (
	handshakeTimeout = 5 * time.Second
	maxConnsPerPeer  = 32 // of one kind that one node has dialed: one more, and the oldest is dropped
	minSecret        = 16 // bytes of cluster-secret
)

// Identity is what a node says of itself before anything else.
type Identity struct {
	Cluster string // the cluster's id, 40 hexadecimal digits
	Node    string // the node's id, 40 hexadecimal digits
	Format  uint16 // the highest format level that its program reads
	Starts  uint64 // the number of its directory's start (R9)
}

// NetOptions says how a node speaks to the others.
type NetOptions struct {
	// Self is what this node says of itself.
	Self Identity
	// Level returns the format level that the cluster writes; a node that reads less is
	// refused, at every handshake and at every message of Raft. Nil: that of Self.
	Level func() uint16
	// Admit decides whether a node of the same cluster may have a connection of this kind;
	// its error is logged. Nil: it may. It is asked at every handshake, and at every question and
	// message of Raft, so that a node that has been removed is not heard; it must be fast, and safe
	// for concurrent use.
	Admit func(peer Identity, kind byte) error
	// Version returns the version of the configuration by which Admit decides. Removed is called
	// when another node says that a later one is without this node. nil: nothing is said of that.
	Version func() uint64
	Removed func()
	// Witness remembers how far the others have been, and refuses a directory that is older (R9).
	// nil: none is refused for that.
	Witness *Witness

	// TLS returns the configuration in use: its certificates and ClientCAs, which make members,
	// serve for both ends of a connection. Nil: no TLS, unless there is a secret.
	TLS func() *tls.Config
	// Secret is what all nodes of the cluster know, at least 16 bytes. Empty: none.
	Secret string

	// Dial opens a connection; nil: TCP. Tests cut and delay connections here.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// patience is how long a handshake may take; 0: handshakeTimeout.
	patience time.Duration
	// Log gets refusals, in ten minutes once for each peer and reason; nil: nowhere.
	Log *slog.Logger
}

// Net is a node's cluster port, and its way to the cluster ports of the others. Both
// ends of every connection prove that they belong to the cluster before either reads
// anything else:
//
//   - with TLS by a certificate for servers that one of the node's own authorities has
//     signed (names are not compared: nodes dial each other by address);
//   - with a secret by an HMAC over random numbers of both sides, their roles and all that
//     they say of themselves. The connection is encrypted by TLS in any case, with a
//     certificate made for the occasion, and the HMAC is bound to this channel: nobody in
//     between can read, change or relay it;
//   - with both, by both;
//   - with neither, not at all: that is allowed on the loopback interface only.
//
// A proof says that a node is a member, not which one: each member is trusted when it says
// its id. A stranger who takes a listener's place sees the dialer's HMAC and can try
// guesses on it: a secret has to be random. Methods are safe for concurrent use.
type Net struct {
	o         NetOptions
	listener  net.Listener
	self      identity
	throwaway tls.Certificate // for a secret without TLS
	refused   refusals
	end       atomic.Pointer[place] // SetEnd
	aside     atomic.Pointer[error] // why it stands aside
	doubt     atomic.Pointer[error] // why it doubts itself
	takesPart atomic.Pointer[func() bool]
	tookPart  atomic.Bool // takesPart has said so since the start
	catchesUp atomic.Pointer[func(had place) (end place, has bool)]
	voters    atomic.Pointer[func() int]

	mu       sync.Mutex
	closed   bool
	onAside  func()
	says     map[string]struct{} // who says that this node's directory is older
	handlers map[byte]func(net.Conn, Identity)
	answers  wire.Server // of KindAsk
	door     wire.Door   // the handshakes of accepted connections
	open     map[*peerConn]struct{}
	tracked  uint64
	serving  sync.WaitGroup
	ctx      context.Context // done when closed
	cancel   context.CancelFunc
}

// CheckExposure returns an error if a cluster port on these hosts would let anybody in:
// without TLS and secret only the loopback interface will do. An empty host is every
// interface.
func CheckExposure(hosts []string, withTLS bool, secret string) error {
	if secret != "" && len(secret) < minSecret {
		return fmt.Errorf("cluster-secret has %d bytes; it needs at least %d", len(secret), minSecret)
	}
	if withTLS || secret != "" {
		return nil
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return fmt.Errorf("the cluster port would be open to everyone who reaches %q: set cluster-secret "+
				"or tls-cluster yes, or bind to 127.0.0.1", host)
		}
	}
	return nil
}

// Listen begins to accept the connections of other nodes on l, which the Net closes. A
// kind that has no handler yet is refused.
func Listen(l net.Listener, o NetOptions) (*Net, error) {
	self, err := encodeIdentity(o.Self)
	if err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return nil, err
	}
	if err := CheckExposure([]string{host}, o.TLS != nil, o.Secret); err != nil {
		return nil, err
	}
	if o.TLS != nil && o.TLS().ClientCAs == nil {
		return nil, errors.New("tls-cluster yes needs the authorities to trust: tls-cluster-ca-cert-file, " +
			"or tls-ca-cert-file or tls-ca-cert-dir")
	}
	if o.Level == nil {
		o.Level = func() uint16 { return o.Self.Format }
	}
	if o.Admit == nil {
		o.Admit = func(Identity, byte) error { return nil }
	}
	if o.Dial == nil {
		o.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}
	}
	if o.patience == 0 {
		o.patience = handshakeTimeout
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	n := &Net{o: o, listener: l, self: self, handlers: map[byte]func(net.Conn, Identity){},
		open: map[*peerConn]struct{}{}, says: map[string]struct{}{}}
	if o.TLS == nil && o.Secret != "" {
		if n.throwaway, err = throwaway(); err != nil {
			return nil, err
		}
	}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.Handle(KindAsk, func(c net.Conn, from Identity) {
		n.answers.Serve(c, from.Node, func() error {
			if refused := n.admits(from, KindAsk); refused != nil {
				return refused
			}
			return nil
		})
	})
	n.Handle(KindOlder, func(c net.Conn, from Identity) {
		c.Close()
		n.Doubt(from.Node)
	})
	n.serving.Go(n.accept)
	return n, nil
}

// Addr returns where the node listens.
func (n *Net) Addr() net.Addr { return n.listener.Addr() }

// Handle has connections of a kind served by f, which runs in a goroutine of its own for each,
// closes the connection, and returns when it breaks. Nil: connections of this kind are refused from
// now on.
func (n *Net) Handle(kind byte, f func(net.Conn, Identity)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if f == nil {
		delete(n.handlers, kind)
		return
	}
	n.handlers[kind] = f
}

// Answer has the questions of a verb answered so from now on; the zero Verb refuses them. The node
// that asks is admitted anew for each of them.
func (n *Net) Answer(verb string, v wire.Verb) { n.answers.Handle(verb, v) }

// Caller connects to a node, as Dial does, to ask it questions until ctx is done.
func (n *Net) Caller(ctx context.Context, node, address string) (*wire.Caller, error) {
	conn, err := n.Dial(ctx, node, address, KindAsk)
	if err != nil {
		return nil, err
	}
	return wire.NewCaller(ctx, conn), nil
}

// Ask asks a node one question.
func (n *Net) Ask(ctx context.Context, node, address string, a wire.Ask) ([]byte, error) {
	c, err := n.Caller(ctx, node, address)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Do(a)
}

// Close ends every connection and waits for the handlers.
func (n *Net) Close() error {
	err := n.Abandon()
	n.serving.Wait()
	return err
}

// Abandon ends every connection, and waits for nothing.
func (n *Net) Abandon() error {
	n.mu.Lock()
	n.closed = true
	conns := n.door.Conns()
	for c := range n.open {
		conns = append(conns, c.raw) // a goodbye of TLS could block
	}
	n.mu.Unlock()
	n.cancel()
	err := n.listener.Close()
	for _, c := range conns {
		_ = c.Close() // whoever uses it sees the error
	}
	return err
}

// Dial connects to the node with this id at an address, HOST:PORT; an empty id is
// whichever node is there. Closing the Net closes the connection. ctx bounds the time it
// takes to connect. A node cannot dial itself.
func (n *Net) Dial(ctx context.Context, node, address string, kind byte) (net.Conn, error) {
	c, err := n.dial(ctx, node, address, kind, charge{})
	if err != nil {
		n.tellOlder(node, address, kind, err)
		err = fmt.Errorf("dial %s: %w", address, err)
		if refused := (*refusal)(nil); errors.As(err, &refused) && n.refused.isNew(address, refused.Error()) {
			n.o.Log.Warn("another node cannot be used", "address", address, "node", node, "error", refused)
		}
		return nil, err
	}
	return c, nil
}

// dial connects and shakes hands. about is what it has to say of the other node; zero: nothing.
func (n *Net) dial(ctx context.Context, node, address string, kind byte, about charge) (net.Conn, error) {
	if err := n.Aside(); err != nil {
		return nil, err
	}
	want := identity{}
	if node != "" {
		var err error
		if want.node, err = decodeID(node); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, n.o.patience)
	defer cancel()
	stop := context.AfterFunc(n.ctx, cancel)
	defer stop()
	raw, err := n.o.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { raw.Close() })() // so that no step outlives ctx
	conn, peer, err := n.greet(raw, hello{kind: kind, from: n.identity(), want: want.node, charge: about})
	if err = handshakeError(err); err == nil || ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		raw.Close()
		return nil, err
	}
	return n.track(conn, raw, hello{kind: kind, from: peer}, nil)
}

// accept hands new connections to goroutines of their own.
func (n *Net) accept() {
	for {
		raw, err := n.listener.Accept()
		if err != nil {
			if n.ctx.Err() != nil {
				return
			}
			if n.refused.isNew("", err.Error()) {
				n.o.Log.Warn("the cluster port cannot accept a connection", "error", err)
			}
			select { // most likely no file descriptor is left
			case <-n.ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		n.mu.Lock()
		if n.closed {
			n.mu.Unlock()
			raw.Close()
			return
		}
		if dropped := n.door.Enter(raw, wire.AddressOf(raw.RemoteAddr()), time.Now()); dropped != nil {
			dropped.Close() // its handshake fails now
		}
		n.serving.Go(func() { n.welcome(raw) })
		n.mu.Unlock()
	}
}

// welcome shakes hands with whoever dialed, and serves the connection.
func (n *Net) welcome(raw net.Conn) {
	_ = raw.SetDeadline(time.Now().Add(n.o.patience)) // a broken connection fails below
	c, h, err := n.receive(raw)
	n.mu.Lock()
	n.door.Leave(raw)
	n.mu.Unlock()
	if err != nil {
		raw.Close()
		n.logRefusal(raw.RemoteAddr(), h.from, handshakeError(err))
		return
	}
	c.handler(c, h.from.public())
}

// logRefusal logs why a connection is refused: once for each node, or each host while it is
// not known which node dials.
func (n *Net) logRefusal(address net.Addr, from identity, err error) {
	who, _, _ := net.SplitHostPort(address.String())
	if from != (identity{}) {
		who = from.String()
	}
	if errors.Is(err, raftmsg.ErrMalformed) {
		err = &refusal{cause: err.Error()}
	}
	if refused := (*refusal)(nil); errors.As(err, &refused) && n.refused.isNew(who, err.Error()) {
		n.o.Log.Warn("a connection to the cluster port is refused", "from", address.String(), "node",
			from.String(), "error", err)
	}
}

// peerConn is a connection after its handshake.
type peerConn struct {
	net.Conn
	raw     net.Conn // without TLS
	net     *Net
	peer    identity
	kind    byte
	number  uint64                   // the lower, the older
	handler func(net.Conn, Identity) // nil: this node has dialed
}

// track remembers a connection until it is closed. Of a closed Net it is closed at once.
// When a peer dials too often, its oldest connection is closed: most likely the peer gave
// it up long ago, and the network lost its goodbye.
func (n *Net) track(conn, raw net.Conn, h hello, handler func(net.Conn, Identity)) (*peerConn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || n.Aside() != nil {
		raw.Close()
		return nil, net.ErrClosed
	}
	n.tracked++
	c := &peerConn{Conn: conn, raw: raw, net: n, peer: h.from, kind: h.kind, handler: handler,
		number: n.tracked}
	if handler != nil {
		count, oldest := 0, c
		for o := range n.open {
			if o.handler != nil && o.peer.node == c.peer.node && o.kind == c.kind {
				if count++; o.number < oldest.number {
					oldest = o
				}
			}
		}
		if count >= maxConnsPerPeer {
			oldest.raw.Close()
			n.untrack(oldest)
		}
	}
	n.open[c] = struct{}{}
	n.door.Opened(wire.AddressOf(raw.RemoteAddr()), time.Now())
	return c, nil
}

// untrack forgets a connection that is closed; the caller holds n.mu.
func (n *Net) untrack(c *peerConn) {
	if _, ok := n.open[c]; ok {
		delete(n.open, c)
		n.door.Closed(wire.AddressOf(c.raw.RemoteAddr()), time.Now())
	}
}

// Close ends the connection.
func (c *peerConn) Close() error {
	c.net.mu.Lock()
	c.net.untrack(c)
	c.net.mu.Unlock()
	return c.Conn.Close()
}

// refusals remembers what has been logged, so that a peer which tries again and again
// gets one line.
type refusals struct {
	mu   sync.Mutex
	said map[[2]string]time.Time
}

// refusals are logged again after this time, and so many are remembered.
const (
	sayAgainAfter = 10 * time.Minute
	maxSaid       = 256
)

// isNew reports whether a reason has not been logged for a peer yet. While too many are remembered,
// none is logged. Reasons that begin alike are one: some end with the time of day.
func (r *refusals) isNew(peer, reason string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, key := time.Now(), [2]string{peer, reason[:min(len(reason), 48)]}
	if at, ok := r.said[key]; ok && now.Sub(at) < sayAgainAfter {
		return false
	}
	if r.said == nil {
		r.said = map[[2]string]time.Time{}
	}
	if len(r.said) >= maxSaid {
		for k, at := range r.said {
			if now.Sub(at) >= sayAgainAfter {
				delete(r.said, k)
			}
		}
		if len(r.said) >= maxSaid {
			return false
		}
	}
	r.said[key] = now
	return true
}

// decodeID reads an id of 40 hexadecimal digits.
func decodeID(s string) (id [20]byte, err error) {
	if len(s) != 2*len(id) {
		return id, fmt.Errorf("%.60q is not an id: it needs 40 hexadecimal digits", s)
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil {
		return id, fmt.Errorf("%.60q is not an id: it needs 40 hexadecimal digits", s)
	}
	return id, nil
}

// Transport returns the way for one of this node's Raft groups, KindRaft or KindMeta (NewTransport).
func (n *Net) Transport(kind byte, local string, timeout time.Duration) *raftgroup.Transport {
	return raftgroup.NewTransport(groupNet{n, kind}, local, timeout)
}

// groupNet is a Raft group's connections, a raftgroup.Net.
type groupNet struct {
	*Net
	kind byte
}

// Dial implements raftgroup.Net.
func (g groupNet) Dial(ctx context.Context, id, address string) (net.Conn, uint64, error) {
	c, err := g.Net.Dial(ctx, id, address, g.kind)
	if err != nil {
		return nil, 0, err
	}
	return c, c.(*peerConn).peer.starts, nil
}

// Serve implements raftgroup.Net.
func (g groupNet) Serve(f func(c net.Conn, from string, admits func() error) error) {
	if f == nil {
		g.Handle(g.kind, nil)
		return
	}
	g.Handle(g.kind, func(c net.Conn, from Identity) {
		at := c.RemoteAddr()
		err := f(c, from.Node, func() error {
			if refused := g.admits(from, g.kind); refused != nil {
				return refused // a nil one would be an error
			}
			return nil
		})
		if err != nil {
			g.logRefusal(at, c.(*peerConn).peer, err)
		}
	})
}
