package store

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
)

// Bloom filters: an object that remembers items in sub-filters, each larger and more exact
// than the one before. Bits, sizes and the encoding are RedisBloom's, so that a filter can
// move from there and back, which without its items is the only way.
//
// A sub-filter for capacity items with error e has capacity*bpe bits, bpe = -ln(e)/ln(2)^2,
// rounded up to a multiple of 64. An item has ceil(ln(2)*bpe) bits in it: bit i is
// (a + i*b mod 2^64) mod bits, with a and b of MurmurHash64A. It is looked for in all
// sub-filters and added to the last one.

// The operations on Bloom filters; see Kind.
const (
	// BFReserve creates the filter Key. In: Key, Object: *BloomOptions.
	BFReserve Kind = firstBloomKind + iota
	// BFAdd adds Keys (items) to the filter Key in turn, creating it unless NoCreate, with
	// Object: *BloomOptions. Out: Founds[i] if item i was present before; Fulls[i] if it
	// was not added: the filter is NONSCALING and full (then Found is set, and the answers
	// end with this item), or cannot grow.
	BFAdd
	// BFLoad is LOADCHUNK: it creates the filter Key if Delta, the iterator, is 1 and there
	// is none, and otherwise writes into it. In: Key, Delta, Keys[0]: header or bits.
	BFLoad
	// BFExists tests Keys (items); a key that holds no filter has none. Out: Founds.
	BFExists
	// BFDump is SCANDUMP. In: Key, Delta: the iterator; Deltas[0]: bytes at most. Out:
	// Value: the next iterator; Object: []byte.
	BFDump
	// BFInfo describes the filter Key. Out: Object: *BloomInfo.
	BFInfo

	firstBloomKind = Kind(TypeBloom) * kindsPerType
)

// The refusals of operations on Bloom filters; see ErrOpIDSize. ErrFilterExists and
// ErrNoFilter are those of FBF keys.
var (
	ErrBloomData   = errors.New("received bad data")
	ErrBloomOffset = errors.New("invalid offset - no link found")
	ErrBloomChunk  = errors.New("invalid chunk - Too big for current filter")
)

// BloomOptions are the parameters of a Bloom filter. The caller keeps to their ranges.
type BloomOptions struct {
	Error      float64 // above 0 and below 1; above 0.25 it is 0.25
	Capacity   uint64  // of the first sub-filter, 1..2^30
	Expansion  uint32  // each sub-filter has so many times the capacity of the one before, 0..32768
	NonScaling bool    // there is one sub-filter only
}

// BloomInfo describes a Bloom filter.
type BloomInfo struct {
	Size       uint64 // items that were new
	Expansion  uint32
	NonScaling bool
	Filters    []SubFilter
}

// SubFilter is one sub-filter of a Bloom filter.
type SubFilter struct {
	Bytes    uint64
	Size     uint64 // items added to it
	Error    float64
	Hashes   uint32
	Capacity uint64
	bpe      float64 // bits per item
}

// The options of the encoded header.
const (
	bloomUnrounded  = 1 // bits are not a power of two
	bloomHash64     = 4
	bloomNonScaling = 8
)

const (
	bloomHeader = 20 // encoded header, bytes
	bloomSub    = 53 // … for each sub-filter
	// maxBloomHashes is what the least error makes, and maxBloomSubs more than enough for
	// each of them to have half the error of the one before.
	maxBloomHashes = 1100
	maxBloomSubs   = 1100
	maxBloomHeader = bloomHeader + maxBloomSubs*bloomSub
)

// newSubFilter returns an empty sub-filter; false if there can be none.
func newSubFilter(e float64, capacity uint64) (f SubFilter, ok bool) {
	if !(e > 0 && e < 1) {
		return f, false
	}
	bpe := -logOf(e) / 0.480453013918201
	size := math.Floor(float64(capacity) * bpe)
	if size > 8*maxPagedBytes {
		return f, false
	}
	bits := (max(uint64(size), 1) + 63) / 64 * 64
	return SubFilter{Bytes: bits / 8, Error: e, Hashes: uint32(math.Ceil(0.693147180559945 * bpe)), Capacity: capacity, bpe: bpe}, true
}

