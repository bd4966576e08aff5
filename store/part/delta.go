package part

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/fbfkv/fbfkv/store/coding"
)

// Delta is what a change has made of the parts of a counter: all of them as they are afterwards, but of their
// take-backs, which may be a thousand, only the difference. It is encoded as parts are (code.go), but for a
// part that keeps take-backs:
//
//	kept    if bit 4: number of those that it does not keep u, and for each: its clock - that of
//	        the one before u; the undo that follows has the new ones alone
//
// With no such part it is the encoding of the parts.
type Delta struct {
	parts Parts // Undo: the new ones, if the part keeps some
	kept  []*keptUndo
}

// keptUndo says that a part keeps the take-backs that it had, but for those at some clocks, which ascend.
type keptUndo struct{ dropped []uint64 }

func (k *keptUndo) appendTo(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(k.dropped)))
	before := uint64(0)
	for _, clock := range k.dropped {
		b = binary.AppendUvarint(b, clock-before)
		before = clock
	}
	return b
}

// readKept reads what a part at a clock keeps. Each number takes a byte or more, so memory is
// bounded by input.
func readKept(r *coding.Reader, clock uint64) *keptUndo {
	k, before := new(keptUndo), uint64(0)
	for n := r.UpTo(uint64(len(r.Rest))); n > 0 && !r.Bad; n-- {
		next := before + r.UpTo(clock-before)
		if next == before {
			r.Fail()
		}
		k.dropped, before = append(k.dropped, next), next
	}
	return k
}

// AppendDelta appends what a change has made of before.
func AppendDelta(b []byte, before, after Parts) []byte {
	b = binary.AppendUvarint(b, uint64(len(after)))
	for i := range after {
		q := &after[i]
		if at, ok := before.find(q.Region); ok && len(q.Undo) > 0 {
			if kept, added := q.undoSince(before[at].Undo); kept != nil {
				b = q.appendWith(b, added, kept)
				continue
			}
		}
		b = q.appendTo(b)
	}
	return b
}

// undoSince returns what the part keeps of its earlier take-backs, and which are new; nil if it keeps none.
func (q *Part) undoSince(was []Undo) (kept *keptUndo, added []Undo) {
	k, i := keptUndo{}, 0
	if n := len(was); n > 0 && n <= len(q.Undo) && &was[0] == &q.Undo[0] {
		return &k, q.Undo[n:] // the same ones, appended to
	}
	for _, u := range was {
		if i < len(q.Undo) && q.Undo[i] == u {
			i++
		} else {
			k.dropped = append(k.dropped, u.Clock)
		}
	}
	if i == 0 {
		return nil, nil
	}
	return &k, q.Undo[i:]
}

// DecodeDelta reads what AppendDelta wrote, and nothing else, as Decode does.
func DecodeDelta(b []byte) (d Delta, err error) {
	r := coding.Reader{Rest: b}
	d.parts = make(Parts, r.UpTo(MaxRegions))
	d.kept = make([]*keptUndo, len(d.parts))
	for i := range d.parts {
		d.kept[i] = d.parts[i].read(&r, allFields|keepsUndo)
		if i > 0 && d.parts[i].Region <= d.parts[i-1].Region {
			r.Fail()
		}
	}
	r.End()
	var again [256]byte
	if r.Bad || !bytes.Equal(d.AppendTo(again[:0]), b) {
		return Delta{}, ErrBad
	}
	return d, nil
}

// AppendTo appends the encoding.
func (d *Delta) AppendTo(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(d.parts)))
	for i := range d.parts {
		b = d.parts[i].appendWith(b, d.parts[i].Undo, d.kept[i])
	}
	return b
}

// Keeps reports whether what the parts were before must be known.
func (d *Delta) Keeps() bool {
	return slices.ContainsFunc(d.kept, func(k *keptUndo) bool { return k != nil })
}

// Heads returns the parts without the take-backs that they keep.
func (d *Delta) Heads() Parts { return d.parts }

// Parts returns the parts of a counter that were before. It may append to the take-backs of these.
func (d *Delta) Parts(before Parts) Parts {
	after := slices.Clone(d.parts)
	for i, k := range d.kept {
		if k == nil {
			continue
		}
		q := before.get(after[i].Region)
		undo := q.Undo
		if len(k.dropped) > 0 {
			undo = q.undoWithout(k.dropped)
		}
		after[i].Undo = append(undo, after[i].Undo...)
	}
	return after
}
