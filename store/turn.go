package store

import (
	"github.com/fbfkv/fbfkv/store/part"
	"github.com/fbfkv/fbfkv/store/seen"
)

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
	scaled  bool     // one of them has a table with SCALE, or is about to change a scale
	wall    int64    // unix ms, when the share was locked
	running int64    // … and the running time (clock.go)
	confirm []int    // refs whose opid must be looked up in runs
	judging judging
	err     error  // first failure of redo or commit: freezes the store
	toPay   int    // take-backs that a batch of the cycle may still make
	undo    int    // Options.RegionUndo
	source  int64  // Batch.Source
	toldAll bool   // since the share was locked, it was told that all keys change (TellChanges)
	lines   int64  // keeps the compiler from dropping loads made ahead
	hits    uint64 // keys that queries found
	misses  uint64 // … and did not
	expired uint64 // keys that were removed since their time had come

	entry, copied entry    // scratch of applyEntry and regionalEntry, and of log
	regional      regional // … of the latter
	end           seen.HoldEnd
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
	// incarnation returns the directory's incarnation (Store.jump).
	incarnation() uint64
	// flushAll makes FLUSHALL's entries, in all machines.
	flushAll(op *Op) error
	// sameLife refuses a position that was read of a machine in an earlier life.
	sameLife(m *machine, life uint64) error
}

// ref is one key of one operation.
type ref struct {
	op     int // index of its operation
	key    []byte
	p      *machine
	c      *counter
	slot   uint16
	asks   bool // its operation carries an opid
	hears  bool // … which another region applied
	failed bool // its operation failed: nothing could be read

	keyHash uint64 // in the table of hot counters
	hash    uint64 // of (key, opid)
	t       *tableState
	verdict verdict
	// dismissed: the filter was positive, but no record confirmed it.
	dismissed bool
	hasTime   bool  // the client's time of the operation is known:
	time      int64 // unix ms
	seen      Seen  // of verdictSeen
	others    int   // operations that were met with the same hash

	disk *onDisk // what was read outside the lock; nil on the steady path
}

// opRun locates an operation's refs and items in the execution.
type opRun struct {
	first, n         int
	firstItem, items int
	judged           bool // its error, too, rests on what partitions have
}

// touch loads the counters of refs, whose cache misses overlap. Before decide it
// brings back what was found before the rest of the batch was.
func touch(refs []ref) (lines int64) {
	for i := range refs {
		if c := refs[i].c; c != nil {
			lines += c.value
		}
	}
	return lines
}

// of returns the refs of an operation.
func (x *turn) of(op *Op) []ref { return x.refs[op.run.first : op.run.first+op.run.n] }

// onDisk is what the disk knows of a ref's key and opid.
type onDisk struct {
	load   load        // a cold row
	search seen.Search // for the opid's record
	tags   uint8       // of the filters that were positive, which made the search necessary
}

// load is a row read outside the lock.
type load struct {
	pos    uint64 // of the row
	done   bool
	stamp  uint32
	exists bool
	row    row
	err    error
}

// fromDisk returns the ref's onDisk, which stays its own for the whole batch.
func (x *turn) fromDisk(r *ref) *onDisk {
	if r.disk == nil {
		r.disk = x.judging.newOnDisk()
	}
	return r.disk
}

// at is when the batch is decided in a partition.
func (x *turn) at(p *machine) moment { return p.moment(x.wall, x.running) }
