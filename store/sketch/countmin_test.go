package sketch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fbfkv/fbfkv/store/coding"
)

// plain is what a sketch must be: rows of numbers.
type plain struct {
	rows  [][]int64
	count int64
}

func newPlain(o CountMinOptions) *plain {
	p := new(plain)
	for range o.Depth {
		p.rows = append(p.rows, make([]int64, o.Width))
	}
	return p
}

// add returns the item's estimate; false if a number would be more than limit.
func (p *plain) add(item string, delta, limit int64) (int64, bool) {
	fits := p.count+delta >= 0
	var cells []*int64
	for r, row := range p.rows {
		c := &row[murmur32([]byte(item), uint32(r))%uint32(len(row))]
		cells = append(cells, c)
		fits = fits && *c+delta >= 0 && *c+delta <= limit
	}
	if !fits {
		return 0, false
	}
	least := int64(math.MaxInt64)
	for _, c := range cells {
		*c += delta
		least = min(least, *c)
	}
	p.count += delta
	return least, true
}

func (p *plain) check(t *testing.T, f *CountMin) {
	t.Helper()
	if f.count != p.count {
		t.Fatalf("count %d instead of %d", f.count, p.count)
	}
	for r, row := range p.rows {
		for i, v := range row {
			if got := f.load((uint64(r)*f.opts.Width + uint64(i)) * f.opts.cell()); got != v {
				t.Fatalf("row %d, cell %d is %d instead of %d", r, i, got, v)
			}
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newCountMin(t *testing.T, o CountMinOptions) *CountMin {
	t.Helper()
	f, err := NewCountMin(o.Encode(), 0)
	must(t, err)
	return f
}

func pairs(item string, delta int64) []byte {
	return new(CountMin).AppendPairs(nil, [][]byte{[]byte(item)}, []int64{delta})
}

// TestVectors: cells agree with other implementations (sketch-vectors.txt, section 4).
func TestVectors(t *testing.T) {
	f := newCountMin(t, CountMinOptions{Width: 7, Depth: 3})
	for i, item := range []string{"a", "b", "c", "d", "e", "f", "a", "g", "h", "i", "j"} {
		must(t, f.Redo(pairs(item, []int64{1, 2, 3, 4, 5, 6, 10, 7, 8, 9, 10}[i]), uint64(i+1)))
	}
	p := plain{count: 65,
		rows: [][]int64{{12, 20, 15, 0, 0, 11, 7}, {3, 19, 16, 0, 0, 21, 6}, {8, 11, 11, 0, 0, 30, 5}}}
	p.check(t, f)
}

// TestCountMin plays increments and merges of sketches with cells of every size against
// plain rows: estimates, what would overflow, and each cell.
func TestCountMin(t *testing.T) {
	for _, cell := range []uint64{0, 1, 2, 4, 8} {
		rnd := rand.New(rand.NewPCG(cell, 1))
		o := CountMinOptions{Width: 5000, Depth: 1 + rnd.Uint64N(4), Cell: cell}
		f, p := newCountMin(t, o), newPlain(o)
		most := min(f.limit(), math.MaxInt64/64)
		for seq := range uint64(300) {
			if seq%50 == 49 {
				w := rnd.Int64N(3)
				change, err := f.AppendMerge(nil, []*CountMin{f, f}, []int64{w, 1})
				fits := p.count <= math.MaxInt64/(w+1)
				for _, row := range p.rows {
					fits = fits && slices.Max(row) <= f.limit()/(w+1)
				}
				if fits != (err == nil) || err != nil && err != ErrMerge {
					t.Fatal(fits, err)
				}
				if err != nil {
					continue
				}
				must(t, f.Redo(change, seq+1))
				for _, row := range append(p.rows, []int64{}) {
					for i := range row {
						row[i] *= w + 1
					}
				}
				p.count *= w + 1
				p.check(t, f)
				continue
			}
			item, delta := fmt.Sprint(rnd.IntN(40)), rnd.Int64N(most/3)-most/12
			want, fits := p.add(item, delta, f.limit())
			if f.Fits([]byte(item), delta) != fits || !fits && f.FitAll([]int64{delta}) {
				t.Fatalf("%d bytes: %s %d fits: %v", cell, item, delta, !fits)
			}
			if !fits {
				continue
			}
			var answers []int64
			f.Answers = &answers
			must(t, f.Redo(pairs(item, delta), seq+1))
			f.Answers = nil
			if got := f.Estimate([]byte(item)); got != want || !slices.Equal(answers, []int64{want}) {
				t.Fatalf("%s is %d, %v instead of %d", item, got, answers, want)
			}
			p.check(t, f)
		}
	}
}

// TestRedoSkipsWhatPagesHave: redoing changes that a page has changes nothing, also in the
// middle of the pages, and twice.
func TestRedoSkipsWhatPagesHave(t *testing.T) {
	o := CountMinOptions{Width: 10_000, Depth: 2}
	f, p := newCountMin(t, o), newPlain(o)
	for round := range 2 {
		for seq := range uint64(50) {
			item := fmt.Sprint("item", seq)
			twice := [][]byte{[]byte(item), []byte(item)}
			must(t, f.Redo(f.AppendPairs(nil, twice, []int64{3, 4}), seq+1))
			if round == 0 {
				p.add(item, 7, math.MaxInt64)
			}
		}
	}
	p.check(t, f)
}

// TestPages: pages that were taken, and loaded again, make the same sketch; what changes
// meanwhile is dirty again.
func TestPages(t *testing.T) {
	o := CountMinOptions{Width: 9000, Depth: 2}
	f := newCountMin(t, o)
	f.Created(1)
	must(t, f.Redo(pairs("a", 5), 2))
	dirty := f.TakeDirty()
	if len(dirty) != 3 || dirty[0] != 0 || f.TakeDirty() != nil {
		t.Fatal("dirty pages", dirty)
	}
	g, err := UnloadedCountMin(f.Options())
	must(t, err)
	if LoadPage(g, dirty[1], 2, make([]byte, pageSize)) == nil || g.Loaded() {
		t.Error("a page was loaded before the header")
	}
	for _, n := range dirty {
		seq, content := TakePage(f, n)
		must(t, LoadPage(g, n, seq, content))
	}
	if !Equal(f, g) || g.Estimate([]byte("a")) != 5 || len(g.TakeDirty()) > 0 {
		t.Error("not the same sketch")
	}
	must(t, g.Redo(pairs("a", 5), 2)) // it has that already
	if !Equal(f, g) {
		t.Error("what a loaded page has was redone")
	}
	must(t, f.Redo(pairs("a", 5), 3))
	if list := f.TakeDirty(); !slices.Equal(list, dirty) || Equal(f, g) {
		t.Error("dirty pages", list)
	}
	f.GiveBack(dirty[1:])
	f.NotWritten(dirty[:1]) // it is dirty still
	if list := f.TakeDirty(); !slices.Equal(list, dirty[1:]) {
		t.Error("dirty pages", list)
	}
	TakePage(f, 0)
	f.NotWritten([]uint32{0})
	if list := f.TakeDirty(); !slices.Equal(list, []uint32{0}) {
		t.Error("dirty pages", list)
	}
	for _, bad := range []error{
		LoadPage(g, 0, 9, []byte{0, 0}), LoadPage(g, 99, 9, nil), LoadPage(g, 1, 9, make([]byte, 5)),
		f.Redo(nil, 9), f.Redo([]byte{9}, 9), f.Redo([]byte{countPairs, 5}, 9),
		f.Redo(append(pairs("a", 1), 0), 9),
		f.Redo([]byte{countMerged, 1, 99}, 9), f.Redo([]byte{countMerged, 1, 1, 0}, 9),
	} {
		if bad == nil {
			t.Error("bad bytes are accepted")
		}
	}
}

// FuzzCountMin: no bytes of the disk make a sketch that is too large, or panic.
func FuzzCountMin(f *testing.F) {
	f.Add(CountMinOptions{Width: 100, Depth: 2, Cell: 1}.Encode(), pairs("a", 3))
	f.Add(CountMinOptions{Width: 3000, Depth: 2}.Encode(), append(binary.AppendVarint([]byte{countMerged}, 3),
		append([]byte{2}, make([]byte, 24000-pageSize)...)...))
	f.Fuzz(func(t *testing.T, options, change []byte) {
		u, err := UnloadedCountMin(options)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		if n, ok := u.opts.Bytes(); !ok || n > 1<<20 {
			return
		}
		g := newCountMin(t, u.opts)
		if err := g.Redo(change, 1); err == nil {
			v, err := UnloadedCountMin(g.Options())
			must(t, err)
			if err := LoadPage(v, 0, 1, g.header()); err != nil {
				t.Fatalf("after a change that was accepted the header is refused: %v", err)
			}
		} else if !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
		if err := LoadPage(u, 0, 1, change); err == nil {
			if r := (coding.Reader{Rest: change}); r.Varint() != u.count {
				t.Error(u.count)
			}
		}
	})
}
