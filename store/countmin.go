package store

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
)

// Count-min sketches: an object that counts items in width times depth cells. An item has
// one cell in each row, at MurmurHash2(item, row) mod width, and its estimate is the least
// of them: never less than the truth.

// The operations on count-min sketches; see Kind.
const (
	// CMSInit creates the sketch Key. In: Key, Object: *SketchOptions.
	CMSInit Kind = firstCountMinKind + iota
	// CMSIncrBy adds Deltas[i] to the items Keys[i] of the sketch Key, in turn. Out:
	// Values, the estimates; Fulls[i] if the pair would have taken a cell, or the count,
	// beyond its limit, or a cell below 0: then it has changed nothing.
	CMSIncrBy
	// CMSMerge replaces the sketch Keys[0] by the sum of the other Keys, each times its
	// weight in Deltas.
	CMSMerge
	// CMSQuery estimates the items Keys of the sketch Key. Out: Values.
	CMSQuery
	// CMSInfo describes the sketch Key. Out: Object: *SketchInfo.
	CMSInfo

	firstCountMinKind = Kind(TypeCountMin) * kindsPerType
)

// The refusals of operations on count-min sketches; see ErrOpIDSize.
var (
	ErrSketchExists  = errors.New("CMS: key already exists")
	ErrNoSketch      = errors.New("CMS: key does not exist")
	ErrSketchSize    = errors.New("CMS: width/depth is not equal")
	ErrSketchOptions = errors.New("CMS: invalid init arguments")
	ErrSketchMerge   = errors.New("CMS: MERGE overflow")
)

// SketchOptions are the parameters of a count-min sketch.
type SketchOptions struct {
	Width uint64 // cells of a row, at least 1
	Depth uint64 // rows, at least 1
	Cell  uint64 // bytes of a cell: 1, 2, 4 or 8; 0: 4, and nobody asked for it
}

// Validate reports that a parameter is out of range.
func (o SketchOptions) Validate() error {
	hi, cells := bits.Mul64(o.Width, o.Depth)
	switch o.Cell {
	case 0, 1, 2, 4, 8:
	default:
		return ErrSketchOptions
	}
	if hi != 0 || cells == 0 || cells > math.MaxInt64 {
		return ErrSketchOptions
	}
	return nil
}

// cell is the size of a cell, bytes.
func (o SketchOptions) cell() uint64 {
	if o.Cell == 0 {
		return 4
	}
	return o.Cell
}

// cellBytes is the size of all cells; false if it is too large.
func (o SketchOptions) cellBytes() (uint64, bool) {
	hi, n := bits.Mul64(o.Width*o.Depth, o.cell())
	return n, hi == 0 && n <= maxPagedBytes
}

func (o SketchOptions) encode() []byte {
	b := binary.AppendUvarint(nil, o.Width)
	b = binary.AppendUvarint(b, o.Depth)
	return binary.AppendUvarint(b, o.Cell)
}

// maxSketchOptions bounds encoded SketchOptions, bytes.
const maxSketchOptions = 3 * binary.MaxVarintLen64

func decodeSketchOptions(b []byte) (o SketchOptions, err error) {
	r := reader{rest: b}
	o = SketchOptions{Width: r.uvarint(), Depth: r.uvarint(), Cell: r.uvarint()}
	if r.end(); r.err != nil {
		return o, r.err
	}
	if err := o.Validate(); err != nil {
		return o, fmt.Errorf("%w: %v", errCorruptEntry, err)
	}
	if _, ok := o.cellBytes(); !ok {
		return o, fmt.Errorf("%w: a sketch of too many cells", errCorruptEntry)
	}
	return o, nil
}

// SketchInfo describes a count-min sketch.
type SketchInfo struct {
	SketchOptions
	Count int64 // sum of all increments
}

// countMinType is the type of count-min sketches.
type countMinType struct{}

func (countMinType) kinds() []kind {
	return []kind{
		CMSInit - firstCountMinKind:   {is: writes, entries: 2, fields: maxSketchOptions, turn: (*decider).sketchInit}, // also a tombstone
		CMSIncrBy - firstCountMinKind: {is: writes | logsItems, entries: 1, turn: (*decider).sketchIncrBy},
		CMSMerge - firstCountMinKind:  {is: writes | manyKeys, entries: 1, turn: (*decider).sketchMerge},
		CMSQuery - firstCountMinKind:  {is: ofKeys, turn: (*decider).sketchQuery},
		CMSInfo - firstCountMinKind:   {is: ofKeys, turn: (*decider).sketchInfo},
	}
}

// countMin is what a key of the type holds.
type countMin struct {
	pages
	opts  SketchOptions
	count int64 // sum of all increments; in the header page
	// answers, if not nil, take the estimates while decide has pairs redone.
	answers *[]int64
}

