package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// progress shows how far the work is: a line per figure, and on a terminal how far the
// present one is.
type progress struct {
	out      io.Writer
	terminal bool
	current  figure
	started  time.Time
}

func newProgress(out io.Writer) *progress {
	file, ok := out.(*os.File)
	return &progress{out: out, terminal: ok && term.IsTerminal(int(file.Fd()))}
}

func (p *progress) begin(f figure) { p.current, p.started = f, time.Now() }

// set shows how much of the present figure is done.
func (p *progress) set(share float64) {
	if p.terminal {
		fmt.Fprintf(p.out, "\r\x1b[KFig. %d: %.0f %%", p.current.number, 100*share)
	}
}

func (p *progress) end(f figure) {
	if p.terminal {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
	fmt.Fprintf(p.out, "Fig. %d: %s (%.1f s)\n", f.number, f.title, time.Since(p.started).Seconds())
}
