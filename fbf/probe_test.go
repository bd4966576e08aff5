package fbf

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"testing"
)

// forms are the ways to check an id: with a kernel, if this processor has one, and without.
func forms() []bool {
	if hasKernel {
		return []bool{true, false}
	}
	return []bool{false}
}

// contained is what a check must find, bit by bit as the package comment has it.
func (s *segment) contained(h uint64) (found uint8) {
	for l := range uint8(lanes) {
		in := s.query&bit(l) != 0
		for i := range s.s {
			x := probeHash(h, i)
			lane := l
			if s.r == 2 && i < s.s/2 {
				lane = next(l)
			}
			w := s.lines[uint64(i)*s.strip+place(x, s.strip)][lane]
			for k := range s.j {
				in = in && w>>(x>>(6*k)&63)&1 == 1
			}
		}
		if in {
			found |= bit(l)
		}
	}
	return found
}

// eachGeometry calls f with a segment of random bits for every S, J, number of roles and form.
func eachGeometry(t *testing.T, f func(t *testing.T, s *segment, rng *rand.Rand)) {
	for n := 1; n <= maxProbes; n++ {
		for _, j := range []int{4, 5} {
			for r := 1; r <= 2-n%2; r++ {
				for _, kernel := range forms() {
					t.Run(fmt.Sprintf("S=%d/J=%d/R=%d/kernel=%v", n, j, r, kernel), func(t *testing.T) {
						s, err := newSegment(geometry{s: n, j: j, r: r}, 1, 0, 19, 10, 0)
						if err != nil {
							t.Fatal(err)
						}
						rng := rand.New(rand.NewPCG(uint64(n), uint64(j)))
						for i := range s.lines {
							for l := range s.lines[i] {
								s.lines[i][l] = rng.Uint64() | rng.Uint64() | rng.Uint64()
							}
						}
						s.kernel = kernel && s.r == 1
						f(t, s, rng)
					})
				}
			}
		}
	}
}

// TestChecks: every form of check finds what is there.
func TestChecks(t *testing.T) {
	eachGeometry(t, func(t *testing.T, s *segment, rng *rand.Rand) {
		found := 0
		for range 5_000 {
			s.query = uint8(rng.Uint32())
			var p probes
			h := rng.Uint64()
			want := s.contained(h)
			if got := s.probe(h, &p); got != want {
				t.Fatalf("probe %08b, want %08b", got, want)
			}
			if got := s.located(&p); got != want {
				t.Fatalf("located after probe %08b, want %08b", got, want)
			}
			p = probes{}
			s.request(h, &p)
			if got := s.located(&p); got != want {
				t.Fatalf("located after request %08b, want %08b", got, want)
			}
			found += bits.OnesCount8(want)
		}
		if found == 0 {
			t.Error("no match in the whole test")
		}
	})
}

// TestSet: an insert sets its own bits and no others, whichever form located them.
func TestSet(t *testing.T) {
	eachGeometry(t, func(t *testing.T, s *segment, rng *rand.Rand) {
		for range 100 {
			clear(s.lines)
			s.head = uint8(rng.Uint32()) & 7
			s.query = 0xff
			var p probes
			h := rng.Uint64()
			s.request(h, &p)
			s.set(&p)
			if s.contained(h) != bit(s.head) {
				t.Fatalf("id in lanes %08b, want %d only", s.contained(h), s.head)
			}
			set, want := 0, 0
			for i := range s.lines {
				for _, w := range s.lines[i] {
					set += bits.OnesCount64(w)
				}
			}
			for i := range s.s {
				want += bits.OnesCount64(^without(probeHash(h, i), s.fifth))
			}
			if set != want {
				t.Fatalf("%d bits set, want %d", set, want)
			}
		}
	})
}

// TestKernelLocates: both forms find the same lines and bits in segments of any size.
func TestKernelLocates(t *testing.T) {
	if !hasKernel {
		t.Skip("no kernel for this processor")
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for _, strip := range []uint64{1, 2, 19, 1<<16 + 1, 1<<31 + 1, maxStrip - 1, maxStrip} {
		for n := 1; n <= maxProbes; n++ {
			for _, j := range []int{4, 5} {
				s := &segment{geometry: geometry{s: n, j: j, r: 1}, strip: strip, limit: 1}
				s.derive() // and no lines: asking for them needs none
				for range 1000 {
					var a, b probes
					h := rng.Uint64()
					s.request(h, &a)
					s.locate(h, &b)
					for i := range n {
						if a.at[i] != b.at[i] || a.mask[i] != b.mask[i] {
							t.Fatalf("strip %d, S=%d J=%d: probe %d at %d mask %x, plain at %d mask %x",
								strip, n, j, i, a.at[i], a.mask[i], b.at[i], b.mask[i])
						}
					}
				}
			}
		}
	}
}
