package store

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/fbfkv/fbfkv/store/part"
)

// A region that is lost is removed: it stays in the set of members, as gone, with an heir, since its
// number is never given again, and what it counted counts on. Nobody reads it any more, and nobody
// answers it. Its changes that no other region has taken are lost. Then
//
//	each other region takes from each other one what that knows of it: parts and ids
//	                  (State), and says in its log what it still owes, and that it has levelled
//	the heir          when it has heard that of all, says the same: from now on it inherits
//	…                 takes back what the lost region owes, and closes its parts of keys that
//	                  ended. It tells whole parts, whose clocks are its own sequences: these jump
//	                  beyond the part's clock where that is ahead
//	all               count as acknowledged of the lost region's changes what is acknowledged
//	                  of the heir's log, from where it inherits on
//
// Everybody who has read the heir's log up to that place has all of the lost region, and what the
// heir does to it is behind that. If a further region joins, it levels, and the heir says again
// that it inherits. If one is removed, all levels anew, of all that were removed before: it may
// have told some of the others only what it knew of them, and it may have been the heir.
//
// A region that tells the values of a lost region tells no other region's values with them: if that
// other region were lost next, they would count without their ids. All regions know what the lost
// one owes, since its heir may be lost as well.

// statement is who says of which region that it has levelled.
type statement struct {
	gone part.Region
	by   RegionSource
}

// stated is when that was said, and to which removal it belongs.
type stated struct{ since, seq uint64 }

// levelled is a statement with that.
type levelled struct {
	Gone  part.Region
	Since uint64
	By    RegionSource
	Seq   uint64 // in the log of By; 0: of the entry itself
}

func (l *levelled) appendTo(b []byte) []byte {
	b = binary.AppendUvarint(append(b, byte(l.Gone)), l.Since)
	return binary.AppendUvarint(l.By.appendTo(b), l.Seq)
}

func (r *reader) levelled() levelled {
	l := levelled{part.Region(r.Byte()), r.Uvarint(), r.source(), r.Uvarint()}
	if l.Gone >= part.MaxRegions {
		r.Fail()
	}
	return l
}

func (g *regions) appendStated(b []byte) []byte {
	all := slices.SortedFunc(maps.Keys(g.stated), compareStatements)
	b = binary.AppendUvarint(b, uint64(len(all)))
	for _, k := range all {
		s := g.stated[k]
		b = (&levelled{k.gone, s.since, k.by, s.seq}).appendTo(b)
	}
	return b
}

// levelledBy returns what a source has said.
func (g *regions) levelledBy(from RegionSource) (all []levelled) {
	for k, s := range g.stated {
		if k.by == from {
			all = append(all, levelled{k.gone, s.since, k.by, s.seq})
		}
	}
	slices.SortFunc(all, func(a, b levelled) int { return cmp.Compare(a.Gone, b.Gone) })
	return all
}

func compareStatements(a, b statement) int {
	return cmp.Or(cmp.Compare(a.gone, b.gone), a.by.compare(b.by))
}

func (r *reader) stated() map[statement]stated {
	all := make(map[statement]stated)
	last, begun := statement{}, false
	for n := r.UpTo(uint64(len(r.Rest))); n > 0 && r.err() == nil; n-- {
		l := r.levelled()
		k := statement{l.Gone, l.By}
		if l.Seq == 0 || begun && compareStatements(k, last) <= 0 {
			r.Fail()
		}
		all[k], last, begun = stated{l.Since, l.Seq}, k, true
	}
	return all
}

// living reports whether a region is a member that was not removed.
func (s *RegionSet) living(r part.Region) bool {
	m := s.member(r)
	return m != nil && !m.Gone
}

// gone reports whether a region was removed.
func (s *RegionSet) gone(r part.Region) bool {
	m := s.member(r)
	return m != nil && m.Gone
}

// heirOf reports whether this region is the heir of one that was removed.
func (s *RegionSet) heirOf(r part.Region) bool {
	m := s.member(r)
	return m != nil && m.Gone && m.Heir == s.Self
}

