package store

import (
	"encoding/binary"
	"maps"
	"slices"

	"github.com/fbfkv/fbfkv/store/coding"
	"github.com/fbfkv/fbfkv/store/part"
)

// What other regions owe. Of an opid that several regions applied one application counts, and each
// of the others is taken back by the region that made it. Until that is heard here, it is known as
// owed: if that region is lost, its heir takes it back (regionremove.go). It is settled when
//
//	the region's take-back arrives, with its log or in its part
//	a deletion has removed what was applied
//	the key is dropped
//
// A region whose take-back came first owes nothing: when it is heard, the record of its operation
// becomes that of the one which counts (regionLost), so that nobody later finds that it lost. An
// heir's take-backs stay in the part until the key ends, so that there one look tells.

// maxOwed bounds what a partition knows to be owed. What is beyond it may count twice if its region
// is lost before it takes it back, and is counted as unchecked.
const maxOwed = 64 << 10

// What an entry says of an operation that is owed.
const (
	owedNew     = 0
	owedTold    = 1 // and others are told, as the region that owes it is gone
	owedSettled = 2
)

// owedOp is an operation that a region is to take back: it applied it at Dot of its partition, and
// Made is what that added.
type owedOp struct {
	Region part.Region
	Dot    uint64
	Made   int64
}

// owedOps are those of a partition.
type owedOps struct {
	byKey map[string][]owedOp
	count int
}

func (o owedOps) clone() owedOps {
	n := owedOps{maps.Clone(o.byKey), o.count}
	for k, ops := range n.byKey {
		n.byKey[k] = slices.Clone(ops)
	}
	return n
}

// owedByGone are the operations of a key that regions which are gone owe.
func (g *regions) owedByGone(key []byte) (owed []owedOp) {
	for _, o := range g.owed.byKey[string(key)] {
		if g.gone(o.Region) {
			owed = append(owed, o)
		}
	}
	return owed
}

// find returns the place of an operation among those of its key; -1: it is not known.
func (o *owedOps) find(key []byte, op owedOp) int {
	return slices.IndexFunc(o.byKey[string(key)], func(k owedOp) bool { return k.Region == op.Region && k.Dot == op.Dot })
}

func (o *owedOps) add(key []byte, op owedOp) {
	if o.byKey == nil {
		o.byKey = make(map[string][]owedOp)
	}
	o.byKey[string(key)] = append(o.byKey[string(key)], op)
	o.count++
}

func (o *owedOps) remove(key []byte, i int) {
	ops := slices.Delete(o.byKey[string(key)], i, i+1)
	if o.count--; len(ops) > 0 {
		o.byKey[string(key)] = ops
		return
	}
	delete(o.byKey, string(key))
}

func (o owedOp) appendTo(b []byte) []byte {
	b = binary.AppendUvarint(append(b, byte(o.Region)), o.Dot)
	return binary.AppendVarint(b, o.Made)
}

func (r *reader) owedOp() owedOp {
	o := owedOp{part.Region(r.Byte()), r.Uvarint(), r.Varint()}
	if o.Region >= part.MaxRegions || o.Dot == 0 {
		r.Fail()
	}
	return o
}

// appendTo appends what the state row has of them: how many keys, and for each the key, how many
// operations, and these.
func (o *owedOps) appendTo(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(o.byKey)))
	for _, key := range slices.Sorted(maps.Keys(o.byKey)) {
		b = coding.AppendBytes(b, []byte(key))
		b = binary.AppendUvarint(b, uint64(len(o.byKey[key])))
		for _, op := range o.byKey[key] {
			b = op.appendTo(b)
		}
	}
	return b
}

func (r *reader) owed() (o owedOps) {
	var last []byte
	for n := r.UpTo(maxOwed); n > 0 && r.err() == nil; n-- {
		key := r.Bytes()
		count := r.UpTo(maxOwed)
		if string(key) <= string(last) || count == 0 {
			r.Fail()
		}
		for last = key; count > 0 && r.err() == nil; count-- {
			op := r.owedOp()
			if o.find(key, op) >= 0 {
				r.Fail()
			}
			o.add(key, op)
		}
	}
	return o
}

// settled reports whether parts show that an operation is not owed any more. Before this region has
// levelled, it may hear that a removed one owes something that it does not know of.
func (p *partition) settled(parts part.Parts, o owedOp) bool {
	owes, here := parts.Owes(o.Region, o.Dot)
	return !owes && (here || !p.levelling(o.Region))
}

