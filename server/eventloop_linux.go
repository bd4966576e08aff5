package server

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fbfkv/fbfkv/commands"
)

// eventLoop serves TCP connections with a few workers (worker_linux.go)
// that share one epoll instance:
//
//	epoll: all ready connections → read each once → ONE commands.Round,
//	one batch, one commit → each connection's replies with one write
//
// Workers take turns. The worker with the turn waits for events, reads and parses, lets the
// store decide and answers, and so on: nobody need be woken. The more clients wait,
// the fuller the rounds. While the load is low there is one turn for two processors,
// for small rounds on all of them cost more than full ones on some. A worker
// whose rounds are large again and again adds one (load_linux.go): then every
// processor has a worker that depends on no other, but for the locks of partitions. A
// turn whose worker waits for the disk for long goes to another one (load_linux.go).
//
// A worker that waits for events does so in epoll_pwait itself, on a thread of its
// own, which costs no processor: Go takes that back from a thread that waits in a
// system call when others need it, to stop the world at once. To register the epoll
// instance with Go's poller instead would save that thread; but a second one, which
// waits in the poller for everything else, would then be woken by every event of a
// connection, also while the worker is at work and nobody waits for it.
type eventLoop struct {
	server *Server
	epoll  *os.File        // unknown to Go's poller
	raw    syscall.RawConn // of epoll
	bell   *os.File        // an eventfd that epoll watches; it rings when the loop has ended
	turn   chan struct{}   // holds the turns that nobody has
	turns  atomic.Int32    // how many there are …
	fewest int32           // … at least
	most   int32           // … and at most

	giveWay bool // also after rounds that waited: Go has no processor more than there are

	watched atomic.Bool   // watchBlocked is looking, or alarm tells it to
	alarm   chan struct{} // watchBlocked waits for it

	// workers that wait for a turn, less the turns they were given; below 0 while one starts
	idle    atomic.Int32
	workers sync.WaitGroup
	running runningWorkers

	spareShared, sparePrivate sync.Pool // of *worker
	done                      atomic.Bool
	stopping                  <-chan struct{} // the server's

	mu    sync.Mutex                               // held to change table
	table atomic.Pointer[[]atomic.Pointer[polled]] // by file descriptor
}

// maxEvents is how many connections a worker takes at once.
const maxEvents = 256

// startLoop starts the event loop.
func (s *Server) startLoop() error {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("cannot make an epoll instance: %w", err)
	}
	l := &eventLoop{server: s, epoll: os.NewFile(uintptr(fd), "epoll"), stopping: s.stop}
	if l.raw, err = l.epoll.SyscallConn(); err != nil {
		return fmt.Errorf("cannot use an epoll instance: %w", err)
	}
	if err := l.hang(); err != nil {
		l.epoll.Close()
		return fmt.Errorf("cannot watch an eventfd: %w", err)
	}
	l.spareShared.New = func() any { return newWorker(l, false) }
	l.sparePrivate.New = func() any { return newWorker(l, true) }
	l.setTurns(s.processors)
	l.alarm = make(chan struct{}, 1)
	go l.watchBlocked()
	for range l.fewest {
		l.passOn()
	}
	s.mu.Lock()
	s.loop = l
	s.mu.Unlock()
	return nil
}

// hang makes the bell and watches it.
func (l *eventLoop) hang() error {
	bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return err
	}
	l.bell = os.NewFile(uintptr(bell), "eventfd")
	if err = l.control(unix.EPOLL_CTL_ADD, bell, unix.EPOLLIN); err != nil { // told to everyone who asks
		l.bell.Close()
	}
	return err
}

// control adds, changes or deletes a descriptor of the epoll instance.
func (l *eventLoop) control(op, fd int, events uint32) (err error) {
	event := unix.EpollEvent{Events: events, Fd: int32(fd)}
	if rawErr := l.raw.Control(func(epoll uintptr) {
		err = unix.EpollCtl(int(epoll), op, fd, &event)
	}); rawErr != nil {
		return rawErr
	}
	return err
}

// ring wakes who waits for events, now and later.
func (l *eventLoop) ring() { l.bell.Write([]byte{7: 1}) }

// spawn starts a worker.
func (l *eventLoop) spawn() {
	w := l.spareShared.Get().(*worker)
	l.workers.Add(1)
	l.running.add(w)
	go w.run()
}

// remind makes epoll tell of a connection again that nobody owns any more.
func (l *eventLoop) remind(c *polled) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd >= 0 {
		_ = l.control(unix.EPOLL_CTL_MOD, c.fd, watched)
	}
}

// poll waits until there are events and gives them to w. One event wakes one worker.
func (l *eventLoop) poll(w *worker) bool {
	return l.raw.Control(w.waitFn) == nil
}

// look gives w the events there are.
func (l *eventLoop) look(w *worker) bool { return l.raw.Control(w.pollFn) == nil }

// close ends the workers. Every connection is gone.
func (l *eventLoop) close() {
	if l == nil {
		return
	}
	l.done.Store(true)
	l.ring()
	l.workers.Wait()
	close(l.alarm)
	l.epoll.Close()
	l.bell.Close()
}

// adopt returns a connection served by the loop, or nil if it cannot be: if there
// is no loop, or the connection is not one of TCP.
func (l *eventLoop) adopt(nc net.Conn, session *commands.Session) *polled {
	tcp, ok := socket(nc).(*net.TCPConn)
	if l == nil || !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	// A descriptor that Go's poller does not know, or each request would wake it.
	own := -1
	err = raw.Control(func(fd uintptr) { own, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
	if err != nil || own < 0 {
		return nil
	}
	tcp.Close()
	c := newPolled(l, own, session)
	if c.tls, _ = nc.(*tls.Conn); c.tls != nil {
		c.tls.NetConn().(*tlsSocket).Conn = tlsPolled{c: c}
		c.readable = true // the handshake may have read more than its own
	}
	return c
}

// watched are the events of a connection: each is told once.
const watched = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET

// register begins to watch a connection.
func (l *eventLoop) register(c *polled) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var table []atomic.Pointer[polled]
	if old := l.table.Load(); old != nil {
		table = *old
	}
	if c.fd >= len(table) {
		grown := make([]atomic.Pointer[polled], max(2*len(table), c.fd+1, 64))
		for i := range table {
			grown[i].Store(table[i].Load())
		}
		table = grown
		l.table.Store(&grown)
	}
	table[c.fd].Store(c)
	return l.control(unix.EPOLL_CTL_ADD, c.fd, watched)
}

// forget stops watching a connection, whose owner the caller is.
func (l *eventLoop) forget(c *polled) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if table := *l.table.Load(); c.fd < len(table) {
		table[c.fd].Store(nil)
	}
	_ = l.control(unix.EPOLL_CTL_DEL, c.fd, 0)
}

// claimAll appends the connections that the events are of and that nobody owns.
func (l *eventLoop) claimAll(conns []*polled, events []unix.EpollEvent) []*polled {
	table := *l.table.Load() // not before the events: it may have grown for one of them
	for i := range events {
		// An event may be of a connection that ended since, and its descriptor
		// another one's by now; to that one it is an event for nothing.
		if c := table[events[i].Fd].Load(); c != nil && c.claim(events[i].Events) {
			conns = append(conns, c)
		}
	}
	return conns
}
