// Package persistence keeps bytes on disk. It knows keys, bytes and when they
// are durable; it does not know what a counter, an operation or a filter is.
// Package store decides what the bytes mean; package cluster has Raft's log and votes here.
//
// # What lies in a data directory
//
//	META        text: magic, format, partitions, hash seed, id, incarnation, checksum
//	LOCK        held while a process has the directory open, as is the directory itself
//	SPARE       blocks for what must not meet a full disk
//	BACKUP      when the last backup was finished
//	CLUSTER     a node's own values, which no copy has (values.go)
//	LOGSYNC     how far the op log is really fsynced (see below)
//	MANISYNC    the same of Pebble's MANIFEST
//	log/        the op log
//	db/         a Pebble database: rows, state, expiries, pages, the headers of runs
//	snapshots/  snapshots of filters and objects, p<partition>-<sequence>.fbf, and
//	            partitions that come from another shard, .moved (moved.go)
//	runs/       runs of records, p<partition>-t<table>-<id>.run
//	tmp/        runs under construction; emptied at Open
//
// FORMAT.md, beside this file, draws every byte.
//
// The op log is the truth; everything else can be made from it, as far as it reaches
// back. It is not in Pebble, whose memtables and level 0 would copy each operation two
// more times only to delete it at the next checkpoint.
//
// Inside Pebble the first byte of a key says what it is:
//
//   - 'r' slot hash key: a row, the value of one key as of some sequence. Rows
//     are written in bulk at checkpoints.
//   - 's' partition: one value per partition, such as where to begin redoing.
//   - 'x' partition time slot hash key: the row expires then; an index that may
//     be outdated.
//   - 'p' partition object number: a page, a part of a large object's memory.
//   - 'e' partition table id: the header row of a run, an immutable sorted set of
//     records. The records are in a file of their own, which is written beside
//     the commit path and is of no effect until its header row is committed.
//     They are only looked up by their hash, merged by package store, which knows
//     when they expire, and deleted all at once. A plain sorted file costs a third
//     of an sstable to build, and a look-up costs one block read.
//
// # A commit
//
// An operation is committed by the op log, package oplog, which [DB.Log] returns.
//
// [Changes] are what Pebble is told in the background: rows, state, headers of runs.
// Pebble has no log of its own. After Commit changes are visible; they are durable
// after [DB.Flush], and a crash before that leaves the first so many commits, for
// memtables are flushed in their order. Commits that a crash takes are made again from the op log:
// so Flush comes before the log is trimmed (changes.go).
//
// # How durable (guarantee G2)
//
// Options.Fsync says how far a commit of the op log must be on its way to the disk.
//
// Publishing anything that is derived from committed data, a run, a snapshot or a row, first makes
// that data really durable, whatever the policy: after a power loss no id is remembered whose
// effect was lost, and no effect is there without its id (G4). So Pebble never gets ahead of the
// log: each of its commits fsyncs the log first.
//
// # When something fails (guarantee G8)
//
// A failed write or fsync of the log is final, and so is a failed fsync of a published file. The
// error is sticky: every later commit, Sync and Flush returns it, as an [ErrFailed], until the
// directory is opened again; reads go on. Where Pebble itself cannot go on, Options.Fatal is called
// and the process ends. Flushes and compactions that meet a full disk are retried by Pebble in new
// files, so that it heals; another error of a flush is final.
//
// A full disk should not fail a commit in the first place: space for a record is reserved
// before its batch is decided, Commit and Flush say [ErrNoSpace] of changes of Pebble, and
// a spare is kept for a start and for what Pebble cannot be without (spare.go).
package persistence
