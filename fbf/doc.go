// Package fbf is a Forgetful Bloom Filter: a set of ids that remembers every id
// for at least a window of time and forgets it soon after, in a few dozen bits
// per id, with a false positive probability that is bounded at any load. It
// makes retried operations idempotent: an id seen within the window is a
// duplicate.
//
//	seen, err := fbf.NewSet(2*time.Minute, 1e-6) // the window, the probability of error
//	if err != nil { return err }
//	if !seen.Seen(opid) { counter++ }
//
// A Set is all that most programs need. It is a Filter with a clock and a lock; a
// program that has its own, that logs or copies what a filter does, or holds many
// filters, drives a Filter itself.
//
// The package follows
//
//	Subramanyam, Gupta, Leslie, Wang: "Idempotent Distributed Counters Using a
//	Forgetful Bloom Filter"
//
// in its idea and its words, and departs from it in its layout, its hashing
// and its controller. Package fbf/paper is the filter exactly as published.
//
// # Generations
//
// A filter is a row of generations, each a Bloom filter of the ids of one
// refresh period. The newest (with one role; with two, the future and the present)
// takes the inserts, the others are the past. A generation lives until its newest id is
// a Window old, by the window in force when that id came. Then the filter masks it,
// clears it in pieces, and uses it again. It never forgets an id inside its window: not
// by rotation, growth, shrinkage, a change of policy, or lack of memory.
//
// With Roles = 2 an id is written to two generations, as in the paper, but with
// hash functions of its own for each, so that the second write is worth as much
// as the first. With identical hash functions, as published, it buys nothing.
//
// # Layout
//
// A segment is an array of 64-byte cache lines. A line holds eight 64-bit words,
// one for each of eight generations (its lane in this segment). The array is divided into
// S equal strips; an id has one line in each strip and J bits in it, the same
// in every lane. A generation contains the id if all S x J bits are set in its lane:
// S cache lines, read at once, answer for all eight generations, and the insert
// writes the same lines. S and J follow from the target. On amd64 with AVX2 a check is
// done in assembly (kernel_amd64.s), which halves its time; elsewhere, or with the build
// tag purego, in Go (probe.go), with the same result bit for bit. A filter of several
// segments looks at two lines of each first, and probes those that these do not
// rule out (screen.go).
//
//	          lane 0   lane 1   ...   lane 7
//	strip 0   [64 bit] [64 bit]       [64 bit]   <- line chosen by hash 0
//	  ...
//	strip S-1 [64 bit] [64 bit]       [64 bit]   <- line chosen by hash S-1
//
// # False positives
//
// A lane's line that holds c ids on average mu = n/strip (Poisson) has all J
// bits of another id set with probability rho_J(mu); a generation of n ids errs with
// rho_J(mu)^S, a filter with the sum over its generations. That is what EffectiveFPP
// reports, from the numbers of ids really inserted, and what the controller
// keeps below Options.Error.
//
// # Controller
//
// The controller seals a generation after a refresh period; a quarter of a period later if
// it holds few ids; earlier if it holds the ids that it was sized for. If it is full and
// every lane of the segment is still needed, the controller opens a larger segment, which
// takes the inserts while the old one drains. It sizes the new one for the present rate,
// but grows in steps, since a line serves eight generations and a segment takes all its
// memory with its first ids. A segment that fits the load gets three quarters of what the
// others leave of the target, a segment that a larger one will follow gets a quarter: so
// the sum stays below the target however often the filter grows. When three periods in a
// row would fit a smaller size, the controller opens a smaller segment. At the cap of
// memory (MaxMemory, or when the grant is denied) the filter is Full or degrades, by policy.
//
// A Filter has no clock, no lock, no disk and no randomness. Times are the
// caller's logged time in milliseconds; they must not be negative nor go back. Plan alone
// decides, from counts and logged times, and returns its decision as an Event. The caller
// logs the event and applies it. A copy that repeats the same inserts, events and changes
// of policy in the same order reaches the same state without deciding anything:
//
//	for f.Due(now) {
//		e, ok := f.Plan(now, grant)
//		if !ok {
//			break
//		}
//		log(e)
//		if err := f.Apply(e); err != nil { ... }
//	}
//	if f.Full() { refuse }
//	duplicate := f.CheckAndInsert(hasher.Hash(key, id), now)
//
// # Encoding
//
// NewEncoder encodes a filter in pieces while the filter is in use: counts and controller
// state as of its start, and at least the bits of that moment. Decode, followed by redo
// of the events logged since, gives the filter's state, with at least its bits.
//
// # Concurrency
//
// A Set is safe for concurrent use. A Filter is not: its owner locks once per batch. That is
// faster than atomics inside. Besides, a check followed by an atomic or is not a
// test-and-set: it would accept both of two twins.
package fbf
