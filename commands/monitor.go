package commands

import (
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// taps are the clients that watch with MONITOR. While there are none, nobody
// pays more than one atomic load per batch.
type taps struct {
	list atomic.Pointer[[]*tap] // replaced as a whole; nil: none
	mu   sync.Mutex             // held to replace it
}

// tap is one client's MONITOR: what it has yet to be sent, and the goroutine
// that sends it, so that whoever feeds it never waits.
type tap struct {
	ses   *Session
	srv   *Server
	ready chan struct{} // closed once MONITOR was answered

	mu     sync.Mutex
	buf    []byte
	wake   chan struct{} // holds one token while buf is not empty, or closed is set
	closed bool
}

// any reports whether anyone watches.
func (t *taps) any() bool { return t.list.Load() != nil }

// change replaces the list.
func (t *taps) change(edit func([]*tap) []*tap) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []*tap
	if old := t.list.Load(); old != nil {
		list = slices.Clone(*old)
	}
	if list = edit(list); len(list) == 0 {
		t.list.Store(nil)
		return
	}
	t.list.Store(&list)
}

// feed shows a command, without its secrets, to all who watch. Commands that
// administer the server are not shown, as in Redis.
func (t *taps) feed(from *Session, c *Command, args [][]byte) {
	list := t.list.Load()
	if list == nil || c.Flags&Admin != 0 {
		return
	}
	line := monitorLine(time.Now(), from.Addr, args)
	for _, tap := range *list {
		if tap.ses == from && c.parent == nil && c.Name == "reset" {
			continue // which is how it stops to watch
		}
		tap.add(line)
	}
}

// monitorLine renders a command as MONITOR shows it, as a status reply.
func monitorLine(at time.Time, addr string, args [][]byte) []byte {
	line := append([]byte{'+'}, strconv.FormatInt(at.Unix(), 10)...)
	line = append(line, '.')
	micros := strconv.Itoa(1e6 + at.Nanosecond()/1000)
	line = append(line, micros[1:]...)
	line = append(line, " [0 "...)
	line = append(line, addr...)
	line = append(line, ']')
	for _, a := range args {
		line = append(line, ' ')
		line = appendQuoted(line, a)
	}
	return append(line, '\r', '\n')
}

// appendQuoted appends a string in quotes, with what cannot be shown escaped as
// redis-cli does.
func appendQuoted(line, s []byte) []byte {
	const hex = "0123456789abcdef"
	line = append(line, '"')
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			line = append(line, '\\', c)
		case c == '\n':
			line = append(line, `\n`...)
		case c == '\r':
			line = append(line, `\r`...)
		case c == '\t':
			line = append(line, `\t`...)
		case c == '\a':
			line = append(line, `\a`...)
		case c == '\b':
			line = append(line, `\b`...)
		case c < ' ' || c > '~':
			line = append(line, '\\', 'x', hex[c>>4], hex[c&15])
		default:
			line = append(line, c)
		}
	}
	return append(line, '"')
}

// add leaves a line for the client. If it does not keep up, so that more than
// the limit of its output waits, it is disconnected.
func (t *tap) add(line []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	if limit := t.srv.observer.tuned().OutputLimit; limit > 0 && len(t.buf)+len(line) > limit {
		t.closed, t.buf = true, nil
		go t.srv.drop(t.ses) // it may want the locks of whoever feeds
	} else {
		t.buf = append(t.buf, line...)
	}
	t.signal()
}

// signal wakes the goroutine; t.mu is held.
func (t *tap) signal() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// close ends the tap; what waits is dropped.
func (t *tap) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed, t.buf = true, nil
	t.signal()
}

// take swaps what waits for an empty buffer.
func (t *tap) take(empty []byte) (waiting []byte, open bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	waiting, t.buf = t.buf, empty[:0]
	return waiting, !t.closed
}

// maxTapKept bounds the memory that a tap keeps for its next lines.
const maxTapKept = 256 << 10

// run sends what is fed until the tap is closed or the client gone.
func (t *tap) run() {
	defer t.srv.observer.taps.change(func(list []*tap) []*tap {
		return slices.DeleteFunc(list, func(o *tap) bool { return o == t })
	})
	<-t.ready
	var spare []byte
	for range t.wake {
		b, open := t.take(spare)
		if !open {
			return
		}
		if len(b) > 0 && t.srv.Push(t.ses, b) != nil {
			t.close()
			return
		}
		if spare = b; cap(spare) > maxTapKept {
			spare = nil
		}
	}
}

// drop disconnects one client.
func (s *Server) drop(ses *Session) {
	if s.Kill != nil {
		s.Kill(func(o *Session) bool { return o == ses })
	}
}

// doMonitor is MONITOR. Lines follow once its own reply was written.
func doMonitor(c *Context) {
	switch {
	case c.Server.Push == nil:
		c.fail(refusal("ERR MONITOR is not supported here"))
		return
	case c.tx.solo:
		c.fail(refusal("ERR MONITOR isn't allowed for DENY BLOCKING client"))
		return
	case c.Session.tap != nil:
		return // as Redis: it watches already
	}
	t := &tap{ses: c.Session, srv: c.Server, ready: make(chan struct{}), wake: make(chan struct{}, 1)}
	c.Session.tap = t
	c.Session.monitors.Store(true)
	c.Server.observer.taps.change(func(list []*tap) []*tap { return append(list, t) })
	go t.run()
	c.W.Status("OK")
}

// Monitors reports whether the client watches with MONITOR, so that lines are
// pushed to it beside its replies.
func (s *Session) Monitors() bool { return s.monitors.Load() }

// Answered tells the session that all replies so far were handed to the
// connection. Only the connection's owner may call it.
func (s *Session) Answered() {
	if s.tap != nil && !s.tapReady {
		s.tapReady = true
		close(s.tap.ready)
	}
}

// End tells the session that its connection is closed. Only the connection's
// owner may call it, once it calls nothing else.
func (s *Session) End() {
	if t := s.tap; t != nil {
		t.close()
		s.Answered()
		s.tap, s.tapReady = nil, false
		s.monitors.Store(false)
	}
}

// monitorCommands is MONITOR.
var monitorCommands = []Command{{
	Name: "monitor", Arity: 1, Flags: Admin | NoScript | Loading | Stale, Group: groupServer, Since: "1.0.0",
	Complexity: "O(1)", Summary: "Shows every command of all clients as the server executes it.", Run: doMonitor,
}}

// Monitored reports whether any client watches with MONITOR.
func (s *Server) Monitored() bool { return s.observer.taps.any() }
