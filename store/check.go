package store

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/store/sketch"
)

// CheckOptions configure Check. Only Dir has no default.
type CheckOptions struct {
	// Dir is the data directory.
	Dir string
	// FS holds the directory; default the machine's file system.
	FS vfs.FS
	// Progress is told the stage, "sstables" (bytes) or "partitions", and how
	// much of it is done; default: nobody is told.
	Progress func(stage string, done, total int64)
}

// Problem is one fault of a data directory.
type Problem struct {
	Where string // a file, relative to the directory, or a partition
	What  string // what is wrong, in plain words
	Do    string // what to do about it
}

// String renders the problem in one sentence.
func (p Problem) String() string { return fmt.Sprintf("%s: %s; %s", p.Where, p.What, p.Do) }

// CheckReport says what Check examined and found.
type CheckReport struct {
	Problems []Problem
	// Notes are worth knowing and harmless.
	Notes []string

	// Meta is what the directory says of itself.
	Meta       persistence.Meta
	Partitions int
	Sstables   int
	TableBytes int64  // of sstables
	Sections   uint64 // of the op log
	Entries    uint64 // outcomes in them
	Rows       uint64
	Keys       int64 // DBSIZE
	Runs       int
	RunRecords uint64
	Snapshots  int
	Filters    int // decoded from snapshots
	Pages      uint64
	// Unreadable are the keys whose objects cannot be read; each is among the problems.
	Unreadable []Unreadable
	others     int // of the problems, those that are not about such a key
}

// OnlyUnreadable reports whether a server starts with the directory, and serves all but some keys
// that cannot be read.
func (r *CheckReport) OnlyUnreadable() bool {
	return len(r.Unreadable) > 0 && r.others == 0
}

// The remedies of problems.
const (
	doRestore = "the server must not go on with this directory: restore a backup (fbfkv restore), and " +
		"keep this directory for examination"
	doNothing = "the server starts with the older snapshot, nothing is lost, and its next snapshot " +
		"replaces this one"
	doRebuild = "the server rebuilds the filters from the records of the EXACT tables when it starts, " +
		"nothing is lost"
	doDrop = "the server starts, and answers every command on the key with an error: DEL drops it, or " +
		"fbfkv check --drop-unreadable while no server runs (not in a backup); " +
		"a backup may still have it"
	doForget = "the server refuses to start: restore a backup (fbfkv restore), or start it with " +
		"--accept-forgotten-window, " +
		"which may count retries of operations of the last window again"
)

// Check examines a data directory that no server has open, without changing it. It
// checks that META, the log's tail and every block of every sstable are sound; that
// every section of the op log decodes and none is missing; that every snapshot is
// complete; that every row is in its place; and that DBSIZE is the number of keys. It
// redoes the op log in memory, by what recovery does, and compares with that rows, runs,
// filters and the state row, as far as the log reaches back. The report lists what is
// wrong; an error means that the directory could not be examined at all.
func Check(o CheckOptions) (CheckReport, error) {
	if o.Progress == nil {
		o.Progress = func(string, int64, int64) {}
	}
	c := &checker{o: o}
	db, err := persistence.OpenReadOnly(persistence.Options{FS: o.FS, Dir: o.Dir, Fatal: func(error) {}})
	if errors.Is(err, persistence.ErrCorrupt) {
		c.problem(o.Dir, err.Error(), doRestore)
		c.report.Notes = append(c.report.Notes, "what lies behind this damage could not be examined")
		return c.report, nil
	}
	if err != nil {
		return c.report, err
	}
	c.db = db
	c.run()
	return c.report, db.Close()
}

// checker is one Check.
type checker struct {
	o      CheckOptions
	db     *persistence.DB
	report CheckReport
}

func (c *checker) problem(where, what, do string) {
	c.report.Problems = append(c.report.Problems, Problem{Where: where, What: what, Do: do})
	if do != doDrop {
		c.report.others++
	}
}

