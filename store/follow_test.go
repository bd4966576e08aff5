package store

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestFollow: a store that only redoes what another one has decided, while it is read and
// saved, answers the same. A gap is refused.
func TestFollow(t *testing.T) {
	clock, fs := newFakeClock(), vfs.NewMem()
	leader := testStore(t, func(o *Options) { o.Clock = clock.now })
	follower := testStore(t, func(o *Options) {
		o.FS, o.Clock, o.SnapshotInterval = fs, clock.now, 20*time.Millisecond
	})
	must(t, leader.CreateTable(TableOptions{Name: "a", Prefix: "approx:", Mode: Approx}))
	y := newStory(leader)
	var stop atomic.Bool
	var reader sync.WaitGroup
	reader.Go(func() {
		for !stop.Load() {
			get(follower, "k1")
			scanOf(t, follower)
		}
	})
	follow := func() {
		t.Helper()
		for i, p := range leader.partitions {
			must(t, leader.oplog.BeginRecovery(p.id))
			g := newRedoGroup(nil, 5)
			must(t, leader.oplog.Read(p.id, follower.partitions[i].seq+1,
				func(seq uint64, content []byte) error {
					return follower.follow(follower.partitions[i], g, seq, content, nil)
				}))
			leader.oplog.EndRecovery()
		}
	}
	y.add(t, "old")
	follow()
	must(t, follower.Snapshot())
	y.add(t, "more")
	follow()
	y.flush(t)
	y.add(t, "after")
	follow()
	follow()
	y.add(t, "later")
	gap := 0
	for i, p := range leader.partitions {
		must(t, leader.oplog.BeginRecovery(p.id))
		g, q := newRedoGroup(nil, 5), follower.partitions[i]
		must(t, leader.oplog.Read(p.id, q.seq+2, func(seq uint64, content []byte) error {
			before := q.seq
			if err := follower.follow(q, g, seq, content, nil); errors.Is(err, ErrLogDamaged) &&
				q.seq == before {
				gap++
				return nil
			}
			return fmt.Errorf("entry %d follows %d", seq, before)
		}))
		leader.oplog.EndRecovery()
	}
	if gap == 0 {
		t.Error("there was no gap")
	}
	follow()
	stop.Store(true)
	reader.Wait()
	y.s = follower
	y.verify(t, "followed")
	must(t, follower.Close())
	y.s = testStore(t, func(o *Options) { o.FS, o.Clock = fs, clock.now })
	y.verify(t, "opened again")
}

// TestFollowDamaged: nothing is redone of a section whose last entry is damaged, whether or
// not it has more entries than are decoded at once. The sound section is redone then.
func TestFollowDamaged(t *testing.T) {
	s := testStore(t, nil)
	p := s.partitions[0]
	g, section, n := newRedoGroup(nil, 5), beginSection(nil, p.at), uint64(0)
	for ; n < 12; n++ {
		key := fmt.Sprintf("k%d", n)
		before := p.seq
		if err := s.follow(p, g, before+1, append(section, 0xff), nil); !errors.Is(err, errCorruptEntry) ||
			p.seq != before || p.size != 0 {
			t.Fatalf("behind %d entries: %v; %d entries were redone", n, err, p.seq-before)
		}
		section = (&entry{kind: entrySet, flags: flagCreated, key: []byte(key), value: 1}).appendTo(section)
	}
	must(t, s.follow(p, g, p.seq+1, section, nil))
	if p.size != int64(n) {
		t.Errorf("%d of %d entries were redone", p.size, n)
	}
}

// TestLives: a wait for a sequence of an earlier life says whether it was committed in that
// life.
func TestLives(t *testing.T) {
	m := &newPartition(0, 1, nil, 1, nil, nil).committed
	m.advance(10)
	for life := range uint64(3) {
		last := 10 * (life + 1)
		m.end()
		m.begin()
		m.advance(last + 10)
		for earlier := range life + 1 {
			if err := m.wait(earlier, 10*(earlier+1)); err != nil {
				t.Error(life, earlier, err)
			}
			if err := m.wait(earlier, 10*(earlier+1)+1); !errors.Is(err, ErrNotLeader) {
				t.Error(life, earlier, err)
			}
		}
		if err := m.wait(life+1, last+10); err != nil {
			t.Error(err)
		}
	}
}
