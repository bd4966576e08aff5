package store

import (
	"encoding/binary"
	"maps"
	"slices"

	"github.com/fbfkv/fbfkv/store/coding"
	"github.com/fbfkv/fbfkv/store/part"
)

// What regions owe. Of an opid that several regions applied one application counts, and each
// of the others is taken back by the region that made it. Until that is heard here, it is known as
// owed: if that region is lost, its heir takes it back (regionremove.go). It is settled when
//
//	the region's take-back arrives, with its log or in its part
//	deletions have removed what was applied and the winner
//	the key is dropped
//
// The region takes it back even if a deletion has removed it, unless one has removed the winner as well: the
// deletion was of the operation, so the winner does not count either. A drain hands out nothing of
// what is known to be owed (drained).
//
// A region whose take-back came first owes nothing: when it is heard, the record of its operation
// becomes that of the one which counts (regionLost), so that nobody later finds that it lost. An
// heir's take-backs stay in the part until the key ends, so that there one look tells.
//
// A region itself may have no room for a take-back (part.CanTakeBack). Then the record is marked at once, and
// others hear both that it lost and that it is owed. The cycle takes back what this region owes when there is
// room again (pay): the sum is late, never wrong.

const (
	// maxOwed bounds the operations that a partition knows other regions to owe. One beyond it may
	// count twice if its region is lost before it takes it back, and is counted as unchecked. Only
	// memory bounds the operations that this region owes.
	maxOwed = 64 << 10
	// payBatch bounds the take-backs that one batch of the cycle makes, while clients wait for the partition.
	payBatch = 512
)

// The states of an owed operation that an entry may tell.
const (
	owedNew     = 0
	owedTold    = 1 // new, and others are told, as the region that owes it is gone
	owedSettled = 2
)

func compareOwed(a, b part.Owed) int { return a.Compare(b.Applied) }

// owedAt is a debt of a region, of its application at dot, to be compared.
func owedAt(r part.Region, dot uint64) part.Owed {
	return part.Owed{Applied: part.Applied{Region: r, Dot: dot}}
}

// owedOps are the owed operations of a partition.
type owedOps struct {
	byKey map[string][]part.Owed // ordered
	count [part.MaxRegions]int
}

func (o owedOps) clone() owedOps {
	n := owedOps{maps.Clone(o.byKey), o.count}
	for k, ops := range n.byKey {
		n.byKey[k] = slices.Clone(ops)
	}
	return n
}

// byOthers is how many operations others than a region owe.
func (o *owedOps) byOthers(self part.Region) (n int) {
	for _, c := range o.count {
		n += c
	}
	return n - o.count[self]
}

// pays reports whether this region may be the one that takes back what a region owes.
func (g *regions) pays(r part.Region) bool { return r == g.Self || g.gone(r) }

// owedToTell are the operations of a key that this region and regions which are gone owe: nobody
// else tells them.
func (g *regions) owedToTell(key []byte) (owed []part.Owed) {
	for _, o := range g.owed.byKey[string(key)] {
		if g.pays(o.Region) {
			owed = append(owed, o)
		}
	}
	return owed
}

// find returns the operation as it is among those of its key, and whether it is.
func (o *owedOps) find(key []byte, op part.Owed) (is part.Owed, known bool) {
	ops := o.byKey[string(key)]
	i, known := slices.BinarySearchFunc(ops, op, compareOwed)
	if known {
		is = ops[i]
	}
	return is, known
}

// add adds operations of a key, ordered, and reports whether it had none.
func (o *owedOps) add(key []byte, add []part.Owed) {
	if o.byKey == nil {
		o.byKey = make(map[string][]part.Owed)
	}
	ops := o.byKey[string(key)]
	for _, op := range add {
		if i, ok := slices.BinarySearchFunc(ops, op, compareOwed); !ok {
			ops = slices.Insert(ops, i, op)
			o.count[op.Region]++
		}
	}
	o.byKey[string(key)] = ops
}

// of returns what a region owes of a key. The next change moves it.
func (o *owedOps) of(key []byte, r part.Region) []part.Owed {
	ops := o.byKey[string(key)]
	from, _ := slices.BinarySearchFunc(ops, owedAt(r, 0), compareOwed)
	to, _ := slices.BinarySearchFunc(ops, owedAt(r+1, 0), compareOwed)
	return ops[from:to]
}

