package fbf

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"testing"
	"time"
)

// randomSegments are n segments of random geometries and random bits; of every lane
// so many bits are set that two lines hold an id by chance in half of the segments or so.
func randomSegments(t *testing.T, rng *rand.Rand, n int) []*segment {
	segs := make([]*segment, n)
	for i := range segs {
		g := geometry{s: 1 + rng.IntN(maxProbes), j: 4 + rng.IntN(2), r: 1}
		if g.s%2 == 0 && rng.IntN(4) == 0 {
			g.r = 2
		}
		s, err := newSegment(g, 1, 0, 1+rng.Uint64N(40), 10, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i := range s.lines {
			for l := range s.lines[i] {
				s.lines[i][l] = rng.Uint64() | rng.Uint64()
			}
		}
		s.query = uint8(rng.Uint32())
		segs[i] = s
	}
	return segs
}

// maybe is what screen must say of s: whether one lane has all bits of h in the
// first two lines, or, of a segment that is not screened, that it may have h.
func (s *segment) maybe(h uint64) bool {
	if s.s < 2 || s.r == 2 {
		return true
	}
	short := *s
	short.s = 2
	return short.contained(h) != 0
}

// TestScreen: with and without a kernel, screen tells for every segment whether its first
// two lines rule an id out, and never rules out one that is there (G1).
func TestScreen(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	forms := map[string]func([]*segment, uint64) uint64{"here": screen, "plain": screenPlain}
	for n := 0; n <= screenMost; n++ {
		segs := randomSegments(t, rng, n)
		yes, no := 0, 0
		for range 300 {
			h := rng.Uint64()
			want := uint64(0)
			for i, s := range segs {
				if s.maybe(h) {
					want |= 1 << i
				} else if s.contained(h) != 0 {
					t.Fatal("an id is in a segment, but not in its first two lines")
				}
			}
			for name, screen := range forms {
				if got := screen(segs, h); got != want {
					t.Fatalf("%d segments, %s: suspects %b, want %b", n, name, got, want)
				}
			}
			yes += bits.OnesCount64(want)
			no += n - bits.OnesCount64(want)
		}
		if n > 8 && (yes < 300 || no < 300) {
			t.Fatalf("%d segments: suspected %d times and not %d times", n, yes, no)
		}
	}
}

// TestManySegments: an id is found whichever segment holds it, with its tag, also when there
// are more segments than screen has bits for, some with two roles.
func TestManySegments(t *testing.T) {
	for _, n := range []int{2, 5, screenMost, screenMost + 1, maxSegments + maxPolicies} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			o := Options{Window: minute, Error: 1e-6}
			s := newSim(t, o, uint64(n))
			tags := map[uint64]uint8{}
			for len(tags) < n {
				h := s.rng.Uint64()
				if s.f.CheckAndInsert(h, s.now) {
					t.Fatal("a new id is known")
				}
				tags[h] = o.Tag
				o.Tag, o.Roles = o.Tag^1, 2-len(tags)/4%2
				switch {
				case len(tags) == n:
				case len(tags) < maxPolicies:
					s.alter(o)
				default: // an Alter would be refused; an encoding may hold them
					o.Tag = s.f.opts.Tag
					if err := s.f.open(s.f.newest().geometry, 100, 10, s.now); err != nil {
						t.Fatal(err)
					}
				}
			}
			if len(s.f.segs) != n {
				t.Fatalf("%d segments, want %d", len(s.f.segs), n)
			}
			for h, tag := range tags {
				s.f.Touch(h)
				if m, ok := s.f.Match(h); !ok || m.Generations != 1 || m.Tags != tag {
					t.Errorf("Match %+v %v, want one generation and tag %d", m, ok, tag)
				}
				if !s.f.Contains(h) || !s.f.CheckAndInsert(h, s.now) {
					t.Error("an id is forgotten")
				}
				if m, ok := s.f.Match(h + 1); ok || s.f.Contains(h+1) {
					t.Errorf("Match %+v of an id never inserted", m)
				}
			}
		})
	}
}

// BenchmarkTouch: ids whose lines were requested are checked in well under half of the time
// that others take, and so are all lines of the newest segment; a request for other lines than
// are needed would help nothing.
func BenchmarkTouch(b *testing.B) {
	var f Filter
	for _, n := range []int{2, 3, 5, 8} {
		// strips of 4 MB, larger than second-level caches
		s, err := newSegment(geometry{s: n, j: 4, r: 1}, 1, 0, 64<<10, 10, 0)
		if err != nil {
			b.Fatal(err)
		}
		for i := range s.lines {
			s.lines[i][0] = 1
		}
		f.segs = append(f.segs, s)
	}
	b.Cleanup(f.Release)
	var p probes
	for _, found := range []struct {
		name string
		in   func(h uint64) bool
	}{
		{"check", f.Contains},
		{"newest", func(h uint64) bool { return f.newest().probe(h, &p) != 0 }},
	} {
		b.Run(found.name+"/touched", func(b *testing.B) { benchmarkChecks(b, found.in, f.Touch) })
		b.Run(found.name+"/untouched", func(b *testing.B) { benchmarkChecks(b, found.in, func(uint64) {}) })
	}
}

// benchmarkChecks reports the time of a check of a new id, as ns/id, in groups that
// touch has seen.
func benchmarkChecks(b *testing.B, found func(h uint64) bool, touch func(h uint64)) {
	var hs [32]uint64
	var checks time.Duration
	for b.Loop() {
		for i := range hs {
			hs[i] = rand.Uint64()
			touch(hs[i])
		}
		start := time.Now()
		for _, h := range hs {
			if found(h) {
				b.Fatal("a new id is known")
			}
		}
		checks += time.Since(start)
	}
	b.ReportMetric(float64(checks)/float64(b.N*len(hs)), "ns/id")
}
