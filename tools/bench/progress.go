package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// progressPeriod is how often progress is shown.
const progressPeriod = 200 * time.Millisecond

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

// showProgress shows how far a run is.
func (s *status) showProgress(o *options) func(soFar) {
	return func(so soFar) {
		of := ""
		if o.Duration > 0 {
			of = fmt.Sprintf(" of %.1f", (o.Warmup + o.Duration).Seconds())
		}
		s.say("%.1f%s s, %s ops", so.elapsed.Seconds(), of, thousands(float64(so.done)))
	}
}
