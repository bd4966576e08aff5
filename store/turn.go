package store

import "github.com/fbfkv/fbfkv/store/part"

// turn decides operations: it is all that deciding knows of the world, and it changes nothing but
// machines, by entries that it logs. It reads no clock and no disk, and waits for nothing. Its
// batch holds the locks of the machines (execution), reads what is missing first, and commits what
// was logged.
type turn struct {
	world   world
	ops     []Op
	refs    []ref
	items   []uint64 // hashes of filter items
	atomic  bool     // the batch is
	unread  bool     // one of its machines has an object that cannot be read
	wall    int64    // unix ms, when the share was locked
	running int64    // … and the running time (clock.go)
	confirm []int    // refs whose opid must be looked up in runs
	judging judging
	err     error  // first failure of redo or commit: freezes the store
	toPay   int    // take-backs that a batch of the cycle may still make
	undo    int    // Options.RegionUndo
	lines   int64  // keeps the compiler from dropping loads made ahead
	hits    uint64 // keys that queries found
	misses  uint64 // … and did not
	expired uint64 // keys that were removed since their time had come

	entry, copied entry      // scratch of applyEntry and regionalEntry, and of log
	regional      regional   // … of the latter
	control       []byte     // scratch for encoded events
	parts         part.Parts // … and for a merge
}

// world is what deciding asks of the server beyond the machines.
type world interface {
	// reserveMore reserves space in the log for so many bytes of entries more.
	reserveMore(bytes int) error
	// giveBack gives back space that reserveMore has reserved.
	giveBack(bytes int)
	// maxRecord is the most bytes that one record of the log may have.
	maxRecord() int64
	// roomFor reports whether the batch, with so many bytes of entries more, is still one record.
	roomFor(bytes int) bool
	// endRecord makes what was logged so far a record of its own.
	endRecord()
	// incarnation is that of the directory (Store.jump).
	incarnation() uint64
	// flushAll makes FLUSHALL's entries, in all machines.
	flushAll(op *Op) error
	// sameLife refuses a position that was read of a machine in an earlier life.
	sameLife(m *machine, life uint64) error
}
