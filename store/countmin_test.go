package store

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/internal/raced"
	"github.com/fbfkv/fbfkv/store/sketch"
)

// Changes of more than a few kilobytes are logged in fragments in all tests.
var _ = setMaxChange(6 << 10)

func setMaxChange(n int) bool { maxChange = n; return true }

// plainSketch is what a key's sketch must be: one to which nothing else happens.
type plainSketch struct {
	*sketch.CountMin
	changes uint64
}

func newPlainSketch(o SketchOptions) *plainSketch {
	f, err := sketch.NewCountMin(o.Encode(), 0)
	if err != nil {
		panic(err)
	}
	return &plainSketch{CountMin: f}
}

func (p *plainSketch) change(what []byte) {
	p.changes++
	if err := p.Redo(what, p.changes); err != nil {
		panic(err)
	}
}

func (p *plainSketch) count() int64 { return p.Info().Count }

func (p *plainSketch) clone() *plainSketch {
	c := newPlainSketch(p.Info().CountMinOptions)
	c.merge([]*plainSketch{p}, []int64{1})
	return c
}

// add returns the item's estimate; false if it is out of range.
func (p *plainSketch) add(item string, delta int64) (int64, bool) {
	if !p.Fits([]byte(item), delta) {
		return 0, false
	}
	p.change(p.AppendPairs(nil, keysOf(item), []int64{delta}))
	return p.Estimate([]byte(item)), true
}

func (p *plainSketch) merge(sources []*plainSketch, weights []int64) {
	var of []*sketch.CountMin
	for _, s := range sources {
		of = append(of, s.CountMin)
	}
	what, err := p.AppendMerge(nil, of, weights)
	if err != nil {
		panic(err)
	}
	p.change(what)
}

// differs says how a key's sketch differs from the plain one; nil: the key must not exist.
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
	if f := c.object().(*paged).Sketch.(*sketch.CountMin); !sketch.Equal(f, p) {
		return fmt.Errorf("sketch %s, of which the count is %d, differs from one of count %d", key,
			f.Info().Count, p.count())
	}
	return nil
}

