package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence"
)

// Changes of more than a few kilobytes are logged in pieces in all tests.
var _ = setMaxChange(6 << 10)

func setMaxChange(n int) bool { maxChange = n; return true }

// plainSketch is what a sketch must be: rows of numbers.
type plainSketch struct {
	opts  SketchOptions
	rows  [][]int64
	count int64
}

func newPlainSketch(o SketchOptions) *plainSketch {
	p := &plainSketch{opts: o}
	for range o.Depth {
		p.rows = append(p.rows, make([]int64, o.Width))
	}
	return p
}

func (p *plainSketch) clone() *plainSketch {
	c := *p
	c.rows = nil
	for _, r := range p.rows {
		c.rows = append(c.rows, slices.Clone(r))
	}
	return &c
}

// add returns the item's estimate; false if it is out of range.
func (p *plainSketch) add(item string, delta int64) (int64, bool) {
	limit := int64(math.MaxInt64)
	if c := p.opts.cell(); c < 8 {
		limit = 1<<(8*c) - 1
	}
	fits := p.count+delta >= 0
	for r, row := range p.rows {
		v := row[murmur32([]byte(item), uint32(r))%uint32(p.opts.Width)] + delta
		fits = fits && v >= 0 && v <= limit
	}
	if !fits {
		return 0, false
	}
	least := int64(math.MaxInt64)
	for r, row := range p.rows {
		c := &row[murmur32([]byte(item), uint32(r))%uint32(p.opts.Width)]
		*c += delta
		least = min(least, *c)
	}
	p.count += delta
	return least, true
}

func (p *plainSketch) merge(sources []*plainSketch, weights []int64) {
	sum := newPlainSketch(p.opts)
	for i, s := range sources {
		for r := range s.rows {
			for c := range s.rows[r] {
				sum.rows[r][c] += weights[i] * s.rows[r][c]
			}
		}
		sum.count += weights[i] * s.count
	}
	p.rows, p.count = sum.rows, sum.count
}

// differs says how a key's sketch differs from what it must be; nil: it must not exist.
func (p *plainSketch) differs(s *Store, key string) error {
	part := s.partitionOf(key)
	part.mu.Lock()
	defer part.mu.Unlock()
	c := part.objects[key]
	switch {
	case c == nil && p == nil:
		return nil
	case c == nil || p == nil:
		return fmt.Errorf("sketch %s exists: %v", key, c != nil)
	}
	f := c.object().(*countMin)
	if f.count != p.count {
		return fmt.Errorf("sketch %s: count %d instead of %d", key, f.count, p.count)
	}
	for r, row := range p.rows {
		for i, v := range row {
			if got := f.load((uint64(r)*f.opts.Width + uint64(i)) * f.opts.cell()); got != v {
				return fmt.Errorf("sketch %s, row %d: cell %d is %d instead of %d (page %d)", key, r, i, got, v, f.parts[0].pageAt((uint64(r)*f.opts.Width+uint64(i))*f.opts.cell()))
			}
		}
	}
	return nil
}

func (s *Store) partitionOf(key string) *partition {
	for _, p := range s.partitions {
		if first, last := slotRange(int(p.id), p.count); Slot([]byte(key)) >= first && Slot([]byte(key)) <= last {
			return p
		}
	}
	panic("no partition")
}

func newSketch(s *Store, key string, o SketchOptions) error {
	return do(s, Op{Kind: CMSInit, Key: []byte(key), Object: &o}).Err
}

func addItems(s *Store, key string, pairs ...any) Op {
	op := Op{Kind: CMSIncrBy, Key: []byte(key)}
	for i := 0; i < len(pairs); i += 2 {
		op.Keys, op.Deltas = append(op.Keys, []byte(pairs[i].(string))), append(op.Deltas, int64(pairs[i+1].(int)))
	}
	return do(s, op)
}

func mergeSketch(s *Store, dest string, sources []string, weights []int64) error {
	op := Op{Kind: CMSMerge, Keys: [][]byte{[]byte(dest)}, Deltas: weights}
	for _, k := range sources {
		op.Keys = append(op.Keys, []byte(k))
	}
	return do(s, op).Err
}

