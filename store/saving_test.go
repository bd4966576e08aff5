package store

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// TestLargest: the largest of the gathered shares go, and no more of them
// than must.
func TestLargest(t *testing.T) {
	const none = math.MaxUint64
	for _, tc := range []struct {
		sizes []uint64
		limit uint64
		want  uint64
	}{
		{[]uint64{5, 5, 5}, 16, none},
		{[]uint64{5, 6, 5}, 16, 6},
		{[]uint64{1, 9, 5}, 15, 9},
		{[]uint64{1, 9, 5}, 6, 5},
		{[]uint64{1, 9, 5}, 1, 1},
		{[]uint64{0, 0}, 1, none},
	} {
		sum := uint64(0)
		for _, n := range tc.sizes {
			sum += n
		}
		if got := largest(slices.Clone(tc.sizes), sum, tc.limit); got != tc.want {
			t.Errorf("%v, limit %d: from %d on", tc.sizes, tc.limit, got)
		}
	}
}

// TestPeriodicCheckpointsAreSpread: within SnapshotInterval each partition is
// checkpointed once, a few at a time.
func TestPeriodicCheckpointsAreSpread(t *testing.T) {
	s := testStore(t, func(o *Options) { o.Partitions = 8 })
	saved, total := make([]uint64, 8), 0
	count := func() int { // checkpoints
		for i, p := range s.partitions {
			if p.saving.state.seq > saved[i] {
				saved[i] = p.saving.state.seq
				total++
			}
		}
		return total
	}
	s.SetSnapshotInterval(time.Hour)
	w := saver{s: s}
	for _, tc := range []struct {
		since time.Duration
		want  int
	}{{0, 0}, {time.Hour / 16, 0}, {time.Hour/8 + time.Minute, 1}, {time.Hour / 2, 3},
		{time.Hour/2 + time.Minute, 4}, {time.Hour - time.Minute, 7}, {time.Hour, 8}} {
		for i := range 100 { // of every partition
			incr(s, "k"+strconv.Itoa(i), 1)
		}
		w.began = time.Now().Add(-tc.since)
		w.pass()
		if n := count(); n < tc.want || n > tc.want+1 {
			t.Errorf("after %v of an hour there were %d checkpoints, expected %d", tc.since, n, tc.want)
		}
	}
	if at, _, _ := s.LastSnapshot(); at.IsZero() || w.saved != 0 {
		t.Error("the round is not over")
	}
	s.SetSnapshotInterval(-1)
	w.began = time.Now().Add(-time.Hour)
	if n := w.due(time.Now()); n != 0 {
		t.Errorf("%d periodic checkpoints are due, which are switched off", n)
	}
}

// TestRunsAreMerged: what gathers is merged, in every partition, and every record is
// still found.
func TestRunsAreMerged(t *testing.T) {
	s := testStore(t, func(o *Options) { o.Partitions = 2 })
	must(t, s.AlterTable(DefaultTable, TableChange{Error: ptr(0.5)})) // records are asked for
	const fan = 16                                                    // so many runs of one size become one
	const rounds = fan + 2
	for round := range rounds {
		for k := range 20 {
			cincr(s, "k"+strconv.Itoa(k), fmt.Sprint("id", round), 1)
		}
		for _, p := range s.partitions {
			must(t, s.flushRecords(p, false))
		}
	}
	w := saver{s: s}
	for range s.partitions { // a pass that takes long ends after one of them
		w.mergeRuns()
	}
	for _, p := range s.partitions {
		// One, and what came after it when the store's own saver was first.
		if n := p.seen.Figures().Runs; n < 1 || n > 1+rounds-fan {
			t.Errorf("partition %d has %d runs", p.id, n)
		}
		if s.mergeDue(p) {
			t.Error("there is more to be merged")
		}
	}
	for round := range rounds {
		for k := range 20 {
			if op := cincr(s, "k"+strconv.Itoa(k), fmt.Sprint("id", round), 1); op.Applied ||
				op.Value != int64(round+1) {
				t.Fatalf("k%d, round %d: applied %v, %d", k, round, op.Applied, op.Value)
			}
		}
	}
}

// TestLate: writes are slowed down while the rows of changed counters wait for a
// checkpoint in numbers that a start would take long to redo, and only then.
func TestLate(t *testing.T) {
	s := &Store{opts: Options{RecordMemory: 1, MaxLogBytes: 1}} // nothing goes on in it
	s.hashes = newHashes([16]byte{1})
	p := newPartition(0, 1, s.hashes, 1, &s.pool, nil)
	s.partitions = []*partition{p}
	for _, c := range []struct {
		keys, ahead int
		late        bool
	}{
		{minWriteBack, lateAt * maxRowsAhead, false}, // not due: they may as well stay in memory
		{1, lateAt*maxRowsAhead - minWriteBack - 2, false},
		{0, lateAt*maxRowsAhead - minWriteBack - 1, true},
	} {
		p.saving.rowsAhead = c.ahead
		for range c.keys {
			key := fmt.Appendf(nil, "key-%d", len(p.hot.dirty))
			p.hot.changed(p.hot.install(hotHash(key), key, s.hashes.position(key)))
		}
		if load := s.backlog(); load.late != c.late {
			t.Errorf("%d keys more, %d rows ahead: late is %v", c.keys, c.ahead, load.late)
		}
	}
}

// TestLateWrites: a large batch that writes is delayed while the store is late, no
// other.
func TestLateWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := testStore(t, func(o *Options) { o.Fsync = No })
		for _, c := range []struct {
			kind Kind
			keys int
			late bool
			want time.Duration
		}{
			{IncrBy, 2 * lateBatch, true, 2 * lateBatch * lateDelay},
			{IncrBy, 1 << 14, true, mostDelay},
			{IncrBy, 2 * lateBatch, false, 0},
			{IncrBy, lateBatch - 1, true, 0},
			{Get, 2 * lateBatch, true, 0},
		} {
			var b Batch
			for i := range c.keys {
				op := b.Add(c.kind)
				op.Key, op.Delta = []byte(strconv.Itoa(i)), 1
			}
			s.late.Store(c.late) // until maintenance looks
			began := time.Now()
			s.Execute(&b)
			if took := time.Since(began); took != c.want {
				t.Errorf("%+v: took %v", c, took)
			}
		}
	})
}
