package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// clock is the CPU time of the calling thread, so that other work on the
// machine costs a measurement its caches but not its time.
func clock() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err) // the clock exists since Linux 2.6.12
	}
	return time.Duration(t.Nano())
}

// smallPages keeps huge pages from this process, whatever it asks for.
func smallPages() error {
	return unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0)
}
