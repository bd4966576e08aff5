// Package paper is the Forgetful Bloom Filter exactly as published, with its
// errors corrected, each correction named where it is made:
//
//	Subramanyam, Gupta, Leslie, Wang: "Idempotent Distributed Counters Using a
//	Forgetful Bloom Filter".
//
// A filter is a future, a present and N past Bloom filters of m bits each with
// the same k hash functions. An insert goes into the future and the present;
// a refresh drops the oldest past filter, turns the present into the newest
// past and the future into the present, and adds an empty future. Refreshed
// every t, it recognises an id for (N+1) t at least and forgets it after (N+2) t.
//
// It is the reference: use package fbf, which keeps the same promise in half the memory.
package paper
