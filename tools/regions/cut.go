package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/fbfkv/fbfkv/tools/chart"
	"github.com/fbfkv/fbfkv/tools/process"
)

// twinsPerMille is how many of the operations of a cut are sent to both sides: what their clients retried elsewhere.
const twinsPerMille = 20

// twins are opids that both sides get.
type twins struct {
	mu      sync.Mutex
	waiting [2][]uuid.UUID // for each side
}

// of makes some of a side's operations twins of the other's.
func (t *twins) of(side int) func(uuid.UUID) uuid.UUID {
	return func(id uuid.UUID) uuid.UUID {
		t.mu.Lock()
		defer t.mu.Unlock()
		if n := len(t.waiting[side]); n > 0 {
			id, t.waiting[side] = t.waiting[side][n-1], t.waiting[side][:n-1]
		} else if rand.IntN(1000) < twinsPerMille {
			t.waiting[1-side] = append(t.waiting[1-side], id)
		}
		return id
	}
}

// sample is what two regions said of themselves at a time.
type sample struct {
	seconds   float64 // since the cut
	lag       [2]float64
	takenBack [2]float64
}

// drawCut cuts the link between two regions that go on counting, and draws how they come together again.
func (w *world) drawCut(ctx context.Context) {
	a, b := w.all[0], w.all[1]
	w.all[2].do(ctx, "REGION", "PAUSE", "a") // it would have to be cut off, too
	loading, cancel := context.WithCancel(ctx)
	defer cancel()
	var t twins
	failed := make(chan error, 2)
	for i, s := range []*server{a, b} {
		l := newLoad(s, w.o.rate)
		l.Twin = t.of(i)
		go func() { failed <- l.Run(loading) }()
	}
	lead := w.o.cut / 6
	from, healed := time.Now().Add(lead), time.Now().Add(lead+w.o.cut)
	end, down := healed.Add(w.o.cut/2), false
	var all []sample
	first := takenBack(ctx, a, b)
	for ; time.Now().Before(end); time.Sleep(w.o.cut / 300) {
		if is := time.Now().After(from) && time.Now().Before(healed); is != down {
			down = is
			a.proxy.cut(down)
			b.proxy.cut(down)
			if !down {
				a.do(ctx, "REGION", "RESUME", "b")
				b.do(ctx, "REGION", "RESUME", "a")
			}
		}
		now := sample{seconds: time.Since(from).Seconds()}
		back := takenBack(ctx, a, b)
		for i, s := range []*server{a, b} {
			p := s.peer(ctx, []string{"b", "a"}[i])
			now.lag[i], now.takenBack[i] = float64(p.LagMs)/1000, back[i]-first[i]
		}
		all = append(all, now)
	}
	cancel()
	process.Check(errors.Join(<-failed, <-failed))
	line("after the cut, lag below 1 s in:", fmt.Sprintf("%.1f s", recovered(all, w.o.cut.Seconds())))
	process.Check(w.draw(all))
}

func takenBack(ctx context.Context, all ...*server) (n [2]float64) {
	for i, s := range all {
		n[i] = float64(s.state(ctx).Operations.TakenBack)
	}
	return n
}

// recovered is when both regions lag less than a second again, seconds after the cut.
func recovered(all []sample, cut float64) (seconds float64) {
	for _, s := range all {
		if s.seconds > cut && max(s.lag[0], s.lag[1]) >= 1 {
			seconds = s.seconds - cut
		}
	}
	return seconds
}

// draw draws lag and take-backs over time.
func (w *world) draw(all []sample) error {
	x := chart.Axis{Label: "seconds since the cut", Min: all[0].seconds, Max: all[len(all)-1].seconds}
	title := fmt.Sprintf("Two regions, %d operations/s each; no link for %v", w.o.rate, w.o.cut)
	lag := chart.Panel{Title: title, X: x, Y: chart.Axis{Label: "lag (s)"}}
	back := chart.Panel{X: x, Y: chart.Axis{Label: "operations taken back"}}
	for i, name := range []string{"a", "b"} {
		var seconds, lags, backs []float64
		for _, s := range all {
			seconds, lags, backs = append(seconds, s.seconds), append(lags, s.lag[i]), append(backs, s.takenBack[i])
		}
		lag.Series = append(lag.Series, chart.Line("region "+name+" behind the other", i, seconds, lags))
		back.Series = append(back.Series, chart.Line("region "+name, i, seconds, backs))
	}
	return chart.Write(w.o.plot, lag, back)
}
