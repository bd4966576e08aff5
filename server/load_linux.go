package server

import "runtime"

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
	// a turn more than the fewest, so that the others find some.
	sharedEvents = 16
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
