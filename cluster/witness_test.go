package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/cluster/raftgroup"
	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/persistence/oplog"
)

// TestPast: a directory is allowed if it shows a start that is not lower, and a log that ended
// where everything ends that was acknowledged before that start; whatever order the news came in.
func TestPast(t *testing.T) {
	var p Past
	for _, o := range []Past{{Starts: 3, Acked: place{2, 90}}, {Starts: 5, Acked: place{3, 110}}, {Starts: 4,
		Acked: place{2, 100}}, {Starts: 5, Acked: place{3, 105}}} {
		p = p.with(o)
	}
	if want := (Past{Starts: 5, Acked: place{3, 110}, Before: place{2, 100}}); p != want {
		t.Fatalf("%+v, want %+v", p, want)
	}
	for _, tt := range []struct {
		starts  uint64
		end     place
		allowed bool
		what    string
	}{
		{6, place{3, 110}, true, "the same directory, started again"},
		{6, place{3, 109}, false, "one that lacks an entry"},
		{6, place{2, 200}, false, "one with a longer log of an earlier term"},
		{6, place{4, 1}, true, "one with a log of a later term"},
		{5, place{2, 100}, true, "the start that is known, of which more is acknowledged by now"},
		{5, place{2, 99}, false, "a copy with the number of the start that is known"},
		{4, place{9, 999}, false, "an earlier start"},
	} {
		if had := p.before(tt.starts); (had != unknownEnd && tt.end.compare(had) >= 0) != tt.allowed {
			t.Errorf("%s: it must have had %v", tt.what, had)
		}
	}
	if (Past{}).before(0) != (place{}) {
		t.Error("a node that nobody knows is refused")
	}
}

// TestPastsEntry: what an entry tells comes out as it went in; anything else is refused.
func TestPastsEntry(t *testing.T) {
	pasts := map[string]Past{testID("1"): {1, place{2, 3}, place{4, 5}},
		testID("2"): {6, place{7, 8}, place{9, 10}}}
	b, err := encodePasts(pasts)
	must(t, err)
	got, err := decodePasts(b)
	if err != nil || fmt.Sprint(got) != fmt.Sprint(pasts) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := decodePasts(b[1:]); err == nil {
		t.Error("a part of an entry is taken")
	}
	if _, err := decodePasts(make([]byte, (MaxMembers+1)*pastSize)); err == nil {
		t.Error("an entry about too many nodes is taken")
	}
}

// TestWitnessIsKept: what is known of others is known after a start, and members that are gone are forgotten.
func TestWitnessIsKept(t *testing.T) {
	mem := vfs.NewCrashableMem()
	w, err := OpenWitness(mem, "d")
	must(t, err)
	one, two := testID("1"), testID("2")
	w.Learn(one, Past{Starts: 3, Acked: place{1, 7}})
	w.Learn(two, Past{Starts: 4})
	must(t, w.save())
	w, err = OpenWitness(mem.CrashClone(vfs.CrashCloneCfg{}), "d")
	must(t, err)
	if w.of(one) != (Past{Starts: 3, Acked: place{1, 7}}) || w.of(two) != (Past{Starts: 4}) {
		t.Errorf("%+v, %+v", w.of(one), w.of(two))
	}
	w.KeepOnly(&Configuration{Members: []Member{{ID: one}}})
	if w.of(one).Starts != 3 || w.of(two).Starts != 0 {
		t.Errorf("%+v, %+v", w.of(one), w.of(two))
	}
}

