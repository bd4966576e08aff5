package sketch

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"

	"github.com/fbfkv/fbfkv/store/coding"
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
//
// A sub-filter for Capacity items with probability Error has Capacity*bpe bits,
// bpe = -ln(Error)/ln(2)^2, rounded up to a multiple of 64. An item has Hashes bits in it,
// ceil(ln(2)*bpe): bit i is (a + i*b mod 2^64) mod bits, with a and b of HashItem.
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
	// maxBloomSubs is more than enough for each of them to have half the error of the one before.
	maxBloomSubs   = 1100
	maxBloomHeader = bloomHeader + maxBloomSubs*bloomSub
	// maxBloomCapacity bounds the first sub-filter, and maxBloomExpansion the growth.
	maxBloomCapacity  = 1 << 30
	maxBloomExpansion = 32768
	// NewBloomBytes is the length of what AppendBloom writes, and GrowthBytes of what
	// AppendGrowth does.
	NewBloomBytes = bloomHeader + bloomSub
	GrowthBytes   = 1 + bloomSub
)

// newSubFilter returns an empty sub-filter; false if there can be none.
func newSubFilter(e float64, capacity uint64) (f SubFilter, ok bool) {
	if !(e > 0 && e < 1) {
		return f, false
	}
	bpe := -logOf(e) / 0.480453013918201
	bytes, ok := subFilterBytes(capacity, bpe)
	return SubFilter{Bytes: bytes, Error: e, Hashes: hashesFor(bpe), Capacity: capacity, bpe: bpe}, ok
}

// subFilterBytes is the size of a sub-filter's bits; false if it is too large.
func subFilterBytes(capacity uint64, bpe float64) (bytes uint64, ok bool) {
	size := math.Floor(float64(capacity) * bpe)
	if !(size <= 8*MaxBytes) {
		return 0, false
	}
	return (max(uint64(size), 1) + 63) / 64 * 8, true
}

func hashesFor(bpe float64) uint32 { return uint32(math.Ceil(0.693147180559945 * bpe)) }

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

// decodeSubFilter decodes bloomSub bytes, which a client may have made: false if no filter has
// such a sub-filter. Other implementations compute bpe with another logarithm, which may differ
// in its last bits; everything else follows from bpe exactly.
func decodeSubFilter(b []byte) (f SubFilter, ok bool) {
	u64 := binary.LittleEndian.Uint64
	f = SubFilter{
		Bytes: u64(b), Size: u64(b[16:]), Error: math.Float64frombits(u64(b[24:])),
		bpe:    math.Float64frombits(u64(b[32:])),
		Hashes: binary.LittleEndian.Uint32(b[40:]), Capacity: u64(b[44:]),
	}
	if !(f.Error > 0 && f.Error < 1) || f.Capacity < 1 || f.Capacity > math.MaxInt64 || f.Size > f.Capacity ||
		b[52] != 0 {
		return f, false
	}
	m, exp := math.Frexp(f.Error) // math.Log of a denormal number is wrong on some machines
	bpe := -(math.Log(m) + float64(exp)*math.Ln2) / 0.480453013918201
	if !(math.Abs(f.bpe-bpe) <= bpe*1e-12) || f.Hashes != hashesFor(f.bpe) {
		return f, false
	}
	bytes, ok := subFilterBytes(f.Capacity, f.bpe)
	return f, ok && f.Bytes == bytes && u64(b[8:]) == 8*bytes
}

