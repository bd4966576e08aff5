// Package raced tells tests what to try under the race detector. What several goroutines do at once
// is tried there as often as without it; what one of them does after another, of which the detector
// learns nothing more from the tenth seed, is tried less often.
package raced