// settledBy adds what parts show to be settled of a key.
func (p *partition) settledBy(key []byte, parts part.Parts, settled []owedOp) []owedOp {
	for _, o := range p.regions.owed.byKey[string(key)] {
		if p.settled(parts, o) && !slices.Contains(settled, o) {
			settled = append(settled, o)
		}
	}
	return settled
}

// settle logs that operations are not owed any more. Its room is reserved.
func (x *decider) settle(r *ref, settled []owedOp) {
	for _, o := range settled {
		x.log(r.p, &entry{kind: entryOwed, key: r.key, r: &regional{owed: o, what: owedSettled}})
	}
}

// owe logs that another region is to take an operation back, unless that is known or has been done. If
// that region is gone, others must hear of it, unless one of them has told it.
func (x *decider) owe(r *ref, o owedOp, told bool) {
	p := r.p
	g := p.regions
	m := g.member(o.Region)
	switch {
	case m == nil || o.Region == g.Self || g.owed.find(r.key, o) >= 0 || p.settled(r.c.parts(), o):
		return
	case g.owed.count >= maxOwed:
		p.ids[o.Region].Unchecked++
		return
	}
	what := byte(owedNew)
	if m.Gone && m.Heir != g.Self && !told && !p.levelling(o.Region) {
		what = owedTold // before that it is told when this region has levelled
	}
	x.log(p, &entry{kind: entryOwed, key: r.key, r: &regional{owed: o, what: what}})
}

// redoOwed redoes that something is owed, or is not any more.
func (p *partition) redoOwed(e *entry, seq uint64) error {
	if seq <= p.marks.counters {
		return nil
	}
	if p.regions == nil {
		return errCorruptEntry
	}
	o := &p.regions.owed
	switch i := o.find(e.key, e.r.owed); {
	case e.r.what == owedSettled && i >= 0:
		o.remove(e.key, i)
	case e.r.what != owedSettled && i < 0:
		o.add(e.key, e.r.owed)
		if end := &p.ended; !p.regions.gone(e.r.owed.Region) || !end.owes {
			break
		} else if end.owes = len(end.keys) < maxEnded; end.owes {
			end.keys = append(end.keys, string(e.key))
		}
	}
	return nil
}

// Lost says that Region has taken back what it applied at Dot, because Winner counts.
type Lost struct {
	Region part.Region
	Dot    uint64
	Winner Heard
}

// regionLost takes note of another region's take-back.
func (x *decider) regionLost(op *Op) error {
	r := &x.of(op)[0]
	l, ok := op.Object.(*Lost)
	if !ok {
		return ErrOption
	}
	g := r.p.regions
	if g == nil {
		return ErrNoRegions
	}
	lost := owedOp{Region: l.Region, Dot: l.Dot}
	if i := g.owed.find(r.key, lost); i >= 0 {
		x.settle(r, []owedOp{g.owed.byKey[string(r.key)][i]})
		return nil
	}
	r.latest(op.ID)
	w := &l.Winner
	if r.verdict == verdictSeen && r.seen.Other && r.seen.Region == l.Region && r.seen.Dot == l.Dot && w.Origin != g.Self && g.member(w.Origin) != nil {
		x.hear(op, r, w, r.seen.Taken)
	}
	return nil
}

// regionOwe takes note of what another region knows to be owed by one that is gone: if the heir is lost, this
// one may be the next.
func (x *decider) regionOwe(op *Op) error {
	r := &x.of(op)[0]
	o, ok := op.Object.(*owedOp)
	if !ok {
		return ErrOption
	}
	if r.p.regions == nil {
		return ErrNoRegions
	}
	if r.p.regions.gone(o.Region) {
		x.owe(r, *o, true)
	}
	return nil
}

// takeBackFor settles, in an heir, what removed regions owe of a key; elsewhere it notes what is
// settled. It reports whether something is still owed.
func (x *decider) takeBackFor(r *ref) (stays bool) {
	p := r.p
	for _, o := range slices.Clone(p.regions.owed.byKey[string(r.key)]) {
		parts := r.c.parts()
		_, full := parts.CanTakeBack(o.Region, o.Dot)
		switch {
		case p.settled(parts, o):
		case !p.inherited(o.Region) || full:
			stays = true
			continue
		case x.asHeir(r, o.Region, func(parts *part.Parts, seq uint64) { parts.TakeBack(o.Region, seq, o.Dot, o.Made) }) != nil:
			return true
		}
		if x.reserveMore(entryRoom+len(r.key)) != nil {
			return true
		}
		x.settle(r, []owedOp{o})
	}
	return stays
}
