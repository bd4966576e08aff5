package server

import (
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fbfkv/fbfkv/commands"
	"github.com/fbfkv/fbfkv/resp"
)

// worker serves connections of the event loop, round after round. It has the
// memory that a round needs, so that idle connections need none. A shared worker
// takes turns; a private one serves a single connection for as long as that has a
// request that nobody else should wait for.
type worker struct {
	loop    *eventLoop
	private bool

	turn   atomic.Uint32 // noTurn, turnHeld or turnBlocked
	blocks atomic.Uint64 // how often it waited for the disk with a turn
	met    uint64        // blocks, when relieve last met it waiting

	mu      sync.Mutex // held while a round is served, and to trim; guards what follows, of a shared worker
	served  bool       // a round since the last trim
	round   *commands.Round
	replies *resp.Writer
	readers readerStack // for connections that have none

	streak int // of large rounds one after the other; below 0: of small ones

	events [maxEvents]unix.EpollEvent
	ready  int           // how many of events there are
	pollFn func(uintptr) // poll
	waitFn func(uintptr) // await

	conns   []*polled // of this round
	starved []*polled // which this round had no room for
	again   []*polled // which have more to be done
}

// The bounds of a round.
const (
	// maxRound is how many requests of all connections are executed together.
	maxRound = 2048
	// maxTaken is how many bytes of requests of one connection are.
	maxTaken = 64 << 10
	// maxIdle is how many workers beyond one for each turn wait for work.
	maxIdle = 3
)

// newWorker returns a worker of the loop.
func newWorker(l *eventLoop, private bool) *worker {
	w := &worker{loop: l, private: private, replies: new(resp.Writer)}
	w.newRound()
	w.pollFn, w.waitFn = w.poll, w.await
	return w
}

func (w *worker) newRound() {
	w.round = commands.NewRound(w.loop.server.store, &w.loop.server.commands, !w.private)
	w.round.OnBlock(w.block)
}

// run serves whatever is ready until the loop ends, or there are too many idle
// workers.
func (w *worker) run() {
	l := w.loop
	defer l.workers.Done()
	for {
		if w.turn.Load() == noTurn && int(l.idle.Add(1)) > cap(l.turn)+maxIdle && !w.unfinished() {
			l.idle.Add(-1)
			l.running.remove(w)
			l.spareShared.Put(w)
			return
		}
		if !w.wait() {
			w.pass()
			return
		}
		if len(w.conns) == 0 {
			continue // what happened is another worker's, whose connection it is
		}
		blocks := w.blocks.Load()
		w.mu.Lock()
		w.serve()
		w.served = true
		w.mu.Unlock()
		w.adapt()
		w.handBack()
		if l.shared() && (l.giveWay || w.blocks.Load() == blocks) {
			// Every processor has a worker that may go on for ever. Go would take
			// turns between it and what goes on in the background every 10 ms, which
			// is how long clients would then wait, and that fall behind.
			runtime.Gosched()
		}
	}
}

// handBack gives up connections that the round left unfinished. A worker without a
// turn gives up all: it must wait for the turn, and the worker that has it may be waiting for
// events. One that shares the load gives up some, for others may have less to do: those
// that it had no room for, and half of those that have more to be done.
func (w *worker) handBack() {
	keep := 0
	if w.turn.Load() != noTurn {
		if !w.loop.shared() {
			return
		}
		keep = (len(w.again) + 1) / 2
	}
	w.giveUp(w.starved)
	w.giveUp(w.again[keep:])
	w.starved, w.again = w.starved[:0], w.again[:keep]
}

// giveUp lets go of connections, of which epoll is made to tell somebody.
func (w *worker) giveUp(conns []*polled) {
	for _, c := range conns {
		for c.takeEvents(); !c.release(); c.takeEvents() {
		}
		w.loop.remind(c)
	}
}

// unfinished reports whether the last round left something to be done.
func (w *worker) unfinished() bool { return len(w.starved) > 0 || len(w.again) > 0 }

