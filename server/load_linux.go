package server

import (
	"runtime"
	"slices"
	"time"
)

// How many workers have a turn depends on the load. With full pipelines one worker
// cannot keep two processors busy: to have others help with its rounds, or go on
// while it answers, takes a goroutine that is woken again and again, and Go lets that
// wait for longer than the work takes. So a worker whose rounds are large again and
// again adds a turn, until there is one for each processor (setTurns). Each worker then
// serves what is ready, a round after the other, and wakes nobody. With small rounds
// the fewest turns do best, for what a commit, a lock and a wake-up cost is shared by
// fewer requests the more workers there are.
const (
	// largeRound requests of several connections, growAfter times more often than
	// fewer, are worth another turn.
	largeRound = 512
	growAfter  = 8
	// smallRound requests at most, shrinkAfter times in a row, are worth one less.
	smallRound  = 64
	shrinkAfter = 64
	// sharedEvents is how many connections a worker takes at once while there is
	// a turn more than the fewest, so that the others find some; replicaEvents in a
	// shard, where each node pays for every commit.
	sharedEvents  = 16
	replicaEvents = 32
)

// setTurns decides how many turns there are. Options.Processors is how many
// workers can be at work at once; GOMAXPROCS may be more, so that they are while
// others wait for the disk.
func (l *eventLoop) setTurns(processors int) {
	most := runtime.GOMAXPROCS(0)
	if processors == 0 {
		processors = most
	}
	l.fewest, l.most = int32(max(1, processors/2)), int32(most)
	l.giveWay = processors >= most
	l.turns.Store(l.fewest)
	l.turn = make(chan struct{}, l.most)
}

// shared reports whether the load has brought more turns than the fewest.
func (l *eventLoop) shared() bool { return l.turns.Load() > l.fewest }

// room is how many events the worker may take.
func (w *worker) room() uintptr {
	if w.loop.stalled() {
		return 1
	}
	if w.loop.shared() {
		if st := w.loop.server.store; st != nil && st.Replicated() {
			return replicaEvents
		}
		return sharedEvents
	}
	return maxEvents
}

// note notes that a round of so many connections and requests begins. What a single
// connection sends cannot be shared.
func (w *worker) note(conns, requests int) {
	if w.private || requests == 0 {
		return
	}
	switch {
	case requests >= largeRound && conns > 1:
		w.streak = max(w.streak, 0) + 1
	case requests <= smallRound:
		w.streak = min(w.streak, 0) - 1
	case w.streak > 0:
		w.streak--
	default:
		w.streak = 0
	}
}

// adapt adds a turn, or gives up the worker's own, if the rounds so far say so.
func (w *worker) adapt() {
	switch l := w.loop; {
	case w.streak >= growAfter:
		w.streak = 0
		if n := l.turns.Load(); n < l.most && l.turns.CompareAndSwap(n, n+1) {
			l.passOn()
		}
	case w.streak <= -shrinkAfter:
		w.streak = 0
		if w.turn.Load() != turnHeld {
			return
		}
		if n := l.turns.Load(); n > l.fewest && l.turns.CompareAndSwap(n, n-1) {
			w.turn.Store(noTurn)
		}
	}
}

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

// passOn gives a turn that a worker gave up, or that was added, to the worker that takes it.
// The giver counts the taker as no longer idle, so that no two givers count on the
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