// mayFollow reports whether BF.RESERVE can make sub as the first sub-filter, or growth as the
// next one. It is the check of every way in: a header that a client, a page or the log brings,
// and a change that adds a sub-filter. What it accepts it accepts again after any change of the
// filter, so that a checkpoint never writes a header that cannot be loaded.
//
// Old versions of RedisBloom take an error above 0.25, and less than half the error before.
func (f *Bloom) mayFollow(sub *SubFilter) bool {
	if len(f.subs) == 0 {
		return sub.Capacity <= maxBloomCapacity
	}
	last := &f.subs[len(f.subs)-1]
	return !f.NonScaling() && len(f.subs) < maxBloomSubs && last.Size == last.Capacity &&
		sub.Error <= last.Error/2 &&
		last.Capacity <= math.MaxInt64/uint64(f.expansion) &&
		sub.Capacity == last.Capacity*uint64(f.expansion)
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

func (f *SubFilter) set(bits []byte, a, b uint64) {
	for range f.Hashes {
		x := a % (8 * f.Bytes)
		bits[x/8] |= 1 << (x % 8)
		a += b
	}
}

// Bloom is a Bloom filter that grows: it remembers items in sub-filters, each larger and
// more exact than the one before. An item is looked for in all of them and added to the last
// one. Sub-filter i is part i of its pages; everything else is in the header page. The zero
// value is unloaded: LoadPage is to follow.
type Bloom struct {
	Pages
	size      uint64 // items that were new
	options   uint32
	expansion uint32
	subs      []SubFilter
}

// AppendBloom appends the header of an empty filter, of which NewBloom makes it; false if
// it would be too large.
func AppendBloom(dst []byte, o BloomOptions) (header []byte, ok bool) {
	f := &Bloom{options: bloomUnrounded | bloomHash64, expansion: o.Expansion}
	e := min(o.Error, 0.25)
	if o.NonScaling || o.Expansion == 0 {
		f.options |= bloomNonScaling
	} else {
		e /= 2
	}
	sub, ok := newSubFilter(e, o.Capacity)
	f.subs = append(f.subs, sub)
	return append(dst, f.header()...), ok
}

// NewBloom makes the filter that a header describes, without its bits.
func NewBloom(header []byte) (*Bloom, error) {
	f := new(Bloom)
	if err := f.open(header); err != nil {
		return nil, err
	}
	return f, nil
}

// UnloadedBloom returns a filter without its bits: what can be known from its header, which a
// client may have made.
func UnloadedBloom(header []byte) (*Bloom, error) {
	b := header
	if len(b) < bloomHeader || len(b) > maxBloomHeader {
		return nil, ErrCorrupt
	}
	u32 := binary.LittleEndian.Uint32
	f := &Bloom{size: binary.LittleEndian.Uint64(b), options: u32(b[12:]), expansion: u32(b[16:])}
	n := u32(b[8:])
	b = b[bloomHeader:]
	const known = bloomUnrounded | bloomHash64 | bloomNonScaling
	if n == 0 || uint64(len(b)) != uint64(n)*bloomSub || f.options&^known != 0 ||
		f.options&bloomHash64 == 0 ||
		f.expansion > maxBloomExpansion || f.expansion == 0 && !f.NonScaling() {
		return nil, ErrCorrupt
	}
	size, all := f.size, uint64(0)
	for ; len(b) > 0; b = b[bloomSub:] {
		sub, ok := decodeSubFilter(b)
		if !ok || !f.mayFollow(&sub) || sub.Size > size || all+sub.Bytes > MaxBytes {
			return nil, ErrCorrupt
		}
		size, all = size-sub.Size, all+sub.Bytes
		f.subs = append(f.subs, sub)
	}
	if size != 0 {
		return nil, ErrCorrupt
	}
	return f, nil
}

func (f *Bloom) header() []byte {
	b := binary.LittleEndian.AppendUint64(nil, f.size)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(f.subs)))
	b = binary.LittleEndian.AppendUint32(b, f.options)
	b = binary.LittleEndian.AppendUint32(b, f.expansion)
	for i := range f.subs {
		b = f.subs[i].appendTo(b)
	}
	return b
}

func (f *Bloom) open(header []byte) error {
	g, err := UnloadedBloom(header)
	if err != nil {
		return err
	}
	*f = *g
	for i := range f.subs {
		f.addPart(f.subs[i].Bytes)
	}
	return nil
}

// Options returns nothing: what the filter was made with is in its header.
func (f *Bloom) Options() []byte { return nil }

// Info describes the filter.
func (f *Bloom) Info() *BloomInfo {
	return &BloomInfo{Size: f.size, Expansion: f.expansion, NonScaling: f.NonScaling(),
		Filters: append([]SubFilter(nil), f.subs...)}
}

// NonScaling reports whether the filter does not grow.
func (f *Bloom) NonScaling() bool { return f.options&bloomNonScaling != 0 }

// Contains reports whether a sub-filter has all bits of the item with these hashes.
func (f *Bloom) Contains(a, b uint64) bool {
	for i := len(f.subs) - 1; i >= 0; i-- { // most are in the newest
		if f.subs[i].has(f.parts[i].cells, a, b) {
			return true
		}
	}
	return false
}

// Needs is the memory that the filter takes once it has its bits.
func (f *Bloom) Needs() (n uint64) {
	for i := range f.subs {
		n += memoryOf(f.subs[i].Bytes)
	}
	return n
}

