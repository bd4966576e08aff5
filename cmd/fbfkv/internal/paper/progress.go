package paper

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress shows how far the work is: a bar on a terminal, else a line per figure.
type progress struct {
	bar     *progressbar.ProgressBar // nil without a terminal
	out     io.Writer
	done    int // weight of the figures made
	current figure
	started time.Time
}

// progressUnit is the bar's steps per unit of weight.
const progressUnit = 100

func newProgress(out io.Writer, chosen []figure) *progress {
	total := 0
	for _, f := range chosen {
		total += f.weight
	}
	p := &progress{out: out}
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		p.bar = progressbar.NewOptions(total*progressUnit, progressbar.OptionSetWriter(out), progressbar.OptionFullWidth(),
			progressbar.OptionSetPredictTime(true), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
	}
	return p
}

func (p *progress) begin(f figure) {
	p.current, p.started = f, time.Now()
	if p.bar != nil {
		p.bar.Describe(fmt.Sprintf("Fig. %d: %s", f.number, f.title))
	}
}

// set moves the bar within the present figure.
func (p *progress) set(share float64) {
	if p.bar != nil {
		// Nothing can be done about a bar that cannot be drawn.
		_ = p.bar.Set(int(float64(progressUnit) * (float64(p.done) + share*float64(p.current.weight))))
	}
}

func (p *progress) end(f figure) {
	p.done += f.weight
	if p.bar == nil {
		fmt.Fprintf(p.out, "Fig. %d: %s (%.1f s)\n", f.number, f.title, time.Since(p.started).Seconds())
	}
}

func (p *progress) finish() {
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}