// TestVotesDoNotWaitForTheWitness: a node votes while a slow disk still keeps what it remembers of others.
func TestVotesDoNotWaitForTheWitness(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 3)
		m := s.leader()
		n := m.running()
		file := persistence.WitnessName
		m.gated.Store(&file)
		answer := m.hangDisk()
		n.witness().Learn(testID("other"), Past{Starts: 1})
		await(t, "it is being kept", func() bool {
			_, busy := n.witness().values.Work().Counts()
			return busy
		})
		voted := make(chan error, 1)
		go func() {
			voted <- errors.Join(n.o.Stable.SetUint64([]byte("term"), 7),
				n.o.Stable.Set([]byte("vote"), []byte("x")))
		}()
		await(t, "the vote is durable", func() bool { return len(voted) == 1 })
		must(t, <-voted)
		if _, busy := n.witness().values.Work().Counts(); !busy {
			t.Error("nothing was being kept meanwhile")
		}
		answer()
	})
}

// TestWitnessThatCannotBeKept: a node ends that could forget what it knows of others.
func TestWitnessThatCannotBeKept(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 1)
		m := s.leader()
		m.fatal = make(chan error, 10)
		w := m.running().witness()
		must(t, w.Close())
		w.Learn(testID("other"), Past{Starts: 1})
		if err := <-m.fatal; !errors.Is(err, persistence.ErrClosed) {
			t.Error(err)
		}
		m.kill(rand.New(rand.NewPCG(1, 1)))
	})
}

// followers returns the members that do not lead.
func (s *shard) followers() (leader *replica, followers []*replica) {
	leader = s.leader()
	for _, m := range s.members {
		if m != leader {
			followers = append(followers, m)
		}
	}
	return leader, followers
}

// copyRunning copies a node's directory as a snapshot of its machine does, while it runs.
func (m *replica) copyRunning() *vfs.MemFS {
	return m.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
}

// awaitTold waits until a node knows that another one has acknowledged all that is committed, but
// for the entry that tells so.
func (s *shard) awaitTold(knows, of *replica) {
	s.t.Helper()
	await(s.t, "the others are told", func() bool {
		return knows.running().witness().of(of.id).Acked.Index+1 >= s.leader().running().raft.CommitIndex()
	})
}

// TestOlderDirectory: the directory of a node is put back as it was while the node ran, and lacks
// what the node has acknowledged since. A node that lacked that, too, does not make it a leader:
// neither one that was told by the leader nor one that was the leader. It says so itself, and takes
// part in nothing. Nothing is lost when the former leader is back.
func TestOlderDirectory(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 3)
		leader, others := s.followers()
		back, third := others[0], others[1]
		s.mustAdd("k", "before")
		s.awaitApplied()
		older := back.copyRunning()
		for i := range 20 {
			s.mustAdd("k", fmt.Sprint("op", i))
		}
		s.awaitTold(third, back)
		leader.stop()
		back.stop()
		back.fs = older
		back.start()
		await(t, "it doubts itself", func() bool { return back.running().Status().Aside != nil })
		if err := back.running().Status().Aside; !strings.Contains(err.Error(), "replace the node") {
			t.Error(err)
		}
		for _, m := range []*replica{back, third} {
			if n := m.running(); n.Leads() || n.raft.State() == raft.Leader {
				t.Errorf("node %s leads", m.id[39:])
			}
		}
		leader.start()
		if op := s.mustAdd("k", "after"); op.Value != 22 {
			t.Errorf("the counter is %d, want 22", op.Value)
		}
		await(t, "it stands aside when another node says so, too", func() bool {
			return errors.Is(back.running().Status().Aside, errOlder)
		})
		if err := errOlder.Error(); !strings.Contains(err, "replace the node") {
			t.Error(err)
		}
	})
}

// TestOlderDirectoryOfOneStart: a directory that was copied while its node was down is put back
// after one start.
func TestOlderDirectoryOfOneStart(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 3)
		_, others := s.followers()
		back, third := others[0], others[1]
		s.mustAdd("k", "before")
		s.awaitApplied()
		back.stop()
		older := back.copyRunning()
		back.start()
		for i := range 20 {
			s.mustAdd("k", fmt.Sprint("op", i))
		}
		s.awaitTold(third, back)
		back.stop()
		back.fs = older
		back.start()
		await(t, "it stands aside", func() bool { return back.running().Status().Aside != nil })
	})
}

