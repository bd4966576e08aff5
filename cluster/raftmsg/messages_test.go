package raftmsg

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// exampleHeader and the examples have every field set.
var exampleHeader = raft.RPCHeader{ProtocolVersion: 3, ID: []byte("id"),
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
		sent, err := EncodeRequest(nil, want)
		if err != nil {
			t.Fatal(err)
		}
		kind, body, err := Read(bufio.NewReader(bytes.NewReader(sent)), MaxRequest, func() {})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeRequest(kind, body); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("sent %+v, got %+v: %v", want, got, err)
		}
		entries := [][]byte{nil} // a request that ends between two entries is whole
		if r, ok := want.(*raft.AppendEntriesRequest); ok {
			for i := range r.Entries {
				shorter := *r
				shorter.Entries = r.Entries[:i]
				b, _ := EncodeRequest(nil, &shorter)
				entries = append(entries, b[5:])
			}
		}
		for n := range body {
			whole := slices.ContainsFunc(entries, func(b []byte) bool { return b != nil && len(b) == n })
			if got, err := DecodeRequest(kind, body[:n]); (err == nil) != whole {
				t.Errorf("%d of %d bytes of %T: %+v", n, len(body), want, got)
			}
		}
		if _, err := DecodeRequest(kind, append(slices.Clone(body), 0)); err == nil {
			t.Errorf("a byte more than %T", want)
		}
		for n := range sent {
			if _, _, err := Read(bufio.NewReader(bytes.NewReader(sent[:n])), MaxRequest,
				func() {}); err == nil {
				t.Errorf("%d of %d bytes of %T", n, len(sent), want)
			}
		}
	}
	for _, want := range exampleResponses() {
		sent, err := EncodeResponse(nil, raft.RPCResponse{Response: want})
		if err != nil {
			t.Fatal(err)
		}
		got := reflect.New(reflect.TypeOf(want).Elem()).Interface()
		if err := DecodeResponse(sent[4], sent[5:], got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("sent %+v, got %+v: %v", want, got, err)
		}
		for n := range sent[5:] {
			if err := DecodeResponse(sent[4], sent[5:5+n], got); err == nil {
				t.Errorf("%d bytes of %T", n, want)
			}
		}
		sent, err = EncodeResponse(nil,
			raft.RPCResponse{Response: want, Error: errors.New(strings.Repeat("no", maxText))})
		if err != nil {
			t.Fatal(err)
		}
		remote := RemoteError("")
		if err := DecodeResponse(sent[4], sent[5:], got); !errors.As(err, &remote) ||
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
		b, err := EncodeRequest(nil, request)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeRequest(b[4], b[5:]); err != ErrMalformed {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, request := range []any{
		entry(raft.Log{Data: make([]byte, MaxRequest)}),
		&raft.InstallSnapshotRequest{Size: maxState + 1},
		&raft.InstallSnapshotRequest{Size: -1},
		"no request",
	} {
		if _, err := EncodeRequest(nil, request); err == nil {
			t.Errorf("%T is sent", request)
		}
	}
	for _, head := range []string{"\x00\x00\x00\x00\x01", "\x04\x10\x00\x01\x01", "\xff\xff\xff\xff\x01"} {
		if _, _, err := Read(bufio.NewReader(strings.NewReader(head)), MaxRequest,
			func() {}); err != ErrMalformed {
			t.Errorf("%x: %v", head, err)
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 20 {
		_, _, err := Read(bufio.NewReader(strings.NewReader("\x04\x00\x00\x00\x01 and no more")),
			MaxRequest, func() {})
		if err != io.ErrUnexpectedEOF {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 20*(2<<20) {
		t.Errorf("20 claims of 64 MiB took %d bytes", used)
	}
	large := bytes.Repeat([]byte("large"), 1<<20)
	sent, err := EncodeRequest(nil, entry(raft.Log{Data: large}))
	if err != nil {
		t.Fatal(err)
	}
	kind, body, err := Read(bufio.NewReader(bytes.NewReader(sent)), MaxRequest, func() {})
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeRequest(kind, body)
	if err != nil || !bytes.Equal(got.(*raft.AppendEntriesRequest).Entries[0].Data, large) {
		t.Errorf("a message of 5 MiB: %v", err)
	}
}

// FuzzMessage reads messages of any bytes: one that is accepted is encoded to the same.
func FuzzMessage(f *testing.F) {
	for _, request := range exampleRequests() {
		b, _ := EncodeRequest(nil, request)
		f.Add(b)
	}
	for _, answer := range exampleResponses() {
		b, _ := EncodeResponse(nil, raft.RPCResponse{Response: answer})
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		kind, body, err := Read(bufio.NewReader(bytes.NewReader(b)), MaxRequest, func() {})
		if err != nil {
			return
		}
		for _, into := range exampleResponses() {
			if DecodeResponse(kind, body, into) != nil {
				continue
			}
			if again, err := EncodeResponse(nil, raft.RPCResponse{Response: into}); err != nil ||
				!bytes.Equal(again[5:], body) {
				t.Errorf("%x becomes %x: %v", body, again, err)
			}
		}
		request, err := DecodeRequest(kind, body)
		if err != nil {
			return
		}
		if again, err := EncodeRequest(nil, request); err != nil || !bytes.Equal(again[5:], body) {
			t.Errorf("%x becomes %x: %v", body, again, err)
		}
	})
}
