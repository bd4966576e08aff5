package sim

import (
	"fmt"
	"maps"
	"slices"
	"sync"
)

// History is what clients sent to counters, each operation with the delta 1, and what they were answered. It is checked
// as it grows:
//
//   - the answers of a counter are 1 to n, each given to one operation;
//   - an operation that is sent again gets its first answer again;
//   - an operation is applied once, so if all that was sent of it was answered, one answer says that it was applied;
//   - an answer and a read are not below what was answered before they were sent, nor above what was ever sent.
//
// Its methods are safe for concurrent use.
type History struct {
	w *World

	mu       sync.Mutex
	ops      []*Op
	counters map[string]*counter

	answered, again, reads int
}

// Op is one operation.
type Op struct {
	Key, ID string

	value   int64 // of its first answer; 0: none yet
	applied bool
	least   int64 // what its counter had been answered before it was sent
	sends   int   // how often it was sent, and how often that was answered
	answers int
}

// counter is what is known of a counter.
type counter struct {
	sent    int64
	highest int64 // answer or read
	by      map[int64]*Op
}

// NewHistory returns the history of a world.
func NewHistory(w *World) *History { return &History{w: w, counters: make(map[string]*counter)} }

func (h *History) counter(key string) *counter {
	c := h.counters[key]
	if c == nil {
		c = &counter{by: make(map[int64]*Op)}
		h.counters[key] = c
	}
	return c
}

// Send returns a new operation, which is to be sent from now on.
func (h *History) Send(key, id string) *Op {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.counter(key)
	c.sent++
	o := &Op{Key: key, ID: id, least: c.highest}
	h.ops = append(h.ops, o)
	return o
}

// Sent notes that an operation is sent once.
func (h *History) Sent(o *Op) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o.sends++
}

// Answer takes in an answer: the counter's value, and whether the operation was new. From is for the text of a failure.
func (h *History) Answer(o *Op, value int64, applied bool, from string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o.answers++
	if o.value != 0 {
		h.again++
		if o.value != value || o.applied && applied {
			h.w.Fail("%s %s was answered %d (applied %v), and now %d (applied %v) by %s", o.Key, o.ID, o.value, o.applied, value, applied, from)
		}
		o.applied = o.applied || applied
		return
	}
	h.answered++
	c := h.counter(o.Key)
	o.value, o.applied = value, applied
	if other := c.by[value]; other != nil {
		h.w.Fail("%s: %s and %s were both answered %d, the second by %s", o.Key, other.ID, o.ID, value, from)
	}
	c.by[value] = o
	if value <= o.least || value > c.sent {
		h.w.Fail("%s: %s was answered %d by %s; %d was answered before it was sent, and %d operations were ever sent", o.Key, o.ID, value, from, o.least, c.sent)
	}
	c.highest = max(c.highest, value)
}

// Read begins a read of a counter. The function that it returns takes in the answer.
func (h *History) Read(key string) func(value int64, from string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.counter(key)
	least := c.highest
	return func(value int64, from string) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.reads++
		if value < least || value > c.sent {
			h.w.Fail("%s is read as %d at %s after %d was answered, and %d operations were ever sent", key, value, from, least, c.sent)
		}
		c.highest = max(c.highest, value)
	}
}

// Counts returns how many operations were answered, how many answers were given again, and how many reads.
func (h *History) Counts() (answered, again, reads int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.answered, h.again, h.reads
}

// facts returns what is read of the counters once every operation has been answered.
func (h *History) facts() (all []Fact) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(h.counters)) {
		f := Fact{Query: []string{"CGET", key}, Answer: fmt.Sprint(h.counters[key].sent)}
		if f.Answer == "0" { // it was only read
			f.Answer = "<nil>"
		}
		all = append(all, f)
	}
	return all
}

// Complete fails the world unless every operation has an answer of its own, and they are 1 to n.
func (h *History) Complete() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(h.counters)) {
		if c := h.counters[key]; int64(len(c.by)) != c.sent || c.highest != c.sent {
			h.w.Fail("%s: %d answers, the highest %d, of %d operations", key, len(c.by), c.highest, c.sent)
		}
	}
	for _, o := range h.ops {
		if !o.applied && o.answers == o.sends {
			h.w.Fail("%s %s was sent %d times, and no answer says that it was applied", o.Key, o.ID, o.sends)
		}
	}
}
