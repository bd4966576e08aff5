package store

import "github.com/fbfkv/fbfkv/fbf"

// maxFilterOptions bounds encoded FilterOptions, bytes.
const maxFilterOptions = 200

// The operations on FBF keys; see Kind.
const (
	// FBFReserve creates the filter Key. In: Key, Filter.
	FBFReserve Kind = firstFilterKind + iota
	// FBFAdd adds Keys (items) to the filter Key, creating it with Filter (or
	// defaults when nil) unless NoCreate. Out: Founds[i] is true when item i
	// was present before; Fulls[i] when it was not added because the filter is
	// at the memory cap, as BF.MADD answers item by item.
	FBFAdd
	// FBFRefresh refreshes the filter Key. Out: none.
	FBFRefresh
	// FBFExists tests Keys (items) in the filter Key; a missing filter holds
	// nothing. Out: Founds.
	FBFExists
	// FBFCard counts the items remembered by the filter Key. Out: Value.
	FBFCard
	// FBFInfo describes the filter Key. Out: Info.
	FBFInfo

	firstFilterKind = Kind(TypeFilter) * kindsPerType
)

// filterKinds declares the operations on FBF keys.
func filterKinds() []kind {
	return []kind{
		FBFReserve - firstFilterKind: {is: writes | unsplit, entries: 2, fields: maxFilterOptions, turn: (*decider).filterReserve}, // also a tombstone
		FBFAdd - firstFilterKind:     {is: writes | hashesItems, entries: 2, fields: maxFilterOptions, turn: (*decider).filterAdd},
		FBFRefresh - firstFilterKind: {is: writes | unsplit, entries: 1, fields: fbf.MaxEventBytes, turn: (*decider).filterRefresh},
		FBFExists - firstFilterKind:  {is: hashesItems, turn: (*decider).filterExists},
		FBFCard - firstFilterKind:    {is: unsplit, turn: (*decider).filterCard},
		FBFInfo - firstFilterKind:    {is: unsplit, turn: (*decider).filterInfo},
	}
}

// filterAt finds the filter that an operation is about; nil if there is none.
func (x *decider) filterAt(op *Op) (*ref, *filterKey, error) {
	r := &x.of(op)[0]
	x.saw(r)
	if !r.c.alive(x.at.wall) {
		return r, nil, nil
	}
	if r.c.kind != TypeFilter {
		return r, nil, ErrWrongType
	}
	return r, r.c.filter(), nil
}

func (x *decider) filterReserve(op *Op) error {
	r, f, err := x.filterAt(op)
	if err != nil {
		return err
	}
	if f != nil {
		return ErrFilterExists
	}
	return x.reserve(r, op.Filter)
}

func (x *decider) filterCard(op *Op) error {
	_, f, err := x.filterAt(op)
	if f != nil {
		op.Value, op.Found = int64(f.items()), true
	}
	return err
}

func (x *decider) filterInfo(op *Op) error {
	_, f, err := x.filterAt(op)
	if err != nil {
		return err
	}
	if f == nil {
		return ErrNoFilter
	}
	op.Info = f.info(x.at.logged)
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
func (x *decider) filterAdd(op *Op) error {
	r, f, err := x.filterAt(op)
	if err != nil {
		return err
	}
	if f == nil {
		if op.Flags&NoCreate != 0 {
			return ErrNoFilter
		}
		if err := x.reserve(r, op.Filter); err != nil {
			return err
		}
		f = r.c.filter()
	}
	r.p.need = r.p.seq // a positive may rest on any earlier add
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

func (x *decider) filterExists(op *Op) error {
	r, f, err := x.filterAt(op)
	if err != nil {
		return err
	}
	r.p.need = r.p.seq
	for _, h := range x.items[op.run.firstItem : op.run.firstItem+op.run.items] {
		op.Founds = append(op.Founds, f != nil && f.contains(h))
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

// filterRefresh is FBF.REFRESH: a FIXED filter drops its oldest generation,
// another seals its newest and forgets nothing early.
func (x *decider) filterRefresh(op *Op) error {
	r, f, err := x.filterAt(op)
	if err != nil {
		return err
	}
	if f == nil {
		return ErrNoFilter
	}
	if f.fixed != nil {
		x.logRefresh(r, nil)
		return nil
	}
	if ev, ok := f.adaptive.PlanSeal(x.at.logged); ok {
		x.logRefresh(r, ev.AppendTo(nil))
	}
	return nil
}

func (x *decider) logRefresh(r *ref, event []byte) {
	x.log(r.p, &entry{kind: entryRefresh, key: r.key, id: event, c: r.c})
}
