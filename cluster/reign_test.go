package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/cluster/raftgroup"
	"github.com/fbfkv/fbfkv/persistence/oplog"
)

// TestHandOverGivesUp: disks do not answer, and a hand-over reaches its limit. Decisions before it
// that were not proposed are not applied. Proposals on their way count, and later decisions rest on
// them: each operation counts once, on every node, and nothing comes into the log behind the
// beginning of the reign that follows (R2).
func TestHandOverGivesUp(t *testing.T) {
	for name, scene := range map[string]struct {
		leader bool // its disk hangs as well
		queued int  // operations that wait to be proposed
	}{
		"the followers' disks hang":                     {false, 20},
		"all disks hang":                                {true, 20},
		"the followers' disks hang, more than an entry": {false, 1500},
		"all disks hang, more than an entry":            {true, 1500},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) { giveUpHandOver(t, scene.leader, scene.queued) })
		})
	}
}

func giveUpHandOver(t *testing.T, leaderHangs bool, queued int) {
	s := newShard(t, 3)
	s.mustAdd("warm", "up")
	s.awaitApplied()
	leader := s.leader()
	n := leader.running()
	answer := s.hangDisks(func(m *replica) bool { return m != leader || leaderHangs })
	l := newLoad(s)
	l.pause = 100
	count := func(what string, ops int) {
		for i := range ops {
			id := fmt.Sprint(what, i, strings.Repeat("x", 400))
			l.clients.Go(func() {
				l.count(fmt.Sprint("k", i%7), id, rand.New(rand.NewPCG(1, uint64(i))))
			})
		}
	}
	is := func(decided uint64) func() bool {
		return func() bool {
			n.log.mu.Lock()
			defer n.log.mu.Unlock()
			return n.log.place-n.log.decided >= decided
		}
	}
	count("flies", 1)
	await(t, "an entry is on its way", is(1))
	count("queued", queued)
	await(t, "others wait", is(uint64(queued)))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := n.HandOver(ctx, ""); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the hand-over ends with %v", err)
	}
	count("late", 20)
	answer()
	l.more(int64(queued + 21))
	l.finish()
	for _, m := range s.members {
		if st := m.running().Status(); st.Fenced > 0 {
			t.Errorf("node %s has ignored %d entries", m.id[39:], st.Fenced)
		}
	}
}

// TestHandOverWaits: what was decided before a hand-over is committed before another node leads,
// and answered.
func TestHandOverWaits(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 3)
		s.mustAdd("warm", "up")
		s.awaitApplied()
		leader := s.leader()
		n := leader.running()
		answer := s.hangDisks(func(m *replica) bool { return m != leader })
		const ops = 20
		ended := make(chan error, ops)
		add := func(i int) {
			go func() { ended <- leader.add(fmt.Sprint("k", i%7), fmt.Sprint(i)).Err }()
			await(t, "it is decided", func() bool {
				n.log.mu.Lock()
				defer n.log.mu.Unlock()
				return n.log.place-n.log.decided > uint64(i)
			})
		}
		for i := range ops {
			add(i)
		}
		handed := make(chan error, 1)
		go func() { handed <- n.HandOver(t.Context(), "") }()
		await(t, "it does not decide any more", func() bool { return !n.Leads() })
		answer()
		for range ops {
			if err := <-ended; err != nil {
				t.Errorf("an operation ends with %v", err)
			}
		}
		must(t, <-handed)
	})
}

// TestBeginWaits: what is on its way may come into the log until Raft has answered; what waits is
// cut, and takes no other with it.
func TestBeginWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog(new(oplog.Log), 1, time.Second)
		l.reign, l.last = oplog.Reign{Term: 3, Index: 8}, func(uint16) uint64 { return 9 }
		var places []uint64
		for i := range 3 {
			b := l.NewBatch()
			b.AppendLog(uint16(i), 9, make([]byte, 100))
			must(t, b.Apply())
			places = append(places, l.place)
			if i == 0 {
				l.next()
			}
		}
		l.setReign(oplog.Reign{})
		quiet := false
		go func() { quiet = l.awaitAnswers() }()
		l.dropQueue()
		if synctest.Wait(); quiet {
			t.Fatal("a reign begins while an entry is on its way to Raft")
		}
		for _, place := range places[1:] {
			if err := l.Wait(place); !errors.Is(err, oplog.ErrCut) {
				t.Errorf("what was not proposed ends with %v", err)
			}
		}
		l.answered(1)
		if synctest.Wait(); !quiet {
			t.Fatal("no reign begins after Raft has answered")
		}
		l.committed(func(partition uint16, seq uint64) {
			if partition != 0 || seq != 9 {
				t.Errorf("entry %d of partition %d is committed", seq, partition)
			}
		})
		must(t, l.Wait(places[0]))
		if !l.undecided() {
			t.Error("what was cut is not taken back yet, and forgotten")
		}
		if first := l.cut(); len(first) != 2 || first[1] != 9 || first[2] != 9 || l.undecided() {
			t.Errorf("taken back is %v", first)
		}
	})
}

