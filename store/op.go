package store

import (
	"bytes"

	"github.com/fbfkv/fbfkv/store/seen"
)

// The operations and queries that a Batch can hold, on counters and on keys of any type.
// Those of one other type are declared with it. Every comment names the
// fields an Op of that kind reads (in) and fills (out); Err may be set by all.
const (
	// Nop does nothing; its slot in a batch belongs to a reply that needs no
	// state, such as a syntax error in the middle of a pipeline.
	Nop Kind = iota
	// CIncrBy adds Delta to the counter Key once per (Key, ID).
	// In: Key, ID, Delta, At if HasAt, Deltas: the least and the largest value that may come of
	// it, or none. Out: Value, Applied. Beyond a bound: a BoundError.
	CIncrBy
	// CMIncrBy adds Deltas[i] to Keys[i], all or nothing, once per ID.
	// In: Keys, Deltas, ID, At if HasAt. Behind the increments, Deltas may have two bounds for each key.
	// Out: Values, Applied. Beyond a bound of one key: a BoundError.
	CMIncrBy
	// CIncrEx adds Delta to the counter Key, sets its expiry and keeps within bounds,
	// once per (Key, ID). In: Key, ID, Delta, At if HasAt, Deltas: the least and the
	// largest value that may come of it, or none; flags Saturate, PairID, HasExpire
	// with ExpireAt, IfNoExpire, NoExpire. Out: Value, Values[0]: the increment that
	// was made, Applied. Out of bounds it changes nothing and consumes no opid:
	// Values[0] is 0. With the flag Strict it is CIncrBy with an expiry: Err is a BoundError then.
	CIncrEx
	// IncrEx adds Delta within bounds, every time. In and out as CIncrEx, but
	// for ID.
	IncrEx
	// IncrBy adds Delta, every time. In: Key, Delta. Out: Value.
	IncrBy
	// Set overwrites a counter with Delta. In: Key, Delta; flags NX, XX, SetGet,
	// KeepTTL, HasExpire with ExpireAt. Out: Applied; Value and Found are the
	// old value (for SET … GET, GETSET).
	Set
	// MSet overwrites Keys[i] with Deltas[i], all or nothing; of a key that
	// repeats the last value stays. In: Keys, Deltas; flag NX: only if none of
	// Keys exists. Out: Applied.
	MSet
	// Del deletes Keys and forgets no opid. Out: Value, how many existed.
	Del
	// GetDel deletes Key and answers its value. Out: Value, Found.
	GetDel
	// GetEx answers the value of the counter Key and, if it exists, sets its
	// expiry to ExpireAt (a time that is past deletes) or removes it.
	// In: Key; flags HasExpire with ExpireAt, or NoExpire. Out: Value, Found.
	GetEx
	// ExpireAt sets the expiry of Key to ExpireAt (unix ms; a time that is
	// past deletes). Flags NX, XX, GT, LT as in EXPIRE. Out: Applied.
	ExpireAt
	// Persist removes the expiry of Key. Out: Applied.
	Persist
	// CHold sets Delta of the counter Key aside until ExpireAt, once per (Key, ID), and answers what would be
	// left if all holds of its sign were settled. In: Key, ID, Delta, ExpireAt, Deltas as CIncrBy's, At if
	// HasAt. Out: Value, Applied.
	CHold
	// CSettle ends a hold and adds Delta to the counter. In: Key, ID, Delta, Deltas as CIncrBy's.
	// Out: Value, Applied.
	CSettle
	// CCancel ends a hold and adds nothing. In: Key, ID. Out: Value, the counter's; Applied.
	CCancel
	// CGetDel is GetDel once per (Key, ID). In: Key, ID, At if HasAt. Out: Value, Found, Applied.
	CGetDel
	// CThrottle lets the operation ID in, once, unless the rate of Key is used up. In: Key, ID, Deltas: the
	// burst, the permits that may be taken at once beside one; a count of permits; the period of seconds in
	// which there are so many; and how many of them it takes, 0 to ask only. Out: Values, the five numbers of
	// CL.THROTTLE's reply; Applied.
	CThrottle
	// Throttle is CThrottle every time. In and out as CThrottle, but for ID.
	Throttle
	// CHeld asks what holds set aside. In: Key. Out: Value, the counter's; Object, a HeldInfo.
	CHeld
	// CHolds lists open holds. In: Key; Delta, the cursor; At, about how many. Out: Value, the next cursor, 0
	// at the end; Object, []HoldInfo.
	CHolds
	// FlushAll deletes every key, forgets every opid and sets the tables'
	// forgotten-before time. It locks all partitions. In: flag OneDB.
	FlushAll
	// removeExpired deletes those of Keys whose expiry has passed: the active
	// expiry cycle.
	removeExpired
	// endHolds ends those holds whose time has come. In: Keys; Object, their opids, []string.
	endHolds

	// Get reads the counter Key. Out: Value, Found.
	Get
	// ByRegion is Get of a member of regions. Out, beside Get's: Object, []RegionShare, by region.
	ByRegion
	// MGet reads the counters Keys; a filter key counts as missing.
	// Out: Values, Founds.
	MGet
	// Exists counts those of Keys that exist, repeats included. Out: Value.
	Exists
	// TypeOf answers the type of Key. Out: Found, Type.
	TypeOf
	// ExpireTime answers when Key expires. Out: Found, Value: unix ms by the clock of the region that has set
	// it, 0 if it does not expire; else Values: in how many ms.
	ExpireTime
	// MemoryUsage estimates the bytes that Key holds in memory. Out: Found, Value.
	MemoryUsage
	// CSeen asks for an operation without applying it. In: Key, ID.
	// Out: Found (maybe, in APPROX), Seen and whether it is Exact; then, in a member of regions,
	// Object is the name of the region that applied it.
	CSeen
	// Watch notes what Keys are like. Out: Values, three numbers for each key, to
	// be handed to IfUnchanged.
	Watch
	// IfUnchanged lets the next Delta operations of the batch have their turn
	// only if Keys are as Watch noted them; otherwise they change nothing and
	// answer nothing. In: Keys, Deltas (what Watch answered), Delta.
	// Out: Applied: the keys are unchanged.
	IfUnchanged

	// Only members of regions have those that follow, and only in batches that are Atomic.

	// regionMerge applies what other regions did to the counter Key.
	// In: Object, []Change in their order.
	regionMerge
	// regionHear takes note that another region has applied an operation.
	// In: Key, ID, Object: a *Heard.
	regionHear
	// regionLost takes note that another region has taken an operation back.
	// In: Key, ID, Object: a *Lost.
	regionLost
	// regionOwe takes note of a debt of a removed region, of which another one tells.
	// In: Key, Object: an *part.Owed.
	regionOwe
	// regionLevel takes note that a region has levelled. In: Delta, the partition here; Object: a
	// *levelled.
	regionLevel
	// regionCursor takes note of how far a source has been taken; it comes behind what that
	// brought, in the same batch. In: Delta, the partition here; Object, a *RegionCursor.
	regionCursor
	// regionDrop forgets those of Keys that do not exist, if all regions know of their end, and
	// take-backs that all know.
	regionDrop
)

