package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

const (
	// tailTrial is how long the load runs that finds out the full rate.
	tailTrial = 3 * time.Second
	// tailInterval is the length of the intervals whose latencies are drawn.
	tailInterval = 500 * time.Millisecond
	// tailWindow is the busy side's window.
	tailWindow = 12 * time.Second
	// How long a side's load goes on before it is measured: on the busy side after its
	// window has been filled; on the quiet one until what FLUSHALL deleted has left
	// Pebble's memtable, which is flushed after 5 s.
	busyLead, quietLead = time.Second, 6 * time.Second
	// tailPulse is the time from a BGSAVE to a new CAPACITY and on to the next BGSAVE.
	tailPulse = 1500 * time.Millisecond
	// tailRounds is how often both sides are measured at least.
	tailRounds = 3
	// tailRetries is how often a disturbed measurement is taken again at most: the
	// window must be filled anew for each.
	tailRetries = 1
	// tailPipeline is the depth of the pipelines.
	tailPipeline = 16
	// tailGoal is how many times the quiet side's p99.9 the busy side's may be.
	tailGoal = 3
	// tailProfiles is how much longer than others the profiles are of a load over
	// time: a snapshot should be among what they see.
	tailProfiles = 3
	// tailCounters are changed evenly. Their names are long, so that the rows written
	// back fill Pebble's memtables in seconds.
	tailCounters = 250_000
	tailKeyBytes = 100
	// quietHeadroom is how many times the ids to come the quiet side's filters are
	// made for: they then seal no generation.
	quietHeadroom = 8
)

// tailSide is one of the two servers whose latency over time is compared.
type tailSide struct {
	name   string
	busy   bool
	args   []string
	server *process
	rounds []tailRound
}

// tailRound is one measurement of a side: the load, and what the server did meanwhile.
type tailRound struct {
	figuresOf
	from float64 // ids remembered when it began
	did  activity
}

// tailSides are the two sides. Both keep all counters in memory, and nothing starts a
// snapshot by itself. The quiet one also keeps its log and its records as they come.
func tailSides() []*tailSide {
	common := []string{"--save", "", "--hot-counters", fmt.Sprint(4 * tailCounters)}
	return []*tailSide{
		{name: "busy", busy: true, args: append([]string{"--auto-aof-rewrite-min-size", "16mb"}, common...)},
		{name: "quiet", args: append([]string{"--auto-aof-rewrite-min-size", "64gb", "--cache-memory", "32gb"}, common...)},
	}
}

// tailLength is how long the sweep over time takes, in seconds.
func (s *sweeper) tailLength() float64 {
	round := tailWindow + busyLead + quietLead + 2*s.tail + 3*time.Second // in which the quiet side is filled
	seconds := 10 + (tailWindow + tailTrial).Seconds() + float64(s.tailRounds())*round.Seconds()
	if s.profile > 0 {
		seconds += 2 * (float64(tailProfiles*s.profile) + 0.6)
	}
	return seconds
}

func (s *sweeper) tailRounds() int { return max(tailRounds, s.rounds) }

// tails compares latency over time, of a server that is busy with snapshots,
// refreshes, resizes, flushes and compactions with that of one that does none of this,
// at the same rate and with about as many remembered ids.
func (s *sweeper) tails(ctx context.Context) (err error) {
	sides := tailSides()
	defer func() {
		s.server = nil // it is one of them
		for _, side := range sides {
			if side.server != nil {
				err = errors.Join(err, side.server.close())
			}
		}
	}()
	if err := s.stopServer(); err != nil {
		return err
	}
	defer func(before int) { s.quiet.retries = before }(s.quiet.retries)
	s.quiet.retries = min(s.quiet.retries, tailRetries)
	for _, side := range sides {
		if side.server, err = startFBFKV(ctx, s.fbfkv, "everysec", nil, side.args...); err != nil {
			return err
		}
	}
	rate, err := s.prepareTails(ctx, sides)
	if err != nil {
		return err
	}
	for round := range s.tailRounds() {
		for i := range sides {
			side := sides[(i+round)%len(sides)]
			if err := s.tailRound(ctx, sides, side, rate); err != nil {
				return fmt.Errorf("%s: %w", side.name, err)
			}
		}
	}
	points, err := s.profileTails(ctx, sides, rate)
	return errors.Join(err, s.writeTails(sides, rate, points))
}

