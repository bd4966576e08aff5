package server

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/fbfkv/fbfkv/store"
)

// TestTurnsOfTheLoad: rounds that are large again and again add a turn, small ones
// take it away.
func TestTurnsOfTheLoad(t *testing.T) {
	const large, middle, small = largeRound, smallRound + 1, smallRound
	type rounds struct{ n, requests int }
	one := func(w *worker, requests int) { w.note(2, requests) }
	lone := func(w *worker, requests int) { w.note(1, requests) }
	for _, c := range []struct {
		name   string
		before int32 // turns
		rounds []rounds
		note   func(w *worker, requests int)
		want   int32
		held   uint32 // the worker's turn at the end
	}{
		{"large", 1, []rounds{{growAfter, large}}, one, 2, turnHeld},
		{"as often large as not", 1, []rounds{{growAfter - 1, large}, {2, middle}, {2, large}, {9, middle},
			{growAfter - 1, large}}, one, 1, turnHeld},
		{"more often large than not", 1, []rounds{{growAfter - 1, large}, {1, middle}, {2, large}}, one, 2,
			turnHeld},
		{"of one connection", 1, []rounds{{10 * growAfter, large}}, lone, 1, turnHeld},
		{"others' connections", 2, []rounds{{10 * shrinkAfter, 0}}, one, 2, turnHeld},
		{"not large", 1, []rounds{{10 * growAfter, large - 1}}, one, 1, turnHeld},
		{"large for long", 1, []rounds{{10 * growAfter, large}}, one, 3, turnHeld},
		{"small", 2, []rounds{{shrinkAfter, small}}, one, 1, noTurn},
		{"small, not for long", 2, []rounds{{shrinkAfter - 1, small}, {1, middle}, {shrinkAfter - 1, small}},
			one, 2, turnHeld},
		{"not small", 2, []rounds{{10 * shrinkAfter, middle}}, one, 2, turnHeld},
		{"small, and no turn more than the fewest", 1, []rounds{{10 * shrinkAfter, small}}, one, 1, turnHeld},
		{"large, then small", 1, []rounds{{growAfter, large}, {shrinkAfter, small}}, one, 1, noTurn},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &eventLoop{server: new(Server), turn: make(chan struct{}, 3), fewest: 1, most: 3}
			l.turns.Store(c.before)
			l.idle.Store(9) // somebody waits for the added ones
			w := newWorker(l, false)
			w.turn.Store(turnHeld)
			for _, r := range c.rounds {
				for range r.n {
					c.note(w, r.requests)
					w.adapt()
				}
			}
			if got := l.turns.Load(); got != c.want || w.turn.Load() != c.held {
				t.Errorf("%d turns, the worker's %d; want %d, %d", got, w.turn.Load(), c.want, c.held)
			}
			if added := c.want - c.before; added > 0 && len(l.turn) != int(added) {
				t.Errorf("%d turns are to be taken", len(l.turn))
			}
		})
	}
}

// TestSetTurns: as many turns as there are processors, and some more for those who
// wait, if GOMAXPROCS allows for them; about half as many while the load is low.
func TestSetTurns(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, c := range []struct{ gomaxprocs, processors, fewest, most int }{
		{1, 0, 1, 1}, {2, 0, 1, 2}, {8, 0, 4, 8}, {3, 1, 1, 3}, {4, 2, 1, 4}, {10, 8, 4, 10},
	} {
		runtime.GOMAXPROCS(c.gomaxprocs)
		l := new(eventLoop)
		l.setTurns(c.processors)
		if int(l.fewest) != c.fewest || int(l.most) != c.most || l.turns.Load() != l.fewest ||
			cap(l.turn) != c.most {
			t.Errorf("GOMAXPROCS %d, %d processors: %d to %d turns", c.gomaxprocs, c.processors, l.fewest,
				l.most)
		}
	}
}

// TestTurnsComeAndGo: deep pipelines of many clients bring all turns, single requests
// the fewest; everyone is answered in order all the time. In the end the server stops
// while every turn is somebody's.
func TestTurnsComeAndGo(t *testing.T) {
	if runtime.GOMAXPROCS(0) < 2 {
		t.Skip("there is one turn only")
	}
	s := serveLoop(t, nil)
	s.store.SetFsync(store.Everysec)
	loop := s.eventLoop(t)
	clients := make([]*client, 32)
	for i := range clients {
		clients[i] = s.dial(t)
	}
	const each = 1024 // requests, which fit into the buffers of a connection
	sent := 0
	for round := range 2 {
		for loop.turns.Load() < loop.most {
			// so that rounds are large, however slow the clients are
			s.together(t, clients, func(i int) string {
				return strings.Repeat(frame("INCR", fmt.Sprint("own-", i)), each)
			})
			for _, c := range clients {
				for n := range each {
					c.expectReply(fmt.Sprint(":", sent+n+1))
				}
			}
			if sent += each; sent > 100*each {
				t.Fatal("no turn was added")
			}
		}
		for n := 0; round == 0 && loop.turns.Load() > loop.fewest; n++ {
			clients[n%len(clients)].do("PING")
			if n > 100*shrinkAfter {
				t.Fatal("no turn was given up")
			}
		}
	}
	for i, c := range clients {
		c.expect(fmt.Sprint(sent), "GET", fmt.Sprint("own-", i))
	}
}

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
