// Package rawio has the system calls of loops that serve many sockets with one thread.
// The sockets never block, so the calls bypass Go's scheduler, which would prepare for a
// wait each time.
//
//	n, errno := rawio.Receive(fd, b)  // EAGAIN: there is nothing to read
//	n, errno := rawio.Send(fd, b)     // EAGAIN: there is no room; n may be short
//
// It exists on Linux only. All calls are safe for concurrent use.
package rawio