// Remove returns the set in which regions are gone, with an heir. The heir also inherits from the
// regions whose heirs they were. Regions that were gone before are levelled anew: a lost region may
// have told only some of the others what it knew of them.
func (s RegionSet) Remove(heir part.Region, lost ...part.Region) (RegionSet, error) {
	s.Version++
	s.Members = slices.Clone(s.Members)
	for _, r := range lost {
		if !s.living(r) || r == s.Self {
			return s, fmt.Errorf("%w: region %d is no other member", ErrOption, r)
		}
		*s.member(r) = s.member(r).left(heir, s.Version)
	}
	for i := range s.Members {
		if m := &s.Members[i]; m.Gone && s.living(m.Heir) {
			m.Since = s.Version
		} else if m.Gone {
			*m = m.left(heir, s.Version)
		}
	}
	return s, s.Valid()
}

// left is a member that leaves what it counted to an heir.
func (m RegionMember) left(heir part.Region, version uint64) RegionMember {
	m.Gone, m.Heir, m.Since = true, heir, version
	return m
}

// follows refuses a set that makes this region one again, forgets a region of the one before, lets
// one come back, or changes heirs without saying since when.
func (s *RegionSet) follows(before *RegionSet) error {
	if before.Removed && !s.Removed {
		return ErrRemoved
	}
	for i := range before.Members {
		m, n := &before.Members[i], s.member(before.Members[i].Region)
		switch {
		case n == nil || n.Partitions != m.Partitions || n.Joined != m.Joined:
			return fmt.Errorf("%w: region %d is missing, or another one", ErrOption, m.Region)
		case m.Gone && !n.Gone:
			return fmt.Errorf("%w: region %d was removed", ErrOption, m.Region)
		case (m.Gone != n.Gone || m.Heir != n.Heir) && n.Since <= before.Version:
			return fmt.Errorf("%w: since when region %d is gone", ErrOption, m.Region)
		}
	}
	return nil
}

// dropStated forgets what was said of removals that are others now; and, if regions have joined
// those of before, that this one inherits: they must hear it.
func (g *regions) dropStated(before []part.Region) {
	joined := slices.ContainsFunc(g.ids, func(r part.Region) bool { return !slices.Contains(before, r) })
	maps.DeleteFunc(g.stated, func(k statement, s stated) bool {
		m := g.member(k.gone)
		return m == nil || !m.Gone || m.Since != s.since || !g.living(k.by.Region) ||
			joined && k.by.Region == g.Self && m.Heir == g.Self
	})
}

// levelling reports whether a region was removed, and this one has not levelled.
func (p *machine) levelling(r part.Region) bool {
	return p.regions.gone(r) && p.regions.stated[statement{r, RegionSource{p.self(), p.id}}].seq == 0
}

// levelsAny reports whether a region was removed, and this one has not levelled.
func (p *machine) levelsAny() bool {
	return slices.ContainsFunc(p.regions.Members, func(m RegionMember) bool { return p.levelling(m.Region) })
}

// inherited reports whether this region writes the parts of one that was removed.
func (p *machine) inherited(r part.Region) bool {
	return p.regions.heirOf(r) && !p.levelling(r)
}

// ackedGone is acked for a region that was removed: what its heir did to its parts is in the heir's
// log.
func (g *regions) ackedGone(by part.Region, gone *RegionMember, slot uint16) uint64 {
	heir := g.source(gone.Heir, slot)
	from := g.stated[statement{gone.Region, heir}].seq
	acked := uint64(math.MaxUint64)
	switch {
	case from == 0:
		return 0
	case by == g.Self && heir.Region == g.Self:
	case by == g.Self || by == heir.Region: // what the heir did before has arrived
		acked = g.cursors[heir]
	default:
		acked = g.heard[g.source(by, slot)][heir]
	}
	if acked < from {
		return 0
	}
	return acked
}

// asHeir changes the part of a removed region, and logs all parts of the key. Its clock must go on.
// A change may take several sequences, of which the last one is the entry's.
func (x *turn) asHeir(r *ref, gone part.Region, seqs int,
	change func(parts *part.Parts, seq uint64)) error {
	parts := r.c.parts().Clone()
	if err := x.world.reserveMore(len(parts.AppendTo(nil)) + 4*entryRoom + len(r.key)); err != nil {
		return err
	}
	if clock := r.aheadOf(gone); clock > 0 {
		x.logJumpBeyond(r.p, clock)
	}
	seq := r.p.seq + 1
	if seqs > 1 {
		x.log(r.p, &entry{kind: entryJump, delta: int64(r.p.incarnation), value: int64(r.p.seq) +
			int64(seqs) - 1})
	}
	change(&parts, seq)
	e := entry{kind: entryHeir, key: r.key, c: r.c, value: shown(parts), r: &regional{parts: parts}}
	switch flags := r.c.becomes(parts.Alive()); {
	case r.c.kind.isObject():
		e.r.merged = mergeAside
	case flags == flagExpired:
		e.r.merged = mergeEnds
	default:
		e.flags = flags
	}
	if e.r.merged != mergeAside {
		e.r.change = e.value - r.c.value
	}
	x.log(r.p, &e)
	return nil
}