// TestOlderDirectoryOfALeader: the same of the directory of the leader itself, which knows exactly
// what the others have.
func TestOlderDirectoryOfALeader(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 3)
		back, others := s.followers()
		s.mustAdd("k", "before")
		s.awaitApplied()
		older := back.copyRunning()
		s.mustAdd("k", "lost otherwise")
		for _, m := range others {
			s.awaitTold(m, back)
		}
		back.stop()
		back.fs = older
		back.start()
		await(t, "it stands aside", func() bool { return back.running().Status().Aside != nil })
		if op := s.mustAdd("k", "after"); op.Value != 3 {
			t.Errorf("the counter is %d, want 3", op.Value)
		}
	})
}

// TestOlderDirectoryIsKnownAtOnce: the leader refuses a directory that lacks what the node
// acknowledged a moment ago, of which no entry has told yet.
func TestOlderDirectoryIsKnownAtOnce(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 3)
		leader, others := s.followers()
		back := others[0]
		s.mustAdd("k", "before")
		s.awaitApplied()
		older := back.copyRunning()
		s.mustAdd("k", "op")
		commit := leader.running().raft.CommitIndex()
		await(t, "it has acknowledged that", func() bool {
			return leader.running().transport.Progress()[raft.ServerID(back.id)].Index >= commit
		})
		back.stop()
		back.fs = older
		back.start()
		await(t, "it stands aside", func() bool { return back.running().Status().Aside != nil })
	})
}

// TestWipedDirectory: a directory that kept its id and lost its log is refused, though its number
// of a start is the highest.
func TestWipedDirectory(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 3)
		_, others := s.followers()
		back := others[0]
		s.mustAdd("k", "op")
		s.awaitTold(others[1], back)
		back.stop()
		empty := vfs.NewCrashableMem()
		values, err := back.fs.Open("d/CLUSTER")
		must(t, err)
		content := make([]byte, 2<<20)
		_, err = values.ReadAt(content, 0)
		must(t, err)
		must(t, empty.MkdirAll("d", 0o700))
		f, err := empty.Create("d/CLUSTER", vfs.WriteCategoryUnspecified)
		must(t, err)
		_, err = f.Write(content)
		must(t, err)
		must(t, errors.Join(f.Sync(), f.Close()))
		back.fs = empty
		back.start()
		await(t, "it stands aside", func() bool { return back.running().Status().Aside != nil })
	})
}

// TestOldStartIsRefused: a copy of an earlier start is refused, though nothing was acknowledged since.
func TestOldStartIsRefused(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 3)
		_, others := s.followers()
		back := others[0]
		s.awaitApplied()
		older := back.copyRunning()
		for range 2 {
			back.stop()
			back.start()
			own := back.running().o.Net.self.starts
			await(t, "the start is known", func() bool {
				return s.leader().running().witness().of(back.id).Starts == own
			})
		}
		back.stop()
		starts := s.leader().running().witness().of(back.id).Starts
		back.fs = older
		stable, err := raftgroup.OpenStable(older, "d")
		must(t, err)
		number, err := stable.GetUint64([]byte("fbfkv.starts"))
		must(t, errors.Join(err, stable.Close()))
		if starts < number+2 {
			t.Fatalf("start %d is known, the copy is of start %d", starts, number)
		}
		back.start()
		await(t, "it stands aside", func() bool { return back.running().Status().Aside != nil })
	})
}

