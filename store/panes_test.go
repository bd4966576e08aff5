package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/internal/raced"
	"github.com/fbfkv/fbfkv/store/sketch"
)

// TestWindowedSketch plays increments of a windowed sketch against a list of them, with time that
// passes, checkpoints, kills and orderly restarts in between: an increment counts for the
// window, and for one period more at most.
func TestWindowedSketch(t *testing.T) {
	for seed := uint64(0); seed < 8; seed += raced.Step {
		rnd := rand.New(rand.NewPCG(seed, 3))
		fs, clock := vfs.NewMem(), newFakeClock()
		open := func() *Store {
			return testStore(t, func(o *Options) { o.FS, o.Partitions, o.Clock = fs, 1, clock.now })
		}
		s := open()
		const window, past = 10_000, 4
		o := SketchOptions{Width: 20_000, Depth: 2,
			Cell: []uint64{0, 2, 8}[seed%3], Window: window, Past: past}
		must(t, newSketch(s, "s", o))
		type increment struct{ at, n int64 }
		made := make(map[string][]increment)
		logged := func() int64 {
			p := s.partitions[0]
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.moment(s.look()).logged
		}
		for step := range 150 {
			switch rnd.IntN(10) {
			case 0:
				must(t, s.Snapshot())
			case 1:
				must(t, s.CloseNow())
				s = open()
			case 2:
				must(t, s.Close())
				checkSound(t, fs, "data")
				s = open()
			case 3, 4, 5:
				for d := time.Duration(rnd.IntN(2500)) * time.Millisecond; d > 0; d -= time.Second / 2 {
					clock.advance(min(d, time.Second/2)) // a longer gap would be downtime
					logged()
				}
			case 6:
				if rnd.IntN(3) == 0 {
					for range 3 * window / 500 {
						clock.advance(time.Second / 2)
						logged()
					}
				}
			case 7:
				s.refreshDue(s.partitions[0])
			default:
				var pairs []any
				for range 1 + rnd.IntN(8) {
					item, n := fmt.Sprint("item", rnd.IntN(20)), 1+rnd.IntN(9)
					pairs = append(pairs, item, n)
				}
				must(t, addItems(s, "s", pairs...).Err)
				now := logged()
				for i := 0; i < len(pairs); i += 2 {
					made[pairs[i].(string)] = append(made[pairs[i].(string)],
						increment{now, int64(pairs[i+1].(int))})
				}
			}
			s.refreshDue(s.partitions[0])
			now, count := logged(), [2]int64{}
			for item, list := range made {
				var least, most int64
				for _, i := range list {
					if age := now - i.at; age < window {
						least += i.n
						most += i.n
					} else if age <= window+window/past {
						most += i.n
					}
				}
				count[0], count[1] = count[0]+least, count[1]+most
				if got := do(s,
					Op{Kind: CMSQuery, Key: []byte("s"), Keys: keysOf(item)}).Values[0]; got < least ||
					got > most {
					t.Fatalf("seed %d, step %d: %s is %d instead of %d to %d", seed, step, item, got, least,
						most)
				}
			}
			if got := do(s, Op{Kind: CMSInfo, Key: []byte("s")}).Object.(*SketchInfo).Count; got < count[0] ||
				got > count[1] {
				t.Fatalf("seed %d, step %d: the count is %d instead of %d to %d", seed, step, got, count[0],
					count[1])
			}
		}
	}
}

