//go:build unix

package main

import "syscall"

// openFiles returns how many files the process may have open, if the system says.
func openFiles() (limit uint64, known bool) {
	var r syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r)
	return uint64(r.Cur), err == nil
}
