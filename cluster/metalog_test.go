package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/persistence"
)

// metaFollower is Raft as the meta group has it, on a node that follows. The test is its leaders.
type metaFollower struct {
	t      *testing.T
	mem    *vfs.MemFS
	stable *Stable
	raft   *raft.Raft
	leader *raft.InmemTransport
	failed error
}

func newMetaFollower(t *testing.T) *metaFollower {
	f := &metaFollower{t: t, mem: vfs.NewMem()}
	f.start()
	t.Cleanup(func() { f.stop() })
	return f
}

func (f *metaFollower) start() {
	f.t.Helper()
	f.stable, f.failed = mustStable(f.t, f.mem), nil
	stable := f.stable.meta()
	fail := func(err error) { f.failed = errors.Join(f.failed, err) }
	log, err := openMetaLog(stable, fail)
	must(f.t, err)
	m := &Meta{ending: ending{logger: slog.New(slog.DiscardHandler), fatal: fail},
		o: MetaOptions{Stable: f.stable, Net: new(Net)}, log: log}
	m.config.Store(new(Configuration))
	c := raftConfig("follower", time.Hour, 1, 1, 1, make(chan bool, 1), slog.New(slog.DiscardHandler))
	c.SnapshotThreshold, c.TrailingLogs, c.SnapshotInterval = 1000, 1, time.Hour
	address, transport := raft.NewInmemTransport("follower")
	f.raft, err = raft.NewRaft(c, metaMachine{m}, log, numbers{stable, fail}, stable, transport)
	must(f.t, err)
	_, f.leader = raft.NewInmemTransport("leader")
	f.leader.Connect(address, transport)
}

func (f *metaFollower) stop() error {
	return errors.Join(f.raft.Shutdown().Error(), f.stable.Close())
}

// takes reports whether the node accepts the entries from index to last of a term from the leader
// of that term, who has committed them up to one of them.
func (f *metaFollower) takes(term, index, last, committed, before uint64) bool {
	f.t.Helper()
	q := &raft.AppendEntriesRequest{RPCHeader: leads, Term: term, PrevLogEntry: index - 1,
		PrevLogTerm: before, LeaderCommitIndex: committed}
	for i := index; i <= last; i++ {
		q.Entries = append(q.Entries, &raft.Log{Index: i, Term: term, Type: raft.LogBarrier})
	}
	var a raft.AppendEntriesResponse
	must(f.t, f.leader.AppendEntries("follower", "follower", q, &a))
	return a.Success
}

var leads = raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("leader"),
	Addr: []byte("leader")}

// install sends the snapshot of a leader.
func (f *metaFollower) install(term, last uint64) error {
	q := &raft.InstallSnapshotRequest{RPCHeader: leads, SnapshotVersion: raft.SnapshotVersionMax, Term: term,
		LastLogIndex: last, LastLogTerm: term}
	q.Configuration = raft.EncodeConfiguration(raft.Configuration{Servers: []raft.Server{{ID: "leader",
		Address: "leader"}}})
	return f.leader.InstallSnapshot("follower", "follower", q, new(raft.InstallSnapshotResponse),
		new(bytes.Reader))
}

// TestMetaLogKeepsItsConnection: entries that follow a node's own snapshot and that the next leader
// does not have are replaced, without another snapshot.
func TestMetaLogKeepsItsConnection(t *testing.T) {
	f := newMetaFollower(t)
	if !f.takes(1, 1, 20, 20, 0) || !f.takes(1, 21, 22, 20, 1) {
		t.Fatal("entries are refused")
	}
	await(t, "a snapshot has what was committed", func() bool {
		_ = f.raft.Snapshot().Error()
		last, err := f.stable.meta().Last()
		must(t, err)
		return last != nil && last.Index == 20
	})
	if !f.takes(2, 21, 24, 24, 1) {
		t.Error("the entries of the next leader are refused, who goes back to what this node has a " +
			"snapshot of")
	}
	if f.failed != nil || f.raft.AppliedIndex() != 24 {
		t.Errorf("applied %d: %v", f.raft.AppliedIndex(), f.failed)
	}
}

