// Package oplog is the op log: what was done, in order, and durable. Everything else in
// a data directory can be made from it, as far as it reaches back. It knows partitions,
// sequences and bytes; it does not know what the bytes mean.
//
//	l, err := oplog.Open(oplog.Options{…})
//	b := l.NewBatch()
//	for each pipeline {
//		err := l.Reserve(n) // before anything is decided (G8)
//		lock the partitions
//		b.AppendLog(partition, seq, content)
//		err = b.Apply()
//		unlock
//		err = b.Wait() // only now may replies leave
//		l.Release(n, b.TakeUsed())
//	}
//
// # Words
//
//	section    what one batch did in one partition, under a sequence of that partition
//	record     what one batch did: its sections, committed wholly or not at all
//	chunk      a record, or a part of one, as it lies in a file; no chunk crosses a block
//	block      32 KiB of a file
//	trailer    the chunk that ends a file
//	tag        64 random bits of a file, by which its chunks are known (chunk.go)
//	file       the log is a sequence of numbered files, of which the newest is written
//	recycled   a file that nobody needs any more, to be used again for the next one
//	place      where a record ends in all that was appended since Open; Wait takes it
//	bookmark   where Follow reads on: behind a record of a file
//	location   where Read finds a section: file, offset and size
//	low        the sequence of a partition from which on its sections are needed (Trim)
//	hold       what somebody still needs, whatever the lows say (hold.go)
//	mark       LOGSYNC: up to where the newest file was really fsynced
//	room       bytes of the newest file that have blocks on the disk and are not reserved
//	cut        what Open does to a tail that was never fsynced and that a crash damaged
//	entry      a record of a replicated log, which has the sections; its index is its place there
//	applied    the index up to which entries are committed, and never taken back
//
// # Commits
//
// [Log.Append] fixes the place of a record, under the locks of the partitions concerned;
// [Log.Wait], outside them, returns once it is as durable as the policy, an [Fsync],
// promises (G2). The first waiter writes everything appended so far, with one write(2).
// Under Always it also fsyncs; under Everysec a timer fsyncs each second; under No nobody
// does. So kill -9 loses nothing under any policy. [Log.Sync] fsyncs under each of them:
// whatever is derived from the log and published on its own calls it first (G4).
//
// Files are used again, since writing into pages and blocks that exist costs a
// fraction of growing a file. A full file is ended by a trailer and fsynced before the
// next one is written to, so that only the newest can have an unsynced tail.
//
// # A replicated log
//
// In a shard the op log is Raft's log ([Options.Sections]). [Log.AppendEntries] takes the
// place of Append and Wait, and Raft decides what is committed. It takes back entries that
// are not ([Log.DeleteEntries]): a record says so, and the bytes before it in the files stay there.
// The committed entries follow from the applied index ([Log.SetApplied]): each record notes it.
// Open and BeginRecovery show the sections of these entries, and of no others (entryscan.go).
//
// # After a crash
//
// Pages behind the mark reach the disk in any order, so that a power loss can leave holes
// there. Open cuts the log at a hole behind the mark of a lazy policy, and says so in
// [Recovery]. It refuses damage before the mark under every policy (open.go). What it
// found can be read, by [Log.Read], until [Log.EndRecovery]; later what
// [Log.BeginRecovery] finds.
//
// # When something fails (G8)
//
// A failed write or fsync is final. It is never tried again, since the kernel may have
// dropped the pages and report success the next time. Every later Append, Wait and Sync
// returns the error, as a disk.ErrFailed. A full disk should not fail a record in the
// first place: Reserve says disk.ErrNoSpace before anything is decided (room.go).
package oplog
