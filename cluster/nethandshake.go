package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"syscall"
	"time"

	"github.com/fbfkv/fbfkv/server/peercert"
)

// The handshake, after TLS if there is TLS. Every message has one size, so that nothing
// that a stranger sends decides how much is read:
//
//	dialer    magic 8 | random 32
//	listener  magic 8 | random 32
//	dialer    proof 32 | kind 1 | identity | node wanted 20 | charge 24
//	listener  proof 32 | answer 1 | identity
//
// An identity is format 2 | cluster 20 | node 20 | starts 8 | term 8 | index 8 | version 8: which
// directory a node has, the number of its start, where the log of its shard ended then (R9), and
// the version of the configuration that it knows. A charge is starts 8 | term 8 | index 8.
//
// A proof is HMAC-SHA256(secret, role | channel | both randoms | the rest of its message).
// The role, dialer or listener, keeps a proof from being sent back to its author. The
// channel is a number that both ends of a TLS connection know and that no other
// connection has (RFC 9266), so that a proof cannot be relayed. The listener checks the
// dialer's proof before it looks at the rest, and answers a wrong one with zeros only.
const (
	magic         = "fbfkvcl\x01"
	randomSize    = 32
	proofSize     = sha256.Size
	identitySize  = 2 + 20 + 20 + 4*8
	greetingSize  = len(magic) + randomSize
	helloSize     = 1 + identitySize + 20 + 3*8
	answerSize    = 1 + identitySize
	channelLabel  = "EXPORTER-Channel-Binding"
	roleDialer    = "fbfkv cluster dialer"
	roleListener  = "fbfkv cluster listener"
	throwawayName = "fbfkv cluster"
)

// identity is an Identity in binary.
type identity struct {
	format  uint16
	cluster [20]byte
	node    [20]byte
	starts  uint64
	end     place // of its log, when it was started
	version uint64
}

func encodeIdentity(i Identity) (b identity, err error) {
	b.format, b.starts = i.Format, i.Starts
	if b.cluster, err = decodeID(i.Cluster); err != nil {
		return b, fmt.Errorf("cluster: %w", err)
	}
	if b.node, err = decodeID(i.Node); err != nil {
		return b, fmt.Errorf("node: %w", err)
	}
	return b, nil
}

// public returns the identity as others see it.
func (i identity) public() Identity {
	return Identity{Cluster: hex.EncodeToString(i.cluster[:]), Node: i.String(), Format: i.format,
		Starts: i.starts}
}

// String returns the node's id.
func (i identity) String() string { return hex.EncodeToString(i.node[:]) }

func (i identity) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, i.format)
	b = append(b, i.cluster[:]...)
	b = append(b, i.node[:]...)
	for _, n := range []uint64{i.starts, i.end.Term, i.end.Index, i.version} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return b
}

// readIdentity reads identitySize bytes.
func readIdentity(b []byte) (i identity) {
	i.format = binary.BigEndian.Uint16(b)
	copy(i.cluster[:], b[2:])
	copy(i.node[:], b[22:])
	n := func(k int) uint64 { return binary.BigEndian.Uint64(b[42+8*k:]) }
	i.starts, i.end, i.version = n(0), place{n(1), n(2)}, n(3)
	return i
}

// hello is what a dialer says after its proof.
type hello struct {
	kind byte
	from identity
	want [20]byte // the node that it means to reach; zero: any
	charge
}

// charge is what a node that calls another's directory older says of it: it must have had an entry
// before a start. Another start is not meant. The zero charge says nothing.
type charge struct {
	start uint64
	had   place // unknownEnd: the number of the start alone shows it
}

func (h hello) append(b []byte) []byte {
	b = append(h.from.append(append(b, h.kind)), h.want[:]...)
	for _, n := range []uint64{h.start, h.had.Term, h.had.Index} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return b
}

// readHello reads helloSize bytes.
func readHello(b []byte) (h hello) {
	h.kind, h.from = b[0], readIdentity(b[1:])
	copy(h.want[:], b[1+identitySize:])
	n := func(k int) uint64 { return binary.BigEndian.Uint64(b[1+identitySize+20+8*k:]) }
	h.charge = charge{n(0), place{n(1), n(2)}}
	return h
}

