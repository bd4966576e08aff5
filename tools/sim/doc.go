// Command sim runs simulated worlds (package internal/sim), each in a process of its own.
//
//	go -C tools run ./sim -for 30m           worlds of fresh seeds, one for each core, until they have taken half an hour of CPU time
//	go -C tools run ./sim -for 60s -known    first those that once failed
//	go -C tools run ./sim -seed 17           the world of one seed
//	go -C tools run ./sim -seed 17 -trace    with its log as it grows
//	go -C tools run ./sim -scenario regions  no others
//
// A world is a cluster of one shard or of three; or three regions; or three of which one is a cluster (-scenario). Every second world has
// all kinds of faults and of commands, and the others a third and a half of them (-swarm). A world that fails is shrunk: it is run
// again with fewer faults, and then with fewer kinds of them and of commands, as long as it still fails. Go's scheduler is no part
// of a world, so a smaller one is tried a few times. The command prints how to run it again, leaves its log in a file, and exits with 1.
//
// Nothing depends on how fast the machine is: length is CPU time, and a world that has not ended after a quarter of an hour is reported
// as slow, which is no failure. A world whose virtual time stops fails by itself.
package main
