package store

import (
	"cmp"
	"fmt"
	"math"
	"strconv"

	"github.com/fbfkv/fbfkv/fbf"
	"github.com/fbfkv/fbfkv/store/seen"
)

// turn decides one operation. This is the only place where filters are asked and time
// is read; what it finds is logged as outcomes and redone from them ("decide once, redo
// everywhere"). A refused operation logs nothing: no effect, no opid (G6).
func (x *turn) decideOne(op *Op) error {
	if x.unread {
		if err := x.readable(op); err != nil {
			return err
		}
	}
	if x.scaled || op.Points != [3]Points{} || op.Flags&Float != 0 || op.Object != nil {
		if err := x.scale(op); err != nil {
			return err
		}
	}
	if err := x.endObjects(op); err != nil {
		return err
	}
	if err := x.checkHoldID(op); err != nil {
		return err
	}
	return kinds[op.Kind].turn(x, op)
}

// log writes an outcome into the partition's section of this batch and redoes it.
func (x *turn) log(p *machine, e *entry) {
	x.copied = *e // else each entry would need memory of its own, as redo is called through a table
	x.logKept(p, &x.copied)
}

// logKept is log of an entry that is not on the stack.
func (x *turn) logKept(p *machine, e *entry) {
	if p.draft.first == 0 {
		p.at, p.draft.first = x.at(p), p.seq+1
		p.draft.section = beginSection(p.draft.section[:0], p.at)
	}
	p.seq++
	p.draft.section = e.appendTo(p.draft.section)
	if all := e.kind.row().traits&changesAll != 0; p.onEntry != nil && !(all && x.toldAll) {
		x.toldAll = all || x.toldAll
		p.onEntry(e, x.source)
	}
	if err := p.redo(e, p.seq, p.at); err != nil {
		x.err = err
	}
}

// findAgain finds an operation's keys anew after a FLUSHALL earlier in the
// batch: nothing exists any more, and nothing is remembered.
func (x *turn) findAgain(op *Op) {
	for i := range x.of(op) {
		r := &x.of(op)[i]
		if r.c = r.p.hot.get(r.keyHash, r.key); r.c == nil {
			r.c = r.p.hot.install(r.keyHash, r.key, r.p.hashes.positionIn(r.slot, r.key))
		}
		if op.Kind.has(hasID) {
			r.disk = nil
			x.judgeOne(op.run.first + i)
		}
	}
}

// cIncrBy applies an idempotent increment: stale, duplicate or mismatch, wrong
// type, overflow, out of memory, in this order.
func (x *turn) cIncrBy(op *Op) error {
	r := &x.of(op)[0]
	r.judgeAgain(op.ID)
	if err := x.checkTime(op, r); err != nil {
		return err
	}
	if r.verdict != verdictNew {
		return x.duplicate(op, r)
	}
	if err := r.checkCaughtUp(); err != nil {
		return err
	}
	if err := x.checkIncr(r, op.Delta, op.ownBounds(0)); err != nil {
		return err
	}
	if err := x.makeRoom(r); err != nil {
		return err
	}
	op.Value, op.Applied = x.applyIncr(op, r, op.Delta), true
	r.t.figures.Applied++
	return nil
}

// duplicate answers a retry of an increment: with the original result where it is recorded, otherwise with
// the present value.
func (x *turn) duplicate(op *Op, r *ref) error {
	return x.duplicateAs(op, r, seen.Increment, ErrMismatch)
}

// duplicateAs is duplicate of an operation with that use of its opid; other refuses another Delta.
func (x *turn) duplicateAs(op *Op, r *ref, use seen.Use, other error) error {
	r.t.figures.Duplicates++
	if r.verdict == verdictSeen {
		switch {
		case !r.seen.Is(use):
			return r.usedBy()
		case r.seen.Delta != op.Delta:
			return other
		}
		r.t.figures.Confirmed++
		op.Value = r.seen.Result
		return nil
	}
	if r.c.kind == TypeCounter && x.alive(r) {
		op.Value = r.c.value
	}
	return nil
}

// usedBy refuses an opid that is known, and of another command.
func (r *ref) usedBy() error {
	switch {
	case r.verdict != verdictSeen:
		return otherUse("another command")
	case r.seen.Hold != nil:
		return otherUse("CHOLD")
	case r.seen.IsDrain():
		return otherUse("CGETDEL")
	case r.seen.Use == seen.Throttle:
		return otherUse("CL.THROTTLE")
	case r.seen.Use == seen.Items:
		return otherUse("a command of a sketch, such as BF.CADD")
	}
	return otherUse("an increment, such as CINCRBY")
}