// answer is how a listener answers a hello.
type answer byte

// The answers: welcome, or why not.
const (
	welcome answer = iota
	wrongSecret
	otherCluster
	oldFormat
	otherNode
	stranger
	unknownKind
	sameNode
	olderDirectory
	removed
	standsAside
	goesOn
	caughtUp
)

// refusal is why two nodes do not talk: what one of them has found wrong with the other.
type refusal struct {
	code   answer
	cause  string // more than the code says
	charge        // against a node whose directory is older; zero: the other one's, against this node
}

// Error is one line.
func (r *refusal) Error() string {
	if r.cause != "" {
		return r.cause
	}
	switch r.code {
	case wrongSecret:
		return "it has another cluster-secret, or only one of the two nodes has one"
	case otherCluster:
		return "it belongs to another cluster"
	case otherNode:
		return "another node has this address now"
	case stranger:
		return "one of the two nodes does not know the other as a member of the cluster"
	case unknownKind:
		return "it does not serve this kind of connection at present"
	case sameNode:
		return "both nodes have the same id: a data directory has been copied, or a node has dialed itself"
	case olderDirectory:
		return "its directory is older than one that ran before, and lacks operations that it has " +
			"acknowledged: replace the node (fbfkv cluster replace)"
	case removed:
		return "the node that dials was removed from the cluster"
	case standsAside:
		return "it takes part in nothing at present, and fbfkv cluster status says why"
	case goesOn:
		return "its directory is older than one that ran before, and it works in a majority all the same"
	case caughtUp:
		return "its directory was older than one that ran before, and has caught up"
	}
	return fmt.Sprintf("refused with the unknown code %d", r.code)
}

// greet is the dialer's side of the handshake.
func (n *Net) greet(raw net.Conn, h hello) (net.Conn, identity, error) {
	conn, channel, err := n.secure(raw, true)
	if err != nil {
		return nil, identity{}, err
	}
	peer, err := n.introduce(conn, channel, h)
	return conn, peer, err
}

// introduce is what a dialer says and checks once there is TLS, if there is.
func (n *Net) introduce(conn net.Conn, channel []byte, h hello) (peer identity, err error) {
	randoms, err := exchange(conn, true)
	if err != nil {
		return peer, err
	}
	said := h.append(nil)
	if _, err := conn.Write(append(n.proof(roleDialer, channel, randoms, said), said...)); err != nil {
		return peer, err
	}
	var reply [proofSize + answerSize]byte
	if _, err := io.ReadFull(conn, reply[:]); err != nil {
		return peer, err
	}
	said = reply[proofSize:]
	if !hmac.Equal(reply[:proofSize], n.proof(roleListener, channel, randoms, said)) {
		return peer, &refusal{code: wrongSecret}
	}
	code, level := answer(said[0]), n.o.Level()
	peer = readIdentity(said[1:])
	switch {
	case code == oldFormat:
		return peer, &refusal{code: code, cause: fmt.Sprintf("this node's program reads formats up to "+
			"level %d, and the cluster "+
			"writes a newer level: start this node with a newer program", h.from.format)}
	case code != welcome:
		n.heard(code, peer.String())
		return peer, &refusal{code: code, cause: saidOfThis(code)}
	case peer.cluster != h.from.cluster:
		return peer, &refusal{code: otherCluster}
	case peer.format < level:
		return peer, tooOld(peer.format, level)
	case h.want != [20]byte{} && h.want != peer.node:
		return peer, &refusal{code: otherNode}
	}
	if refused := n.o.Witness.meet(peer); refused != nil {
		return peer, refused
	}
	return peer, nil
}

// saidOfThis returns this node's log message for a refusal by another node that concerns this node
// itself; "": the text of the code.
func saidOfThis(code answer) string {
	switch code {
	case olderDirectory:
		return errOlder.Error()
	case removed:
		return errRemoved.Error()
	}
	return ""
}

