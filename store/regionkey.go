package store

import (
	"slices"
	"unsafe"

	"github.com/fbfkv/fbfkv/store/part"
	"github.com/fbfkv/fbfkv/store/seen"
)

// ChangeKind says what a Change does.
type ChangeKind uint8

// The kinds of changes. Values are part of the format of what regions exchange.
const (
	ChangeAdd    ChangeKind = 1 // Delta was added; Expire is the expiry that it was made under
	ChangeSet    ChangeKind = 2 // SET to Delta at HLC, with Expire; Bases
	ChangeDelete ChangeKind = 3 // DEL, or the key expired; Bases
	ChangeExpire ChangeKind = 4 // Expire was set
	// Delta, which was added at Dot, was taken back, as Winner counts; Parts has that one's part
	ChangeTakeBack ChangeKind = 5
	ChangeSpent    ChangeKind = 6 // take-backs are forgotten, as Spent says
	// of a state, or of an heir: all Parts of the key, as the region knows them
	ChangeParts  ChangeKind = 7
	ChangeRights ChangeKind = 8 // of the bounds, as Rights says
	ChangeDrain  ChangeKind = 9 // Delta was handed out; Expire as of ChangeAdd
)

// Change is what a region did to a counter, as its log or its state tells it.
type Change struct {
	Kind   ChangeKind
	Region part.Region // which did it
	Seq    uint64      // of the entry, in that region's partition
	Delta  int64
	HLC    uint64
	Dot    uint64
	Winner part.Applied
	Expire part.Expiry // Clock is not used
	Bases  []part.RegionBase
	Parts  part.Parts
	Spent  part.Settlement
	Rights part.RightsChange
}

// apply makes the change to parts, unless they contain it already. It takes nothing over of the
// change but what is never changed in place.
func (ch *Change) apply(p *part.Parts) {
	switch ch.Kind {
	case ChangeAdd:
		p.Increment(ch.Region, ch.Seq, ch.Delta, ch.Expire)
	case ChangeDrain:
		p.Drain(ch.Region, ch.Seq, ch.Delta, ch.Expire)
	case ChangeSet:
		p.Assign(ch.Region, ch.Seq, ch.HLC, ch.Delta, ch.Bases, ch.Expire)
	case ChangeDelete:
		p.Delete(ch.Region, ch.Seq, ch.Bases)
	case ChangeExpire:
		p.SetExpiry(ch.Region, ch.Seq, ch.Expire.HLC, ch.Expire.At)
	case ChangeTakeBack:
		p.Merge(ch.Parts)
		p.TakeBack(ch.Seq, part.Owed{Applied: part.Applied{Region: ch.Region, Dot: ch.Dot, Made: ch.Delta},
			Winner: ch.Winner})
	case ChangeSpent:
		p.Settle(ch.Region, ch.Seq, ch.Spent)
	case ChangeRights:
		p.ChangeRights(ch.Region, ch.Seq, ch.Rights)
	case ChangeParts:
		p.Merge(ch.Parts)
	}
}

// oldHLC is the time of expiries that were set before there were regions: every later one wins.
const oldHLC = 1

// change returns what an own entry at seq does to the counter of its key, for the regions that
// read it as for redo; false if that is nothing.
func (e *entry) change(self part.Region, seq uint64) (ch Change, ok bool) {
	ch = Change{Region: self, Seq: seq}
	expire := part.Expiry{At: e.expire, By: self}
	if e.flags&flagRegional != 0 {
		expire.HLC, expire.By, ch.Bases = e.r.note.HLC, e.r.note.By, e.r.note.Bases
	} else if e.flags&flagHasExpire != 0 {
		expire.HLC = oldHLC
	}
	if change := e.kind.row().change; change != nil {
		return change(e, ch, expire)
	}
	return ch, false
}

func (e *entry) changeAdd(ch Change, expire part.Expiry) (Change, bool) {
	ch.Kind, ch.Delta, ch.Expire = ChangeAdd, e.delta-e.clip, expire
	return ch, true
}

// changeDrain is about a drain: an entry without a note is of a region that was alone, and is a deletion.
func (e *entry) changeDrain(ch Change, expire part.Expiry) (Change, bool) {
	if ch.Kind, ch.Delta, ch.Expire = ChangeDrain, e.value, expire; e.flags&flagRegional == 0 {
		ch = Change{Kind: ChangeDelete, Region: ch.Region, Seq: ch.Seq}
	}
	return ch, e.use == seen.DrainSome
}

func (e *entry) changeSet(ch Change, expire part.Expiry) (Change, bool) {
	ch.Kind, ch.Delta, ch.HLC = ChangeSet, e.value, expire.HLC
	if e.flags&flagHasExpire != 0 {
		ch.Expire = expire
	}
	return ch, true
}

