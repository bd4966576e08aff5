// Package cluster makes several nodes hold a shard: a Raft group whose log is the op log of
// each, the network between them, and the configuration that all nodes of a cluster, which may have
// many shards, agree on. Only this package, raftgroup, which has Raft's logs, transport and proof of a
// read, and raftmsg, which has the bytes of its messages, know Raft (hashicorp/raft).
//
// # Two groups
//
// Each node is in two Raft groups. That of its shard (Node) is fast, and its log is the op log. The
// meta group (Meta) has all nodes of the cluster, three or five of which vote, and the
// Configuration for its state: the nodes, the shards, and which shard has which partitions. Any
// node changes it, through the leader of the group; all learn it. Shards work on without it. The
// leaders of the shards are not in the configuration: each tells the nodes of the other shards
// itself (Leaders).
//
//	Execute ── decides, under locks ──► Log.Append ──► queue ──► propose ──► Raft ──► LogStore
//	   ▲                                                                       │      (op log, fsync)
//	   └── Log.Wait: committed, or cut ◄── apply (fsm.go) ◄────────────────────┘ a majority has it
//
// # One operation
//
// The leader's store decides as a single node does, and has redone the outcome in its own memory
// before anybody else knows of it. Log.Append queues the record, stamped with the reign: the number
// of the first command with which this node began to lead. Once somebody waits, one goroutine packs
// what is queued into entries and proposes them. When Raft has an entry on a majority of disks,
// every node applies it: on the node that proposed it the memory has it already, and those who wait
// are answered; on the others the store redoes it (store.Follow).
//
// # A new leader
//
// The first command of a leader says that it begins. Raft applies it behind everything that was
// committed before, so the leader decides from then on, and no earlier. Every other node learns
// from it that what it had decided itself, and has not seen applied, never will be: an entry that
// came later would be of an older reign, and all ignore that. A leader that gives up a hand-over
// begins anew, in the same term, once nothing of its own can come into the log any more (begin.go).
// It makes the partitions concerned anew, from disk, and tells those who wait that nothing was
// applied.
//
// # A node that is behind
//
// A node whose log ends before the leader's begins, or that is new in a shard whose first node
// had data, takes the leader's files in the place of its own and starts anew
// (catchup.go). The shard's Raft snapshots hold nothing, and no node takes
// another's: a node that has what one stands for says so, another one begins to fetch.
//
// # Where the rules are upheld
//
// docs/design/cluster.md has the rules, and what goes wrong without each.
//
//	R1  nothing uncommitted in a view    store/checkpoint.go
//	R2  the reign                        begin.go, Node.handsOver, Log.setReign, Log.reserved,
//	                                     Sections, Node.apply, oplog's Entry.Reign
//	R3  conflict                         Node.begin, store/replica.go
//	R4  contained, or the next one       store/replica.go, oplog's Log.found
//	R5  recovery reaches every view      oplog's Log.Sync notes what was applied; store/recover.go
//	R6  becoming leader                  Node.begin, Node.startLeading, store's Lead; handover.go
//	R7  deposed                          Log.Wait, store/partition.go, package commands
//	R8  a failing log ends the process   LogStore.Failed, Node.proposeBegin
//	R9  a directory is a voter           Stable, Net, Witness, promote.go
//
// The other files: node.go is the node, handover.go an orderly change of the leader, command.go
// what entries hold, net*.go the cluster port (package wire has what the nodes ask each other there,
// and how they give files), catchup*.go the files for a node that is behind, config.go the
// configuration, meta*.go the group that agrees on it, leaders.go who leads the other shards,
// tables.go the tables of all shards, admin.go how `fbfkv cluster` changes the configuration,
// origin.go which shard a backup is of, and recover.go what is left of a majority that is lost.
package cluster