// receive is the listener's side of the handshake.
func (n *Net) receive(raw net.Conn) (*peerConn, hello, error) {
	conn, channel, err := n.secure(raw, false)
	if err != nil {
		return nil, hello{}, err
	}
	return n.examine(conn, raw, channel)
}

// examine is what a listener asks and says once there is TLS, if there is.
func (n *Net) examine(conn, raw net.Conn, channel []byte) (c *peerConn, h hello, err error) {
	randoms, err := exchange(conn, false)
	if err != nil {
		return nil, h, err
	}
	var message [proofSize + helloSize]byte
	if _, err := io.ReadFull(conn, message[:]); err != nil {
		return nil, h, err
	}
	if !hmac.Equal(message[:proofSize], n.proof(roleDialer, channel, randoms, message[proofSize:])) {
		_, _ = conn.Write(make([]byte, proofSize+answerSize)) // it may be gone
		return nil, h, &refusal{code: wrongSecret}
	}
	h = readHello(message[proofSize:])
	handler, refused := n.judge(h)
	if refused == nil {
		if c, err = n.track(conn, raw, h, handler); err != nil {
			return nil, h, err
		}
	}
	code := welcome
	if refused != nil {
		code = refused.code
	}
	said := n.identity().append([]byte{byte(code)})
	_, err = conn.Write(append(n.proof(roleListener, channel, randoms, said), said...))
	if refused != nil {
		return nil, h, refused
	}
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err != nil {
		c.Close()
	}
	return c, h, err
}

