//go:build unix

package main

import (
	"math"
	"syscall"
)

// openFileLimit is how many files the process may have open. The runtime has raised the
// soft limit to the hard one already.
func openFileLimit() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt32
	}
	return int(min(limit.Cur, math.MaxInt32))
}
