package store

import (
	"encoding/binary"
	"fmt"

	"github.com/fbfkv/fbfkv/store/coding"
	"github.com/fbfkv/fbfkv/store/part"
	"github.com/fbfkv/fbfkv/store/seen"
)

// entryKind is the kind of a log entry: one outcome of Decide.
type entryKind uint8

// The kinds of log entries. Values are part of the format.
const (
	entryApply     entryKind = 1
	entrySet       entryKind = 2
	entryDelete    entryKind = 3
	entryControl   entryKind = 4
	entryTighten   entryKind = 5
	entryCatalog   entryKind = 6
	entryFlush     entryKind = 7
	entryCreate    entryKind = 8
	entryChange    entryKind = 9
	entrySetExpiry entryKind = 10
	entryIncr      entryKind = 11
	entryJump      entryKind = 12
	entryFragment  entryKind = 13
	entryLast      entryKind = 14
	entryDrop      entryKind = 15
	entryRemember  entryKind = 16
	entryAdopt     entryKind = 17
	entryVacate    entryKind = 18
	entryHandOver  entryKind = 19
	entryMerge     entryKind = 20
	entryHeard     entryKind = 21
	entryTakeBack  entryKind = 22
	entryCursor    entryKind = 23
	entryRegions   entryKind = 24
	entryForget    entryKind = 25
	entrySpent     entryKind = 26
	entryOwed      entryKind = 27
	entryLevelled  entryKind = 28
	entryHeir      entryKind = 29
	entryPaid      entryKind = 30
	entryHold      entryKind = 31
	entryHoldEnd   entryKind = 32
	entryDrain     entryKind = 33
	entryThrottle  entryKind = 34
	entryRights    entryKind = 35
	entryEnd       entryKind = 36 // the lowest number that is free
)

// kindRow is all that the store knows of a kind of entries. Encoding, decoding, redo, and what a
// move of the partition and other regions make of an entry follow from it, and so does the table in
// FORMAT.md.
type kindRow struct {
	name    string
	meaning string // for FORMAT.md
	fields  []entryField
	fits    func(e *entry) bool // whether the fields of an entry that was read go together; nil: always
	traits  traits

	key   keyUse
	makes func(e *entry) bool // whether an entry makes its key exist in memory, if the kind does; nil: always
	parts func(e *entry) bool // whether redo needs the parts of the key; nil: only if there is a note
	redo  func(p *machine, e *entry, seq uint64, at moment) error
	// f, filled with what an entry does to a counter; false: nothing. nil: the kind changes none
	follow func(e *entry, f *Followed) bool

	// These say what other regions are told. The log tells no merge and no heard opid: those come
	// from the region that made them. They are told nothing of objects.
	// whether they are told of an entry of the log; nil: never
	told func(e *entry, self part.Region) bool
	// whether a page of state may have an entry; nil: never
	inState func(e *entry, page *statePage) bool
	// ch, filled with what an entry does to the counter of its key; false: nothing
	change func(e *entry, ch Change, expire part.Expiry) (Change, bool)
	// what else a region that is told does
	take func(t *taker, e *pulledEntry) error
}

// traits are what a kind is beside its fields.
type traits uint8

const (
	hasTable   traits = 1 << iota // the entry names a table
	hasOpid                       // … and an opid
	isPlain                       // redo of the next entry may look up its key before this one is redone
	jumps                         // the next entry follows the sequence value
	noSaving                      // nobody may be saving the partition during redo
	moves                         // the partition comes from another shard, or goes there
	ofRegions                     // only members of regions log it
	changesAll                    // any key may answer something else
)

// keyUse says what redo has to find of the key of an entry.
type keyUse uint8

const (
	noKey      keyUse = iota // the entry is about no key
	keyNamed                 // nothing
	keyFound                 // what is in memory
	keyCounter               // the key is added to memory, if that does not have the entry already
	keyObject                // the same, of an object
)

// kindRows has a row for each kind. Redo uses it, so that it cannot be initialized with what redoes.
var kindRows [256]kindRow

var _ = fillKindRows(clientKinds(), moneyKinds(), tableKinds(), partitionKinds(), heardKinds(), regionKinds())

func fillKindRows(groups ...map[entryKind]kindRow) bool {
	for _, rows := range groups {
		for kind, row := range rows {
			kindRows[kind] = row
		}
	}
	return true
}

