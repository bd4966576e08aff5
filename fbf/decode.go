package fbf

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/bits"

	"github.com/fbfkv/fbfkv/fbf/internal/frame"
)

// Decode reads exactly one filter's encoding from r. It takes at most maxBytes
// for the segments, and nothing from a length it has not checked. Damage is
// ErrCorrupt; errors of r itself are passed on.
func Decode(r io.Reader, maxBytes uint64) (*Filter, error) {
	payload, sum, err := frame.ReadHeader(r, magic, encodingVersion)
	if err != nil {
		return nil, frame.Verdict(err, ErrCorrupt)
	}
	f, err := decodeHeader(payload, maxBytes)
	if err != nil {
		return nil, err
	}
	for _, s := range f.segs {
		if err := f.take(s); err != nil {
			f.Release()
			return nil, err
		}
		if sum, err = s.readBits(r, sum); err != nil {
			f.Release()
			return nil, frame.Verdict(err, ErrCorrupt)
		}
	}
	f.asked = f.clock
	f.schedule()
	return f, nil
}

// take gives a decoded segment its memory.
func (f *Filter) take(s *segment) error {
	var err error
	if s.mem, err = newMemory(s.geometry.lines(s.strip)); err != nil {
		return err
	}
	s.lines = s.mem.lines
	return nil
}

func (s *segment) readBits(r io.Reader, sum uint32) (uint32, error) {
	n := bits.OnesCount8(s.live) * 8
	buf := make([]byte, chunkLines*n)
	for from := 0; from < len(s.lines); from += chunkLines {
		part := s.lines[from:min(len(s.lines), from+chunkLines)]
		raw := buf[:len(part)*n]
		var err error
		if sum, err = frame.ReadChunk(r, sum, raw); err != nil {
			return 0, err
		}
		for i := range part {
			for m := s.live; m != 0; m &= m - 1 {
				part[i][bits.TrailingZeros8(m)&7] = binary.LittleEndian.Uint64(raw)
				raw = raw[8:]
			}
		}
	}
	return sum, nil
}

// fields reads a header front to back; short tells that it ended early or held nonsense.
type fields struct {
	p     []byte
	short bool
}

func (d *fields) u64() uint64 {
	if len(d.p) < 8 {
		d.p, d.short = nil, true
		return 0
	}
	v := binary.LittleEndian.Uint64(d.p)
	d.p = d.p[8:]
	return v
}

func (d *fields) i64() int64 { return int64(d.u64()) }

func (d *fields) u32() uint32 {
	if len(d.p) < 4 {
		d.p, d.short = nil, true
		return 0
	}
	v := binary.LittleEndian.Uint32(d.p)
	d.p = d.p[4:]
	return v
}

func (d *fields) u8() uint8 {
	if len(d.p) < 1 {
		d.p, d.short = nil, true
		return 0
	}
	v := d.p[0]
	d.p = d.p[1:]
	return v
}

// flag is a byte that must be 0 or 1.
func (d *fields) flag() bool {
	v := d.u8()
	d.short = d.short || v > 1
	return v == 1
}

func decodeHeader(p []byte, maxBytes uint64) (*Filter, error) {
	d := &fields{p: p}
	f := &Filter{opts: Options{Window: d.i64(), Error: math.Float64frombits(d.u64()), Capacity: d.u64(),
		MaxMemory: d.u64(),
		Past:      int(d.u8()), Roles: int(d.u8()), Overload: Overload(d.u8()), Tag: d.u8()}}
	f.nextID, f.clock, f.inserted, f.refreshes = d.u32(), d.i64(), d.u64(), d.u64()
	f.deny = denial{until: d.i64(), times: d.u8(), shrinkUntil: d.i64()}
	n := int(d.u8())
	if err := f.opts.Validate(); err != nil || d.short || n == 0 || n > maxSegments+maxPolicies ||
		f.opts.Past == 0 || f.opts.Roles == 0 {
		return nil, fmt.Errorf("%w: header fields", ErrCorrupt)
	}
	for range n {
		s := decodeSegment(d)
		if err := f.fits(s, d, maxBytes); err != nil {
			return nil, err
		}
		f.bytes += s.bytes()
		f.segs = append(f.segs, s)
	}
	if len(d.p) != 0 || !f.newest().takesInserts() {
		return nil, fmt.Errorf("%w: header length", ErrCorrupt)
	}
	return f, nil
}

func decodeSegment(d *fields) *segment {
	s := &segment{id: d.u32(), tag: d.u8()}
	s.geometry = geometry{s: int(d.u8()), j: int(d.u8()), r: int(d.u8())}
	s.strip, s.opened, s.used, s.limit = d.u64(), d.i64(), d.flag(), d.u64()
	s.head, s.live = d.u8(), d.u8()
	for l := range uint8(lanes) {
		if s.live&bit(l) != 0 {
			s.lanes[l] = lane{count: d.u64(), start: d.i64(), newest: d.i64(), expire: d.i64()}
		}
	}
	return s
}

// fits checks every field of a decoded segment.
func (f *Filter) fits(s *segment, d *fields, maxBytes uint64) error {
	ok := !d.short && s.valid() && s.id < f.nextID && s.opened <= f.clock
	if n := len(f.segs); n > 0 {
		ok = ok && f.segs[n-1].id < s.id
	}
	for _, l := range s.lanes {
		ok = ok && l.count <= f.inserted && l.newest <= f.clock &&
			(l.count == 0 || l.start <= l.newest && l.newest < l.expire)
	}
	if !ok {
		return fmt.Errorf("%w: segment fields", ErrCorrupt)
	}
	if s.bytes() > maxBytes || f.bytes > maxBytes-s.bytes() {
		return fmt.Errorf("%w: more than %d bytes of segments", ErrCorrupt, maxBytes)
	}
	s.derive()
	return nil
}

// valid checks what can be checked of a segment by itself.
func (s *segment) valid() bool {
	return s.s >= 1 && s.s <= maxProbes && (s.j == 4 || s.j == 5) && (s.r == 1 || s.r == 2 && s.s%2 == 0) &&
		s.strip >= s.minStrip() && s.strip <= maxStrip && s.limit > 0 && s.head < lanes && s.live != 0
}

// takesInserts reports whether the lanes that inserts write to are live.
func (s *segment) takesInserts() bool {
	return s.live&bit(s.head) != 0 && (s.r == 1 || s.live&bit(next(s.head)) != 0)
}
