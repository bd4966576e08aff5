package raftgroup

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/persistence/crashtest"
	"github.com/fbfkv/fbfkv/persistence/disk"
	"github.com/fbfkv/fbfkv/persistence/oplog"
)

// openLog opens the op log of a node whose entries have no sections.
func openLog(t testing.TB, fsys vfs.FS) *oplog.Log {
	t.Helper()
	err := disk.MakeDir(fsys, "data/log")
	if err != nil {
		t.Fatal(err)
	}
	l, err := oplog.Open(oplog.Options{
		FS: fsys, Dir: "data/log", MarkDir: "data", FileSize: 64 << 10, Partitions: 1,
		Sections: func(*oplog.Entry) (from, to int, begins bool, err error) { return 0, 0, false, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestLogStore holds the store to what hashicorp/raft expects of one.
func TestLogStore(t *testing.T) {
	var told error
	mem := vfs.NewMem()
	l := openLog(t, mem)
	s := &LogStore{Log: l, Failed: func(err error) { told = err }}
	bounds := func(first, last uint64) {
		t.Helper()
		f, err := s.FirstIndex()
		g, err2 := s.LastIndex()
		if f != first || g != last || err != nil || err2 != nil {
			t.Fatal(f, g, err, err2)
		}
	}
	get := func(index uint64) (log raft.Log, err error) { return log, s.GetLog(index, &log) }
	bounds(0, 0)
	if _, err := get(1); !errors.Is(err, raft.ErrLogNotFound) {
		t.Fatal(err)
	}
	one := &raft.Log{Index: 1, Term: 2, Type: raft.LogConfiguration, Data: []byte("a"),
		Extensions: []byte("b"), AppendedAt: time.Unix(5, 6)}
	if err := s.StoreLog(one); err != nil {
		t.Fatal(err)
	}
	var more []*raft.Log
	for i := uint64(2); i <= 9; i++ {
		more = append(more, &raft.Log{Index: i, Term: 3, Data: []byte{byte(i)}})
	}
	if err := s.StoreLogs(more); err != nil {
		t.Fatal(err)
	}
	bounds(1, 9)
	for range 2 {
		log, err := get(1)
		if err != nil || fmt.Sprint(log) != fmt.Sprint(*one) {
			t.Fatal(log, err)
		}
		if log, err = get(9); err != nil || log.Term != 3 || string(log.Data) != "\x09" ||
			!log.AppendedAt.IsZero() {
			t.Fatal(log, err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l = openLog(t, mem)
		s.Log = l
	}
	l.SetApplied(4)
	if err := s.DeleteRange(7, 8); err == nil || told == nil {
		t.Fatal("entries in the middle were deleted")
	}
	told = nil
	if err := errors.Join(s.DeleteRange(1, 3), s.DeleteRange(8, 9)); err != nil {
		t.Fatal(err)
	}
	bounds(3, 7) // a snapshot may end at entry 3
	must(t, s.DeleteRange(3, 3))
	bounds(3, 7)
	if !s.IsMonotonic() {
		t.Fatal("Raft must not leave gaps")
	}
	l.SetApplied(20) // a snapshot was installed
	if err := s.DeleteRange(3, 7); err != nil {
		t.Fatal(err)
	}
	bounds(0, 0)
	if err := s.StoreLog(&raft.Log{Index: 21, Term: 4}); err != nil || told != nil {
		t.Fatal(err, told)
	}
	bounds(21, 21)
	if err := s.StoreLog(&raft.Log{Index: 25, Term: 4}); err == nil || told == nil {
		t.Fatal("a gap is stored")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestLogStoreKeepsLost: Raft may cut off what is not applied, and nothing else, wherever that begins.
func TestLogStoreKeepsLost(t *testing.T) {
	l := openLog(t, vfs.NewMem())
	var lost uint64
	s := &LogStore{Log: l, Lost: func(from, _ uint64) { lost = from }}
	for i := range uint64(6) {
		must(t, s.StoreLog(&raft.Log{Index: 1 + i, Term: 1}))
	}
	l.SetApplied(4)
	for _, from := range []uint64{1, 4} {
		if err := s.DeleteRange(from, 6); !errors.Is(err, ErrKeepsLost) || lost != from {
			t.Errorf("entries from %d on are deleted: %v, and %d is said to be lost", from, err, lost)
		}
	}
	must(t, s.DeleteRange(5, 6))
	must(t, l.Close())
}

// TestLogStoreRoom: room that was reserved is used; a full disk is no failure, unless
// Raft has deleted what it cannot replace (R8).
func TestLogStoreRoom(t *testing.T) {
	small := crashtest.NewFullDisk(vfs.NewMem())
	l := openLog(t, small)
	var told error
	reserved := int64(0)
	s := &LogStore{Log: l, Failed: func(err error) { told = err }, Reserved: func([]*raft.Log) (int64,
		error) {
		return reserved, nil
	}}
	store := func(size int) error {
		_, last := l.EntryBounds()
		return s.StoreLog(&raft.Log{Index: last + 1, Term: 1, Data: make([]byte, size)})
	}
	const room = 30 << 10
	if err := l.Reserve(room); err != nil {
		t.Fatal(err)
	}
	small.Fill(0)
	var err error
	for err == nil {
		err = store(10 << 10)
	}
	if !errors.Is(err, persistence.ErrNoSpace) || told != nil {
		t.Fatal(err, told)
	}
	reserved = room
	if err := store(20 << 10); err != nil {
		t.Fatal(err)
	}
	reserved = 0
	_, last := l.EntryBounds()
	if err := s.DeleteRange(last, last); err != nil {
		t.Fatal(err)
	}
	if err := store(40 << 10); !errors.Is(err, persistence.ErrNoSpace) ||
		!errors.Is(told, persistence.ErrNoSpace) {
		t.Fatal(err, told)
	}
	small.Fill(-1)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// raftNode is a node of hashicorp/raft on our stores.
type raftNode struct {
	t      *testing.T
	mem    *vfs.MemFS
	log    *oplog.Log
	stable *Stable
	raft   *raft.Raft
	trans  *raft.InmemTransport

	mu      sync.Mutex
	changed sync.Cond
	applied []string
}

// Apply implements raft.FSM.
func (n *raftNode) Apply(l *raft.Log) any {
	n.log.SetApplied(l.Index)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.applied = append(n.applied, string(l.Data))
	n.changed.Broadcast()
	return nil
}

// Snapshot implements raft.FSM.
func (n *raftNode) Snapshot() (raft.FSMSnapshot, error) { return nil, errors.New("not here") }

// Restore implements raft.FSM.
func (n *raftNode) Restore(r io.ReadCloser) error { return r.Close() }

// await returns once a command was applied.
func (n *raftNode) await(command string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for !slices.Contains(n.applied, command) {
		n.changed.Wait()
	}
}

func (n *raftNode) start() {
	n.t.Helper()
	n.log, n.stable, n.applied = openLog(n.t, n.mem), mustStable(n.t, n.mem), nil
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(n.stable.Node())
	c.HeartbeatTimeout, c.ElectionTimeout = 200*time.Millisecond, 200*time.Millisecond
	c.LeaderLeaseTimeout = 100 * time.Millisecond
	c.LogOutput = io.Discard
	_, n.trans = raft.NewInmemTransport(raft.ServerAddress(c.LocalID))
	store := &LogStore{Log: n.log, Failed: func(err error) { n.t.Error(err) }}
	r, err := raft.NewRaft(c, n, store, n.stable, n.stable, n.trans)
	if err != nil {
		n.t.Fatal(err)
	}
	n.raft = r
}

func (n *raftNode) stop() {
	n.t.Helper()
	if err := errors.Join(n.raft.Shutdown().Error(), n.log.Close(), n.stable.Close()); err != nil {
		n.t.Fatal(err)
	}
}

// connect connects nodes with one another, and with nobody else.
func connect(all []*raftNode, groups ...[]*raftNode) {
	for _, n := range all {
		n.trans.DisconnectAll()
	}
	for _, group := range groups {
		for _, a := range group {
			for _, b := range group {
				a.trans.Connect(b.trans.LocalAddr(), b.trans)
			}
		}
	}
}

// leaderOf returns which of some nodes leads, once one does.
func leaderOf(nodes []*raftNode) *raftNode {
	for {
		for _, n := range nodes {
			if n.raft.State() == raft.Leader && n.raft.VerifyLeader().Error() == nil {
				return n
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestRaftOnOurStores: three nodes of hashicorp/raft lose a leader, who has appended
// entries that nobody else has. These are overwritten, and never come back.
func TestRaftOnOurStores(t *testing.T) {
	t.Parallel()
	var nodes []*raftNode
	var servers []raft.Server
	for range 3 {
		n := &raftNode{t: t, mem: vfs.NewCrashableMem()}
		n.changed.L = &n.mu
		n.start()
		nodes = append(nodes, n)
		servers = append(servers,
			raft.Server{ID: raft.ServerID(n.stable.Node()), Address: n.trans.LocalAddr()})
	}
	connect(nodes, nodes)
	if err := nodes[0].raft.BootstrapCluster(raft.Configuration{Servers: servers}).Error(); err != nil {
		t.Fatal(err)
	}
	apply := func(among []*raftNode, command string) {
		// on a slow machine leaders change
		for leaderOf(among).raft.Apply([]byte(command), 0).Error() != nil {
		}
	}
	apply(nodes, "first")
	old := leaderOf(nodes)
	others := slices.DeleteFunc(slices.Clone(nodes), func(n *raftNode) bool { return n == old })
	connect(nodes, others)
	var stale []raft.ApplyFuture
	for i := range 5 {
		stale = append(stale, old.raft.Apply(fmt.Appendf(nil, "stale %d", i), 0))
	}
	for _, f := range stale {
		if f.Error() == nil {
			t.Fatal("a command was committed by one node")
		}
	}
	apply(others, "second")
	connect(nodes, nodes)
	apply(nodes, "third")
	for _, n := range nodes {
		n.await("third")
	}
	for _, n := range nodes {
		n.mem = crashtest.Left(n.mem, 0, nil) // and all lose the power
		defer n.stop()
	}
	for _, n := range nodes {
		if err := errors.Join(n.raft.Shutdown().Error(), n.log.Close(), n.stable.Close()); err != nil {
			t.Fatal(err)
		}
		n.start()
	}
	connect(nodes, nodes)
	apply(nodes, "fourth")
	for _, n := range nodes {
		n.await("fourth")
		n.mu.Lock() // it may be applied again
		applied := slices.Compact(slices.Clone(n.applied))
		n.mu.Unlock()
		if got := fmt.Sprint(applied); got != "[first second third fourth]" {
			t.Error(got)
		}
	}
}
