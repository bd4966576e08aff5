package store

import (
	"errors"
	"fmt"
	"math"
	"math/bits"

	"github.com/fbfkv/fbfkv/store/seen"
)

// The refusals of holds.
var (
	ErrNoHold = errors.New("no hold with this opid is known")
	// ErrEnded: the error's text says how the hold ended.
	ErrEnded       = errors.New("the hold has ended")
	ErrHoldExpired = errors.New("the hold has expired")
	ErrHoldSign    = errors.New("the amount must be 0, or have the sign of the hold's")
	ErrHoldAmount  = errors.New("the amount of a hold must not be 0")
	ErrHoldPast    = errors.New("the hold would have ended already")
	ErrHoldMode    = errors.New("holds need an EXACT table")
	ErrHoldRegions = errors.New("holds are not supported in a table that regions share: use REGIONS NONE")
	ErrManyHolds   = errors.New("the key has 1000000 open holds: settle or cancel some")
	// ErrKeyHeld refuses to create an object: holds are of counters.
	ErrKeyHeld   = errors.New("holds are open on the key: settle or cancel them first, or wait until they end")
	ErrDrainMode = errors.New("CGETDEL needs an EXACT table")
	// ErrHoldsOpen: the error says why a table cannot have them.
	ErrHoldsOpen = errors.New("holds are open: settle or cancel them first, or wait until they end")
)

// endedError is a refusal that says how a hold ended, or its amount.
type endedError struct {
	is   error
	text string
}

// Error returns the text.
func (e *endedError) Error() string { return e.text }

// Is makes errors.Is find ErrEnded, ErrHoldExpired and ErrMismatch.
func (e *endedError) Is(target error) bool { return target == e.is }

// HeldInfo is what holds set aside of a counter.
type HeldInfo struct {
	Up, Down int64 // sums of the positive and of the negative amounts
	Open     int64 // holds
}

// HoldInfo is an open hold.
type HoldInfo struct {
	ID      string
	Amount  int64
	Expires int64 // unix ms
}

// cHold opens a hold.
func (x *turn) cHold(op *Op) error {
	r := &x.of(op)[0]
	if known, err := x.knownHold(op, r); known {
		return err
	}
	if err := x.checkTime(op, r); err != nil {
		return err
	}
	if r.verdict != verdictNew {
		return r.usedBy()
	}
	if err := x.mayHold(op, r); err != nil {
		return err
	}
	if err := x.checkType(r); err != nil {
		return err
	}
	up, down := x.heldOf(r)
	side := up
	if op.Delta < 0 {
		side = down
	}
	held, ok := sum(side, op.Delta)
	left, ok2 := sum(x.valueOf(r), held)
	if !ok || !ok2 {
		return ErrOverflow
	}
	if err := x.checkSide(r, left, op.Delta > 0, op.ownBounds(0)); err != nil {
		return err
	}
	if err := x.roomForHold(op, r); err != nil {
		return err
	}
	e := x.applyEntry(op, r, op.Delta)
	e.kind, e.value = entryHold, left
	e.setExpire(op.ExpireAt)
	if r.hasTime {
		e.flags |= flagHasTime
		e.time = r.time
	}
	x.logKept(r.p, e)
	r.t.figures.Applied++
	op.Value, op.Applied = left, true
	return nil
}

// knownHold answers CHOLD of an opid that is an open hold, or was one that has ended (G1): as the first try
// was answered, also if it is too old by now.
func (x *turn) knownHold(op *Op, r *ref) (known bool, err error) {
	r.judgeAgain(op.ID)
	amount, reply := int64(0), int64(0)
	switch h := r.p.holds.find(r.hash, r.key, op.ID); {
	case h != nil:
		amount, reply = h.amount, h.reply
	case r.verdict == verdictSeen && r.seen.Hold != nil:
		amount, reply = r.seen.Delta, r.seen.Result
	default:
		return false, nil
	}
	r.t.figures.Duplicates++
	if amount != op.Delta {
		return true, &endedError{ErrMismatch, "opid was used for a hold of " + decimal(amount, op.Scale)}
	}
	op.Value = reply
	return true, nil
}

// mayHold refuses a hold that cannot be here.
func (x *turn) mayHold(op *Op, r *ref) error {
	switch {
	case op.Delta == 0:
		return ErrHoldAmount
	case op.ExpireAt <= x.wall:
		return ErrHoldPast
	case r.isShared():
		return ErrHoldRegions
	}
	err := r.t.def.takesHolds(false)
	if next := r.p.nextTables; err == nil && next != nil {
		err = next.Of(string(r.key)).takesHolds(r.p.regions != nil) // else they could put it off for ever
	}
	return err
}

// takesHolds refuses a table that cannot have holds; region says that the server is one.
func (o *TableOptions) takesHolds(region bool) error {
	switch {
	case o.Mode != Exact:
		return ErrHoldMode
	case region && o.Told():
		return ErrHoldRegions
	}
	return nil
}

