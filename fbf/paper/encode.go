package paper

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/fbfkv/fbfkv/fbf/internal/frame"
)

// ErrCorrupt: the bytes given to Decode are not a whole, undamaged encoding.
var ErrCorrupt = errors.New("paper: corrupt encoding")

// The encoding, in the frames of fbf (little endian):
//
//	header:  m u64 | k u8 | constituents u16 | inserted u64 | refreshes u64 | for each: added u64
//	chunks:  for each constituent, future first, its words in runs of chunkWords
const (
	encodingVersion = 1
	chunkWords      = 8192
	headerBytes     = 27
)

var magic = [4]byte{'F', 'B', 'F', 'p'}

// Encoder is an io.Reader of a filter's encoding, taken while inserts and
// refreshes go on: the header is as of NewEncoder, the bits a superset for every
// constituent that has not been dropped since. Its owner holds the filter's lock for each Read.
type Encoder struct {
	parts  []*constituent
	word   int // next word of parts[0]
	stream *frame.Stream
}

// NewEncoder starts an encoding.
func (f *Filter) NewEncoder() *Encoder {
	le := binary.LittleEndian
	b := le.AppendUint64(nil, f.m)
	b = append(b, byte(f.k))
	b = le.AppendUint16(b, uint16(len(f.filters)))
	b = le.AppendUint64(b, f.inserted)
	b = le.AppendUint64(b, f.refreshes)
	for _, c := range f.filters {
		b = le.AppendUint64(b, c.added)
	}
	e := &Encoder{parts: append([]*constituent(nil), f.filters...)}
	e.stream = frame.NewStream(magic, encodingVersion, b, e.next)
	return e
}

// Read implements io.Reader for any len(p) of at least 1.
func (e *Encoder) Read(p []byte) (int, error) { return e.stream.Read(p) }

// next appends the next chunk; false at the end.
func (e *Encoder) next(dst []byte) ([]byte, bool) {
	if len(e.parts) == 0 {
		return nil, false
	}
	words := e.parts[0].bits
	end := min(len(words), e.word+chunkWords)
	for _, w := range words[e.word:end] {
		dst = binary.LittleEndian.AppendUint64(dst, w)
	}
	if e.word = end; end == len(words) {
		e.parts, e.word = e.parts[1:], 0
	}
	return dst, true
}

// Decode reads exactly one filter's encoding from r, and takes at most maxBytes for its bits.
func Decode(r io.Reader, maxBytes uint64) (*Filter, error) {
	p, sum, err := frame.ReadHeader(r, magic, encodingVersion)
	if err != nil {
		return nil, frame.Verdict(err, ErrCorrupt)
	}
	f, n, err := decodeHeader(p, maxBytes)
	if err != nil {
		return nil, err
	}
	for i := range n {
		c := newConstituent(f.m)
		c.added = binary.LittleEndian.Uint64(p[headerBytes+8*i:])
		if sum, err = c.readBits(r, sum); err != nil {
			return nil, frame.Verdict(err, ErrCorrupt)
		}
		f.filters = append(f.filters, c)
	}
	return f, nil
}

func decodeHeader(p []byte, maxBytes uint64) (*Filter, int, error) {
	if len(p) < headerBytes {
		return nil, 0, fmt.Errorf("%w: header length", ErrCorrupt)
	}
	le := binary.LittleEndian
	f := &Filter{m: le.Uint64(p), k: int(p[8]), inserted: le.Uint64(p[11:]), refreshes: le.Uint64(p[19:])}
	n := int(le.Uint16(p[9:]))
	if err := check(f.m, f.k, n-2); err != nil || len(p) != headerBytes+8*n {
		return nil, 0, fmt.Errorf("%w: header fields", ErrCorrupt)
	}
	if per := words(f.m) * 8; per > maxBytes || uint64(n) > maxBytes/per {
		return nil, 0, fmt.Errorf("%w: more than %d bytes of bits", ErrCorrupt, maxBytes)
	}
	return f, n, nil
}

func (c *constituent) readBits(r io.Reader, sum uint32) (uint32, error) {
	buf := make([]byte, 8*min(chunkWords, len(c.bits)))
	for from := 0; from < len(c.bits); from += chunkWords {
		part := c.bits[from:min(len(c.bits), from+chunkWords)]
		raw := buf[:8*len(part)]
		var err error
		if sum, err = frame.ReadChunk(r, sum, raw); err != nil {
			return 0, err
		}
		for i := range part {
			part[i] = binary.LittleEndian.Uint64(raw[8*i:])
		}
	}
	return sum, nil
}