// duplicateItems is duplicate for an operation on a sketch, whose Delta is a fingerprint.
func (x *turn) duplicateItems(op *Op, r *ref) error {
	return x.duplicateAs(op, r, seen.Items, ErrOtherItems)
}

// checkTime refuses an operation whose time says that its id may have been
// forgotten (G7), and one from the future.
func (x *turn) checkTime(op *Op, r *ref) error {
	d := r.t.def
	if d.IDTime == IDTimeNone && op.Flags&HasAt == 0 {
		return nil
	}
	if op.Flags&HasAt != 0 && op.At >= minSeconds && op.At < maxSeconds {
		return ErrSeconds
	}
	time, known, err := opTime(d, op.timeID(), op.At, op.Flags&HasAt != 0, x.wall)
	if err != nil || !known {
		return err
	}
	r.time, r.hasTime = time, known
	if time < x.forgottenBefore(r) {
		r.t.figures.Stale++
		return fmt.Errorf("%w (WINDOW %s), so it may have been applied. Read the counter; to count it "+
			"anyway, use a new opid",
			ErrStale, inSeconds(d.Window.Milliseconds()))
	}
	if time > x.wall+d.Skew.Milliseconds() {
		return fmt.Errorf("%w: %s ahead of the server's clock, more than SKEW (%s)", ErrFuture,
			inSeconds(time-x.wall), inSeconds(d.Skew.Milliseconds()))
	}
	return nil
}

// inSeconds writes milliseconds as seconds, which people compare at a glance.
func inSeconds(ms int64) string { return strconv.FormatFloat(float64(ms)/1000, 'f', -1, 64) + " s" }

// An AT between these is a time in seconds, of 2001 to 5138. In milliseconds it would be of 1970 to 1973.
const minSeconds, maxSeconds = 1e9, 1e11

// forgottenBefore is the wall time before which an operation on a key may have
// been forgotten: by its table, or by one that the key belonged to before.
func (x *turn) forgottenBefore(r *ref) int64 {
	d, logged := r.t.def, x.at(r.p).logged
	before := max(x.wall-d.Window.Milliseconds(), d.ForgottenBefore,
		r.t.horizon.before(logged, d.keep(logged)))
	for _, l := range d.Links {
		if !l.covers(r.key) {
			continue
		}
		if logged >= l.Until {
			before = max(before, l.Before)
		} else if t := r.p.tables[l.Table]; t != nil {
			before = max(before, t.horizon.before(logged, t.def.keep(logged)))
		}
	}
	return before
}

// checkIncr refuses an increment of an object, one that would overflow, and one that would take the
// counter beyond a bound.
func (x *turn) checkIncr(r *ref, delta int64, own bounds) error {
	next, err := x.sumFor(r, delta)
	if err != nil {
		return err
	}
	if err = x.checkBounds(r, next, own); err != nil {
		return err
	}
	return x.checkRights(r, delta)
}

// checkType refuses a key that holds an object.
func (x *turn) checkType(r *ref) error {
	if x.alive(r) && r.c.kind != TypeCounter {
		return ErrWrongType
	}
	return nil
}

// sumFor returns what an increment makes of a counter. It refuses an increment of an object, and one
// that would overflow.
func (x *turn) sumFor(r *ref, delta int64) (int64, error) {
	if err := x.checkType(r); err != nil {
		return 0, err
	}
	next, ok := x.total(r, delta)
	if !ok {
		return 0, ErrOverflow
	}
	return next, nil
}

// sum adds two integers; false if the result would overflow.
func sum(a, b int64) (int64, bool) {
	if b > 0 && a > math.MaxInt64-b || b < 0 && a < math.MinInt64-b {
		return 0, false
	}
	return a + b, true
}

// makeRoom logs what the table's filter has to do before it takes another id:
// refreshes, growth. At the memory cap an APPROX table refuses (G5), at its
// disk cap an EXACT one, and also one more operation of a hash that too many have.
func (x *turn) makeRoom(r *ref) error {
	t := r.t
	if r.others >= seen.MaxOthers {
		return ErrSameHash
	}
	if t.filter.Due(x.at(r.p).logged) {
		if err := x.plan(r.p, t); err != nil {
			return err
		}
	}
	if full := t.filter.Full(); full || r.p.diskFull(t) {
		t.figures.Refused++
		if full {
			return r.p.whichMemory(t)
		}
		return errTableDisk
	}
	return nil
}