// row returns the row of a kind; an empty one, without redo, if there is no such kind.
func (kind entryKind) row() *kindRow { return &kindRows[kind] }

// is reports whether a kind has a trait.
func (kind entryKind) is(t traits) bool { return kindRows[kind].traits&t != 0 }

func always(*entry, part.Region) bool { return true }

// clientKinds returns the kinds that clients cause.
func clientKinds() map[entryKind]kindRow {
	return map[entryKind]kindRow{
		entryApply: {
			name: "apply", meaning: "an idempotent operation; value is the counter after it",
			fields: []entryField{fieldTable, fieldOp},
			traits: hasTable | hasOpid | isPlain, key: keyCounter, redo: (*machine).redoApply,
			told: always, change: (*entry).changeAdd, take: (*taker).takeApplied,
			follow: (*entry).followApply,
		},
		entrySet: {
			name: "set", meaning: "a value was set: a counter's post-image",
			fields: []entryField{fieldKey, fieldValue},
			traits: isPlain, key: keyCounter, redo: (*machine).redoSet,
			told: always, change: (*entry).changeSet,
			follow: (*entry).followSet,
		},
		entryDelete: {
			name: "delete", meaning: "tombstone: with flag 40 the key's time had come, otherwise it was " +
				"deleted. With flag 01 it ends an object, " +
				"and the key shows what other regions count under its name",
			fields: []entryField{fieldKey, fieldShown},
			traits: isPlain, key: keyCounter, redo: (*machine).redoDelete,
			told:   func(e *entry, _ part.Region) bool { return e.flags&flagWasObject == 0 },
			change: (*entry).changeDelete,
			follow: (*entry).followDelete,
		},
		entryCreate: {
			name: "create", meaning: "a key that holds an object was created",
			fields: []entryField{fieldKey, fieldObjectType, fieldBytes.as("options bytes")},
			key:    keyObject, redo: (*machine).redoCreate,
		},
		entryChange: {
			name: "change", meaning: "an object changed",
			fields: []entryField{fieldKey, fieldObjectType, fieldBytes.as("change bytes")},
			key:    keyFound, redo: (*machine).redoChange,
		},
		entrySetExpiry: {
			name: "expire", meaning: "the expiry of a key was set; without flag 04: removed. Of a counter " +
				"it is a post-image, too",
			fields: []entryField{fieldKey, fieldType, fieldValueOfCounter},
			key:    keyCounter, makes: (*entry).isOfCounter, redo: (*machine).redoExpire,
			told:   func(e *entry, _ part.Region) bool { return e.isOfCounter() },
			change: (*entry).changeExpire,
		},
		entryIncr: {
			name: "increment", meaning: "an increment without an opid; value is the counter after it",
			fields: []entryField{fieldKey, fieldDelta, fieldValue},
			traits: isPlain, key: keyCounter, redo: (*machine).redoSet,
			told: always, change: (*entry).changeAdd,
			follow: (*entry).followIncr,
		},
		entryRemember: {
			name: "remember", meaning: "the change before it, of a sketch, was that of an idempotent " +
				"operation; its items, and deltas, have the " +
				"fingerprint (store/sketch/hash.go). Bit i of the answers of BF.CADD says that item i was new",
			fields: []entryField{fieldTable, fieldOp.as("key bytes, opid, fingerprint v, answers v")},
			traits: hasTable | hasOpid, key: keyFound, redo: (*machine).redoRemember,
		},
		entryFragment: {
			name: "fragment", meaning: "a fragment of a change that is longer than 256 KiB",
			fields: []entryField{fieldNumber, fieldBytes},
			redo:   (*machine).redoFragment,
		},
		entryLast: {
			name:    "last fragment",
			meaning: "an object changed: the change is the fragments with that number, then these bytes",
			fields:  []entryField{fieldKey, fieldObjectType, fieldNumber, fieldBytes},
			key:     keyFound, redo: (*machine).redoLast,
		},
		entryDrop: {
			name: "drop", meaning: "the fragments with that number, whose last one never came, are dropped",
			fields: []entryField{fieldNumber},
			redo:   (*machine).redoDrop,
		},
	}
}

