package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fbfkv/fbfkv/server/rawio"
)

// The longest time between two looks at the clock, ms.
const (
	waitBusy = 100
	waitIdle = 5
)

// epollLoop serves a worker's connections on one thread: wait for replies, read
// them, write the next batch. It needs one read and one write per batch, half
// of what a goroutine per connection costs.
type epollLoop struct {
	w       *worker
	target  *Target
	ctx     context.Context
	epoll   int
	timer   int // of an open loop
	alarm   alarm
	idle    []*conn
	revived chan revival
}

// revival is a connection that was made again, or not.
type revival struct {
	c   *conn
	nc  net.Conn
	err error
}

// serveEpoll is the loop for plain TCP.
func serveEpoll(ctx context.Context, w *worker, t *Target) (err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// The thread waits in the kernel without giving up its P (epollwait_linux.go): the rest of the program needs another.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), 2)))
	l := &epollLoop{w: w, target: t, ctx: ctx, revived: make(chan revival, len(w.conns))}
	if l.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	defer unix.Close(l.epoll)
	if l.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC); err != nil {
		return fmt.Errorf("timerfd: %w", err)
	}
	defer unix.Close(l.timer)
	if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, l.timer, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: -1}); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	defer l.close()
	for i, c := range w.conns {
		nc := c.net
		if err := l.adopt(i, nc); err != nil {
			return err
		}
		l.idle = append(l.idle, c)
	}
	return l.run()
}

// adopt takes over a connected socket. Go's own poller, which would be woken
// too, gives it up.
func (l *epollLoop) adopt(i int, nc net.Conn) error {
	c := l.w.conns[i]
	c.net, c.fd = nil, -1
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		return errors.New("not a TCP connection")
	}
	file, err := tcp.File()
	tcp.Close()
	if err != nil {
		return err
	}
	defer file.Close()
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("dup: %w", err)
	}
	c.fd = fd
	if err := unix.SetNonblock(fd, true); err != nil {
		return err
	}
	c.unsent, c.waiting = nil, false
	return unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)})
}

func (l *epollLoop) close() {
	for _, c := range l.w.conns {
		if c.fd >= 0 {
			unix.Close(c.fd)
			c.fd = -1
		}
	}
}

func (l *epollLoop) run() error {
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
		if l.ctx.Err() != nil {
			return l.ctx.Err()
		}
		if w.lost > 0 || len(l.idle) > 0 && !(w.schedule.open() && w.retry.empty() && !w.stopping) {
			wait = waitIdle
		}
		n, err := epollWait(l.epoll, events, wait)
		if err != 0 && err != unix.EINTR {
			return fmt.Errorf("epoll: %w", err)
		}
		for _, e := range events[:max(n, 0)] {
			if err := l.event(e); err != nil {
				return err
			}
		}
		if w.lost > 0 {
			if err := l.revive(); err != nil {
				return err
			}
		}
	}
}

// event serves what happened to one descriptor.
func (l *epollLoop) event(e unix.EpollEvent) error {
	if e.Fd < 0 {
		return nil // edge-triggered, it need not be read
	}
	c := l.w.conns[e.Fd]
	if c.fd < 0 {
		return nil
	}
	if c.waiting && e.Events&unix.EPOLLOUT != 0 {
		if err := l.write(int(e.Fd), c.unsent); err != nil {
			return l.lose(int(e.Fd), err)
		}
	}
	if e.Events&^unix.EPOLLOUT == 0 {
		return nil
	}
	n, errno := rawio.Receive(c.fd, c.in[c.inBytes:])
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
		return nil
	case errno != 0:
		return l.lose(int(e.Fd), errno)
	case n == 0:
		return l.lose(int(e.Fd), io.EOF)
	}
	now := l.w.now()
	done, err := c.received(n, now)
	if err != nil {
		return err
	}
	if done {
		return l.send(int(e.Fd), now)
	}
	return nil
}

// send writes a connection's next batch, or notes that there is none.
func (l *epollLoop) send(i int, now int64) error {
	c := l.w.conns[i]
	b := c.compose(now)
	if b == nil {
		l.idle = append(l.idle, c)
		return nil
	}
	if err := l.write(i, b); err != nil {
		return l.lose(i, err)
	}
	return nil
}

// write writes what the system takes; the rest waits until it takes more.
func (l *epollLoop) write(i int, b []byte) error {
	c := l.w.conns[i]
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
		event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)}
		if waiting {
			event.Events |= unix.EPOLLOUT
		}
		return unix.EpollCtl(l.epoll, unix.EPOLL_CTL_MOD, c.fd, &event)
	}
	return nil
}

// feed gives idle connections what has become due, and sets the timer for what
// is due next.
func (l *epollLoop) feed(now int64) error {
	for n := len(l.idle); n > 0; n-- {
		c := l.idle[len(l.idle)-1]
		l.idle = l.idle[:len(l.idle)-1]
		b := c.compose(now)
		if b == nil {
			l.idle = append(l.idle, c)
			break
		}
		i := c.index
		if err := l.write(i, b); err != nil {
			if err := l.lose(i, err); err != nil {
				return err
			}
		}
	}
	s := &l.w.schedule
	if !s.open() || len(l.idle) == 0 || l.w.stopping {
		return nil
	}
	now = l.w.now()
	at, set := l.alarm.next(now, s.at(s.next))
	if !set {
		return nil
	}
	return unix.TimerfdSettime(l.timer, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(max(at-now, 1))}, nil)
}

// lose closes a broken connection and begins to make it again.
func (l *epollLoop) lose(i int, cause error) error {
	c := l.w.conns[i]
	unix.Close(c.fd)
	c.fd = -1
	l.idle = slices.DeleteFunc(l.idle, func(idle *conn) bool { return idle == c })
	l.w.lost++
	go func() {
		nc, err := l.w.redial(l.ctx, l.target)
		if err != nil {
			err = fmt.Errorf("%w (lost by: %v)", err, cause)
		}
		l.revived <- revival{c, nc, err}
	}()
	return nil
}

// revive takes over connections that were made again and sends what they had
// under way.
func (l *epollLoop) revive() error {
	for {
		var r revival
		select {
		case r = <-l.revived:
		default:
			return nil
		}
		l.w.lost--
		if r.err != nil {
			return r.err
		}
		l.w.tally.reconnects++
		i := r.c.index
		if err := l.adopt(i, r.nc); err != nil {
			return err
		}
		b := r.c.unanswered()
		if len(b) == 0 {
			l.idle = append(l.idle, r.c)
			continue
		}
		if err := l.write(i, b); err != nil {
			if err := l.lose(i, err); err != nil {
				return err
			}
		}
	}
}