// judge returns who serves a member that dials, or why it is refused.
func (n *Net) judge(h hello) (func(net.Conn, Identity), *refusal) {
	switch {
	case h.from.cluster != n.self.cluster:
		return nil, &refusal{code: otherCluster}
	case h.from.node == n.self.node:
		return nil, &refusal{code: sameNode}
	case h.want != [20]byte{} && h.want != n.self.node:
		return nil, &refusal{code: otherNode, cause: "it looks for another node at this address: " +
			hex.EncodeToString(h.want[:])}
	case h.start != 0 && h.start != n.self.starts:
		return nil, &refusal{code: otherNode, cause: "it means an earlier start of this node"}
	}
	if n.Aside() != nil {
		return nil, &refusal{code: standsAside, cause: "this node has stopped taking part in its cluster"}
	}
	// The version is read before the members are: otherwise a configuration that arrives in between could
	// make a member look removed. A node that knows no configuration is about to join, and was never in one.
	var version uint64
	if n.o.Version != nil && h.from.version > 0 {
		version = n.o.Version()
	}
	if refused := n.admits(h.from.public(), h.kind); refused != nil {
		if refused.code == stranger && version > h.from.version {
			refused.code = removed
		}
		return nil, refused
	}
	switch {
	case h.kind != KindOlder:
	case n.hasCaughtUp(h.had):
		return nil, &refusal{code: caughtUp, cause: "it says that this node's directory is older than " +
			"one that ran before, and this node has caught up since"}
	case n.isOfMajority():
		return nil, &refusal{code: goesOn, cause: "it says that this node's directory is older than one " +
			"that ran before, and this node works in a majority"}
	}
	if refused := n.o.Witness.meet(h.from); refused != nil {
		return nil, refused
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	handler := n.handlers[h.kind]
	if handler == nil {
		return nil, &refusal{code: unknownKind}
	}
	return handler, nil
}

// admits refuses a node of the cluster whose program is too old, or which is no member.
func (n *Net) admits(peer Identity, kind byte) *refusal {
	if level := n.o.Level(); peer.Format < level {
		return tooOld(peer.Format, level)
	}
	if err := n.o.Admit(peer, kind); err != nil {
		return &refusal{code: stranger, cause: err.Error()}
	}
	if !n.o.Witness.isCurrent(peer.Node, peer.Starts) {
		return &refusal{code: olderDirectory}
	}
	return nil
}

// tooOld refuses a program that cannot read what the cluster writes.
func tooOld(reads, level uint16) *refusal {
	return &refusal{code: oldFormat, cause: fmt.Sprintf("its program reads formats up to level %d, and "+
		"the cluster "+
		"writes level %d: it needs a newer program", reads, level)}
}

// exchange sends a fresh random number, reads the other side's, and returns the dialer's
// and the listener's.
func exchange(conn net.Conn, dialer bool) (randoms [2 * randomSize]byte, err error) {
	mine := append([]byte(magic), make([]byte, randomSize)...)
	_, _ = rand.Read(mine[len(magic):]) // never fails
	var theirs [greetingSize]byte
	if dialer {
		_, err = conn.Write(mine)
	}
	if err == nil {
		_, err = io.ReadFull(conn, theirs[:])
	}
	switch {
	case err != nil:
		return randoms, err
	case string(theirs[:len(magic)]) != magic:
		return randoms, &refusal{cause: "it does not speak this protocol, or uses TLS or a cluster-secret " +
			"and this node does not"}
	}
	first, second := mine, theirs[:]
	if !dialer {
		first, second = second, first
		if _, err := conn.Write(mine); err != nil {
			return randoms, err
		}
	}
	copy(randoms[:], first[len(magic):])
	copy(randoms[randomSize:], second[len(magic):])
	return randoms, nil
}

// proof returns what shows that its author knows the secret. Without a secret it shows
// nothing.
func (n *Net) proof(role string, channel []byte, randoms [2 * randomSize]byte, said []byte) []byte {
	mac := hmac.New(sha256.New, []byte(n.o.Secret))
	mac.Write([]byte(role)) // no role is the beginning of the other
	mac.Write(channel)
	mac.Write(randoms[:])
	mac.Write(said)
	return mac.Sum(nil)
}

// secure puts TLS over a connection, if there is TLS or a secret, and returns what binds
// a proof to it: 32 bytes.
func (n *Net) secure(raw net.Conn, dialer bool) (net.Conn, []byte, error) {
	if n.o.TLS == nil && n.o.Secret == "" {
		return raw, make([]byte, 32), nil
	}
	config := &tls.Config{
		MinVersion:                  tls.VersionTLS13,
		SessionTicketsDisabled:      true,
		DynamicRecordSizingDisabled: true,
		// VerifyConnection does, for both ends alike; or the secret's proof
		InsecureSkipVerify: true,
		Certificates:       []tls.Certificate{n.throwaway},
	}
	if n.o.TLS != nil {
		theirs := n.o.TLS()
		config.Certificates, config.ClientAuth = theirs.Certificates, tls.RequireAnyClientCert
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &theirs.Certificates[0], nil // also if the listener names other authorities
		}
		config.VerifyConnection = func(s tls.ConnectionState) error {
			// Names are not compared: nodes dial each other by address.
			if err := peercert.Verify(s.PeerCertificates, theirs.ClientCAs, ""); err != nil {
				return &refusal{cause: err.Error()}
			}
			return nil
		}
	}
	conn := tls.Server(raw, config)
	if dialer {
		conn = tls.Client(raw, config)
	}
	if err := conn.Handshake(); err != nil {
		return nil, nil, err
	}
	state := conn.ConnectionState()
	channel, err := state.ExportKeyingMaterial(channelLabel, nil, 32)
	return conn, channel, err
}

// handshakeError makes a refusal of an error in a handshake that a look at the settings
// may explain.
func handshakeError(err error) error {
	var refused *refusal
	var header tls.RecordHeaderError
	var network *net.OpError
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.As(err, &header):
		return &refusal{cause: "it does not use TLS and has no cluster-secret, or it does not speak this " +
			"protocol"}
	case errors.As(err, &network) && network.Op == "remote error": // an alert of TLS
		return &refusal{cause: "it refuses the TLS connection: " + network.Err.Error()}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return &refusal{cause: "it closes the connection during the handshake; perhaps only one of the " +
			"two nodes uses TLS " +
			"or a cluster-secret"}
	}
	return err
}

// throwaway makes a certificate that proves nothing: the secret does.
func throwaway() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{throwawayName},
		NotAfter: time.Now().AddDate(100, 0, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
