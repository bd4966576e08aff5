//go:build !linux

package main

import "time"

var start = time.Now()

// clock is wall time where the CPU time of a thread is not at hand.
func clock() time.Duration { return time.Since(start) }