// TestPaneIsEmptiedInPieces: a pane that has dropped out does not count, is emptied a piece
// at a time, and all of it is before it takes increments again.
func TestPaneIsEmptiedInPieces(t *testing.T) {
	clock := newFakeClock()
	s := testStore(t, func(o *Options) { o.Partitions, o.Clock = 1, clock.now })
	o := SketchOptions{Width: 1 << 20, Depth: 2, Window: 2000, Past: 1} // 1536 pages
	must(t, newSketch(s, "s", o))
	p := s.partitions[0]
	f := p.objects["s"].object().(*paged).Sketch.(*sketch.CountMin)
	turn := func() {
		t.Helper()
		for range 4 {
			clock.advance(time.Second / 2)
			s.look()
		}
		must(t, addItems(s, "s", "other", 1).Err)
	}
	must(t, addItems(s, "s", "a", 5, "b", 7).Err)
	turn()
	turn() // what was first is the spare
	query := func() int64 {
		return do(s, Op{Kind: CMSQuery, Key: []byte("s"), Keys: keysOf("a")}).Values[0]
	}
	due := func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return f.Due(p.at.logged)
	}
	if got := query(); got != 0 {
		t.Errorf("a is %d", got)
	}
	rounds := 0 // beside those of the background
	for due() && rounds < 1000 {
		s.refreshDue(p)
		rounds++
	}
	if rounds == 1000 {
		t.Error("it is never emptied")
	}
	turn() // not emptied before: all at once
	turn()
	turn()
	if got := query(); got != 0 {
		t.Errorf("a is %d after all panes have turned", got)
	}
}

// TestWindowedMerge: a sketch with a window may be a source, not the destination.
func TestWindowedMerge(t *testing.T) {
	s := testStore(t, nil)
	must(t, newSketch(s, "w", SketchOptions{Width: 100, Depth: 2, Window: 5000, Past: 3}))
	must(t, newSketch(s, "s", SketchOptions{Width: 100, Depth: 2}))
	must(t, addItems(s, "w", "a", 4, "b", 5).Err)
	must(t, mergeSketch(s, "s", []string{"w", "s"}, []int64{2, 1}))
	if op := do(s, Op{Kind: CMSQuery, Key: []byte("s"), Keys: keysOf("a", "b")}); op.Values[0] != 8 ||
		op.Values[1] != 10 {
		t.Error(op.Values)
	}
	if err := mergeSketch(s, "w", []string{"s"}, []int64{1}); !errors.Is(err, ErrSketchWindow) {
		t.Error(err)
	}
	if op := do(s, Op{Kind: CMSInner, Keys: keysOf("w", "s")}); op.Value != 4*8+5*10 {
		t.Error(op.Value, op.Err)
	}
	for _, o := range []SketchOptions{{Width: 1, Depth: 1, Window: 5}, {Width: 1, Depth: 1,
		Past: 5}, {Width: 1, Depth: 1, Window: 5, Past: 65},
		{Width: 1, Depth: 1, Window: sketch.MaxWindow + 1, Past: 1}} {
		if err := newSketch(s, "n", o); !errors.Is(err, ErrSketchOptions) {
			t.Error(o, err)
		}
	}
}

// TestPairsOfOldPanes: the header on disk knows a newer pane than pairs that are redone; they
// go where they were.
func TestPairsOfOldPanes(t *testing.T) {
	fs, clock := vfs.NewMem(), newFakeClock()
	open := func() *Store {
		return testStore(t, func(o *Options) { o.FS, o.Partitions, o.Clock = fs, 1, clock.now })
	}
	s := open()
	sketchIn := func() *sketch.CountMin {
		return s.partitions[0].objects["s"].object().(*paged).Sketch.(*sketch.CountMin)
	}
	must(t, newSketch(s, "s", SketchOptions{Width: 100, Depth: 2, Window: 1000, Past: 2}))
	must(t, addItems(s, "s", "a", 1).Err)
	must(t, s.Snapshot())
	must(t, addItems(s, "s", "b", 2).Err)
	clock.advance(600 * time.Millisecond)
	must(t, addItems(s, "s", "c", 3).Err)
	// The header reaches the disk, the snapshot does not.
	p := s.partitions[0]
	c := checkpoint{s: s, p: p, pages: p.takeDirtyPages()}
	c.pages[0].list = c.pages[0].list[:1]
	must(t, c.writePages())
	must(t, s.db.Flush())
	was := sketchIn()
	must(t, s.CloseNow())
	if s = open(); !sketch.Equal(sketchIn(), was) {
		t.Error("the pairs went elsewhere")
	}
}
