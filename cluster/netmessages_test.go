package cluster

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// exampleHeader and the examples have every field set.
var exampleHeader = raft.RPCHeader{ProtocolVersion: 3, ID: []byte(testID("1")),
	Addr: []byte("127.0.0.1:7001")}

func exampleRequests() []any {
	configuration := raft.EncodeConfiguration(raft.Configuration{Servers: []raft.Server{{ID: "a",
		Address: "b:1"}}})
	return []any{
		&raft.AppendEntriesRequest{RPCHeader: exampleHeader, Term: 1, Leader: []byte("l"), PrevLogEntry: 2,
			PrevLogTerm: 3, LeaderCommitIndex: 4, Entries: []*raft.Log{
				{Index: 5, Term: 6, Type: raft.LogCommand, Data: []byte("data"), Extensions: []byte("more"),
					AppendedAt: time.Unix(7, 8)},
				{Index: 6, Term: 6, Type: raft.LogConfiguration, Data: configuration},
				{Index: 7, Term: 6, Type: raft.LogNoop},
				{Index: 8, Term: 6, Type: raft.LogBarrier},
			}},
		&raft.RequestVoteRequest{RPCHeader: exampleHeader, Term: 1, Candidate: []byte("c"), LastLogIndex: 2,
			LastLogTerm: 3, LeadershipTransfer: true},
		&raft.RequestPreVoteRequest{RPCHeader: exampleHeader, Term: 1, LastLogIndex: 2, LastLogTerm: 3},
		&raft.InstallSnapshotRequest{RPCHeader: exampleHeader, SnapshotVersion: 1, Term: 1,
			Leader: []byte("l"), LastLogIndex: 2, LastLogTerm: 3, Configuration: configuration,
			ConfigurationIndex: 4, Size: 5},
		&raft.TimeoutNowRequest{RPCHeader: exampleHeader},
	}
}

func exampleResponses() []any {
	return []any{
		&raft.AppendEntriesResponse{RPCHeader: exampleHeader, Term: 1, LastLog: 2, Success: true,
			NoRetryBackoff: true},
		&raft.RequestVoteResponse{RPCHeader: exampleHeader, Term: 1, Granted: true},
		&raft.RequestPreVoteResponse{RPCHeader: exampleHeader, Term: 1, Granted: true},
		&raft.InstallSnapshotResponse{RPCHeader: exampleHeader, Term: 1, Success: true},
		&raft.TimeoutNowResponse{RPCHeader: exampleHeader},
	}
}

// TestMessages sends every field of every message, and every prefix of each message.
func TestMessages(t *testing.T) {
	for _, want := range exampleRequests() {
		sent, err := encodeRequest(nil, want)
		if err != nil {
			t.Fatal(err)
		}
		kind, body, err := readMessage(bufio.NewReader(bytes.NewReader(sent)), maxMessage, func() {})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decodeRequest(kind, body); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("sent %+v, got %+v: %v", want, got, err)
		}
		entries := [][]byte{nil} // a request that ends between two entries is whole
		if r, ok := want.(*raft.AppendEntriesRequest); ok {
			for i := range r.Entries {
				shorter := *r
				shorter.Entries = r.Entries[:i]
				b, _ := encodeRequest(nil, &shorter)
				entries = append(entries, b[5:])
			}
		}
		for n := range body {
			whole := slices.ContainsFunc(entries, func(b []byte) bool { return b != nil && len(b) == n })
			if got, err := decodeRequest(kind, body[:n]); (err == nil) != whole {
				t.Errorf("%d of %d bytes of %T: %+v", n, len(body), want, got)
			}
		}
		if _, err := decodeRequest(kind, append(slices.Clone(body), 0)); err == nil {
			t.Errorf("a byte more than %T", want)
		}
		for n := range sent {
			if _, _, err := readMessage(bufio.NewReader(bytes.NewReader(sent[:n])), maxMessage,
				func() {}); err == nil {
				t.Errorf("%d of %d bytes of %T", n, len(sent), want)
			}
		}
	}
	for _, want := range exampleResponses() {
		sent, err := encodeResponse(nil, raft.RPCResponse{Response: want})
		if err != nil {
			t.Fatal(err)
		}
		got := reflect.New(reflect.TypeOf(want).Elem()).Interface()
		if err := decodeResponse(sent[4], sent[5:], got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("sent %+v, got %+v: %v", want, got, err)
		}
		for n := range sent[5:] {
			if err := decodeResponse(sent[4], sent[5:5+n], got); err == nil {
				t.Errorf("%d bytes of %T", n, want)
			}
		}
		sent, err = encodeResponse(nil,
			raft.RPCResponse{Response: want, Error: errors.New(strings.Repeat("no", maxText))})
		if err != nil {
			t.Fatal(err)
		}
		remote := remoteError("")
		if err := decodeResponse(sent[4], sent[5:], got); !errors.As(err, &remote) ||
			!strings.HasPrefix(string(remote), "nono") {
			t.Errorf("an error comes back as %v", err)
		}
	}
}

