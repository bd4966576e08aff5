package sim

import (
	"fmt"
	"math"
	"slices"
	"sync"
)

// RegionHistory is what clients sent to counters in several regions, each operation with the delta
// 1, and what they were answered. It is checked as it grows:
//
//   - a region says once, at most, that it has applied an operation;
//   - otherwise it answers with what some region said when it applied it, and does not go back to
//     an earlier answer;
//   - a read is not below the number of operations that the region has answered, nor above what
//     regions may have applied.
//
// Its methods are safe for concurrent use.
type RegionHistory struct {
	w *World

	mu       sync.Mutex
	ops      []*RegionOp
	drains   []*RegionOp // that any region may answer, as CGETDEL
	counters map[string]*regionCounter

	answered, again, reads int
}

// RegionOp is one operation.
type RegionOp struct {
	Key, ID string

	open int     // how often it was sent without an answer, so a region may have applied it
	told []int64 // by regions that have applied it
	at   map[*region]*regionAnswers
	past []string // for the text of a failure
}

// note keeps what happened to an operation.
func (h *RegionHistory) note(o *RegionOp, format string, a ...any) {
	o.past = append(o.past, fmt.Sprintf("%.4f ", h.w.Now().Seconds())+fmt.Sprintf(format, a...))
}

// regionAnswers is what one region has said of an operation.
type regionAnswers struct {
	known, applied bool
	values         []int64 // without repetitions
}

// regionCounter is what is known of a counter.
type regionCounter struct {
	ops   int64             // that were sent
	most  int64             // each of them as often as there are regions to which it was sent
	known map[*region]int64 // operations that a region has answered
	// ends: it is deleted, or expires, so its value may be any up to most. doubted: so may its sum.
	// drained: what was handed out. handed: several regions do that at once, so it may be any.
	ends, doubted, handed bool
	drained               int64
}

// NewRegionHistory returns the history of a world.
func NewRegionHistory(w *World) *RegionHistory {
	return &RegionHistory{w: w, counters: make(map[string]*regionCounter)}
}

func (h *RegionHistory) counter(key string) *regionCounter {
	c := h.counters[key]
	if c == nil {
		c = &regionCounter{known: make(map[*region]int64), ends: kindOf(key) == drainedKey ||
			kindOf(key) == expiringKey, handed: kindOf(key) == handedKey}
		h.counters[key] = c
	}
	return c
}

// least returns how many operations the value has that a region shows, at least.
func (c *regionCounter) least(at *region) int64 {
	switch {
	case c.handed:
		return math.MinInt64
	case c.ends:
		return 0
	}
	return c.known[at]
}

// beyond reports whether a value is more than regions may have applied.
func (c *regionCounter) beyond(value int64) bool { return value > c.most && !c.handed }

// New returns a new operation.
func (h *RegionHistory) New(key, id string) *RegionOp {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counter(key).ops++
	o := &RegionOp{Key: key, ID: id, at: make(map[*region]*regionAnswers)}
	h.ops = append(h.ops, o)
	return o
}

// answers returns what a region has said of an operation.
func (h *RegionHistory) answers(o *RegionOp, at *region) *regionAnswers {
	a := o.at[at]
	if a == nil {
		a = new(regionAnswers)
		o.at[at] = a
	}
	return a
}

// learn notes that a region knows an operation.
func (h *RegionHistory) learn(o *RegionOp, at *region) {
	if a := h.answers(o, at); !a.known {
		a.known = true
		h.counter(o.Key).known[at]++
	}
}

// Send notes that an operation is sent to a region. The function that it returns takes in the
// answer: the counter's value, and whether the operation was new; no value: it was refused.
func (h *RegionHistory) Send(o *RegionOp, at *region) func(value int64, applied bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.counter(o.Key)
	if o.at[at] == nil {
		c.most++
	}
	o.open++
	a := h.answers(o, at)
	least, before := c.least(at), *a
	h.note(o, "to %s", at)
	return func(value int64, applied bool) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if o.open--; value == 0 {
			return
		}
		if h.answered++; h.answers(o, at).known {
			h.again++
		}
		if applied && (value <= least || c.beyond(value)) {
			h.w.Fail("%s %s is applied as %d by %s, which had answered %d others before; regions may have "+
				"applied %d", o.Key, o.ID, value, at, least, c.most)
		}
		h.note(o, "%s says %d (applied %v)", at, value, applied)
		h.take(o, at, &before, value, applied)
		h.learn(o, at)
	}
}