// whichMemory returns the refusal of a table whose filter is full. The server's limit is the
// reason if what the table may still take is more than the server has.
func (p *machine) whichMemory(t *tableState) error {
	share, has := t.def.MaxMemory/uint64(p.count), t.filter.Bytes()
	if share == 0 || share > has && !p.memory.fits(int64(share-has)) {
		return ErrOutOfMemory
	}
	return errTableMemory
}

// diskFull reports whether a table's records have reached their share of
// MAXDISK. Without a record an EXACT operation could not be confirmed, so new
// ones are refused until old records expire.
func (p *machine) diskFull(t *tableState) bool {
	limit := t.def.MaxDisk / uint64(p.count)
	return t.def.MaxDisk > 0 && t.def.Mode == Exact && p.seen.RunBytes(t.def.ID) >= limit
}

// maxEvents bounds the events of one filter that one operation may cause.
const maxEvents = 16

// plan logs the events that a table's filter plans. An error means that the disk has no
// space for them, and that nothing was done.
func (x *turn) plan(p *machine, t *tableState) error {
	if err := x.world.reserveMore(maxEvents * eventRoom); err != nil {
		return err
	}
	pl := planner{memory: p.memory}
	for n := range maxEvents {
		ev, ok := t.filter.Plan(x.at(p).logged, pl.grant)
		pl.settle()
		if !ok || x.err != nil {
			x.world.giveBack((maxEvents - n) * eventRoom)
			break
		}
		x.control = ev.AppendTo(x.control[:0])
		x.log(p, &entry{kind: entryControl, table: t.def.ID, id: x.control, t: t})
	}
	return nil
}

// eventRoom bounds what an event takes in the log, beside a key.
const eventRoom = entryRoom + fbf.MaxEventBytes

// applyIncr logs an increment together with its opid, and returns the
// counter's new value. All checks have passed.
func (x *turn) applyIncr(op *Op, r *ref, delta int64) int64 {
	x.expireFirst(r)
	e := x.applyEntry(op, r, delta)
	x.postImage(e, r, delta)
	x.logApply(r, e)
	return e.value
}

// applyEntry returns the entry of an idempotent operation, still without its
// post-image. It is valid until the next call; it is filled in place, as in
// Op.reset.
func (x *turn) applyEntry(op *Op, r *ref, delta int64) *entry {
	e := &x.entry
	e.kind, e.flags, e.table, e.key, e.id = entryApply, 0, r.t.def.ID, r.key, op.ID
	e.delta, e.value, e.expire, e.time, e.clip = delta, 0, 0, 0, 0
	e.c, e.t, e.hash, e.r, e.end, e.use = r.c, r.t, r.hash, nil, nil, seen.Increment
	return e
}

// rememberOp logs that an idempotent operation on an object was applied, behind the change that
// it made. Fingerprint and result take the place of a counter's delta and value.
func (x *turn) rememberOp(op *Op, r *ref, result int64) {
	e := x.applyEntry(op, r, op.Delta)
	e.kind, e.value = entryRemember, result
	x.logApply(r, e)
	op.Applied = true
	r.t.figures.Applied++
}

// logApply logs the outcome of an idempotent operation.
func (x *turn) logApply(r *ref, e *entry) {
	if r.t.def.Mode == Exact {
		e.flags |= flagExact
	}
	if r.hasTime {
		e.flags |= flagHasTime
		e.time = r.time
	}
	if r.dismissed {
		r.t.figures.Dismissed++
	}
	x.logKept(r.p, e)
	r.p.draft.inserted = true
	r.p.draft.twins.add(r.hash)
}

// postImage fills in the value after an increment of a counter.
func (x *turn) postImage(e *entry, r *ref, delta int64) {
	e.value = delta
	if x.alive(r) {
		e.value, _ = x.total(r, delta)
		e.setExpire(r.c.expire)
	} else {
		x.markReplaced(e, r)
	}
	x.noteIncr(e, r, false)
}

func (e *entry) setExpire(at int64) {
	if at != 0 {
		e.flags |= flagHasExpire
		e.expire = at
	}
}

