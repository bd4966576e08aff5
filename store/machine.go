package store

import (
	"github.com/cespare/xxhash/v2"
	"github.com/fbfkv/fbfkv/fbf"
	"github.com/fbfkv/fbfkv/store/part"
	"github.com/fbfkv/fbfkv/store/seen"
)

// machine is everything that one partition remembers: its counters in memory, filters, objects,
// tables, records of opids and what it knows of regions. Deciding (turn) and redoing its entries
// changes it, and nothing else: it has no lock, no disk, no goroutine and no clock. The partition
// that it belongs to has these (partition.go), and holds its lock while the machine is used.
type machine struct {
	id      uint16
	count   int // of partitions
	hashes  *hashes
	memory  filterMemory
	outside outside
	onEntry func(e *entry, source int64) // is called before each entry is redone; nil: nobody is told
	views
	seen     seen.Records               // what EXACT tables know of each operation: a view, too
	ids      [part.MaxRegions]RegionIDs // what was made of the opids of each region
	beyond   uint64                     // RegionIDs.BeyondBounds
	aside    uint64                     // RegionIDs.Aside
	twins    conflicts
	draft    draft
	ahead    int64  // logged time minus running time (clock.go)
	logBytes uint64 // logged since the last checkpoint
	// savedSeq: what follows has changed since the last checkpoint; FLUSHALL counts as all that
	// it deletes.
	savedSeq int64
	// retired are filters whose memory a snapshot in progress may still read.
	snapshotting bool
	retired      []func()
	// regionIncarnation is Options.RegionIncarnation, of a replica.
	regionIncarnation uint64
	// nextTables are the cluster's tables while open holds are in their way (Store.SetTables); nil: none are.
	nextTables TableSet
	// dropped is the sequence of the last key that was dropped of each bucket (DigestBuckets),
	// since the process began; nil: none was.
	dropped []uint64
}

// filterMemory is the account of the memory that filters and objects take. Safe for concurrent
// use: all machines of a server share it.
type filterMemory interface {
	// grant reserves bytes for a table's filter, if the limit allows.
	grant(bytes uint64) bool
	// grantObject reserves bytes for an object under a key, if the limit of these allows.
	grantObject(bytes uint64) bool
	// add counts bytes that tables' filters have taken, or given back.
	add(bytes int64)
	// addObject counts bytes that an object has taken, or given back.
	addObject(bytes int64)
	// fits reports whether so many more bytes are within the limit.
	fits(bytes int64) bool
	// noteUse notes what a table takes in one of so many partitions, and returns what it takes in all.
	noteUse(table string, id uint16, partitions int, bytes int64) uint64
}

// outside is what redo needs of the world beyond the machine, and only when it redoes what was read
// from a log.
type outside interface {
	// rowOf reads the row of a key that redo needs as it was; nil if there is none.
	rowOf(c *counter) (*row, error)
	// adopt makes the machine the one that another shard has handed over.
	takeOver(a adoption, seq, to uint64, at moment) error
}

// views are what a machine has made of its entries up to seq: all that recovery makes
// anew.
type views struct {
	incarnation uint64 // of the directory, as of seq (Store.jump)
	seq         uint64 // of the last entry
	recovered   uint64 // … that recovery has redone (R4)
	at          moment // of the last section
	size        int64  // DBSIZE: keys that exist, expired ones not yet removed included
	hot         *hotCounters
	rows        *rowFilter // which keys may have a row
	holds       holdings
	newExpiries expiries // keys whose expiry no row's index knows yet
	tables      map[uint32]*tableState
	objects     map[string]*counter // the keys that hold one; they never leave memory
	ofType      [maxTypes]int       // how many
	unreadable  int                 // … that cannot be read
	spoiled     int                 // … of these, how many became so in this process
	catalog     *catalog
	searched    *catalog  // the one that is about to take its place if nothing is in the way (tablechange.go)
	floor       uint64    // the last FLUSHALL: an answer that a key is missing depends on it
	deadObjects []uint64  // objects whose pages must be deleted (pages.go)
	fragments   fragments // of a change that is not finished (fragments.go)
	// what it deletes is still on disk, and nothing newer is that memory lacks
	flushDue bool
	adopted  uint64           // the sequence with which it went on in this shard; 0: it began here
	gone     bool             // another shard has it: it is empty, and nobody is answered
	handed   uint64           // it is being handed over, under this number; 0: it is not
	number   uint64           // the highest under which it was ever held here; 0: it was not
	regions  *regions         // nil: it is no member of regions
	end      logEnd           // of its last section, if a member logged it since the store was opened
	ended    ended            // keys of which something can be dropped (regiondrop.go)
	asked    map[uint64]int64 // when rights of a key were asked for, wall ms, by its hash (escrow.go)
	// marks tell redo what the loaded views already contain.
	marks marks
}