// TestMurmur: hashes are those of others (sketch-vectors.txt, section 2).
func TestMurmur(t *testing.T) {
	for item, want := range map[string]struct {
		a, b     uint64
		zero, a6 uint32
	}{
		"":            {0x1ab11ea5a7b2c56e, 0xbbddcb5ab56dd547, 0, 0x26eb34a8},
		"a":           {0x4292cee227b9150a, 0x7e9b527031f50c11, 0x92685f5e, 0x5c22f2fa},
		"abc":         {0xca52f3863690cd7b, 0x492e507dc7ce3d23, 0x13577c9b, 0x9efbb2a3},
		"abcd":        {0xc19f5358d983a6bf, 0xe0cf7f46f508e46e, 0x26873021, 0x49a10bc5},
		"abcdefg":     {0x9fa0b24601c1e9a9, 0x593e9b0945664832, 0xf9a1cef3, 0xc6d6041c},
		"abcdefgh":    {0xd435df7a565a8af1, 0xbf3d673c0b1029cf, 0x042287e6, 0x3e70529b},
		"hello world": {0xbae8fb35317acde1, 0xa5c3078260d44436, 0x44a81419, 0x8596aa75},
		"\x00":        {0, 0x5825f5f3bd962979, 0xe94e6ebd, 0x2bb1a13b},
		"The quick brown fox jumps over the lazy dog": {0xc7a616a28f4a74d6, 0xfab0774384f74e2a, 0x212729d0, 0x7db42000},
	} {
		a := murmur64([]byte(item), 0xc6a4a7935bd1e995)
		if b := murmur64([]byte(item), a); a != want.a || b != want.b {
			t.Errorf("%q: %x %x", item, a, b)
		}
		if zero, six := murmur32([]byte(item), 0), murmur32([]byte(item), 6); zero != want.zero || six != want.a6 {
			t.Errorf("%q: %x %x", item, zero, six)
		}
	}
}