// moneyKinds returns the kinds of holds and drains.
func moneyKinds() map[entryKind]kindRow {
	return map[entryKind]kindRow{
		entryHold: {
			name: "hold", meaning: "an amount, delta, is set aside until the expiry; value is the reply",
			fields: []entryField{fieldTable, fieldOp}, fits: (*entry).holdFits,
			traits: hasTable | hasOpid | isPlain, key: keyNamed, redo: (*machine).redoHold,
		},
		entryHoldEnd: {
			name: "hold's end", meaning: "a hold has ended: delta and value are its own. end is as in the record " +
				"(tag 4). If it was settled, the counter's value is the result afterwards, and flags are about it",
			fields: []entryField{fieldTable, fieldOp, fieldEnd}, fits: (*entry).holdEndFits,
			traits: hasTable | hasOpid | isPlain, key: keyCounter, makes: (*entry).isSettled,
			redo:   (*machine).redoHoldEnd,
			follow: (*entry).followHoldEnd,
		},
		entryDrain: {
			name: "drain", meaning: "an idempotent operation that deleted the counter. drain: 1 its value was " +
				"value, 2 there was none. With a note it subtracted value from the own part, which is drained then",
			fields: []entryField{fieldTable, fieldOp, fieldDrain},
			fits:   func(e *entry) bool { return e.use == seen.DrainSome || e.use == seen.DrainNone },
			traits: hasTable | hasOpid | isPlain, key: keyCounter,
			makes: func(e *entry) bool { return e.use == seen.DrainSome }, redo: (*machine).redoDrain,
			told: always, change: (*entry).changeDrain, take: (*taker).takeApplied,
			follow: (*entry).followDrain,
		},
		entryThrottle: {
			name: "throttle", meaning: "a request was let in: delta is its quantity, clip a fingerprint of its " +
				"rate, value the counter after it",
			fields: []entryField{fieldTable, fieldOp},
			traits: hasTable | hasOpid | isPlain, key: keyCounter, redo: (*machine).redoThrottle,
			follow: (*entry).followThrottle,
		},
	}
}

// holdFits reports whether the entry of a hold has an amount and an expiry.
func (e *entry) holdFits() bool { return e.delta != 0 && e.flags&^flagHasTime == flagHasExpire }

func (e *entry) isSettled() bool { return e.end.How == seen.Settled }

// holdEndFits reports whether only the end of a hold that was settled is about the counter.
func (e *entry) holdEndFits() bool {
	return e.end != nil && (e.isSettled() || e.flags == flagExact)
}

// tableKinds returns the kinds about a whole table, or all of them.
func tableKinds() map[entryKind]kindRow {
	return map[entryKind]kindRow{
		entryControl: {
			name: "control", meaning: "what a table's filter did (Event, fbf/event.go)",
			fields: []entryField{fieldTable, fieldBytes.as("event bytes")},
			traits: hasTable, redo: (*machine).redoControl,
		},
		entryTighten: {
			name: "tighten", meaning: "a table's filter tests at ERROR/n from now on",
			fields: []entryField{fieldTable, fieldValue.as("n v")},
			traits: hasTable, redo: (*machine).redoTighten,
		},
		entryCatalog: {
			name: "catalog", meaning: "the tables, whole",
			fields: []entryField{fieldBytes.as("catalogue bytes")},
			traits: changesAll, redo: (*machine).redoCatalog,
		},
		entryFlush: {
			name: "flush", meaning: "FLUSHALL, or, before an entry 24, its era begins; the time is the " +
				"tables' forgotten-before",
			fields: []entryField{fieldValue.as("wall time v")},
			traits: noSaving | changesAll, redo: (*machine).redoFlush,
			follow: (*entry).followFlush,
		},
	}
}

// partitionKinds returns the kinds about the partition itself and its moves.
func partitionKinds() map[entryKind]kindRow {
	return map[entryKind]kindRow{
		entryJump: {
			name: "jump", meaning: "the directory is this incarnation from now on, and the next entry has " +
				"the sequence last + 1",
			fields: []entryField{fieldNumber.as("incarnation u"), fieldValue.as("last v")},
			traits: jumps, redo: (*machine).redoJump,
		},
		entryAdopt: {
			name: "adopt", meaning: "another shard's partition, as of its entry last, takes the place of " +
				"this one, which is empty; the next entry " +
				"has the sequence + 1. digest: CRC of the state row that would be as of last, with " +
				"incarnation and adoption 0. The partition is " +
				"held under the number, as behind a hand over",
			fields: []entryField{fieldValue.as("sequence v"), fieldBytes.as("bytes: last u, digest u, " +
				"number u")},
			traits: jumps | noSaving | moves | changesAll, redo: (*machine).redoAdopt,
		},
		entryVacate: {
			name: "vacate", meaning: "another shard has the partition: entry 7, and it is gone",
			fields: []entryField{fieldValue.as("wall time v")},
			traits: noSaving | moves | changesAll, redo: (*machine).redoVacate,
		},
		entryHandOver: {
			name: "hand over", meaning: "the partition is held under the number, which is that of its " +
				"move to another shard, and nobody is answered; " +
				"0: it is held no longer",
			fields: []entryField{fieldValue.as("number v")},
			traits: changesAll, redo: (*machine).redoHandOver,
		},
	}
}

