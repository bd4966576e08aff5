package sketch

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// mutate changes a field of a header to a value that may be out of its range.
func mutate(rnd *rand.Rand, header []byte) {
	sub := bloomHeader + bloomSub*rnd.IntN((len(header)-bloomHeader)/bloomSub)
	fields := [][2]int{{0, 8}, {8, 4}, {12, 4}, {16, 4}, {sub, 8}, {sub + 8, 8}, {sub + 16, 8}, {sub + 24,
		8}, {sub + 32, 8}, {sub + 40, 4}, {sub + 44, 8}, {sub + 52, 1}}
	at := fields[rnd.IntN(len(fields))]
	field := header[at[0] : at[0]+at[1]]
	var v [8]byte
	copy(v[:], field)
	old := binary.LittleEndian.Uint64(v[:])
	values := []uint64{0, 1, old + 1, old - 1, old * 2, 1 << 30, 32769, math.MaxInt64, math.MaxUint64,
		math.MaxUint64 - 5, math.Float64bits(rnd.Float64())}
	binary.LittleEndian.PutUint64(v[:], values[rnd.IntN(len(values))])
	copy(field, v[:])
	if rnd.IntN(2) == 0 { // the sum is right, though it may not fit
		var sum uint64
		for sub := bloomHeader; sub < len(header); sub += bloomSub {
			sum += binary.LittleEndian.Uint64(header[sub+16:])
		}
		binary.LittleEndian.PutUint64(header, sum)
	}
}

// reload makes a sketch anew of its pages, as a start does after a checkpoint.
func reload(t *testing.T, f, g Sketch) {
	t.Helper()
	for n := range f.Memory().page {
		seq, content := TakePage(f, uint32(n))
		if err := LoadPage(g, uint32(n), seq, content); err != nil {
			t.Fatalf("page %d of what was accepted is refused: %v", n, err)
		}
	}
	if !Equal(f, g) {
		t.Fatal("not the same sketch when it is loaded")
	}
}

// TestAcceptedHeaderLoads: a header that is accepted can be loaded after any change of the
// filter that follows, and the filter is the same. Most headers here have a few fields that are
// out of range; those that no filter can have are refused.
func TestAcceptedHeaderLoads(t *testing.T) {
	accepted, refused := 0, 0
	for seed := range uint64(4000) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		f := newBloom(t,
			BloomOptions{Error: []float64{0.9999999, 0.3, 0.01, 1e-9, 1e-300, 5e-323}[rnd.IntN(6)],
				Capacity:  1 + rnd.Uint64N(9),
				Expansion: rnd.Uint32N(4), NonScaling: rnd.IntN(8) == 0})
		seq := uint64(1)
		add := func(f *Bloom) {
			t.Helper()
			a, b := rnd.Uint64(), rnd.Uint64()
			if f.Room() == 0 {
				next, bytes, ok := f.Next(1)
				if !ok || bytes > 1<<20 {
					return
				}
				must(t, f.Redo(AppendGrowth(nil, next[0]), seq))
				seq++
			}
			must(t, f.Redo(AppendItem(f.AppendItems(nil), a, b), seq))
			seq++
		}
		for range rnd.IntN(30) >> rnd.IntN(5) {
			add(f)
		}
		header := f.header()
		for range rnd.IntN(4) {
			mutate(rnd, header)
		}
		g, err := UnloadedBloom(header)
		if err != nil {
			refused++
			continue
		}
		if g.Needs() > 1<<20 {
			continue
		}
		accepted++
		must(t, g.open(header))
		seq = 1
		for range 20 {
			if add(g); rnd.IntN(4) == 0 {
				n := rnd.Uint64N(g.subs[0].Bytes)
				if change, err := g.AppendChunk(nil, int64(n)+2, []byte{byte(rnd.Uint32())}); err == nil {
					must(t, g.Redo(change, seq))
					seq++
				}
			}
			reload(t, g, new(Bloom))
		}
	}
	if accepted < 500 || refused < 500 {
		t.Errorf("%d headers were accepted, %d refused: the test tries too little", accepted, refused)
	}
}

