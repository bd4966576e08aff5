package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// History is what clients sent to counters, each operation with the delta 1, and what they were
// answered. It is checked as it grows:
//
//   - the answers of a counter are 1 to n, each given to one operation;
//   - an operation that is sent again gets its first answer again;
//   - an operation is applied once, so if all that was sent of it was answered, one answer says
//     that it was applied;
//   - where operations are not recorded, one that is sent again gets the counter's present value;
//   - an answer and a read are not below what was answered before they were sent, nor above what
//     was ever sent.
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

	outcome
	options []string // of the command
	value   int64    // of its first answer; 0: none yet
	least   int64    // what its counter had been answered before it was sent
}

// outcome is what is known of an operation that is to happen once.
type outcome struct {
	sends, answers int
	applied        bool
}

// take takes in an answer: whether the operation was applied now.
func (o *outcome) take(w *World, what fmt.Stringer, applied bool, from string) {
	if o.answers++; o.applied && applied {
		w.Fail("%v was applied twice, the second time by %s", what, from)
	}
	o.applied = o.applied || applied
}

// complete fails the world if every answer says that something else had been applied.
func (o *outcome) complete(w *World, what fmt.Stringer) {
	if !o.applied && o.sends > 0 && o.answers == o.sends {
		w.Fail("%v was sent %d times, and no answer says that it was applied", what, o.sends)
	}
}

// counter is what is known of a counter.
type counter struct {
	sent    int64
	highest int64 // answer or read
	by      map[int64]*Op
	// unrecorded: the server keeps no records of its operations. brief: it forgets them, so they
	// may be given up. fleeting: the counter expires.
	unrecorded, brief, fleeting bool
}

// NewHistory returns the history of a world.
func NewHistory(w *World) *History { return &History{w: w, counters: make(map[string]*counter)} }

func (h *History) counter(key string) *counter {
	c := h.counters[key]
	if c == nil {
		table, _, _ := strings.Cut(key, ":")
		c = &counter{by: make(map[int64]*Op), unrecorded: table == approxTable || table == roughTable,
			brief:    table == shortTable || table == roughTable,
			fleeting: strings.HasPrefix(key, fleetingPrefix)}
		h.counters[key] = c
	}
	return c
}

// Send returns a new operation, which may be sent from now on.
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

// Answer takes in an answer: the counter's value, and whether the operation was new. From is for
// the text of a failure.
func (h *History) Answer(o *Op, value int64, applied bool, from string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.counter(o.Key)
	o.take(h.w, o, applied, from)
	if first := o.value == 0; !first || c.unrecorded && !applied {
		h.again++
		if !c.unrecorded && o.value != value {
			h.w.Fail("%v was answered %d, and now %d by %s", o, o.value, value, from)
		}
	} else {
		h.answered++
		o.value = value
		if other := c.by[value]; other != nil && !c.fleeting {
			h.w.Fail("%s: %s and %s were both answered %d, the second by %s", o.Key, other.ID, o.ID, value,
				from)
		}
		c.by[value] = o
	}
	least := o.least
	switch {
	case c.fleeting:
		least = 1
	case applied || !c.unrecorded:
		least++
	}
	if value < least || value > c.sent {
		h.w.Fail("%v was answered %d by %s; %d was answered before it was sent, and %d operations were "+
			"ever sent", o, value, from, o.least, c.sent)
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
			h.w.Fail("%s is read as %d at %s after %d was answered, and %d operations were ever sent", key,
				value, from, least, c.sent)
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
		switch c := h.counters[key]; {
		case c.brief || c.fleeting:
			f.Answer = ""
		case c.sent == 0: // it was only read
			f.Answer = "<nil>"
		}
		all = append(all, f)
	}
	return all
}

// forget forgets counters.
func (h *History) forget(gone func(key string) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.counters, func(key string, _ *counter) bool { return gone(key) })
	h.ops = slices.DeleteFunc(h.ops, func(o *Op) bool { return gone(o.Key) })
}

// Complete fails the world unless every operation has an answer of its own, and they are 1 to n.
func (h *History) Complete() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(h.counters)) {
		c := h.counters[key]
		if c.brief || c.fleeting || int64(len(c.by)) == c.sent && c.highest == c.sent || c.unrecorded &&
			c.highest == c.sent {
			continue
		}
		h.w.Fail("%s: %d answers, the highest %d, of %d operations", key, len(c.by), c.highest, c.sent)
	}
	for _, o := range h.ops {
		o.complete(h.w, o)
	}
}
