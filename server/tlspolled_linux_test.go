package server

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// valve is a client's socket that keeps what is written to it after the first writes, and
// that remembers what was read from it.
type valve struct {
	net.Conn
	writes int // that still go through
	kept   []byte
	read   []byte
}

func (v *valve) Write(b []byte) (int, error) {
	if v.writes--; v.writes >= 0 {
		return v.Conn.Write(b)
	}
	v.kept = append(v.kept, b...)
	return len(b), nil
}

func (v *valve) Read(b []byte) (int, error) {
	n, err := v.Conn.Read(b)
	v.read = append(v.read, b[:n]...)
	return n, err
}

// pass sends n of the bytes that were kept.
func (v *valve) pass(t testing.TB, n int) {
	t.Helper()
	if _, err := v.Conn.Write(v.kept[:n]); err != nil {
		t.Fatal(err)
	}
	v.kept = v.kept[n:]
}

// dialValve connects through a valve that lets so many writes pass.
func (s *running) dialValve(t testing.TB, writes int) (*client, *valve) {
	t.Helper()
	nc, err := net.Dial("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	v := &valve{Conn: nc, writes: writes}
	return s.dialOver(t, v), v
}

// TestTLSRecordsInPieces: clients that stop within a record, at each of its bytes, keep
// nobody waiting and are answered when the rest has come.
func TestTLSRecordsInPieces(t *testing.T) {
	s := serveTLSLoop(t, nil)
	other := s.dial(t)
	request := frame("CINCRBY", "k", "id", "1")
	var clients []*client
	var valves []*valve
	for cut := 0; cut == 0 || cut < len(valves[0].kept); cut++ {
		c, v := s.dialValve(t, 2) // the handshake
		c.send(request)
		clients, valves = append(clients, c), append(valves, v)
		v.pass(t, cut)
		other.expect(fmt.Sprint(":", cut+1), "INCR", "other")
	}
	for i, v := range valves {
		v.pass(t, len(v.kept))
		clients[i].expectReply(":1")
	}
}

// TestTLSRequestsWithTheHandshake: requests that come together with the end of the
// handshake, so that the socket has no more to tell of, are answered.
func TestTLSRequestsWithTheHandshake(t *testing.T) {
	s := serveTLSLoop(t, nil)
	c, v := s.dialValve(t, 1) // the client's first message
	c.send(frame("PING"))
	c.send(frame("INCR", "k"))
	v.pass(t, len(v.kept))
	c.expectReply("+PONG")
	c.expectReply(":1")
}

// TestTLSManyRecordsAtOnce: all records that came together are answered, though the socket
// tells of them once.
func TestTLSManyRecordsAtOnce(t *testing.T) {
	s := serveTLSLoop(t, nil)
	c, v := s.dialValve(t, 2)
	const n = 3000
	for range n {
		c.send(frame("INCR", "k"))
	}
	go v.Conn.Write(v.kept)
	for i := range n {
		c.expectReply(fmt.Sprint(":", i+1))
	}
}

// TestTLSGoodbye: the end of a connection is said within TLS, so that clients know that
// nobody cut it.
func TestTLSGoodbye(t *testing.T) {
	s := serveTLSLoop(t, nil)
	s.secure.MaxVersion = tls.VersionTLS12 // which shows that a record is an alert
	c, v := s.dialValve(t, 10)
	c.expect("+OK", "QUIT")
	c.expectReply("EOF")
	var last byte
	for b := v.read; len(b) >= 5; b = b[5+int(b[3])<<8+int(b[4]):] {
		last = b[0]
	}
	if last != 21 {
		t.Errorf("the last record is of type %d", last)
	}
}

// sealer makes records of TLS 1.3 in a client's place, with TLS_AES_128_GCM_SHA256.
type sealer struct {
	t          testing.TB
	secret, iv []byte
	aead       cipher.AEAD
	seq        uint64
}

// use takes a traffic secret.
func (s *sealer) use(secret []byte) {
	s.secret, s.iv, s.seq = secret, s.expand(secret, "iv", 12), 0
	block, err := aes.NewCipher(s.expand(secret, "key", 16))
	if err != nil {
		s.t.Fatal(err)
	}
	if s.aead, err = cipher.NewGCM(block); err != nil {
		s.t.Fatal(err)
	}
}

// expand is HKDF-Expand-Label of RFC 8446, section 7.1.
func (s *sealer) expand(secret []byte, label string, n int) []byte {
	label = "tls13 " + label
	b, err := hkdf.Expand(sha256.New, secret, string([]byte{0, byte(n), byte(len(label))})+label+"\x00", n)
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

// record appends a record of a kind of content.
func (s *sealer) record(b []byte, kind byte, text string) []byte {
	inner := append([]byte(text), kind)
	header := binary.BigEndian.AppendUint16([]byte{23, 3, 3}, uint16(len(inner)+s.aead.Overhead()))
	nonce := bytes.Clone(s.iv)
	binary.BigEndian.PutUint64(nonce[4:], binary.BigEndian.Uint64(nonce[4:])^s.seq)
	s.seq++
	return s.aead.Seal(append(b, header...), nonce, inner, header)
}

// keyUpdate appends a record that changes the key, and asks the server to do likewise.
func (s *sealer) keyUpdate(b []byte) []byte {
	b = s.record(b, 22, "\x18\x00\x00\x01\x01")
	s.use(s.expand(s.secret, "traffic upd", 32))
	return b
}

// TestTLSKeyUpdatesOfDeafClients: a client that demands a new key with each request, and
// reads nothing, delays nobody, and gets every answer in its place once it reads.
func TestTLSKeyUpdatesOfDeafClients(t *testing.T) {
	s := serveTLSLoop(t, nil, "appendfsync", "everysec")
	var keys strings.Builder
	s.secure.KeyLogWriter = &keys
	small := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) {
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4<<10)
		})
	}}
	nc, err := small.Dial("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	deaf := s.dialOver(t, nc)
	if suite := deaf.Conn.(*tls.Conn).ConnectionState().CipherSuite; suite != tls.TLS_AES_128_GCM_SHA256 {
		t.Skip("for this processor, Go prefers ", tls.CipherSuiteName(suite))
	}
	_, line, _ := strings.Cut(keys.String(), "CLIENT_TRAFFIC_SECRET_0 ")
	_, text, _ := strings.Cut(line, " ")
	secret, err := hex.DecodeString(text[:64])
	if err != nil {
		t.Fatal(err)
	}
	k := &sealer{t: t}
	k.use(secret)
	eventually(t, "the server has the client", func() bool { return len(s.sessions()) == 1 })
	s.mu.Lock()
	for _, c := range s.conns {
		unix.SetsockoptInt(c.line.(*polled).fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 4<<10)
	}
	s.mu.Unlock()
	const requests = 2000 // many more than the system takes replies to
	go func() {
		for i := range requests {
			// Long, so that few new keys come at once: Go's client has a limit.
			request := frame("CINCRBY", "k", fmt.Sprintf("%0500d", i), "1")
			if _, err := deaf.socket().Write(k.record(k.keyUpdate(nil), 23, request)); err != nil {
				return
			}
		}
	}()
	s.waitUntilStuck(t)
	s.secure.KeyLogWriter = nil
	other := s.dial(t)
	for i := range 100 {
		other.expect(fmt.Sprint(":", i+1), "INCR", "other")
	}
	for i := range requests {
		if got := deaf.reply(); got != fmt.Sprint(":", i+1) {
			t.Fatalf("reply %d: %.80q", i, got)
		}
	}
}
