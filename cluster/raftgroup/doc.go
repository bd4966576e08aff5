// Package raftgroup has what a Raft group of this node keeps, as hashicorp/raft wants it: Stable has
// the term, the vote and the snapshot, LogStore is the shard's log and MetaLog the meta group's.
// Config and Begin are how a group starts. Package cluster has what the groups agree on.
package raftgroup
