package sketch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"

	"github.com/fbfkv/fbfkv/store/coding"
)

// ErrOptions means that options are out of range, and ErrMerge that a sum is.
var (
	ErrOptions = errors.New("CMS: invalid init arguments")
	ErrMerge   = errors.New("CMS: MERGE overflow")
)

// CountMinOptions are the parameters of a count-min sketch.
type CountMinOptions struct {
	Width uint64 // cells of a row, at least 1
	Depth uint64 // rows, at least 1
	Cell  uint64 // bytes of a cell: 1, 2, 4 or 8; 0: 4, and nobody asked for it
	// Window is for how long increments count, ms of logged time; 0: for ever. Past is how
	// many panes it has beside the newest, 1..MaxPast.
	Window int64
	Past   uint64
}

// Validate returns ErrOptions if a parameter is out of range.
func (o CountMinOptions) Validate() error {
	hi, cells := bits.Mul64(o.Width, o.Depth)
	switch o.Cell {
	case 0, 1, 2, 4, 8:
	default:
		return ErrOptions
	}
	if hi != 0 || cells == 0 || cells > math.MaxInt64 {
		return ErrOptions
	}
	if o.Window < 0 || o.Window > MaxWindow || (o.Window > 0) != (o.Past > 0) || o.Past > MaxPast {
		return ErrOptions
	}
	return nil
}

// cell is the size of a cell, bytes.
func (o CountMinOptions) cell() uint64 {
	if o.Cell == 0 {
		return 4
	}
	return o.Cell
}

// cells is the size of all cells, bytes; false if it is too large.
func (o CountMinOptions) cells() (uint64, bool) {
	hi, n := bits.Mul64(o.Width*o.Depth, o.cell()*o.panes())
	return n, hi == 0 && n <= MaxBytes
}

// Bytes is the memory that a sketch with valid options takes; false if it would be too
// large.
func (o CountMinOptions) Bytes() (uint64, bool) {
	n, ok := o.cells()
	return memoryOf(n), ok
}

// MaxCountMinOptions bounds encoded CountMinOptions, bytes.
const MaxCountMinOptions = 5 * binary.MaxVarintLen64

// Encode encodes the options for UnloadedCountMin and NewCountMin.
func (o CountMinOptions) Encode() []byte {
	b := binary.AppendUvarint(nil, o.Width)
	b = binary.AppendUvarint(b, o.Depth)
	if b = binary.AppendUvarint(b, o.Cell); o.Window > 0 {
		b = binary.AppendUvarint(binary.AppendVarint(b, o.Window), o.Past)
	}
	return b
}

// CountMinInfo describes a count-min sketch.
type CountMinInfo struct {
	CountMinOptions
	Count int64 // sum of all increments
}

// CountMin is a count-min sketch: it counts items in width times depth cells. An item has
// one cell in each row, at MurmurHash2(item, row) mod width, and its estimate is the least of
// them: never less than the truth. Its cells are one part of its pages, its count is in the
// header page.
type CountMin struct {
	Pages
	// Answers, if not nil, take the estimates right after each pair that Redo applies.
	Answers *[]int64

	opts  CountMinOptions
	count int64 // sum of all increments, within the window
	panes
	lines byte // keeps the compiler from dropping loads made ahead
}

// UnloadedCountMin makes a sketch of encoded options, for LoadPage.
func UnloadedCountMin(options []byte) (*CountMin, error) {
	r := coding.Reader{Rest: options}
	o := CountMinOptions{Width: r.Uvarint(), Depth: r.Uvarint(), Cell: r.Uvarint()}
	if len(r.Rest) > 0 {
		o.Window, o.Past = r.Varint(), r.Uvarint()
		r.Bad = r.Bad || o.Window == 0
	}
	if r.End(); r.Bad || o.Validate() != nil {
		return nil, fmt.Errorf("%w: options", ErrCorrupt)
	}
	if _, ok := o.cells(); !ok {
		return nil, fmt.Errorf("%w: too many cells", ErrCorrupt)
	}
	return &CountMin{opts: o}, nil
}

