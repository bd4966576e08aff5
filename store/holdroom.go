package store

import (
	"cmp"
	"slices"

	"github.com/fbfkv/fbfkv/store/seen"
)

// The room of holds. A table's holds count with its filters, in all partitions together, against MAXMEMORY:
// most holds may be of one key, and so of one partition.

// heldFigures are the open holds of a table in one partition.
type heldFigures struct {
	Holds     uint64 // that are open
	HoldBytes uint64 // of memory
}

func (f *heldFigures) add(o heldFigures) {
	f.Holds += o.Holds
	f.HoldBytes += o.HoldBytes
}

// countHolds makes sure that the tables know their holds. They did with an earlier catalogue.
func (p *machine) countHolds() {
	h := &p.holds
	if h.counted == p.catalog {
		return
	}
	for _, t := range p.tables {
		t.held = heldFigures{}
	}
	for key, k := range h.keys {
		p.tableOf([]byte(key)).held.add(heldFigures{uint64(k.count), uint64(k.bytes)})
	}
	h.counted = p.catalog
}

// countHold counts a hold that was opened or, if n is -1, has ended, and what it took.
func (p *machine) countHold(t *tableState, n, bytes int64) {
	if p.memory.add(bytes); t == nil {
		p.holds.counted = nil
	} else if p.holds.counted == p.catalog {
		t.held.add(heldFigures{uint64(n), uint64(bytes)})
	}
}

// usedBy is what a table takes here.
func (p *machine) usedBy(t *tableState) int64 {
	if t == nil {
		return 0
	}
	p.countHolds()
	return int64(t.filter.Bytes() + t.held.HoldBytes)
}

// isFull reports whether a table has no room for so many bytes more.
func (p *machine) isFull(t *tableState, bytes uint64) bool {
	if t.def.MaxMemory == 0 {
		return false
	}
	used := p.memory.noteUse(t.def.Name, p.id, p.count, p.usedBy(t))
	return used+bytes > t.def.MaxMemory
}

// roomForHold refuses a hold for which there is no memory, or no room for the record of its end.
func (x *turn) roomForHold(op *Op, r *ref) error {
	bytes := uint64(holdBytes + len(op.ID))
	t, k := r.t, r.p.holds.ofKey(r.key)
	switch {
	case k == nil:
		bytes += uint64(keyHoldsBytes + len(r.key))
	case k.count >= MaxHolds:
		return ErrManyHolds
	}
	if r.others >= seen.MaxOthers {
		return ErrSameHash
	}
	pl := planner{memory: r.p.memory}
	switch {
	case r.p.isFull(t, bytes):
		t.figures.Refused++
		return errTableMemory
	case !pl.grant(bytes):
		t.figures.Refused++
		return ErrOutOfMemory
	}
	pl.settle()
	if r.p.diskFull(t) {
		t.figures.Refused++
		return errTableDisk
	}
	return nil
}

// ages counts open holds by when they were opened, so that the oldest is found without a look at each of a
// million: in at most maxAges spans of 2^shift milliseconds.
type ages struct {
	shift uint8
	spans []age // by time; each has a hold
}

type age struct {
	span  int64
	holds int
}

const maxAges = 512

// first returns about when the oldest hold was opened, the begin of its span; 0: none is open.
func (a *ages) first() int64 {
	if len(a.spans) == 0 {
		return 0
	}
	return a.spans[0].span << a.shift
}

// at returns where the span of a time is, or would be.
func (a *ages) at(opened int64) (i int, found bool) {
	span, last := opened>>a.shift, len(a.spans)-1
	if last >= 0 && a.spans[last].span == span { // most often
		return last, true
	}
	return slices.BinarySearchFunc(a.spans, span, func(a age, span int64) int {
		return cmp.Compare(a.span, span)
	})
}

// add counts a hold that was opened then.
func (a *ages) add(opened int64) {
	i, found := a.at(opened)
	if !found && len(a.spans) == maxAges {
		a.widen()
		i, found = a.at(opened)
	}
	if !found {
		a.spans = slices.Insert(a.spans, i, age{span: opened >> a.shift})
	}
	a.spans[i].holds++
}

// remove discounts a hold.
func (a *ages) remove(opened int64) {
	i, _ := a.at(opened)
	if a.spans[i].holds--; a.spans[i].holds == 0 {
		a.spans = slices.Delete(a.spans, i, i+1)
	}
	if len(a.spans) == 0 {
		a.shift = 0
	}
}

// widen doubles spans until there is room for a new one.
func (a *ages) widen() {
	for len(a.spans) == maxAges {
		a.shift++
		n := 0
		for _, o := range a.spans {
			if o.span >>= 1; n > 0 && a.spans[n-1].span == o.span {
				a.spans[n-1].holds += o.holds
				continue
			}
			a.spans[n] = o
			n++
		}
		a.spans = a.spans[:n]
	}
}
