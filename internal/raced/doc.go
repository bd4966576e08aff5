// Package raced tells tests how much to try under the race detector. They try work of several
// goroutines at once as often as without it. They try work of one goroutine less often, since the
// detector learns nothing more from its tenth seed.
package raced
