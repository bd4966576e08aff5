package server

import (
	"slices"
	"time"
)

// A round that waits for the disk keeps its worker's turn: many clients are in it
// and wait likewise, what the others send meanwhile makes the next commit the
// fuller, and to hand the turn to another thread costs more than most rounds. But a
// disk may take long. So while there are rounds that wait, a goroutine looks after
// them, at first every patience and ever less often up to mostPatience, and passes on
// the turn of one that it meets twice; then it is in a hurry again.
const (
	patience     = time.Millisecond
	mostPatience = 16 * time.Millisecond
	// restAfter is how many looks at nobody who waits end the looking, until
	// somebody does again.
	restAfter = 20
)

// What worker.turn says.
const (
	noTurn      = iota
	turnHeld    // the worker's own
	turnBlocked // the worker waits for the disk: relieve may take the turn
)

// pass gives the turn to another worker, if this one has it.
func (w *worker) pass() {
	if w.turn.Swap(noTurn) != noTurn {
		w.loop.passOn()
	}
}

// passOn gives a turn that somebody gave up, or that was added, to whoever takes it.
// The giver counts who takes it as no longer idle, so that no two givers count on the
// same worker.
func (l *eventLoop) passOn() {
	if l.idle.Add(-1) < 0 && !l.done.Load() {
		l.spawn()
	}
	l.turn <- struct{}{}
}

// stalled reports whether whoever writes waits for the disk for long: then a round is of
// one connection, so that none that only reads waits with one that writes, and gives its
// turn away as soon as it waits.
func (l *eventLoop) stalled() bool {
	st := l.server.store
	return st != nil && st.Stalled()
}

// block is called when the round is about to wait for the disk.
func (w *worker) block() {
	if w.loop.stalled() && w.turn.CompareAndSwap(turnHeld, noTurn) {
		w.blocks.Add(1)
		w.loop.passOn()
		return
	}
	if !w.turn.CompareAndSwap(turnHeld, turnBlocked) {
		return
	}
	w.blocks.Add(1)
	if l := w.loop; !l.watched.Load() && l.watched.CompareAndSwap(false, true) {
		l.alarm <- struct{}{}
	}
}

// resume is called when the round waits no more.
func (w *worker) resume() { w.turn.CompareAndSwap(turnBlocked, turnHeld) }

// watchBlocked passes on the turns of rounds that wait for long, until alarm is
// closed.
func (l *eventLoop) watchBlocked() {
	for range l.alarm {
		for l.watch() {
		}
	}
}

// watch looks after blocked rounds until there were none for a while. It reports
// whether there is one that began as it ended, and gave no alarm.
func (l *eventLoop) watch() bool {
	pause := patience
	for quiet := 0; quiet < restAfter; quiet++ {
		time.Sleep(pause)
		if l.done.Load() {
			return false
		}
		blocked, relieved := l.relieve()
		if blocked {
			quiet = 0
		}
		if pause = min(2*pause, mostPatience); relieved {
			pause = patience
		}
	}
	l.watched.Store(false)
	blocked, _ := l.relieve()
	return blocked && l.watched.CompareAndSwap(false, true)
}

// relieve passes on the turns of the workers that wait for the disk in the same
// round as at the last call. It reports whether any waits, and whether one had waited
// so. Only watchBlocked calls it.
func (l *eventLoop) relieve() (blocked, relieved bool) {
	l.running.mu.Lock()
	workers := slices.Clone(l.running.list)
	l.running.mu.Unlock()
	for _, w := range workers {
		if w.turn.Load() != turnBlocked {
			continue
		}
		blocked = true
		if met := w.blocks.Load(); met != w.met {
			w.met = met
		} else if w.turn.CompareAndSwap(turnBlocked, noTurn) {
			l.passOn()
			relieved = true
		}
	}
	return blocked, relieved
}
