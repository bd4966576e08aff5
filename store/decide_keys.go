package store

import "cmp"

// The plain commands: they change counters without an opid and are applied
// every time they are sent. Their outcomes are post-images too.

// incrBy adds to a counter.
func (x *turn) incrBy(op *Op) error {
	r := &x.of(op)[0]
	if err := x.checkIncr(r, op.Delta, noBounds); err != nil {
		return err
	}
	x.expireFirst(r)
	e := entry{kind: entryIncr, key: r.key, c: r.c, delta: op.Delta}
	x.postImage(&e, r, op.Delta)
	x.log(r.p, &e)
	op.Value, op.Applied = e.value, true
	return nil
}

// set overwrites a key with a counter.
func (x *turn) set(op *Op) error {
	r := &x.of(op)[0]
	c := r.c
	alive := x.alive(r)
	if op.Flags&SetGet != 0 && alive && c.kind != TypeCounter {
		return ErrWrongType
	}
	op.Found = alive
	if alive && c.kind == TypeCounter {
		op.Value = c.value
	}
	if op.Flags&NX != 0 && alive || op.Flags&XX != 0 && !alive {
		return nil
	}
	if err := r.refuseSet(); err != nil {
		return err
	}
	if err := x.checkValue(r, op.Delta); err != nil {
		return err
	}
	e := entry{kind: entrySet, key: r.key, c: c, value: op.Delta}
	switch {
	case op.Flags&HasExpire != 0:
		e.setExpire(op.ExpireAt)
	case op.Flags&KeepTTL != 0 && alive:
		e.setExpire(x.expiry(r))
	}
	x.markReplaced(&e, r)
	x.noteSet(&e, r)
	if op.Found && c.kind == TypeCounter {
		op.Value = x.drained(r)
	}
	x.log(r.p, &e)
	op.Applied = true
	return nil
}

// mset overwrites several keys with counters. With NX it does so only if none
// of them exists; nothing is logged before all are known to be missing (G6).
func (x *turn) mset(op *Op) error {
	refs := x.of(op)
	if len(op.Deltas) != len(refs) {
		return ErrOption
	}
	for i := range refs {
		if op.Flags&NX != 0 && x.alive(&refs[i]) {
			return nil
		}
	}
	for i := range refs {
		if err := cmp.Or(refs[i].refuseSet(), x.checkValue(&refs[i], op.Deltas[i])); err != nil {
			return err
		}
	}
	for i := range refs {
		r := &refs[i]
		e := entry{kind: entrySet, key: r.key, c: r.c, value: op.Deltas[i]}
		x.markReplaced(&e, r)
		x.noteSet(&e, r)
		x.log(r.p, &e)
	}
	op.Applied = true
	return nil
}

// markReplaced notes what an outcome that makes a counter replaces.
func (x *turn) markReplaced(e *entry, r *ref) {
	switch {
	case r.c.kind == TypeNone:
		e.flags |= flagCreated
	case r.c.kind.isObject():
		e.flags |= flagWasObject
	case !x.alive(r): // followers are told that it has ended
		e.flags |= flagExpired
	}
}

// del deletes keys. Their opids stay remembered: a late retry must not
// resurrect a counter.
func (x *turn) del(op *Op) error {
	for i := range x.of(op) {
		if r := &x.of(op)[i]; x.alive(r) {
			if err := r.refuseWhole(); err != nil {
				return err
			}
		}
	}
	for i := range x.of(op) {
		r := &x.of(op)[i]
		alive := x.alive(r)
		x.remove(r)
		if alive {
			op.Value++
		}
	}
	return nil
}

// remove logs the tombstone of a key, if there is anything to remove. The end of an object is its own: what
// other regions count under the name stays, and is shown from now on.
func (x *turn) remove(r *ref) {
	if r.c.kind == TypeNone {
		return
	}
	e := entry{kind: entryDelete, key: r.key, c: r.c}
	if r.c.kind.isObject() {
		if e.flags |= flagWasObject; r.c.parts().Alive() {
			e.flags |= flagCreated
			e.value = shown(r.c.parts())
		}
	}
	if !x.alive(r) {
		e.flags |= flagExpired
	}
	x.noteDelete(&e, r)
	x.log(r.p, &e)
}

// readCounter answers the value of a key that must be a counter if it exists.
func (x *turn) readCounter(op *Op, r *ref) error {
	if !x.alive(r) {
		return nil
	}
	if r.c.kind != TypeCounter {
		return ErrWrongType
	}
	op.Value, op.Found = r.c.value, true
	return nil
}