// NewCountMin makes an empty sketch of encoded options at a logged time, ms.
func NewCountMin(options []byte, logged int64) (*CountMin, error) {
	f, err := UnloadedCountMin(options)
	if err != nil {
		return nil, err
	}
	f.addCells()
	if f.begun = logged; f.Windowed() {
		f.counts, f.cleared = make([]int64, f.opts.panes()), f.pages()
	}
	return f, nil
}

func (f *CountMin) addCells() {
	n, _ := f.opts.cells()
	f.addPart(n)
}

func (f *CountMin) header() []byte { return f.appendPanes(binary.AppendVarint(nil, f.count)) }

func (f *CountMin) open(header []byte) error {
	r := coding.Reader{Rest: header}
	f.count = r.Varint()
	f.readPanes(&r)
	if r.End(); r.Bad || f.count < 0 {
		return ErrCorrupt
	}
	if f.addCells(); f.cleared > f.pages() {
		return ErrCorrupt
	}
	return nil
}

// Options encodes the options that the sketch was made with.
func (f *CountMin) Options() []byte { return f.opts.Encode() }

// Info describes the sketch.
func (f *CountMin) Info() *CountMinInfo { return &CountMinInfo{f.opts, f.count} }

// SameSize reports whether two sketches have the same width and depth.
func (f *CountMin) SameSize(o *CountMin) bool {
	return f.opts.Width == o.opts.Width && f.opts.Depth == o.opts.Depth
}

// SameCells reports whether the cells of two sketches have the same size.
func (f *CountMin) SameCells(o *CountMin) bool { return f.opts.cell() == o.opts.cell() }

// limit is the largest number that fits into a cell.
func (f *CountMin) limit() int64 {
	if c := f.opts.cell(); c < 8 {
		return 1<<(8*c) - 1
	}
	return math.MaxInt64
}

// FitAll reports whether none of these increments can overflow, whatever their items: cells
// are not larger than the count. False means that Fits must tell.
func (f *CountMin) FitAll(deltas []int64) bool {
	most := f.count
	for _, d := range deltas {
		if d < 0 || d > f.limit()-most || most < 0 {
			return false
		}
		most += d
	}
	return most <= f.limit()
}

// Fits reports whether a pair takes neither a cell nor the count out of range.
func (f *CountMin) Fits(item []byte, delta int64) bool {
	if v, ok := sum(f.count, delta); !ok || v < 0 {
		return false
	}
	for row := range f.opts.Depth {
		v := f.load(f.cellOf(item, row))
		if v, ok := sum(v, delta); !ok || v < 0 || v > f.limit() {
			return false
		}
	}
	return true
}

// FitTogether reports whether pairs, one after another, take no cell and not the count out of
// range; if not, at is the first that does.
func (f *CountMin) FitTogether(items [][]byte, deltas []int64) (at int, ok bool) {
	if f.FitAll(deltas) {
		return 0, true
	}
	count, cells := f.count, make(map[uint64]int64)
	for i, item := range items {
		var fits bool
		if count, fits = sum(count, deltas[i]); !fits || count < 0 {
			return i, false
		}
		for row := range f.opts.Depth {
			at := f.cellOf(item, row)
			v, changed := cells[at]
			if !changed {
				v = f.load(at)
			}
			if v, fits = sum(v, deltas[i]); !fits || v < 0 || v > f.limit() {
				return i, false
			}
			cells[at] = v
		}
	}
	return 0, true
}

// sum adds two integers; false if the result would overflow.
func sum(a, b int64) (int64, bool) {
	c := a + b
	return c, (c > a) == (b > 0)
}

// Estimate returns how often an item was counted, or more.
func (f *CountMin) Estimate(item []byte) int64 {
	least := int64(math.MaxInt64)
	for row := range f.opts.Depth {
		least = min(least, f.total(f.indexOf(item, row)))
	}
	return least
}