// heardKinds returns the kinds that take in changes of other regions.
func heardKinds() map[entryKind]kindRow {
	return map[entryKind]kindRow{
		entryMerge: {
			name: "merge", meaning: "other regions changed a counter: all its parts afterwards, which " +
				"tell its value and its expiry (Parts, " +
				"store/part/code.go), but of the take-backs that it keeps only the difference (Delta, " +
				"store/part/delta.go). what: 1 it existed and " +
				"does not any more, 2 the key holds an object here, else 0. change is how much its value grew by",
			fields: []entryField{fieldKey, fieldChange, fieldValue, fieldMerged, fieldPartsDelta},
			fits:   (*entry).mergeFits,
			traits: ofRegions, key: keyCounter, parts: (*entry).addsToParts, redo: (*machine).redoMerge,
			inState: func(e *entry, _ *statePage) bool { return !e.addsToParts() },
			change:  (*entry).changeParts,
			follow:  (*entry).followMerge,
		},
		entryHeard: {
			name: "heard", meaning: "another region applied an idempotent operation. The dot is that of " +
				"an own application of it that was taken back " +
				"before, or 0",
			fields: []entryField{fieldTable, fieldOp.as("key bytes, opid, delta v, result v"), fieldOrigin,
				fieldDot},
			traits: hasTable | hasOpid | ofRegions, key: keyNamed, redo: (*machine).redoHeard,
			inState: (*entry).heardInState, take: (*taker).takeHeard,
			follow: (*entry).followHeard,
		},
		entryTakeBack: {
			name: "take-back", meaning: "what was applied here as entry dot was applied first by the " +
				"origin, which told the result; it added made. " +
				"becomes 1: that is taken back, and value is the counter after it; 0: deletions have " +
				"removed it and what the origin added; 2: it is owed, and value is the " +
				"counter. The parts are the origin's, or none",
			fields: []entryField{fieldTable, fieldOp, fieldDot, fieldMade, fieldChange, fieldBecomes,
				fieldOrigin, fieldResult, fieldParts},
			fits:   (*entry).takeBackFits,
			traits: hasTable | hasOpid | ofRegions, key: keyCounter, makes: (*entry).isHeld,
			parts: (*entry).isHeld, redo: (*machine).redoTakeBack,
			told: always, change: (*entry).changeTakeBack, take: (*taker).takeLost,
			follow: (*entry).followTakeBack,
		},
		entryCursor: {
			name: "cursor", meaning: "the log of the source was taken up to the sequence; up to there it " +
				"had said what it had taken itself. The proof " +
				"is the source's, of the sequence (store/proof.go)",
			fields: []entryField{fieldCursor},
			traits: ofRegions, redo: (*machine).redoCursor,
			told: always, inState: func(*entry, *statePage) bool { return true },
			take: (*taker).takeCursor,
		},
		entryPaid: {
			name: "paid",
			meaning: "what this region owed since entry 22, applied as entry dot, is taken back; change and value " +
				"as in entry 20",
			fields: []entryField{fieldKey, fieldChange, fieldValue, fieldDot, fieldMade, fieldWinner},
			traits: ofRegions, key: keyCounter, parts: (*entry).hasParts, redo: (*machine).redoOwnParts,
			told: always, change: (*entry).changePaid, follow: (*entry).followTakeBack,
		},
		entryOwed: {
			name: "owed", meaning: "other regions are to take operations back. what: 1 others are told, " +
				"as the region was removed, 2 they are owed no " +
				"longer, by this region either, else 0",
			fields: []entryField{fieldKey, fieldOwed}, fits: func(e *entry) bool {
				return e.r.what <= owedSettled && len(e.r.owed) > 0
			},
			traits: ofRegions, key: keyNamed, redo: (*machine).redoOwed,
			told:    func(e *entry, _ part.Region) bool { return e.r.what == owedTold },
			inState: func(e *entry, _ *statePage) bool { return e.r.what == owedTold },
			take:    (*taker).takeOwed,
		},
	}
}

