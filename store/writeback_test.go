package store

import (
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/store/part"
)

// TestChangeDuringWriteBack: a counter that changes between the capture of its
// row and the row's commit is not clean after it: it may not be evicted, for its
// row shows an older value, and the next checkpoint writes it again (G4).
func TestChangeDuringWriteBack(t *testing.T) {
	s := testStore(t, func(o *Options) { o.Partitions = 1 })
	p := s.partitions[0]
	cincr(s, "moving", "1", 1)
	cincr(s, "still", "2", 1)
	b := s.db.NewChanges()
	c := checkpoint{s: s, p: p}
	dirty := p.hot.dirty
	p.hot.dirty = nil
	rows := c.captureRows(b, dirty, nil)
	cincr(s, "moving", "3", 1)
	must(t, b.Commit())
	c.rowsWritten(rows)
	if p.hot.peek("moving").clean() || len(p.hot.dirty) != 1 {
		t.Fatal("the change is lost to the next checkpoint")
	}
	if !p.hot.peek("still").clean() {
		t.Fatal("what did not change is not clean")
	}
}

// TestUnpin: partitions in which nothing happens do not keep the op log.
func TestUnpin(t *testing.T) {
	s := testStore(t, func(o *Options) { o.Partitions, o.MaxLogBytes = 2, 20<<10 })
	quiet, busy := "", ""
	for _, k := range []string{"a", "b", "c", "d"} {
		if Slot([]byte(k))>>s.shift == 0 {
			quiet = k
		} else {
			busy = k
		}
	}
	cincr(s, quiet, "1", 1)
	must(t, s.Snapshot())
	for i := range 5000 {
		wantApplied(t, cincr(s, busy, strconv.Itoa(i), 1))
		if i%100 == 0 {
			for _, p := range s.partitions {
				must(t, s.saveIfDue(p, false, s.backlog()))
			}
		}
	}
	if size := s.db.Metrics().LogSize; size > 5*s.maxLog() {
		t.Fatalf("the op log has %d bytes", size)
	}
}

// TestRowsOutOfTurn: keys that changed leave memory without a checkpoint once
// there are many of them, and after a power loss their rows, which are ahead of
// the partition's state, and the log make up the same counters and count (G4).
func TestRowsOutOfTurn(t *testing.T) {
	const limit, keys, rounds = 64, 3 * minWriteBack, 3
	fs := vfs.NewCrashableMem()
	s := testStore(t, func(o *Options) { o.FS, o.HotCounters, o.Partitions = fs, limit, 1 })
	p := s.partitions[0]
	var b Batch
	for range rounds {
		for from := 0; from < keys; from += 64 {
			b.Reset()
			for i := range 64 {
				op := b.Add(IncrBy)
				op.Key, op.Delta = []byte("k"+strconv.Itoa(from+i)), 1
			}
			s.Execute(&b)
			must(t, s.saveIfDue(p, false, s.backlog()))
			if n := p.hot.len(); n > 2*minWriteBack {
				t.Fatalf("%d keys in memory", n)
			}
		}
	}
	if p.saving.state.seq != 0 {
		t.Fatal("there was a checkpoint: the test shows nothing")
	}
	s = testStore(t, func(o *Options) {
		o.FS, o.HotCounters, o.Partitions = fs.CrashClone(vfs.CrashCloneCfg{}), limit, 1
	})
	if n, err := s.DBSize(); n != keys || err != nil {
		t.Fatalf("%d keys (%v)", n, err)
	}
	for i := range keys {
		if v, _ := get(s, "k"+strconv.Itoa(i)); v != rounds {
			t.Fatalf("key %d = %d", i, v)
		}
	}
}

// TestRowsAhead: rows that are written out of turn do not put off the checkpoint
// for ever, for a start redoes the log of all of them.
func TestRowsAhead(t *testing.T) {
	s := testStore(t, func(o *Options) { o.HotCounters, o.Partitions, o.Fsync = 64, 64, No })
	const share = maxRowsAhead / 64
	p := s.partitions[0]
	key := newKeys(s, p)
	for made := 0; made < 2*share; made += 512 {
		var b Batch
		for range 512 {
			op := b.Add(IncrBy)
			op.Key, op.Delta = key(), 1
		}
		s.Execute(&b)
		must(t, s.saveIfDue(p, false, s.backlog()))
		if ahead := p.seq - p.saving.state.seq; ahead > share+minWriteBack+512 {
			t.Fatalf("%d entries since the last checkpoint", ahead)
		}
	}
}

// newKeys returns a function that makes new keys of a partition.
func newKeys(s *Store, p *partition) func() []byte {
	n := 0
	return func() []byte {
		for {
			n++
			key := []byte("k" + strconv.Itoa(n))
			if s.partitions[Slot(key)>>s.shift] == p {
				return key
			}
		}
	}
}

// TestExpiryComesBack: while the expiry cycle removes a key, another region's increment, which
// the removal has not seen, gives it the same expiry again, and its row is written before the
// cycle drops the expiry from the index. The next cycle must find the key.
func TestExpiryComesBack(t *testing.T) {
	r := newRegionStore(t, false)
	p, at := r.partitions[0], r.clock.wall+1000
	incr := Op{Kind: IncrEx, Key: []byte("k"), Delta: 4, Flags: HasExpire, ExpireAt: at}
	later := incr
	later.Key, later.ExpireAt = []byte("later"), at+5000
	r.must(incr, later)
	must(t, r.flushRows(p))
	again := []Change{added(other, 9, 7)}
	again[0].Expire = part.Expiry{HLC: uint64(at), At: at, By: own}
	back := make(chan error)
	revive := sync.OnceFunc(func() {
		back <- errors.Join(do(r.Store, Op{Kind: regionMerge, Key: []byte("k"), Object: again}).Err,
			r.flushRows(p))
	})
	r.OnEvent(func(event string, _ time.Duration) {
		if event == EventExpiry {
			revive()
		}
	})
	r.clock.advance(2 * time.Second)
	must(t, <-back)
	r.clock.advance(5 * time.Second)
	var left int64
	eventually(t, "a later cycle removes a later key", func() bool {
		p.lock()
		defer p.mu.Unlock()
		k := p.hot.peek("later")
		left = p.size
		return k == nil || k.kind == TypeNone
	})
	if left != 0 {
		t.Errorf("%d keys are left that no cycle finds", left)
	}
	must(t, r.Close())
	checkSound(t, r.fs, "data")
}
