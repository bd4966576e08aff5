//go:build !race

package server

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// receive is recv(2). The socket never blocks, so the scheduler need not hear of
// the call.
func receive(fd int, b []byte) (int, syscall.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
		uintptr(len(b)), unix.MSG_DONTWAIT, 0, 0)
	return int(n), errno
}

// send is send(2), likewise.
func send(fd int, b []byte) (int, syscall.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
		uintptr(min(len(b), maxWrite)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	return int(n), errno
}
