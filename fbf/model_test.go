package fbf

import (
	"bytes"
	"fmt"
	"io"
	"testing"
)

// TestModel drives filters through random histories beside an exact window:
// an id inserted less than its window ago is never denied (G1).
func TestModel(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s := newSim(t, Options{Window: 3000, Error: 1e-3, Roles: 1 + int(seed%2), Past: int(seed % 7)},
				seed)
			s.keep = true
			var running *copying
			for range 60 {
				s.randomStep(seed)
				if running == nil && s.rng.IntN(4) == 0 {
					running = s.startCopy()
				}
				if running != nil && running.read(1+s.rng.IntN(30_000)) {
					s.checkCopy(running)
					running = nil
				}
				s.check()
			}
			if s.done[Rotate] == 0 || s.done[Expire] == 0 || s.done[Open] == 0 {
				t.Fatalf("history without one of rotation, expiry, growth: %v", s.done)
			}
		})
	}
}

// randomStep is a burst, a quiet time, a trickle, a seal or a change of policy.
func (s *sim) randomStep(seed uint64) {
	s.grant = func(uint64) bool { return s.rng.IntN(3) > 0 }
	switch s.rng.IntN(8) {
	case 0:
		s.idle(s.now + s.rng.Int64N(5000))
	case 1:
		for range s.rng.IntN(4000) {
			s.insert()
		}
	case 2:
		s.seal()
	case 3:
		if s.rng.IntN(3) == 0 {
			s.alter(randomOptions(s, seed))
		}
	default:
		s.run(s.now+s.rng.Int64N(2000), steady(s.rng.Float64()*2000))
	}
}

func (s *sim) seal() {
	for {
		e, ok := s.f.PlanSeal(s.now)
		if !ok {
			return
		}
		s.apply(e)
		if e.Kind == Rotate {
			return
		}
	}
}

func randomOptions(s *sim, seed uint64) Options {
	o := Options{Window: 1000 + s.rng.Int64N(4000), Error: []float64{1e-2, 1e-3, 1e-5}[s.rng.IntN(3)],
		Roles: 1 + int(seed%2), Past: s.rng.IntN(7), Tag: uint8(s.rng.IntN(4)),
		Overload: Overload(s.rng.IntN(2))}
	if s.rng.IntN(2) == 0 {
		o.Capacity = s.rng.Uint64N(10_000)
	}
	if s.rng.IntN(3) == 0 {
		o.Roles = 1 + s.rng.IntN(2)
	}
	return o
}

func (s *sim) alter(o Options) {
	if err := s.f.Alter(o, s.now); err != nil {
		s.t.Fatal(err)
	}
	for i := range s.ids {
		at := s.ids[i].at
		s.ids[i].until = max(s.ids[i].until, at+o.Window)
	}
	if s.keep {
		s.log = append(s.log, step{alter: &o, now: s.now})
	}
}

// copying is an encoding in progress.
type copying struct {
	e    *Encoder
	buf  bytes.Buffer
	from int // position of the log at NewEncoder
}

func (s *sim) startCopy() *copying { return &copying{e: s.f.NewEncoder(), from: len(s.log)} }

// read takes up to n bytes more and reports whether that was all.
func (c *copying) read(n int) bool {
	_, err := io.CopyN(&c.buf, c.e, int64(n))
	return err == io.EOF
}

// checkCopy decodes what was copied while the filter went on, redoes the log
// from the copy's start, and compares: same counts and controller state, and
// all of the live filter's bits in generations that live.
func (s *sim) checkCopy(c *copying) {
	s.t.Helper()
	r := bytes.NewReader(append(c.buf.Bytes(), "more"...))
	f, err := Decode(r, 1<<30)
	if err != nil {
		s.t.Fatalf("Decode: %v", err)
	}
	defer f.Release()
	if r.Len() != 4 {
		s.t.Fatalf("Decode left %d bytes, want 4", r.Len())
	}
	for _, st := range s.log[c.from:] {
		switch {
		case st.event != nil:
			err = f.Apply(*st.event)
		case st.alter != nil:
			err = f.Alter(*st.alter, st.now)
		default:
			f.Insert(st.h, st.now)
		}
		if err != nil {
			s.t.Fatalf("redo %+v: %v", st, err)
		}
	}
	s.sameState(f)
}

func (s *sim) sameState(f *Filter) {
	s.t.Helper()
	if !bytes.Equal(f.appendHeader(nil), s.f.appendHeader(nil)) {
		s.t.Fatal("counts or controller state differ after redo")
	}
	if f.Bytes() != s.f.Bytes() || f.Len() != s.f.Len() || f.Full() != s.f.Full() {
		s.t.Fatal("figures differ after redo")
	}
	for i, seg := range s.f.segs {
		for n := range seg.lines {
			for l := range uint8(lanes) {
				if a, b := seg.lines[n][l], f.segs[i].lines[n][l]; seg.live&bit(l) != 0 && a&^b != 0 {
					s.t.Fatalf("segment %d line %d lane %d: bits %x of %x lost", i, n, l, a&^b, a)
				}
			}
		}
	}
}
