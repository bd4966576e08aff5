package paper

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"
)

// TestFuzzyCopy: a filter copied in pieces while inserts and refreshes go on has,
// after the later operations are done again, all the bits of the original.
func TestFuzzyCopy(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		f := mustNew(t, 600_000, 4, 1+int(seed%5))
		log := []uint64{}
		act := func() {
			if rng.IntN(300) == 0 {
				log = append(log, 0)
				f.Refresh()
				return
			}
			log = append(log, rng.Uint64()|1)
			f.Insert(log[len(log)-1])
		}
		for range 2000 {
			act()
		}
		e, from := f.NewEncoder(), len(log)
		var b bytes.Buffer
		for {
			if _, err := io.CopyN(&b, e, 1+rng.Int64N(20_000)); err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			for range rng.IntN(60) {
				act()
			}
		}
		b.WriteString("more")
		g, err := Decode(&b, 1<<20)
		if err != nil || b.String() != "more" {
			t.Fatalf("%v, %d bytes left", err, b.Len())
		}
		for _, h := range log[from:] {
			if h == 0 {
				g.Refresh()
			} else {
				g.Insert(h)
			}
		}
		if g.Inserted() != f.Inserted() || g.Refreshes() != f.Refreshes() || g.Len() != f.Len() {
			t.Fatal("counts differ")
		}
		for i, c := range f.filters {
			for w := range c.bits {
				if c.bits[w]&^g.filters[i].bits[w] != 0 {
					t.Fatalf("constituent %d lost bits", i)
				}
			}
		}
	}
}

func sample(t testing.TB) (*Filter, []byte) {
	f := mustNew(t, 3000, 3, 2)
	for i := range uint64(100) {
		f.Insert(i)
		if i%40 == 39 {
			f.Refresh()
		}
	}
	b, err := io.ReadAll(iotest.OneByteReader(f.NewEncoder()))
	if err != nil {
		t.Fatal(err)
	}
	return f, b
}

func TestDamage(t *testing.T) {
	f, b := sample(t)
	if g, err := Decode(iotest.OneByteReader(bytes.NewReader(b)), f.Bytes()); err != nil || !g.Contains(99) ||
		g.EffectiveFPP() != f.EffectiveFPP() {
		t.Fatal(err)
	}
	if _, err := Decode(bytes.NewReader(b), f.Bytes()-1); !errors.Is(err, ErrCorrupt) {
		t.Errorf("limit below the size: %v", err)
	}
	for n := range b {
		if _, err := Decode(bytes.NewReader(b[:n]), 1<<20); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut after %d bytes: %v", n, err)
		}
		b[n] ^= 1 << (n % 8)
		if _, err := Decode(bytes.NewReader(b), 1<<20); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("bit flipped in byte %d: %v", n, err)
		}
		b[n] ^= 1 << (n % 8)
	}
	if _, err := Decode(iotest.ErrReader(io.ErrNoProgress), 1<<20); !errors.Is(err, io.ErrNoProgress) {
		t.Error(err)
	}
}

func FuzzDecode(f *testing.F) {
	_, b := sample(f)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		g, err := Decode(bytes.NewReader(b), 1<<20)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		for range g.Past() + 3 {
			g.Insert(1)
			if !g.Contains(1) {
				t.Fatal("not found after insert")
			}
			g.Refresh()
		}
		g.EffectiveFPP()
	})
}
