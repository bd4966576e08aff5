package store

import (
	"math"
	"slices"

	"github.com/fbfkv/fbfkv/fbf"
	"github.com/fbfkv/fbfkv/store/part"
	"github.com/fbfkv/fbfkv/store/seen"
)

// Ids of other regions' operations. Several regions may have applied the same (key, opid)
// before any of them knew of the others: twins in regions. Only the application with the smallest
// rank counts (seen.Original.Before): the rest are taken back, each by the region that made
// it, once.
//
//	applied elsewhere, not known here     its record is kept: a retry gets its result
//	applied here, the other ranks first   the own application is taken back (takeBack)
//	applied here, this one ranks first    nothing: the other region takes back its own
//	applied in two other regions          the record of the smaller rank stays
//
// Another region owes a take-back for each of its applications that does not count (regionowed.go),
// until this region has heard the take-back.
//
// An own application is found as long as its record is kept (Options.RegionRetention), even if
// the filter has forgotten the opid. For a client's retry the filter still decides first whether
// it is a duplicate.
//
// An opid is remembered in the table that its key belongs to here, whatever the other region's
// table is called, since a retry is judged there: the own applications are in the same table.
// If that table is APPROX here, its filter remembers the opid without a record. Nobody can tell
// then whether an id that it remembered before was also applied here: that is counted
// (RegionIDs.Unchecked), and nothing is taken back.
//
// An operation of another region is never refused, for that would stop all its later ones.
// Beyond a table's MAXDISK and at the cap of its filter's memory it is remembered all the same,
// and new operations of clients are refused the sooner.

// maxHeard bounds the bytes that the entry of an operation of another region takes in the log beside
// entryRoom, key and opid. The further bytes of a take-back are reserved with it.
const maxHeard = 64

// RegionIDs counts what was made of opids that other regions applied, and what else comes of counting
// in several places.
type RegionIDs struct {
	Heard     uint64 // remembered here
	Late      uint64 // older than the remembering time: only compared
	Twins     uint64 // applied here as well
	TakenBack uint64 // of Twins: taken back here
	// Unchecked may have been applied here as well, and then count twice: the own record was
	// given up before every region had acknowledged it, or there was none.
	Unchecked uint64
	// BeyondBounds are bounded increments that met a counter beyond their bounds: each region
	// judges by the changes it knows, so together they can exceed them.
	BeyondBounds uint64
	// Aside are changes of other regions to counters whose keys hold objects here: they are kept, and show
	// once the object is gone.
	Aside uint64
	// Owed will be taken back here once there is room (part.MaxUndo), and count twice until then.
	Owed uint64
}

// Add adds others.
func (n *RegionIDs) Add(o *RegionIDs) {
	n.Heard, n.Late, n.Twins = n.Heard+o.Heard, n.Late+o.Late, n.Twins+o.Twins
	n.TakenBack, n.Unchecked = n.TakenBack+o.TakenBack, n.Unchecked+o.Unchecked
	n.BeyondBounds = n.BeyondBounds + o.BeyondBounds
}

// regionHear takes note that another region has applied an operation.
func (x *turn) regionHear(op *Op) error {
	r := &x.of(op)[0]
	h, ok := op.Object.(*Heard)
	if r.p.regions == nil {
		return ErrNoRegions
	}
	if !ok || h.Dot == 0 || h.Origin == r.p.self() || r.p.regions.member(h.Origin) == nil {
		return ErrOption
	}
	r.judgeHeardAgain(op.ID)
	heard := h.original()
	ids := &r.p.ids[h.Origin]
	first := r.verdict == verdictSeen && heard.Before(&r.seen, r.p.self())
	switch {
	case r.verdict == verdictMaybe:
		ids.Unchecked++
	case r.verdict == verdictNew:
		if d := r.t.def; h.Told-h.Wall > d.keep(x.at(r.p).logged) { // by its own clock: ours may be off
			ids.Late++
			return nil
		}
		x.hear(op, r, h, 0)
	case r.seen.Own():
		if ids.Twins++; first {
			if err := x.takeBack(op, r, h); err != nil {
				return err
			}
		} else {
			x.oweTo(r, h.applied(), r.appliedHere())
		}
		x.metTwins(op, r, h, first)
	case first:
		x.metTwins(op, r, h, true)
		was := r.appliedThere()
		x.hear(op, r, h, r.seen.Taken)
		x.oweTo(r, was, h.applied())
	case r.seen.Region != h.Origin || r.seen.Dot != h.Dot:
		x.metTwins(op, r, h, false)
		x.oweTo(r, h.applied(), r.appliedThere())
	}
	return nil
}

