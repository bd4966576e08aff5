// Package store is the state machine of fbfkv: it decides what each operation
// does, once and in order, and makes that durable.
//
// # The way of one CINCRBY
//
// A caller fills a Batch, usually a client's whole pipeline, and calls
// Store.Execute. The batch is routed (a key's CRC16 slot names its partition),
// the partitions it touches are locked in ascending order, and everything it
// needs is brought into memory: cold counters from their rows, and records for
// opids of which a filter says "maybe". That happens with the locks released;
// afterwards they are taken again and nothing read is trusted that may have
// changed. Then each operation takes its turn (decide.go): is it stale, was it
// applied before, does it overflow, is there room? What it does is an outcome, an
// entry of the op log. The entries of the batch become one packed record per
// partition, all records one batch of the op log, whose place in it is fixed before
// the locks are released. When it is durable, the replies leave.
//
// A large batch, unless it is atomic, is divided into shares, the operations of a few
// partitions each, which go this way one by one (decider.go), in several goroutines
// while the processors have nothing else to do: so it holds a lock only for a fraction
// of its time, and where it must read from disk a few of its operations wait, not all.
// All shares together are waited for.
//
// # Decide once, redo everywhere
//
// Decide may ask filters and clocks; its outcomes say what follows from that:
// post-images, opids, refreshes. Redo (redo.go) applies an outcome without
// asking either. It is the one function that changes state, live and in
// recovery, which is therefore exact: recovery repeats no judgement. Judging a
// logged operation a second time, over a filter that contains it already, would
// find every operation to be a duplicate of itself.
//
// # What is where
//
// The op log is the truth; all else is a view of it that a checkpoint
// (checkpoint.go) brings to disk, so that the log can be trimmed:
//
//	counters   partition.hot, in memory while they are hot or changed; rows in
//	           Pebble
//	filters    tableState.filter, one for each table and partition; snapshots
//	records    partition.recent, then sorted runs (runs.go): what EXACT tables
//	           know of each operation, to confirm a positive of the filter
//	FBF keys   filters of their own, always in memory; snapshots
//
// Recovery (recover.go) loads these, each as of its own sequence, and redoes
// the log from the oldest of them on; marks tell Redo what a view contains
// already.
//
// # Guarantees and where they are upheld
//
//	G1 at most once     judge.go; again, for twins within one batch; withoutPauses
//	G2 no lost ack      decider.wait
//	G3 not from future  partition.need and waitDurable
//	G4 all or nothing   decider.apply: one batch of the log; snapshot.write
//	G5 bounded error    makeRoom (filters grow before they exceed it), judge
//	G6 nothing half     decide.go: all checks come before the first log call
//	G7 stale            checkTime and horizon
//	G8 fail stop        Store.freeze
//
// A Store is safe for concurrent use; a Batch belongs to one goroutine.
package store