// TestMessagesAreBounded refuses what no node of ours sends, and believes no length
// before it has the bytes.
func TestMessagesAreBounded(t *testing.T) {
	entry := func(l raft.Log) any {
		return &raft.AppendEntriesRequest{RPCHeader: exampleHeader, Entries: []*raft.Log{&l}}
	}
	for name, request := range map[string]any{
		"an entry of a type of old": entry(raft.Log{Type: raft.LogAddPeerDeprecated}),
		"an entry of no type":       entry(raft.Log{Type: 17}),
		"a damaged configuration":   entry(raft.Log{Type: raft.LogConfiguration, Data: []byte{0xc1}}),
		"a large configuration": entry(raft.Log{Type: raft.LogConfiguration,
			Data: bytes.Repeat([]byte{0xc0}, maxServers+1)}),
		"many entries": &raft.AppendEntriesRequest{RPCHeader: exampleHeader,
			Entries: slices.Repeat([]*raft.Log{{}}, maxCount+1)},
		"a long id": &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{ID: make([]byte,
			maxText+1)}},
		"a snapshot's configuration": &raft.InstallSnapshotRequest{RPCHeader: exampleHeader,
			SnapshotVersion: 1, Configuration: []byte{0xc1}},
		"a snapshot of old": &raft.InstallSnapshotRequest{RPCHeader: exampleHeader,
			Configuration: raft.EncodeConfiguration(raft.Configuration{})},
	} {
		b, err := encodeRequest(nil, request)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeRequest(b[4], b[5:]); err != errMessage {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, request := range []any{
		entry(raft.Log{Data: make([]byte, maxMessage)}),
		&raft.InstallSnapshotRequest{Size: maxState + 1},
		&raft.InstallSnapshotRequest{Size: -1},
		"no request",
	} {
		if _, err := encodeRequest(nil, request); err == nil {
			t.Errorf("%T is sent", request)
		}
	}
	for _, head := range []string{"\x00\x00\x00\x00\x01", "\x04\x10\x00\x01\x01", "\xff\xff\xff\xff\x01"} {
		if _, _, err := readMessage(bufio.NewReader(strings.NewReader(head)), maxMessage,
			func() {}); err != errMessage {
			t.Errorf("%x: %v", head, err)
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 20 {
		_, _, err := readMessage(bufio.NewReader(strings.NewReader("\x04\x00\x00\x00\x01 and no more")),
			maxMessage, func() {})
		if err != io.ErrUnexpectedEOF {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 20*(2<<20) {
		t.Errorf("20 claims of 64 MiB took %d bytes", used)
	}
	large := bytes.Repeat([]byte("large"), 1<<20)
	sent, err := encodeRequest(nil, entry(raft.Log{Data: large}))
	if err != nil {
		t.Fatal(err)
	}
	kind, body, err := readMessage(bufio.NewReader(bytes.NewReader(sent)), maxMessage, func() {})
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeRequest(kind, body)
	if err != nil || !bytes.Equal(got.(*raft.AppendEntriesRequest).Entries[0].Data, large) {
		t.Errorf("a message of 5 MiB: %v", err)
	}
}

// FuzzMessage reads messages of any bytes: one that is accepted is encoded to the same.
func FuzzMessage(f *testing.F) {
	for _, request := range exampleRequests() {
		b, _ := encodeRequest(nil, request)
		f.Add(b)
	}
	for _, answer := range exampleResponses() {
		b, _ := encodeResponse(nil, raft.RPCResponse{Response: answer})
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		kind, body, err := readMessage(bufio.NewReader(bytes.NewReader(b)), maxMessage, func() {})
		if err != nil {
			return
		}
		for _, into := range exampleResponses() {
			if decodeResponse(kind, body, into) != nil {
				continue
			}
			if again, err := encodeResponse(nil, raft.RPCResponse{Response: into}); err != nil ||
				!bytes.Equal(again[5:], body) {
				t.Errorf("%x becomes %x: %v", body, again, err)
			}
		}
		request, err := decodeRequest(kind, body)
		if err != nil {
			return
		}
		if again, err := encodeRequest(nil, request); err != nil || !bytes.Equal(again[5:], body) {
			t.Errorf("%x becomes %x: %v", body, again, err)
		}
	})
}

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
