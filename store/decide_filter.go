package store

// filterOp decides the commands on FBF keys.
func (x *decider) filterOp(op *Op) error {
	r := &x.of(op)[0]
	alive := r.c.alive(x.at.wall)
	if alive && r.c.kind != TypeFilter {
		return ErrWrongType
	}
	switch op.Kind {
	case FBFReserve:
		if alive {
			return ErrFilterExists
		}
		return x.reserve(r, op.Filter)
	case FBFAdd:
		return x.filterAdd(op, r, alive)
	case FBFExists:
		return x.filterExists(op, r, alive)
	}
	if !alive {
		if op.Kind == FBFCard {
			return nil
		}
		return ErrNoFilter
	}
	switch f := r.c.filter(); op.Kind {
	case FBFCard:
		op.Value, op.Found = int64(f.items()), true
	case FBFInfo:
		op.Info = f.info(x.at.logged)
	case FBFRefresh:
		x.refreshNow(r)
	}
	return nil
}

// reserve logs the creation of a filter, if the memory is there.
func (x *decider) reserve(r *ref, o *FilterOptions) error {
	var opts FilterOptions
	if o != nil {
		opts = *o
	}
	if err := opts.Validate(); err != nil {
		return err
	}
	opts = opts.withDefaults()
	pl := planner{pool: r.p.pool}
	if !pl.grant(opts.initialFilterBytes()) {
		return ErrOutOfMemory
	}
	pl.settle()
	if r.c.kind != TypeNone {
		x.remove(r) // expired, not yet removed
	}
	x.log(r.p, &entry{kind: entryReserve, flags: flagCreated, key: r.key, id: opts.encode(), c: r.c})
	return nil
}

// filterAdd adds items in order; an item that is present already, or that the
// filter takes for one, is not added again, and one for which there is no room
// is not added at all.
func (x *decider) filterAdd(op *Op, r *ref, alive bool) error {
	if !alive {
		if op.Flags&NoCreate != 0 {
			return ErrNoFilter
		}
		if err := x.reserve(r, op.Filter); err != nil {
			return err
		}
	}
	f := r.c.filter()
	hashes := x.items[op.run.firstItem : op.run.firstItem+op.run.items]
	for i, h := range hashes {
		room := x.refreshDue(r)
		present := f.contains(h)
		full := !present && (f.full() || !room) // G5: rather not at all than beyond ERROR
		if !present && !full {
			x.log(r.p, &entry{kind: entryAdd, key: r.key, id: op.Keys[i], c: r.c, hash: h})
		}
		op.Founds, op.Fulls = append(op.Founds, present), append(op.Fulls, full)
	}
	return nil
}

func (x *decider) filterExists(op *Op, r *ref, alive bool) error {
	for _, h := range x.items[op.run.firstItem : op.run.firstItem+op.run.items] {
		op.Founds = append(op.Founds, alive && r.c.filter().contains(h))
	}
	return nil
}

// refreshDue logs the refreshes and other events that are due, unless there is no space
// for them on the disk.
func (x *decider) refreshDue(r *ref) bool {
	f := r.c.filter()
	for n := 0; n < maxEvents && x.err == nil && f.due(x.at.logged); n++ {
		if !x.moreRoom(eventRoom + len(r.key)) {
			return false
		}
		if f.fixed != nil {
			x.logRefresh(r, nil)
			continue
		}
		pl := planner{pool: r.p.pool}
		ev, ok := f.adaptive.Plan(x.at.logged, pl.grant)
		pl.settle()
		if !ok {
			break
		}
		x.logRefresh(r, ev.AppendTo(nil))
	}
	return true
}

// refreshNow is FBF.REFRESH: a FIXED filter drops its oldest generation,
// another seals its newest and forgets nothing early.
func (x *decider) refreshNow(r *ref) {
	f := r.c.filter()
	if f.fixed != nil {
		x.logRefresh(r, nil)
		return
	}
	if ev, ok := f.adaptive.PlanSeal(x.at.logged); ok {
		x.logRefresh(r, ev.AppendTo(nil))
	}
}

func (x *decider) logRefresh(r *ref, event []byte) {
	x.log(r.p, &entry{kind: entryRefresh, key: r.key, id: event, c: r.c})
}
