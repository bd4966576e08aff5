package sim

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// longTask is how long a change that an administrator asks for may take while faults strike.
const longTask = 3 * time.Minute

// maxLog bounds how much of the log of a run is kept, bytes. The oldest half goes first.
const maxLog = 32 << 20

// World is one simulated world. Its methods are safe for concurrent use. It is made and used in one bubble.
type World struct {
	Seed    uint64
	Network *Network

	began  time.Time
	mu     sync.Mutex
	rng    *rand.Rand
	log    bytes.Buffer
	copyTo io.Writer // of the log; nil: none
	ahead  [2]time.Duration

	failure  atomic.Pointer[string]
	pending  sync.WaitGroup // faults that have not ended yet
	machines []*Machine
}

// NewWorld returns a world whose random numbers come from a seed. Its log is copied to a writer;
// nil: to none.
func NewWorld(seed uint64, copyTo io.Writer) *World {
	w := &World{Seed: seed, began: time.Now(), rng: rand.New(rand.NewPCG(seed, 1)), copyTo: copyTo}
	w.Network = newNetwork(w)
	return w
}

// Now returns how long the world has existed, in virtual time.
func (w *World) Now() time.Duration { return time.Since(w.began) }

// Say writes a line to the log of the run.
func (w *World) Say(format string, a ...any) {
	line := fmt.Sprintf("%10.4f %s\n", w.Now().Seconds(), fmt.Sprintf(format, a...))
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.copyTo != nil {
		_, _ = io.WriteString(w.copyTo, line)
	}
	if w.log.Len() > maxLog {
		w.log.Next(maxLog / 2)
	}
	w.log.WriteString(line)
}

// Fail notes that a promise was broken. The first failure is the result of the world.
func (w *World) Fail(format string, a ...any) {
	text := fmt.Sprintf(format, a...)
	w.Say("FAILURE %s", text)
	w.failure.CompareAndSwap(nil, &text)
}

// Failure returns the first failure; "" if there is none.
func (w *World) Failure() string {
	if f := w.failure.Load(); f != nil {
		return *f
	}
	return ""
}

// WriteLog writes what is kept of the log.
func (w *World) WriteLog(to io.Writer) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := to.Write(w.log.Bytes())
	return err
}

// Intn returns a random number below n.
func (w *World) Intn(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.IntN(n)
}

// Chance is true with probability p.
func (w *World) Chance(p float64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.Float64() < p
}

// Between returns a random duration from one to another, both included.
func (w *World) Between(from, to time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return from + time.Duration(w.rng.Int64N(int64(to-from)+1))
}

// Mean returns a random duration with a mean.
func (w *World) Mean(d time.Duration) time.Duration { return w.Between(0, 2*d) }

// Rand returns a source of random numbers of its own.
func (w *World) Rand() *rand.Rand {
	w.mu.Lock()
	defer w.mu.Unlock()
	return rand.New(rand.NewPCG(w.rng.Uint64(), 2))
}

// Machines returns the machines, in the order in which they were added.
func (w *World) Machines() []*Machine {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.machines
}

// Undo ends a fault after a while. Soothe waits for it.
func (w *World) Undo(after time.Duration, undo func()) {
	w.pending.Add(1)
	time.AfterFunc(after, func() {
		defer w.pending.Done()
		undo()
	})
}

// Go runs a fault that ends by itself. Soothe waits for it.
func (w *World) Go(run func()) { w.pending.Go(run) }

// Soothe waits until all faults have ended, and starts every machine that is down.
func (w *World) Soothe() {
	w.Say("all faults end")
	for _, m := range w.Machines() {
		m.Disk.CrashAfter(0)
		m.Start()
	}
	w.pending.Wait()
	for _, m := range w.Machines() {
		m.Disk.CrashAfter(0)
		m.Start()
	}
}

// insist does something again until it is done, and reports whether it was. If that takes too long
// it fails the world, and describe writes to the log of the run how things are.
func (w *World) insist(what string, do func() error, describe func()) bool {
	for end := time.Now().Add(longTask); w.Failure() == ""; time.Sleep(w.Between(100*time.Millisecond,
		time.Second)) {
		err := do()
		if err == nil {
			w.Say("done: %s", what)
			return true
		}
		if time.Now().After(end) {
			w.Fail("stuck for %v: %s: %v", longTask, what, err)
			describe()
		}
	}
	return false
}