// remove removes operations of a key, ordered.
func (o *owedOps) remove(key []byte, gone []part.Owed) {
	ops := o.byKey[string(key)]
	first, _ := slices.BinarySearchFunc(ops, gone[0], compareOwed)
	kept := slices.DeleteFunc(ops[first:], func(op part.Owed) bool {
		for len(gone) > 0 && compareOwed(gone[0], op) < 0 {
			gone = gone[1:]
		}
		is := len(gone) > 0 && compareOwed(gone[0], op) == 0
		if is {
			o.count[op.Region]--
		}
		return is
	})
	if ops = ops[:first+len(kept)]; len(ops) == 0 {
		delete(o.byKey, string(key))
	} else {
		o.byKey[string(key)] = ops
	}
}

// appendApplied appends the region u8 of an application, its dot u, and what it added v.
func appendApplied(b []byte, a part.Applied) []byte {
	return binary.AppendVarint(binary.AppendUvarint(append(b, byte(a.Region)), a.Dot), a.Made)
}

func (r *reader) applied() part.Applied {
	a := part.Applied{Region: part.Region(r.Byte()), Dot: r.Uvarint(), Made: r.Varint()}
	if a.Region >= part.MaxRegions || a.Dot == 0 {
		r.Fail()
	}
	return a
}

// appendOwed appends how many operations there are, and for each its application, and the winner.
func appendOwed(b []byte, ops []part.Owed) []byte {
	b = binary.AppendUvarint(b, uint64(len(ops)))
	for _, o := range ops {
		b = appendApplied(appendApplied(b, o.Applied), o.Winner)
	}
	return b
}

// owedOps reads what appendOwed wrote: ordered, without repeats.
func (r *reader) owedOps() (ops []part.Owed) {
	for n := r.UpTo(uint64(len(r.Rest) / 6)); n > 0 && r.err() == nil; n-- {
		o := part.Owed{Applied: r.applied(), Winner: r.applied()}
		if i := len(ops); i > 0 && compareOwed(o, ops[i-1]) <= 0 {
			r.Fail()
		}
		ops = append(ops, o)
	}
	return ops
}

// appendTo appends what the state row has of them: how many keys, and for each the key, and its operations.
func (o *owedOps) appendTo(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(o.byKey)))
	for _, key := range slices.Sorted(maps.Keys(o.byKey)) {
		b = coding.AppendBytes(b, []byte(key))
		b = appendOwed(b, o.byKey[key])
	}
	return b
}

func (r *reader) owed() (o owedOps) {
	var last []byte
	for n := r.UpTo(uint64(len(r.Rest))); n > 0 && r.err() == nil; n-- {
		key := r.Bytes()
		ops := r.owedOps()
		if string(key) <= string(last) || len(ops) == 0 {
			r.Fail()
		}
		last = key
		o.add(key, ops)
	}
	return o
}

// settled reports whether parts show that an operation is not owed any more. Before this region has
// levelled, it may hear that a removed one owes something that it does not know of.
func (p *machine) settled(parts part.Parts, o part.Owed) bool {
	owes, here := parts.Owes(o)
	return !owes && (here || !p.levelling(o.Region))
}

// settledBy returns what parts show to be settled of a key; taken, ordered, are take-backs that they may have
// forgotten since. It looks once at each operation that is owed, and at each take-back.
func (p *machine) settledBy(key []byte, parts part.Parts, taken []part.Owed) (settled []part.Owed) {
	ops := p.regions.owed.byKey[string(key)]
	for i := range parts {
		q := &parts[i]
		from, _ := slices.BinarySearchFunc(ops, owedAt(q.Region, 0), compareOwed)
		if from == len(ops) || ops[from].Region != q.Region {
			continue
		}
		for _, u := range q.Undo {
			taken = append(taken, owedAt(q.Region, u.Dot))
		}
	}
	slices.SortFunc(taken, compareOwed)
	region, ends := part.Region(part.MaxRegions), parts.Ends()
	var q part.Part
	for _, o := range ops {
		if o.Region != region {
			region, q = o.Region, parts.Of(o.Region)
		}
		for len(taken) > 0 && compareOwed(taken[0], o) < 0 {
			taken = taken[1:]
		}
		is := len(taken) > 0 && compareOwed(taken[0], o) == 0 ||
			o.Dot <= q.Base.Clock && !parts.Holds(ends(o.Winner))
		if is || o.Dot > q.Clock && !p.levelling(region) { // else the key was dropped since
			settled = append(settled, o)
		}
	}
	return settled
}

// someRemoved reports whether deletions may have removed something that is owed of a key, and its winner.
func (p *machine) someRemoved(key []byte, parts part.Parts) bool {
	ends := parts.Ends()
	return slices.ContainsFunc(parts, func(q part.Part) bool {
		ops := p.regions.owed.of(key, q.Region)
		return len(ops) > 0 && ops[0].Dot <= q.Base.Clock && !parts.Holds(ends(ops[0].Winner))
	})
}