// TestNoFalseRefusal: no node is refused that crashes under load, loses what it had not made
// durable, or is started again at once, over and over; nor is a leader's uncommitted end.
func TestNoFalseRefusal(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 3)
		r := rand.New(rand.NewPCG(7, 7))
		l := startLoad(s, 4, 8)
		for i := range 9 {
			m := s.members[i%3]
			if i%2 == 0 {
				m.kill(r)
			} else {
				m.stop()
			}
			m.start()
			before := l.sent.Load()
			await(t, "operations are answered", func() bool { return l.sent.Load() > before+50 })
			for _, m := range s.members {
				if err := m.running().Status().Aside; err != nil {
					t.Fatalf("node %s stands aside: %v", m.id[39:], err)
				}
			}
		}
		l.stop.Store(true)
		l.clients.Wait()
		s.awaitApplied()
	})
}

// loseCommitted puts the directories of all nodes but the leader back to what they were before an
// operation, and returns the leader, which is not running, once the others have gone on without it.
func (s *shard) loseCommitted(ops int) (leader *replica, others []*replica) {
	s.t.Helper()
	leader, others = s.followers()
	s.mustAdd("k", "before")
	s.awaitApplied()
	copies := []*vfs.MemFS{others[0].copyRunning(), others[1].copyRunning()}
	for i := range ops {
		s.mustAdd("k", fmt.Sprint("lost", i))
	}
	for _, m := range others {
		s.awaitTold(m, leader)
		s.awaitTold(leader, m)
	}
	s.awaitApplied()
	leader.stop()
	for i, m := range others {
		m.stop()
		m.fs = copies[i]
	}
	for _, m := range others {
		m.start()
	}
	if op := s.mustAdd("k", "after"); op.Value != 2 {
		s.t.Fatalf("the counter is %d: nothing was lost", op.Value)
	}
	return leader, others
}

// forgets has a node that does not run remember nothing of the others: otherwise it would refuse
// those that are older.
func (m *replica) forgets() {
	must(m.s.t, m.fs.Remove("d/WITNESS"))
}

// keepsLost waits until a node says that it has what the shard has lost, and keeps it. The others go on.
func (s *shard) keepsLost(m *replica, others []*replica) {
	s.t.Helper()
	n := m.running()
	_, end := n.log.EntryBounds()
	await(s.t, "it stands aside", func() bool { return n.Status().Aside != nil })
	if err := n.Status().Aside; !strings.Contains(err.Error(), "has what its shard has lost") ||
		!strings.Contains(err.Error(), "Do not wipe it") {
		s.t.Error(err)
	}
	if _, after := n.log.EntryBounds(); after != end || m.restarted.Load() > 0 {
		s.t.Errorf("its log ends with %d, and ended with %d", after, end)
	}
	s.mustAdd("k", "on")
	for _, o := range others {
		if err := o.running().Status().Aside; err != nil {
			s.t.Errorf("node %s stands aside: %v", o.id[39:], err)
		}
	}
}

// TestKeepsWhatIsLost: two nodes lost what the third has acknowledged, and go on. It says that it
// has that, and keeps it.
func TestKeepsWhatIsLost(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 3)
		leader, others := s.loseCommitted(1)
		leader.forgets()
		leader.start()
		s.keepsLost(leader, others)
	})
}

// TestReturnsAlone: the same, and the third remembers what the others had acknowledged. It does not
// make them stand aside, who are all that works.
func TestReturnsAlone(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 3)
		leader, others := s.loseCommitted(1)
		leader.start()
		s.keepsLost(leader, others)
	})
}

// comesBack puts a node's directory back in time, and starts it and a third one again, which has everything
// and does not remember that. The one that knows does not run.
func (s *shard) comesBack() (knows, back, third *replica) {
	s.t.Helper()
	s.mustAdd("k", "before")
	s.awaitApplied()
	knows, others := s.followers()
	back, third = others[0], others[1]
	older := back.copyRunning()
	s.mustAdd("k", "lost")
	s.awaitTold(knows, back)
	s.awaitApplied()
	for _, m := range s.members {
		m.stop()
	}
	back.fs = older
	third.forgets()
	back.start()
	third.start()
	s.mustAdd("k", "again")
	return knows, back, third
}

