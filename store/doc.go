// Package store decides what each operation does to the counters, filters and sketches of a server, once
// and in order, and commits that. It is a state machine over an op log.
//
// A server has some partitions, each a range of the 16384 slots of Redis Cluster. Each partition has a
// lock, and its part of the log: entries, numbered by sequences. The log is the truth; memory, and
// all else that is on disk, is made from it.
//
//	s, err := store.Open(store.Options{Dir: "data"})
//	…
//	var b store.Batch
//	op := b.Add(store.CIncrBy)
//	op.Key, op.ID, op.Delta = key, opid, 1
//	s.Execute(&b) // then op has the outcome: Value, Applied, Err
//	…
//	err = s.Close()
//
// # The way of a batch
//
// A caller fills a Batch, usually with what many connections have sent, and calls Store.Execute. All of
// this happens in the caller's goroutine (execute.go):
//
//  1. begin refuses what cannot be written now, reserves space in the log, and finds each operation's
//     partition by its key's slot. Nothing is locked yet.
//  2. The partitions are locked, in ascending order. A large batch is divided into shares of a few
//     partitions each, unless it is atomic. One share after another is locked and goes on alone, so that
//     other batches take the rest meanwhile.
//  3. prepare looks whether memory has all that deciding needs: the counters, and what is known of the
//     opids. If not, the locks are given back, the rows and records are read from disk (fetch.go), and
//     prepare looks again. A row that was read counts only if its key cannot have changed meanwhile.
//  4. decide gives each operation its turn (decide.go). Is it STALE, was it applied before, does it
//     overflow, is there room? The outcome is logged as an entry, which changes memory at once (redo).
//     take notes the sequence that the reply rests on.
//  5. apply makes the entries of each partition a section, and the sections one record, whose place in
//     the log is fixed. Then the partitions are unlocked.
//  6. wait returns when all that the replies rest on is committed. Then the replies leave.
//
// # Decide once, redo everywhere
//
// Deciding may ask filters and clocks. Its outcomes say what follows from that: the value after an
// operation, opids, refreshes of filters, the time. Redo (redo.go) applies an outcome and asks neither. It
// is the one way in which state changes: live, in recovery, in a replica and in Check. If recovery decided
// again, with a filter that already has a logged operation, it would find that to be a duplicate of itself.
//
// # Two halves
//
// The package has two halves. The lower one uses nothing of the upper one, except where a row of the table
// of entries names the function that takes another region's entry (TestHalves, which lists the runner's
// files). docs/design/state.md has the rules of the lower half, and says why they are not two packages.
//
//	runner    execution      takes a batch through the store: locks, reads, commits
//	          partition      a machine, its lock, its commit mark, and what checkpoints need
//	          checkpoint, recovery, replica, move: what happens between log and disk
//	          ── world, outside, filterMemory: the interfaces by which the lower half asks ──
//	machine   turn           decides the operations of a share, and logs entries in machines
//	          machine        all that one partition remembers: redo alone changes that, though rows
//	                         of counters are read into it, and leave it again
//
// The machine's half has no lock, disk, goroutine or clock. A turn is told the time and what was read. It
// asks its world, which is the execution, for space in the log; redo asks its outside, which is the
// partition, for a row. An execution embeds its turn, and a partition its machine.
//
// # Where an opid is judged
//
// judge.go finds out, before decide, what is known of each (key, opid): the filter of the key's table
// says that it is new, or that it may be known. In an APPROX table that counts as known. In an EXACT one
// the record decides, which is looked for by the whole key and opid: in memory, then in runs (package
// seen). A table that was made lately also asks the tables that its keys belonged to (links). At its turn
// an operation is judged again by what its own batch has applied before it (judgeAgain). checkTime refuses
// an operation whose time says that its opid may be forgotten. An opid and its effect are one entry.
//
// # Views, checkpoints and recovery
//
// Views are made from the log. Those on disk spare a start from redoing all of it:
//
//	counters   machine.hot, in memory while they are hot or changed; rows in Pebble
//	filters    tableState.filter, one for each table and partition; in snapshots
//	records    machine.seen (package seen): what EXACT tables know of each operation, to confirm what a
//	           filter reports; in memory and then in sorted runs
//	objects    what keys hold that are no counters (object.go), such as FBF keys; always in memory, and in
//	           snapshots. Bloom filters and count-min sketches (package sketch) have pages (pages.go),
//	           in Pebble
//
// A checkpoint brings the views of one partition to disk, while operations go on, so that the log can be
// trimmed (checkpoint.go has its steps). capture notes a sequence, what has changed, and the records, under
// the lock. Then come runs, rows, pages, the state row, a flush of Pebble, the snapshot, and the trim of
// the log. Each part is written once all that it may show is committed (R1). A row or a page may be newer
// than the checkpoint's sequence, and says its own.
//
// Recovery (recover.go) loads the state row, the newest whole snapshot, pages and runs, and redoes the log
// from the oldest of them on. Marks tell redo what each view has already, and an entry never replaces a
// higher sequence; so redoing from too early does no harm. A log with a gap, or one that ends before a view,
// is damaged, and the directory is not opened. An open store recovers a single partition in the same way
// when its state must be given up (rebuild.go). Check (check_views.go) redoes the log likewise, and compares
// the views with the result.
//
// A crash is safe since nothing is acknowledged before its record is in the log, as durable as appendfsync
// promises; since a record is there whole or not at all; since no view shows more than the log keeps; and
// since recovery decides nothing. If a commit fails, memory is ahead of the log: the store freezes (G8).
//
// # Where to add what
//
//	an operation      a Kind (op.go), its row in kinds (kinds.go), and the function that decides it
//	                  in a decide file. Package commands parses it
//	a kind of entry   a number and a row in entrykinds.go: fields, redo, and what regions are told of
//	                  it. TestNewKind is an example. TestKindsAreWhole finds what a row lacks.
//	                  TestFormatHasTheKinds compares FORMAT.md
//	a type of key     a file with an object and an objectType, and its row in objectTypes (object.go)
//	a table's option  TableOptions (table.go), and what asks it
//	what a partition  a field of machine or views, in the state row (state.go, as of a checkpoint) or in
//	remembers         the snapshot; redo sets it, and Check compares it
//	a file            a runner's file is named in runnerFiles (halves_test.go); any other is the machine's
//
// # Glossary
//
// One word, one meaning, here and in the packages beside this one. A word with a
// qualifier, such as log record, is another word.
//
// Operations:
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
//	stale         of an operation: its own time is before the window, so its opid may be forgotten
//	hash          64 bits of (key, opid), keyed by the directory's seed: filters know no more
//
// The log and time:
//
//	outcome       what deciding found out; logged as an entry
//	post-image    the value and the expiry of a key after an entry
//	tombstone     the entry that ends a key; memory has it until the row is gone
//	redo          to apply an entry to a machine
//	entry         one outcome in the op log, numbered by its sequence
//	sequence      the number of an entry within its partition
//	section       the entries that a batch logs for one partition (sectionReader reads it)
//	log record    the sections of one batch, in the op log
//	logged time   the time by which a partition's ids age: it stops while the server is down
//	moment        logged time and wall time of a section
//	jump          a gap in the sequences: where a copy of a directory goes on, or a partition
//	              that was adopted
//	incarnation   the number that tells a copy of the directory (backup, restore) from its
//	              original
//	committed     as durable as appendfsync promises; in a cluster, on a majority of disks. Durable: on
//	              the disk
//	commit mark   the sequence up to which a partition's entries are committed
//	floor         the sequence of a partition's last FLUSHALL
//	horizon       the wall time before which operations are STALE
//
// What a partition remembers:
//
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
//	view          what is made from the op log: counters and rows, filters, records. A
//	              partition's views are what it has of them in memory
//	hot           of a counter: in memory
//	cold          of a key: its row must be read
//
// A batch:
//
//	execution     a batch on its way through the store
//	batch         the operations of one call of Execute: one lock, one commit
//	ref           one key of one operation, while it is decided
//	verdict       what judging found out about an opid
//	world         the execution, as its turn sees it. Outside: the partition, as redo sees it
//	share         those operations of a split batch that are locked together: some partitions
//	draft         the section of the batch at hand, until it has its place in the log
//	piece         those operations of a share that are prepared and decided together
//	atomic        nobody sees a part of the batch, not even a crash
//	round         package commands: the requests of several connections, made one batch
//	turn          decides the operations of a batch; an operation has its turn in it. A worker's
//	              turn (package server) is its right to serve rounds
//	freeze        refusing writes, of all partitions when an outcome is unknown (G8)
//
// Disk:
//
//	checkpoint    bringing the views of a partition to disk; SAVE does it for all
//	snapshot      the file of a partition's filters and objects that a checkpoint writes
//	backup        a copy of a whole data directory
//	mark          a sequence or place up to which something is known to be done
//	hold          what keeps op log, runs and snapshots while they are still needed: by a backup,
//	              a follower
//	cut           where a partition's log ends when what is not committed is taken back
//	life          a partition from one rebuild to the next; sequences that were taken back
//	              are given again in the next one. A point is a sequence in a life
//	away          a partition that is being rebuilt: operations on it wait
//
// Moves of partitions between shards:
//
//	move          a partition goes from one shard's stores to another's (move.go): it is
//	              exported, received, handed over, adopted there and vacated here
//	tail          what a partition that moves has done since it was exported
//	vacant        of a partition: empty, because another shard has it
//
// Regions (package regions has more words):
//
//	region        one of several stores that change the same counters, each by itself, and
//	              tell each other (region.go); a store that is one is a member
//	part          what one region did to a counter (package part). A key has parts once
//	              others changed it too, or more than increments happened to it
//	state         of a slot range: what a region tells who its log is too short for, in pages: a
//	              page has keys or ids (regionstate.go). A place is where one begins
//	newcomer      a region that has taken nothing yet of any other
//	digest        what tells whether two regions have the same in some slots
//	note          what an entry of a key with parts says beside the post-image
//
// # Guarantees and where they are upheld
//
// docs/design/state.md says what each is for, and docs/design/cluster.md and regions.md what replicas and
// regions add.
//
//	G1 at most once     judge.go; judgeAgain, for twins within one batch; withoutPauses; in a region that
//	                    joins: checkCaughtUp
//	G2 no lost ack      execution.wait
//	G3 not from future  execution.take and commitMark
//	G4 all or nothing   execution.apply: one record of the log; R1 in checkpoint.go
//	G5 bounded error    makeRoom (filters grow before they exceed it), judge
//	G6 nothing half     decide.go: all checks come before the first log call
//	G7 stale            checkTime and horizon
//	G8 fail stop        Store.freeze; execution.refusal
//
// A Store is safe for concurrent use; a Batch belongs to one goroutine.
package store
