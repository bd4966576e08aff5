package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fbfkv/fbfkv/server/rawio"
)

// The longest time between two looks at the clock, ms.
const (
	waitBusy = 100
	waitIdle = 5
)

// epollLoop serves a worker's connections on one thread: wait for replies, read them, write the next
// batch. It needs one read and one write per batch, half of what a goroutine per connection costs.
type epollLoop struct {
	w     *worker
	epoll int
	timer int   // of an open loop
	rang  int64 // when the timer rang last
	idle  []*conn
}

func serveEpoll(ctx context.Context, w *worker) (err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// The thread waits in the kernel without giving up its P (epollwait_linux.go): the rest of the program needs another.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), 2)))
	l := &epollLoop{w: w}
	if l.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	defer unix.Close(l.epoll)
	if l.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC); err != nil {
		return fmt.Errorf("timerfd: %w", err)
	}
	defer unix.Close(l.timer)
	edge := &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: -1}
	if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, l.timer, edge); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	for _, c := range w.conns {
		if err := l.adopt(c); err != nil {
			return err
		}
		defer unix.Close(c.fd)
		l.idle = append(l.idle, c)
	}
	return l.run(ctx)
}

// adopt takes over a connected socket. Go's own poller, which would be woken too, gives it up.
func (l *epollLoop) adopt(c *conn) error {
	file, err := c.net.(*net.TCPConn).File()
	c.net.Close()
	if err != nil {
		return err
	}
	defer file.Close()
	if c.fd, err = unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		return fmt.Errorf("dup: %w", err)
	}
	if err := unix.SetNonblock(c.fd, true); err != nil {
		return err
	}
	return unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, c.fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(c.index)})
}

func (l *epollLoop) run(ctx context.Context) error {
	w := l.w
	events := make([]unix.EpollEvent, 256)
	for {
		now := w.now()
		if w.finished(now) {
			return nil
		}
		if err := l.feed(now); err != nil {
			return err
		}
		wait := waitBusy
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if len(l.idle) > 0 && !(w.schedule.open() && !w.stopping) {
			wait = waitIdle
		}
		n, err := epollWait(l.epoll, events, wait)
		if err != 0 && err != unix.EINTR {
			return fmt.Errorf("epoll: %w", err)
		}
		for _, e := range events[:max(n, 0)] {
			if e.Fd < 0 {
				l.rang = w.now() // edge-triggered, it need not be read
				continue
			}
			if err := l.event(w.conns[e.Fd], e.Events); err != nil {
				return fmt.Errorf("a connection was lost: %w", err)
			}
		}
	}
}

// event serves what happened to one connection.
func (l *epollLoop) event(c *conn, what uint32) error {
	if c.waiting && what&unix.EPOLLOUT != 0 {
		if err := l.write(c, c.unsent); err != nil {
			return err
		}
	}
	if what&^unix.EPOLLOUT == 0 {
		return nil
	}
	n, errno := rawio.Receive(c.fd, c.in[c.inBytes:])
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
		return nil
	case errno != 0:
		return errno
	case n == 0:
		return io.EOF
	}
	now := l.w.now()
	done, err := c.received(n, now)
	if !done || err != nil {
		return err
	}
	b := c.compose(now)
	if b == nil {
		l.idle = append(l.idle, c)
		return nil
	}
	return l.write(c, b)
}

// write writes what the system takes; the rest waits until it takes more.
func (l *epollLoop) write(c *conn, b []byte) error {
	for len(b) > 0 {
		n, errno := rawio.Send(c.fd, b)
		if errno == unix.EINTR {
			continue
		}
		if errno == unix.EAGAIN {
			break
		}
		if errno != 0 {
			return errno
		}
		b = b[n:]
	}
	c.unsent = b
	if waiting := len(b) > 0; waiting != c.waiting {
		c.waiting = waiting
		event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(c.index)}
		if waiting {
			event.Events |= unix.EPOLLOUT
		}
		return unix.EpollCtl(l.epoll, unix.EPOLL_CTL_MOD, c.fd, &event)
	}
	return nil
}

// feed gives idle connections the operations that have become due, and sets the timer for the next one.
func (l *epollLoop) feed(now int64) error {
	for n := len(l.idle); n > 0; n-- {
		c := l.idle[len(l.idle)-1]
		b := c.compose(now)
		if b == nil {
			break
		}
		l.idle = l.idle[:len(l.idle)-1]
		if err := l.write(c, b); err != nil {
			return fmt.Errorf("a connection was lost: %w", err)
		}
	}
	s := &l.w.schedule
	if !s.open() || len(l.idle) == 0 || l.w.stopping {
		return nil
	}
	wait := max(s.at(s.next), l.rang+sendGrain) - l.w.now()
	return unix.TimerfdSettime(l.timer, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(max(wait, 1))}, nil)
}

// The epoll loop's system calls do without Go's scheduler. Told of each, it would
// look after a thread that waits for replies by a timer of some 80 µs, on the
// processor where the server is at work: a tenth of that one at pipeline 1.

// epollWait is epoll_wait(2), with its timeout in ms.
func epollWait(epoll int, events []unix.EpollEvent, timeout int) (int, syscall.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epoll), uintptr(unsafe.Pointer(unsafe.SliceData(events))),
		uintptr(len(events)), uintptr(timeout), 0, 0)
	return int(n), errno
}