// AppendEstimates appends the estimates of items.
func (f *CountMin) AppendEstimates(dst []int64, items [][]byte) []int64 {
	var cells [ahead]uint64
	for depth := int(f.opts.Depth); len(items) > 0; {
		n := max(1, min(len(items), ahead/depth))
		if depth > ahead {
			dst, items = append(dst, f.Estimate(items[0])), items[1:]
			continue
		}
		for i, item := range items[:n] {
			f.touch(cells[i*depth:(i+1)*depth], item)
		}
		for i := range n {
			least := int64(math.MaxInt64)
			for _, index := range cells[i*depth : (i+1)*depth] {
				least = min(least, f.total(index))
			}
			dst = append(dst, least)
		}
		items = items[n:]
	}
	return dst
}

// ahead is how many cells are asked for before any of them is used, so that their cache
// misses overlap.
const ahead = 64

// touch finds an item's cells, one for each row, and asks for them.
func (f *CountMin) touch(cells []uint64, item []byte) {
	bytes, group := f.parts[0].cells, f.opts.panes()*f.opts.cell()
	for row := range cells {
		cells[row] = f.indexOf(item, uint64(row))
		f.lines += bytes[cells[row]*group]
	}
}

// indexOf is the number of an item's cell in a row.
func (f *CountMin) indexOf(item []byte, row uint64) uint64 {
	return row*f.opts.Width + uint64(murmur32(item, uint32(row)))%f.opts.Width
}

// at is the offset of a cell in a pane.
func (f *CountMin) at(index, pane uint64) uint64 {
	return (index*f.opts.panes() + pane) * f.opts.cell()
}

// cellOf is the offset of an item's cell in a row, that takes increments.
func (f *CountMin) cellOf(item []byte, row uint64) uint64 {
	return f.at(f.indexOf(item, row), f.newest)
}

// total is what a cell holds, in all panes but the spare.
func (f *CountMin) total(index uint64) (sum int64) {
	if !f.Windowed() {
		return f.load(index * f.opts.cell())
	}
	for pane, spare := uint64(0), f.spare(); pane < f.opts.panes(); pane++ {
		if pane != spare {
			sum += f.load(f.at(index, pane))
		}
	}
	return sum
}

// load reads a cell. Cells of 8 bytes hold at most the largest int64.
func (f *CountMin) load(at uint64) int64 {
	b := f.parts[0].cells[at:]
	switch f.opts.cell() {
	case 1:
		return int64(b[0])
	case 2:
		return int64(binary.LittleEndian.Uint16(b))
	case 4:
		return int64(binary.LittleEndian.Uint32(b))
	}
	return int64(binary.LittleEndian.Uint64(b))
}

func (f *CountMin) store(at uint64, v int64) { storeCell(f.parts[0].cells[at:], f.opts.cell(), v) }

func storeCell(b []byte, size uint64, v int64) {
	switch size {
	case 1:
		b[0] = byte(v)
	case 2:
		binary.LittleEndian.PutUint16(b, uint16(v))
	case 4:
		binary.LittleEndian.PutUint32(b, uint32(v))
	default:
		binary.LittleEndian.PutUint64(b, uint64(v))
	}
}

// The changes of a sketch: one of these bytes, then
//
//	countPairs    pairs that were applied: item bytes | delta v
//	countMerged   count v, then the pages that MERGE changed: number u | cells
//	countPane     pane u, then pairs that were applied to it
//	countEmptied  pane u, from u, to u: it was emptied in these pages, counted from 0
//	countTurned   logged time v: the spare is the newest pane since then
const (
	countPairs   = 1
	countMerged  = 2
	countPane    = 3
	countEmptied = 4
	countTurned  = 5
)