// TestCaughtUp: a directory goes back in time, and the node has got everything again from a leader
// that did not know that, before the node is back that does. That one does not stand aside, and
// believes what the other has by now: the two elect a leader.
func TestCaughtUp(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 3)
		knows, back, third := s.comesBack()
		await(t, "it catches up", func() bool { return back.running().takesPart() })
		knows.start()
		await(t, "it follows", func() bool { return knows.running().takesPart() })
		s.awaitApplied()
		third.stop()
		if op := s.mustAdd("k", "on"); op.Value != 4 {
			t.Errorf("the counter is %d", op.Value)
		}
		for _, m := range []*replica{knows, back} {
			if err := m.running().Status().Aside; err != nil {
				t.Errorf("node %s stands aside: %v", m.id[39:], err)
			}
		}
	})
}

// TestCaughtUpAlone: the same, and the leader is gone again when the node hears, in answer to a call of
// its own, that its directory is older. It does not believe that any more.
func TestCaughtUpAlone(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 3)
		knows, back, third := s.comesBack()
		await(t, "it catches up", func() bool { return back.running().o.Net.tookPart.Load() })
		third.stop()
		await(t, "no leader", func() bool { return !back.running().takesPart() })
		back.running().o.Net.heard(olderDirectory, knows.id)
		if err := back.running().o.Net.Doubts(); err != nil {
			t.Error(err)
		}
		knows.start()
		await(t, "one leads", func() bool { return back.running().Leads() || knows.running().Leads() })
		if op := s.mustAdd("k", "on"); op.Value != 4 {
			t.Errorf("the counter is %d", op.Value)
		}
	})
}

// TestFollowingIsRemembered: nodes that work together from the start, so that none asks about another,
// remember that they did when the others are gone.
func TestFollowingIsRemembered(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 3)
		for _, m := range s.members {
			await(t, "it works in a majority, and says so later",
				func() bool { return m.running().o.Net.tookPart.Load() })
		}
	})
}

// TestOneEntryIsNotAll: a node has what another one charges it to have lost, and is believed only once it has
// followed a leader since it was started: it may have acknowledged more than the other one knows.
func TestOneEntryIsNotAll(t *testing.T) {
	n, _ := listen(t, "2", NetOptions{Secret: testSecret,
		Self: Identity{Cluster: testID("c"), Node: testID("2"), Format: FormatLevel}})
	n.SetEnd(place{1, 10})
	works, end := false, place{3, 30}
	n.TakesPart(func() bool { return works })
	n.CatchesUp(func(had place) (place, bool) { return end, had == place{2, 20} })
	for _, step := range []struct {
		works bool
		had   place
		want  bool
	}{{false, place{2, 20}, false}, {true, place{2, 21}, false}, {true, place{2, 20}, true},
		{false, place{2, 20}, true}, {true, unknownEnd, false}} {
		works = step.works
		if got := n.hasCaughtUp(step.had); got != step.want {
			t.Errorf("%+v: %v", step, got)
		}
		if step.want && n.identity().end != end {
			t.Errorf("%+v: its log ends at %v", step, n.identity().end)
		}
	}
}

// TestMajorityIsNotToldAway: a node stands aside at the word of others, unless it works in a majority.
func TestMajorityIsNotToldAway(t *testing.T) {
	for code, want := range map[answer]error{olderDirectory: errOlder, goesOn: errWentOn} {
		for _, works := range []bool{true, false} {
			n, _ := listen(t, "1", NetOptions{Secret: testSecret,
				Self: Identity{Cluster: testID("c"), Node: testID("1"), Format: FormatLevel}})
			n.TakesPart(func() bool { return works })
			n.heard(code, testID("2"))
			n.heard(code, testID("3"))
			if works {
				if n.Doubts() != nil {
					t.Errorf("a node of a majority stands aside: %v", n.Doubts())
				}
				continue
			}
			await(t, "another node stands aside", func() bool { return n.Aside() != nil })
			if !errors.Is(n.Aside(), want) {
				t.Errorf("another node: %v, want %v", n.Aside(), want)
			}
		}
	}
}