func (e *entry) changeDelete(ch Change, _ part.Expiry) (Change, bool) {
	ch.Kind = ChangeDelete
	return ch, e.flags&flagWasObject == 0
}

func (e *entry) changeExpire(ch Change, expire part.Expiry) (Change, bool) {
	ch.Kind, ch.Expire = ChangeExpire, expire
	return ch, e.isOfCounter()
}

func (e *entry) changeTakeBack(ch Change, _ part.Expiry) (Change, bool) {
	ch.Kind, ch.Delta, ch.Dot, ch.Parts = ChangeTakeBack, e.r.back.Made, e.r.back.Dot, e.r.parts
	ch.Winner = e.winner()
	if e.r.back.Owed { // from now on others know who won
		ch.Kind = ChangeParts
		return ch, len(ch.Parts) > 0
	}
	return ch, e.r.back.Held
}

// winner is the application that a take-back is about, of the region that counts.
func (e *entry) winner() part.Applied {
	o := e.heardOriginal()
	return part.Applied{Region: o.Region, Dot: o.Dot, Made: o.Made()}
}

func (e *entry) changePaid(ch Change, _ part.Expiry) (Change, bool) {
	ch.Kind, ch.Delta, ch.Dot = ChangeTakeBack, e.r.back.Made, e.r.back.Dot
	ch.Winner = e.r.back.Winner
	return ch, true
}

func (e *entry) changeSpent(ch Change, _ part.Expiry) (Change, bool) {
	ch.Kind, ch.Spent = ChangeSpent, e.r.spent
	return ch, true
}

func (e *entry) changeParts(ch Change, _ part.Expiry) (Change, bool) {
	ch.Kind, ch.Parts = ChangeParts, e.r.parts
	return ch, true
}

// parts are what each region did to the counter; nil: see counterExtra.
func (c *counter) parts() part.Parts {
	if c.extra == nil {
		return nil
	}
	return c.extra.parts
}

func (c *counter) setParts(p part.Parts) {
	if c.extra == nil {
		if p == nil {
			return
		}
		c.extra = new(counterExtra)
	}
	c.extra.parts = p
}

// asParts returns the parts of a counter as if it had always had them. The caller may change
// them if own.
func (c *counter) asParts(self part.Region) (p part.Parts) {
	if p = c.parts(); p != nil || c.kind != TypeCounter {
		return p
	}
	own := part.FromCounter(self, c.value, c.seq)
	if c.expire != 0 {
		own.Expire = part.Expiry{Clock: c.seq, HLC: oldHLC, At: c.expire, By: self}
	}
	return part.Parts{own}
}

// partsBytes is the memory of parts.
func partsBytes(p part.Parts) (n int64) {
	for i := range p {
		n += sizeClassOf(unsafe.Sizeof(p[i])) + int64(cap(p[i].Undo))*int64(unsafe.Sizeof(part.Undo{}))
		if w := p[i].Rights; w != nil {
			n += int64(unsafe.Sizeof(*w)) + int64(cap(w.Given))*int64(unsafe.Sizeof(part.Grant{}))
		}
	}
	return n
}

// loadParts puts the row of a key into memory, in recovery: of a key with parts an entry says
// only what it changes. The row may contain the entry already, and later ones.
func (p *machine) loadParts(c *counter) error {
	row, err := p.outside.rowOf(c)
	if row != nil {
		c.showRow(row)
	}
	return err
}

// loadAside gives an object the parts that its key's row has.
func (p *machine) loadAside(c *counter) error {
	row, err := p.outside.rowOf(c)
	if row != nil && c.parts() == nil {
		c.setParts(row.parts)
	}
	return err
}

// redoParts brings the parts of a key up to an own entry, before the counter itself is changed.
// An entry without a note is about a key that has none.
func (p *machine) redoParts(c *counter, e *entry, seq uint64) {
	if !e.needsParts() || p.regions == nil {
		c.setParts(nil)
		return
	}
	parts := c.asParts(p.self())
	if ch, ok := e.change(p.self(), seq); ok {
		ch.apply(&parts)
	}
	if p.regions.alone() {
		parts.DropRights() // they begin anew when there are others
	}
	c.setParts(parts)
	if parts.Waiting(p.self()) {
		p.endedKey(c)
	}
}

