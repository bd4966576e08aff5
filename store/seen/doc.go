// Package seen is what EXACT tables know of each operation: which opids were applied to
// which keys, and what the client was told.
//
// A filter of the table says first whether an opid may be known. Only if it may is this
// package asked: the record of the operation, found by the whole key and opid, decides
// whether it is a duplicate, and answers it (G1, G5). A record is kept as long as its table
// remembers ids; then it goes with its run.
//
// # The way of a record
//
// A partition of the store owns one Records, with the lock that guards it.
//
//	Add       the record goes to the end of the newest bundle, in memory
//	Find      finds it there
//	Build     seals the bundles, and sorts what is in them into runs, one for each
//	          table; from then on the records are in files, and no longer in memory
//	Search    finds it there: it says under the lock which runs may have it, reads them
//	          without, and says under the lock again whether the answer holds
//	Build     merges runs into larger ones, and drops those that have expired
//
// The op log holds every record too until the caller has published its run, which is a
// commit of the state row (Build.Publish). After a crash Load, Scan and Assign find the
// runs; what is not in them is added again from the log.
//
// Nothing here reads a clock, and only Records' two steps Build and Search touch the disk,
// through package persistence. The caller says what time it is, and for how long a table
// keeps its records.
//
// # Where it is
//
//	record.go   Record, Original, their bytes and ranks; opid.go how an opid is stored
//	records.go  Records: what is in memory, and what there is on disk
//	search.go   Search, and finding the runs at a start
//	build.go    Build: planning which runs there will be, and publishing them
//	await.go    what other regions may still ask for is kept longer
//	replace.go  Records that take the place of others
//	bundle.go   a bundle; index.go what finds a record in it; freelist.go its memory
//	sort.go     a bundle's records in the order of a run; merge.go several runs as one
//
// # Glossary
//
//	operation  one increment of one counter, identified by (key, opid)
//	opid       the id that a client gives an operation
//	hash       64 bits of (key, opid), keyed: where runs and indexes have a record
//	record     what is kept of one operation
//	original   the part of a record that a duplicate is answered with
//	value      the bytes of a record in a run, or behind its header in a chunk
//	field      what may be at the end of a value, behind a tag
//	bundle     records in memory, in chunks, with a head for each
//	sealed     a bundle to which nothing is added any more
//	chunk      memory for the values of records, one behind the other
//	head       bits of a record's hash, and where it is in the chunks
//	index      finds those records of a bundle that were entered into it
//	mark       the place behind the newest record when a piece of a batch began
//	run        an immutable sorted file of the records of one table
//	group      runs, and perhaps new records, that become one run
//	source     yields records in the order of a run: a sorter, or a run
//	own        applied in this region; others' records name theirs
//	dot        the sequence of an operation's entry in its region's partition
//	rank       of an application: when, where and with which dot (Original.Before)
//	supersede  to count for (key, opid) instead of a record with a lower sequence
//	late       a run beyond the remembering time, kept because it is awaited
//	published  a run that a header row names, so that it is part of the directory
//	obsolete   a run that the next commit of a Build drops
package seen