// endDue logs the ends of holds whose time has come, so that what they have set aside is free at once. The
// rest is the cycle's (Store.expireHolds).
func (x *turn) endDue(p *machine) {
	for range maxEndDue {
		h := p.holds.next(x.wall)
		if h == nil || x.world.reserveMore(h.endRoom()) != nil {
			return
		}
		x.endHold(p, h)
	}
}

// maxEndDue is how many holds one operation ends whose time has come.
const maxEndDue = 16

// endRoom bounds what the end of the hold takes in the log.
func (o *hold) endRoom() int { return entryRoom + holdEndRoom + len(o.of.key) + len(o.id) }

// holdEndRoom bounds what an entry about the end of a hold has beside entryRoom, key and opid.
const holdEndRoom = 48

// endHold logs that a hold has expired.
func (x *turn) endHold(p *machine, h *hold) {
	key, id := []byte(h.of.key), []byte(h.id)
	t := p.tableOf(key)
	r := ref{key: key, p: p, t: t, hash: p.hashes.ids.Hash(key, id)}
	x.logEnd(&r, h, id, seen.HoldEnd{How: seen.Expired, Opened: h.opened, Result: h.expires})
}

// logEnd logs the end of a hold. The table's filter takes the opid, also if it is full: an EXACT table's
// filter only errs more often then, and what has happened must be remembered. It does so, too, if the disk
// has no space for what the filter plans: the end has room of its own.
func (x *turn) logEnd(r *ref, h *hold, id []byte, end seen.HoldEnd) {
	if r.t.filter.Due(x.at(r.p).logged) {
		_ = x.plan(r.p, r.t) // else the next operation of the table does, or is refused for it
	}
	x.end = end
	e := &x.entry
	*e = entry{kind: entryHoldEnd, flags: flagExact, table: r.t.def.ID, key: r.key, id: id, delta: h.amount,
		c: r.c, t: r.t, hash: r.hash, end: &x.end}
	if end.How == seen.Settled {
		x.postImage(e, r, end.Settled)
	}
	e.value = h.reply
	x.logKept(r.p, e)
	r.p.draft.inserted = true
	r.p.draft.twins.add(r.hash)
}

// openHold returns the open hold that CSETTLE and CCANCEL are about. If there is none, it answers the
// operation: nil if the hold was ended by the same before, else an error.
func (x *turn) openHold(op *Op, r *ref, same func(*seen.HoldEnd) bool) (h *hold, err error) {
	r.judgeAgain(op.ID)
	if h = r.p.holds.find(r.hash, r.key, op.ID); h != nil {
		if h.expires > x.wall {
			return h, nil
		}
		if err := x.world.reserveMore(h.endRoom()); err != nil {
			return nil, err
		}
		x.endHold(r.p, h)
		return nil, expiredAt(h.expires)
	}
	if end := r.seen.Hold; r.verdict == verdictSeen && end != nil {
		r.t.figures.Duplicates++
		switch {
		case end.How == seen.Expired:
			return nil, expiredAt(end.Result)
		case same(end):
			return nil, nil
		case end.How == seen.Cancelled:
			return nil, &endedError{ErrEnded, "hold was cancelled"}
		}
		return nil, &endedError{ErrEnded, "hold was settled with " + decimal(end.Settled, op.Scale)}
	}
	if err := x.checkTime(op, r); err != nil {
		return nil, err
	}
	switch {
	case r.verdict == verdictSeen:
		return nil, r.usedBy()
	case r.t.def.Mode != Exact:
		return nil, ErrHoldMode
	case r.verdict != verdictNew:
		return nil, r.usedBy()
	}
	return nil, ErrNoHold
}

func expiredAt(expires int64) error {
	return &endedError{ErrHoldExpired, fmt.Sprintf("hold ended at %d, nothing was applied: if it must count, "+
		"use CINCRBY with a new opid", expires)}
}

// cSettle ends a hold, and adds what has happened to the counter.
func (x *turn) cSettle(op *Op) error {
	r := &x.of(op)[0]
	h, err := x.openHold(op, r, func(end *seen.HoldEnd) bool {
		op.Value = end.Result
		return end.How == seen.Settled && end.Settled == op.Delta
	})
	if h == nil {
		return err
	}
	if op.Delta != 0 && (op.Delta > 0) != (h.amount > 0) {
		return ErrHoldSign
	}
	next, err := x.sumFor(r, op.Delta)
	if err != nil {
		return err
	}
	// A settle counts a thing that has happened: own bounds bind the value alone, and a table's bind the part
	// that goes beyond the hold.
	if err := op.ownBounds(0).check(r, next, next); err != nil {
		return err
	}
	up, down := r.p.holds.of(r.key)
	others := up - max(h.amount, 0)
	if h.amount < 0 {
		others = down - h.amount
	}
	if op.Delta != 0 {
		if err := x.checkSide(r, addSaturated(next, others), op.Delta > 0, noBounds); err != nil {
			return err
		}
	}
	x.expireFirst(r)
	x.logEnd(r, h, op.ID, seen.HoldEnd{How: seen.Settled, Opened: h.opened, Settled: op.Delta, Result: next})
	r.t.figures.Applied++
	op.Value, op.Applied = next, true
	return nil
}

