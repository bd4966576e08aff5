//go:build !unix

package main

// privateFiles does nothing: access to files is inherited here.
func privateFiles() {}

// openFiles returns how many files the process may have open, if the system says.
func openFiles() (limit uint64, known bool) { return 0, false }
