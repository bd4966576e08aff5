// Package persistence keeps bytes on disk. It knows keys, bytes and when they
// are durable; it does not know what a counter, an operation or a filter is.
// Package store, its only user, decides what the bytes mean.
//
// # What lies in a data directory
//
//	META        text: magic, format, partitions, hash seed, checksum
//	LOCK        held while a process has the directory open, as is the directory itself
//	SPARE       blocks for what must not meet a full disk
//	BACKUP      when the last backup was finished
//	LOGSYNC     how far the op log is really fsynced (see below)
//	MANISYNC    the same of Pebble's MANIFEST
//	log/        the op log
//	db/         a Pebble database: rows, state, the headers of runs
//	snapshots/  filter snapshots, p<partition>-<sequence>.fbf
//	tmp/        runs under construction; emptied at Open
//
// FORMAT.md, beside this file, draws every byte.
//
// The op log is the truth; everything else can be made from it, as far as it reaches
// back. It is a sequence of files of records, one for each batch, with a section
// for each partition. It is not in Pebble, whose memtables and level 0 would copy
// each operation two more times only to delete it at the next checkpoint; and
// its files are used again, since writing into pages and blocks that exist costs a
// fraction of growing a file. A tag that no client knows separates what is written from
// what a file held before (logchunk.go).
//
// Inside Pebble the first byte of a key says what it is:
//
//   - 'r' slot hash key: a row, the value of one key as of some sequence. Rows
//     are written in bulk at checkpoints.
//   - 's' partition: one value per partition, such as where to begin redoing.
//   - 'x' partition time slot hash key: the row expires then; an index that may
//     be outdated.
//   - 'e' partition table id: the header row of a run, an immutable sorted set of
//     records. The records are in a file of their own, which is written beside
//     the commit path and is of no effect until its header row is committed.
//     They are only looked up by their hash, merged by package store, which knows
//     when they expire, and deleted all at once. A plain sorted file costs a third
//     of an sstable to build, and a look-up costs one block read.
//
// # A commit
//
// A [Batch] is one atomic commit, a record of the op log. Apply, called under the locks of the
// partitions concerned, fixes its place in the order; Wait, called outside,
// returns once it is durable. Concurrent batches share one fsync. A batch is
// reused and then costs no allocation:
//
//	b := db.NewBatch()
//	for each pipeline {
//		lock the partitions
//		b.AppendLog(partition, seq, record)
//		err := b.Apply()
//		unlock
//		err = b.Wait() // only now may replies leave
//	}
//
// [Changes] are what Pebble is told in the background: rows, state, headers of runs.
// Pebble has no log of its own. After Commit changes are visible; they are durable
// after [DB.Flush], and a crash before that leaves the first so many commits, for
// memtables are flushed in their order. What a crash takes is made again from the op
// log: so Flush comes before the log is trimmed (flush.go).
//
// # How durable (guarantee G2)
//
// The policy is an [Fsync], and holds for the op log. The first waiter writes everything
// appended so far, with one write(2). Under Always it also fsyncs; under Everysec a timer
// fsyncs each second; under No nobody does. So kill -9 loses nothing under any policy. A file of the log is fsynced before the next
// one is written to; only the newest can have an unsynced tail.
//
// The mark LOGSYNC says how far the log is really durable. Pages behind it reach
// the disk in any order, so a power loss can leave holes there. Open cuts the log
// at a hole behind the mark of a lazy policy, and reports it in [Recovery].
// Damage before the mark is refused under every policy.
//
// Whatever is derived from committed data and published on its own, a run, a
// snapshot, a row, first makes that data really durable, whatever the policy:
// after a power loss no id is remembered whose effect was lost, and no effect is
// there without its id (G4). So Pebble never gets ahead of the log: each of its commits
// fsyncs the log first.
//
// # When something fails (guarantee G8)
//
// A failed write or fsync of the log is final. It is never tried again, since
// the kernel may have dropped the pages and report success the next time. The
// error is sticky: every later Apply, Wait, Sync and Commit returns it, as an
// [ErrFailed], until the directory is opened again; reads go on. This includes
// the background fsync. Where Pebble itself cannot go on, Options.Fatal is
// called and the process ends. Flushes and compactions that meet a full
// disk are retried by Pebble in new files, so that it heals; another error of a flush
// is final.
//
// A full disk should not fail a commit in the first place: [DB.Reserve] is called
// before a batch is decided and says [ErrNoSpace] if there may be no space for its
// record (logroom.go), Commit and Flush say so of changes of Pebble, and a spare is kept for a
// start and for what Pebble cannot be without (spare.go).
package persistence