// regionKinds returns the kinds about the members of regions, and about keys that end in all of them.
func regionKinds() map[entryKind]kindRow {
	return map[entryKind]kindRow{
		entryRegions: {
			name: "regions", meaning: "the regions, whole: JSON with the field names of `RegionSet` " +
				"(store/region.go); others are refused",
			fields: []entryField{fieldBytes.as("regions bytes")},
			traits: ofRegions | changesAll, redo: (*machine).redoRegions,
		},
		entryForget: {
			name:    "forget",
			meaning: "the parts of a key that does not exist, and whose end all regions know, go",
			fields:  []entryField{fieldKey},
			traits:  ofRegions, key: keyCounter, redo: (*machine).redoForget,
		},
		entrySpent: {
			name:    "spent",
			meaning: "take-backs of the own part are forgotten, but for their sums: all regions know them",
			fields:  []entryField{fieldKey, fieldSpent},
			traits:  ofRegions, key: keyCounter, parts: (*entry).hasParts, redo: (*machine).redoOwnParts,
			told: always, change: (*entry).changeSpent,
		},
		entryRights: {
			name: "rights", meaning: "rights of this region to change a counter with bounds: they begin, count, are " +
				"given, or it asks for some",
			fields: []entryField{fieldKey, fieldRights},
			traits: ofRegions, key: keyCounter, parts: (*entry).hasParts, redo: (*machine).redoOwnParts,
			told: always, change: (*entry).changeRights,
		},
		entryLevelled: {
			name: "levelled", meaning: "the source has all that is known of the region, which was " +
				"removed, or levelled anew, with that version of the " +
				"regions; it said so as the entry of that sequence, 0: this one. Of the heir: it changes " +
				"that region's parts from now on",
			fields: []entryField{fieldLevelled},
			traits: ofRegions, redo: (*machine).redoLevelled,
			told:    func(e *entry, self part.Region) bool { return e.r.levelled.By.Region == self },
			inState: func(e *entry, _ *statePage) bool { return e.r.levelled.Seq != 0 },
			take:    (*taker).takeLevelled,
		},
		entryHeir: {
			name: "heir", meaning: "this region, as its heir, changed the part of one that was removed: " +
				"all parts afterwards, and what, change and value, as in entry 20. " +
				"Its clock is this entry's sequence. If it took back several operations at once, these " +
				"have the sequences before it, which entry 12 " +
				"has passed",
			fields: []entryField{fieldKey, fieldChange, fieldValue, fieldMerged, fieldParts},
			fits:   (*entry).mergeFits,
			traits: ofRegions, key: keyCounter, redo: (*machine).redoMerge,
			told: always, change: (*entry).changeParts, follow: (*entry).followTakeBack,
		},
	}
}

// putFields appends the fields of the kind. The kinds that clients cause most often do not ask the
// table for them, here and below.
func (e *entry) putFields(dst []byte) []byte {
	switch e.kind {
	case entryApply:
		return e.putOp(binary.AppendUvarint(dst, uint64(e.table)))
	case entryIncr:
		dst = coding.AppendBytes(dst, e.key)
		return binary.AppendVarint(binary.AppendVarint(dst, e.delta), e.value)
	}
	for i := range e.kind.row().fields {
		dst = e.kind.row().fields[i].put(e, dst)
	}
	return dst
}

// getFields reads what putFields has appended.
func (e *entry) getFields(r *sectionReader) {
	switch e.kind {
	case entryApply:
		e.table = r.Uint32()
		e.getOp(r)
		return
	case entryIncr:
		e.key, e.delta, e.value = r.Bytes(), r.Varint(), r.Varint()
		return
	}
	row := e.kind.row()
	if row.redo == nil {
		r.Fail()
	}
	if row.traits&ofRegions != 0 {
		e.r = r.newRegional()
	}
	for i := range row.fields {
		row.fields[i].get(e, r)
	}
	if row.fits != nil && !row.fits(e) {
		r.Fail()
	}
}

