// Package sim runs real nodes in a simulated world, for tests and tools only. The processes are the
// product's own: cluster.Node, cluster.Net, store.Store, Pebble and Raft. The world around them is
// made here:
//
//   - World: the seed, the random numbers, the log of the run, and the first failure;
//   - Disk: a file system in memory that outlives processes, loses what was not synced when power
//     is lost, fails, and fills up;
//   - Network: connections that are late, cut in one direction, reset, or silent for ever;
//   - Machine: an address, a disk and a clock, on which one process after another lives (Life);
//   - Nemesis: the table of faults, each with a weight;
//   - Workload: what clients do, through a Sender, whatever the servers are;
//   - History and RegionHistory: what clients sent and were answered, checked as it grows.
//
// A scenario connects them (RunCluster, RunRegions): it founds a cluster or regions, lets clients
// count, lets the nemesis strike, and checks that every operation counted once. All goroutines of a
// world are in one bubble of testing/synctest, so time is virtual: it moves when every goroutine
// waits for it, and an hour takes as long as what is done in it.
//
// What follows from that:
//
//   - A process runs one world, since Pebble keeps channels in package variables, and channels
//     belong to a bubble. The test binary runs itself again for each seed.
//   - A goroutine that waits for a mutex does not count as waiting. An operation of a disk takes no
//     virtual time, since a mutex may be held over it, but for an fsync of a slow disk outside of
//     Pebble's directory.
//   - The scheduler of Go is not part of the world: most failures come again with the same seed,
//     not all.
package sim