// TestPackingOfReigns: records that were decided in two reigns are not packed into one entry: it
// has one of them.
func TestPackingOfReigns(t *testing.T) {
	l := newLog(new(oplog.Log), 1, time.Second)
	l.last = func(uint16) uint64 { return 1 }
	for i := range uint64(2) {
		l.setReign(oplog.Reign{Term: 3, Index: 8 + i})
		b := l.NewBatch()
		b.AppendLog(0, 1, make([]byte, 100))
		must(t, b.Apply())
	}
	for i := range uint64(2) {
		data, number := l.next()
		c, err := decodeCommand(data)
		must(t, err)
		if want := (oplog.Reign{Term: 3, Index: 8 + i}); c.reign != want || number != i+1 ||
			l.flying[0].upTo != i+1 {
			t.Errorf("entry %d is of reign %v, and ends with record %d", number, c.reign, l.flying[0].upTo)
		}
		l.committed(func(uint16, uint64) {})
	}
}

// TestSectionsCount: sections count in the reign in which they were decided, and in its term (R2).
func TestSectionsCount(t *testing.T) {
	at := oplog.Reign{Term: 3, Index: 8}
	c := command{kind: commandSections, reign: at, body: []byte("sections")}
	for name, e := range map[string]struct {
		term   uint64
		latest oplog.Reign
		want   bool
	}{
		"its own":                        {3, at, true},
		"another of the term":            {3, oplog.Reign{Term: 3, Index: 9}, false},
		"none":                           {3, oplog.Reign{}, false},
		"a term that has begun no reign": {4, at, false},
	} {
		from, to, begins, err := Sections(&oplog.Entry{Index: 12, Term: e.term, Type: uint8(raft.LogCommand),
			Data: c.encode(nil), Reign: e.latest})
		if err != nil || begins || (from < to) != e.want {
			t.Errorf("%s: sections from %d to %d, begins %v, %v", name, from, to, begins, err)
		}
	}
}

// TestTransferThatDoesNotEnd: a successor gets no message, so that Raft refuses entries for a while. The node
// leads on. If that lasts, its process ends: Raft may never take an entry again.
func TestTransferThatDoesNotEnd(t *testing.T) {
	for name, ends := range map[string]bool{"it ends in time": false, "it does not": true} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) { endsTransfer(t, ends) })
		})
	}
}

func endsTransfer(t *testing.T, ends bool) {
	s := newShard(t, 3)
	s.mustAdd("k", "1")
	s.awaitApplied()
	leader := s.leader()
	n := leader.running()
	if ends {
		leader.fatal = make(chan error, 10)
		n.refusalLimit = 100 * time.Millisecond
	}
	to := leader.others()[0]
	s.faults.cut(leader.id, to)
	if err := n.HandOver(t.Context(), to); err == nil {
		t.Fatal("the hand-over succeeds")
	}
	if ends {
		if err := <-leader.fatal; !strings.Contains(err.Error(), "has taken no entry") {
			t.Errorf("it ends with %v", err)
		}
		return
	}
	s.faults.heal(leader.id, to)
	s.mustAdd("k", "2")
}

// TestHandOverIsAnswered: Raft, which waits for the disk, has not taken a hand-over when its time
// ends. No reign begins, and no other hand-over, before Raft has answered: what Raft takes first is
// a matter of luck. Then the shard goes on. Close waits for no answer.
func TestHandOverIsAnswered(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 3)
		s.mustAdd("k", "1")
		s.awaitApplied()
		leader := s.leader()
		n := leader.running()
		answer := leader.hangDisk()
		before := leader.waits.Load()
		n.raft.Barrier(0)
		await(t, "Raft waits for the disk", func() bool { return leader.waits.Load() > before })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if err := n.HandOver(ctx, leader.others()[0]); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the hand-over ends with %v", err)
		}
		if n.Leads() || n.raft.State() == raft.Leader && n.mayBegin() {
			t.Error("a reign may begin while Raft may hand over")
		}
		if err := n.HandOver(ctx, ""); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("another hand-over ends with %v", err)
		}
		answer()
		await(t, "Raft has answered", func() bool { return len(n.handing) == 0 })
		s.mustAdd("k", "2")
		s.awaitApplied()

		n.handing <- struct{}{} // as if Raft never answered
		leader.stop()
		if err := n.HandOver(t.Context(), ""); !errors.Is(err, raft.ErrRaftShutdown) {
			t.Errorf("a hand-over of a node that was closed ends with %v", err)
		}
	})
}

// TestReignHasNoGap: Raft refuses an entry, and takes the next one. The log of the leader does not,
// so that nobody ever has it.
func TestReignHasNoGap(t *testing.T) {
	l := newLog(new(oplog.Log), 1, time.Second)
	l.reign, l.last = oplog.Reign{Term: 3, Index: 8}, func(uint16) uint64 { return 9 }
	var entries []*raft.Log
	for i := range 2 {
		b := l.NewBatch()
		b.AppendLog(uint16(i), 9, make([]byte, 100+i))
		must(t, b.Apply())
		data, _ := l.next()
		entries = append(entries, &raft.Log{Index: 9 + uint64(i), Term: 3, Data: data})
	}
	s := &raftgroup.LogStore{Log: l.Log, Reserved: l.reserved,
		Failed: func(err error) { t.Errorf("the process ends: %v", err) }}
	if err := s.StoreLogs(entries[1:]); !errors.Is(err, errReignGap) {
		t.Errorf("the second entry alone: %v", err)
	}
	another := append([]byte(nil), entries[1].Data...)
	another[24]++ // in its origin
	for _, es := range [][]*raft.Log{{{Data: another}}, entries[:1], entries[1:], entries} {
		if _, err := l.reserved(es); err != nil {
			t.Error(err)
		}
	}
}