// wait takes a turn, unless the worker has kept its own, and gathers the
// connections of the next round: those that the last round left unfinished, and
// those that became ready. Without any it waits for one. It returns false when
// the loop has ended.
func (w *worker) wait() bool {
	l := w.loop
	w.ready = 0
	if w.turn.Load() == noTurn {
		<-l.turn
		w.turn.Store(turnHeld)
	}
	poll := l.poll
	if w.unfinished() {
		poll = l.look
	}
	if !poll(w) || l.done.Load() { // done is set before an event tells of it
		return false
	}
	w.conns = append(append(w.conns[:0], w.starved...), w.again...)
	w.starved, w.again = w.starved[:0], w.again[:0]
	if w.ready > 0 {
		w.conns = l.claimAll(w.conns, w.events[:w.ready])
	}
	return true
}

// poll takes the events there are. It never waits.
func (w *worker) poll(epoll uintptr) {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, epoll, uintptr(unsafe.Pointer(&w.events)),
			w.room(), 0, 0, 0)
		if errno != unix.EINTR {
			w.took(n, errno)
			return
		}
	}
}

// await takes the events there are, and waits until there are any.
func (w *worker) await(epoll uintptr) {
	// Under load there nearly always are, and Go's scheduler need not hear of it.
	for w.poll(epoll); w.ready == 0; {
		n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT, epoll, uintptr(unsafe.Pointer(&w.events)),
			w.room(), ^uintptr(0), 0, 0)
		w.took(n, errno)
	}
}

// took notes what epoll_pwait returned.
func (w *worker) took(n uintptr, errno unix.Errno) {
	if errno == 0 {
		w.ready = int(n)
	}
}

// serve carries out one round.
func (w *worker) serve() {
	if len(w.conns) > 1 && w.loop.stalled() {
		w.giveUp(w.conns[1:])
		w.conns = w.conns[:1]
	}
	serving := w.conns[:0]
	for _, c := range w.conns {
		w.guard(c, (*worker).gather)
		if c.err != errPanicked && c.pipeline.Idle() {
			w.settle(c) // it need not wait for the others' commit
			continue
		}
		serving = append(serving, c)
	}
	w.conns = serving
	w.note(len(w.conns), w.round.Pending())
	w.execute()
	for _, c := range w.conns {
		w.guard(c, (*worker).answer)
		w.settle(c)
	}
	w.round.Reset()
}

// guard carries out a step of a round for a connection. A panic costs that
// connection, and none of the others.
func (w *worker) guard(c *polled, step func(*worker, *polled)) {
	defer func() {
		if p := recover(); p != nil {
			c.err = errPanicked
			w.round.Undo()
			w.loop.server.panicked(p, c.session.Addr)
		}
	}()
	step(w, c)
}

// gather reads once from a connection and adds its requests to the round.
func (w *worker) gather(c *polled) {
	w.round.Join(c.pipeline)
	c.takeEvents()
	c.starved = false
	if c.unsent != nil && !w.resend(c) || c.err != nil {
		return
	}
	if c.held != nil {
		return // it comes before later replies, and is still in the buffer
	}
	if w.round.Pending() >= maxRound {
		c.starved = c.more || c.readable
		return
	}
	if !c.more && !w.fill(c) {
		return
	}
	c.phase.Store(phaseWorking)
	pause := &w.loop.server.pause
	taken := c.reader.Taken()
	for n := 0; n < maxBatch && c.reader.Taken()-taken < maxTaken && w.round.Pending() < maxRound; n++ {
		args, ok, err := c.reader.Next()
		if err != nil || !ok {
			c.more, c.err = false, err
			return
		}
		if pause.active() || !c.pipeline.Add(args) {
			c.held = args
			return
		}
		if c.session.Closing() {
			return
		}
	}
	c.more = true
}

// fill reads once. It returns false if nothing came.
func (w *worker) fill(c *polled) bool {
	if !c.readable {
		return false
	}
	select {
	case <-w.loop.stopping:
		c.err = errClosing
		return false
	default:
	}
	if c.reader == nil {
		c.reader = w.readers.get()
		c.reader.Reset(c)
	}
	limits, _ := c.limits(w.loop.server.config.Load())
	c.reader.SetLimits(limits)
	_, err := c.reader.Fill()
	if err != nil && err != errAgain {
		c.err = err
	}
	return err == nil
}

