package fbfkv

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Op is one operation: it counts once, however often and by whomever it is sent. As text,
// and as JSON, it is a string that the fbfkv packages of all languages read.
type Op struct {
	Key   string // the counter
	ID    string // the opid, 1 to 512 bytes, unique among the operations on Key
	Delta int64  // what it adds
	// when it was made, in Unix milliseconds of the server's clock; 0: not known, and a retry after
	// the WINDOW counts again
	At int64
}

// String returns the operation as text: key, delta, opid and time, with spaces between
// them and %XX in place of other bytes than letters, digits, and - . _ ~ :
func (op Op) String() string {
	return fmt.Sprintf("%s %d %s %d", escape(op.Key), op.Delta, escape(op.ID), op.At)
}

// MarshalText returns String.
func (op Op) MarshalText() ([]byte, error) { return []byte(op.String()), nil }

// UnmarshalText reads what MarshalText made.
func (op *Op) UnmarshalText(text []byte) error {
	read, err := ParseOp(string(text))
	if err == nil {
		*op = read
	}
	return err
}

// ParseOp reads an operation from its text.
func ParseOp(text string) (Op, error) {
	words := strings.Split(text, " ")
	if len(words) != 4 {
		return Op{}, fmt.Errorf("fbfkv: %q is not an operation: want key, delta, opid and time", text)
	}
	key, err1 := url.PathUnescape(words[0])
	delta, err2 := strconv.ParseInt(words[1], 10, 64)
	id, err3 := url.PathUnescape(words[2])
	at, err4 := strconv.ParseInt(words[3], 10, 64)
	for _, err := range []error{err1, err2, err3, err4} {
		if err != nil {
			return Op{}, fmt.Errorf("fbfkv: %q is not an operation: %w", text, err)
		}
	}
	if key == "" || id == "" || at < 0 {
		return Op{}, fmt.Errorf("fbfkv: %q is not an operation: the key or the opid is empty, or the time "+
			"is negative", text)
	}
	return Op{Key: key, ID: id, Delta: delta, At: at}, nil
}

// escape writes bytes so that they hold no space and survive every encoding.
func escape(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		switch {
		case '0' <= c && c <= '9', 'a' <= c && c <= 'z', 'A' <= c &&
			c <= 'Z', strings.IndexByte("-._~:", c) >= 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// newUUID returns a UUIDv7 (RFC 9562): 48 bits of milliseconds, then random bits.
func newUUID(now time.Time) string {
	var b [16]byte
	rand.Read(b[6:]) // never fails
	for i, ms := 0, now.UnixMilli(); i < 6; i++ {
		b[i] = byte(ms >> (40 - 8*i))
	}
	b[6] = b[6]&0x0f | 0x70
	b[8] = b[8]&0x3f | 0x80
	s := hex.EncodeToString(b[:])
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}
