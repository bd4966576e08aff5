package store

import "fmt"

// A change of an object may be large: a MERGE, or a chunk of a filter. One that is longer
// than maxChange is logged in pieces, so that no record of the log is much larger than
// that. The pieces have a number, the sequence of the first of them, and
// the last one makes all of them visible at once. They are logged under the partition's
// lock, so that nothing comes between them; but only a crash may: what it leaves unfinished
// the next start drops, and says so in the log.

// maxChange is how long a change may be that is one entry, bytes. Tests set it lower.
var maxChange = 256 << 10

// pieces are those of a change that is not finished.
type pieces struct {
	number uint64 // 0: there are none
	what   []byte
}

// changeLarge is changeObject for a change of any size, for which it finds space in the
// log. An error means that there is none, and nothing has changed.
func (x *decider) changeLarge(r *ref, what []byte) error {
	n := len(what)/maxChange + 1
	if err := x.reserveMore(len(what) + n*(entryRoom+len(r.key))); err != nil {
		return err
	}
	if len(what) <= maxChange {
		x.changeObject(r, what, 0)
		return nil
	}
	number := r.p.seq + 1
	for ; len(what) > maxChange && x.err == nil; what = what[maxChange:] {
		x.log(r.p, &entry{kind: entryPiece, delta: int64(number), id: what[:maxChange]})
		if !x.atomic {
			x.apply() // a record of its own
		}
	}
	if x.err == nil {
		x.log(r.p, &entry{kind: entryLast, typ: r.c.kind, key: r.key, delta: int64(number), id: what, c: r.c})
	}
	return nil
}

// redoPiece takes in a piece of a change.
func (p *partition) redoPiece(e *entry, seq uint64) error {
	if seq <= p.marks.filters {
		return nil // a snapshot has all pieces of a change, or none
	}
	switch number := uint64(e.delta); {
	case number == seq: // the first one; what was not finished before it never will be
		p.pieces = pieces{}
	case number == p.pieces.number:
	case p.marks.rebuilt:
		return nil // the log begins behind the first of them
	default:
		return fmt.Errorf("%w: a piece of change %d, while %d is not finished", errCorruptEntry, number, p.pieces.number)
	}
	p.pieces.number = uint64(e.delta)
	p.pieces.what = append(p.pieces.what, e.id...)
	return nil
}

// redoLast redoes a change whose last piece has come.
func (p *partition) redoLast(e *entry, seq uint64, at moment) error {
	if seq <= p.marks.filters {
		return nil
	}
	whole := p.pieces
	if whole.number != uint64(e.delta) {
		if p.marks.rebuilt {
			return nil
		}
		return fmt.Errorf("%w: the end of change %d, while %d is not finished", errCorruptEntry, uint64(e.delta), whole.number)
	}
	p.pieces = pieces{}
	change := *e
	change.kind, change.id = entryChange, append(whole.what, e.id...)
	return p.redoObject(&change, seq, at)
}

// redoDrop forgets pieces whose last one will never come.
func (p *partition) redoDrop(e *entry) {
	if p.pieces.number == uint64(e.delta) {
		p.pieces = pieces{}
	}
}

// unfinished are pieces that recovery has found.
type unfinished struct {
	p      *partition
	number uint64
}

// takeUnfinished takes the partition's pieces, which count for nothing from now on.
func (p *partition) takeUnfinished() unfinished {
	u := unfinished{p, p.pieces.number}
	p.pieces = pieces{}
	return u
}

// dropPieces logs that unfinished pieces are dropped.
func (s *Store) dropPieces(all []unfinished) error {
	for _, u := range all {
		x := s.internal(u.p)
		x.lock()
		if !x.moreRoom(entryRoom) {
			x.unlock()
			return ErrDiskFull
		}
		x.log(u.p, &entry{kind: entryDrop, delta: int64(u.number)})
		if err := x.finish(); err != nil {
			return err
		}
	}
	return nil
}
