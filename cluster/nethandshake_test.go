package cluster

import (
	"bytes"
	"net"
	"strings"
	"testing"
)

// bytesConn is a connection whose other end has sent bytes, and reads nothing.
type bytesConn struct {
	net.Conn // nil: a handshake needs no more
	in       *bytes.Reader
	out      bytes.Buffer
}

func (c *bytesConn) Read(b []byte) (int, error)  { return c.in.Read(b) }
func (c *bytesConn) Write(b []byte) (int, error) { return c.out.Write(b) }

// FuzzHandshake sends any bytes to a listener and to a dialer: whoever does not know the
// secret gets no further, and learns nothing but a random number and, from a dialer, a
// proof.
func FuzzHandshake(f *testing.F) {
	greeting := magic + strings.Repeat("r", randomSize)
	self, err := encodeIdentity(Identity{Cluster: testID("c"), Node: testID("1"), Format: 1})
	if err != nil {
		f.Fatal(err)
	}
	stranger := Net{o: NetOptions{Secret: "another secret, as long"}, self: self}
	h := hello{kind: KindAsk, from: self}.append(nil)
	proof := string(stranger.proof(roleDialer, make([]byte, 32), [2 * randomSize]byte{}, h))
	f.Add([]byte(greeting + proof + string(h)))
	f.Add([]byte(greeting + proof + string(self.append([]byte{0}))))
	f.Add([]byte(greeting))
	f.Add([]byte("\x16\x03\x01"))
	f.Fuzz(func(t *testing.T, b []byte) {
		n := &Net{o: NetOptions{Secret: testSecret}, self: self}
		n.o.Level = func() uint16 { t.Error("a stranger's identity is looked at"); return 0 }
		n.o.Admit = func(Identity, byte) error { t.Error("a stranger is judged"); return nil }
		in := &bytesConn{in: bytes.NewReader(b)}
		if c, _, err := n.examine(in, in, make([]byte, 32)); err == nil || c != nil {
			t.Error("a listener lets a stranger in")
		}
		if out := in.out.Bytes(); len(out) > greetingSize &&
			!bytes.Equal(out[greetingSize:], make([]byte, proofSize+answerSize)) {
			t.Errorf("a stranger learns %x", out)
		}
		if read := len(b) - in.in.Len(); read > greetingSize+proofSize+helloSize {
			t.Errorf("a listener reads %d bytes of a stranger", read)
		}
		in = &bytesConn{in: bytes.NewReader(b)}
		if _, err := n.introduce(in, make([]byte, 32), hello{kind: KindAsk, from: self}); err == nil {
			t.Error("a dialer believes a stranger")
		}
	})
}
