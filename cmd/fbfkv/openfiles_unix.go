//go:build unix

package main

import "syscall"

// privateFiles makes everything that the process creates readable by its user alone: the data
// directory with Pebble's files, backups, runs and exports hold every counter and opid.
func privateFiles() { syscall.Umask(0o077) }

// openFiles returns how many files the process may have open, if the system says.
func openFiles() (limit uint64, known bool) {
	var r syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r)
	return uint64(r.Cur), err == nil
}