// judgeHeardAgain judges again what this batch may have changed since the first judgement.
func (r *ref) judgeHeardAgain(id []byte) {
	if !r.p.draft.twins.mayHave(r.hash) {
		return
	}
	if o, _, _, ok := r.p.seen.FindSinceMark(r.hash, r.key, id); ok {
		r.verdict, r.seen = verdictSeen, o
	} else if r.verdict == verdictNew && r.t.def.Mode == Approx && r.t.filter.Contains(r.hash) {
		r.verdict = verdictMaybe
	}
}

// original is what the record of an operation that was heard says.
func (h *Heard) original() Seen {
	return Seen{Delta: h.Delta, Result: h.Result, UnixMs: h.Wall, Clip: h.Clip, Other: true, Region: h.Origin,
		Dot: h.Dot, Use: h.Use}
}

// applied is an application that was heard.
func (h *Heard) applied() part.Applied {
	o := h.original()
	return part.Applied{Region: h.Origin, Dot: h.Dot, Made: o.Made()}
}

// appliedThere is the application that the record of an operation is about, which another region made.
func (r *ref) appliedThere() part.Applied {
	return part.Applied{Region: r.seen.Region, Dot: r.seen.Dot, Made: r.seen.Made()}
}

// appliedHere is the same if this region made it.
func (r *ref) appliedHere() part.Applied {
	a := r.appliedThere()
	a.Region = r.p.self()
	return a
}

// heardEntry returns the entry of an operation of another region.
func (x *turn) heardEntry(op *Op, r *ref, h *Heard, kind entryKind) *entry {
	e := x.regionalEntry(r, kind)
	e.table, e.id, e.delta = r.t.def.ID, op.ID, h.Delta
	e.clip, e.t, e.hash = h.Clip, r.t, r.hash
	e.r.heard = *h
	if h.Clip != 0 {
		e.flags |= flagClipped
	}
	r.time, r.hasTime = idTime(r.t.def, op.ID, x.wall)
	return e
}

// makeRoomHeard is makeRoom for what cannot be refused.
func (x *turn) makeRoomHeard(r *ref) {
	if r.t.filter.Due(x.at(r.p).logged) {
		_ = x.plan(r.p, r.t) // the filter is late then, and its error is shown
	}
}

// hear logs that another region's application is the one that counts, as far as is known here.
// taken is the dot of an own one that was taken back before; 0: none. The mark stays for ever.
func (x *turn) hear(op *Op, r *ref, h *Heard, taken uint64) {
	x.makeRoomHeard(r)
	e := x.heardEntry(op, r, h, entryHeard)
	e.value, e.r.back.Dot = h.Result, taken
	x.logApply(r, e)
	r.p.ids[h.Origin].Heard++
	op.Applied = true
}

// takeBack takes back the own application of an opid, because another region's ranks first; or,
// without room for that, owes it. From then on the record is that region's. Where deletions have
// removed what both have added, or the key holds no counter, there is nothing to take back, and only the
// record changes; but that is just as final. It must not be called again for the record that results.
//
// The other region's part must be here, so that the value shown is not too low. It goes with the
// entry, for regions that read the entry before that region's log.
func (x *turn) takeBack(op *Op, r *ref, h *Heard) error {
	x.makeRoomHeard(r)
	back := takeBack{Dot: r.seen.Dot, Made: r.seen.Made()}
	own := r.c.asParts(r.p.self())
	owed := part.Owed{Applied: r.appliedHere(), Winner: h.applied()}
	held, full := own.CanTakeBack(owed, x.undo)
	if r.c.kind.isObject() {
		full = true // its parts are aside
	} else if held && full {
		if err := x.dropSpent(r); err != nil { // it was not the key's turn yet
			return err
		}
		own = r.c.asParts(r.p.self())
		_, full = own.CanTakeBack(owed, x.undo)
	}
	back.Held, back.Owed = held && !full, held && full
	var winner part.Parts
	if held {
		i := slices.IndexFunc(own, func(q part.Part) bool { return q.Region == h.Origin })
		if !h.Stated && h.Use != seen.DrainNone && (i < 0 || max(own[i].Clock, own[i].Base.Clock) < h.Dot) {
			return ErrIDAhead
		}
		if i >= 0 {
			winner = own[i : i+1 : i+1]
		}
		if err := x.world.reserveMore(entryRoom + len(winner.AppendTo(nil))); err != nil {
			return err
		}
	}
	e := x.heardEntry(op, r, h, entryTakeBack)
	e.value, e.r.back, e.r.parts = r.c.value, back, winner
	if back.Held {
		e.takesBack(r, owed)
	}
	e.flags |= flagExact
	x.logApply(r, e)
	r.p.ids[h.Origin].TakenBack++
	op.Applied = true
	return nil
}