// tailOptions are those of the load on a side.
func tailOptions(side *tailSide) Options {
	o := DefaultOptions()
	o.Target, o.Pipeline, o.Keys = side.server.target, tailPipeline, uniform(tailCounters)
	o.KeyPrefix = "tail:" + strings.Repeat("x", tailKeyBytes-len("tail::")-digitsFor(tailCounters)) + ":"
	return o
}

// prepareTails makes the busy side's counters, finds out what it can do at most, and
// returns half of it: the rate of what is measured. The quiet side's filters are sized
// for it.
func (s *sweeper) prepareTails(ctx context.Context, sides []*tailSide) (rate float64, err error) {
	s.progress.Set(tailName+" full rate", false, 0, 1)
	busy, quiet := sides[0], sides[1]
	if err := s.turnTo(sides, busy); err != nil {
		return 0, err
	}
	if err := busy.server.do(ctx, "CTABLE", "ALTER", "default", "WINDOW", tailWindow.Milliseconds(), "SKEW", 0); err != nil {
		return 0, err
	}
	o := tailOptions(busy)
	fill := o
	fill.Workload, fill.Keys, fill.Count, fill.Duration, fill.Pipeline = "incrby", fmt.Sprintf("sequence:%d", tailCounters), tailCounters, 0, fillPipeline
	if _, err := s.load(ctx, fill); err != nil {
		return 0, err
	}
	o.Duration = tailTrial
	m, err := s.loadQuietly(ctx, o)
	if err != nil {
		return 0, err
	}
	rate = m.Throughput / 2
	if err := s.turnTo(sides, quiet); err != nil {
		return 0, err
	}
	most := quietHeadroom * (float64(s.quietFill(rate)) + rate*(quietLead+s.tail).Seconds())
	return rate, quiet.server.do(ctx, "CTABLE", "ALTER", "default", "WINDOW", time.Hour.Milliseconds(), "CAPACITY", int64(math.Ceil(most)))
}

// quietFill is with how many ids the quiet side is filled, each counter made by one of
// them: in the middle of the measurement there are as many as the busy side's window holds.
func (s *sweeper) quietFill(rate float64) int64 {
	return max(tailCounters, int64(rate*(tailWindow-quietLead-s.tail/2).Seconds()))
}

// turnTo lets one side run and stops the others.
func (s *sweeper) turnTo(sides []*tailSide, one *tailSide) (err error) {
	for _, side := range sides {
		if side == one {
			err = errors.Join(err, side.server.resume())
		} else {
			err = errors.Join(err, side.server.pause())
		}
	}
	s.server = one.server
	return err
}

// tailRound measures a side once. What it remembers is made anew each time: its
// clock went on while it was stopped.
func (s *sweeper) tailRound(ctx context.Context, sides []*tailSide, side *tailSide, rate float64) error {
	if err := s.turnTo(sides, side); err != nil {
		return err
	}
	r, err := takeQuiet(ctx, &s.quiet, func() (r tailRound, err error) {
		s.progress.Set(fmt.Sprintf("%s %s", tailName, side.name), false, int64(len(side.rounds)), int64(s.tailRounds()))
		stop, err := s.warmTail(ctx, side, rate)
		if err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, stop()) }()
		before, err := side.server.activity(ctx)
		if err != nil {
			return r, err
		}
		o := tailOptions(side)
		o.Rate, o.Duration, o.Interval = rate, s.tail, tailInterval
		if r.figuresOf, err = s.load(ctx, o); err != nil {
			return r, err
		}
		after, err := side.server.activity(ctx)
		r.from, r.did = before.ids, after.since(before)
		return r, err
	})
	if err != nil {
		return err
	}
	side.rounds = append(side.rounds, r)
	s.progress.Clear()
	_, err = fmt.Fprintf(s.stdout, "%-12s %-6s %12s/s  p50 %s  p99 %s  p99.9 %s  max %s  %s\n", tailName, side.name, thousands(r.Throughput),
		short(r.Latency.P50), short(r.Latency.P99), short(r.Latency.P999), short(r.Latency.Max), r.did)
	return err
}

