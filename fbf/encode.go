package fbf

import (
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/fbfkv/fbfkv/fbf/internal/frame"
)

// The encoding, inside the frames of package frame (little endian):
//
//	options:   window i64 | error f64 | capacity u64 | maxMemory u64 | past u8 | roles u8 | overload u8 | tag u8
//	state:     nextID u32 | clock i64 | inserted u64 | refreshes u64
//	           | denied until i64 | denials u8 | shrink denied until i64
//	segments:  count u8, then for each, oldest first:
//	           id u32 | tag u8 | S u8 | J u8 | R u8 | strip u64 | opened i64 | used u8 | limit u64 | head u8 | live u8
//	           | for each live lane: count u64 | start i64 | newest i64 | expire i64
//	chunks:    for each segment, for each run of chunkLines lines:
//	           the words of the live lanes, line by line
const (
	encodingVersion = 1
	chunkLines      = 1024
)

var magic = [4]byte{'F', 'B', 'F', 'g'}

// Encoder is an io.Reader of a filter's encoding. Its owner holds the filter's lock for
// each Read, but not between them: header, counts and controller state are
// those at NewEncoder, the bits a superset of those for every generation that still lives.
//
// It emits only the generations that live at NewEncoder. The log has what enters other
// generations later. A generation that dies meanwhile may be emitted partly cleared, and
// the log has its death.
type Encoder struct {
	parts  []part
	line   uint64 // next line of parts[0]
	stream *frame.Stream
}

// part is a segment as of NewEncoder.
type part struct {
	s     *segment
	live  uint8
	lines uint64
}

// NewEncoder starts an encoding; it costs the header only.
func (f *Filter) NewEncoder() *Encoder {
	e := &Encoder{}
	for _, s := range f.segs {
		e.parts = append(e.parts, part{s: s, live: s.live, lines: s.geometry.lines(s.strip)})
	}
	e.stream = frame.NewStream(magic, encodingVersion, f.appendHeader(nil), e.next)
	return e
}

// Read implements io.Reader for any len(p) of at least 1.
func (e *Encoder) Read(p []byte) (int, error) { return e.stream.Read(p) }

// next appends the next chunk; false at the end.
func (e *Encoder) next(dst []byte) ([]byte, bool) {
	for len(e.parts) > 0 && e.line == e.parts[0].lines {
		e.parts, e.line = e.parts[1:], 0
	}
	if len(e.parts) == 0 {
		return nil, false
	}
	p, from := e.parts[0], e.line
	e.line = min(p.lines, from+chunkLines)
	return p.appendWords(dst, from, e.line), true
}

// appendWords appends the live words of lines from..to-1, or zeros if the segment has gone.
func (p part) appendWords(dst []byte, from, to uint64) []byte {
	if p.s.lines == nil {
		n := int(to-from) * bits.OnesCount8(p.live) * 8
		return append(dst, make([]byte, n)...)
	}
	for i := range p.s.lines[from:to] {
		ln := &p.s.lines[from+uint64(i)]
		for m := p.live; m != 0; m &= m - 1 {
			dst = binary.LittleEndian.AppendUint64(dst, ln[bits.TrailingZeros8(m)&7])
		}
	}
	return dst
}

func (f *Filter) appendHeader(b []byte) []byte {
	le := binary.LittleEndian
	o := f.opts
	b = le.AppendUint64(b, uint64(o.Window))
	b = le.AppendUint64(b, math.Float64bits(o.Error))
	b = le.AppendUint64(b, o.Capacity)
	b = le.AppendUint64(b, o.MaxMemory)
	b = append(b, byte(o.Past), byte(o.Roles), byte(o.Overload), o.Tag)
	b = le.AppendUint32(b, f.nextID)
	b = le.AppendUint64(b, uint64(f.clock))
	b = le.AppendUint64(b, f.inserted)
	b = le.AppendUint64(b, f.refreshes)
	b = le.AppendUint64(b, uint64(f.deny.until))
	b = append(b, f.deny.times)
	b = le.AppendUint64(b, uint64(f.deny.shrinkUntil))
	b = append(b, byte(len(f.segs)))
	for _, s := range f.segs {
		b = s.appendHeader(b)
	}
	return b
}

func (s *segment) appendHeader(b []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(b, s.id)
	b = append(b, s.tag, byte(s.s), byte(s.j), byte(s.r))
	b = le.AppendUint64(b, s.strip)
	b = le.AppendUint64(b, uint64(s.opened))
	b = append(b, flag(s.used))
	b = le.AppendUint64(b, s.limit)
	b = append(b, s.head, s.live)
	for l := range uint8(lanes) {
		if s.live&bit(l) != 0 {
			ln := s.lanes[l]
			b = le.AppendUint64(b, ln.count)
			b = le.AppendUint64(b, uint64(ln.start))
			b = le.AppendUint64(b, uint64(ln.newest))
			b = le.AppendUint64(b, uint64(ln.expire))
		}
	}
	return b
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}