// takesBack notes what a take-back of the entry's makes of a counter.
func (e *entry) takesBack(r *ref, o part.Owed) {
	total, exists := r.c.asParts(o.Region).AsTakenBack(o)
	if exists {
		e.value = total
	} else {
		e.value = 0
	}
	e.r.change, e.flags = e.value-r.c.value, e.flags|r.c.becomes(exists)
}

// redoHeard remembers an operation that another region has applied.
func (p *machine) redoHeard(e *entry, seq uint64, at moment) error {
	o := e.heardOriginal()
	o.Taken = e.r.back.Dot
	p.rememberAs(e, seq, at, o)
	return nil
}

// redoRecordTakenBack marks the record of an own operation as taken back: one of the other
// region's operation takes its place.
func (p *machine) redoRecordTakenBack(e *entry, seq uint64, at moment) {
	o := e.heardOriginal()
	o.Taken = e.r.back.Dot
	e.packed = nil // it has the counter's value, not what the other region's client was told
	p.rememberAs(e, seq, at, o)
}

// heardOriginal is what an entry says of the other region's operation.
func (e *entry) heardOriginal() Seen {
	h := e.r.heard
	if h.Delta, h.Clip = e.delta, e.clip; e.kind == entryHeard {
		h.Result = e.value
	}
	return h.original()
}

// anyHeard reports whether another region has applied what is known of an operation.
func anyHeard(refs []ref) bool {
	return slices.ContainsFunc(refs, func(r ref) bool { return r.verdict == verdictSeen && !r.seen.Own() })
}

// askAll says of an opid that another region has applied that all records must be asked,
// whatever the filters know; false if that was done.
func (r *ref) askAll(logged int64) (m fbf.Match, ask bool) {
	m, _ = r.askFilters(logged)
	if r.verdict == verdictSeen {
		return m, false
	}
	m.First, m.Last, m.Generations = math.MinInt64, math.MaxInt64, 1
	m.Tags |= tagExact
	return m, true
}

// inNoRun reports whether the filters of all runs say that none has the record.
func (x *turn) inNoRun(r *ref, m fbf.Match) bool {
	s := &x.judging.search
	r.beginSearch(s, m, x.at(r.p).logged)
	return !s.Pending() || s.Exclude(r.hash)
}

// eachFormer calls fn for the tables that the key belonged to before, as far as there are
// records of them.
func (r *ref) eachFormer(fn func(*tableState)) {
	for _, l := range r.t.def.Links {
		if t := r.p.tables[l.Table]; t != nil && l.covers(r.key) {
			fn(t)
		}
	}
}

// awaited says how long the records of a table are kept for other regions. To be called with
// the partition locked.
func (p *machine) awaited(table uint32, keep int64) seen.Awaited {
	acked, _ := p.ackedByRegions()
	a := seen.Awaited{Acked: acked, For: keep}
	if t := p.tables[table]; t != nil {
		// The rest is for those that clients need: a full table refuses new operations.
		a.Bytes = t.def.MaxDisk / uint64(p.count) * 3 / 4
	}
	return a
}

// ackedByRegions is the sequence up to which every other region has said, in its own log, that it
// has taken this partition's: what it had applied before has arrived here. last is the one that has
// taken least.
func (p *machine) ackedByRegions() (acked uint64, last part.Region) {
	acked, last = math.MaxUint64, p.regions.Self
	for _, by := range p.regions.ids {
		if taken := p.takenBy(by); by != p.regions.Self && taken < acked {
			acked, last = taken, by
		}
	}
	return acked, last
}