// warmTail brings a side into the state in which it is measured. The busy side's
// background work goes on until it is stopped.
func (s *sweeper) warmTail(ctx context.Context, side *tailSide, rate float64) (stop func() error, err error) {
	o := tailOptions(side)
	o.Rate, o.Duration = rate, quietLead
	stop = func() error { return nil }
	if side.busy {
		stop = keepBusy(ctx, side.server, int64(rate*tailWindow.Seconds()))
		o.Duration = tailWindow + busyLead
	} else if err := s.fillQuiet(ctx, side, rate); err != nil {
		return nil, err
	}
	if _, err := s.load(ctx, o); err != nil {
		return nil, errors.Join(err, stop())
	}
	return stop, nil
}

// fillQuiet forgets what the quiet side remembers, and fills it again with the ids
// with which a round begins. The log before can go then.
func (s *sweeper) fillQuiet(ctx context.Context, side *tailSide, rate float64) error {
	for _, command := range []string{"FLUSHALL", "SAVE"} {
		if err := side.server.do(ctx, command); err != nil {
			return err
		}
	}
	o := tailOptions(side)
	o.Keys, o.Pipeline, o.Duration = fmt.Sprintf("sequence:%d", tailCounters), fillPipeline, 0
	o.Count = s.quietFill(rate)
	_, err := s.load(ctx, o)
	return err
}

// keepBusy lets a server write snapshots and resize its filters in turn until it is
// stopped. The new filters are for as many ids as the window takes, or for a sixteenth,
// which they outgrow at once.
func keepBusy(ctx context.Context, p *process, ids int64) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan error, 1)
	go func() {
		c := p.target.client()
		defer c.Close()
		tick := time.NewTicker(tailPulse)
		defer tick.Stop()
		for beat := 0; ; beat++ {
			select {
			case <-ctx.Done():
				over <- nil
				return
			case <-tick.C:
			}
			command, refused := []any{"CTABLE", "ALTER", "default", "CAPACITY", max(1, ids>>(beat/2%2*4))}, ""
			if beat%2 == 0 {
				// One may still be under way.
				command, refused = []any{"BGSAVE"}, "already in progress"
			}
			err := c.Do(ctx, command...).Err()
			if err != nil && ctx.Err() == nil && (refused == "" || !strings.Contains(err.Error(), refused)) {
				over <- fmt.Errorf("%v: %w", command, err)
				return
			}
		}
	}()
	return func() error {
		cancel()
		return <-over
	}
}

// profileTails profiles both sides under the load.
func (s *sweeper) profileTails(ctx context.Context, sides []*tailSide, rate float64) (points []profiled, err error) {
	if s.profile == 0 {
		return nil, nil
	}
	for _, side := range sides {
		s.progress.Set(tailName+" profile", false, 0, 1)
		if err := s.turnTo(sides, side); err != nil {
			return points, err
		}
		stop, err := s.warmTail(ctx, side, rate)
		if err != nil {
			return points, err
		}
		o := tailOptions(side)
		o.Rate = rate
		p := profiled{curve: side.name, x: tailPipeline, throughput: median(side.figures(throughput))}
		p.spent, err = s.profileLoad(ctx, o, tailProfiles*s.profile, true, s.keptAs(tailName, side.name))
		if err = errors.Join(err, stop()); err != nil {
			return points, err
		}
		points = append(points, p)
	}
	return points, nil
}