// logOf returns the natural logarithm, rounded correctly: others have the same in their
// headers, and math.Log is sometimes off by a bit.
func logOf(x float64) float64 {
	const prec = 128
	m, exp := math.Frexp(x)
	num := func(f float64) *big.Float { return new(big.Float).SetPrec(prec).SetFloat64(f) }
	// ln(m) = 2 * (z + z^3/3 + z^5/5 + ...), z = (m-1)/(m+1)
	z := num(m)
	z.Quo(z.Sub(z, num(1)), num(0).Add(num(m), num(1)))
	power, square, sum := num(0).Set(z), num(0).Mul(z, z), num(0)
	for k := 1.0; k < 80; k += 2 {
		sum.Add(sum, num(0).Quo(power, num(k)))
		power.Mul(power, square)
	}
	ln2, _ := num(0).SetString("0.693147180559945309417232121458176568075500134360255254")
	sum.Add(sum.Mul(sum, num(2)), ln2.Mul(ln2, num(float64(exp))))
	out, _ := sum.Float64()
	return out
}

// appendTo encodes a sub-filter as the header has it.
func (f *SubFilter) appendTo(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, f.Bytes)
	b = binary.LittleEndian.AppendUint64(b, 8*f.Bytes)
	b = binary.LittleEndian.AppendUint64(b, f.Size)
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(f.Error))
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(f.bpe))
	b = binary.LittleEndian.AppendUint32(b, f.Hashes)
	b = binary.LittleEndian.AppendUint64(b, f.Capacity)
	return append(b, 0) // bits are no power of two
}

// decodeSubFilter decodes bloomSub bytes, which a client may have made.
func decodeSubFilter(b []byte) (f SubFilter, ok bool) {
	u64 := binary.LittleEndian.Uint64
	f = SubFilter{
		Bytes: u64(b), Size: u64(b[16:]), Error: math.Float64frombits(u64(b[24:])), bpe: math.Float64frombits(u64(b[32:])),
		Hashes: binary.LittleEndian.Uint32(b[40:]), Capacity: u64(b[44:]),
	}
	return f, f.Bytes > 0 && f.Bytes <= maxPagedBytes && u64(b[8:]) == 8*f.Bytes && f.Error > 0 && f.Error < 1 && b[52] == 0 &&
		f.Hashes > 0 && f.Hashes <= maxBloomHashes && float64(f.Hashes) == math.Ceil(0.693147180559945*f.bpe)
}

// bloom is what a key of the type holds. Sub-filter i is part i of its pages; everything
// else is in the header page.
type bloom struct {
	pages
	size      uint64 // items that were new
	options   uint32
	expansion uint32
	subs      []SubFilter
}

// decodeBloomHeader makes a filter without bits of its header, which a client may have
// made. Its parts are to be added.
func decodeBloomHeader(b []byte) (*bloom, error) {
	if len(b) < bloomHeader || len(b) > maxBloomHeader {
		return nil, ErrBloomData
	}
	u32 := binary.LittleEndian.Uint32
	f := &bloom{size: binary.LittleEndian.Uint64(b), options: u32(b[12:]), expansion: u32(b[16:])}
	n := u32(b[8:])
	b = b[bloomHeader:]
	const known = bloomUnrounded | bloomHash64 | bloomNonScaling
	if n == 0 || uint64(len(b)) != uint64(n)*bloomSub || f.options&^known != 0 || f.options&bloomHash64 == 0 {
		return nil, ErrBloomData
	}
	size, all := f.size, uint64(0)
	for ; len(b) > 0; b = b[bloomSub:] {
		sub, ok := decodeSubFilter(b)
		if !ok || sub.Size > size || all+sub.Bytes > maxPagedBytes {
			return nil, ErrBloomData
		}
		size, all = size-sub.Size, all+sub.Bytes
		f.subs = append(f.subs, sub)
	}
	if size != 0 {
		return nil, ErrBloomData
	}
	return f, nil
}

