// Package coding reads the fields that the store's encodings are made of: varints, single
// bytes, and byte strings behind their length. package encoding/binary appends the numbers,
// AppendBytes the strings. persistence/FORMAT.md says which fields each encoding has.
package coding

import (
	"encoding/binary"
	"math"
)

// Reader reads one field after another from Rest, which may hold anything. After the first
// field that cannot be read, Bad is set, Rest is empty, and every other field is zero.
type Reader struct {
	Rest []byte
	Bad  bool
}

// Fail marks the input as bad.
func (r *Reader) Fail() { r.Rest, r.Bad = nil, true }

// Byte reads one byte.
func (r *Reader) Byte() byte {
	if len(r.Rest) == 0 {
		r.Fail()
		return 0
	}
	b := r.Rest[0]
	r.Rest = r.Rest[1:]
	return b
}

// Uvarint reads an unsigned number.
func (r *Reader) Uvarint() uint64 {
	v, n := binary.Uvarint(r.Rest)
	return take(r, v, n)
}

// Varint reads a signed number.
func (r *Reader) Varint() int64 {
	v, n := binary.Varint(r.Rest)
	return take(r, v, n)
}

// take takes v, which took n bytes; 0 or less if it could not be read.
func take[T int64 | uint64](r *Reader, v T, n int) T {
	if n <= 0 {
		r.Fail()
		return 0
	}
	r.Rest = r.Rest[n:]
	return v
}

// UpTo reads an unsigned number that must not be more than most.
func (r *Reader) UpTo(most uint64) uint64 {
	v := r.Uvarint()
	if v > most {
		r.Fail()
		return 0
	}
	return v
}

// Uint32 reads an unsigned number of 32 bits.
func (r *Reader) Uint32() uint32 { return uint32(r.UpTo(math.MaxUint32)) }

// Bytes reads a byte string, which aliases Rest.
func (r *Reader) Bytes() []byte {
	n := r.Uvarint()
	if n > uint64(len(r.Rest)) {
		r.Fail()
		return nil
	}
	b := r.Rest[:n:n]
	r.Rest = r.Rest[n:]
	return b
}

// End refuses what lies behind the last field.
func (r *Reader) End() {
	if len(r.Rest) != 0 {
		r.Fail()
	}
}

// AppendBytes appends a byte string behind its length.
func AppendBytes(dst, b []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(b)))
	return append(dst, b...)
}
