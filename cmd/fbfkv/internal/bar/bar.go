// Package bar shows on a terminal how far long work is.
package bar

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// Bar is a line on a terminal that says how far the work is. It writes nothing unless
// its writer is a terminal. Not safe for concurrent use.
type Bar struct {
	out   *os.File // nil without a terminal
	shown time.Time
}

// period is the least time between two texts, but for the first.
const period = 100 * time.Millisecond

// New returns a bar that is drawn on out, if that is a terminal.
func New(out io.Writer) *Bar {
	if IsTerminal(out) {
		return &Bar{out: out.(*os.File)}
	}
	return new(Bar)
}

// IsTerminal reports whether what is written to out is seen at once, and not kept.
func IsTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Set shows that done of total, bytes or pieces, of a stage are done.
func (b *Bar) Set(stage string, bytes bool, done, total int64) {
	if b.out == nil || time.Since(b.shown) < period {
		return
	}
	b.shown = time.Now()
	unit, scale := "", int64(1)
	if bytes {
		unit, scale = " MB", 1e6
	}
	fmt.Fprintf(b.out, "\r\x1b[K%s: %d of %d%s", stage, done/scale, total/scale, unit)
}

// Clear removes the text.
func (b *Bar) Clear() {
	if b.out != nil {
		fmt.Fprint(b.out, "\r\x1b[K")
	}
}