// execute executes the round.
func (w *worker) execute() {
	defer func() {
		w.resume()
		if p := recover(); p != nil {
			for _, c := range w.conns {
				c.err = errPanicked
			}
			w.newRound()
			w.loop.server.panicked(p, "")
		}
	}()
	w.round.Execute()
	w.resume()
	w.round.Observe()
}

// answer writes a connection's replies.
func (w *worker) answer(c *polled) {
	if c.err == errPanicked {
		return
	}
	w.prepare(c)
	c.pipeline.Answer(w.replies)
	w.send(c)
}

// prepare makes the worker's writer one of the connection.
func (w *worker) prepare(c *polled) {
	w.replies.Reset()
	w.replies.Proto = c.session.Proto()
	_, w.replies.Limit = c.limits(w.loop.server.config.Load())
}

// send writes the replies to the connection.
func (w *worker) send(c *polled) {
	if w.replies.Overflowed() {
		c.err = errOutputLimit
		return
	}
	b := w.replies.Bytes()
	if len(b) == 0 {
		return
	}
	if err := c.write(b); err != nil {
		c.err = err
	}
}

// resend writes what the connection did not take before. It returns false if
// there is still something left.
func (w *worker) resend(c *polled) bool {
	n, err := c.transmit(c.unsent.Bytes()[c.sent:])
	if n > 0 {
		c.sent += n
		c.waitsToWrite()
	}
	if err != nil {
		c.err = err
		return false
	}
	if c.sent < c.unsent.Len() {
		return false
	}
	c.unsent, c.sent = nil, 0
	c.phase.Store(phaseWorking)
	c.session.OutputBuffer.Store(0)
	return true
}

// waitsToWrite notes for writeTimeout and CLIENT LIST that replies wait.
func (c *polled) waitsToWrite() {
	c.phase.Store(c.server.clock.Load())
	c.session.OutputBuffer.Store(int64(c.unsent.Len() - c.sent))
}

// settle decides how a connection goes on after its round.
func (w *worker) settle(c *polled) {
	switch {
	case c.unsent != nil && c.err == nil:
		w.release(c) // a client that takes no replies is not read from
	case c.unsent != nil && isProtocolError(c.err):
		w.release(c) // it is told once it has taken the replies before
	case c.err != nil:
		w.close(c)
	case c.session.Closing():
		c.err = errClosing
		w.close(c)
	case c.held != nil:
		w.serveAlone(c)
	case c.session.Pushed():
		w.dedicate(c)
	case c.starved:
		w.starved = append(w.starved, c) // the next round begins with it
	case c.more || c.readable:
		w.again = append(w.again, c)
	default:
		w.release(c)
	}
}

// release lets go of a connection until something happens to it.
func (w *worker) release(c *polled) {
	if c.unsent == nil {
		c.phase.Store(phaseReading)
		if c.reader != nil && c.reader.Buffered() == 0 {
			w.readers.put(c.reader)
			c.reader = nil
		}
	}
	c.noteBuffers()
	if !c.release() {
		w.again = append(w.again, c)
	}
}

// noteBuffers notes how large the buffers are that a connection keeps, and what is in the reader's.
func (c *polled) noteBuffers() {
	held, spare := 0, 0
	if c.reader != nil {
		held = c.reader.Buffered()
		spare = c.reader.Memory() - held
	}
	if c.unsent != nil {
		spare += c.unsent.Cap() - (c.unsent.Len() - c.sent)
	}
	if s := c.session; s.QueryBuffer.Load() != int64(held) || s.SpareBuffer.Load() != int64(spare) {
		s.QueryBuffer.Store(int64(held))
		s.SpareBuffer.Store(int64(spare))
	}
}

// isProtocolError reports whether the client has yet to be told why its
// connection ends.
func isProtocolError(err error) bool {
	_, ok := goodbyeText(err)
	return ok
}