// Room is how many items the last sub-filter still takes.
func (f *Bloom) Room() uint64 {
	last := &f.subs[len(f.subs)-1]
	return last.Capacity - min(last.Size, last.Capacity)
}

// Next returns the sub-filters that are to follow the last one, so that there is room for n
// more items, and the memory that they take; false if there cannot be that many.
func (f *Bloom) Next(n uint64) (next []SubFilter, bytes uint64, ok bool) {
	last, all := f.subs[len(f.subs)-1], f.Needs()
	for room := f.Room(); room < n; room += last.Capacity {
		if f.NonScaling() || len(f.subs)+len(next) >= maxBloomSubs ||
			last.Capacity > math.MaxInt64/max(uint64(f.expansion), 1) {
			return nil, 0, false
		}
		if last, ok = newSubFilter(last.Error/2, last.Capacity*uint64(f.expansion)); !ok {
			return nil, 0, false
		}
		next, bytes = append(next, last), bytes+memoryOf(last.Bytes)
		if bytes+all > MaxBytes {
			return nil, 0, false
		}
	}
	return next, bytes, true
}

// The changes of a filter: one of these bytes, then
//
//	bloomItems  sub-filter u, then a and b, 8 bytes each, of items that were new
//	bloomGrows  a sub-filter that is added, as in the header
//	bloomBits   offset u, then the bits that are put there
const (
	bloomItems = 1
	bloomGrows = 2
	bloomBits  = 3
)

// AppendItems begins the change that adds items to the last sub-filter, which has room for
// them; AppendItem appends one to it.
func (f *Bloom) AppendItems(dst []byte) []byte {
	return binary.AppendUvarint(append(dst, bloomItems), uint64(len(f.subs)-1))
}

// AppendItem appends an item to a change that AppendItems has begun.
func AppendItem(dst []byte, a, b uint64) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(dst, a), b)
}

// SetAhead sets the bits of an item in the last sub-filter, so that Contains knows it before
// the change that adds it is redone. That must follow, without anything in between.
func (f *Bloom) SetAhead(a, b uint64) {
	n := len(f.subs) - 1
	f.subs[n].set(f.parts[n].cells, a, b)
}

// AppendGrowth appends the change that adds a sub-filter.
func AppendGrowth(dst []byte, next SubFilter) []byte { return next.appendTo(append(dst, bloomGrows)) }

// Redo adds items or a sub-filter, or writes bits.
func (f *Bloom) Redo(change []byte, seq uint64) error {
	r := coding.Reader{Rest: change}
	f.begin()
	switch r.Byte() {
	case bloomItems:
		n := r.Uvarint()
		if r.Bad || n >= uint64(len(f.subs)) || len(r.Rest)%16 != 0 {
			return fmt.Errorf("%w: items of a filter", ErrCorrupt)
		}
		for ; len(r.Rest) > 0; r.Rest = r.Rest[16:] {
			if !f.add(int(n), binary.LittleEndian.Uint64(r.Rest), binary.LittleEndian.Uint64(r.Rest[8:]),
				seq) {
				return fmt.Errorf("%w: more items than a sub-filter takes", ErrCorrupt)
			}
		}
		return nil
	case bloomGrows:
		if len(r.Rest) != bloomSub {
			return fmt.Errorf("%w: growth of a filter", ErrCorrupt)
		}
		sub, ok := decodeSubFilter(r.Rest)
		if !ok || sub.Size != 0 {
			return fmt.Errorf("%w: growth of a filter", ErrCorrupt)
		}
		if f.takes(0, seq) {
			if !f.mayFollow(&sub) || f.Needs()+memoryOf(sub.Bytes) > MaxBytes {
				return fmt.Errorf("%w: growth of a filter", ErrCorrupt)
			}
			f.subs = append(f.subs, sub)
			f.addPart(sub.Bytes)
		}
		return nil
	case bloomBits:
		return f.putBits(&r, seq)
	}
	return fmt.Errorf("%w: unknown change of a filter", ErrCorrupt)
}

// add sets the bits of a new item in the pages that lack it; false if there is no room.
func (f *Bloom) add(n int, a, b, seq uint64) bool {
	sub, p := &f.subs[n], &f.parts[n]
	if f.takes(0, seq) {
		if sub.Size >= sub.Capacity {
			return false
		}
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
	return true
}
