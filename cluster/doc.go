// Package cluster makes several nodes hold one shard: Raft, its log and its network.
package cluster
