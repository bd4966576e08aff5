package sketch

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/fbfkv/fbfkv/store/coding"
)

// A filter moves in chunks: first its header, then the bits of its sub-filters, one behind
// the other. Iterator 0 asks for the header, iterator i for bits from offset i-1 on, and
// what goes with a chunk is the iterator of the next one.

// The refusals of chunks.
var (
	ErrChunkOffset = errors.New("invalid offset - no link found")
	ErrChunkLength = errors.New("invalid chunk - Too big for current filter")
)

// locate finds the part that holds an offset in the bits of all sub-filters.
func (f *Bloom) locate(offset uint64) (p *part, at uint64) {
	for i := range f.parts {
		p = &f.parts[i]
		if offset < uint64(len(p.cells)) {
			return p, offset
		}
		offset -= uint64(len(p.cells))
	}
	return nil, 0
}

// Chunk returns a copy of the chunk of an iterator, of at most that many bytes unless it is
// the header, and the next iterator; 0 and nothing behind the end.
func (f *Bloom) Chunk(iterator int64, most uint64) (next int64, data []byte) {
	if iterator == 0 {
		return 1, f.header()
	}
	if iterator < 0 {
		return 0, nil
	}
	p, at := f.locate(uint64(iterator - 1))
	if p == nil {
		return 0, nil
	}
	n := min(uint64(len(p.cells))-at, max(most, 1))
	return iterator + int64(n), append([]byte(nil), p.cells[at:at+n]...)
}

// AppendChunk appends the change that writes a chunk of bits, which a client may have made;
// next is the iterator that went with it. An error is ErrCorrupt, ErrChunkOffset or
// ErrChunkLength.
func (f *Bloom) AppendChunk(dst []byte, next int64, data []byte) ([]byte, error) {
	if next <= 0 || next-1 < int64(len(data)) {
		return dst, ErrCorrupt
	}
	offset := uint64(next) - 1 - uint64(len(data))
	p, at := f.locate(offset)
	if p == nil {
		return dst, ErrChunkOffset
	}
	if uint64(len(data)) > uint64(len(p.cells))-at {
		return dst, ErrChunkLength
	}
	return append(binary.AppendUvarint(append(dst, bloomBits), offset), data...), nil
}

// putBits redoes a chunk.
func (f *Bloom) putBits(r *coding.Reader, seq uint64) error {
	p, at := f.locate(r.Uvarint())
	if r.Bad || p == nil || uint64(len(r.Rest)) > uint64(len(p.cells))-at {
		return fmt.Errorf("%w: bits of a filter", ErrCorrupt)
	}
	for len(r.Rest) > 0 {
		n := min(uint64(len(r.Rest)), pageSize-at%pageSize)
		if f.takes(p.pageAt(at), seq) {
			copy(p.cells[at:], r.Rest[:n])
		}
		at, r.Rest = at+n, r.Rest[n:]
	}
	return nil
}
