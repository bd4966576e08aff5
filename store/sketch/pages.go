package sketch

import (
	"bytes"
	"errors"
	"slices"
)

// pageSize is how many bytes of cells a page holds. Cells of 1, 2, 4 or 8 bytes do not
// cross pages.
const pageSize = 16 << 10

// MaxBytes bounds the cells of a sketch, so that no options make a machine fail.
const MaxBytes = 64 << 30

// ErrCorrupt means that bytes are not the encoding that they should be.
var ErrCorrupt = errors.New("corrupt encoding of a sketch")

// Sketch is a Bloom or a CountMin.
type Sketch interface {
	// Memory returns the pages of the sketch.
	Memory() *Pages
	// Options encodes what cannot be found in the header, to make an unloaded sketch.
	Options() []byte
	// Redo makes a change that an Append function has encoded, in those pages that lack
	// it: their sequence is lower. An error means that it is no such change.
	Redo(change []byte, seq uint64) error

	header() []byte           // encodes page 0
	open(header []byte) error // makes an unloaded sketch what its page 0 says, with zero cells
}

// Pages is the memory of a sketch: cells in one or more parts, cut into pages of 16 KiB,
// numbered from 1. Page 0 is the header.
type Pages struct {
	parts []part
	page  []page
	dirty []uint32 // pages that TakeDirty has not returned yet
	turn  uint32   // counts changes
}

// page is what is known of a page.
type page struct {
	seq   uint64 // of the last change that it has
	turn  uint32 // in which it took that
	dirty bool   // the page on disk has less
}

// part is a stretch of cells. Pages do not cross parts.
type part struct {
	first uint32 // its first page
	cells []byte
}

// Memory returns ps: embedded in a sketch, it is a method of Sketch.
func (ps *Pages) Memory() *Pages { return ps }

// addPart appends a part of zero cells, and the first time also the header.
func (ps *Pages) addPart(bytes uint64) {
	first := max(1, len(ps.page))
	ps.parts = append(ps.parts, part{uint32(first), make([]byte, bytes)})
	ps.page = append(ps.page, make([]page, first+pagesOf(bytes)-len(ps.page))...)
}

// pagesOf is how many pages hold so many bytes of cells.
func pagesOf(bytes uint64) int { return int((bytes + pageSize - 1) / pageSize) }

// memoryOf is the memory that a part of so many bytes of cells takes, with the data
// about it and its pages.
func memoryOf(bytes uint64) uint64 { return bytes + 64 + 16*uint64(pagesOf(bytes)) }

// Loaded reports whether the sketch has its header, and so its cells.
func (ps *Pages) Loaded() bool { return len(ps.page) > 0 }

// Bytes is the memory that the sketch takes.
func (ps *Pages) Bytes() (n uint64) {
	for i := range ps.parts {
		n += memoryOf(uint64(len(ps.parts[i].cells)))
	}
	return n
}

// pageAt is the page of the cell at an offset.
func (p *part) pageAt(offset uint64) uint32 { return p.first + uint32(offset/pageSize) }

// begin begins to redo a change.
func (ps *Pages) begin() { ps.turn++ }

// takes reports whether a page lacks the change that is being redone and must be
// changed, and notes that. A change may change a page several times.
func (ps *Pages) takes(n uint32, seq uint64) bool {
	p := &ps.page[n]
	if p.seq >= seq && p.turn != ps.turn {
		return false
	}
	p.seq, p.turn = seq, ps.turn
	if !p.dirty {
		p.dirty = true
		ps.dirty = append(ps.dirty, n)
	}
	return true
}

// of returns the cells of a page other than the header.
func (ps *Pages) of(n uint32) []byte {
	i := len(ps.parts) - 1
	for ps.parts[i].first > n {
		i--
	}
	from := int(n-ps.parts[i].first) * pageSize
	cells := ps.parts[i].cells
	return cells[from:min(from+pageSize, len(cells))]
}

// Created notes that the sketch was made with the sequence: it has no page on disk yet, not
// even the header.
func (ps *Pages) Created(seq uint64) {
	ps.begin()
	ps.takes(0, seq)
}

// TakeDirty returns the numbers of the pages that have become dirty since the last call,
// in ascending order. They stay dirty until TakePage.
func (ps *Pages) TakeDirty() []uint32 {
	list := ps.dirty
	ps.dirty = nil
	slices.Sort(list)
	return list
}

// GiveBack lets TakeDirty return pages again that were not taken.
func (ps *Pages) GiveBack(list []uint32) { ps.dirty = append(ps.dirty, list...) }

// NotWritten makes pages dirty again that were taken, but did not reach the disk.
func (ps *Pages) NotWritten(list []uint32) {
	for _, n := range list {
		if !ps.page[n].dirty {
			ps.page[n].dirty = true
			ps.dirty = append(ps.dirty, n)
		}
	}
}

// Unsaved makes all pages dirty that a loaded sketch has ever changed: none is on disk.
func Unsaved(s Sketch) {
	ps := s.Memory()
	for n := range ps.page {
		if ps.page[n].seq > 0 {
			ps.NotWritten([]uint32{uint32(n)})
		}
	}
}

// TakePage returns a page to be written, with its sequence. It counts as clean from now on.
// The content is valid until the next change.
func TakePage(s Sketch, n uint32) (seq uint64, content []byte) {
	ps := s.Memory()
	if ps.page[n].dirty = false; n == 0 {
		content = s.header()
	} else {
		content = ps.of(n)
	}
	return ps.page[n].seq, content
}

// LoadPage puts a page from the disk into an unloaded sketch, the header first.
func LoadPage(s Sketch, n uint32, seq uint64, content []byte) error {
	ps := s.Memory()
	switch {
	case n == 0:
		if err := s.open(content); err != nil {
			return err
		}
	case !ps.Loaded():
		return errors.New("there is no header before it")
	case n >= uint32(len(ps.page)) || len(content) != len(ps.of(n)):
		return errors.New("it is beyond the end")
	default:
		copy(ps.of(n), content)
	}
	ps.page[n] = page{seq: seq}
	return nil
}

// Equal reports whether two sketches hold the same.
func Equal(a, b Sketch) bool {
	return bytes.Equal(a.header(), b.header()) &&
		slices.EqualFunc(a.Memory().parts, b.Memory().parts, func(x, y part) bool {
			return bytes.Equal(x.cells, y.cells)
		})
}
