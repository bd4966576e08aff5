package cluster

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/cluster/raftgroup"
	"github.com/fbfkv/fbfkv/persistence/crashtest"
	"github.com/fbfkv/fbfkv/persistence/disk"
	"github.com/fbfkv/fbfkv/persistence/oplog"
)

func mustStable(t testing.TB, fsys vfs.FS) *raftgroup.Stable {
	t.Helper()
	s, err := raftgroup.OpenStable(fsys, "data")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestTermBeforeMessage: a term is durable when anything rests on it: a vote, a message that
// leaves, an entry that is stored. An election waits for no other fsync of it.
func TestTermBeforeMessage(t *testing.T) {
	mem := vfs.NewCrashableMem()
	s := mustStable(t, mem)
	term := func() uint64 { // after a power loss
		left := mustStable(t, crashtest.Left(mem, 0, rand.New(rand.NewPCG(1, 1))))
		defer left.Close()
		n, err := left.GetUint64([]byte("CurrentTerm"))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	set := func(n uint64) {
		t.Helper()
		was := term()
		if err := s.SetUint64([]byte("CurrentTerm"), n); err != nil {
			t.Fatal(err)
		}
		if now, err := s.GetUint64([]byte("CurrentTerm")); now != n || err != nil || term() != was {
			t.Fatalf("term %d, after a power loss %d: %v", now, term(), err)
		}
	}
	check := func(what string, n uint64, err error) {
		t.Helper()
		if now := term(); err != nil || now != n {
			t.Errorf("%s: the term is %d after a power loss, want %d: %v", what, now, n, err)
		}
	}
	set(1)
	check("a vote", 1, s.Set([]byte("LastVoteCand"), []byte("b")))

	fsys := vfs.NewMem()
	must(t, disk.MakeDir(fsys, "log"))
	l, err := oplog.Open(oplog.Options{FS: fsys, Dir: "log", MarkDir: ".", FileSize: 64 << 10, Partitions: 1,
		Sections: func(*oplog.Entry) (from, to int, begins bool, err error) { return 0, 0, false, nil }})
	must(t, err)
	logs := &raftgroup.LogStore{Log: l, Settle: s.Settle}
	set(2)
	check("an entry is stored", 2, logs.StoreLog(&raft.Log{Index: 1, Term: 2}))
	set(3)
	check("an entry is deleted", 3, logs.DeleteRange(1, 1))

	_, from := startTransport(t, "1", NetOptions{})
	_, to := startTransport(t, "2", NetOptions{})
	go obey(t, to)
	call := func() error {
		return from.AppendEntries(raft.ServerID(testID("2")), to.LocalAddr(), heartbeat("1", 1),
			new(raft.AppendEntriesResponse))
	}
	from.BeforeSending(s.Settle)
	set(4)
	check("a request leaves", 4, call())
	from.BeforeSending(func() error { return nil })
	to.BeforeSending(s.Settle)
	set(5)
	check("an answer leaves", 5, call())

	// A value that is not durable is not told.
	no := func() error { return errors.New("no") }
	to.BeforeSending(no)
	if call() == nil {
		t.Error("an answer leaves")
	}
	from.BeforeSending(no)
	logs.Settle = no
	if call() == nil || logs.StoreLog(&raft.Log{Index: 1, Term: 5}) == nil {
		t.Error("it goes on with a term that is not durable")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestNodeKeepsTerm: a node that has answered in a term knows it after a power loss.
func TestNodeKeepsTerm(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 3)
		s.awaitApplied() // a node with a log: one without grants any vote
		leader := s.leader()
		follower := s.members[0]
		if follower == leader {
			follower = s.members[1]
		}
		n := leader.running()
		to, _ := n.server(follower.id)
		request := &raft.RequestVoteRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: 3,
			ID: []byte(leader.id), Addr: []byte(n.o.Address)},
			Term: n.Status().Term + 1000, LeadershipTransfer: true} // of an empty log: it is not granted
		var answer raft.RequestVoteResponse
		if err := n.transport.RequestVote(to.ID, to.Address, request, &answer); err != nil ||
			answer.Granted || answer.Term != request.Term {
			t.Fatalf("%+v: %v", answer, err)
		}
		left, err := raftgroup.OpenStable(crashtest.Left(follower.fs, 0, rand.New(rand.NewPCG(1, 1))), "d")
		if err != nil {
			t.Fatal(err)
		}
		defer left.Close()
		if term, err := left.GetUint64([]byte("CurrentTerm")); term < request.Term || err != nil {
			t.Errorf("after a power loss the term is %d, it has answered in %d: %v", term, request.Term, err)
		}
	})
}

// TestBeginningIsInterrupted: a node that was stopped between the term and the log of its new shard begins
// it when it starts again.
func TestBeginningIsInterrupted(t *testing.T) {
	mem := vfs.NewCrashableMem()
	stable, err := raftgroup.OpenStable(mem, "d")
	must(t, err)
	must(t, errors.Join(stable.SetUint64([]byte(raftgroup.TermValue), 1), stable.Settle(), stable.Close()))
	s := &shard{t: t, first: testID("1")}
	s.meant.Store(&s.first)
	m := &replica{s: s, id: s.first, fs: mem}
	s.members = []*replica{m}
	t.Cleanup(m.stop)
	m.start()
	s.leader()
}
