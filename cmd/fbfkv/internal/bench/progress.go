package bench

import (
	"fmt"
	"io"
	"time"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/bar"
)

// How often progress is shown, and over how many of these periods the present
// rate is taken.
const (
	progressPeriod = 200 * time.Millisecond
	ratePeriods    = 5
)

// progressLine shows how far a run is on a terminal.
type progressLine struct {
	bar    *bar.Bar
	o      *Options
	recent []soFar // the last ones shown
}

func newProgressLine(out io.Writer, o *Options) *progressLine {
	return &progressLine{bar: bar.New(out), o: o}
}

// show draws how far the run is.
func (l *progressLine) show(s soFar) {
	if len(l.recent) > ratePeriods {
		l.recent = append(l.recent[:0], l.recent[1:]...)
	}
	l.recent = append(l.recent, s)
	done, total := int64(s.elapsed), int64(l.o.Warmup+l.o.Duration)
	if l.o.Duration == 0 {
		done, total = s.done, l.o.Count
	}
	l.bar.Say(l.text(s), done, total)
}

// text is what is said beside the bar: time or operations of all, the present
// rate, errors and the 99th percentile so far. It leaves room for the bar in 80
// columns.
func (l *progressLine) text(s soFar) string {
	text := ""
	if l.o.Duration == 0 {
		text = fmt.Sprintf("%.1f s, %s of %s", s.elapsed.Seconds(), tickLabel(rounded(s.done)), tickLabel(float64(l.o.Count)))
	} else {
		text = fmt.Sprintf("%.1f of %.1f s, %s", s.elapsed.Seconds(), (l.o.Warmup + l.o.Duration).Seconds(), tickLabel(rounded(s.done)))
	}
	before := soFar{}
	if len(l.recent) > ratePeriods {
		before = l.recent[0]
	}
	good := s.done - s.failed - (before.done - before.failed)
	rate := divide(float64(good), (s.elapsed - before.elapsed).Seconds())
	text += fmt.Sprintf(" ops, %s ops/s", tickLabel(rounded(int64(rate)))) // without errors, as the throughput
	if s.p99 > 0 {
		text += ", p99 " + short(s.p99)
	}
	if s.failed > 0 {
		text += fmt.Sprintf(", %s errors", tickLabel(rounded(s.failed)))
	}
	return text
}

// rounded has three digits of n.
func rounded(n int64) float64 {
	unit := int64(1)
	for n/unit >= 1000 {
		unit *= 10
	}
	return float64(n / unit * unit)
}

func (l *progressLine) clear() { l.bar.Clear() }