// cmIncrBy applies an increment of several counters, wholly or not at all.
func (x *turn) cmIncrBy(op *Op) error {
	refs := x.of(op)
	if err := op.checkKeys(refs); err != nil {
		return err
	}
	for i := range refs {
		if err := x.checkTime(op, &refs[i]); err != nil {
			return err
		}
	}
	known := 0
	for i := range refs {
		r := &refs[i]
		r.judgeAgain(op.ID)
		if r.verdict != verdictNew {
			known++
		}
	}
	if known > 0 {
		return x.multiDuplicate(op, refs, known)
	}
	for i := range refs {
		_, err := x.sumFor(&refs[i], op.Deltas[i])
		if err = cmp.Or(refs[i].checkCaughtUp(), err); err != nil {
			return err
		}
	}
	for i := range refs {
		next, _ := x.sumFor(&refs[i], op.Deltas[i])
		if err := x.checkBounds(&refs[i], next, op.ownBounds(i)); err != nil {
			return err
		}
	}
	for i := range refs { // last, as rights may begin here, which stay
		if err := x.checkRights(&refs[i], op.Deltas[i]); err != nil {
			return err
		}
	}
	for i := range refs {
		if err := x.tighten(&refs[i], len(refs)); err != nil {
			return err
		}
		if err := x.makeRoom(&refs[i]); err != nil {
			return err
		}
	}
	for i := range refs {
		op.Values = append(op.Values, x.applyIncr(op, &refs[i], op.Deltas[i]))
	}
	refs[0].t.figures.Applied++
	op.Applied = true
	return nil
}

// checkKeys refuses keys that repeat, and those of several tables if one of these is not EXACT: an APPROX
// table could take the opid for known, and leave the others' without it.
func (op *Op) checkKeys(refs []ref) error {
	if n := len(op.Deltas); n != len(refs) && n != 3*len(refs) || n == 0 {
		return ErrOption
	}
	for i := range refs {
		d, first := refs[i].t.def, refs[0].t.def
		if d.ID != first.ID && (d.Mode == Approx || first.Mode == Approx) {
			return ErrSpansTables
		}
	}
	if Repeat(op.Keys) {
		return ErrSameKeys
	}
	return nil
}

// multiDuplicate answers a retried CMINCRBY; an opid known for some of its
// keys only belongs to another operation.
func (x *turn) multiDuplicate(op *Op, refs []ref, known int) error {
	if known < len(refs) {
		if anyHeard(refs) {
			return ErrPartlyHeard
		}
		return ErrPartlySeen
	}
	one := *op
	for i := range refs {
		one.Delta, one.Value = op.Deltas[i], 0
		if err := x.duplicate(&one, &refs[i]); err != nil {
			op.Values = op.Values[:0]
			return err
		}
		op.Values = append(op.Values, one.Value)
	}
	return nil
}

// tighten makes the filter of an APPROX table test at ERROR/n, so that the n
// tests of one operation err no more often than ERROR together.
func (x *turn) tighten(r *ref, n int) error {
	t, need := r.t, testsFor(n)
	if t.def.Mode != Approx || max(t.tests, baseTests) >= need {
		return nil
	}
	pl := planner{memory: r.p.memory}
	bytes, err := t.filter.AlterBytes(t.def.filterOptions(need, r.p.count))
	if err != nil || !pl.grant(bytes) {
		return ErrOutOfMemory
	}
	pl.settle()
	x.log(r.p, &entry{kind: entryTighten, table: t.def.ID, value: int64(need), t: t})
	return nil
}

// cSeen tells what is remembered of an operation.
func (x *turn) cSeen(op *Op) error {
	r := &x.of(op)[0]
	r.judgeAgain(op.ID)
	if h := r.p.holds.find(r.hash, r.key, op.ID); h != nil {
		end := &seen.HoldEnd{Opened: h.opened}
		if h.expires <= x.wall {
			end.How = seen.Expired
		}
		op.Found, op.Exact = true, true
		op.Seen = Seen{Delta: h.amount, Result: h.reply, UnixMs: h.opened, Hold: end}
		return nil
	}
	switch r.verdict {
	case verdictSeen:
		op.Found, op.Exact, op.Seen = true, true, r.seen
		if g := r.p.regions; g != nil {
			op.Object = g.nameOf(&r.seen)
		}
	case verdictMaybe:
		op.Found = true
	}
	return nil
}
