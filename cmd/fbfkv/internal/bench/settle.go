package bench

import (
	"context"
	"fmt"
	"time"
)

// When a server has settled: it used hardly any of a processor, and finished no flush and
// no compaction, from one look to the next.
const (
	settleLook = 2 * time.Second
	settleCPU  = 0.05 // processors, on average
	settleMost = 2 * time.Minute
)

// settle brings the server's rows to disk and waits until Pebble has flushed and
// compacted them; one that is not done after settleMost is measured as it is.
func (s *sweeper) settle(ctx context.Context) error {
	if err := s.server.do(ctx, "SAVE"); err != nil {
		return err
	}
	before, err := s.server.look(ctx)
	if err != nil {
		return err
	}
	for began := time.Now(); time.Since(began) < settleMost; {
		s.progress.Set("flushes and compactions", false, int64(time.Since(began)), int64(settleMost))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(settleLook):
		}
		now, err := s.server.look(ctx)
		if err != nil {
			return err
		}
		if now.settledSince(before) {
			return nil
		}
		before = now
	}
	s.progress.Clear()
	_, err = fmt.Fprintf(s.stdout, "%s has not settled after %v, it is measured as it is\n", s.server.name, settleMost)
	return err
}

// settling is what shows whether a server has background work.
type settling struct {
	cpu float64 // seconds of processor time so far
	at  time.Time
	activity
}

func (p *process) look(ctx context.Context) (l settling, err error) {
	if l.activity, err = p.activity(ctx); err != nil {
		return l, err
	}
	l.cpu, _, err = p.cpu()
	l.at = time.Now()
	return l, err
}

// settledSince reports whether nothing was done since an earlier look.
func (l settling) settledSince(before settling) bool {
	did := l.since(before.activity)
	return did.flushes == 0 && did.compactions == 0 && l.cpu-before.cpu <= settleCPU*l.at.Sub(before.at).Seconds()
}