// TestAnotherStartIsMeant: a node hears that its directory is older, and does not believe what is
// said of an earlier start, which was judged after the present one.
func TestAnotherStartIsMeant(t *testing.T) {
	aside := make(chan struct{})
	n, log := listen(t, "2", NetOptions{Secret: testSecret,
		Self: Identity{Cluster: testID("c"), Node: testID("2"), Format: FormatLevel, Starts: 6}})
	n.OnAside(func() { close(aside) })
	w, err := OpenWitness(vfs.NewMem(), "d")
	must(t, err)
	defer w.Close()
	w.Learn(testID("2"), Past{Starts: 7}) // of another copy of the directory
	other, _ := listen(t, "1", NetOptions{Secret: testSecret, Witness: w})
	other.tellOlder(testID("2"), n.Addr().String(), KindAsk,
		&refusal{code: olderDirectory, charge: charge{start: 5}})
	log.until(t, "it means an earlier start of this node")
	if err := n.Aside(); err != nil {
		t.Fatal(err)
	}
	if speak(other, n, testID("2")) == nil {
		t.Error("a directory that is older is let in")
	}
	<-aside
}

// TestLogIsNotOpen: a node whose log is not open yet is not let in by those that remember what it has
// acknowledged, and not taken for an older directory either.
func TestLogIsNotOpen(t *testing.T) {
	n, _ := listen(t, "2", NetOptions{Secret: testSecret,
		Self: Identity{Cluster: testID("c"), Node: testID("2"), Format: FormatLevel, Starts: 6}})
	w, err := OpenWitness(vfs.NewMem(), "d")
	must(t, err)
	defer w.Close()
	w.Learn(testID("2"), Past{Starts: 5, Acked: place{2, 90}})
	other, _ := listen(t, "1", NetOptions{Secret: testSecret, Witness: w})
	for _, c := range []struct {
		end     *place
		refused bool
		doubts  bool
	}{{nil, true, false}, {&place{2, 90}, false, false}, {&place{2, 89}, true, true}} {
		if c.end != nil {
			n.SetEnd(*c.end)
		}
		for range 2 {
			err := speak(other, n, testID("2"))
			if (err != nil) != c.refused || c.end == nil && !strings.Contains(err.Error(), "at present") {
				t.Errorf("a log that ends at %v: %v", c.end, err)
			}
		}
		if c.doubts {
			await(t, "the node doubts itself", func() bool { return n.Doubts() != nil })
		} else if err := n.Doubts(); err != nil {
			t.Errorf("a log that ends at %v: %v", c.end, err)
		}
		w.Learn(testID("2"), Past{Starts: 5, Acked: place{2, 90}})
	}
}

// TestKeepsWhatIsLostAndTrimmed: the same, and the others do not have the entries any more that
// took the place of those that were lost.
func TestKeepsWhatIsLostAndTrimmed(t *testing.T) {
	for name, ops := range map[string]int{"the log is shorter": 10, "the log is longer": 100} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				s := newShard(t, 3)
				leader, others := s.loseCommitted(50)
				for i := range ops {
					s.mustAdd("k", fmt.Sprint("more", i))
				}
				s.trimLogs()
				for _, m := range others {
					l := m.running().log
					first, _ := l.EntryBounds()
					var e oplog.Entry
					if must(t, l.Entry(first, &e)); e.Reign.Index > 50 {
						t.Skip("the others elected again meanwhile: nothing shows that something was lost")
					}
				}
				leader.forgets()
				leader.start()
				s.keepsLost(leader, others)
			})
		})
	}
}