// draft is what the batch at hand has logged in a partition, and seen of it, since its
// share was locked.
type draft struct {
	section  []byte // for the log record
	first    uint64 // sequence of its first entry; 0: it has none
	need     uint64 // sequence that the replies rest on (G3)
	inserted bool   // the present piece remembered an opid here
	twins    twins  // which
}

// marks are the sequences up to which loaded state already contains the log.
type marks struct {
	counters uint64 // rows, DBSIZE
	filters  uint64 // tables' filters and objects
	catalog  uint64 // the tables
	records  uint64 // EXACT runs
	// adopt: nothing of the log counts before the adoption that goes on with it; 0: all does.
	// The log must reach up to reach.
	adopt, reach uint64
	// rebuilt: the filters were lost and are rebuilt from runs and log, so
	// that logged refreshes have nothing to act on.
	rebuilt bool
	floor   uint64 // the last FLUSHALL
}

// newViews returns those of one of count partitions of which nothing is known yet.
func newViews(count, hotLimit int) views {
	return views{
		hot:     newHotCounters(hotLimit),
		rows:    newRowFilter(count),
		tables:  make(map[uint32]*tableState),
		objects: make(map[string]*counter),
	}
}

// retire frees a filter's memory, later if a snapshot is being taken.
func (p *machine) retire(release func()) {
	if p.snapshotting {
		p.retired = append(p.retired, release)
		return
	}
	release()
}

// release frees the memory of filters and objects, when the partition is given up.
func (p *machine) release() {
	for _, t := range p.tables {
		t.filter.Release()
	}
	for _, c := range p.objects {
		c.object().release()
	}
	p.memory.add(-p.holds.clear())
}

// planner asks a filter for its next event and settles its memory.
type planner struct {
	memory   filterMemory
	ofObject bool // the filter is an object's, not a table's
	granted  uint64
}

func (g *planner) grant(bytes uint64) bool {
	grant := g.memory.grant
	if g.ofObject {
		grant = g.memory.grantObject
	}
	if !grant(bytes) {
		return false
	}
	g.granted += bytes
	return true
}

// settle gives back what was reserved but is counted by redo.
func (g *planner) settle() {
	if g.ofObject {
		g.memory.addObject(-int64(g.granted))
	} else {
		g.memory.add(-int64(g.granted))
	}
	g.granted = 0
}

// applyEvent redoes a filter event and accounts for the memory it changed.
func (p *machine) applyEvent(f *fbf.Filter, ev fbf.Event) error {
	before := f.Bytes()
	err := f.Apply(ev)
	p.memory.add(int64(f.Bytes()) - int64(before))
	return err
}

// moment is the time at which a batch is decided. It is written into the log,
// so that redoing needs no clock.
type moment struct {
	logged int64 // logged time, ms: ages ids; advances only while the server runs
	wall   int64 // unix ms; never goes back either
}

// after returns the later of each of two moments' times.
func (m moment) after(o moment) moment { return moment{max(m.logged, o.logged), max(m.wall, o.wall)} }

// moment returns a partition's time at a reading of the clock.
func (p *machine) moment(wall, running int64) moment {
	return moment{logged: p.ahead + running, wall: wall}
}

// logEnd is where a section of the log ends, and a fingerprint of it.
type logEnd struct{ seq, print uint64 }

// noteSection notes the size and the end of the section at hand, which is logged now.
func (p *machine) noteSection() {
	p.logBytes += uint64(len(p.draft.section))
	p.noteEnd(p.draft.section)
}

func (p *machine) noteEnd(section []byte) {
	if p.regions != nil {
		p.end = logEnd{p.seq, fingerprint(section)}
	}
}

func fingerprint(section []byte) uint64 { return xxhash.Sum64(section) }
