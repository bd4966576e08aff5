package sketch

import (
	"encoding/binary"

	"github.com/fbfkv/fbfkv/store/coding"
)

// A windowed sketch counts what was added within a window. It has one cell for each of its
// panes where others have one cell, side by side, so that an increment and a query touch as
// many cache lines as in a sketch without a window. The newest pane takes the increments for
// a period of Window/Past; then the next one does. An estimate is the sum over the newest
// pane and Past others, so that an increment counts for Window at least, and for one period
// more at most. One pane more, the spare, is the one that has dropped out of the window: it
// is emptied in pieces before it becomes the newest.
//
// Time is logged time. The caller logs each step: AppendUpkeep, when Due says so.

const (
	// DefaultPast is Past of a windowed sketch that names none, and MaxPast the most.
	DefaultPast = 7
	MaxPast     = 64
	// MaxWindow is the longest window, ms: 366 days.
	MaxWindow = 366 * 24 * 3600 * 1000
	// clearedPages is how many pages one step of emptying a pane goes through.
	clearedPages = 16
)

// panes says which pane of a windowed sketch is what; it is in the header page. In a sketch
// without a window it is zero.
type panes struct {
	newest  uint64
	begun   int64  // logged time of the newest pane's beginning
	cleared uint64 // pages of the spare that are empty
	counts  []int64
}

// panes is how many panes there are, the spare among them.
func (o CountMinOptions) panes() uint64 {
	if o.Window == 0 {
		return 1
	}
	return o.Past + 2
}

// period is for how long a pane is the newest, ms.
func (o CountMinOptions) period() int64 { return max(1, o.Window/int64(max(o.Past, 1))) }

// spare is the pane that is emptied.
func (f *CountMin) spare() uint64 { return (f.newest + 1) % f.opts.panes() }

func (f *CountMin) appendPanes(b []byte) []byte {
	if f.opts.Window == 0 {
		return b
	}
	b = binary.AppendUvarint(b, f.newest)
	b = binary.AppendVarint(b, f.begun)
	b = binary.AppendUvarint(b, f.cleared)
	for _, n := range f.counts {
		b = binary.AppendVarint(b, n)
	}
	return b
}

func (f *CountMin) readPanes(r *coding.Reader) {
	if f.opts.Window == 0 {
		return
	}
	f.panes = panes{newest: r.UpTo(f.opts.panes() - 1), begun: r.Varint(), cleared: r.Uvarint(),
		counts: make([]int64, f.opts.panes())}
	left := f.count // what the counts of the panes that are not read yet sum up to
	for i := range f.counts {
		n := r.Varint()
		if n < 0 || n > left {
			r.Fail()
		}
		f.counts[i], left = n, left-n
	}
	if left != 0 || f.counts[f.spare()] != 0 || f.begun < 0 {
		r.Fail()
	}
}

// Windowed reports whether the sketch has a window.
func (f *CountMin) Windowed() bool { return f.opts.Window > 0 }

// PaneIsOver reports whether the newest pane has had its time, so that AppendUpkeep must
// come before the next increment, and Due whether it has anything to do.
func (f *CountMin) PaneIsOver(logged int64) bool {
	return f.Windowed() && logged-f.begun >= f.opts.period()
}

// Due reports whether AppendUpkeep has anything to do.
func (f *CountMin) Due(logged int64) bool {
	return f.Windowed() && (f.PaneIsOver(logged) || f.cleared < f.pages())
}

// pages is how many pages the cells have.
func (f *CountMin) pages() uint64 { return uint64(len(f.page) - 1) }

// AppendUpkeep appends the change that is due next: a piece of the spare is emptied; all that
// is left of it, if its time has come; or the spare becomes the newest pane.
func (f *CountMin) AppendUpkeep(dst []byte, logged int64) []byte {
	if f.cleared < f.pages() {
		to := f.pages()
		if !f.PaneIsOver(logged) {
			to = min(to, f.cleared+clearedPages)
		}
		dst = binary.AppendUvarint(append(dst, countEmptied), f.spare())
		dst = binary.AppendUvarint(dst, f.cleared)
		return binary.AppendUvarint(dst, to)
	}
	begun := f.begun + f.opts.period()
	if logged-begun >= f.opts.period()*int64(f.opts.panes()) {
		begun = logged - f.opts.period()*int64(f.opts.panes()-1) // nothing is in the panes before it
	}
	return binary.AppendVarint(append(dst, countTurned), begun)
}

// turnPane redoes that the spare becomes the newest pane.
func (f *CountMin) turnPane(r *coding.Reader, seq uint64) {
	begun := r.Varint()
	r.End()
	if !r.Bad && f.takes(0, seq) {
		f.newest, f.begun, f.cleared = f.spare(), begun, 0
		f.count -= f.counts[f.spare()]
		f.counts[f.spare()] = 0
	}
}

// empty redoes that pages of a pane were emptied.
func (f *CountMin) empty(r *coding.Reader, seq uint64) {
	pane, from, to := r.UpTo(f.opts.panes()-1), r.Uvarint(), r.UpTo(f.pages())
	r.End()
	if r.Bad || from > to {
		r.Fail()
		return
	}
	cell := f.opts.cell()
	group := cell * f.opts.panes()
	for n := from; n < to; n++ {
		cells, begin := f.of(uint32(n+1)), n*pageSize
		// The first cell of the pane in the page, and every one that follows.
		at := (pane*cell + group - begin%group) % group
		for ; at < uint64(len(cells)); at += group {
			if f.load(begin+at) != 0 && f.takes(uint32(n+1), seq) {
				storeCell(cells[at:], cell, 0)
			}
		}
	}
	if f.takes(0, seq) {
		f.cleared = to
	}
}