// TestMetaLogContradicts: a log that has other entries than a leader whose snapshot comes is
// dropped, and then the leader's entries are accepted.
func TestMetaLogContradicts(t *testing.T) {
	f := newMetaFollower(t)
	if !f.takes(1, 1, 20, 17, 0) {
		t.Fatal("entries are refused")
	}
	if err := f.install(2, 19); err == nil || !errors.Is(f.failed, errMetaLogContradicts) {
		t.Errorf("the snapshot is installed: %v, %v", err, f.failed)
	}
	must(t, f.stop())
	f.start()
	if !f.takes(2, 20, 21, 21, 2) || f.failed != nil || f.raft.AppliedIndex() != 21 {
		t.Errorf("applied %d: %v", f.raft.AppliedIndex(), f.failed)
	}
	must(t, f.install(2, 21)) // nothing contradicts it
	if err := f.install(2, 20); err == nil {
		t.Error("a snapshot takes the place of a newer one")
	}
}

// TestMetaLogFails: when entries cannot be stored in the place of those that were deleted, the process ends.
func TestMetaLogFails(t *testing.T) {
	f := newMetaFollower(t)
	tooLong := &raft.Log{Index: 1, Term: 1, Data: make([]byte, 2<<20)}
	log, err := openMetaLog(f.stable.meta(), func(err error) { f.failed = err })
	must(t, err)
	if log.StoreLog(tooLong) == nil || f.failed != nil {
		t.Fatal(f.failed)
	}
	must(t, log.StoreLog(&raft.Log{Index: 1, Term: 1}))
	must(t, log.DeleteRange(1, 1))
	if log.StoreLog(tooLong) == nil || f.failed == nil {
		t.Error("Raft goes on with a log that lacks what it has")
	}
}

// TestMetaLog stores and deletes entries, and opens the log again after each.
func TestMetaLog(t *testing.T) {
	mem := vfs.NewCrashableMem()
	stable := mustStable(t, mem)
	want := ""
	fails := func(err error) { t.Error(err) }
	check := func() {
		t.Helper()
		must(t, stable.Close())
		mem = mem.CrashClone(vfs.CrashCloneCfg{}) // nothing that was not fsynced
		stable = mustStable(t, mem)
		l, err := openMetaLog(stable.meta(), fails)
		must(t, err)
		first, _ := l.FirstIndex()
		last, _ := l.LastIndex()
		got := ""
		for i := first; i <= last && first > 0; i++ {
			var e raft.Log
			must(t, l.GetLog(i, &e))
			got += fmt.Sprint(e.Index, ":", e.Term, ":", string(e.Data), " ")
		}
		if got != want {
			t.Errorf("the log is %q, want %q", got, want)
		}
		for _, i := range []uint64{0, first - 1, last + 1} {
			if err := l.GetLog(i, new(raft.Log)); !errors.Is(err, raft.ErrLogNotFound) {
				t.Errorf("entry %d of %d to %d: %v", i, first, last, err)
			}
		}
	}
	log := func() *metaLog {
		l, err := openMetaLog(stable.meta(), fails)
		must(t, err)
		return l
	}
	entry := func(i uint64) *raft.Log { return &raft.Log{Index: i, Term: 2, Data: []byte{'a' + byte(i)}} }
	check()
	must(t, log().StoreLogs([]*raft.Log{entry(5), entry(6), entry(7)}))
	want = "5:2:f 6:2:g 7:2:h "
	check()
	if log().StoreLog(entry(7)) == nil {
		t.Error("an entry takes the place of another one")
	}
	check()
	must(t, log().StoreLog(entry(9)))
	want = "9:2:j "
	check()
	must(t, log().StoreLogs([]*raft.Log{entry(10), entry(20)}))
	want = "20:2:u "
	check()
	must(t, log().DeleteRange(20, 20))
	must(t, log().StoreLogs([]*raft.Log{entry(5), entry(6), entry(7)}))
	must(t, log().DeleteRange(7, 7))
	must(t, log().StoreLog(entry(7)))
	must(t, log().DeleteRange(5, 6)) // they stay, since the log is short
	must(t, log().DeleteRange(20, 30))
	want = "5:2:f 6:2:g 7:2:h "
	check()
	long := entry(8)
	long.Data = bytes.Repeat(long.Data, metaLogKeeps)
	must(t, log().StoreLog(long))
	must(t, log().DeleteRange(5, 6))
	must(t, log().DeleteRange(8, 8))
	want = "6:2:g 7:2:h "
	check()
	must(t, log().DeleteRange(6, 7))
	want = ""
	check()
	must(t, stable.meta().Set([]byte(metaLogValue), []byte("rotten")))
	if _, err := openMetaLog(stable.meta(), fails); !errors.Is(err, persistence.ErrCorrupt) {
		t.Errorf("a damaged log: %v", err)
	}
	must(t, stable.Close())
}
