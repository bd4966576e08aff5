// Package cluster makes a shard of several nodes: Raft over the op log.
package cluster
