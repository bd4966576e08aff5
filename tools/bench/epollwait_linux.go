package main

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The epoll loop's system calls do without Go's scheduler. Told of each, it would
// look after a thread that waits for replies by a timer of some 80 µs, on the
// processor where the server is at work: a tenth of that one at pipeline 1.

// epollWait is epoll_wait(2), with its timeout in ms.
func epollWait(epoll int, events []unix.EpollEvent, timeout int) (int, syscall.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epoll), uintptr(unsafe.Pointer(unsafe.SliceData(events))),
		uintptr(len(events)), uintptr(timeout), 0, 0)
	return int(n), errno
}