// redoMerge gives a key the parts that a merge left, and what follows from them.
func (p *machine) redoMerge(e *entry, seq uint64, _ moment) error {
	if e.r.merged == mergeEnds && seq > p.marks.counters {
		p.size--
	}
	c := p.replaced(e, seq)
	if c == nil {
		return nil
	}
	if e.r.merged == mergeAside && !p.marks.rebuilt { // else the object was lost with its snapshots
		parts := slices.Clone(c.parts()) // perhaps from a newer row
		parts.Merge(e.r.parts)
		c.setParts(parts)
		p.hot.changed(c)
		return nil
	}
	parts := e.r.parts
	switch {
	case !e.r.delta.Keeps():
	case c.seq == seq:
		parts = c.parts() // its row has the entry already: what is added to would be there twice
	default:
		parts = e.r.delta.Parts(c.parts())
	}
	c.setParts(append(c.parts()[:0], parts...)) // the entry's are used again
	p.showParts(c, seq, e.value)
	return nil
}

// shown is what a counter with such parts shows: their total, if it exists.
func shown(parts part.Parts) (v int64) {
	if parts.Alive() {
		v, _ = parts.Value()
	}
	return v
}

// showParts makes a counter show the total of its parts, which is value.
func (p *machine) showParts(c *counter, seq uint64, value int64) {
	parts := c.parts()
	c.kind, c.value, c.seq = TypeNone, 0, seq
	at := int64(0)
	if parts.Alive() {
		c.kind, c.value, at = TypeCounter, value, parts.Expiry().At
	}
	p.setExpire(c, at)
	p.hot.changed(c)
	if c.kind == TypeNone || p.regions != nil && (ownUndo(parts, p.self()) || parts.Waiting(p.self()) ||
		p.orphaned(parts)) {
		p.endedKey(c)
	}
}

// redoTakeBack takes back an own operation, or only notes that it was. The records are redone
// with it.
func (p *machine) redoTakeBack(e *entry, seq uint64, at moment) error {
	if e.r.back.Held {
		_ = p.redoOwnParts(e, seq, at)
	}
	if back := &e.r.back; back.Owed && seq > p.marks.counters && p.regions != nil {
		own := part.Applied{Region: p.self(), Dot: back.Dot, Made: back.Made}
		p.noteOwed(e.key, []part.Owed{{Applied: own, Winner: e.winner()}})
	}
	p.redoRecordTakenBack(e, seq, at)
	return nil
}

// becomes returns the flags of an own entry that changes nothing but the parts of a key, which exists
// afterwards, or not.
func (c *counter) becomes(exists bool) entryFlags {
	switch {
	case exists && c.kind == TypeNone:
		return flagCreated
	case !exists && c.kind == TypeCounter:
		return flagExpired
	}
	return 0
}

// ends reports whether an own entry, other than a deletion, leaves no counter.
func (e *entry) ends() bool {
	switch e.kind {
	case entryTakeBack, entryPaid:
		return e.flags&flagExpired != 0
	case entryApply, entryIncr, entryDrain:
		return e.flags&flagRegional != 0 && e.r.note.Absent
	case entryHeir:
		return e.r.merged == mergeEnds
	}
	return false
}

// shows reports whether there is a counter behind a merge. Of one that was drained its parts may not tell.
func (e *entry) shows() bool {
	may, must := e.r.parts.MayBeAlive()
	return must || may && e.value != 0
}

// redoOwnParts redoes an entry that changes nothing but the parts of a key, and pays what is owed of it.
func (p *machine) redoOwnParts(e *entry, seq uint64, _ moment) error {
	if e.kind == entryPaid && seq > p.marks.counters && p.regions != nil {
		p.regions.owed.remove(e.key, []part.Owed{owedAt(p.self(), e.r.back.Dot)})
	}
	if e.ends() && seq > p.marks.counters {
		p.size--
	}
	if c := p.replaced(e, seq); c != nil {
		value := e.value
		switch p.redoParts(c, e, seq); e.kind {
		case entrySpent, entryRights:
			value = shown(c.parts())
		case entryDrain:
			value = e.r.note.Left
		}
		p.showParts(c, seq, value)
	}
	return nil
}

// redoForget lets go of the parts of a key that does not exist.
func (p *machine) redoForget(e *entry, seq uint64, _ moment) error {
	p.noteDropped(e.key, seq)
	if c := p.replaced(e, seq); c != nil {
		c.setParts(nil)
		c.kind, c.value, c.expire, c.seq = TypeNone, 0, 0, seq
		p.hot.changed(c)
	}
	return nil
}

// redoCursor redoes how far a source was taken.
func (p *machine) redoCursor(e *entry, seq uint64, at moment) error {
	if seq <= p.marks.counters {
		return nil
	}
	if p.regions == nil {
		return errCorruptEntry
	}
	p.regions.take(&e.r.cursor, at.logged)
	return nil
}
