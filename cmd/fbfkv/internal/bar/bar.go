// Package bar shows on a terminal how far long work is.
package bar

import (
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// Bar is a progress bar that begins anew for each stage of the work. It draws
// nothing unless its writer is a terminal. Not safe for concurrent use.
type Bar struct {
	out   *os.File // nil without a terminal
	stage string
	bar   *progressbar.ProgressBar
}

// New returns a bar that is drawn on out, if that is a terminal.
func New(out io.Writer) *Bar {
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		return &Bar{out: file}
	}
	return new(Bar)
}

// Set shows that done of total, bytes or pieces, of a stage are done.
func (b *Bar) Set(stage string, bytes bool, done, total int64) {
	if b.out == nil {
		return
	}
	if b.bar == nil || b.stage != stage {
		b.Clear()
		b.stage = stage
		b.bar = progressbar.NewOptions64(max(total, 1), progressbar.OptionSetWriter(b.out), progressbar.OptionSetDescription(stage),
			progressbar.OptionShowBytes(bytes), progressbar.OptionShowCount(), progressbar.OptionFullWidth(),
			progressbar.OptionSetPredictTime(true), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
	}
	// Nothing can be done about a bar that cannot be drawn.
	b.bar.ChangeMax64(max(total, 1))
	_ = b.bar.Set64(min(done, max(total, 1)))
}

// Say shows a bar of which done of total is done, behind a text that says what
// that is; the text may change each time.
func (b *Bar) Say(text string, done, total int64) {
	if b.out == nil {
		return
	}
	if b.bar == nil {
		b.bar = progressbar.NewOptions64(max(total, 1), progressbar.OptionSetWriter(b.out), progressbar.OptionFullWidth(),
			progressbar.OptionSetElapsedTime(false), progressbar.OptionSetPredictTime(false), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
	}
	// Set64 draws both if the percentage is another, and else Describe does.
	progressbar.OptionSetDescription(text)(b.bar)
	_ = b.bar.Set64(min(done, max(total, 1)-1)) // the last piece would remove it
	b.bar.Describe(text)
}

// Clear removes the bar.
func (b *Bar) Clear() {
	if b.bar != nil {
		_ = b.bar.Clear()
		b.bar = nil
	}
}
