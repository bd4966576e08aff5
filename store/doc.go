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
//	s.Execute(&b) // then op has the answer: Value, Applied, Err
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
//  2. A large batch of operations with one key each is split into shares of a few partitions, unless it is
//     atomic. Any other is one share. The shares go through steps 3 to 5 one after another. Each locks only
//     its own partitions, in ascending order; other batches take the rest meanwhile.
//  3. prepare looks whether memory has all that deciding needs: the counters, and what is known of the
//     opids. If not, the locks are given back, the rows and records are read from disk (fetch.go), and
//     prepare looks again. A row that was read counts only if its key cannot have changed meanwhile.
//  4. decide checks one operation after another (decide.go). Is it STALE, was it applied before, does it
//     overflow, is there room? If a check fails, the operation gets its Err, and neither an effect nor its
//     opid is logged (G6); nor is anything of a duplicate, which gets an answer. Otherwise the outcome goes
//     as an entry into the partition's draft, and redo applies it to memory at once. For each reply, also
//     to a read, take notes the sequence that must be committed first: of the key's last change, or of all
//     decided in the partition so far if a filter, tables, holds (CHOLD) or the memory of opids had a part.
//  5. apply makes the share's drafts the sections of one record, and fixes its place in the log. Then the
//     partitions are unlocked. A split batch has a record, or several, for each share that writes. Any
//     other has one, or several in a cluster if it is large (cutRecord).
//  6. wait, once for the whole batch, returns when its records are committed, and all else that its replies
//     rest on. Then the replies leave.
//
// # Decide once, redo everywhere
//
// Deciding depends on filters and on the time. The outcomes say what follows from both: the value after an
// operation, opids, refreshes of filters, the time. Redo (redo.go) applies an outcome and asks neither. It
// is the one way in which state changes: live, in recovery, in a replica and in Check. Recovery must not
// decide again: a filter saved later may have the opid, and show a duplicate.
//
// # Two halves
//
// The package has two halves. The lower half uses nothing of the upper half, with one exception: the table
// of entry kinds (entrykinds.go) names the functions of take.go that take another region's entries.
// TestHalves checks that, and lists the runner's files. docs/design/state.md has the rules of the lower
// half, and says why the halves are not two packages.
//
//	runner    execution      takes a batch through the store: locks, reads, commits
//	          partition      a machine, its lock, its commit mark, and what checkpoints need
//	          checkpoint, recovery, replica, move: what happens between log and disk
//	          ── world, outside, filterMemory: the interfaces by which the lower half asks ──
//	machine   turn           the part of an execution that decides: it logs entries in machines
//	          machine        all that one partition remembers: redo alone changes that, though rows
//	                         of counters are read into it, and leave it again
//
// The machine's half has no lock, disk, goroutine or clock. A turn is told the time and what was read. It
// asks its world, which is the execution, for space in the log; redo asks its outside, which is the
// partition, for a row. An execution embeds its turn, and a partition its machine.
//
// # Where an opid is judged
//
// prepare calls judge.go, which finds out what is known of each (key, opid). It asks the filter of the
// key's table. If the filter is negative, the opid is new. If it is positive, an APPROX table takes the
// opid as known, now and then wrongly. An EXACT table looks for the record, by the whole key and opid: in
// memory, then in runs (package seen). Without a record the opid is new. A table that was made lately also
// asks the tables that its keys belonged to (links). decide judges an operation again by what its own batch
// has applied before it (judgeAgain).
//
// A duplicate changes nothing. Where there is a record, its client gets the original result, or MISMATCH if
// the increment differs; otherwise the present value. An operation may tell its own time. checkTime refuses
// it as STALE if the table may have forgotten opids of that time. An opid and its effect are one entry.
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
// the log. Rule R1: none of these is written before all that it may show is committed. A row or a page may
// be newer than the checkpoint's sequence, and has the sequence of its own last change.
//
// Recovery (recover.go) loads the state row, the newest whole snapshot, pages and runs. Rows are read when
// redo or an operation needs them. Marks say up to which sequence each view has the log: the state row has
// the mark of counters and records, the snapshot has its own. Recovery redoes the log from the lowest mark
// on. Redo leaves out what a view has already, and never replaces a row or a page of a higher sequence; so
// redoing from too early does no harm. A log with a gap, or one that ends before a mark, is damaged, and
// the directory is not opened. An open store recovers a single partition in the same way when its state
// must be given up (rebuild.go). Check (check_views.go) redoes the log and compares.
//
// A crash is safe. Nothing is acknowledged before its record is in the log, as durable as appendfsync
// promises; a record is there whole or not at all; recovery decides nothing. A crash in the middle of a
// checkpoint is harmless: what it had written shows only committed entries (R1), and the log is trimmed
// last, up to the older of two snapshots, so that redo finds all that the other views lack.
//
// # When a commit fails
//
// Memory is then ahead of the log, and nobody knows whether the batch's record is in it. Each operation of
// the batch that was decided ends with ErrUnknownOutcome, and its client may retry with the same opid. The
// whole store freezes (G8): further writes get that error, and so do reads, unless all that they rest on is
// committed. The freeze ends when the directory is opened again, and recovery makes memory from the log. A
// full disk does not freeze: begin reserves space in the log, and refuses writes without it.
//
// Without a failure, a partition refuses writes (ErrNotLeader) while this node of a cluster does not lead,
// and writes and reads while another shard has the partition, or is about to.
//
// # Where to add what
//
//	an operation      a Kind (op.go), its row in kinds (kinds.go), and the function that decides it
//	                  in decide*.go, or in the file of its object. Package commands parses it
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
//	kind          what an operation does: a row of kinds (kinds.go). Kind of entry: what an entry
//	              says, a kindRow (entrykinds.go)
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
//	section       the entries of a log record for one partition (sectionReader reads it)
//	log record    the sections of one share of a batch, in the op log
//	logged time   the time by which a partition's ids age: it stops while the server is down
//	moment        logged time and wall time of a section
//	jump          a gap in the sequences, where a copy of a directory or an adopted partition goes on
//	incarnation   the number that tells a copy of the directory (backup, restore) from its original
//	committed     as durable as appendfsync promises; in a cluster, on a majority of disks. Durable: on disk
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
//	batch         the operations of one call of Execute, which waits once for their commit
//	ref           one key of one operation, while it is decided
//	verdict       what judging found out about an opid
//	world         the execution, as its turn sees it. Outside: the partition, as redo sees it
//	share         the operations of a batch on partitions that are locked together
//	draft         the section of the batch at hand, until it has its place in the log
//	piece         of a share: the operations that are prepared and decided together
//	atomic        nobody sees a part of the batch, not even a crash
//	round         package commands: the requests of several connections, made one batch
//	turn          the part of an execution that decides (turn.go). To have its turn, of an operation:
//	              to be decided. A worker's turn (package server): its right to serve rounds
//	freeze        refusing all writes since a commit failed (G8). A frozen partition: it refuses
//	              writes, for that or another reason
//
// Disk:
//
//	checkpoint    bringing the views of a partition to disk; SAVE does it for all
//	snapshot      the file of a partition's filters and objects that a checkpoint writes
//	backup        a copy of a whole data directory
//	mark          a sequence or place up to which something is known to be done
//	hold          what keeps op log, runs and snapshots while a backup or a follower needs them. Of a
//	              counter: an amount that CHOLD sets aside (holds.go)
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
//	state         of a slot range: the parts of its keys, then the opids. A region tells it to one that
//	              lacks more than the log has, in pages (regionstate.go). A place is where one begins
//	newcomer      a region that has taken nothing yet of any other
//	digest        what tells whether two regions have the same in some slots
//	note          what an entry of a key with parts says beside the post-image
//
// # Guarantees and where they are upheld
//
// docs/design says what each is for (state.md), and what replicas (cluster.md) and regions (regions.md) add.
//
//	G1 at most once     judge.go; judgeAgain (twins in a batch); withoutPauses; checkCaughtUp (a new region)
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
