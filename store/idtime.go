package store

import "strconv"

// opTime returns the client's time of an operation, unix ms, if it is known:
// from AT, or from the opid if the table reads times from it. If both are
// known the older counts (G7).
func opTime(d *tableDef, id []byte, at int64, hasAt bool) (time int64, known bool, err error) {
	if d.IDTime == IDTimeNone {
		return at, hasAt, nil
	}
	t, ok := idTime(d.IDTime, id)
	if !ok {
		return 0, false, ErrNoIDTime
	}
	if hasAt {
		t = min(t, at)
	}
	return t, true, nil
}

// idTime reads the unix time in milliseconds that an opid carries.
func idTime(f IDTime, id []byte) (int64, bool) {
	switch f {
	case IDTimeUUIDv7:
		return uuidv7Time(id)
	case IDTimeULID:
		return ulidTime(id)
	case IDTimeMS:
		return leadingMs(id)
	}
	return 0, false
}

// uuidv7Time reads the first 48 bits of a version 7 UUID (RFC 9562 section
// 5.7), given as 16 bytes or as text with or without hyphens.
func uuidv7Time(id []byte) (int64, bool) {
	if len(id) == 16 {
		return big48(id), id[6]>>4 == 7
	}
	var b [16]byte
	switch {
	case len(id) == 36 && id[8] == '-' && id[13] == '-' && id[18] == '-' && id[23] == '-':
	case len(id) == 32:
	default:
		return 0, false
	}
	n := 0
	for i, c := range id {
		if len(id) == 36 && (i == 8 || i == 13 || i == 18 || i == 23) {
			continue
		}
		v, ok := hexDigit(c)
		if !ok {
			return 0, false
		}
		b[n/2] = b[n/2]<<4 | v
		n++
	}
	return big48(b[:]), b[6]>>4 == 7
}

func big48(b []byte) (t int64) {
	for _, c := range b[:6] {
		t = t<<8 | int64(c)
	}
	return t
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10, true
	}
	return 0, false
}

// ulidTime reads the first 48 bits of a ULID, given as 16 bytes or as 26
// letters of Crockford's base 32, of which the first ten are the time.
func ulidTime(id []byte) (int64, bool) {
	if len(id) == 16 {
		return big48(id), true
	}
	if len(id) != 26 || id[0] > '7' {
		return 0, false
	}
	var t int64
	for i, c := range id {
		v, ok := crockford(c)
		if !ok {
			return 0, false
		}
		if i < 10 {
			t = t<<5 | int64(v)
		}
	}
	return t, true
}

func crockford(c byte) (byte, bool) {
	if c >= '0' && c <= '9' {
		return c - '0', true
	}
	const letters = "ABCDEFGHJKMNPQRSTVWXYZ"
	for i := range len(letters) {
		if c&^0x20 == letters[i] && c >= 'A' {
			return byte(10 + i), true
		}
	}
	return 0, false
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
