package store

import (
	"errors"
	"fmt"
)

// The refusals of operations. None of them changes state or consumes an opid
// (G6), except ErrUnknownOutcome, after which the outcome is unknown and the
// client may retry with the same opid. Texts in a client's reply are chosen by
// package commands.
var (
	ErrOpIDSize    = errors.New("opid must be 1 to 512 bytes")
	ErrKeySize     = errors.New("key must be 1 to 65536 bytes")
	ErrTooManyKeys = errors.New("too many keys in one command, at most 65536 are allowed")
	// ErrTooLarge: the command, or those of an atomic batch, might log more than a record of the
	// log may hold.
	ErrTooLarge = errors.New("the command, or its transaction, would change too much at once: send fewer " +
		"items, or shorter keys")
	ErrWrongType = errors.New("operation against a key holding the wrong kind of value")
	ErrOverflow  = errors.New("increment or decrement would overflow")
	// ErrIncrementOverflow: a bound is so far away that the increment up to it
	// is no 64-bit integer.
	ErrIncrementOverflow = errors.New("applied increment would overflow")
	ErrStale             = errors.New("operation is older than what the table remembers")
	ErrFuture            = errors.New("operation time is in the future")
	// ErrSeconds: an AT is so small that it must be in seconds.
	ErrSeconds = errors.New("AT is a time in milliseconds, and this one is in 1970 to 1973: is it in " +
		"seconds?")
	ErrNoIDTime = errors.New("the table reads the operation's time from its opid, and this opid " +
		"contains none")
	ErrMismatch   = errors.New("opid was used with another delta")
	ErrOtherItems = errors.New("opid was used with other items or increments")
	// ErrOtherThrottle is ErrMismatch of a CThrottle.
	ErrOtherThrottle = errors.New("opid was used with another rate or quantity: use a new one")
	ErrPartlySeen    = errors.New("opid was used with some of these keys only")
	// ErrPartlyHeard: with several regions an operation on several keys arrives from another one
	// key by key, or partition by partition.
	ErrPartlyHeard = errors.New("another region applied this operation, and not all of it has arrived " +
		"here yet: try again")
	// ErrNotCaughtUp: a region that was there before may have forgotten the operation with its counter, and
	// only its state says so.
	ErrNotCaughtUp = errors.New("this region has not caught up with an older one, and nothing was " +
		"applied: try again")
	// ErrIDAhead: an id of another region came without what that region did to the counter.
	ErrIDAhead     = errors.New("an operation of another region arrived before its effect")
	ErrNotExecuted = errors.New("not executed: a command before it was refused")
	// ErrSpansTables: see Op.checkKeys.
	ErrSpansTables = errors.New("keys of one operation must belong to one table, or to EXACT tables")
	ErrSameKeys    = errors.New("keys of one operation must be distinct")
	// ErrBound: the error is a BoundError, which says more.
	ErrBound       = errors.New("a counter would leave its bounds")
	ErrOutOfMemory = errors.New("filter memory limit reached (filter-maxmemory): try again later, or raise it")
	// ErrSameHash: see seen.MaxOthers.
	ErrSameHash = errors.New("64 other operations have the same hash, so this one was not applied: " +
		"send it with another opid")
	ErrUnknownOutcome = errors.New("commit failed: outcome unknown, retry with the same opid")
	// ErrNotLeader: in a cluster, another node decides, or will. Nothing was applied.
	ErrNotLeader = errors.New("this node does not lead the shard")
	// ErrUndecided: this node led the shard when it decided, and cannot tell whether that was
	// committed.
	ErrUndecided = errors.New("leadership was lost: outcome unknown, retry with the same opid")
	ErrRead      = errors.New("reading from disk failed")

	ErrOption = errors.New("invalid option")
	// ErrUnheard: see Options.RegionRefuse.
	ErrUnheard = errors.New("another region is more than region-backlog behind in reading this " +
		"one (region-retention-policy refuse)")
	ErrDiskFull        = errors.New("the disk is full, or less than min-free-disk is free")
	ErrSnapshotRunning = errors.New("a snapshot is already in progress")

	ErrTableExists = errors.New("table or prefix exists")
	ErrNoTable     = errors.New("no such table")
	// ErrBoundedKeys: its counters and the parts of others might together be beyond the bounds.
	ErrBoundedKeys = errors.New("a directory with keys cannot join other regions while a table that they share has " +
		"MIN or MAX: join with an empty one, or use REGIONS NONE")
	// ErrNoRights: see RightsError.
	ErrNoRights = errors.New("other regions have the rights that the change needs")
	// ErrEscrow and ErrEscrowExpiry: regions hold rights to change the counter.
	ErrEscrow = errors.New("a counter with MIN or MAX that regions share cannot be set or deleted, nor expire: " +
		"each region holds rights to change it. Count up or down instead")
	ErrEscrowExpiry = errors.New("a counter with MIN or MAX that regions share cannot expire: use PERSIST")
	ErrTableScale   = errors.New("SCALE is not supported in a region: others might count integers under its " +
		"prefix. Count the smallest unit, such as cents, as an integer")
	// ErrTableRegions: other regions lack what was done to keys that they were not told of.
	ErrTableRegions = errors.New("keys under REGIONS NONE cannot come under REGIONS ALL: other regions " +
		"lack what was counted before")
	// errObjectMemory is ErrOutOfMemory, for the objects under keys.
	errObjectMemory error = tableLimit("sketches and filter keys have their half of filter-maxmemory: " +
		"delete some, or raise it")
	// errTableMemory and errTableDisk are ErrOutOfMemory, for a limit of one table.
	errTableMemory error = tableLimit("the table's MAXMEMORY is used up: try again later, or raise it " +
		"with CTABLE ALTER")
	errTableDisk error = tableLimit("the table's records fill its MAXDISK: try again once some have " +
		"expired, or raise it with CTABLE ALTER")
	ErrDropDefault   = errors.New("table default cannot be dropped")
	ErrTooManyTables = errors.New("too many tables")
)

// otherUse is ErrMismatch of an opid that another command has used, or one of others: it names one thing on a
// key.
type otherUse string

// Error says who has used it, and what helps.
func (o otherUse) Error() string { return "opid was used by " + string(o) + ": use a new one" }

// Is makes errors.Is find ErrMismatch.
func (o otherUse) Is(target error) bool { return target == ErrMismatch }

// tableLimit is the text of an ErrOutOfMemory that names the limit of a table.
type tableLimit string

// Error returns the text.
func (t tableLimit) Error() string { return string(t) }

// Is makes errors.Is find ErrOutOfMemory.
func (t tableLimit) Is(target error) bool { return target == ErrOutOfMemory }

// ErrLogDamaged means that the op log has a gap, or ends before the data built from it.
var ErrLogDamaged = errors.New("op log is damaged")

func streamError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrStream, fmt.Sprintf(format, args...))
}

// ErrStream: another region's log is not the expected one, or comes too early.
var ErrStream = errors.New("this is not the log of the expected region")

// ErrEra: another region has been flushed, and this one does not know it yet. It must learn of the
// regions as they are now (SetRegions); then it can go on.
var ErrEra = errors.New("all regions are being flushed, and this one has not finished yet")

// ErrPulled: another region's answer to a pull is damaged.
var ErrPulled = errors.New("the answer of another region is damaged")

// ErrMove: a partition cannot be moved as requested: it is not empty, or empty already, or
// another one was received than expected. Nothing has changed.
var ErrMove = errors.New("the partition cannot be moved")

func moveError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMove, fmt.Sprintf(format, args...))
}