// redo applies one logged outcome to the partition. It is the one function by
// which live traffic and recovery change state: it consults neither filter
// membership nor any clock ("decide once, redo everywhere"). What the marks
// say is already contained in the loaded state is left alone, so that redoing
// from an earlier point of the log than necessary changes nothing (G4).
func (p *machine) redo(e *entry, seq uint64, at moment) error {
	if e.flags&flagCreated != 0 && seq > p.marks.counters {
		p.size++
		if e.c != nil { // live it is never nil
			p.hot.made[byte(e.c.pos)]++
		}
	}
	if g := p.regions; g != nil && seq > g.tells && e.kind != entryCursor && e.told(g.Self) &&
		(e.kind.row().key == noKey || p.catalog != nil && p.catalog.find(e.key).Told()) {
		g.tells = seq
	}
	switch e.kind {
	case entryApply:
		return p.redoApply(e, seq, at)
	case entryIncr:
		return p.redoSet(e, seq, at)
	}
	if redo := e.kind.row().redo; redo != nil {
		return redo(p, e, seq, at)
	}
	return fmt.Errorf("%w: kind %d", errCorruptEntry, e.kind)
}

// resolve fills the derived fields of an entry that was read from the log, as far as hashEntry has
// not. Live, Decide has filled all of them on its way.
func (p *machine) resolve(e *entry, seq uint64) error {
	row := e.kind.row()
	if row.traits&hasTable != 0 {
		e.t = p.tables[e.table]
	}
	mark := p.marks.counters
	switch row.key {
	case noKey, keyNamed:
		return nil
	case keyFound:
		e.c = p.hot.get(e.keyHash, e.key)
		return nil
	case keyObject:
		mark = p.marks.filters
	}
	// Its row is not read, unless it has parts: an entry carries the whole post-image, and the
	// next checkpoint overwrites or deletes the row.
	if e.c = p.hot.get(e.keyHash, e.key); e.c == nil && seq > mark && (row.makes == nil || row.makes(e)) {
		e.c = p.hot.install(e.keyHash, e.key, p.hashes.position(e.key))
	}
	switch {
	case e.c == nil:
	case row.key == keyObject:
		if p.regions != nil && e.c.seq == 0 { // else the parts of the row may have been forgotten since
			return p.loadAside(e.c)
		}
	case e.c.seq == 0 && (e.needsParts() || e.flags&flagWasObject != 0 && e.kind == entryDelete &&
		p.regions != nil):
		return p.loadParts(e.c)
	}
	return nil
}

// needsParts reports whether an entry changes the parts of its key, so that redo must know them.
// All own entries about a key that has parts carry a note, and so do those that give it parts.
func (e *entry) needsParts() bool {
	if parts := e.kind.row().parts; parts != nil {
		return parts(e)
	}
	return e.flags&flagRegional != 0
}

// told reports whether the region self tells others of an entry of its log.
func (e *entry) told(self part.Region) bool {
	told := e.kind.row().told
	return told != nil && told(e, self)
}

// inState reports whether a page of state may have an entry.
func (e *entry) inState(page *statePage) bool {
	may := e.kind.row().inState
	return may != nil && may(e, page)
}

// endsAt is the sequence after which the next entry follows one with a sequence.
func (e *entry) endsAt(seq uint64) uint64 {
	if e.kind.is(jumps) {
		return max(seq, uint64(e.value))
	}
	return seq
}

// heardInState reports whether a page may have an id: it must not arrive ahead of its key.
func (e *entry) heardInState(page *statePage) bool {
	return page.hasIDs && e.r.heard.Origin == page.of
}

func (e *entry) isOfCounter() bool  { return !e.typ.isObject() }
func (e *entry) isHeld() bool       { return e.r.back.Held }
func (e *entry) hasParts() bool     { return true }
func (e *entry) addsToParts() bool  { return e.r.delta.Keeps() }
func (e *entry) takeBackFits() bool { return len(e.r.parts) <= 1 }

// mergeFits reports whether what an entry says of its key goes with its parts.
func (e *entry) mergeFits() bool {
	created := e.flags&flagCreated != 0
	may, must := e.r.parts.MayBeAlive()
	return e.r.merged <= mergeAside && len(e.r.parts) > 0 && !(e.r.merged == mergeEnds && must) &&
		!(created && (!may || e.r.merged != 0))
}