// aheadOf is the clock of a removed region's part of a key, or of what deletions have removed of
// it, if that is ahead of the sequences here. Else 0.
func (r *ref) aheadOf(gone part.Region) uint64 {
	for _, q := range r.c.parts() {
		if clock := max(q.Clock, q.Base.Clock); q.Region == gone && clock > r.p.seq {
			return clock
		}
	}
	return 0
}

// closeFor closes the parts that removed regions have of a key that does not exist any more, if
// this one is their heir. A part ahead of this region's log could never be acknowledged. One of a key that
// drains have emptied stays, since the others' are not deleted either.
func (x *turn) closeFor(r *ref) {
	for _, m := range r.p.regions.Members {
		if !m.Gone || !r.p.inherited(m.Region) {
			continue
		}
		ahead := r.aheadOf(m.Region)
		switch {
		case r.c.parts().Undeleted():
			if ahead > 0 {
				x.logJumpBeyond(r.p, ahead)
			}
		case ahead > 0 || r.c.parts().Unclosed(m.Region):
			if x.asHeir(r, m.Region, 1,
				func(parts *part.Parts, seq uint64) { parts.Delete(m.Region, seq, nil) }) != nil {
				return
			}
		}
	}
}

// regionLevel takes note that a region has levelled: this one, which says so with all that it knows
// to be owed, or another.
func (x *turn) regionLevel(op *Op) error {
	p := x.of(op)[0].p
	l, ok := op.Object.(*levelled)
	if !ok {
		return ErrOption
	}
	g := p.regions
	if g == nil {
		return ErrNoRegions
	}
	m := g.member(l.Gone)
	if m == nil || !m.Gone || m.Since != l.Since || !g.living(l.By.Region) ||
		int(l.By.Partition) >= g.member(l.By.Region).Partitions {
		return nil // of another removal
	}
	if l.By.Region == g.Self && m.Heir != g.Self {
		if err := x.tellOwed(p, l.Gone); err != nil {
			return err
		}
	}
	x.log(p, &entry{kind: entryLevelled, r: &regional{levelled: *l}})
	op.Applied = true
	return nil
}

// tellOwed logs once more what a removed region owes, for others to read.
func (x *turn) tellOwed(p *machine, gone part.Region) error {
	room := 0
	owed := p.regions.owed.byKey
	for key, ops := range owed {
		room += (len(ops)/takeOps + 1) * (&ref{key: []byte(key)}).owedRoom(min(len(ops), takeOps))
	}
	if err := x.world.reserveMore(room); err != nil {
		return err
	}
	for key := range owed {
		for some := range slices.Chunk(p.regions.owed.of([]byte(key), gone), takeOps) {
			x.log(p, &entry{kind: entryOwed, key: []byte(key),
				r: &regional{owed: slices.Clone(some), what: owedTold}})
		}
	}
	return nil
}

// redoLevelled redoes that a region has levelled.
func (p *machine) redoLevelled(e *entry, seq uint64, _ moment) error {
	if seq <= p.marks.counters {
		return nil
	}
	l, g := &e.r.levelled, p.regions
	if g == nil {
		return errCorruptEntry
	}
	at := l.Seq
	if at == 0 {
		at = seq
	}
	g.stated[statement{l.Gone, l.By}] = stated{l.Since, at}
	g.news++
	p.ended.owes, p.ended.again = false, true
	if p.inherited(l.Gone) {
		p.endedOrphans()
	}
	return nil
}

// unlevelled are the members that have not said that they have levelled. The partition is locked.
func (p *machine) unlevelled(gone part.Region) (waiting []part.Region) {
	g := p.regions
	first, last := slotRange(int(p.id), p.count)
	for _, by := range g.ids {
		for q := g.source(by, first).Partition; q <= g.source(by, last).Partition; q++ {
			if g.stated[statement{gone, RegionSource{by, q}}].seq == 0 {
				waiting = append(waiting, by)
				break
			}
		}
	}
	return waiting
}
