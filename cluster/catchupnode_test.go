package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/internal/testwait"
	"github.com/fbfkv/fbfkv/store"
)

// trimLogs has each running node keep few entries of its log for those that are behind, and
// give up the others now.
func (s *shard) trimLogs() {
	s.t.Helper()
	for _, m := range s.members {
		n := m.running()
		if n == nil {
			continue
		}
		r := n.raft.ReloadableConfig()
		r.TrailingLogs = 5
		if err := n.raft.ReloadConfig(r); err != nil {
			s.t.Fatal(err)
		}
		if err := n.raft.Snapshot().Error(); err != nil && err != raft.ErrNothingNewToSnapshot {
			s.t.Fatal(err)
		}
	}
}

// await waits until something is so.
func await(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(testwait.Limit); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("this has not come: " + what)
		}
	}
}

// TestRejoin: a node that comes back when the log does not reach back to what it has takes the
// leader's files, under load, and has the same as the others afterwards. The leader does not
// trim its log meanwhile, nor soon after.
func TestRejoin(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 3)
		l := startLoad(s, 4, 20)
		l.more(100)
		away := l.leaveBehind()
		leader := s.leader()
		// The files come so slowly that much is decided, and the log would be trimmed, before
		// they are there.
		leader.running().files.server.files.Pace.Rate = 1 << 20
		away.start()
		await(t, "files are given", func() bool {
			_, given := leader.running().Transfers()
			return given.Bytes > 0
		})
		first, _ := leader.running().log.EntryBounds()
		for range 3 {
			l.more(50)
			n := leader.running()
			if err := n.raft.Snapshot().Error(); err == nil {
				t.Fatal("Raft has taken a snapshot, and trims the log")
			}
			if now, _ := n.log.EntryBounds(); now != first {
				t.Fatalf("the log began with %d, and now with %d", first, now)
			}
		}
		await(t, "the node has the leader's files", func() bool { return away.restarted.Load() > 0 })
		l.more(200)
		l.finish()
		if n := away.restarted.Load(); n != 1 {
			t.Errorf("the node has taken files %d times", n)
		}
		if fetched, _ := away.running().Transfers(); fetched.Begun != 1 || fetched.Finished != 1 ||
			fetched.Bytes == 0 {
			t.Errorf("fetched: %+v", fetched)
		}
		if _, given := leader.running().Transfers(); given.Finished != 1 || given.Bytes == 0 {
			t.Errorf("given: %+v", given)
		}
	})
}

// leaveBehind stops a node that does not lead until the log of the others does not reach back
// to it.
func (l *load) leaveBehind() *replica {
	s := l.s
	s.t.Helper()
	leader, away := s.leader(), s.members[0]
	if away == leader {
		away = s.members[1]
	}
	away.stop()
	l.more(200)
	s.trimLogs()
	last := leader.running().log.Applied()
	l.more(200)
	s.trimLogs()
	if first, _ := leader.running().log.EntryBounds(); first+5 < last {
		s.t.Fatalf("the log begins with %d, and %d was applied long ago", first, last)
	}
	return away
}

// TestRejoinNeeded: of three nodes one is gone, and one is behind the log: the third cannot
// commit anything before that has its files, and gives them.
func TestRejoinNeeded(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 3)
		l := startLoad(s, 4, 20)
		l.more(100)
		away, old := l.leaveBehind(), s.leader()
		for _, m := range s.members {
			if m != away && m != old {
				m.kill(rand.New(rand.NewPCG(1, 1)))
			}
		}
		await(t, "the leader has noticed that it has no majority", func() bool {
			return !old.running().Leads()
		})
		away.start()
		await(t, "the node has the leader's files", func() bool { return away.restarted.Load() > 0 })
		l.more(200)
		for _, m := range s.members {
			if m.running() == nil {
				m.start()
			}
		}
		l.finish()
	})
}

// TestFetchFromLostLeader: a node fetches the files of a leader that falls silent. The next leader
// can commit nothing before this node has its files, so the node does not wait as long for an
// answer as for one of the leader.
func TestFetchFromLostLeader(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 3)
		l := startLoad(s, 4, 20)
		l.more(100)
		away, old := l.leaveBehind(), s.leader()
		old.running().files.server.files.Pace.Rate = 1 << 16
		away.start()
		node := away.running()
		await(t, "files are given", func() bool { return node.files.fetcher.counts.Counts().Bytes > 0 })
		old.isolate()
		lost := time.Now()
		next := s.leader()
		if took := time.Since(lost); next == old || took > answerTimeout/2 {
			t.Errorf("after %v node %s leads", took, next.id[39:])
		}
		old.heal()
		l.finish()
	})
}

