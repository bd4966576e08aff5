package cluster

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/cluster/raftgroup"
	"github.com/fbfkv/fbfkv/internal/testwait"
)

// metaFollower is Raft as the meta group has it, on a node that follows. The test is its leaders.
type metaFollower struct {
	t      *testing.T
	mem    *vfs.MemFS
	stable *raftgroup.Stable
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
	stable := f.stable.Meta()
	fail := func(err error) { f.failed = errors.Join(f.failed, err) }
	log, err := raftgroup.OpenMetaLog(stable, fail)
	must(f.t, err)
	m := &Meta{ending: ending{logger: slog.New(slog.DiscardHandler), fatal: fail},
		o: MetaOptions{Stable: f.stable, Net: new(Net)}, log: log}
	m.config.Store(new(Configuration))
	c := raftgroup.Config("follower", time.Hour, 1, 1, 1, make(chan bool, 1), slog.New(slog.DiscardHandler))
	c.SnapshotThreshold, c.TrailingLogs, c.SnapshotInterval = 1000, 1, time.Hour
	address, transport := raft.NewInmemTransport("follower")
	f.raft, err = raft.NewRaft(c, metaMachine{m}, log, stable.ForRaft(fail), stable, transport)
	must(f.t, err)
	_, f.leader = raft.NewInmemTransportWithTimeout("leader", testwait.Limit)
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
		last, err := f.stable.Meta().Last()
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
	if err := f.install(2, 19); err == nil || !errors.Is(f.failed, raftgroup.ErrContradicts) {
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
