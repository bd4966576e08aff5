package store

// Kind says what an Op does: one row of kinds.
type Kind uint16

// kindsPerType is how many kinds a type of key has at most. Those of an object's type t begin with
// t*kindsPerType; those below firstObject*kindsPerType are of counters, or work on keys of any type.
const kindsPerType = 64

// kindFlags say what the store must know of a kind before an operation has its turn.
type kindFlags uint16

const (
	// writes: the operation may change state. The others are queries.
	writes kindFlags = 1 << iota
	// manyKeys: its keys are Keys instead of Key.
	manyKeys
	// allKeys: it needs no key, and every partition.
	allKeys
	// hasID: it carries an opid.
	hasID
	// hashesItems: Keys are items of Key. It needs their hashes, and may log an entry
	// for each.
	hashesItems
	// unsplit: a batch that holds it is decided as a whole, even if it has one key.
	unsplit
	// ofKeys: what it answers rests on its keys alone. If in doubt it does not (G3).
	ofKeys
	// logsItems: Keys are items of Key, and it may log an entry for each.
	logsItems
	// anyObject: it needs no look into the object under its key, and may be asked of one that
	// cannot be read (unreadable.go).
	anyObject
	// amounts: Delta is an amount of the counter, and Deltas are bounds of it or nothing.
	amounts
)

// kind is what the store knows of the operations of one Kind.
type kind struct {
	is kindFlags
	// entries is how many entries the operation logs at most for each of its keys, or
	// partitions, and fields how many bytes these hold beside entryRoom, key and opid.
	entries, fields uint16
	turn            func(*turn, *Op) error // decides it
}

// kinds declares every Kind, once.
var kinds = makeKinds()