// settles adds what a change, which is not in parts yet, takes back or forgets of take-backs.
func (ch *Change) settles(parts part.Parts, taken []part.Owed) []part.Owed {
	switch ch.Kind {
	case ChangeTakeBack:
		return append(taken, owedAt(ch.Region, ch.Dot))
	case ChangeSpent:
		clocks := ch.Spent.Clocks
		for _, u := range parts.Of(ch.Region).Undo {
			for len(clocks) > 0 && clocks[0] < u.Clock {
				clocks = clocks[1:]
			}
			if len(clocks) > 0 && clocks[0] == u.Clock {
				taken = append(taken, owedAt(ch.Region, u.Dot))
			}
		}
	}
	return taken
}

// settle logs that operations are not owed any more. Its room is reserved.
func (x *turn) settle(r *ref, settled []part.Owed) {
	if len(settled) > 0 {
		x.log(r.p, &entry{kind: entryOwed, key: r.key, r: &regional{owed: settled, what: owedSettled}})
	}
}

// owedRoom bounds what an entry that names operations takes in the log.
func (r *ref) owedRoom(ops int) int {
	return entryRoom + len(r.key) + ops*2*(1+2*binary.MaxVarintLen64)
}

// oweTo is owe of what lost against an operation of another region, the winner. A region that has
// said that it took the winner has taken its own operation back, or has told that it owes that. Its
// part need not show it any more: a take-back is forgotten once all have acknowledged it, and a
// region that took a state then still has the record of what lost.
func (x *turn) oweTo(r *ref, lost, winner part.Applied) {
	g := r.p.regions
	known := g.member(lost.Region) != nil && g.member(winner.Region) != nil
	if known && g.heard[g.source(lost.Region, r.slot)][g.source(winner.Region, r.slot)] < winner.Dot {
		x.owe(r, part.Owed{Applied: lost, Winner: winner}, false)
	}
}

// owe logs that another region is to take an operation back, unless that is known or has been done. If
// that region is gone, others must hear of it, unless one of them has told it.
func (x *turn) owe(r *ref, o part.Owed, told bool) {
	p := r.p
	g := p.regions
	m := g.member(o.Region)
	switch _, known := g.owed.find(r.key, o); {
	case m == nil || o.Region == g.Self || known || p.settled(r.c.parts(), o):
		return
	case g.owed.byOthers(g.Self) >= maxOwed:
		p.ids[o.Region].Unchecked++
		return
	}
	what := byte(owedNew)
	if m.Gone && m.Heir != g.Self && !told && !p.levelling(o.Region) {
		what = owedTold // before that it is told when this region has levelled
	}
	x.log(p, &entry{kind: entryOwed, key: r.key, r: &regional{owed: []part.Owed{o}, what: what}})
}

// redoOwed redoes that something is owed, or is not any more.
func (p *machine) redoOwed(e *entry, seq uint64, _ moment) error {
	if seq <= p.marks.counters {
		return nil
	}
	if p.regions == nil {
		return errCorruptEntry
	}
	if e.r.what == owedSettled {
		p.regions.owed.remove(e.key, e.r.owed)
	} else {
		p.noteOwed(e.key, e.r.owed)
	}
	return nil
}

// noteOwed adds owed operations of a key. The cycle looks at those that may be taken back here.
func (p *machine) noteOwed(key []byte, ops []part.Owed) {
	g, end := p.regions, &p.ended
	first := len(g.owed.of(key, ops[0].Region)) == 0
	g.owed.add(key, ops)
	if end.owes && first && g.pays(ops[0].Region) {
		if end.owes = len(end.keys) < maxEnded; end.owes {
			end.keys = append(end.keys, string(key))
		}
	}
}

// Lost says that Region takes back what it applied at Dot, because Winner counts.
type Lost struct {
	Region part.Region
	Dot    uint64
	Made   int64 // what it added
	Owed   bool  // it has not been taken back yet
	Winner Heard
}

