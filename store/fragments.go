package store

import "fmt"

// A change of an object may be large: a MERGE, or a chunk of a filter. One that is longer
// than maxChange is logged in fragments, so that no record of the log is much larger than
// that. The fragments have a number, the sequence of the first of them, and
// the last one makes all of them visible at once. They are logged under the partition's
// lock, so that nothing comes between them; but only a crash may: what it leaves unfinished
// the next start drops, and says so in the log.

// maxChange is how long a change may be that is one entry, bytes. Tests set it lower.
var maxChange = 256 << 10

// maxRecord bounds what an operation may log, and an atomic batch, bytes. The log counts a
// section's in 32 bits, and a writer or reader of a record has it in memory; a request of a
// megabyte, of a long key and many items, would log gigabytes. Tests set it lower.
var maxRecord = int64(1) << 30

// beginLarge is called before an operation logs its first entry, if that may be much: what
// others of the batch have logged becomes a record of its own if it is much.
func (x *turn) beginLarge(p *machine) {
	if !x.atomic && p.draft.first != 0 && int64(len(p.draft.section)) > x.world.maxRecord()/4 {
		x.world.endRecord()
	}
}

// fragments holds the fragments so far of a change that is not finished.
type fragments struct {
	number uint64 // 0: there are none
	what   []byte
}

// changeLarge is changeObject for a change of any size, for which it finds space in the
// log. An error means that there is none, or that the atomic batch is too large, and nothing
// has changed.
func (x *turn) changeLarge(r *ref, what []byte) error {
	if x.atomic && !x.world.roomFor(len(what)) {
		return ErrTooLarge
	}
	x.beginLarge(r.p)
	n := len(what)/maxChange + 1
	if err := x.world.reserveMore(len(what) + n*(entryRoom+len(r.key))); err != nil {
		return err
	}
	if len(what) <= maxChange {
		x.changeObject(r, what, 0)
		return nil
	}
	number := r.p.seq + 1
	for ; len(what) > maxChange && x.err == nil; what = what[maxChange:] {
		x.log(r.p, &entry{kind: entryFragment, delta: int64(number), id: what[:maxChange]})
		if !x.atomic {
			x.world.endRecord() // a record of its own
		}
	}
	if x.err == nil {
		x.log(r.p, &entry{kind: entryLast, typ: r.c.kind, key: r.key, delta: int64(number), id: what, c: r.c})
	}
	return nil
}

// redoFragment takes in a fragment of a change.
func (p *machine) redoFragment(e *entry, seq uint64, _ moment) error {
	if seq <= p.marks.filters {
		return nil // a snapshot has all fragments of a change, or none
	}
	switch number := uint64(e.delta); {
	case number == seq: // the first one; what was not finished before it never will be
		p.fragments = fragments{}
	case number == p.fragments.number:
	case p.marks.rebuilt:
		return nil // the log begins behind the first of them
	default:
		return fmt.Errorf("%w: a fragment of change %d, while %d is not finished", errCorruptEntry, number,
			p.fragments.number)
	}
	p.fragments.number = uint64(e.delta)
	p.fragments.what = append(p.fragments.what, e.id...)
	return nil
}

// redoLast redoes a change whose last fragment has come.
func (p *machine) redoLast(e *entry, seq uint64, at moment) error {
	if seq <= p.marks.filters {
		return nil
	}
	whole := p.fragments
	if whole.number != uint64(e.delta) {
		if p.marks.rebuilt {
			return nil
		}
		return fmt.Errorf("%w: the end of change %d, while %d is not finished", errCorruptEntry,
			uint64(e.delta), whole.number)
	}
	p.fragments = fragments{}
	change := *e
	change.kind, change.id = entryChange, append(whole.what, e.id...)
	return p.redoChange(&change, seq, at)
}

// redoDrop forgets fragments whose last one will never come.
func (p *machine) redoDrop(e *entry, _ uint64, _ moment) error {
	if p.fragments.number == uint64(e.delta) {
		p.fragments = fragments{}
	}
	return nil
}

// takeUnfinished takes the machine's fragments, which count for nothing from now on.
func (p *machine) takeUnfinished() (number uint64) {
	number, p.fragments = p.fragments.number, fragments{}
	return number
}
