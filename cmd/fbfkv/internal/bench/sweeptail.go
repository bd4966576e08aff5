package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// tailTrial is how long the load runs that finds out the full rate.
const tailTrial = 3 * time.Second

// tailLength is how long the sweep over time takes, in seconds.
func (s *sweeper) tailLength() float64 {
	seconds := tailTrial.Seconds() + float64(len(tails))*(1.5+s.tail.Seconds())
	if s.profile > 0 {
		seconds += float64(len(tails)) * (float64(tailProfiles*s.profile) + 0.6)
	}
	return seconds
}

// tailProfiles is how much longer than others the profiles are of a load over
// time: a snapshot should be among what they see.
const tailProfiles = 3

// tails draws latency over time, of a server that is busy with snapshots and
// refreshes and of one that is not, at the same rate.
func (s *sweeper) tails(ctx context.Context) error {
	c := chart{title: "Latency over time at half the full load, pipeline 16", x: "time, s", y: "latency, ms", logY: true}
	rows := [][]string{{"second", "server", "operations", "p50_ms", "p99_ms", "p99.9_ms", "max_ms"}}
	var points []profiled
	rate := 0.0
	for _, t := range tails {
		s.progress.Set(tailName+" "+t.name, false, 0, 1)
		if err := s.serverFor(ctx, t.trial); err != nil {
			return err
		}
		o := DefaultOptions()
		o.Target, o.Pipeline, o.Duration = s.server.target, 16, tailTrial
		if rate == 0 {
			m, err := s.loadQuietly(ctx, o)
			if err != nil {
				return err
			}
			rate = m.Throughput / 2
		}
		o.Rate, o.Duration, o.Warmup, o.Interval = rate, s.tail, time.Second, tailInterval
		m, err := takeQuiet(ctx, &s.quiet, func() (figuresOf, error) {
			// Each begins with an empty window: its length in ids is part of what is measured.
			if err := s.server.do(ctx, "FLUSHALL"); err != nil {
				return figuresOf{}, err
			}
			return s.load(ctx, o)
		})
		if err != nil {
			return err
		}
		s.progress.Clear()
		fmt.Fprintf(s.stdout, "%-12s %-30s %s/s  p50 %s  p99 %s  p99.9 %s  max %s\n", tailName, t.name, thousands(m.Throughput),
			short(m.Latency.P50), short(m.Latency.P99), short(m.Latency.P999), short(m.Latency.Max))
		for _, at := range m.Series {
			rows = append(rows, []string{number(at.Second), t.name, fmt.Sprint(at.Operations), number(at.P50 * 1e3), number(at.P99 * 1e3),
				number(at.P999 * 1e3), number(at.Max * 1e3)})
		}
		c.lines = append(c.lines, m.overTime("p99.9 "+t.name, func(m moment) float64 { return m.P999 }),
			m.overTime("p50 "+t.name, func(m moment) float64 { return m.P50 }))
		if s.profile > 0 {
			p := profiled{curve: t.name, x: float64(o.Pipeline), throughput: m.Throughput}
			if p.spent, err = s.profileLoad(ctx, o, tailProfiles*s.profile, false, s.keptAs(tailName, t.name)); err != nil {
				return err
			}
			points = append(points, p)
		}
		if err := s.stopServer(); err != nil {
			return err
		}
	}
	return errors.Join(s.write(tailName, rows, c), s.writeSpent(sweep{name: tailName, x: "pipeline"}, points))
}