// cCancel ends a hold, and adds nothing.
func (x *turn) cCancel(op *Op) error {
	r := &x.of(op)[0]
	h, err := x.openHold(op, r, func(end *seen.HoldEnd) bool { return end.How == seen.Cancelled })
	if err == nil {
		op.Value = x.valueOf(r)
	}
	if h == nil {
		return err
	}
	x.logEnd(r, h, op.ID, seen.HoldEnd{How: seen.Cancelled, Opened: h.opened})
	r.t.figures.Applied++
	op.Applied = true
	return nil
}

// cHeld answers what holds set aside of a counter.
func (x *turn) cHeld(op *Op) error {
	r := &x.of(op)[0]
	if err := x.checkType(r); err != nil {
		return err
	}
	var info HeldInfo
	if k := r.p.holds.ofKey(r.key); k != nil {
		info = HeldInfo{Up: k.up, Down: k.down, Open: int64(k.count)}
		for _, h := range r.p.holds.expired(x.wall, maxUnended) {
			if h.of == k {
				info.Up, info.Down = info.Up-max(h.amount, 0), info.Down-min(h.amount, 0)
				info.Open--
			}
		}
	}
	op.Value, op.Object = x.valueOf(r), info
	return nil
}

// maxUnended bounds the holds that CHELD leaves out since their time has come, although nothing has ended
// them yet.
const maxUnended = 4096

// cHolds lists open holds of a counter from a cursor on.
func (x *turn) cHolds(op *Op) error {
	r := &x.of(op)[0]
	if err := x.checkType(r); err != nil {
		return err
	}
	var list []HoldInfo
	op.Value = 0
	if k := r.p.holds.ofKey(r.key); k != nil && op.Delta <= math.MaxUint32 {
		op.Value = int64(k.scan(uint32(op.Delta), int(op.At), func(h *hold) {
			if h.expires > x.wall {
				list = append(list, HoldInfo{ID: h.id, Amount: h.amount, Expires: h.expires})
			}
		}))
	}
	op.Object = list
	return nil
}

// nextHome is the home behind another one, in the order of their reversed bits; 0 behind the last one.
func nextHome(home, mask uint32) uint32 {
	return bits.Reverse32(bits.Reverse32(home|^mask) + 1)
}

// endHolds ends those of the holds of Keys, whose opids are in Object, whose time has come.
func (x *turn) endHolds(op *Op) error {
	ids, _ := op.Object.([]string)
	for i := range x.of(op) {
		r := &x.of(op)[i]
		id := []byte(ids[i])
		h := r.p.holds.find(r.p.hashes.ids.Hash(r.key, id), r.key, id)
		if h != nil && h.expires <= x.wall {
			x.endHold(r.p, h)
		}
	}
	return nil
}

// checkHoldID refuses an operation that has the opid of a hold, open or not: an opid names one thing on a
// key.
func (x *turn) checkHoldID(op *Op) error {
	ofHolds := op.Kind >= CHold && op.Kind <= CCancel || op.Kind == CSeen
	if !op.Kind.has(hasID) || ofHolds || op.Kind.internal() {
		return nil
	}
	for i := range x.of(op) {
		r := &x.of(op)[i]
		ended := r.verdict == verdictSeen && r.seen.Hold != nil
		if ended || r.p.holds.find(r.hash, r.key, op.ID) != nil {
			return otherUse("CHOLD") // also if the operation is too old
		}
	}
	return nil
}

// cGetDel reads and deletes a counter, once. In regions it is no deletion, but subtracts what it answers: so
// each increment is handed out once, though several regions do that at once (part.Parts.Drain).
func (x *turn) cGetDel(op *Op) error {
	r := &x.of(op)[0]
	r.judgeAgain(op.ID)
	if err := x.checkTime(op, r); err != nil {
		return err
	}
	if r.verdict != verdictNew {
		r.t.figures.Duplicates++
		if r.verdict != verdictSeen || !r.seen.IsDrain() {
			return r.usedBy()
		}
		op.Value, op.Found = r.seen.Result, r.seen.Is(seen.DrainSome)
		return nil
	}
	if r.t.def.Mode != Exact {
		return ErrDrainMode
	}
	if err := r.checkCaughtUp(); err != nil {
		return err
	}
	if err := x.readCounter(op, r); err != nil {
		return err
	}
	if op.Found {
		if op.Value = x.drained(r); op.Value == math.MinInt64 && x.givesParts(r) {
			return ErrOverflow
		}
		if err := x.checkRights(r, -op.Value); err != nil {
			return err
		}
	}
	if err := x.makeRoom(r); err != nil {
		return err
	}
	if !op.Found {
		x.expireFirst(r)
	}
	e := x.applyEntry(op, r, 0)
	e.kind, e.value, e.use = entryDrain, op.Value, seen.DrainNone
	if op.Found {
		e.use = seen.DrainSome
		x.noteDrain(e, r)
	}
	x.logApply(r, e)
	op.Applied = true
	r.t.figures.Applied++
	return nil
}
