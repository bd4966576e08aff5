package raftgroup

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
)

func mustStable(t testing.TB, fsys vfs.FS) *Stable {
	t.Helper()
	s, err := OpenStable(fsys, "data")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestStable: what was set is there after a start, and so is the node's id.
func TestStable(t *testing.T) {
	mem := vfs.NewMem()
	s := mustStable(t, mem)
	id := s.Node()
	if len(id) != 40 {
		t.Fatal(id)
	}
	if n, err := s.GetUint64([]byte("CurrentTerm")); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	if b, err := s.Get([]byte("LastVoteCand")); len(b) != 0 || err != nil {
		t.Fatal(b, err)
	}
	if list, err := s.List(); len(list) != 0 || err != nil {
		t.Fatal(list, err)
	}
	sink, err := s.Create(1, 7, 3,
		raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(id), Address: "a:1"}}}, 5, nil)
	if err != nil {
		t.Fatal(err)
	}
	if sink.Close() == nil {
		t.Fatal("a snapshot of another node was taken")
	}
	sink.(*snapshotSink).own, sink.(*snapshotSink).done = true, false
	_, err = sink.Write([]byte("content"))
	for _, err := range []error{err, sink.Close(), s.SetUint64([]byte("CurrentTerm"), 9),
		s.Set([]byte("LastVoteCand"), []byte("b"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = mustStable(t, mem)
		n, err := s.GetUint64([]byte("CurrentTerm"))
		b, err2 := s.Get([]byte("LastVoteCand"))
		if s.Node() != id || n != 9 || string(b) != "b" || err != nil || err2 != nil {
			t.Fatal(s.Node(), n, b, err, err2)
		}
		list, err := s.List()
		if err != nil || len(list) != 1 || list[0].Index != 7 || list[0].Term != 3 ||
			list[0].ConfigurationIndex != 5 ||
			len(list[0].Configuration.Servers) != 1 || list[0].Size != 7 || list[0].ID != sink.ID() {
			t.Fatal(list, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
