package observe

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fbfkv/fbfkv/resp"
)

// taps are the clients that watch with MONITOR. While there are none, nobody
// pays more than one atomic load per batch.
type taps struct {
	list atomic.Pointer[[]*Tap] // replaced as a whole; nil: none
	mu   sync.Mutex             // held to replace it
}

// Tap is what a client has yet to be sent beside its replies, such as MONITOR's lines, and the goroutine
// that sends it, so that whoever feeds it never waits.
type Tap struct {
	o        *Observer
	push     func([]byte) error
	drop     func()
	instead  []byte // takes the place of all that waits if that is too much; nil: drop is called
	held     *atomic.Int64
	ready    chan struct{} // closed once MONITOR was answered
	answered bool          // it is; only the client's owner looks

	mu     sync.Mutex
	buf    []byte
	pushed int           // bytes of the buffer that is being sent, or kept for later
	wake   chan struct{} // holds one token while buf is not empty, or closed is set
	closed bool
}

// change replaces the list.
func (t *taps) change(edit func([]*Tap) []*Tap) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []*Tap
	if old := t.list.Load(); old != nil {
		list = slices.Clone(*old)
	}
	if list = edit(list); len(list) == 0 {
		t.list.Store(nil)
		return
	}
	t.list.Store(&list)
}

// Watch shows a client, from now on, what all clients do: push sends it lines and may wait for it,
// drop disconnects it. held has the memory that waits for it. No line is pushed before Ready is
// called.
func (o *Observer) Watch(push func([]byte) error, drop func(), held *atomic.Int64) *Tap {
	t := o.newTap(push, held)
	t.drop = drop
	o.taps.change(func(list []*Tap) []*Tap { return append(list, t) })
	go t.run()
	return t
}

// NewTap returns a Tap that only Send feeds. While more than maxTapWaiting bytes wait, instead takes
// their place. The other arguments are Watch's.
func (o *Observer) NewTap(push func([]byte) error, instead []byte, held *atomic.Int64) *Tap {
	t := o.newTap(push, held)
	t.instead = instead
	go t.run()
	return t
}

// maxTapWaiting bounds the bytes that wait for a client for which something else can take their place.
const maxTapWaiting = 1 << 20

func (o *Observer) newTap(push func([]byte) error, held *atomic.Int64) *Tap {
	return &Tap{o: o, push: push, held: held, ready: make(chan struct{}), wake: make(chan struct{}, 1)}
}

// Send leaves a message for the client. It does not wait.
func (t *Tap) Send(message []byte) { t.add(message) }

// Watched reports whether anyone watches.
func (o *Observer) Watched() bool { return o.taps.list.Load() != nil }

// Feed shows a command of the client at an address, without its secrets, to all who
// watch but for one, which may be nil.
func (o *Observer) Feed(addr string, args [][]byte, except *Tap) {
	list := o.taps.list.Load()
	if list == nil {
		return
	}
	line := monitorLine(time.Now(), addr, args)
	for _, t := range *list {
		if t != except {
			t.add(line)
		}
	}
}

// monitorLine renders a command as MONITOR shows it, as a status reply.
func monitorLine(at time.Time, addr string, args [][]byte) []byte {
	line := fmt.Appendf(nil, "%d.%06d [0 %s]", at.Unix(), at.Nanosecond()/1000, addr)
	for _, a := range args {
		line = AppendQuoted(append(line, ' '), a)
	}
	var w resp.Writer
	w.Status(string(line))
	return w.Bytes()
}

// AppendQuoted appends a string in quotes, with what cannot be shown escaped as
// redis-cli does.
func AppendQuoted(line, s []byte) []byte {
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
func (t *Tap) add(line []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	limit := t.o.tuned().OutputLimit
	switch {
	case t.instead != nil && len(t.buf)+len(line) > maxTapWaiting:
		t.buf = append(t.buf[:0], t.instead...)
	case t.instead == nil && limit > 0 && len(t.buf)+len(line) > limit:
		t.closed, t.buf = true, nil
		go t.drop() // it may want the locks of whoever feeds
	default:
		t.buf = append(t.buf, line...)
	}
	t.note()
	t.signal()
}

// note notes the memory that is held; t.mu is held.
func (t *Tap) note() {
	held := cap(t.buf) + t.pushed
	if t.closed {
		held = 0
	}
	t.held.Store(int64(held))
}

// signal wakes the goroutine; t.mu is held.
func (t *Tap) signal() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// Ready tells that all replies so far, MONITOR's own among them, were handed to the
// connection. Only the client's owner may call it.
func (t *Tap) Ready() {
	if !t.answered {
		t.answered = true
		close(t.ready)
	}
}

// Close ends the tap; what waits is dropped. Only the client's owner may call it, once.
func (t *Tap) Close() {
	t.end()
	t.Ready()
}

// end makes the tap's goroutine end.
func (t *Tap) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed, t.buf, t.pushed = true, nil, 0
	t.note()
	t.signal()
}

// take swaps what waits for an empty buffer.
func (t *Tap) take(empty []byte) (waiting []byte, open bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	waiting, t.buf, t.pushed = t.buf, empty[:0], cap(t.buf)
	t.note()
	return waiting, !t.closed
}

// sent returns what is kept of a buffer that was sent.
func (t *Tap) sent(b []byte) (spare []byte) {
	if cap(b) <= maxTapKept {
		spare = b
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pushed = cap(spare)
	t.note()
	return spare
}

// maxTapKept bounds the memory that a tap keeps for its next lines.
const maxTapKept = 256 << 10

// run sends what is fed until the tap is closed or the client gone.
func (t *Tap) run() {
	defer t.o.taps.change(func(list []*Tap) []*Tap {
		return slices.DeleteFunc(list, func(other *Tap) bool { return other == t })
	})
	<-t.ready
	var spare []byte
	for range t.wake {
		b, open := t.take(spare)
		if !open {
			return
		}
		if len(b) > 0 && t.push(b) != nil {
			t.end()
			return
		}
		spare = t.sent(b)
	}
}