func makeKinds() (all [maxTypes * kindsPerType]kind) {
	copy(all[:], []kind{
		CIncrBy: {is: writes | hasID | amounts, entries: 1, turn: (*turn).cIncrBy},
		// also a tightening
		CMIncrBy: {is: writes | hasID | manyKeys, entries: 2, turn: (*turn).cmIncrBy},
		// also a tombstone
		CIncrEx:  {is: writes | hasID | amounts, entries: 2, turn: withTTL((*turn).cIncrEx)},
		IncrEx:   {is: writes | ofKeys | amounts, entries: 1, turn: withTTL((*turn).incrEx)},
		IncrBy:   {is: writes | ofKeys | amounts, entries: 1, turn: (*turn).incrBy},
		Set:      {is: writes | ofKeys | anyObject | amounts, entries: 1, turn: (*turn).set},
		MSet:     {is: writes | manyKeys | ofKeys | anyObject, entries: 1, turn: (*turn).mset},
		Del:      {is: writes | manyKeys | ofKeys | anyObject, entries: 1, turn: (*turn).del},
		GetDel:   {is: writes | ofKeys, entries: 1, turn: (*turn).getDel},
		GetEx:    {is: writes | ofKeys, entries: 1, turn: (*turn).getEx},
		ExpireAt: {is: writes | ofKeys, entries: 1, turn: (*turn).expireAt},
		Persist:  {is: writes | ofKeys, entries: 1, turn: (*turn).persist},
		CHold:    {is: writes | hasID | amounts, entries: 1, turn: (*turn).cHold},
		// also a tombstone
		CSettle:   {is: writes | hasID | amounts, entries: 2, fields: holdEndRoom, turn: (*turn).cSettle},
		CCancel:   {is: writes | hasID, entries: 1, fields: holdEndRoom, turn: (*turn).cCancel},
		CGetDel:   {is: writes | hasID, entries: 2, turn: (*turn).cGetDel}, // likewise
		CThrottle: {is: writes | hasID, entries: 1, turn: (*turn).cThrottle},
		Throttle:  {is: writes | ofKeys, entries: 1, turn: (*turn).cThrottle},
		CHeld:     {turn: (*turn).cHeld},
		CHolds:    {turn: (*turn).cHolds},
		FlushAll:  {is: writes | allKeys | anyObject, entries: 1, turn: (*turn).decideFlush},

		removeExpired: {is: writes | manyKeys | ofKeys, entries: 1, turn: (*turn).removeExpired},
		endHolds: {is: writes | manyKeys, entries: 1, fields: holdEndRoom + MaxOpID,
			turn: (*turn).endHolds},

		// also tombstones, before and after
		regionMerge: {is: writes, entries: 3, turn: (*turn).regionMerge},
		// also what is owed
		regionHear: {is: writes | hasID, entries: 2, fields: maxHeard, turn: (*turn).regionHear},
		// the same
		regionLost:   {is: writes | hasID, entries: 2, fields: maxHeard, turn: (*turn).regionLost},
		regionOwe:    {is: writes, entries: 1, turn: (*turn).regionOwe},
		regionCursor: {is: writes | manyKeys, entries: 1, turn: (*turn).regionCursor},
		regionLevel:  {is: writes | manyKeys, entries: 1, turn: (*turn).regionLevel},
		regionDrop:   {is: writes | manyKeys | ofKeys, entries: 2, turn: (*turn).regionDrop},

		Get:         {is: ofKeys, turn: (*turn).read},
		ByRegion:    {is: ofKeys, turn: (*turn).read},
		MGet:        {is: manyKeys | ofKeys, turn: (*turn).read},
		Exists:      {is: manyKeys | ofKeys, turn: (*turn).read},
		TypeOf:      {is: ofKeys, turn: (*turn).read},
		ExpireTime:  {is: ofKeys, turn: (*turn).read},
		MemoryUsage: {is: ofKeys, turn: (*turn).read},
		CSeen:       {is: hasID, turn: (*turn).cSeen},
		// they rest on the partition's sequence, and on holds
		Watch:       {is: manyKeys | anyObject, turn: (*turn).watch},
		IfUnchanged: {is: manyKeys | anyObject, turn: (*turn).ifUnchanged},
	})
	for t, o := range objectTypes {
		if o != nil {
			copy(all[t*kindsPerType:(t+1)*kindsPerType], o.kinds())
		}
	}
	return all
}

// has reports whether operations of this kind have any of the flags.
func (k Kind) has(flags kindFlags) bool { return kinds[k].is&flags != 0 }

// internal reports whether no client asks for such operations.
func (k Kind) internal() bool {
	return k == removeExpired || k == endHolds || k >= regionMerge && k < Kind(firstObject)*kindsPerType
}

// Write reports whether operations of this kind can change state.
func (k Kind) Write() bool { return k.has(writes) }

// regionRoom bounds what an operation logs more in a member of regions, where it logs room at
// most otherwise: each entry may have a note, and a tombstone may come before it.
func (op *Op) regionRoom(room int64) int64 {
	k := &kinds[op.Kind]
	keys := int64(1)
	if k.is&manyKeys != 0 {
		keys = int64(len(op.Keys))
	}
	return 2*room + keys*int64(k.entries+1)*maxNote
}

// logRoom bounds what the operation's outcome takes in the op log, whatever is
// decided, but for events of the tables' filters.
func (op *Op) logRoom(partitions int) (n int64) {
	k := &kinds[op.Kind]
	switch each, key := int64(entryRoom+int(k.fields)+len(op.ID)), int64(len(op.Key)); {
	case k.is&allKeys != 0:
		n = int64(partitions) * each
	case k.is&manyKeys != 0:
		for _, k := range op.Keys {
			n += each + int64(len(k))
		}
	default:
		n = each + key
	}
	n *= int64(k.entries)
	if k.is&(hashesItems|logsItems) != 0 { // an entry each
		for _, item := range op.Keys {
			n += int64(entryRoom + len(op.Key) + len(item))
		}
	}
	return n
}
