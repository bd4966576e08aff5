// Package store is the state machine of fbfkv: it decides what each operation
// does, once and in order, and commits that.
//
// # The path of one CINCRBY
//
// A caller fills a Batch, usually with what many connections have sent, and calls
// Store.Execute, whose file (execute.go) shows the walk step by step. The store finds each
// operation's partition (by the CRC16 slot of its key), locks the partitions it needs in
// ascending order, and looks whether memory holds everything: the counters, and the
// records of opids that a filter reports. If not, it releases the locks, reads from disk,
// takes the locks again, and trusts nothing it has read that may have changed since. Then
// it decides each operation (decide.go): is it stale, was it applied before, does it
// overflow, is there room? The result is an outcome, which becomes an entry of the op log.
// The entries of one partition form a section, the sections of the batch one log record.
// The record's place in the log is fixed before the locks are released. When the record
// is committed, the replies leave.
//
// A large batch, unless it is atomic, is divided into shares. Each share goes this way by
// itself, one after another. So a lock is held for a fraction of the batch only, and
// where the store must read from disk, other batches take the partitions meanwhile.
// Execute returns when all shares are done.
//
// # Decide once, redo everywhere
//
// Deciding may ask filters and clocks. Its outcomes say what follows from that:
// post-images, opids, refreshes. Redo (redo.go) applies an outcome and asks neither. It
// is the one function that changes state, live and in recovery. So recovery is exact: it
// decides nothing again. If it did, with a filter that already contains a logged
// operation, it would find every operation to be a duplicate of itself.
//
// # Two halves
//
// The machine (machine.go) is everything that one partition remembers. A turn (turn.go) decides
// operations upon machines, and redo changes them. Both are free of locks, disks, goroutines and
// clocks: what they need of the world they are told, or they ask for it through two small
// interfaces, world and outside. The runner is the other half. A partition embeds its machine and
// has the lock, the commit mark and what the last checkpoint holds; an execution takes a batch
// through the store, reads what its turn lacks, and commits what the turn has logged. The machine's
// half uses nothing of the runner's (TestHalves, which lists the runner's files).
//
// # What is where
//
// The op log is the truth; everything else is a view of it. A checkpoint
// (checkpoint.go) brings the views to disk, so that the log can be trimmed:
//
//	counters   machine.hot, in memory while they are hot or changed; rows in
//	           Pebble
//	filters    tableState.filter, one for each table and partition; snapshots
//	records    machine.seen (package seen), in memory and then in sorted runs:
//	           what EXACT tables know of each operation, to confirm what the filter
//	           reports
//	objects    what keys hold that are no counters (object.go), such as FBF keys;
//	           always in memory; snapshots. Bloom filters and count-min sketches
//	           (package sketch) have pages (pages.go), in Pebble
//
// Recovery (recover.go) loads the views, each as of its own sequence, and redoes the log
// from the oldest of them on. Marks tell redo what a view already contains. An open store
// does the same with a partition whose state must be given up (rebuild.go). Check
// (check_views.go) redoes the log likewise, and compares the views with the result.
//
// # Glossary
//
// One word, one meaning, here and in the packages beside this one. A word with a
// qualifier, such as log record, is another word.
//
//	operation     what a client asks for: an Op. Reads are queries
//	kind          what an operation does: a row of kinds (kinds.go)
//	type          of a key: a counter, or an object of a row of objectTypes
//	object        the value of a key that is not a counter
//	page          a part of an object's memory, with the sequence that it reflects; or of a state
//	fragment      a part of a change of an object that is too long for one entry
//	sketch        an object that is a Bloom filter or a count-min sketch
//	opid          the id that a client gives an operation; (key, opid) identifies it
//	duplicate     an operation whose (key, opid) is remembered
//	clip          of a bounded increment: what was asked for minus what was made
//	twins         operations of one batch with the same (key, opid)
//	outcome       what deciding found out; logged as an entry
//	entry         one outcome in the op log, numbered by its sequence
//	sequence      the number of an entry within its partition
//	section       the entries that a batch logs for one partition (sectionReader reads it)
//	log record    the sections of one batch, in the op log
//	record        what an EXACT table keeps of one operation
//	run           an immutable sorted file of records
//	row           one counter on disk, in Pebble
//	filter        a forgetful Bloom filter, of a table or under an FBF key
//	row filter    a plain filter that says which counters have no row
//	generation    the ids that a filter took between two refreshes
//	segment       an array of cache lines in a filter, which holds eight generations
//	table         the policy of all keys with a prefix
//	link          the memory of a key's former table, while it drains
//	partition     a range of hash slots with its own lock, log sections and views
//	machine       what a partition remembers, without its lock and its disk
//	execution     a batch on its way through the store
//	batch         the operations of one call of Execute: one lock, one commit
//	share         those operations of a split batch that are locked together: some partitions
//	draft         the section of the batch at hand, until it has its place in the log
//	piece         those operations of a share that are prepared and decided together
//	atomic        nobody sees a part of the batch, not even a crash
//	round         package commands: the requests of several connections, made one batch
//	turn          what decides the operations of a batch. A worker's turn (package server) is
//	              its right to serve rounds
//	view          what is made from the op log: counters and rows, filters, records. A
//	              partition's views are what it has of them in memory
//	checkpoint    bringing the views of a partition to disk; SAVE does it for all
//	snapshot      the file of a partition's filters and objects that a checkpoint writes
//	backup        a copy of a whole data directory
//	mark          a sequence or place up to which something is known to be done
//	committed     as durable as appendfsync promises. Durable: on the disk
//	hold          what keeps op log, runs and snapshots while they are still needed: by a backup,
//	              a follower
//	cut           where a partition's log ends when what is not committed is taken back
//	life          a partition from one rebuild to the next; sequences that were taken back
//	              are given again in the next one. A point is a sequence in a life
//	away          a partition that is being rebuilt: operations on it wait
//	logged time   the time by which a partition's ids age: it stops while the server is down
//	jump          a gap in the sequences: where a copy of a directory goes on, or a partition
//	              that was adopted
//	move          a partition goes from one shard's stores to another's (move.go): it is
//	              exported, received, handed over, adopted there and vacated here
//	tail          what a partition that moves has done since it was exported
//	vacant        of a partition: empty, because another shard has it
//	incarnation   the number that tells a copy of the directory (backup, restore) from its
//	              original
//	floor         the sequence of a partition's last FLUSHALL
//	horizon       the wall time before which operations are STALE
//	region        one of several stores that change the same counters, each by itself, and
//	              tell each other (region.go); a store that is one is a member
//	part          what one region did to a counter (package part). A key has parts once
//	              others changed it too, or more than increments happened to it
//	state         of a slot range: what a region tells who its log is too short for, in pages: a
//	              page has keys or ids (regionstate.go). A place is where one begins
//	newcomer      a region that has taken nothing yet of any other
//	digest        what tells whether two regions have the same in some slots
//	note          what an entry of a key with parts says beside the post-image
//	freeze        refusing writes, of all partitions when an outcome is unknown (G8)
//
// # Guarantees and where they are upheld
//
//	G1 at most once     judge.go; again, for twins within one batch; withoutPauses; in a region that
//	                    joins: checkCaughtUp
//	G2 no lost ack      execution.wait
//	G3 not from future  execution.take and commitMark
//	G4 all or nothing   execution.apply: one batch of the log; R1 in checkpoint.go
//	G5 bounded error    makeRoom (filters grow before they exceed it), judge
//	G6 nothing half     decide.go: all checks come before the first log call
//	G7 stale            checkTime and horizon
//	G8 fail stop        Store.freeze; execution.refusal
//
// A Store is safe for concurrent use; a Batch belongs to one goroutine.
package store