// TestRejoinInterrupted: the connection breaks, the node loses its power, and the leader
// changes, while a node fetches files. Its log and votes are never lost on the way.
func TestRejoinInterrupted(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 3)
		l := startLoad(s, 4, 20)
		l.more(100)
		away := l.leaveBehind()
		r := rand.New(rand.NewPCG(2, 2))
		for round := range 3 {
			away.start()
			node := away.running()
			await(t, "it begins to fetch", func() bool {
				return node.files.fetcher.counts.Counts().Begun > 0 || away.restarted.Load() > 0
			})
			for range 3 {
				s.faults.reset(away.id, s.leader().id)
				time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
			}
			if round == 1 {
				_ = s.leader().running().HandOver(t.Context(), "") // it may be about to change anyway
			}
			s.restarts.Wait()
			if away.running() != nil {
				away.kill(r)
			}
			l.more(50)
		}
		away.start()
		l.more(200)
		await(t, "the node has caught up", func() bool {
			n := away.running()
			return n != nil && n.log.Applied()+100 > s.leader().running().log.Applied()
		})
		l.finish()
	})
}

// TestFirstNodeWithData: a directory that was a single node's becomes the first of a shard;
// those that join have its counters, and recognise its ids.
func TestFirstNodeWithData(t *testing.T) {
	virtual(t, func(t *testing.T) {
		mem := vfs.NewCrashableMem()
		single, err := store.Open(store.Options{Dir: "d", FS: mem, Partitions: 4, Seed: [16]byte{7},
			MinFreeDisk: -1})
		must(t, err)
		count := func(s *store.Store, id string) *store.Op {
			var b store.Batch
			op := b.Add(store.CIncrBy)
			op.Key, op.ID, op.Delta = []byte("old"), []byte(id), 1
			s.Execute(&b)
			return &b.Ops[0]
		}
		for i := range 50 {
			must(t, count(single, fmt.Sprint(i)).Err)
		}
		must(t, single.Close())
		s := newShardOn(t, 3, mem)
		l := startLoad(s, 2, 5)
		l.more(100)
		for _, m := range s.members[1:] {
			await(t, "the joiner has the files", func() bool { return m.restarted.Load() > 0 })
			await(t, "it leads", func() bool {
				if n := s.leader(); n != m {
					_ = n.running().HandOver(t.Context(), m.id) // again, until it has caught up
				}
				return s.leader() == m
			})
			await(t, "it recognises what was counted before", func() bool {
				n := m.running()
				if n == nil {
					return false
				}
				op := count(n.Store(), "17")
				if op.Err == nil && (op.Applied || op.Value != 18) {
					t.Fatalf("a retry of before answers %d, applied: %v", op.Value, op.Applied)
				}
				return op.Err == nil
			})
		}
		l.finish()
	})
}

// TestNoteSwap: a node notes that it takes what it has fetched only if its log has nothing
// that the files lack; what it has fetched is removed otherwise.
func TestNoteSwap(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 1)
		n := s.members[0].running()
		must(t, n.Store().CreateTable(store.TableOptions{Name: "t", Prefix: "t:"})) // some entries
		last, term := n.lastEntry()
		for _, c := range []struct {
			applied, term uint64
			want          bool
		}{{last, term, true}, {last - 1, term, false}, {last + 5, term, true}, {last - 1, term + 1, true},
			{last - 1, term - 1, false}} {
			must(t, n.o.FS.MkdirAll(n.files.fetcher.o.dir, 0o755))
			n.files.fetched.Store(&fetched{manifest: &manifest{},
				at: cutPosition{applied: c.applied, appliedTerm: c.term}, lastTerm: c.term})
			swaps, err := n.noteSwap()
			b, noted := n.o.Stable.Get([]byte(swapValue))
			_, there := n.o.FS.Stat(n.files.fetcher.o.dir)
			if must(t, errors.Join(err, noted)); swaps != c.want || (len(b) > 0) != c.want ||
				(there == nil) != c.want {
				t.Errorf("last %d of term %d, files with %d of term %d: it takes them: %v, notes %q, has %v",
					last, term, c.applied, c.term, swaps, b, there)
			}
			must(t, n.o.Stable.Set([]byte(swapValue), nil))
		}
		n.files.fetched.Store(nil)
	})
}

// TestCutSaysWhatIsApplied: a copy of a node's files says that all is applied which was when it was
// begun, though nothing follows in the log.
func TestCutSaysWhatIsApplied(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 1)
		await(t, "it counts", func() bool { return countOne(s.leader().running().st, "k0", "1").Err == nil })
		n := s.leader().running()
		must(t, n.st.Snapshot())
		before := n.log.Applied()
		n.proposeBegin() // of which no view tells
		await(t, "it is applied", func() bool { return n.log.Applied() > before })
		n.files.server.mu.Lock()
		n.files.server.cut = new(servedCut) // it is being made
		n.files.server.mu.Unlock()
		at, err := n.beginCut()
		must(t, err)
		must(t, n.st.Cut())
		copied, _, _, err := examineCut(n.o.FS, n.st.CutDir(), n.st.Meta(), &manifest{Snapshot: at.snapshot},
			0)
		must(t, err)
		if copied.applied < at.applied {
			t.Errorf("the copy says that entries are applied to %d, and they were to %d", copied.applied,
				at.applied)
		}
	})
}
