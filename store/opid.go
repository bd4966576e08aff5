package store

import (
	"encoding/binary"
	"encoding/hex"
	"strconv"

	"github.com/fbfkv/fbfkv/store/seen"
)

// opTime returns the client's time of an operation, unix ms, if it is known:
// from AT, or from the opid if the table reads times from it. If both are
// known the older counts (G7). wall is the present.
func opTime(d *tableDef, id []byte, at int64, hasAt bool, wall int64) (time int64, known bool, err error) {
	if d.IDTime == IDTimeNone {
		return at, hasAt, nil
	}
	t, ok := idTime(d, id, wall)
	switch {
	case !ok && d.IDTime == IDTimeAuto:
		return at, hasAt, nil
	case !ok:
		return 0, false, ErrNoIDTime
	case hasAt:
		t = min(t, at)
	}
	return t, true, nil
}

// idTime reads the unix time in milliseconds that an opid carries.
func idTime(d *tableDef, id []byte, wall int64) (int64, bool) {
	switch d.IDTime {
	case IDTimeUUIDv7:
		var u [seen.UUIDSize]byte
		ok := readUUID(&u, id)
		return uuidTime(&u), ok && u[6]>>4 == 7
	case IDTimeULID:
		t, _, ok := ulidTime(id)
		return t, ok
	case IDTimeMS:
		return leadingMs(id)
	case IDTimeAuto:
		t, ok := autoTime(id, wall-d.Window.Milliseconds()-autoReach)
		return t, ok && t <= wall+d.Skew.Milliseconds()
	}
	return 0, false
}

const (
	// firstULID is when ULIDs came into use: the start of 2016, unix ms. What looks
	// like an older one is something else, such as a number with zeros before it: 26
	// decimal digits are read as times up to 2015.
	firstULID = 1451606400000
	// autoReach is how far behind the window a time is believed that only six bits
	// of the opid vouch for, in milliseconds: 30 days.
	autoReach = 30 * 24 * 3600 * 1000
)

// autoTime reads the time of an opid in a table that has not been told what its
// opids are. Bits mistaken for a time would have an operation refused that was never
// applied, so it believes
//
//   - the canonical text of a UUIDv7, version and variant included: nothing else looks
//     like it;
//   - a ULID as text, in one case, of a time at which there were ULIDs: of 60,000 opids
//     of 26 random digits and capital letters one looks like it;
//   - 16 bytes, or 32 hexadecimal digits, with the version and variant of a UUIDv7, if
//     the time is not before oldest. One hash in 64 has these bits; that its first 48
//     are then a time within autoReach is one in seven million.
//
// 16 bytes that might be a ULID might be anything.
func autoTime(id []byte, oldest int64) (int64, bool) {
	var u [seen.UUIDSize]byte
	switch len(id) {
	case seen.UUIDText:
		if id[14] != '7' {
			return 0, false
		}
		ok := readUUID(&u, id)
		return uuidTime(&u), ok && isUUIDv7(&u)
	case 2 * seen.UUIDSize, seen.UUIDSize:
		ok := readUUID(&u, id)
		t := uuidTime(&u)
		return t, ok && isUUIDv7(&u) && t >= oldest
	case ulidText:
		t, seen, ok := ulidTime(id)
		return t, ok && seen&ulidBothCases != ulidBothCases && t >= firstULID
	}
	return 0, false
}

// isUUIDv7 reports whether a UUID has version 7 and the variant of RFC 9562.
func isUUIDv7(u *[seen.UUIDSize]byte) bool { return u[6]>>4 == 7 && u[8]>>6 == 2 }

// uuidTime is the time of a UUIDv7 or a ULID: its first 48 bits (RFC 9562 section 5.7).
func uuidTime(u *[seen.UUIDSize]byte) int64 { return int64(binary.BigEndian.Uint64(u[:]) >> 16) }

// readUUID reads a UUID given as 16 bytes, or as text with or without hyphens.
func readUUID(u *[seen.UUIDSize]byte, id []byte) bool {
	switch len(id) {
	case seen.UUIDSize:
		*u = [seen.UUIDSize]byte(id)
		return true
	case 2 * seen.UUIDSize:
		_, err := hex.Decode(u[:], id)
		return err == nil
	case seen.UUIDText:
		if seen.PackUUID(u, id) {
			return true
		}
		if id[8] != '-' || id[13] != '-' || id[18] != '-' || id[23] != '-' {
			return false
		}
		var text [2 * seen.UUIDSize]byte // with capital letters, perhaps
		n := copy(text[:], id[:8])
		n += copy(text[n:], id[9:13])
		n += copy(text[n:], id[14:18])
		n += copy(text[n:], id[19:23])
		copy(text[n:], id[24:])
		_, err := hex.Decode(u[:], text[:])
		return err == nil
	}
	return false
}

// ulidText is how many letters a ULID has as text.
const ulidText = 26

// What crockford tells of a byte beside its value.
const (
	ulidUpper     = 1 << 5
	ulidLower     = 1 << 6
	ulidBothCases = ulidUpper | ulidLower
	ulidNever     = 1 << 7
)

// crockford is Crockford's base 32.
var crockford = func() (values [256]byte) {
	for i := range values {
		values[i] = ulidNever
	}
	for i, c := range []byte("0123456789ABCDEFGHJKMNPQRSTVWXYZ") {
		values[c] = byte(i)
		if i >= 10 {
			values[c] |= ulidUpper
			values[c|0x20] = byte(i) | ulidLower
		}
	}
	return values
}()

// ulidTime reads the first 48 bits of a ULID, given as 16 bytes or as 26
// letters of Crockford's base 32, of which the first ten are the time, and says
// which kinds of letters there were.
func ulidTime(id []byte) (t int64, letters byte, ok bool) {
	if len(id) == seen.UUIDSize {
		return uuidTime((*[seen.UUIDSize]byte)(id)), 0, true
	}
	if len(id) != ulidText || id[0] > '7' {
		return 0, 0, false
	}
	for i, c := range id {
		v := crockford[c]
		letters |= v
		if i < 10 {
			t = t<<5 | int64(v&31)
		}
	}
	return t, letters, letters&ulidNever == 0
}

// leadingMs reads a decimal unix time in milliseconds at the start of an opid,
// which ends there or goes on with anything but a digit.
func leadingMs(id []byte) (int64, bool) {
	n := 0
	for n < len(id) && n < 19 && id[n] >= '0' && id[n] <= '9' {
		n++
	}
	if n == 0 || n < len(id) && id[n] >= '0' && id[n] <= '9' {
		return 0, false
	}
	t, err := strconv.ParseInt(string(id[:n]), 10, 64)
	return t, err == nil
}

// AppendPairID appends the opid that stands for an operation numbered iid by a
// producer pid: the length of pid, as a varint, then both. Different pairs have
// different opids.
func AppendPairID(dst, pid, iid []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(pid)))
	dst = append(dst, pid...)
	return append(dst, iid...)
}

// timeID is the part of the opid from which a table may read the operation's
// time: of a pair the second.
func (op *Op) timeID() []byte {
	if op.Flags&PairID == 0 {
		return op.ID
	}
	n, used := binary.Uvarint(op.ID)
	if used <= 0 || n > uint64(len(op.ID)-used) {
		return nil
	}
	return op.ID[used+int(n):]
}
