package frame

import (
	"errors"
	"fmt"
	"io"
)

// Stream is an io.Reader of an encoding: a header, then chunks made as they are read.
type Stream struct {
	next func(payload []byte) ([]byte, bool)
	sum  uint32
	rest []byte // encoded, not yet read
	out  []byte // backing array of rest
	raw  []byte // payload of the chunk
}

// NewStream starts a stream. next appends the payload of the next chunk, or
// reports false at the end; it is called within Read only.
func NewStream(magic [4]byte, version uint8, header []byte,
	next func(payload []byte) ([]byte, bool)) *Stream {
	s := &Stream{next: next}
	s.rest, s.sum = AppendHeader(nil, magic, version, header)
	return s
}

// Read implements io.Reader for any len(p) of at least 1.
func (s *Stream) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if len(s.rest) == 0 && !s.fill() {
			if n == 0 {
				return 0, io.EOF
			}
			return n, nil
		}
		c := copy(p[n:], s.rest)
		s.rest = s.rest[c:]
		n += c
	}
	return n, nil
}

// fill encodes the next chunk; false at the end.
func (s *Stream) fill() bool {
	raw, ok := s.next(s.raw[:0])
	if !ok {
		return false
	}
	s.raw = raw
	s.out, s.sum = AppendChunk(s.out[:0], s.sum, raw)
	s.rest = s.out
	return true
}

// Verdict is err, and verdict as well if err tells of damage.
func Verdict(err, verdict error) error {
	if errors.Is(err, ErrDamaged) {
		return fmt.Errorf("%w: %w", verdict, err)
	}
	return err
}
