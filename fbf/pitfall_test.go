package fbf

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// The six ways in which a naive version is wrong.

// Pitfall 1: a check and a later insert are not test-and-set. Twins that
// arrive together must be accepted once; CheckAndInsert under one lock does that.
func TestPitfallTwins(t *testing.T) {
	f, err := New(Options{Window: minute, Error: 1e-9, Capacity: 100_000}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Release()
	var mu sync.Mutex
	accepted := make([]int, 2000)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range accepted {
				mu.Lock()
				if !f.CheckAndInsert(mum(uint64(i)+1, probeKeys[0][0]), int64(i)) {
					accepted[i]++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for i, n := range accepted {
		if n != 1 {
			t.Fatalf("id %d accepted %d times", i, n)
		}
	}
	// The same twice in one batch.
	hs, present := []uint64{5, 7, 5, 5, 7}, make([]bool, 5)
	f.CheckAndInsertBatch(hs, 3000, present)
	for i, want := range []bool{false, false, true, true, true} {
		if present[i] != want {
			t.Errorf("batch position %d: present %v, want %v", i, present[i], want)
		}
	}
}

// Pitfall 2: when two of an id's lines coincide, storing back words read before loses
// bits. Here they never coincide: every line is in a strip of its own.
func TestPitfallCoincidingLines(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, e := range []float64{1e-2, 1e-3, 1e-6, 1e-9, 1e-12} {
		s := newSim(t, Options{Window: minute, Error: e}, 1).f.newest()
		for range 50_000 {
			var p probes
			h := rng.Uint64()
			s.locate(h, &p)
			for i := range s.s {
				if p.at[i]/s.strip != uint64(i) || p.at[i] >= uint64(len(s.lines)) {
					t.Fatalf("error %g: probe %d in line %d of strips of %d", e, i, p.at[i], s.strip)
				}
			}
			s.set(&p)
			if s.probe(h, &p)&bit(s.head) == 0 {
				t.Fatalf("error %g: not found after insert", e)
			}
		}
	}
}

// Pitfall 3: double hashing has a floor of false positives, as ids that agree in two
// values agree in all lines. Here agreeing in one line says nothing about the others.
func TestPitfallDoubleHashing(t *testing.T) {
	s := newSim(t, Options{Window: minute, Error: 1e-6}, 1).f.newest()
	rng := rand.New(rand.NewPCG(1, 1))
	const n = 3_000_000
	var p, q probes
	s.locate(rng.Uint64(), &p)
	agree := [maxProbes + 1]int{}
	for range n {
		s.locate(rng.Uint64(), &q)
		same := 0
		for i := range s.s {
			if p.at[i] == q.at[i] {
				same++
			}
		}
		agree[same]++
	}
	strip := float64(s.strip)
	two := 6 * n / (strip * strip) // pairs of 4 lines
	three := 4 * n / (strip * strip * strip)
	if g := float64(agree[2]); g < two*0.93 || g > two*1.07 {
		t.Errorf("%v ids share two lines, want about %.0f", g, two)
	}
	if g := float64(agree[3]); g > three*1.2+10 || g < three*0.8-10 {
		t.Errorf("%v ids share three lines, want about %.0f", g, three)
	}
}

// Pitfall 4: branches on data before all lines are requested. Ids found nowhere are told by two
// lines, duplicates by all; the misses of all must overlap, with the kernel and without.
func TestPitfallDataDependentBranches(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("a measurement")
	}
	f := newSim(t, Options{Window: minute, Error: 1e-6, Capacity: 10_000_000}, 1).f
	rng := rand.New(rand.NewPCG(1, 1))
	hs := make([]uint64, 1<<18)
	for i := range hs {
		hs[i] = rng.Uint64()
		f.Insert(hs[i], 0)
	}
	once := func(xor uint64) time.Duration {
		start := time.Now()
		for _, h := range hs {
			if f.Contains(h^xor) != (xor == 0) {
				t.Fatal("wrong answer")
			}
		}
		return time.Since(start)
	}
	for _, kernel := range forms() {
		f.newest().kernel = kernel
		known, unknown := time.Hour, time.Hour
		// a busy machine takes more rounds
		for round := 0; round < 3 || round < 30 && known > unknown*2; round++ {
			known, unknown = min(known, once(0)), min(unknown, once(1<<63|1))
		}
		t.Logf("kernel %v: known %v, unknown %v per id", kernel, known/time.Duration(len(hs)),
			unknown/time.Duration(len(hs)))
		if known > unknown*2 {
			t.Errorf("kernel %v: known ids take %v, unknown ones %v: their misses do not overlap", kernel,
				known, unknown)
		}
	}
}

// Pitfall 5: clearing a lane at once stops everything. It is done in pieces by
// the inserts, and is over before the lane is needed.
func TestPitfallClearing(t *testing.T) {
	s := newSim(t, Options{Window: minute, Error: 1e-6, Capacity: 1_000_000}, 1)
	rotations, pieces := 0, 0
	for s.now < 3*minute {
		s.now += 1
		for range 15 {
			seg := s.f.newest()
			dirty, at := seg.dirty, seg.clearAt
			if s.f.Due(s.now) {
				for {
					e, ok := s.f.Plan(s.now, s.grant)
					if !ok {
						break
					}
					if e.Kind == Rotate {
						rotations++
						if seg.dirty&bit(seg.spare()) != 0 {
							t.Fatalf("at %d: rotation into a lane that is not clear yet", s.now)
						}
					}
					s.apply(e)
				}
			}
			s.f.Insert(s.rng.Uint64(), s.now)
			if dirty != 0 && seg.dirty == dirty && seg.clearAt > at {
				pieces++
				if n := seg.clearAt - at; n > clearPiece+seg.clearStep {
					t.Fatalf("%d lines cleared at once", n)
				}
			}
		}
	}
	if rotations < 10 || pieces < 1000 {
		t.Errorf("%d rotations, %d pieces", rotations, pieces)
	}
	if n := s.f.newest().clearStep; n > 64 {
		t.Errorf("%d lines cleared per insert", n)
	}
}

// Pitfall 6: fingerprint tables overflow. A Bloom filter cannot: even at many
// times the load it was made for, and denied all memory, every id is found.
func TestPitfallOverflow(t *testing.T) {
	s := newSim(t, Options{Window: minute, Error: 1e-3, Overload: Degrade}, 1)
	s.grant = func(uint64) bool { return false }
	for range 50_000 {
		if !s.insert() {
			t.Fatal("refused")
		}
	}
	s.check()
}
