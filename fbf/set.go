package fbf

import (
	"crypto/rand"
	"fmt"
	"runtime"
	"sync"
	"time"
	"weak"
)

// Set is a filter with a clock and a lock inside: a set of ids that remembers each for at
// least a window, and forgets it soon after. It grows, shrinks and forgets by itself. A Set
// is safe for concurrent use; it needs no closing, its memory goes with it.
//
// A pause of the process (see RunningTime) ages no id.
type Set struct {
	mu      sync.Mutex
	filter  *Filter
	hasher  *Hasher
	clock   func() int64 // ms since any moment
	running RunningTime
}

// A SetOption is a choice that a Set offers beyond window and error.
type SetOption func(*Options)

// WithMaxMemory bounds the memory that the ids take, in bytes; at least MinMemory. A Set
// at its bound forgets nothing early: it takes more new ids for seen ones than it
// should, which Stats shows.
func WithMaxMemory(bytes uint64) SetOption {
	return func(o *Options) { o.MaxMemory = max(bytes, 1) }
}

// NewSet makes a Set that recognises an id for window after it was first seen, and takes a
// new id for a seen one with at most the probability errorRate (MinError to MaxError),
// at any load. The error wraps ErrOptions.
func NewSet(window time.Duration, errorRate float64, options ...SetOption) (*Set, error) {
	if window <= 0 {
		return nil, fmt.Errorf("%w: window %v, want more than 0", ErrOptions, window)
	}
	// Rounded up, and one ms more: an id may come at the end of a ms, and again at the beginning of one.
	o := Options{Window: window.Milliseconds() + 2, Error: errorRate, Overload: Degrade}
	for _, option := range options {
		option(&o)
	}
	start := time.Now()
	s, err := newSet(o, func() int64 { return time.Since(start).Milliseconds() })
	if err != nil {
		return nil, err
	}
	lookOften(weak.Make(s))
	return s, nil
}

// newSet makes a Set at which nobody looks while it is idle.
func newSet(o Options, clock func() int64) (*Set, error) {
	f, err := New(o, 0)
	if err != nil {
		return nil, err
	}
	var seed [16]byte
	rand.Read(seed[:]) // never fails
	s := &Set{filter: f, hasher: NewHasher(seed, "set"), clock: clock}
	runtime.AddCleanup(s, (*Filter).Release, f)
	return s, nil
}

// lookOften looks at the clock of a set every LookPeriod, until the set is gone: an idle
// one would take its idleness for a pause.
func lookOften(set weak.Pointer[Set]) {
	time.AfterFunc(LookPeriod, func() {
		if s := set.Value(); s != nil {
			s.look()
			lookOften(set)
		}
	})
}

// look does what is due while nobody asks.
func (s *Set) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now()
}

// now returns the running time; what is due by then is done. The caller holds mu.
func (s *Set) now() int64 {
	now := s.running.Look(s.clock)
	granted := true
	for s.filter.Due(now) {
		e, ok := s.filter.Plan(now, func(uint64) bool { return granted })
		if !ok {
			break
		}
		if s.filter.Apply(e) != nil {
			granted = false // the system has no memory: the filter is full for a while
		}
	}
	return now
}

// Seen reports whether id was seen before, within the window, and remembers it if not:
// of many who ask for an id at the same time, one is told false. It may be wrong, with
// the probability of error, when it says true, never when it says false.
func (s *Set) Seen(id string) bool {
	h := s.hasher.Hash(nil, []byte(id))
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.filter.CheckAndInsert(h, s.now())
}

// Stats are the figures of the Set: among others how many ids it remembers, the memory that
// they take and the probability of error at present. Times are in ms since NewSet, pauses
// left out.
func (s *Set) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.filter.Stats(s.now())
}