func (s *Store) partitionOf(key string) *partition {
	for _, p := range s.partitions {
		if first, last := slotRange(int(p.id), p.count); Slot([]byte(key)) >= first &&
			Slot([]byte(key)) <= last {
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
		op.Keys, op.Deltas = append(op.Keys, []byte(pairs[i].(string))),
			append(op.Deltas, int64(pairs[i+1].(int)))
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

// TestSketchVectors: estimates agree with other implementations (sketch-vectors.txt, section 4).
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
	query := func(key string, items ...string) Op {
		op := Op{Kind: CMSQuery, Key: []byte(key)}
		for _, i := range items {
			op.Keys = append(op.Keys, []byte(i))
		}
		return do(s, op)
	}
	check(query("s", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"), 15, 11, 3, 11, 5, 6, 7, 8, 20,
		12, 3)
	must(t, newSketch(s, "t", o))
	check(addItems(s, "t", "a", 2, "c", 1, "k", 5), 2, 1, 5)
	must(t, newSketch(s, "u", o))
	must(t, mergeSketch(s, "u", []string{"s", "t"}, []int64{1, 3}))
	check(query("u", "a", "c", "k", "z"), 21, 14, 21, 0)
	if op := do(s,
		Op{Kind: CMSInfo, Key: []byte("u")}); *op.Object.(*SketchInfo) != (SketchInfo{CountMinOptions: o,
		Count: 89}) {
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
		{ErrSketchOptions,
			Op{Kind: CMSInit, Key: []byte("n"), Object: &SketchOptions{Width: 1 << 32, Depth: 1 << 32}}},
		{ErrSketchOptions,
			Op{Kind: CMSInit, Key: []byte("n"), Object: &SketchOptions{Width: 1, Depth: 1, Cell: 3}}},
		{ErrSketchMemory, Op{Kind: CMSInit, Key: []byte("n"),
			Object: &SketchOptions{Width: 1 << 31, Depth: 1 << 30, Cell: 8}}},
		{ErrNoSketch, Op{Kind: CMSIncrBy, Key: []byte("n"), Keys: [][]byte{{1}}, Deltas: []int64{1}}},
		{ErrWrongType, Op{Kind: CMSQuery, Key: []byte("c")}},
		{ErrNoSketch, Op{Kind: CMSMerge, Keys: [][]byte{[]byte("s"), []byte("n")}, Deltas: []int64{1}}},
		{ErrSketchSize, Op{Kind: CMSMerge, Keys: [][]byte{[]byte("s"), []byte("wide")}, Deltas: []int64{1}}},
		{ErrSketchMerge, Op{Kind: CMSMerge, Keys: [][]byte{[]byte("s"), []byte("s")}, Deltas: []int64{-1}}},
		{ErrSketchMerge, Op{Kind: CMSMerge, Keys: [][]byte{[]byte("s"), []byte("s")}, Deltas: []int64{100}}},
		{ErrSketchMerge, Op{Kind: CMSMerge, Keys: [][]byte{[]byte("s"), []byte("s"), []byte("s")},
			Deltas: []int64{math.MaxInt64, -math.MaxInt64}}},
	} {
		if op := do(s, c.op); !errors.Is(op.Err, c.want) {
			t.Errorf("kind %d: %v instead of %v", c.op.Kind, op.Err, c.want)
		}
		expect(Op{})
	}
	// At the memory cap: neither a key nor memory.
	used := s.Stats().FilterBytes
	s.SetFilterMaxMemory(used + 1000)
	if err := newSketch(s, "n", SketchOptions{Width: 1000, Depth: 1, Cell: 1}); !errors.Is(err,
		ErrSketchMemory) {
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
	for seed := uint64(0); seed < 12; seed += raced.Step {
		rnd := rand.New(rand.NewPCG(seed, 1))
		fs := vfs.NewMem()
		open := func() *Store {
			return testStore(t, func(o *Options) { o.FS, o.Partitions = fs, 2 })
		}
		s := open()
		o := SketchOptions{Width: 3000 + seed*1000, Depth: 1 + rnd.Uint64N(4),
			Cell: []uint64{0, 1, 2, 4, 8}[rnd.IntN(5)]}
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
						t.Fatalf("seed %d: %q %d answered %d, %v instead of %d, %v", seed, op.Keys[i],
							op.Deltas[i], op.Values[i], !op.Fulls[i], v, ok)
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

// TestTooLarge: what might log more than a record of the log may hold is refused, whether
// one operation would, or several that are logged together; and nothing else is.
func TestTooLarge(t *testing.T) {
	defer func(n int64) { maxRecord = n }(maxRecord)
	maxRecord = 300 << 10
	s := testStore(t, nil)
	key, items := make([]byte, 4<<10), make([][]byte, 100)
	for i := range items {
		items[i] = fmt.Append(nil, i)
	}
	for _, kind := range []Kind{BFAdd, FBFAdd} {
		if err := do(s, Op{Kind: kind, Key: key, Keys: items}).Err; !errors.Is(err, ErrTooLarge) {
			t.Error(kind, err)
		}
		must(t, do(s, Op{Kind: kind, Key: fmt.Append(nil, "short", kind), Keys: items}).Err)
	}
	var b Batch // 250 KiB each: they do not make one record
	for n := range 4 {
		op := Op{Kind: BFAdd, Key: key[:2<<10]}
		for i := range items {
			op.Keys = append(op.Keys, fmt.Append(nil, n, " ", i))
		}
		b.Ops = append(b.Ops, op)
	}
	p := s.partitionOf(string(key[:2<<10]))
	s.Execute(&b)
	for _, op := range b.Ops {
		must(t, op.Err)
	}
	must(t, s.oplog.BeginRecovery(p.id))
	longest := 0
	must(t, s.oplog.Read(p.id, 1, func(_ uint64, section []byte) error {
		longest = max(longest, len(section))
		return nil
	}))
	s.oplog.EndRecovery()
	if longest > 300<<10 {
		t.Errorf("a section of %d bytes", longest)
	}
	must(t, newSketch(s, "s", SketchOptions{Width: 1000, Depth: 16}))
	must(t, addItems(s, "s", "a", 1, "b", 1, "c", 1, "d", 1).Err)
	for _, atomic := range []bool{false, true} {
		b := Batch{Atomic: atomic}
		for range 8 { // 64 KiB each
			b.Ops = append(b.Ops, Op{Kind: CMSMerge, Keys: keysOf("s", "s"), Deltas: []int64{2}})
		}
		s.Execute(&b)
		refused := 0
		for _, op := range b.Ops {
			if op.Err != nil && !errors.Is(op.Err, ErrTooLarge) {
				t.Fatal(op.Err)
			} else if op.Err != nil {
				refused++
			}
		}
		if atomic != (refused > 0) || refused == len(b.Ops) {
			t.Errorf("atomic: %v, and %d of the batch are refused", atomic, refused)
		}
	}
}