// header encodes everything but the bits.
func (f *bloom) header() []byte {
	b := binary.LittleEndian.AppendUint64(nil, f.size)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(f.subs)))
	b = binary.LittleEndian.AppendUint32(b, f.options)
	b = binary.LittleEndian.AppendUint32(b, f.expansion)
	for i := range f.subs {
		b = f.subs[i].appendTo(b)
	}
	return b
}

// bloomType is the type of Bloom filters.
type bloomType struct{}

func (bloomType) kinds() []kind {
	return []kind{
		BFReserve - firstBloomKind: {is: writes, entries: 2, fields: bloomHeader + bloomSub, turn: (*decider).bloomReserve}, // also a tombstone
		// An item may need a sub-filter, too.
		BFAdd - firstBloomKind:    {is: writes | logsItems, entries: 2, fields: bloomHeader + bloomSub, turn: (*decider).bloomAdd},
		BFLoad - firstBloomKind:   {is: writes, entries: 1, turn: (*decider).bloomLoad},
		BFExists - firstBloomKind: {is: ofKeys, turn: (*decider).bloomExists},
		BFDump - firstBloomKind:   {is: ofKeys, turn: (*decider).bloomDump},
		BFInfo - firstBloomKind:   {is: ofKeys, turn: (*decider).bloomInfo},
	}
}

// create makes the filter that a header describes, without its bits.
func (bloomType) create(header []byte, _ moment) (object, error) {
	f, err := decodeBloomHeader(header)
	if err != nil {
		return nil, err
	}
	f.addParts()
	return f, nil
}

func (f *bloom) addParts() {
	for i := range f.subs {
		f.addPart(f.subs[i].Bytes)
	}
}

func (x *decider) bloomReserve(op *Op) error {
	r, f, err := objectAt[*bloom](x, op, TypeBloom)
	if err != nil {
		return err
	}
	if f != nil {
		return ErrFilterExists
	}
	return x.reserveBloom(r, op)
}

// reserveBloom logs the creation of a filter, if the memory is there.
func (x *decider) reserveBloom(r *ref, op *Op) error {
	o := BloomOptions{Error: 0.01, Capacity: 100, Expansion: 2}
	if p, _ := op.Object.(*BloomOptions); p != nil {
		o = *p
	}
	f := &bloom{options: bloomUnrounded | bloomHash64, expansion: o.Expansion}
	e := min(o.Error, 0.25)
	if o.NonScaling || o.Expansion == 0 {
		f.options |= bloomNonScaling
	} else {
		e /= 2
	}
	sub, ok := newSubFilter(e, o.Capacity)
	if !ok {
		return ErrOutOfMemory
	}
	f.subs = append(f.subs, sub)
	return x.createObject(r, TypeBloom, pagedBytes(sub.Bytes), f.header())
}

// bloomAdd adds the items that are new, one after another.
func (x *decider) bloomAdd(op *Op) error {
	r, f, err := objectAt[*bloom](x, op, TypeBloom)
	if err != nil {
		return err
	}
	x.beginLarge(r.p)
	if f == nil {
		if op.Flags&NoCreate != 0 {
			return ErrNoFilter
		}
		if err := x.reserveBloom(r, op); err != nil {
			return err
		}
		f = r.c.object().(*bloom)
	}
	for _, item := range op.Keys {
		a, b := bloomHashes(item)
		present := f.contains(a, b)
		full := !present && f.subs[len(f.subs)-1].isFull() && !x.growBloom(r, f)
		if !present && !full {
			last := len(f.subs) - 1
			x.control = binary.AppendUvarint(append(x.control[:0], bloomItems), uint64(last))
			x.control = binary.LittleEndian.AppendUint64(x.control, a)
			x.changeObject(r, binary.LittleEndian.AppendUint64(x.control, b), 0)
		}
		op.Founds, op.Fulls = append(op.Founds, present), append(op.Fulls, full)
		if full && f.options&bloomNonScaling != 0 {
			op.Found = true
			return nil
		}
	}
	return nil
}

func (f *SubFilter) isFull() bool { return f.Size >= f.Capacity }

