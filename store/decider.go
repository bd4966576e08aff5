package store

import (
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fbfkv/fbfkv/persistence/oplog"
)

// decider prepares, decides and commits a batch's operations, or a share of them:
// those of some partitions. Since nothing that it changes belongs to another
// partition, the shares of a batch may be worked on in any order and at the same
// time. Operations on one key are in one share, in their order.
type decider struct {
	*execution // the batch, which does not change meanwhile

	from, to int       // its refs
	touched  []touched // … and their partitions
	at       moment
	batch    *oplog.Batch
	wrote    bool   // there is a commit to wait for
	room     int64  // bytes of the log reserved by moreRoom
	cold     []int  // refs whose row must be read
	value    []byte // of a row that is read
	confirm  []int  // refs whose opid must be looked up in runs
	judging  judging
	entry    entry  // scratch of applyEntry
	control  []byte // scratch for encoded events
	err      error  // of redo or commit: becomes the execution's
	flushed  bool   // a FLUSHALL was executed
	lines    int64  // keeps the compiler from dropping loads made ahead
	hits     uint64 // keys that queries found
	misses   uint64 // … and did not
}

// begin makes the decider ready for the refs from..to-1 of a batch.
func (d *decider) begin(x *execution, from, to int) {
	d.execution, d.from, d.to = x, from, to
	d.touched, d.wrote = nil, false
	if d.batch == nil {
		d.batch = x.s.oplog.NewBatch()
	}
	d.err, d.flushed, d.hits, d.misses = nil, false, 0, 0
	d.judging.used = 0
}

// crew are the deciders of a batch and the goroutines that help with them.
type crew struct {
	deciders []*decider // the first n are in use
	n        int
	first    int        // which alone began with
	waiting  []*decider // scratch of alone
	job      func(*decider)
	left     atomic.Int32   // deciders that nobody has taken yet; below 0: likewise none
	undone   sync.WaitGroup // deciders whose job is not done
	helper   func()         // takeAll; made once, for a goroutine's closure is an allocation
	panicked atomic.Pointer[string]
	fatal    func(error) // ends the process
}

// enlist makes n deciders available.
func (x *execution) enlist(n int) []*decider {
	if x.crew == nil {
		x.crew = new(crew) // not part of x, whose memory may be used anew before a late helper looks
		x.crew.fatal = x.s.db.Stop
		x.crew.helper = x.crew.takeAll
	}
	c := x.crew
	for len(c.deciders) < n {
		c.deciders = append(c.deciders, new(decider))
	}
	c.n = n
	return c.deciders[:n]
}

// inUse are the batch's deciders.
func (c *crew) inUse() []*decider { return c.deciders[:c.n] }

// each has every decider do a job, several at the same time if there are
// several, and returns when all have. procs bounds the goroutines. Only for those
// that have taken a decider is waited: one that starts late finds none left, or
// helps with the next job.
func (c *crew) each(procs int, job func(*decider)) {
	if c.n == 1 {
		job(c.deciders[0])
		return
	}
	c.job = job
	c.undone.Add(c.n)
	c.left.Store(int32(c.n)) // from here on others look at job
	for range min(procs, c.n) - 1 {
		go c.helper()
	}
	c.takeAll()
	c.undone.Wait()
	if p := c.panicked.Swap(nil); p != nil {
		panic(*p) // where the server expects it
	}
}

// alone has the caller's goroutine have every decider do a job: those that try can
// do it first, in two passes, then the others. Deciders of different crews rarely wait
// for each other so, for each crew begins with another one than the last time.
func (c *crew) alone(try func(*decider) bool, job func(*decider)) {
	c.first = (c.first + 1) % c.n
	c.waiting = append(append(c.waiting[:0], c.deciders[c.first:c.n]...), c.deciders[:c.first]...)
	waiting := slices.DeleteFunc(c.waiting, try)
	for _, d := range slices.DeleteFunc(waiting, try) {
		job(d)
	}
}

func (c *crew) takeAll() {
	for i := c.left.Add(-1); i >= 0; i = c.left.Add(-1) {
		c.do(c.deciders[i])
	}
}

// do has a decider do the job, and keeps its panic.
func (c *crew) do(d *decider) {
	defer c.undone.Done()
	defer func() {
		if p := recover(); p != nil {
			text := fmt.Sprintf("%v\n%s", p, debug.Stack())
			c.panicked.Store(&text)
			// The share's partitions stay locked (G8). Who waits for them may hold
			// others, for which the other shares wait: none of them may ever end.
			c.fatal(fmt.Errorf("panic in the store: %s", text))
		}
	}()
	c.job(d)
}
