package store

import "github.com/fbfkv/fbfkv/store/seen"

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

// openedFirst returns when the oldest open hold was opened, Unix milliseconds; 0: none is open. It looks at
// all of them only if the one that was the oldest has ended.
func (h *holdings) openedFirst() int64 {
	if len(h.due) == 0 {
		return 0
	}
	if h.oldest == 0 {
		h.oldest = h.due[0].opened
		for _, o := range h.due {
			h.oldest = min(h.oldest, o.opened)
		}
	}
	return h.oldest
}
