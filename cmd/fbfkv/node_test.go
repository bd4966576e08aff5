package main

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestCommitTimes: since when a replica lacks something that is committed.
func TestCommitTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c commitTimes
		for i := range uint64(2 * maxCommitTimes) {
			c.note(10 * i)
			c.note(10 * i)
			time.Sleep(time.Second)
		}
		newest := uint64(10 * (2*maxCommitTimes - 1))
		for index, want := range map[uint64]time.Duration{
			newest: 0, newest + 5: 0, newest - 1: time.Second, newest - 10: time.Second, newest - 11: 2 * time.Second,
			0: maxCommitTimes * time.Second, // as far as is known
		} {
			if got := c.since(index); got != want {
				t.Errorf("index %d: %v, want %v", index, got, want)
			}
		}
	})
}