// growBloom logs that a sub-filter is added; false if there cannot be one.
func (x *decider) growBloom(r *ref, f *bloom) bool {
	last := f.subs[len(f.subs)-1]
	if f.options&bloomNonScaling != 0 || len(f.subs) == maxBloomSubs || last.Capacity > math.MaxInt64/max(uint64(f.expansion), 1) {
		return false
	}
	next, ok := newSubFilter(last.Error/2, last.Capacity*uint64(f.expansion))
	if !ok || next.Bytes+f.bytes() > maxPagedBytes || x.reserveMore(entryRoom+len(r.key)+bloomSub) != nil {
		return false
	}
	pl := planner{pool: r.p.pool}
	if !pl.grant(pagedBytes(next.Bytes)) {
		return false
	}
	pl.settle()
	x.control = next.appendTo(append(x.control[:0], bloomGrows))
	x.changeObject(r, x.control, 0)
	return true
}

// bloomHashes returns a and b of an item.
func bloomHashes(item []byte) (a, b uint64) {
	a = murmur64(item, 0xc6a4a7935bd1e995)
	return a, murmur64(item, a)
}

// contains reports whether a sub-filter has all bits of an item, the newest first.
func (f *bloom) contains(a, b uint64) bool {
	for i := len(f.subs) - 1; i >= 0; i-- {
		if f.subs[i].has(f.parts[i].cells, a, b) {
			return true
		}
	}
	return false
}

func (f *SubFilter) has(bits []byte, a, b uint64) bool {
	for range f.Hashes {
		x := a % (8 * f.Bytes)
		if bits[x/8]>>(x%8)&1 == 0 {
			return false
		}
		a += b
	}
	return true
}

func (x *decider) bloomExists(op *Op) error {
	_, f, err := objectAt[*bloom](x, op, TypeBloom)
	for _, item := range op.Keys {
		op.Founds = append(op.Founds, err == nil && f != nil && f.contains(bloomHashes(item)))
	}
	return nil
}

func (x *decider) bloomInfo(op *Op) error {
	_, f, err := objectAt[*bloom](x, op, TypeBloom)
	if err != nil {
		return err
	}
	if f == nil {
		return ErrNoFilter
	}
	op.Object = &BloomInfo{
		Size: f.size, Expansion: f.expansion, NonScaling: f.options&bloomNonScaling != 0, Filters: append([]SubFilter(nil), f.subs...),
	}
	return nil
}

// locate finds the part that holds an offset in the bits of all sub-filters.
func (f *bloom) locate(offset uint64) (p *part, at uint64) {
	for i := range f.parts {
		p = &f.parts[i]
		if offset < uint64(len(p.cells)) {
			return p, offset
		}
		offset -= uint64(len(p.cells))
	}
	return nil, 0
}

// bloomDump answers the header for iterator 0, and bits for the others, the end of which
// the next iterator says.
func (x *decider) bloomDump(op *Op) error {
	_, f, err := objectAt[*bloom](x, op, TypeBloom)
	if err != nil {
		return err
	}
	if f == nil {
		return ErrNoFilter
	}
	op.Value, op.Object = 0, []byte{}
	if op.Delta == 0 {
		op.Value, op.Object = 1, f.header()
	}
	if op.Delta <= 0 {
		return nil
	}
	if p, at := f.locate(uint64(op.Delta - 1)); p != nil {
		n := min(uint64(len(p.cells))-at, uint64(max(op.Deltas[0], 1)))
		op.Value, op.Object = op.Delta+int64(n), append([]byte(nil), p.cells[at:at+n]...)
	}
	return nil
}

// bloomLoad is LOADCHUNK.
func (x *decider) bloomLoad(op *Op) error {
	r, f, err := objectAt[*bloom](x, op, TypeBloom)
	data := op.Keys[0]
	switch {
	case err != nil:
		return err
	case f == nil && op.Delta != 1:
		return ErrNoFilter
	case f == nil:
		return x.loadBloomHeader(r, data)
	case op.Delta <= 0 || op.Delta-1 < int64(len(data)):
		return ErrBloomData
	}
	offset := uint64(op.Delta) - 1 - uint64(len(data))
	p, at := f.locate(offset)
	if p == nil {
		return ErrBloomOffset
	}
	if uint64(len(data)) > uint64(len(p.cells))-at {
		return ErrBloomChunk
	}
	what := binary.AppendUvarint([]byte{bloomBits}, offset)
	return x.changeLarge(r, append(what, data...))
}