func (countMinType) create(options []byte, _ moment) (object, error) {
	o, err := decodeSketchOptions(options)
	if err != nil {
		return nil, err
	}
	f := &countMin{opts: o}
	f.addCells()
	return f, nil
}

func (f *countMin) addCells() {
	n, _ := f.opts.cellBytes()
	f.addPart(n)
}

// sketchAt finds the sketch under a key.
func sketchAt(x *decider, r *ref) (*countMin, error) {
	f, err := objectOf[*countMin](x, r, TypeCountMin)
	if err == nil && f == nil {
		err = ErrNoSketch
	}
	return f, err
}

func (x *decider) sketchInit(op *Op) error {
	r := &x.of(op)[0]
	if r.c.alive(x.wall) {
		return ErrSketchExists
	}
	var o SketchOptions
	if p, _ := op.Object.(*SketchOptions); p != nil {
		o = *p
	}
	if err := o.Validate(); err != nil {
		return err
	}
	n, ok := o.cellBytes()
	if !ok {
		return ErrOutOfMemory
	}
	return x.createObject(r, TypeCountMin, pagedBytes(n), o.encode())
}

func (x *decider) sketchQuery(op *Op) error {
	f, err := sketchAt(x, &x.of(op)[0])
	if err != nil {
		return err
	}
	for _, item := range op.Keys {
		op.Values = append(op.Values, f.estimate(item))
	}
	return nil
}

func (x *decider) sketchInfo(op *Op) error {
	f, err := sketchAt(x, &x.of(op)[0])
	if err == nil {
		op.Object = &SketchInfo{f.opts, f.count}
	}
	return err
}

