package server

import "testing"

// TestBlockedTurns: a round that waits for the disk loses its turn when it is met
// waiting twice, and not before.
func TestBlockedTurns(t *testing.T) {
	const (
		block = iota
		resume
		look
	)
	for _, c := range []struct {
		name  string
		turn  uint32
		steps []int
		want  uint32
		given int // turns passed on
	}{
		{"short", turnHeld, []int{block, resume}, turnHeld, 0},
		{"met once", turnHeld, []int{block, look, resume}, turnHeld, 0},
		{"met in two rounds", turnHeld, []int{block, look, resume, block, look, resume}, turnHeld, 0},
		{"at work", turnHeld, []int{look, look}, turnHeld, 0},
		{"long", turnHeld, []int{block, look, look}, noTurn, 1},
		{"long, and goes on", turnHeld, []int{block, look, look, look, resume, look}, noTurn, 1},
		{"blocks twice", turnHeld, []int{block, block, look, resume}, turnHeld, 0},
		{"without a turn", noTurn, []int{block, look, look, resume}, noTurn, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &eventLoop{server: new(Server), turn: make(chan struct{}, 1), alarm: make(chan struct{}, 1)}
			w := newWorker(l, false)
			w.turn.Store(c.turn)
			l.running.add(w)
			l.idle.Store(1) // somebody waits for the turn
			for _, step := range c.steps {
				switch step {
				case block:
					w.block()
				case resume:
					w.resume()
				case look:
					l.relieve()
				}
			}
			if got := w.turn.Load(); got != c.want || len(l.turn) != c.given {
				t.Errorf("turn %d, %d passed on; want %d, %d", got, len(l.turn), c.want, c.given)
			}
			if blocked := c.turn != noTurn && c.steps[0] == block; len(l.alarm) == 1 != blocked {
				t.Errorf("alarm given: %v", !blocked)
			}
		})
	}
}