// take takes in an answer of a region that had said something before the operation was sent there.
func (h *RegionHistory) take(o *RegionOp, at *region, before *regionAnswers, value int64, applied bool) {
	a := h.answers(o, at)
	switch last := len(before.values) - 1; {
	case applied && (a.applied || before.known):
		h.w.Fail("%s %s is applied by %s as %d, which knew it before: %q", o.Key, o.ID, at, value, o.past)
	case applied:
		a.applied = true
		o.told = append(o.told, value)
	case !slices.Contains(o.told, value) && o.open == 0:
		h.w.Fail("%s %s is answered %d by %s, and no region has said so when it applied it: %q", o.Key, o.ID,
			value, at, o.past)
	case last > 0 && slices.Contains(before.values[:last], value) && len(o.at) < 3:
		h.w.Fail("%s %s is answered %d by %s, which has answered %v before: %q", o.Key, o.ID, value, at,
			before.values, o.past)
	}
	if !slices.Contains(a.values, value) {
		a.values = append(a.values, value)
	}
}

// Read begins a read of a counter. The function that it returns takes in the answer.
func (h *RegionHistory) Read(key string, at *region) func(value int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.counter(key)
	least := c.least(at)
	return func(value int64) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.reads++
		if value < least || c.beyond(value) {
			h.w.Fail("%s is read as %d in %s, which had answered %d operations before; regions may have "+
				"applied %d", key, value, at, least, c.most)
		}
	}
}

// Inherit notes that other regions have all that a region has counted: what it has applied, and no
// other one, of which it would be now.
func (h *RegionHistory) Inherit(from *region, others []*region) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, o := range h.ops {
		for _, at := range others {
			if a := o.at[from]; a != nil && a.applied && len(o.told) == 1 && o.open == 0 {
				h.note(o, "%s inherits it from %s", at, from)
				h.learn(o, at)
			}
		}
	}
}

// Counts returns how many answers there were, how many of them to operations that were sent again,
// and how many reads.
func (h *RegionHistory) Counts() (answered, again, reads int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.answered, h.again, h.reads
}

// Ops returns all operations that regions do not forget, in the order in which they were made.
func (h *RegionHistory) Ops() []*RegionOp {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(h.ops), func(o *RegionOp) bool { return kindOf(o.Key) == briefKey })
}

// Drain returns a drain that any region may answer.
func (h *RegionHistory) Drain(key, id string) *RegionOp {
	h.mu.Lock()
	defer h.mu.Unlock()
	o := &RegionOp{Key: key, ID: id}
	h.drains = append(h.drains, o)
	return o
}

// Drains returns all of these.
func (h *RegionHistory) Drains() []*RegionOp {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.drains)
}

// Drained notes that a region has handed out what a counter had, and deleted it.
func (h *RegionHistory) Drained(key string, value int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counter(key).drained += value
}

// Doubt notes that nobody knows the sum of a counter: an operation was given up, or is lost.
func (h *RegionHistory) Doubt(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counter(key).doubted = true
}

// Lost notes that a region is lost, and with it what it has told nobody. All operations are sent
// again in the end, but for those that regions forget, and those that go to one region only.
func (h *RegionHistory) Lost() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, c := range h.counters {
		c.doubted = c.doubted || kindOf(key) == drainedKey || kindOf(key) == briefKey
	}
}

// Totals returns the values of counters once all operations have been answered and all regions know
// them, as far as that is known: how many operations each has.
func (h *RegionHistory) Totals() map[string]int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	totals := make(map[string]int64, len(h.counters))
	for key, c := range h.counters {
		if kindOf(key) == expiringKey {
			totals[key] = 0
		} else if !c.doubted {
			totals[key] = c.ops - c.drained
		}
	}
	return totals
}

// Last fails the world unless all regions have said the same of an operation when each was asked last.
func (h *RegionHistory) Last(o *RegionOp, value int64, others []int64) {
	for _, other := range others {
		if other != value {
			h.w.Fail("%s %s is answered %d by a region, and %d by another one, although they agree: %q",
				o.Key, o.ID, value, other, o.past)
		}
	}
}
