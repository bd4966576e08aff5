package oplog

import (
	"sync"
	"time"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

// A disk that does not answer fails no call, so nothing else would notice it. The log looks a few
// times a second whether a write or an fsync of its files, or of others that it watches, is still
// the one of the look before, and adds up how long it has been. The time between two looks counts
// at most maxLook: while the process or the machine is paused, the disk is not to blame.
const (
	lookEvery = 250 * time.Millisecond
	maxLook   = time.Second
	// hangAfter is how long the disk may take until that is logged and counted, unless OnHang
	// says another time.
	hangAfter = 2 * time.Second
)

// lookedAt is work, and how the last look found it.
type lookedAt struct {
	work  *disk.Work
	ended uint64
	busy  bool // a call was under way
	age   time.Duration
}

// look returns for how long a call has been under way without another one having ended.
func (s *lookedAt) look(passed time.Duration) time.Duration {
	ended, busy := s.work.Counts()
	if s.age += passed; !busy || !s.busy || ended != s.ended {
		s.age = 0
	}
	s.ended, s.busy = ended, busy
	return s.age
}

// hang is what the looks have found.
type hang struct {
	mu    sync.Mutex
	works []lookedAt
	age   time.Duration
	count uint64
	after time.Duration
	tell  func(age time.Duration)
}

// Hangs tell of a disk that does not answer.
type Hangs struct {
	// Count is how often a write or an fsync of a watched file has taken too long.
	Count uint64
	// Age is how long the one under way has taken; 0: it is not too long yet.
	Age time.Duration
}

// Hangs returns what the looks at the disk have found.
func (l *Log) Hangs() Hangs {
	h := &l.hang
	h.mu.Lock()
	defer h.mu.Unlock()
	age := h.age
	if age < h.after {
		age = 0
	}
	return Hangs{h.count, age}
}

// OnHang sets after what time the disk takes too long, and has tell called at each look from then
// on with how long it has been, and with 0 when that is over. tell must not wait for the disk.
func (l *Log) OnHang(after time.Duration, tell func(age time.Duration)) {
	h := &l.hang
	h.mu.Lock()
	defer h.mu.Unlock()
	h.after, h.tell = after, tell
}

// Watch has the looks find calls that somebody else counts, of a disk for which the server must not
// wait either.
func (l *Log) Watch(works ...*disk.Work) {
	h := &l.hang
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range works {
		h.works = append(h.works, lookedAt{work: w})
	}
}

// Look is one look at the disk, so long after the last one. The log looks by itself, and
// tests do in order not to wait.
func (l *Log) Look(passed time.Duration) {
	h := &l.hang
	h.mu.Lock()
	passed = min(passed, maxLook)
	was, age := h.age, time.Duration(0)
	for i := range h.works {
		age = max(age, h.works[i].look(passed))
	}
	h.age = age
	begins, ends := was < h.after && age >= h.after, was >= h.after && age < h.after
	if begins {
		h.count++
	}
	tell := h.tell
	h.mu.Unlock()
	if tell != nil && (age >= h.after || ends) {
		tell(age)
	}
	// The log file may be on the same disk: nothing here waits for it.
	if begins {
		go l.o.Logger.Warn("the disk does not answer: a write or an fsync of the data directory is under way",
			"for", age)
	}
	if ends {
		go l.o.Logger.Warn("the disk answers again", "took", was)
	}
}

// startLooking looks at the disk until the returned function is called.
func (l *Log) startLooking() (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(lookEvery)
		defer ticker.Stop()
		last := time.Now()
		for {
			select {
			case <-ticker.C:
				now := time.Now()
				l.Look(now.Sub(last))
				last = now
			case <-quit:
				return
			}
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}
