package sim

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Process is what runs on a machine.
type Process interface{ Close() error }

// Machine is a computer: a host, a disk, a clock, and the process that lives on it now.
type Machine struct {
	World *World
	Host  string // its address
	Disk  *Disk
	// Powered keeps the power on, and lets no fsync fail: its processes are killed instead, so what they
	// have written is there. For servers that may answer before an fsync.
	Powered bool

	index int
	boot  func(l *Life) (Process, error)
	ahead atomic.Int64 // its clock, of the world's, ms

	mu    sync.Mutex
	life  *Life // nil: no process
	lives int
	off   bool // nobody starts it
}

// Add adds a machine, whose processes a function starts. One goroutine at a time may do so.
func (w *World) Add(boot func(l *Life) (Process, error)) *Machine {
	n := len(w.Machines())
	m := &Machine{World: w, Host: fmt.Sprintf("127.0.0.%d", n+1), index: n, boot: boot}
	m.Disk = newDisk(func() {
		l := m.Life()
		if m.PowerOff(l, w.Intn(3)*50) {
			m.StartAfter(w.Between(0, 3*time.Second))
		}
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.machines = append(w.machines, m)
	return m
}

// Client returns a process on a machine of its own, which meets no faults and has no disk.
func (w *World) Client() *Life {
	return &Life{Machine: &Machine{World: w, Host: "127.0.1.1", index: -1}, Number: 1,
		Gone: make(chan struct{}), Up: make(chan struct{})}
}

// at returns the machine at an address, HOST:PORT; nil: there is none.
func (w *World) at(address string) *Machine {
	host, _, _ := net.SplitHostPort(address)
	for _, m := range w.Machines() {
		if m.Host == host {
			return m
		}
	}
	return nil
}

// address returns the address of a port.
func (m *Machine) address(port int) address {
	return address(net.JoinHostPort(m.Host, strconv.Itoa(port)))
}

// Address returns the address of a port, HOST:PORT.
func (m *Machine) Address(port int) string { return string(m.address(port)) }

// Index returns the machine's number in the world, from 0.
func (m *Machine) Index() int { return m.index }

// Clock returns the time that the machine's clock shows, in ms since 1970.
func (m *Machine) Clock() int64 { return time.Now().UnixMilli() + m.ahead.Load() }

// TurnClock moves the machine's clock.
func (m *Machine) TurnClock(by time.Duration) {
	ahead, w := time.Duration(m.ahead.Add(by.Milliseconds()))*time.Millisecond, m.World
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ahead[0], w.ahead[1] = min(w.ahead[0], ahead), max(w.ahead[1], ahead)
}

// aheadEver returns by how much any clock was ever ahead of the world's, at least and at most.
func (w *World) aheadEver() (least, most time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ahead[0], w.ahead[1]
}

// apart returns by how much clocks differ, at most.
func (w *World) apart() time.Duration {
	var least, most int64
	for _, m := range w.Machines() {
		least, most = min(least, m.ahead.Load()), max(most, m.ahead.Load())
	}
	return time.Duration(most-least) * time.Millisecond
}

// Life is one process of a machine, from its start to its end.
type Life struct {
	Machine *Machine
	Number  int    // of the machine's lives, from 1
	FS      vfs.FS // the machine's disk
	// Gone is closed when the process has ended, Up when its start has.
	Gone, Up chan struct{}
	// Failed is called when an fsync has failed, once; nil: the process ends by itself.
	Failed func()

	failed  sync.Once
	process atomic.Pointer[Process]
	dead    atomic.Bool
	hurt    atomic.Bool
	closing atomic.Bool
}

// close closes the process, once.
func (l *Life) close() (closed bool, err error) {
	<-l.Up
	p := l.process.Load()
	if p == nil || l.closing.Swap(true) {
		return false, nil
	}
	return true, (*p).Close()
}

// Life returns the process that lives now; nil: none.
func (m *Machine) Life() *Life {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.life
}

// Running returns the process that lives now, once it has started; nil: there is none.
func (m *Machine) Running() (Process, *Life) {
	l := m.Life()
	if l == nil {
		return nil, nil
	}
	if p := l.process.Load(); p != nil {
		return *p, l
	}
	return nil, nil
}

// Start starts a process, if none lives and the machine is not off. It returns at once.
func (m *Machine) Start() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.life != nil || m.off {
		return
	}
	m.lives++
	l := &Life{Machine: m, Number: m.lives, Gone: make(chan struct{}), Up: make(chan struct{})}
	l.FS = m.Disk.mount(l)
	m.life = l
	m.World.Say("machine %d starts, life %d", m.index, l.Number)
	go l.run()
}

// StartAfter starts a process after a while.
func (m *Machine) StartAfter(d time.Duration) { time.AfterFunc(d, m.Start) }

// Off keeps the machine from being started, or no more.
func (m *Machine) Off(off bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.off = off
}

func (l *Life) run() {
	m := l.Machine
	p, err := m.boot(l)
	if err == nil {
		l.process.Store(&p)
		m.World.Say("machine %d is up, life %d", m.index, l.Number)
	}
	close(l.Up)
	if err == nil || l.Dead() {
		return
	}
	if !l.hurt.Load() {
		m.World.Fail("machine %d does not start: %v", m.index, err)
	}
	m.World.Say("machine %d does not start: %v", m.index, err)
	m.Kill(l)
	m.StartAfter(time.Second)
}

// Dead reports whether the process has ended.
func (l *Life) Dead() bool { return l.dead.Load() }

// Hurt says that the disk was full or has failed, so the process may end.
func (l *Life) Hurt() { l.hurt.Store(true) }

// Listen opens a port of the machine.
func (l *Life) Listen(port int) net.Listener { return l.Machine.World.Network.listen(l, port) }

// Dial opens a connection to another machine.
func (l *Life) Dial(ctx context.Context, to string) (net.Conn, error) {
	return l.Machine.World.Network.dial(ctx, l, to)
}

// Exit ends the process because of an error, which must be the disk's. It does not return: it ends
// the goroutine, and so gives back mutexes for which others would stop the clock.
func (l *Life) Exit(err error) {
	w, m := l.Machine.World, l.Machine
	if !l.Dead() {
		if !l.hurt.Load() {
			w.Fail("machine %d ends: %v", m.index, err)
		}
		w.Say("machine %d ends: %v", m.index, err)
		if m.Kill(l) {
			m.StartAfter(w.Between(0, 2*time.Second))
		}
	}
	runtime.Goexit()
}

// Kill ends a process as kill -9 does. It reports whether the process lived.
func (m *Machine) Kill(l *Life) bool { return m.end(l, "is killed", false, m.Disk.kill) }

// PowerOff ends a process as a loss of power does, unless the machine is Powered: percent of the unsynced
// pages are left. It reports whether the process lived.
func (m *Machine) PowerOff(l *Life, percent int) bool {
	if m.Powered {
		return m.Kill(l)
	}
	return m.end(l, "loses power", true, func() { m.Disk.losePower(percent, m.World) })
}

func (m *Machine) end(l *Life, how string, power bool, disk func()) bool {
	m.mu.Lock()
	if l == nil || m.life != l {
		m.mu.Unlock()
		return false
	}
	m.life = nil
	l.dead.Store(true)
	close(l.Gone)
	// The network ends first: what is left of the process goes on with the former disk, and must tell
	// nobody what the machine's disk has not got. And it ends before another process listens.
	m.World.Network.died(m, power)
	disk()
	m.World.Say("machine %d %s, life %d", m.index, how, l.Number)
	m.mu.Unlock()
	go l.bury()
	return true
}

// bury ends what is left of a process that is dead, which nobody sees.
func (l *Life) bury() {
	_, _ = l.close() // whatever it says, the process is dead
}

// Stop ends a process in order, and returns when that is done or the process has died otherwise.
func (m *Machine) Stop(l *Life) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.World.Say("machine %d stops, life %d", m.index, l.Number)
		closed, err := l.close()
		m.mu.Lock()
		if !closed || m.life != l {
			m.mu.Unlock()
			return
		}
		m.life = nil
		l.dead.Store(true)
		close(l.Gone)
		m.World.Network.died(m, false)
		m.Disk.kill()
		m.mu.Unlock()
		if err != nil && !l.hurt.Load() {
			m.World.Fail("machine %d does not stop in order: %v", m.index, err)
		}
		m.World.Say("machine %d has stopped, life %d", m.index, l.Number)
	}()
	select {
	case <-done:
	case <-l.Gone:
	}
}