// TestImpossibleHeaders: headers that neither BF.RESERVE nor growth makes are refused, one
// field each.
func TestImpossibleHeaders(t *testing.T) {
	grown := func() *Bloom {
		f := newBloom(t, BloomOptions{Error: 0.01, Capacity: 3, Expansion: 2})
		for i := range 5 {
			addTo(t, f, uint64(10*i+1), fmt.Sprint(i))
		}
		return f
	}
	if _, err := UnloadedBloom(grown().header()); err != nil || len(grown().subs) != 2 {
		t.Fatal(err)
	}
	resize := func(s *SubFilter, capacity uint64, e float64) {
		made, ok := newSubFilter(e, capacity)
		if !ok {
			t.Fatal("there is no such sub-filter")
		}
		made.Size = s.Size
		*s = made
	}
	for name, change := range map[string]func(f *Bloom){
		"more items than the sub-filter takes": func(f *Bloom) {
			f.size, f.subs[1].Size = f.size+5, f.subs[1].Size+5
		},
		"a sum beyond 64 bits": func(f *Bloom) {
			f.size, f.subs[1].Size = 0, math.MaxUint64-2
		},
		"grown before it was full":     func(f *Bloom) { f.size, f.subs[0].Size = f.size-1, 2 },
		"a sum that is not the items'": func(f *Bloom) { f.size++ },
		"capacity 0": func(f *Bloom) {
			f.subs = f.subs[:1]
			resize(&f.subs[0], 1, 0.005)
			f.subs[0].Capacity = 0
		},
		"first capacity too large": func(f *Bloom) {
			f.subs = f.subs[:1]
			f.size = 3
			resize(&f.subs[0], 1<<30+1, 0.005)
		},
		"next capacity is not the expansion's": func(f *Bloom) { resize(&f.subs[1], 7, 0.0025) },
		"next error is not half":               func(f *Bloom) { resize(&f.subs[1], 6, 0.004) },
		"expansion too large": func(f *Bloom) {
			f.subs, f.size, f.expansion = f.subs[:1], 3, 32769
		},
		"growing by nothing": func(f *Bloom) {
			f.subs, f.size, f.expansion = f.subs[:1], 3, 0
		},
		"grown though NONSCALING":                func(f *Bloom) { f.options |= bloomNonScaling },
		"bits are not what capacity and bpe say": func(f *Bloom) { f.subs[0].Bytes += 8 },
		"bits per item are not the error's":      func(f *Bloom) { f.subs[0].bpe *= 1.001 },
		"another number of hashes":               func(f *Bloom) { f.subs[0].Hashes++ },
	} {
		f := grown()
		if change(f); name == "first capacity too large" {
			f.subs[0].Size = 3
		}
		if _, err := UnloadedBloom(f.header()); err == nil {
			t.Errorf("accepted: %s", name)
		}
	}
	old := grown()
	resize(&old.subs[1], 6, old.subs[0].Error/8)
	if _, err := UnloadedBloom(old.header()); err != nil {
		t.Error("refused: a header of an old RedisBloom, which divides the error by 8")
	}
}

// TestAcceptedSketchLoads: a count-min sketch of any options can be loaded after any change, and
// is the same.
func TestAcceptedSketchLoads(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		o := CountMinOptions{Width: 1 + rnd.Uint64N(300), Depth: 1 + rnd.Uint64N(70)>>rnd.IntN(7),
			Cell: []uint64{0, 1, 2, 4, 8, 3}[rnd.IntN(6)]}
		if rnd.IntN(2) == 0 {
			o.Window, o.Past = 1+rnd.Int64N(2000), rnd.Uint64N(MaxPast+2)
		}
		if o.Validate() != nil {
			continue
		}
		logged := rnd.Int64N(1 << 40)
		f, err := NewCountMin(o.Encode(), logged)
		must(t, err)
		for seq := range uint64(60) {
			var change []byte
			switch logged += rnd.Int64N(500); {
			case f.Due(logged) && (f.PaneIsOver(logged) || rnd.IntN(2) == 0):
				change = f.AppendUpkeep(nil, logged)
			case rnd.IntN(9) == 0 && !f.Windowed():
				if change, err = f.AppendMerge(nil, []*CountMin{f, f},
					[]int64{rnd.Int64N(5) - 2, rnd.Int64N(math.MaxInt64/2) >> rnd.IntN(60)}); err != nil {
					continue
				}
			default:
				item, delta := fmt.Append(nil, rnd.IntN(20)), (rnd.Int64()-math.MaxInt64/2)>>rnd.IntN(63)
				if !f.Fits(item, delta) {
					continue
				}
				change = f.AppendPairs(nil, [][]byte{item}, []int64{delta})
			}
			must(t, f.Redo(change, seq+1))
			g, err := UnloadedCountMin(f.Options())
			must(t, err)
			reload(t, f, g)
		}
	}
}
