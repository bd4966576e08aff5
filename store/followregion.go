package store

import "github.com/fbfkv/fbfkv/store/part"

// A region logs in one section all that it has taken from another one (take.go): for each counter a merge,
// which tells by how much that has changed, then the operations of that region as they are
// heard, then the cursor, which names the region. A follower is told
//
//	merged     what the merge did, but for the operations heard behind it: it names none
//	add        each of these operations, with opid, delta and region; a drain's delta is negative
//	takeback   what this region took back for one of them, with the negative delta
//
// so that the deltas add up to the counter, at each entry. Of operations that are heard without such a merge
// nothing is told: the counter had them before, or a deletion has removed them.

// takenSection is what is known of the section at hand.
type takenSection struct {
	looked bool // The rest is known.
	// The section was taken from this region.
	of   part.Region
	name string
	// The sums of operations whose merge was not told yet.
	named map[namedOps]int64
	// The keys whose operations are named, as they were told.
	values map[string]int64

	regional regional // of the entry at hand
}

// namedOps are the operations of a key that a region has applied.
type namedOps struct {
	key string
	by  part.Region
}

// look reads the rest of the section: which region it is of, and what its operations add.
func (r *following) look() {
	t := &r.taken
	t.looked, t.name = true, ""
	t.named, t.values = make(map[namedOps]int64), make(map[string]int64)
	rd, known := r.reader, false
	rd.r = new(regional)
	for e := (entry{}); rd.next(&e); {
		switch e.kind {
		case entryHeard, entryTakeBack:
			by := e.r.heard.Origin
			if t.named[namedOps{string(e.key), by}] += e.winner().Made; !known {
				t.of, known = by, true
			}
		case entryCursor:
			t.of, known = e.r.cursor.Region, true
		}
	}
	if known {
		t.name = r.regions.name(t.of)
	}
}

// byRegion tells of the entry at hand, which only members of regions log, with what the section says of it.
// It reports whether it has a change.
func (r *following) byRegion(tells bool) bool {
	e, f, t := &r.entry, &r.change, &r.taken
	switch e.kind {
	case entryHeard:
		return r.names()
	case entryMerge:
		if !t.looked {
			r.look()
		}
		f.Region = t.name
		ops := namedOps{string(e.key), t.of}
		named, are := t.named[ops]
		if !are || e.r.merged != 0 || !e.shows() {
			return tells
		}
		delete(t.named, ops)
		f.Delta, f.Value = f.Delta-named, f.Value-named
		t.values[ops.key] = f.Value
		return f.Delta != 0
	}
	back := *f
	if e.kind == entryTakeBack && r.names() { // the operation that counts
		r.pass()
		back.Value, back.Index = f.Value+back.Delta, 1
		if t.values[string(e.key)] = back.Value; e.ends() { // later operations are of a counter that is gone
			delete(t.values, string(e.key))
		}
	}
	*f = back
	f.Region = r.regions.name(r.regions.Self)
	return tells
}

// names makes the operation that the entry at hand has heard the change, if the merge of its key was told
// without it.
func (r *following) names() bool {
	e, f, t := &r.entry, &r.change, &r.taken
	value, is := t.values[string(e.key)]
	if !t.looked || !is || e.r.heard.Origin != t.of {
		return false
	}
	f.Kind, f.ID, f.Delta, f.Region = FollowedAdd, e.id, e.winner().Made, t.name
	f.Value = value + f.Delta
	t.values[string(e.key)] = f.Value
	return true
}