func (c *checker) run() {
	if r := c.db.Log().Recovery(); r.LostBytes > 0 {
		c.report.Notes = append(c.report.Notes, fmt.Sprintf("the last %d bytes of the log, %s from byte "+
			"%d on, were written but never fsynced "+
			"and were damaged by a power loss, as appendfsync everysec and no allow; the server will "+
			"drop them", r.LostBytes, r.File, r.CutAt))
	}
	c.sstables()
	meta := c.db.Meta()
	c.report.Meta, c.report.Partitions = meta, meta.Partitions
	for i := range meta.Partitions {
		p := &partitionCheck{checker: c, id: uint16(i)}
		p.run()
		c.o.Progress("partitions", int64(i+1), int64(meta.Partitions))
	}
	if n, err := c.db.StrayRows(); err != nil {
		c.problem("rows", err.Error(), doRestore)
	} else if n > 0 {
		c.problem("rows", fmt.Sprintf("some lie outside all hash slots: %d", n), doRestore)
	}
}

func (c *checker) sstables() {
	found, err := c.db.VerifyTables(
		func(file string, err error) { c.problem(file, "is damaged: "+err.Error(), doRestore) },
		func(done, total int64) { c.o.Progress("sstables", done, total) })
	if err != nil {
		c.problem("db", err.Error(), doRestore)
	}
	c.report.Sstables, c.report.TableBytes = found.Files, found.Bytes
}

// ErrBackup means that a directory stays as it was made.
var ErrBackup = errors.New("it is a backup, or was restored and never started, and nothing was changed: " +
	"restore it (fbfkv restore), " +
	"start a server with that directory, and DEL the keys")

// DropUnreadable opens a data directory that no server has open, deletes the keys whose objects
// cannot be read, as DEL does, and returns them. A directory of a cluster's node is refused: there
// DEL goes through the leader of the shard, or another node's files replace this one's. So is a
// backup, which would not be any more what was verified: ErrBackup.
func DropUnreadable(o Options) (dropped []Unreadable, err error) {
	if used, err := persistence.Used(o.FS, o.Dir); err != nil || !used {
		return nil, cmp.Or(err, ErrBackup)
	}
	s, err := Open(o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	var b Batch
	for _, p := range s.partitions {
		p.lock()
		list := p.listUnreadable()
		p.mu.Unlock()
		for _, u := range list {
			op := b.Add(Del)
			op.Keys = append(op.Keys, []byte(u.Key))
		}
		dropped = append(dropped, list...)
	}
	if len(dropped) == 0 {
		return nil, nil
	}
	s.Execute(&b)
	for i := range b.Ops {
		if err := b.Ops[i].Err; err != nil {
			return nil, err
		}
	}
	return dropped, nil
}

// checkOrphans expects each page to belong to an object of the newest snapshot, or to one
// that was created since. To be called before the log is redone.
func (c *partitionCheck) checkOrphans() {
	for _, object := range c.opened.deadObjects {
		if object <= c.opened.marks.filters {
			c.problem("the server deletes them after its next start, nothing is lost",
				"the pages of object %d belong to no key", object)
		}
	}
}

// checkPages expects no page to be newer than the log, each object that exists to have its
// pages, and these to hold what the log makes of the object, if it reaches back to its
// creation.
func (c *partitionCheck) checkPages() error {
	err := c.db.Pages(c.id, func(pg persistence.Page) error {
		c.report.Pages++
		if pg.Seq > c.redone.seq {
			c.problem(doRestore, "page %d of object %d is of entry %d, but the log ends at %d", pg.Number,
				pg.Object, pg.Seq, c.redone.seq)
		}
		return nil
	})
	for key, k := range c.opened.objects {
		is, ok := k.object().(*paged)
		old := c.redone.objects[key]
		if !ok || old == nil {
			continue
		}
		want, ok := old.object().(*paged)
		if ok && is.created == want.created && !is.misses() && !want.misses() &&
			!sketch.Equal(is.Sketch, want.Sketch) {
			c.problem(doRestore, "the pages of key %q and the log contradict each other", key)
		}
	}
	return err
}