func (x *decider) loadBloomHeader(r *ref, header []byte) error {
	f, err := decodeBloomHeader(header)
	if err != nil {
		return err
	}
	var n uint64
	for i := range f.subs {
		n += pagedBytes(f.subs[i].Bytes)
	}
	if err := x.reserveMore(2 * (entryRoom + len(header) + len(r.key))); err != nil {
		return err
	}
	if err = x.createObject(r, TypeBloom, n, header); err == ErrOutOfMemory {
		err = ErrBloomData
	}
	return err
}

// What is logged of a filter: one of these bytes, then
//
//	bloomItems  sub-filter u, then a and b, 8 bytes each, of items that were new
//	bloomGrows  a sub-filter that is added, as in the header
//	bloomBits   offset u, then the bits that are put there
const (
	bloomItems = 1
	bloomGrows = 2
	bloomBits  = 3
)

// redo adds items or a sub-filter, or writes bits.
func (f *bloom) redo(c change) error {
	r := reader{rest: c.what}
	f.begin()
	switch r.byte() {
	case bloomItems:
		n := r.uvarint()
		if r.err != nil || n >= uint64(len(f.subs)) || len(r.rest)%16 != 0 {
			return fmt.Errorf("%w: items of a filter", errCorruptEntry)
		}
		for ; len(r.rest) > 0; r.rest = r.rest[16:] {
			f.add(int(n), binary.LittleEndian.Uint64(r.rest), binary.LittleEndian.Uint64(r.rest[8:]), c.seq)
		}
		return nil
	case bloomGrows:
		if len(r.rest) != bloomSub {
			return fmt.Errorf("%w: growth of a filter", errCorruptEntry)
		}
		sub, ok := decodeSubFilter(r.rest)
		if !ok || len(f.subs) > maxBloomSubs {
			return fmt.Errorf("%w: growth of a filter", errCorruptEntry)
		}
		if f.takes(0, c.seq) {
			f.subs = append(f.subs, sub)
			f.addPart(sub.Bytes)
		}
		return nil
	case bloomBits:
		offset := r.uvarint()
		p, at := f.locate(offset)
		if r.err != nil || p == nil || uint64(len(r.rest)) > uint64(len(p.cells))-at {
			return fmt.Errorf("%w: bits of a filter", errCorruptEntry)
		}
		for len(r.rest) > 0 {
			n := min(uint64(len(r.rest)), pageSize-at%pageSize)
			if f.takes(p.pageAt(at), c.seq) {
				copy(p.cells[at:], r.rest[:n])
			}
			at, r.rest = at+n, r.rest[n:]
		}
		return nil
	}
	return fmt.Errorf("%w: unknown change of a filter", errCorruptEntry)
}

// add sets the bits of a new item in the pages that lack it.
func (f *bloom) add(n int, a, b, seq uint64) {
	sub, p := &f.subs[n], &f.parts[n]
	if f.takes(0, seq) {
		sub.Size++
		f.size++
	}
	for range sub.Hashes {
		x := a % (8 * sub.Bytes)
		if f.takes(p.pageAt(x/8), seq) {
			p.cells[x/8] |= 1 << (x % 8)
		}
		a += b
	}
}

func (f *bloom) inPages() *pages { return &f.pages }

func (f *bloom) open(header []byte) error {
	g, err := decodeBloomHeader(header)
	if err == nil {
		f.size, f.options, f.expansion, f.subs = g.size, g.options, g.expansion, g.subs
		f.addParts()
	}
	return err
}

// encode writes no options: what the filter was made with is in its header page.
func (f *bloom) encode(*partition) io.Reader { return f.pages.encode(nil) }

func (bloomType) decode(in *bufio.Reader, _ uint64) (object, error) {
	created, _, err := decodePaged(in, 0)
	if err != nil {
		return nil, err
	}
	return &bloom{pages: pages{created: created, missing: true}}, nil
}

func (f *bloom) due(int64) bool             { return false }
func (f *bloom) upkeep(*decider, *ref) bool { return true }
func (f *bloom) release()                   {}