// Flags modify an Op.
type Flags uint32

// The flags of an Op. NX and XX serve SET and EXPIRE, GT and LT only EXPIRE.
const (
	HasAt Flags = 1 << iota
	NX
	XX
	GT
	LT
	KeepTTL
	HasExpire
	NoCreate
	SetGet   // SET … GET, GETSET: what is overwritten must be a counter
	NoExpire // the expiry is removed
	// Saturate: an increment that would be out of bounds stops at the bound.
	Saturate
	// IfNoExpire: an expiry is set only if there is none.
	IfNoExpire
	// PairID: ID was made by AppendPairID.
	PairID
	// OneDB: FlushAll is FLUSHDB, after which Redis takes no snapshot: what it
	// deletes counts as changes since the last one.
	OneDB
	// Strict: an increment beyond a bound is refused with an error.
	Strict
	// IfPrevious: the operation has its turn only if the one before it in the Batch, which is
	// Atomic, was not refused; otherwise its Err is ErrNotExecuted.
	IfPrevious
	// IfAdded, with IfPrevious: nor if the one before it was Barred.
	IfAdded
	// Float: the operation is for a table with SCALE only.
	Float
	// WithTTL: a bounded increment also tells how long its counter has left, as the last of
	// Values: milliseconds, -1 if it does not expire.
	WithTTL
)

