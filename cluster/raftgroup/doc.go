// Package raftgroup has the parts of a Raft group that hashicorp/raft leaves to its user. Stable has a
// group's term, vote and snapshot, LogStore is the shard's log and MetaLog the meta group's. Transport
// carries the messages, whose bytes are package raftmsg's, over connections that it is given as a Net,
// and knows how far each peer is. Confirmer proves that this node still led at a moment, as a read
// needs. Config and Begin are how a group starts. Package cluster has what the groups agree on.
package raftgroup
