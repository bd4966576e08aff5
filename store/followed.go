package store

import "github.com/fbfkv/fbfkv/store/seen"

// Entries, as followers of the counters see them (followchanges.go).

// FollowedKind says what happened to a counter.
type FollowedKind uint8

// The changes of a counter.
const (
	FollowedAdd       FollowedKind = iota // Delta was added
	FollowedSet                           // it got Value
	FollowedValue                         // of a snapshot: it has Value
	FollowedMerged                        // others did Delta, beside the operations that are named
	FollowedTakenBack                     // Delta, negated, was taken back: another region was first
	FollowedDrained                       // it was read and deleted: Delta is its value, negated
	FollowedDeleted
	FollowedExpired
	FollowedFlushed  // all keys of the partition were deleted; Key is nil
	FollowedSnapshot // all counters of the partition are told anew; Key is nil
)

var followedNames = [...]string{"add", "set", "value", "merged", "takeback", "drained", "deleted",
	"expired", "flushed", "snapshot"}

// String names the kind.
func (k FollowedKind) String() string { return followedNames[k] }

// Ends reports whether the counter does not exist afterwards.
func (k FollowedKind) Ends() bool { return k >= FollowedDrained }

// HasDelta reports whether it is known by how much the counter has changed.
func (k FollowedKind) HasDelta() bool {
	return k == FollowedAdd || k == FollowedMerged || k == FollowedTakenBack || k == FollowedDrained
}

// Followed is a change of a counter. It borrows its bytes.
type Followed struct {
	Partition uint16
	Seq       uint64 // of its entry
	Index     uint64 // of the changes with this sequence
	Kind      FollowedKind
	Key       []byte
	ID        []byte // nil: the operation had no opid
	Delta     int64  // what was added, in steps of Scale, as is Value
	Value     int64  // the counter afterwards
	Scale     uint8
	Wall      int64  // when, unix ms
	Region    string // from which it was taken, or that took it back; "": none, or this one
}

// followApply is about what was added, which may be less than the operation asked for.
func (e *entry) followApply(f *Followed) bool {
	f.ID, f.Delta, f.Value = e.id, e.delta-e.clip, e.value
	return true
}

func (e *entry) followIncr(f *Followed) bool {
	f.Delta, f.Value = e.delta-e.clip, e.value
	return true
}

func (e *entry) followSet(f *Followed) bool {
	f.Kind, f.Value = FollowedSet, e.value
	return true
}

func (e *entry) followThrottle(f *Followed) bool {
	f.ID = e.id
	return e.followSet(f)
}

func (e *entry) followDelete(f *Followed) bool {
	if f.Kind = FollowedDeleted; e.flags&flagExpired != 0 {
		f.Kind = FollowedExpired
	}
	if e.flags&flagCreated != 0 { // what other regions count is shown
		f.Kind, f.Delta, f.Value = FollowedMerged, e.value, e.value
		return true
	}
	return e.flags&flagWasObject == 0 && (e.flags&flagRegional == 0 || !e.r.note.Absent)
}

func (e *entry) followHoldEnd(f *Followed) bool {
	if e.isSettled() {
		f.ID, f.Delta, f.Value = e.id, e.end.Settled, e.end.Result
	}
	return e.isSettled()
}

func (e *entry) followDrain(f *Followed) bool {
	f.Kind, f.ID, f.Delta = FollowedDrained, e.id, -e.value
	if e.flags&flagRegional != 0 && !e.ends() {
		f.Kind, f.Value = FollowedAdd, e.r.note.Left
	}
	return e.use == seen.DrainSome
}

func (e *entry) followFlush(f *Followed) bool {
	f.Kind = FollowedFlushed
	return true
}

// followMerge is about all that a merge did. The operations in it are in entries behind it (followshard.go).
func (e *entry) followMerge(f *Followed) bool {
	f.Kind, f.Delta, f.Value = FollowedMerged, e.r.change, e.value
	if e.r.merged == mergeEnds {
		f.Kind = FollowedDeleted
	}
	return f.Kind.Ends() || f.Delta != 0 || e.flags&flagCreated != 0
}

// followHeard is about what a merge before may have done.
func (e *entry) followHeard(*Followed) bool { return false }

// followTakeBack is about this region's take-backs, and what it takes back as an heir.
func (e *entry) followTakeBack(f *Followed) bool {
	f.Kind, f.ID, f.Delta, f.Value = FollowedTakenBack, e.id, e.r.change, e.value
	return f.Delta != 0
}