// TestSnapshotOfAnotherLog: a node has a snapshot that ends with an entry of its own, and stands
// aside for one that ends with another at the place of one that was committed. It does not have
// that entry of another term.
func TestSnapshotOfAnotherLog(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 1)
		s.mustAdd("k", "1")
		n := s.leader().running()
		at := n.log.Applied()
		term, err := n.termOf(at)
		must(t, err)
		q := &raft.InstallSnapshotRequest{Term: n.raft.CurrentTerm(), LastLogIndex: at, LastLogTerm: term}
		for _, term := range []uint64{term - 1, term, term + 1} {
			own := place{term, at}
			end, has := n.catchesUp(own)
			if has != (term == q.LastLogTerm) || has && end != own {
				t.Errorf("an entry of term %d: %v, %v", term, end, has)
			}
		}
		if a, err := n.onSnapshot(q); err != nil || !a.Success || n.Status().Aside != nil {
			t.Errorf("its own: %v, %v, %v", a, err, n.Status().Aside)
		}
		q.LastLogTerm++
		a, err := n.onSnapshot(q)
		if !errors.Is(err, raftgroup.ErrKeepsLost) || a.Success || n.Status().Aside == nil {
			t.Errorf("another: %v, %v, %v", a, err, n.Status().Aside)
		}
	})
}

// TestFilesOfAnotherLog: a node that is to fetch the leader's files refuses those of a log that has
// other entries where its own were committed, and stands aside. It takes those of a copy of its own
// log.
func TestFilesOfAnotherLog(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s, other := newShard(t, 1), newShard(t, 1)
		other.leader().stop()
		other.members[0].start() // with another term
		other.mustAdd("k", "instead")
		for i := range 30 {
			s.mustAdd("k", fmt.Sprint("lost", i))
		}
		other.members[0].stop()
		m := s.members[0]
		n := m.running()
		for _, from := range []struct {
			fs    *vfs.MemFS
			dir   string
			fault error
		}{{m.copyRunning(), "own", nil}, {other.members[0].fs, "other", raftgroup.ErrKeepsLost}} {
			if ok, err := vfs.Clone(from.fs, m.fs, "d", from.dir); !ok || err != nil {
				t.Fatal(ok, err)
			}
			err := n.examine(from.dir, &manifest{})
			n.files.fetched.Store(nil)
			if !errors.Is(err, from.fault) || (n.Status().Aside != nil) != (from.fault != nil) {
				t.Errorf("%s: %v, and it stands aside: %v", from.dir, err, n.Status().Aside)
			}
		}
	})
}

// TestPlacesExclude: committed entries of one log have terms that ascend.
func TestPlacesExclude(t *testing.T) {
	p := place{3, 10}
	for o, want := range map[place]bool{
		{3, 10}: false, {3, 9}: false, {3, 11}: false, {2, 9}: false, {4, 11}: false,
		{2, 10}: true, {4, 10}: true, {2, 11}: true, {4, 9}: true,
	} {
		if p.excludes(o) != want || o.excludes(p) != want {
			t.Errorf("%v and %v: want %v", p, o, want)
		}
	}
}

// TestIdleShardTellsNothing: an entry that tells of the others is not followed by one that tells of it.
func TestIdleShardTellsNothing(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 3)
		s.mustAdd("k", "op")
		n := s.leader().running()
		for _, m := range s.members {
			s.awaitTold(m, s.members[0])
		}
		var last told
		n.noteProgress()
		n.tellPasts(&last)
		await(t, "nothing is left to tell", func() bool {
			n.noteProgress()
			before := last.index
			n.tellPasts(&last)
			return last.index == before && before > 0
		})
		end := time.Now().Add(3 * witnessPeriod)
		before := n.raft.LastIndex()
		await(t, "some looks", func() bool { return time.Now().After(end) })
		if after := n.raft.LastIndex(); after > before+2 {
			t.Errorf("an idle shard's log went from %d to %d", before, after)
		}
	})
}
