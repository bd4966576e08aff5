//go:build !linux

package main

import (
	"errors"
	"time"
)

var start = time.Now()

// clock is wall time where the CPU time of a thread is not at hand.
func clock() time.Duration { return time.Since(start) }

func smallPages() error { return errors.New("-small-pages is for Linux only") }