// sketchIncrBy logs the pairs that overflow nothing, in their order. Cells are not larger
// than the count, so that usually one look at it is enough for all of them.
func (x *decider) sketchIncrBy(op *Op) error {
	r := &x.of(op)[0]
	f, err := sketchAt(x, r)
	if err != nil {
		return err
	}
	x.beginLarge(r.p)
	f.answers = &op.Values
	defer func() { f.answers = nil }()
	if f.fitAll(op.Deltas) {
		op.Fulls = append(op.Fulls, make([]bool, len(op.Keys))...)
		return x.logPairs(r, op.Keys, op.Deltas)
	}
	for i, item := range op.Keys {
		full := !f.fits(item, op.Deltas[i])
		if op.Fulls = append(op.Fulls, full); full {
			op.Values = append(op.Values, 0)
			continue
		}
		if err := x.logPairs(r, op.Keys[i:i+1], op.Deltas[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// logPairs logs pairs that fit.
func (x *decider) logPairs(r *ref, items [][]byte, deltas []int64) error {
	x.control = append(x.control[:0], sketchPairs)
	for i, item := range items {
		x.control = binary.AppendVarint(appendBytes(x.control, item), deltas[i])
	}
	if len(x.control) <= maxChange {
		x.changeObject(r, x.control, 0)
		return nil
	}
	return x.changeLarge(r, x.control)
}

// limit is the largest number that fits into a cell.
func (f *countMin) limit() int64 {
	if c := f.opts.cell(); c < 8 {
		return 1<<(8*c) - 1
	}
	return math.MaxInt64
}

// fitAll reports whether no pair can overflow, whatever the items.
func (f *countMin) fitAll(deltas []int64) bool {
	most := f.count
	for _, d := range deltas {
		if d < 0 || d > f.limit()-most || most < 0 {
			return false
		}
		most += d
	}
	return most <= f.limit()
}

// fits reports whether a pair takes neither a cell nor the count out of range.
func (f *countMin) fits(item []byte, delta int64) bool {
	if _, ok := sum(f.count, delta); !ok || f.count+delta < 0 {
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

func (f *countMin) estimate(item []byte) int64 {
	least := int64(math.MaxInt64)
	for row := range f.opts.Depth {
		least = min(least, f.load(f.cellOf(item, row)))
	}
	return least
}

// cellOf is the offset of an item's cell in a row.
func (f *countMin) cellOf(item []byte, row uint64) uint64 {
	return (row*f.opts.Width + uint64(murmur32(item, uint32(row)))%f.opts.Width) * f.opts.cell()
}

// load reads a cell. Cells of 8 bytes hold at most the largest int64.
func (f *countMin) load(at uint64) int64 {
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

func (f *countMin) store(at uint64, v int64) { storeCell(f.parts[0].cells[at:], f.opts.cell(), v) }

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

// What is logged of a sketch: one of these bytes, then
//
//	sketchPairs   pairs that were applied: item bytes | delta v
//	sketchMerged  count v, then the pages that MERGE changed: number u | cells
const (
	sketchPairs  = 1
	sketchMerged = 2
)

// redo adds pairs, or replaces pages. That they fit was decided before.
func (f *countMin) redo(c change) error {
	r := reader{rest: c.what}
	f.begin()
	switch r.byte() {
	case sketchPairs:
		for len(r.rest) > 0 && r.err == nil {
			item, delta := r.bytes(), r.varint()
			if r.err == nil {
				f.add(item, delta, c.seq)
			}
		}
		return r.err
	case sketchMerged:
		return f.replace(&r, c.seq)
	}
	return fmt.Errorf("%w: unknown change of a sketch", errCorruptEntry)
}

// add adds a pair to the pages that lack it.
func (f *countMin) add(item []byte, delta int64, seq uint64) {
	least := int64(math.MaxInt64)
	for row := range f.opts.Depth {
		at := f.cellOf(item, row)
		if f.takes(f.parts[0].pageAt(at), seq) {
			f.store(at, f.load(at)+delta)
		}
		least = min(least, f.load(at))
	}
	if f.takes(0, seq) {
		f.count += delta
	}
	if f.answers != nil {
		*f.answers = append(*f.answers, least)
	}
}

// replace puts pages that MERGE has made in their place.
func (f *countMin) replace(r *reader, seq uint64) error {
	count := r.varint()
	if r.err == nil && f.takes(0, seq) {
		f.count = count
	}
	for len(r.rest) > 0 && r.err == nil {
		n := r.upTo(math.MaxUint32)
		if n == 0 || n >= uint64(len(f.page)) || len(r.rest) < len(f.of(uint32(n))) {
			r.fail()
			break
		}
		cells := f.of(uint32(n))
		if f.takes(uint32(n), seq) {
			copy(cells, r.rest)
		}
		r.rest = r.rest[len(cells):]
	}
	return r.err
}

// sketchMerge logs the pages that the sum of the sources changes: the sources may be in
// other partitions, of which redo knows nothing.
func (x *decider) sketchMerge(op *Op) error {
	refs := x.of(op)
	f, err := sketchAt(x, &refs[0])
	if err != nil {
		return err
	}
	sources := make([]*countMin, len(refs)-1)
	var count int64
	for i := range sources {
		s, err := sketchAt(x, &refs[i+1])
		if err != nil {
			return err
		}
		if s.opts.Width != f.opts.Width || s.opts.Depth != f.opts.Depth || s.opts.cell() != f.opts.cell() {
			return ErrSketchSize
		}
		var ok bool
		if count, ok = addTimes(count, s.count, op.Deltas[i]); !ok {
			return ErrSketchMerge
		}
		sources[i] = s
	}
	if count < 0 {
		return ErrSketchMerge
	}
	what := binary.AppendVarint([]byte{sketchMerged}, count)
	if what, err = f.merged(what, sources, op.Deltas); err != nil {
		return err
	}
	return x.changeLarge(&refs[0], what)
}

// merged appends the pages of a weighted sum that differ from the sketch's.
func (f *countMin) merged(dst []byte, sources []*countMin, weights []int64) ([]byte, error) {
	size := f.opts.cell()
	made := make([]byte, 0, pageSize)
	for n := uint32(1); n < uint32(len(f.page)); n++ {
		old := f.of(n)
		made = made[:len(old)]
		for at := uint64(0); at < uint64(len(old)); at += size {
			var v int64
			ok := true
			for i := 0; i < len(sources) && ok; i++ {
				v, ok = addTimes(v, sources[i].load(uint64(n-1)*pageSize+at), weights[i])
			}
			if !ok || v < 0 || v > f.limit() {
				return dst, ErrSketchMerge
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

func (f *countMin) inPages() *pages { return &f.pages }

func (f *countMin) header() []byte { return binary.AppendVarint(nil, f.count) }

func (f *countMin) open(header []byte) error {
	r := reader{rest: header}
	f.count = r.varint()
	if r.end(); r.err == nil {
		f.addCells()
	}
	return r.err
}

func (f *countMin) encode(*partition) io.Reader { return f.pages.encode(f.opts.encode()) }

func (countMinType) decode(in *bufio.Reader, _ uint64) (object, error) {
	created, options, err := decodePaged(in, maxSketchOptions)
	if err != nil {
		return nil, err
	}
	f := &countMin{pages: pages{created: created, missing: true}}
	f.opts, err = decodeSketchOptions(options)
	return f, err
}

func (f *countMin) due(int64) bool             { return false }
func (f *countMin) upkeep(*decider, *ref) bool { return true }
func (f *countMin) release()                   {}