// AppendPairs appends the change that applies pairs, all of which fit.
func (f *CountMin) AppendPairs(dst []byte, items [][]byte, deltas []int64) []byte {
	if f.Windowed() {
		dst = binary.AppendUvarint(append(dst, countPane), f.newest)
	} else {
		dst = append(dst, countPairs)
	}
	for i, item := range items {
		dst = binary.AppendVarint(coding.AppendBytes(dst, item), deltas[i])
	}
	return dst
}

// Redo adds pairs, replaces pages, or turns panes.
func (f *CountMin) Redo(change []byte, seq uint64) error {
	r := coding.Reader{Rest: change}
	f.begin()
	switch kind := r.Byte(); {
	case kind == countPairs && !f.Windowed():
		f.pairs(&r, 0, seq)
	case kind == countPane && f.Windowed():
		f.pairs(&r, r.UpTo(f.opts.panes()-1), seq)
	case kind == countMerged && !f.Windowed():
		f.replace(&r, seq)
	case kind == countEmptied && f.Windowed():
		f.empty(&r, seq)
	case kind == countTurned && f.Windowed():
		f.turnPane(&r, seq)
	default:
		r.Fail()
	}
	if r.Bad {
		return fmt.Errorf("%w: change of a count-min sketch", ErrCorrupt)
	}
	return nil
}

// pairs adds pairs to the pages that lack them.
func (f *CountMin) pairs(r *coding.Reader, pane, seq uint64) {
	var cells [ahead]uint64
	var deltas [ahead]int64
	depth := int(f.opts.Depth)
	if depth > ahead {
		f.deepPairs(r, pane, seq)
		return
	}
	for len(r.Rest) > 0 {
		n := 0
		for ; n < ahead/depth && len(r.Rest) > 0; n++ {
			item := r.Bytes()
			if deltas[n] = r.Varint(); r.Bad {
				break
			}
			f.touch(cells[n*depth:(n+1)*depth], item)
		}
		for i := range n {
			if !f.add(cells[i*depth:(i+1)*depth], deltas[i], pane, seq) {
				r.Fail()
			}
		}
	}
}

// deepPairs is pairs for a sketch of very many rows.
func (f *CountMin) deepPairs(r *coding.Reader, pane, seq uint64) {
	cells := make([]uint64, f.opts.Depth)
	for len(r.Rest) > 0 {
		if item, delta := r.Bytes(), r.Varint(); !r.Bad {
			if f.touch(cells, item); !f.add(cells, delta, pane, seq) {
				r.Fail()
			}
		}
	}
}

// add adds to an item's cells in the pages that lack it; false if the count would be out of range.
func (f *CountMin) add(cells []uint64, delta int64, pane, seq uint64) bool {
	least := int64(math.MaxInt64)
	for _, index := range cells {
		at := f.at(index, pane)
		if f.takes(f.parts[0].pageAt(at), seq) {
			f.store(at, f.load(at)+delta)
		}
		if f.Answers != nil {
			least = min(least, f.total(index))
		}
	}
	if f.takes(0, seq) {
		count, ok := sum(f.count, delta)
		if f.count = count; f.Windowed() {
			f.counts[pane] += delta
			ok = ok && f.counts[pane] >= 0
		}
		if !ok || count < 0 {
			return false
		}
	}
	if f.Answers != nil {
		*f.Answers = append(*f.Answers, least)
	}
	return true
}

