//go:build race

package server

import "syscall"

// receive is recv(2), in a form that the race detector takes for the
// synchronization it is.
func receive(fd int, b []byte) (int, syscall.Errno) {
	n, err := syscall.Read(fd, b)
	return max(n, 0), errnoOf(err)
}

// send is send(2), likewise.
func send(fd int, b []byte) (int, syscall.Errno) {
	n, err := syscall.Write(fd, b[:min(len(b), maxWrite)])
	return max(n, 0), errnoOf(err)
}

// errnoOf returns what the system said; 0 if there is no error.
func errnoOf(err error) syscall.Errno {
	errno, _ := err.(syscall.Errno)
	return errno
}
