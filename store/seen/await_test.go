package seen

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence"
)

// saveAwaited does all of a Build that keeps what is awaited, and returns how many
// operations it has forgotten unchecked.
func (o *owner) saveAwaited(t *testing.T, goal Goal, now int64, await *Awaited) uint64 {
	t.Helper()
	b := o.begin(goal, now)
	if await != nil {
		b.Awaited = func(uint32) Awaited { return *await }
	}
	must(t, b.Run())
	o.publish(t, b)
	return b.Unchecked()
}

// TestAwaited: beyond the remembering time, 1000 ms, a run stays while another region has
// not said that it has all of it, for the time and the bytes that it may; what goes before
// is counted, but not what another region has applied, what was taken back, and what
// everyone has.
func TestAwaited(t *testing.T) {
	const bytes = 1000
	for _, tc := range []struct {
		name      string
		await     *Awaited
		now       int64
		left      []uint64 // of the operations 1 to 6
		unchecked uint64
	}{
		{"remembered", &Awaited{}, 1010, []uint64{1, 2, 3, 4, 5, 6}, 0},
		{"no regions", nil, 1021, []uint64{5, 6}, 0},
		{"nobody has it", &Awaited{For: 5000}, 1021, []uint64{1, 2, 3, 4, 5, 6}, 0},
		{"all have it", &Awaited{Acked: 6, For: 5000}, 1021, []uint64{5, 6}, 0},
		{"all have all of one run", &Awaited{Acked: 2, For: 5000}, 1021, []uint64{3, 4, 5, 6}, 0},
		{"all have half of a run", &Awaited{Acked: 1, For: 5000}, 1021, []uint64{1, 2, 3, 4, 5, 6}, 0},
		{"as long as it may", &Awaited{For: 5000}, 5010, []uint64{1, 2, 3, 4, 5, 6}, 0},
		{"longer than it may", &Awaited{For: 5000}, 5011, []uint64{3, 4, 5, 6}, 2},
		{"all have half of what goes", &Awaited{Acked: 1, For: 5000}, 5011, []uint64{3, 4, 5, 6}, 1},
		{"another region's goes, too", &Awaited{For: 5000}, 5021, []uint64{5, 6}, 3},
		{"as much as it may", &Awaited{For: 5000, Bytes: 1 << 40}, 1021, []uint64{1, 2, 3, 4, 5, 6}, 0},
		{"more than it may", &Awaited{For: 5000, Bytes: 3 * bytes}, 1021, []uint64{3, 4, 5, 6}, 2},
		{"much more than it may", &Awaited{For: 5000, Bytes: 1}, 1021, []uint64{5, 6}, 3},
		{"shorter than it is remembered", &Awaited{For: 10}, 1010, []uint64{1, 2, 3, 4, 5, 6}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := newOwner(t, vfs.NewMem(), "data")
			for _, logged := range []int64{10, 20, 30} { // each run has two
				for range 2 {
					o.seq++
					r := &Record{Table: 1, Hash: o.seq, Seq: o.seq, Logged: logged,
						Key: make([]byte, bytes/2), ID: fmt.Append(nil, o.seq),
						Original: Original{Result: int64(o.seq)}}
					if o.seq == 4 {
						r.Original.Other, r.Original.Dot, r.Original.Taken = true, 1, 1
					}
					o.mu.Lock()
					o.rs.Add(r)
					o.mu.Unlock()
				}
				o.save(t, Flush, logged)
			}
			unchecked := o.saveAwaited(t, Flush, tc.now, tc.await)
			var left []uint64
			for seq := range uint64(7) {
				var s Search
				o.mu.Lock()
				s.Begin(&o.rs)
				s.Within(1, math.MinInt64, math.MaxInt64)
				must(t, s.Run(seq, make([]byte, bytes/2), fmt.Append(nil, seq), new(persistence.Entries)))
				if _, ok := s.Found(); ok {
					left = append(left, seq)
				}
				o.mu.Unlock()
			}
			if !slices.Equal(left, tc.left) || unchecked != tc.unchecked {
				t.Errorf("left %v, unchecked %d; want %v, %d", left, unchecked, tc.left, tc.unchecked)
			}
		})
	}
}

// TestAwaitedRunsStayFew: during a day in which another region does not answer, with a run
// every second, runs beyond the remembering time become larger ones, so that their number
// stays small; those within it are merged as ever. Once it has all of it they go.
func TestAwaitedRunsStayFew(t *testing.T) {
	const keep, day, every = 125_000, 24 * 3600_000, 1000
	o := Options{Keep: func(uint32) (int64, bool) { return keep, true }}
	await := Awaited{For: day}
	o.Awaited = func(uint32) Awaited { return await }
	rs := New(0, nil, nil)
	runs, most, written, records := []persistence.Run(nil), 0, uint64(0), uint64(0)
	for now := int64(0); now < day; now += every {
		b := &Build{Options: o, rs: &rs}
		b.Now, b.Goal = now, Merge
		seq := uint64(now/every) + 1
		runs = append(runs, persistence.Run{Count: 1000, FirstSeq: seq, LastSeq: seq, FirstTime: now,
			LastTime: now + every - 1})
		records, written = records+1000, written+1000
		rs.runs[1] = runs
		live, late, gone := b.divide(runs, keep, await)
		if len(gone) > 0 {
			t.Fatalf("at %d ms %d runs go", now, len(gone))
		}
		if rs.MergeDue(b.Options) {
			var next []persistence.Run
			for _, g := range b.groups(live, late, persistence.Run{}, keep, await.For) {
				if len(g.merged) > 1 {
					written += g.run.Count
				}
				if isLate := g.run.LastTime+keep < now; g.run.LastTime-g.run.FirstTime > keep/8 && !isLate {
					t.Fatalf("at %d ms a run that is remembered spans %d ms", now,
						g.run.LastTime-g.run.FirstTime)
				}
				next = append(next, g.run)
			}
			runs = next
		}
		if most = max(most, len(runs)); most > 200 {
			t.Fatalf("%d runs", most)
		}
	}
	if f := float64(written) / float64(records); most > 100 || f > 6 {
		t.Errorf("%d runs at most, and each record was written %.1f times", most, f)
	}
	b := &Build{Options: o, rs: &rs}
	b.Now, await.Acked = day, day
	if live, late, _ := b.divide(runs, keep, await); late != 0 || len(live) > 40 {
		t.Errorf("%d runs stay, %d of them late, although everyone has all", len(live), late)
	}
}
