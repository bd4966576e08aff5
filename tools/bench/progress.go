package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// How often progress is shown, and over how many of these periods the present
// rate is taken.
const (
	progressPeriod = 200 * time.Millisecond
	ratePeriods    = 5
)

// status is a line on a terminal that each text replaces. Without a terminal it says
// nothing.
type status struct{ out io.Writer }

func newStatus(out io.Writer) *status {
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		return &status{out}
	}
	return &status{io.Discard}
}

func (s *status) say(format string, args ...any) { fmt.Fprintf(s.out, "\r\x1b[K"+format, args...) }

func (s *status) clear() { s.say("") }

// progressLine shows how far a run is on a terminal.
type progressLine struct {
	*status
	o      *options
	recent []soFar // the last ones shown
}

func newProgressLine(out io.Writer, o *options) *progressLine {
	return &progressLine{status: newStatus(out), o: o}
}

// show draws how far the run is.
func (l *progressLine) show(s soFar) {
	if len(l.recent) > ratePeriods {
		l.recent = append(l.recent[:0], l.recent[1:]...)
	}
	l.recent = append(l.recent, s)
	l.say("%s", l.text(s))
}

// text is what is said: time or operations of all, the present
// rate, errors and the 99th percentile so far, in less than 80 columns.
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