// AppendMerge appends the change that replaces the sketch by the sum of others of the same
// size and cells, each times its weight: the count, and the pages that differ. ErrMerge if a cell or
// the count of it, or what is summed on the way, is out of range.
func (f *CountMin) AppendMerge(dst []byte, sources []*CountMin, weights []int64) ([]byte, error) {
	var count int64
	for i, s := range sources {
		var ok bool
		if count, ok = addTimes(count, s.count, weights[i]); !ok {
			return dst, ErrMerge
		}
	}
	if count < 0 {
		return dst, ErrMerge
	}
	dst = binary.AppendVarint(append(dst, countMerged), count)
	size := f.opts.cell()
	made := make([]byte, 0, pageSize)
	for n := uint32(1); n < uint32(len(f.page)); n++ {
		old := f.of(n)
		made = made[:len(old)]
		for at := uint64(0); at < uint64(len(old)); at += size {
			var v int64
			ok := true
			for i := 0; i < len(sources) && ok; i++ {
				v, ok = addTimes(v, sources[i].total((uint64(n-1)*pageSize+at)/size), weights[i])
			}
			if !ok || v < 0 || v > f.limit() {
				return dst, ErrMerge
			}
			storeCell(made[at:], size, v)
		}
		if string(made) != string(old) {
			dst = append(binary.AppendUvarint(dst, uint64(n)), made...)
		}
	}
	return dst, nil
}

// addTimes returns v + n*weight; false if that overflows on the way.
func addTimes(v, n, weight int64) (int64, bool) {
	hi, lo := bits.Mul64(uint64(max(n, -n)), uint64(max(weight, -weight)))
	if hi != 0 || lo > math.MaxInt64 || n == math.MinInt64 || weight == math.MinInt64 && n != 0 {
		return 0, false
	}
	product := int64(lo)
	if (n < 0) != (weight < 0) {
		product = -product
	}
	return sum(v, product)
}

// InnerProduct is the least over the rows of the sum over the columns of the product of their
// cells: never less than the sum over all items of the product of their counts. False if it
// is no int64. The sketches are of the same size.
func (f *CountMin) InnerProduct(o *CountMin) (product int64, ok bool) {
	for row := range f.opts.Depth {
		if !f.Windowed() && !o.Windowed() && f.opts.cell() == 4 && o.opts.cell() == 4 {
			from, to := 4*row*f.opts.Width, 4*(row+1)*f.opts.Width
			if sum, fits := dot(f.parts[0].cells[from:to], o.parts[0].cells[from:to]); fits &&
				(!ok || sum < product) {
				product, ok = sum, true
			}
			continue
		}
		var hi, lo uint64
		for c := uint64(0); c < f.opts.Width && hi == 0; c++ {
			x, y := uint64(f.total(row*f.opts.Width+c)), uint64(o.total(row*f.opts.Width+c))
			if x == 0 || y == 0 {
				continue
			}
			var carry uint64
			high, low := bits.Mul64(x, y)
			lo, carry = bits.Add64(lo, low, 0)
			hi = high + carry // above 0, it can only grow
		}
		if sum := int64(lo); hi == 0 && sum >= 0 && (!ok || sum < product) {
			product, ok = sum, true
		}
	}
	return product, ok
}

// dot is the sum of the products of cells of 4 bytes; false if it is no int64.
func dot(a, b []byte) (int64, bool) {
	var sum, overflow uint64
	for i := 0; i+4 <= len(a) && i+4 <= len(b); i += 4 {
		product := uint64(binary.LittleEndian.Uint32(a[i:])) * uint64(binary.LittleEndian.Uint32(b[i:]))
		var carry uint64
		sum, carry = bits.Add64(sum, product, 0)
		overflow |= carry
	}
	return int64(sum), overflow == 0 && int64(sum) >= 0
}

// replace puts pages that a merge has made in their place.
func (f *CountMin) replace(r *coding.Reader, seq uint64) {
	count := r.Varint()
	if count < 0 {
		r.Fail()
	}
	if !r.Bad && f.takes(0, seq) {
		f.count = count
	}
	for len(r.Rest) > 0 {
		n := r.UpTo(math.MaxUint32)
		if n == 0 || n >= uint64(len(f.page)) || len(r.Rest) < len(f.of(uint32(n))) {
			r.Fail()
			return
		}
		cells := f.of(uint32(n))
		if f.takes(uint32(n), seq) {
			copy(cells, r.Rest)
		}
		r.Rest = r.Rest[len(cells):]
	}
}