// getDel reads and deletes a counter.
func (x *turn) getDel(op *Op) error {
	r := &x.of(op)[0]
	if err := x.readCounter(op, r); err != nil || !op.Found {
		return err
	}
	if err := r.refuseWhole(); err != nil {
		return err
	}
	op.Value = x.drained(r)
	x.remove(r)
	return nil
}

// getEx reads a counter and changes its expiry.
func (x *turn) getEx(op *Op) error {
	r := &x.of(op)[0]
	if err := x.readCounter(op, r); err != nil || !op.Found {
		return err
	}
	if op.Flags&HasExpire != 0 {
		if err := r.refuseWhole(); err != nil {
			return err
		}
	}
	switch {
	case op.Flags&HasExpire != 0 && op.ExpireAt <= x.wall:
		x.remove(r)
	case op.Flags&HasExpire != 0:
		x.logExpire(r, op.ExpireAt)
	case op.Flags&NoExpire != 0 && r.c.expire != 0:
		x.logExpire(r, 0)
	}
	return nil
}

// expireAt sets when a key expires.
func (x *turn) expireAt(op *Op) error {
	r := &x.of(op)[0]
	if !x.alive(r) || !op.expireAllowed(x.expiry(r)) {
		return nil
	}
	if err := r.refuseWhole(); err != nil {
		return err
	}
	op.Applied = true
	if op.ExpireAt <= x.wall {
		x.remove(r)
		return nil
	}
	x.logExpire(r, op.ExpireAt)
	return nil
}

// expireAllowed applies the conditions NX, XX, GT and LT; a key that does not
// expire counts as one that expires infinitely late.
func (op *Op) expireAllowed(old int64) bool {
	switch f := op.Flags; {
	case f&NX != 0 && old != 0, f&XX != 0 && old == 0:
		return false
	case f&GT != 0 && (old == 0 || op.ExpireAt <= old):
		return false
	case f&LT != 0 && old != 0 && op.ExpireAt >= old:
		return false
	}
	return true
}

// persist removes the expiry of a key.
func (x *turn) persist(op *Op) error {
	r := &x.of(op)[0]
	if x.alive(r) && r.c.expire != 0 {
		x.logExpire(r, 0)
		op.Applied = true
	}
	return nil
}

// logExpire logs when a key expires; 0: never.
func (x *turn) logExpire(r *ref, at int64) {
	e := entry{kind: entrySetExpiry, typ: r.c.kind, key: r.key, c: r.c, value: r.c.value}
	e.setExpire(at)
	x.noteExpire(&e, r)
	x.log(r.p, &e)
}

// removeExpired logs the tombstone of a key whose time has come: the active
// expiry cycle. A key that was changed meanwhile stays, and one that another region deletes.
func (x *turn) removeExpired(op *Op) error {
	for i := range x.of(op) {
		if r := &x.of(op)[i]; !x.alive(r) && r.p.sets(r.c) {
			if r.c.kind != TypeNone {
				x.expired++
			}
			x.remove(r)
		}
	}
	return nil
}

// flushAll deletes every key and forgets every opid. The tables'
// forgotten-before time keeps out what was forgotten.
func (x *turn) decideFlush(op *Op) error { return x.world.flushAll(op) }

// flush empties a partition. saves: Redis would take a snapshot.
func (x *turn) flush(p *machine, saves bool) {
	gone := p.size
	x.log(p, &entry{kind: entryFlush, value: x.wall})
	if p.savedSeq -= gone - 1; saves {
		p.savedSeq = int64(p.seq)
	}
}

// read answers a query from state.
func (x *turn) read(op *Op) error {
	for i := range x.of(op) {
		r := &x.of(op)[i]
		alive := x.alive(r)
		counter := alive && r.c.kind == TypeCounter
		if alive {
			x.hits++
		} else {
			x.misses++
		}
		switch op.Kind {
		case MGet:
			var v int64
			if counter {
				v = r.c.value
			}
			op.Values, op.Founds = append(op.Values, v), append(op.Founds, counter)
		case Get, ByRegion:
			if alive && !counter && (op.Kind == Get || r.p.regions == nil) {
				return ErrWrongType
			}
			if op.Found = counter; counter {
				op.Value = r.c.value
			}
			if op.Kind == ByRegion {
				if err := r.shares(op, alive && !counter); err != nil {
					return err
				}
			}
		case Exists:
			if alive {
				op.Value++
			}
		case TypeOf:
			if op.Found = alive; alive {
				op.Type = r.c.kind
			}
		case MemoryUsage:
			if op.Found = alive; alive {
				op.Value = r.c.usage()
			}
		case ExpireTime:
			if op.Found = alive; alive && r.c.expire != 0 {
				op.Value, op.Values = r.c.expire, append(op.Values, x.left(r))
			}
		}
	}
	return nil
}
