package oplog

import (
	"sync"
	"sync/atomic"
	"time"
)

// A disk that does not answer fails no call, so nothing else would notice it. The log looks a
// few times a second whether a write or an fsync of its files is still the one of the look
// before, and adds up how long it has been. The time between two looks counts at most maxLook:
// while the process or the machine stands still, the disk is not to blame.
const (
	lookEvery = 250 * time.Millisecond
	maxLook   = time.Second
	// hangAfter is how long the disk may take until that is logged and counted, unless OnHang
	// says another time.
	hangAfter = 2 * time.Second
)

// work counts calls of the disk of one kind.
type work struct{ begun, ended atomic.Uint64 }

func (w *work) begin() { w.begun.Add(1) }
func (w *work) end()   { w.ended.Add(1) }

// lookedAt is work as the last look found it.
type lookedAt struct {
	ended uint64
	busy  bool // a call was under way
	age   time.Duration
}

// look returns for how long a call has been under way without another one having ended.
func (s *lookedAt) look(w *work, passed time.Duration) time.Duration {
	ended := w.ended.Load() // first: the other order could take a call that has ended for one under way
	busy := w.begun.Load() > ended
	if s.age += passed; !busy || !s.busy || ended != s.ended {
		s.age = 0
	}
	s.ended, s.busy = ended, busy
	return s.age
}

// hang is what the looks have found.
type hang struct {
	mu             sync.Mutex
	writes, fsyncs lookedAt
	age            time.Duration
	count          uint64
	after          time.Duration
	tell           func(age time.Duration)
}

// Hangs tell of a disk that does not answer.
type Hangs struct {
	// Count is how often a write or an fsync of the op log has taken too long.
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

// OnHang sets after what time the disk takes too long, and has tell called at each look from then on with how long
// it has been, and with 0 when that is over. tell must not wait for the disk.
func (l *Log) OnHang(after time.Duration, tell func(age time.Duration)) {
	h := &l.hang
	h.mu.Lock()
	defer h.mu.Unlock()
	h.after, h.tell = after, tell
}

// Look is one look at the disk, so long after the last one. The log looks by itself, and
// tests do in order not to wait.
func (l *Log) Look(passed time.Duration) {
	h := &l.hang
	h.mu.Lock()
	passed = min(passed, maxLook)
	was, age := h.age, max(h.writes.look(&l.writes, passed), h.fsyncs.look(&l.sync.fsyncs, passed))
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
		go l.o.Logger.Warn("the disk does not answer: a write or an fsync of the op log is under way", "for", age)
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