// TestSketchVectors: cells are those of others (sketch-vectors.txt, section 4).
func TestSketchVectors(t *testing.T) {
	s := testStore(t, nil)
	o := SketchOptions{Width: 7, Depth: 3}
	must(t, newSketch(s, "s", o))
	check := func(op Op, want ...int64) {
		t.Helper()
		if op.Err != nil || !slices.Equal(op.Values, want) {
			t.Errorf("%v %v instead of %v", op.Values, op.Err, want)
		}
	}
	check(addItems(s, "s", "a", 1, "b", 2, "c", 3), 1, 2, 3)
	check(addItems(s, "s", "d", 4, "e", 5, "f", 6, "a", 10), 4, 5, 6, 11)
	check(addItems(s, "s", "g", 7, "h", 8, "i", 9, "j", 10), 7, 8, 11, 12)
	want := &plainSketch{opts: o, count: 65, rows: [][]int64{{12, 20, 15, 0, 0, 11, 7}, {3, 19, 16, 0, 0, 21, 6}, {8, 11, 11, 0, 0, 30, 5}}}
	if err := want.differs(s, "s"); err != nil {
		t.Error(err)
	}
	query := func(key string, items ...string) Op {
		op := Op{Kind: CMSQuery, Key: []byte(key)}
		for _, i := range items {
			op.Keys = append(op.Keys, []byte(i))
		}
		return do(s, op)
	}
	check(query("s", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"), 15, 11, 3, 11, 5, 6, 7, 8, 20, 12, 3)
	must(t, newSketch(s, "t", o))
	check(addItems(s, "t", "a", 2, "c", 1, "k", 5), 2, 1, 5)
	must(t, newSketch(s, "u", o))
	must(t, mergeSketch(s, "u", []string{"s", "t"}, []int64{1, 3}))
	check(query("u", "a", "c", "k", "z"), 21, 14, 21, 0)
	if op := do(s, Op{Kind: CMSInfo, Key: []byte("u")}); *op.Object.(*SketchInfo) != (SketchInfo{o, 89}) {
		t.Error(op.Object)
	}
}

// TestSketchRefusals: what is refused changes nothing (G6).
func TestSketchRefusals(t *testing.T) {
	s := testStore(t, nil)
	must(t, newSketch(s, "s", SketchOptions{Width: 10, Depth: 3, Cell: 1}))
	must(t, newSketch(s, "wide", SketchOptions{Width: 11, Depth: 3, Cell: 1}))
	must(t, do(s, Op{Kind: Set, Key: []byte("c")}).Err)
	plain := newPlainSketch(SketchOptions{Width: 10, Depth: 3, Cell: 1})
	expect := func(op Op, full ...bool) {
		t.Helper()
		if op.Err != nil || !slices.Equal(op.Fulls, full) {
			t.Errorf("%v %v %v", op.Values, op.Fulls, op.Err)
		}
		if err := plain.differs(s, "s"); err != nil {
			t.Error(err)
		}
	}
	plain.add("a", 200)
	expect(addItems(s, "s", "a", 200), false)
	plain.add("b", 3)
	expect(addItems(s, "s", "a", 56, "b", 3), true, false)
	plain.add("a", 55)
	expect(addItems(s, "s", "a", 55, "a", 1), false, true)
	expect(addItems(s, "s", "a", -256, "b", math.MinInt64), true, true)
	plain.add("a", -255)
	expect(addItems(s, "s", "a", -255), false)
	for _, c := range []struct {
		want error
		op   Op
	}{
		{ErrSketchExists, Op{Kind: CMSInit, Key: []byte("s"), Object: &SketchOptions{Width: 1, Depth: 1}}},
		{ErrSketchExists, Op{Kind: CMSInit, Key: []byte("c"), Object: &SketchOptions{Width: 1, Depth: 1}}},
		{ErrSketchOptions, Op{Kind: CMSInit, Key: []byte("n"), Object: &SketchOptions{Width: 1 << 32, Depth: 1 << 32}}},
		{ErrSketchOptions, Op{Kind: CMSInit, Key: []byte("n"), Object: &SketchOptions{Width: 1, Depth: 1, Cell: 3}}},
		{ErrOutOfMemory, Op{Kind: CMSInit, Key: []byte("n"), Object: &SketchOptions{Width: 1 << 31, Depth: 1 << 30, Cell: 8}}},
		{ErrNoSketch, Op{Kind: CMSIncrBy, Key: []byte("n"), Keys: [][]byte{{1}}, Deltas: []int64{1}}},
		{ErrWrongType, Op{Kind: CMSQuery, Key: []byte("c")}},
		{ErrNoSketch, Op{Kind: CMSMerge, Keys: [][]byte{[]byte("s"), []byte("n")}, Deltas: []int64{1}}},
		{ErrSketchSize, Op{Kind: CMSMerge, Keys: [][]byte{[]byte("s"), []byte("wide")}, Deltas: []int64{1}}},
		{ErrSketchMerge, Op{Kind: CMSMerge, Keys: [][]byte{[]byte("s"), []byte("s")}, Deltas: []int64{-1}}},
		{ErrSketchMerge, Op{Kind: CMSMerge, Keys: [][]byte{[]byte("s"), []byte("s")}, Deltas: []int64{100}}},
		{ErrSketchMerge, Op{Kind: CMSMerge, Keys: [][]byte{[]byte("s"), []byte("s"), []byte("s")}, Deltas: []int64{math.MaxInt64, -math.MaxInt64}}},
	} {
		if op := do(s, c.op); !errors.Is(op.Err, c.want) {
			t.Errorf("kind %d: %v instead of %v", c.op.Kind, op.Err, c.want)
		}
		expect(Op{})
	}
	// At the memory cap: neither a key nor memory.
	used := s.Stats().FilterBytes
	s.SetFilterMaxMemory(used + 1000)
	if err := newSketch(s, "n", SketchOptions{Width: 1000, Depth: 1, Cell: 1}); !errors.Is(err, ErrOutOfMemory) {
		t.Error(err)
	}
	if now := s.Stats().FilterBytes; now != used {
		t.Errorf("%d bytes are counted instead of %d", now, used)
	}
	must(t, newSketch(s, "n", SketchOptions{Width: 900, Depth: 1, Cell: 1}))
	do(s, Op{Kind: Del, Keys: [][]byte{[]byte("n")}})
	if now := s.Stats().FilterBytes; now != used {
		t.Errorf("%d bytes are counted instead of %d", now, used)
	}
}

// TestSketchModel plays everything that happens to sketches against a plain one, with
// checkpoints, kills and orderly restarts in between.
func TestSketchModel(t *testing.T) {
	for seed := range uint64(12) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		fs := vfs.NewMem()
		open := func() *Store {
			return testStore(t, func(o *Options) { o.FS, o.Partitions = fs, 2 })
		}
		s := open()
		o := SketchOptions{Width: 3000 + seed*1000, Depth: 1 + rnd.Uint64N(4), Cell: []uint64{0, 1, 2, 4, 8}[rnd.IntN(5)]}
		plain := make(map[string]*plainSketch)
		for i := range 120 {
			key := fmt.Sprint("s", rnd.IntN(3))
			switch p := plain[key]; rnd.IntN(16) {
			case 0:
				do(s, Op{Kind: Del, Keys: [][]byte{[]byte(key)}})
				delete(plain, key)
			case 1:
				do(s, Op{Kind: Set, Key: []byte(key)})
				do(s, Op{Kind: Del, Keys: [][]byte{[]byte(key)}})
				delete(plain, key)
			case 2, 3, 4:
				must(t, s.Snapshot())
			case 5, 6:
				must(t, s.CloseNow())
				s = open()
			case 7:
				must(t, s.Close())
				checkSound(t, fs, "data")
				s = open()
			case 8:
				if rnd.IntN(4) == 0 {
					do(s, Op{Kind: FlushAll})
					clear(plain)
				}
			case 9, 10:
				if from := fmt.Sprint("s", rnd.IntN(3)); p != nil && plain[from] != nil {
					w := []int64{1, rnd.Int64N(2)}
					if err := mergeSketch(s, key, []string{key, from}, w); err == nil {
						p.merge([]*plainSketch{p, plain[from]}, w)
					} else if !errors.Is(err, ErrSketchMerge) {
						t.Fatal(err)
					}
				}
			default:
				if p == nil {
					must(t, newSketch(s, key, o))
					plain[key] = newPlainSketch(o)
					break
				}
				var pairs []any
				for range 1 + rnd.IntN(40) {
					pairs = append(pairs, fmt.Sprint("item", rnd.IntN(500)), rnd.IntN(12)-2)
				}
				op := addItems(s, key, pairs...)
				for i := range op.Keys {
					v, ok := p.add(string(op.Keys[i]), op.Deltas[i])
					if ok == op.Fulls[i] || v != op.Values[i] {
						t.Fatalf("seed %d: %q %d answered %d, %v instead of %d, %v", seed, op.Keys[i], op.Deltas[i], op.Values[i], !op.Fulls[i], v, ok)
					}
				}
			}
			for _, key := range []string{"s0", "s1", "s2"} {
				if err := plain[key].differs(s, key); err != nil {
					t.Fatalf("seed %d, step %d: %v", seed, i, err)
				}
			}
		}
	}
}

// pagesOnDisk returns the pages of all partitions, by object and number.
func pagesOnDisk(t *testing.T, s *Store) map[[2]uint64]persistence.Page {
	t.Helper()
	all := make(map[[2]uint64]persistence.Page)
	for _, p := range s.partitions {
		must(t, s.db.Pages(p.id, func(pg persistence.Page) error {
			pg.Content = slices.Clone(pg.Content)
			all[[2]uint64{pg.Object, uint64(pg.Number)}] = pg
			return nil
		}))
	}
	return all
}

// TestCheckpointWritesDirtyPages: of a large sketch a checkpoint writes the pages that have
// changed since the last one, and of those that go, none stays.
func TestCheckpointWritesDirtyPages(t *testing.T) {
	s := testStore(t, func(o *Options) { o.Partitions = 1 })
	must(t, newSketch(s, "s", SketchOptions{Width: 1 << 20, Depth: 4})) // 16 MiB: 1024 pages
	written := func() int {
		t.Helper()
		before := s.partitions[0].saving.state.seq
		must(t, s.Snapshot())
		n := 0
		for _, pg := range pagesOnDisk(t, s) {
			if pg.Seq > before {
				n++
			}
		}
		return n
	}
	if n := written(); n != 1 {
		t.Errorf("of an empty sketch %d pages were written, instead of the header", n)
	}
	addItems(s, "s", "a", 1, "b", 2)
	if n := written(); n != 2*4+1 {
		t.Errorf("%d pages were written for two items", n)
	}
	addItems(s, "s", "a", 1)
	if n := written(); n != 4+1 {
		t.Errorf("%d pages were written for an item", n)
	}
	size := s.partitions[0].saving.state.seq
	must(t, s.Snapshot())
	if s.partitions[0].saving.state.seq != size || len(pagesOnDisk(t, s)) != 2*4+1 {
		t.Error("pages were written though nothing has changed")
	}
	for _, away := range []Op{{Kind: Del, Keys: [][]byte{[]byte("s")}}, {Kind: FlushAll}, {Kind: Set, Key: []byte("s")}, {Kind: ExpireAt, Key: []byte("s"), ExpireAt: 1}} {
		do(s, Op{Kind: Del, Keys: [][]byte{[]byte("s")}})
		must(t, newSketch(s, "s", SketchOptions{Width: 1 << 20, Depth: 4}))
		addItems(s, "s", "a", 1)
		must(t, s.Snapshot())
		do(s, away)
		must(t, s.Snapshot())
		if n := len(pagesOnDisk(t, s)); n != 0 {
			t.Errorf("after kind %d %d pages are left", away.Kind, n)
		}
	}
}

// TestPageInTheMiddle: the pages of a sketch are written in different states, while entries
// that change all of them go on; and the log is redone from before all that, twice.
func TestPageInTheMiddle(t *testing.T) {
	fs := vfs.NewMem()
	open := func() *Store { return testStore(t, func(o *Options) { o.FS, o.Partitions = fs, 1 }) }
	s := open()
	o := SketchOptions{Width: 50_000, Depth: 3}
	plain := newPlainSketch(o)
	must(t, newSketch(s, "s", o))
	n := 0
	add := func() {
		var pairs []any
		for range 30 {
			n++
			item := fmt.Sprint("item", n%700)
			pairs = append(pairs, item, 1)
			plain.add(item, 1)
		}
		must(t, addItems(s, "s", pairs...).Err)
	}
	add()
	must(t, s.Snapshot())
	add()
	// A checkpoint that gets as far as its pages.
	p := s.partitions[0]
	s.snapshots.mu.Lock()
	s.snapshots.building.Lock()
	c := checkpoint{s: s, p: p}
	c.capture(0, true)
	for len(c.pages) > 0 {
		b := s.db.NewChanges()
		p.mu.Lock()
		var w pagesWritten
		for range 3 {
			c.capturePage(b, &w)
		}
		p.mu.Unlock()
		must(t, b.Commit())
		add() // changes pages that are written, and those that are not yet
	}
	must(t, s.db.Flush())
	c.build.GiveBack()
	p.endSnapshot()
	s.snapshots.building.Unlock()
	s.snapshots.mu.Unlock()
	for range 2 { // the second time, nothing of the first is on disk
		must(t, s.CloseNow())
		checkSound(t, fs, "data")
		s = open()
		if err := plain.differs(s, "s"); err != nil {
			t.Fatal(err)
		}
	}
	add()
	must(t, s.Close())
	s = open()
	if err := plain.differs(s, "s"); err != nil {
		t.Fatal(err)
	}
}

// TestRedoSkipsWhatPagesHave: redoing entries that a page has changes nothing, also in the
// middle of the pages, and twice.
func TestRedoSkipsWhatPagesHave(t *testing.T) {
	o := SketchOptions{Width: 10_000, Depth: 2}
	plain := newPlainSketch(o)
	f, err := countMinType{}.create(o.encode(), moment{})
	must(t, err)
	sketch := f.(*countMin)
	for range 2 {
		for seq := range uint64(50) {
			item := fmt.Sprint("item", seq)
			what := binary.AppendVarint(appendBytes([]byte{sketchPairs}, []byte(item)), 3)
			what = binary.AppendVarint(appendBytes(what, []byte(item)), 4) // twice in one entry
			must(t, sketch.redo(change{what: what, seq: seq + 1}))
			if sketch.count == 50*7 || plain.count < 50*7 {
				plain.add(item, 7)
			}
		}
		plain.count, plain.rows = 50*7, newRows(plain, 50)
	}
	for r, row := range plain.rows {
		for i, v := range row {
			if got := sketch.load((uint64(r)*o.Width + uint64(i)) * 4); got != v {
				t.Fatalf("row %d, cell %d: %d instead of %d", r, i, got, v)
			}
		}
	}
	if sketch.count != 50*7 {
		t.Error(sketch.count)
	}
}

func newRows(p *plainSketch, items int) [][]int64 {
	fresh := newPlainSketch(p.opts)
	for i := range items {
		fresh.add(fmt.Sprint("item", i), 7)
	}
	return fresh.rows
}

// TestPiecesInterrupted cuts the power between the pieces of a MERGE: nothing of it is
// seen, the next start drops the pieces, and another MERGE works.
func TestPiecesInterrupted(t *testing.T) {
	o := SketchOptions{Width: 4000, Depth: 3}
	for at := int64(1); ; at++ {
		mem := vfs.NewCrashableMem()
		disk := newCrashDisk(mem, 0)
		open := func(fs vfs.FS) *Store {
			return testStore(t, func(o *Options) { o.FS, o.Partitions, o.Fsync = fs, 1, Always })
		}
		s := open(disk.fs)
		must(t, newSketch(s, "a", o))
		must(t, newSketch(s, "b", o))
		must(t, addItems(s, "b", "x", 5, "y", 7).Err)
		disk.cutAt(at, func() {}, 100, 1)
		must(t, mergeSketch(s, "a", []string{"b"}, []int64{2}))
		after := disk.isCut()
		must(t, s.CloseNow())
		if after == nil {
			if at < 4 {
				t.Fatal("the MERGE has no pieces")
			}
			return
		}
		s = open(after)
		before, merged := newPlainSketch(o), newPlainSketch(o)
		merged.add("x", 10)
		merged.add("y", 14)
		if e1, e2 := before.differs(s, "a"), merged.differs(s, "a"); e1 != nil && e2 != nil {
			t.Fatal(e1, e2)
		}
		if s.partitions[0].pieces.number != 0 {
			t.Fatal("pieces are left")
		}
		must(t, mergeSketch(s, "a", []string{"b"}, []int64{2}))
		must(t, s.CloseNow())
		checkSound(t, after, "data")
		s = open(after)
		if err := merged.differs(s, "a"); err != nil {
			t.Fatal(err)
		}
		must(t, s.Close())
	}
}

// TestUnfinishedPieces: pieces without the last one change nothing, the next start drops
// them and says so in the log, and what is logged in pieces afterwards is seen.
func TestUnfinishedPieces(t *testing.T) {
	fs := vfs.NewMem()
	open := func() *Store { return testStore(t, func(o *Options) { o.FS, o.Partitions = fs, 1 }) }
	s := open()
	o := SketchOptions{Width: 4000, Depth: 3}
	must(t, newSketch(s, "a", o))
	must(t, newSketch(s, "b", o))
	must(t, addItems(s, "b", "x", 5).Err)
	p := s.partitions[0]
	x := s.internal(p)
	x.lock()
	number := p.seq + 1
	whole := append([]byte{sketchMerged, 20, 1}, make([]byte, pageSize)...)
	for i := 0; i < pageSize; i += 1000 {
		x.log(p, &entry{kind: entryPiece, delta: int64(number), id: whole[i : i+1000]})
	}
	must(t, x.finish())
	merged := newPlainSketch(o)
	for i := range 3 {
		must(t, s.CloseNow())
		s = open()
		if p = s.partitions[0]; p.pieces.number != 0 {
			t.Fatal("pieces are left")
		}
		if err := merged.differs(s, "a"); err != nil {
			t.Fatal(err)
		}
		must(t, mergeSketch(s, "a", []string{"a", "b"}, []int64{1, 2}))
		merged.add("x", 10)
		if i == 1 {
			must(t, s.Snapshot())
		}
	}
	must(t, s.CloseNow())
	db, err := persistence.OpenReadOnly(persistence.Options{FS: fs, Dir: "data", Fatal: func(error) {}})
	must(t, err)
	defer db.Close()
	drops := 0
	must(t, db.Log().Read(0, number, func(_ uint64, record []byte) error {
		r, err := newRecordReader(record)
		var e entry
		for r.next(&e) {
			if e.kind == entryDrop {
				drops++
			}
		}
		return err
	}))
	if drops != 1 {
		t.Errorf("the log says %d times that pieces are dropped", drops)
	}
}

// TestPagesAreChecked: a sketch without its pages is damage, not an empty sketch; so are
// pages that belong to nobody, do not fit, or are newer than the log.
func TestPagesAreChecked(t *testing.T) {
	for what, spoil := range map[string]func(b *persistence.Changes, object, seq uint64){
		"the pages of key": func(b *persistence.Changes, object, seq uint64) { b.DropPages(0, object, object) },
		"belongs to no key": func(b *persistence.Changes, object, seq uint64) {
			b.PutPage(0, persistence.Page{Object: object - 1, Seq: seq})
		},
		"the log ends": func(b *persistence.Changes, object, seq uint64) {
			b.PutPage(0, persistence.Page{Object: object, Number: 1, Seq: seq + 1, Content: make([]byte, 800)})
		},
		"beyond the end": func(b *persistence.Changes, object, seq uint64) {
			b.PutPage(0, persistence.Page{Object: object, Number: 2, Seq: seq, Content: make([]byte, 800)})
		},
		"is damaged": func(b *persistence.Changes, object, seq uint64) {
			b.PutPage(0, persistence.Page{Object: object, Seq: seq, Content: []byte{0, 0}})
		},
		"older than its object": func(b *persistence.Changes, object, seq uint64) {
			b.PutPage(0, persistence.Page{Object: object, Number: 1, Seq: object - 1, Content: make([]byte, 800)})
		},
	} {
		fs := vfs.NewMem()
		s := testStore(t, func(o *Options) { o.FS, o.Partitions = fs, 1 })
		must(t, newSketch(s, "s", SketchOptions{Width: 100, Depth: 2}))
		object := s.partitions[0].seq
		must(t, s.Snapshot())
		b := s.db.NewChanges()
		spoil(b, object, s.partitions[0].seq)
		must(t, b.Commit())
		must(t, s.db.Flush())
		must(t, s.CloseNow())
		r, err := Check(CheckOptions{Dir: "data", FS: fs})
		if must(t, err); len(r.Problems) != 1 || !strings.Contains(r.Problems[0].What, what) {
			t.Errorf("%s: %v", what, r.Problems)
		}
		opened, err := Open(Options{Dir: "data", FS: fs, Partitions: 1, SnapshotInterval: -1, MinFreeDisk: -1})
		switch what {
		case "belongs to no key": // it goes
			must(t, err)
			must(t, opened.Snapshot())
			if n := len(pagesOnDisk(t, opened)); n != 1 {
				t.Errorf("%d pages are left", n)
			}
			must(t, opened.Close())
		case "the log ends": // only the check looks
			must(t, err)
			must(t, opened.CloseNow())
		default:
			if !errors.Is(err, persistence.ErrCorrupt) {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
}

// TestPagesWaitForTheCommit: no page reaches Pebble before what it contains is committed.
func TestPagesWaitForTheCommit(t *testing.T) {
	inBubble(func(t *testing.T) {
		s := testStore(t, func(o *Options) { o.Partitions = 1 })
		must(t, newSketch(s, "s", SketchOptions{Width: 100, Depth: 2}))
		p := s.partitions[0]
		x := s.internal(p)
		x.lock()
		c := p.objects["s"]
		x.changeObject(&ref{key: []byte("s"), p: p, c: c}, binary.AppendVarint(appendBytes([]byte{sketchPairs}, []byte("a")), 3), 0)
		x.apply()
		x.unlock()
		checkpoint := checkpoint{s: s, p: p, pages: p.takeDirtyPages()}
		done := make(chan error, 1)
		go func() { done <- checkpoint.writePages() }()
		synctest.Wait()
		if n := len(pagesOnDisk(t, s)); n > 0 {
			t.Errorf("%d pages are ahead of the commit", n)
		}
		x.giveBackRoom()
		x.wait()
		must(t, <-done)
		if n := len(pagesOnDisk(t, s)); n != 2 {
			t.Errorf("%d pages were written", n)
		}
	})(t)
}

// TestPagesOfAFailedCommit: what a commit did not write is written by the next one.
func TestPagesOfAFailedCommit(t *testing.T) {
	fs := vfs.NewMem()
	s := testStore(t, func(o *Options) { o.FS, o.Partitions = fs, 1 })
	o := SketchOptions{Width: 9000, Depth: 2}
	must(t, newSketch(s, "gone", o))
	must(t, s.Snapshot())
	do(s, Op{Kind: Del, Keys: [][]byte{[]byte("gone")}})
	must(t, newSketch(s, "s", o))
	must(t, addItems(s, "s", "a", 3, "b", 4).Err)
	plain := newPlainSketch(o)
	plain.add("a", 3)
	plain.add("b", 4)
	p := s.partitions[0]
	c := checkpoint{s: s, p: p, pages: p.takeDirtyPages()}
	w := c.capturePages(s.db.NewChanges()) // which is never committed
	must(t, addItems(s, "s", "a", 1).Err)  // some are dirty again
	plain.add("a", 1)
	p.pagesFailed(&w)
	must(t, s.Snapshot())
	must(t, s.Close())
	checkSound(t, fs, "data")
	s = testStore(t, func(o *Options) { o.FS, o.Partitions = fs, 1 })
	if err := plain.differs(s, "s"); err != nil {
		t.Error(err)
	}
	for at := range pagesOnDisk(t, s) {
		if at[0] != p.objects["s"].object().(*countMin).created {
			t.Errorf("page %d of object %d is left", at[1], at[0])
		}
	}
}

// TestBackupOfSketches backs up a sketch while it is incremented and checkpoints go on: the
// copy is sound and counts what was acknowledged before, and nothing twice.
func TestBackupOfSketches(t *testing.T) {
	fs := vfs.NewMem()
	s := testStore(t, func(o *Options) { o.FS, o.Partitions = fs, 1 })
	o := SketchOptions{Width: 20_000, Depth: 3}
	must(t, newSketch(s, "s", o))
	var acked atomic.Int64
	stop := make(chan struct{})
	var others sync.WaitGroup
	for _, other := range []func() error{
		func() error { defer acked.Add(1); return addItems(s, "s", "a", 1, "b", 1).Err },
		s.Snapshot,
	} {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					if err := other(); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	for i := range 5 {
		dir := fmt.Sprint("copy", i)
		before := acked.Load()
		must(t, s.Backup(dir))
		checkSound(t, fs, dir)
		c := testStore(t, func(o *Options) { o.FS, o.Dir, o.Partitions = fs, dir, 1 })
		n := do(c, Op{Kind: CMSInfo, Key: []byte("s")}).Object.(*SketchInfo).Count / 2
		plain := newPlainSketch(o)
		plain.add("a", n)
		plain.add("b", n)
		if err := plain.differs(c, "s"); err != nil || n < before {
			t.Errorf("%d instead of at least %d: %v", n, before, err)
		}
		must(t, c.Close())
	}
	close(stop)
	others.Wait()
}
