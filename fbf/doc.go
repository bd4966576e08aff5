// Package fbf is a Forgetful Bloom Filter: a set of ids that remembers every id
// for at least a window of time and forgets it soon after, in a few dozen bits
// per id, with a false positive probability that is bounded at any load.
package fbf