// Seen is what an EXACT table remembers of an operation.
type Seen = seen.Original

// HoldEnd is how a hold ended; one that is open has no How.
type HoldEnd = seen.HoldEnd

// What ends a hold.
const (
	Settled   = seen.Settled
	Cancelled = seen.Cancelled
	Expired   = seen.Expired
)

// Items is the Use of an opid of a sketch's operation, whose Delta and Result are fingerprints.
const Items = seen.Items

// Op is one operation or query and, after Execute, its outcome. The store borrows the
// byte slices until Execute returns.
type Op struct {
	Kind  Kind
	Flags Flags

	Key      []byte
	ID       []byte   // opid, 1..MaxOpID bytes
	Keys     [][]byte // keys of a multi-key operation, or items of an object
	Delta    int64
	Deltas   []int64
	At       int64 // unix ms at which the client made the operation
	ExpireAt int64 // unix ms
	Object   any   // of an operation on an object: what its kind takes or answers beside the rest

	Err     error
	Value   int64
	Values  []int64
	Found   bool
	Founds  []bool
	Fulls   []bool
	Applied bool // false: a duplicate, or a condition such as NX did not hold
	Barred  bool // a bound kept an increment that is not Saturate from adding anything
	// Points say how Delta, and the two bounds in Deltas, were written. If there are several Keys, Object
	// does so for all Deltas: a []Points, or nil.
	Points [3]Points
	Scale  uint8 // of the amounts that were answered; of several keys: ScaleOf
	Type   Type
	Exact  bool
	Seen   Seen

	run opRun // working state of Execute
}

// BadArgument, as the Object of an operation, says what is wrong with its arguments, where
// others expect the keys to be looked at first: After of them.
type BadArgument struct {
	Err   error
	After int
}

// badArgument returns what is wrong with the arguments once some keys were looked at.
func (op *Op) badArgument(looked int) error {
	if bad, _ := op.Object.(*BadArgument); bad != nil && bad.After <= looked {
		return bad.Err
	}
	return nil
}

// reset clears op for reuse, keeping the memory of its slices. It is cleared in
// place: a literal would be made on the stack first, and copying it would wait
// for the stores that made it.
func (op *Op) reset(k Kind) {
	keys, deltas, values := op.Keys[:0], op.Deltas[:0], op.Values[:0]
	founds, fulls := op.Founds[:0], op.Fulls[:0]
	*op = Op{}
	op.Kind, op.Keys, op.Deltas, op.Values, op.Founds, op.Fulls = k, keys, deltas, values, founds, fulls
}

// Limits of an operation. MaxOpID and MaxKey are the longest opid and key, in
// bytes; MaxKeys is the number of keys or items of one operation, which holds
// the partitions of all of them while it is decided.
const (
	MaxOpID = 512
	MaxKey  = 64 << 10
	MaxKeys = 64 << 10
)

// Repeat reports whether a key is there twice, which a CMINCRBY refuses.
func Repeat(keys [][]byte) bool {
	const few = 16 // below it, comparing all pairs is cheaper than a map
	if len(keys) <= few {
		for i, a := range keys {
			for _, b := range keys[:i] {
				if bytes.Equal(a, b) {
					return true
				}
			}
		}
		return false
	}
	seen := make(map[string]struct{}, len(keys))
	for _, k := range keys {
		seen[string(k)] = struct{}{}
	}
	return len(seen) < len(keys)
}
