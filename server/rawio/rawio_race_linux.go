//go:build race

package rawio

import "syscall"

// Receive is recv(2), in a form that the race detector takes for the
// synchronization it is.
func Receive(fd int, b []byte) (int, syscall.Errno) {
	n, err := syscall.Read(fd, b)
	return max(n, 0), errnoOf(err)
}

// Send is send(2), likewise.
func Send(fd int, b []byte) (int, syscall.Errno) {
	n, err := syscall.Write(fd, b)
	return max(n, 0), errnoOf(err)
}

// errnoOf returns what the system said; 0 if there is no error.
func errnoOf(err error) syscall.Errno {
	errno, _ := err.(syscall.Errno)
	return errno
}
