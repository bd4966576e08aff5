package seen

import (
	"encoding/binary"
	"encoding/hex"

	"github.com/fbfkv/fbfkv/store/coding"
)

// An opid is stored as it came, behind its length; a UUID in its canonical text,
// which is what most clients send, as a zero, which is nobody's length, and its 16
// bytes: the op log and EXACT's records, in memory and on disk, are smaller by a
// third.
const (
	UUIDText = 36 // the length of a UUID's canonical text
	UUIDSize = 16 // the length of a UUID

	codedUUID = 1 + UUIDSize
)

// appendID appends an opid as it is stored.
func appendID(dst, id []byte) []byte {
	var u [UUIDSize]byte
	if len(id) == UUIDText && PackUUID(&u, id) {
		dst = append(dst, 0)
		return append(dst, u[:]...)
	}
	return coding.AppendBytes(dst, id)
}

// isID reports whether coded begins with an opid, stored either way.
func isID(coded, id []byte) bool {
	if len(coded) >= codedUUID && coded[0] == 0 {
		var u [UUIDSize]byte
		return len(id) == UUIDText && PackUUID(&u, id) && string(u[:]) == string(coded[1:codedUUID])
	}
	_, ok := cutPrefix(coded, id)
	return ok
}

// id returns an opid. It aliases the input, or text, which it overwrites.
func (d *decoder) id(text *[UUIDText]byte) []byte {
	u := d.uuid()
	if u == nil {
		return d.textID()
	}
	hex.Encode(text[:], u[:4])
	hex.Encode(text[9:], u[4:6])
	hex.Encode(text[14:], u[6:8])
	hex.Encode(text[19:], u[8:10])
	hex.Encode(text[24:], u[10:])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return text[:]
}

// skipID passes over an opid.
func (d *decoder) skipID() {
	if d.uuid() == nil {
		d.textID()
	}
}

// uuid returns the bytes of an opid that is stored as a UUID; nil if it is not.
func (d *decoder) uuid() []byte {
	if len(d.Rest) < codedUUID || d.Rest[0] != 0 {
		return nil
	}
	u := d.Rest[1:codedUUID]
	d.Rest = d.Rest[codedUUID:]
	return u
}

// textID returns an opid that is stored as it came. None is empty.
func (d *decoder) textID() []byte {
	id := d.Bytes()
	if len(id) == 0 {
		d.Fail()
	}
	return id
}

// PackUUID packs a text of UUIDText bytes; false if it is not exactly what a UUID
// is written as: lower-case digits in groups of 8, 4, 4, 4 and 12.
func PackUUID(u *[UUIDSize]byte, text []byte) bool {
	t := (*[UUIDText]byte)(text)
	if t[8] != '-' || t[13] != '-' || t[18] != '-' || t[23] != '-' {
		return false
	}
	pair := func(a, b int) uint64 {
		return uint64(binary.LittleEndian.Uint32(t[a:])) | uint64(binary.LittleEndian.Uint32(t[b:]))<<32
	}
	wrong := uint64(0)
	for i, digits := range [...]uint64{pair(0, 4), pair(9, 14), pair(19, 24), pair(28, 32)} {
		n, bad := packHex(digits)
		binary.LittleEndian.PutUint32(u[4*i:], n)
		wrong |= bad
	}
	return wrong == 0
}

// packHex packs eight lower-case hexadecimal digits, all at once in the bytes of
// a word, the first in its lowest byte; bad is not 0 if one of them is no such digit.
func packHex(digits uint64) (n uint32, bad uint64) {
	const each = 0x0101010101010101
	// A letter has bit 6, and its low bits count from 1.
	letter := digits >> 6 & each
	x := digits&(0x0f*each) + 9*letter
	// One that was is written as it was. No byte carries into the next: a value
	// is at most 24.
	high := (x + 6*each) >> 4 & each // 1 from ten on
	bad = x&(0xf0*each) | digits ^ (x + '0'*each + ('a'-'0'-10)*high)
	x = (x<<4 | x>>8) & 0x00ff00ff00ff00ff
	x = (x | x>>8) & 0x0000ffff0000ffff
	return uint32(x | x>>16), bad
}
