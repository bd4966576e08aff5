package store

import (
	"bytes"
	"encoding/binary"

	"github.com/fbfkv/fbfkv/store/coding"
)

// Proof shows that a source has told a position: a fingerprint of the section of its log that ends
// there, and a code over both that only its directory can make. The zero value proves nothing.
type Proof struct{ Print, Code uint64 }

// Position is how far a region has taken a source's log, with the source's proof.
type Position struct {
	RegionTaken
	Proof
}

// appendTo appends the proof: u8, 0: there is none, and else 1, fingerprint and code of 8 bytes each.
func (p Proof) appendTo(b []byte) []byte {
	if p == (Proof{}) {
		return append(b, 0)
	}
	b = binary.LittleEndian.AppendUint64(append(b, 1), p.Print)
	return binary.LittleEndian.AppendUint64(b, p.Code)
}

func (r *reader) proof() (p Proof) {
	if !r.bit() {
		return p
	}
	if len(r.Rest) < 16 {
		r.Fail()
		return p
	}
	p.Print, p.Code = binary.LittleEndian.Uint64(r.Rest), binary.LittleEndian.Uint64(r.Rest[8:])
	if r.Rest = r.Rest[16:]; p == (Proof{}) {
		r.Fail()
	}
	return p
}

// appendPositions appends how many there are, and each, by source.
func appendPositions(b []byte, all []Position) []byte {
	b = binary.AppendUvarint(b, uint64(len(all)))
	for _, at := range all {
		b = binary.AppendUvarint(at.RegionSource.appendTo(b), at.Seq)
		b = at.Proof.appendTo(b)
	}
	return b
}

func (r *reader) positions() (all []Position) {
	for n := r.UpTo(uint64(len(r.Rest))); n > 0 && r.err() == nil; n-- {
		all = append(all, Position{RegionTaken{r.source(), r.Uvarint()}, r.proof()})
	}
	return all
}

// MaxPositions bounds what Positions answers, bytes: as many as there are slots.
const MaxPositions = slots * (1 + 3 + binary.MaxVarintLen64 + 17)

// DecodePositions reads what Positions has answered.
func DecodePositions(b []byte) ([]Position, error) {
	r := reader{coding.Reader{Rest: b}}
	all := r.positions()
	if r.End(); r.err() != nil || len(b) > MaxPositions || !bytes.Equal(appendPositions(nil, all), b) {
		return nil, ErrPulled
	}
	return all, nil
}