// regionLost takes note of another region's take-back.
func (x *turn) regionLost(op *Op) error {
	r := &x.of(op)[0]
	l, ok := op.Object.(*Lost)
	if !ok {
		return ErrOption
	}
	g := r.p.regions
	if g == nil {
		return ErrNoRegions
	}
	lost := part.Owed{Applied: part.Applied{Region: l.Region, Dot: l.Dot, Made: l.Made},
		Winner: l.Winner.applied()}
	switch was, known := g.owed.find(r.key, lost); {
	case known && l.Owed && was == lost:
		return nil
	case known && !l.Owed:
		x.settle(r, []part.Owed{lost})
		return nil
	case known: // its region knows in whose favour it will take it back
		x.settle(r, []part.Owed{lost})
		x.owe(r, lost, false)
		return nil
	case l.Owed:
		x.owe(r, lost, false)
	}
	r.judgeHeardAgain(op.ID)
	w := &l.Winner
	if r.verdict == verdictSeen && r.seen.Other && r.seen.Region == l.Region && r.seen.Dot == l.Dot &&
		w.Origin != g.Self && g.member(w.Origin) != nil {
		x.noteConflict(r, Conflict{ID: string(op.ID), Winner: w.Origin, Loser: l.Region, Delta: l.Made,
			Applied: w.Wall})
		x.hear(op, r, w, r.seen.Taken)
	}
	return nil
}

// regionOwe notes an operation that another region owes, or that it knows a region that is gone to owe:
// if the heir is lost, this region may be the next.
func (x *turn) regionOwe(op *Op) error {
	r := &x.of(op)[0]
	o, ok := op.Object.(*part.Owed)
	if !ok {
		return ErrOption
	}
	if r.p.regions == nil {
		return ErrNoRegions
	}
	x.owe(r, *o, true)
	return nil
}

// pay takes back what this region owes of a key, as far as there is room, and in an heir what removed regions
// owe; everywhere it notes what is settled. It reports whether something is still owed.
func (x *turn) pay(r *ref) (stays bool) {
	p := r.p
	settled := p.settledBy(r.key, r.c.parts(), nil)
	if len(settled) > 0 {
		if x.world.reserveMore(r.owedRoom(len(settled))) != nil {
			p.regions.news++ // as below
			return true
		}
		x.settle(r, settled)
	}
	for _, m := range p.regions.Members {
		all := p.regions.owed.of(r.key, m.Region)
		ops := slices.Clone(all[len(all)-min(len(all), x.toPay):]) // the last ones: fewer must be moved
		n, full := 0, false
		switch {
		case m.Region == p.self():
			n, full = x.payOwn(r, ops)
		case p.inherited(m.Region):
			n = x.payAsHeir(r, m.Region, ops)
		default:
			continue
		}
		if x.toPay -= n; !full && n < len(all) {
			p.regions.news++ // the cycle comes back for the rest, though no other region says anything new
		}
	}
	return len(p.regions.owed.byKey[string(r.key)]) > 0
}

// payOwn takes back what this region owes, as far as there is room, and returns how many operations
// that are. full: only other regions make room for more, as they take what this one has told.
func (x *turn) payOwn(r *ref, ops []part.Owed) (n int, full bool) {
	for _, o := range slices.Backward(ops) {
		_, full = r.c.parts().CanTakeBack(o, x.undo)
		if full = full || r.c.kind.isObject(); full || x.world.reserveMore(entryRoom+len(r.key)) != nil {
			break
		}
		e := entry{kind: entryPaid, key: r.key, c: r.c,
			r: &regional{back: takeBack{Dot: o.Dot, Made: o.Made, Winner: o.Winner}}}
		e.takesBack(r, o)
		x.log(r.p, &e)
		n++
	}
	return n, full
}

// payAsHeir takes back what a removed region owes. There is always room, as its take-backs stay until the key
// ends. They are logged at once: each has a sequence of its own, the last one that of the entry.
func (x *turn) payAsHeir(r *ref, of part.Region, ops []part.Owed) (n int) {
	if len(ops) == 0 || x.world.reserveMore(r.owedRoom(2*len(ops))) != nil { // in the part, too
		return 0
	}
	err := x.asHeir(r, of, len(ops), func(parts *part.Parts, seq uint64) {
		for i, o := range ops {
			parts.TakeBack(seq+uint64(i), o)
		}
	})
	if err != nil {
		return 0
	}
	x.settle(r, ops)
	return len(ops)
}

const (
	// takeOps and takeBytes are how much one record takes, about, but for one section.
	takeOps   = 1024
	takeBytes = 256 << 10
	// bareEntries is from how many entries of a source on a position is logged although it has
	// brought nothing: that bounds what is read again after a crash, and what the source must keep.
	bareEntries = 4096
)

// drained is the value that a deletion hands out: without owed operations, which their regions take
// back though they are deleted.
func (x *turn) drained(r *ref) int64 {
	if r.p.regions == nil || r.c.kind != TypeCounter {
		return r.c.value
	}
	owed := r.p.regions.owed.byKey[string(r.key)]
	if len(owed) == 0 {
		return r.c.value
	}
	v, _ := r.c.asParts(r.p.self()).AsPaid(owed).Value()
	return v
}
