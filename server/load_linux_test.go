package server

import (
	"fmt"
	"io"
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
	for _, c := range []struct {
		name   string
		before int32 // turns
		rounds []rounds
		want   int32
		held   uint32 // the worker's turn at the end
	}{
		{"large", 1, []rounds{{growAfter, large}}, 2, turnHeld},
		{"not for long", 1, []rounds{{growAfter - 1, large}, {1, middle}, {growAfter - 1, large}}, 1, turnHeld},
		{"not large", 1, []rounds{{10 * growAfter, large - 1}}, 1, turnHeld},
		{"large for long", 1, []rounds{{10 * growAfter, large}}, 3, turnHeld},
		{"small", 2, []rounds{{shrinkAfter, small}}, 1, noTurn},
		{"small, not for long", 2, []rounds{{shrinkAfter - 1, small}, {1, middle}, {shrinkAfter - 1, small}}, 2, turnHeld},
		{"not small", 2, []rounds{{10 * shrinkAfter, middle}}, 2, turnHeld},
		{"small, and no turn more than the fewest", 1, []rounds{{10 * shrinkAfter, small}}, 1, turnHeld},
		{"large, then small", 1, []rounds{{growAfter, large}, {shrinkAfter, small}}, 1, noTurn},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &eventLoop{server: new(Server), turn: make(chan struct{}, 3), fewest: 1, most: 3}
			l.turns.Store(c.before)
			l.idle.Store(9) // somebody waits for what is added
			w := newWorker(l, false)
			w.turn.Store(turnHeld)
			for _, r := range c.rounds {
				for range r.n {
					w.note(r.requests)
					w.adapt()
				}
			}
			if got := l.turns.Load(); got != c.want || w.turn.Load() != c.held {
				t.Errorf("%d turns, the worker's %d; want %d, %d", got, w.turn.Load(), c.want, c.held)
			}
			if added := max(0, int(l.most)-int(c.before)); c.want > c.before && len(l.turn) != min(added, int(c.want-c.before)) {
				t.Errorf("%d turns are to be taken", len(l.turn))
			}
		})
	}
}

// TestHelpOrCompany: a worker has its rounds' batches helped with only while no other
// worker begins rounds.
func TestHelpOrCompany(t *testing.T) {
	var alone bool // of the last batch; read after its reply
	s := serveLoop(t, executing(func(st *store.Store, b *store.Batch) {
		alone, b.OnBlock = b.Alone, nil // so that no round blocks and loses its turn
		st.Execute(b)
	}))
	if runtime.GOMAXPROCS(0) > 3 {
		t.Skip("there is more than one turn")
	}
	c := s.dial(t)
	for i := range 3 * aloneFor {
		c.do("INCR", "k")
		if i > 2*aloneFor && alone {
			t.Fatal("alone, though nobody else begins rounds")
		}
	}
	s.mu.Lock()
	s.loop.last.Store(new(worker))
	s.mu.Unlock()
	if c.do("INCR", "k"); !alone {
		t.Error("not alone, though another worker just began a round")
	}
}

// TestTurnsComeAndGo: deep pipelines of many clients bring all turns, single requests
// the fewest; everyone is answered in order all the time.
func TestTurnsComeAndGo(t *testing.T) {
	if runtime.GOMAXPROCS(0) < 2 {
		t.Skip("there is one turn only")
	}
	s := serveLoop(t, nil, "appendfsync", "everysec")
	fewest, most := turnsOf(runtime.GOMAXPROCS(0))
	clients := make([]*client, 16)
	for i := range clients {
		clients[i] = s.dial(t)
	}
	clients[0].expect("+PONG", "PING")
	s.mu.Lock()
	loop := s.loop
	s.mu.Unlock()
	sent := 0
	for range 2 {
		for loop.turns.Load() < most {
			for i, c := range clients {
				var b strings.Builder
				for range largeRound {
					b.WriteString(frame("INCR", fmt.Sprint("own-", i)))
				}
				go io.WriteString(c.Conn, b.String())
			}
			for _, c := range clients {
				for n := range largeRound {
					c.expectReply(fmt.Sprint(":", sent+n+1))
				}
			}
			if sent += largeRound; sent > 1000*largeRound {
				t.Fatal("no turn was added")
			}
		}
		for n := 0; loop.turns.Load() > fewest; n++ {
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
