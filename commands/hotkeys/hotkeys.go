// Package hotkeys finds the keys that cost most, while a client has it look: HOTKEYS of Redis 8.6.
//
// Package commands tells a [Search] of each command that was carried out: its time, its bytes and its keys,
// which share both equally. Nothing is kept of a key but two counters, of which there is a bounded number
// (top.go).
package hotkeys

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Options say what to look for.
type Options struct {
	CPU, Net bool // by time, by bytes
	// Count is how many keys are shown of each.
	Count int
	// Duration is after which time the search ends by itself; 0: never.
	Duration time.Duration
	// Sample: one of so many commands is counted, at random.
	Sample int
	// Slots are the hash slots of the keys, in ascending order; nil: all.
	Slots []uint16
}

// counters is how many keys are counted for each that is shown.
const counters = 16

// Usage is what a process has used so far.
type Usage struct {
	User, System time.Duration // processor time
	Bytes        uint64        // from and to clients
}

// Totals are sums over commands.
type Totals struct {
	Time  time.Duration
	Bytes uint64
}

func (t *Totals) add(took time.Duration, bytes uint64) {
	t.Time += took
	t.Bytes += bytes
}

// Search is one search. Its methods are safe for concurrent use.
type Search struct {
	Options
	Started time.Time
	before  Usage
	slots   *[1 << 14]bool // nil: all

	mu       sync.Mutex
	cpu, net *top
	all      Totals // of all commands
	selected Totals // … on the slots
	sampled  Totals // … that were looked at
	end      *end   // nil: it goes on
}

// end is when a search ended, and what was used by then.
type end struct {
	at   time.Time
	used Usage
}

// Command is a command that was carried out.
type Command struct {
	Time  time.Duration
	Bytes int
	Keys  [][]byte
	Slot  int // of its keys, which are all in one; -1: it has none, or they are in several
}

// Add adds commands.
func (s *Search) Add(list []Command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end != nil {
		return
	}
	for i := range list {
		c := &list[i]
		s.all.add(c.Time, uint64(c.Bytes))
		if len(c.Keys) == 0 || s.slots != nil && (c.Slot < 0 || !s.slots[c.Slot]) {
			continue
		}
		s.selected.add(c.Time, uint64(c.Bytes))
		if s.Sample > 1 && rand.IntN(s.Sample) != 0 {
			continue
		}
		s.sampled.add(c.Time, uint64(c.Bytes))
		for _, key := range c.Keys {
			if s.cpu != nil {
				s.cpu.add(key, uint64(c.Time)/uint64(len(c.Keys)))
			}
			if s.net != nil {
				s.net.add(key, uint64(c.Bytes)/uint64(len(c.Keys)))
			}
		}
	}
}

// Report is what a search has found.
type Report struct {
	Active                 bool
	Took                   time.Duration
	All, Selected, Sampled Totals
	Used                   Usage // by the whole process meanwhile
	ByTime, ByBytes        []Hot // times in nanoseconds
}

// Report returns what was found so far; now and used count while the search goes on.
func (s *Search) Report(now time.Time, used Usage) Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end != nil {
		now, used = s.end.at, s.end.used
	}
	r := Report{Active: s.end == nil, Took: now.Sub(s.Started), All: s.all, Selected: s.selected,
		Sampled: s.sampled, Used: Usage{used.User - s.before.User, used.System - s.before.System,
			used.Bytes - s.before.Bytes}}
	if s.cpu != nil {
		r.ByTime = s.cpu.hottest(s.Count)
	}
	if s.net != nil {
		r.ByBytes = s.net.hottest(s.Count)
	}
	return r
}

// Hub has the search that goes on and the one before. Its zero value has none. It must not be copied and is
// safe for concurrent use.
type Hub struct {
	going atomic.Pointer[Search] // nil: none
	mu    sync.Mutex
	last  *Search // that began, unless it was dropped
}

// Why a request is refused.
var (
	ErrStarted = errors.New("hotkey tracking session already in progress")
	ErrGoesOn  = errors.New("hotkey tracking session in progress, stop tracking first")
)

// Going returns the search that goes on; nil: there is none.
func (h *Hub) Going() *Search { return h.going.Load() }

// Last returns the search that began last; nil: there is none, or it was dropped.
func (h *Hub) Last() *Search {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

// Start begins a search. used returns what the process has used by the time of the call.
func (h *Hub) Start(o Options, used func() Usage) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.going.Load() != nil {
		return ErrStarted
	}
	s := &Search{Options: o, Started: time.Now(), before: used()}
	if o.CPU {
		s.cpu = newTop(counters * o.Count)
	}
	if o.Net {
		s.net = newTop(counters * o.Count)
	}
	if o.Slots != nil {
		s.slots = new([1 << 14]bool)
		for _, slot := range o.Slots {
			s.slots[slot] = true
		}
	}
	h.last = s
	h.going.Store(s)
	if o.Duration > 0 {
		time.AfterFunc(o.Duration, func() { h.stop(s, used) })
	}
	return nil
}

// Stop ends the search that goes on, and reports whether one did. Its findings stay.
func (h *Hub) Stop(used func() Usage) bool {
	s := h.going.Load()
	return s != nil && h.stop(s, used)
}

// stop ends a search, unless it has ended.
func (h *Hub) stop(s *Search, used func() Usage) bool {
	if !h.going.CompareAndSwap(s, nil) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end = &end{time.Now(), used()}
	return true
}

// Reset drops what the last search has found.
func (h *Hub) Reset() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.going.Load() != nil {
		return ErrGoesOn
	}
	h.last = nil
	return nil
}
