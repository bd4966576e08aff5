package resp

import (
	"math"
	"strconv"

	"github.com/tidwall/redcon"
)

// Writer appends replies to a buffer. The zero Writer speaks RESP2 without a
// limit. It is not safe for concurrent use.
type Writer struct {
	// Proto is the protocol version, 2 (also when 0) or 3. It may change
	// between two replies.
	Proto int
	// Limit bounds the replies waiting in the buffer, in bytes; 0: no bound.
	// Beyond it nothing more is kept and Overflowed reports true; what the
	// buffer holds then ends in the middle of a reply and must not be sent.
	Limit int

	buf      []byte
	overflow bool
	slack    slack
}

// Int appends an integer.
func (w *Writer) Int(n int64) {
	if w.room(24) {
		w.buf = redcon.AppendInt(w.buf, n)
	}
}

// Bulk appends a string of arbitrary bytes.
func (w *Writer) Bulk(b []byte) {
	if w.room(len(b)) {
		w.buf = redcon.AppendBulk(w.buf, b)
	}
}

// BulkString appends a string of arbitrary bytes.
func (w *Writer) BulkString(s string) {
	if w.room(len(s)) {
		w.buf = redcon.AppendBulkString(w.buf, s)
	}
}

// Status appends a simple string such as OK; CR and LF become spaces.
func (w *Writer) Status(s string) {
	if w.room(len(s)) {
		w.buf = redcon.AppendString(w.buf, s)
	}
}

// Error appends an error reply. text starts with the error's code, such as
// "ERR …"; CR and LF become spaces.
func (w *Writer) Error(text string) {
	if w.room(len(text)) {
		w.buf = redcon.AppendError(w.buf, text)
	}
}

// Null appends the null; in RESP2 the null bulk string.
func (w *Writer) Null() {
	switch {
	case !w.room(8):
	case w.Proto == 3:
		w.buf = append(w.buf, "_\r\n"...)
	default:
		w.buf = redcon.AppendNull(w.buf)
	}
}

// NullArray appends the null; in RESP2 the null array.
func (w *Writer) NullArray() {
	switch {
	case !w.room(8):
	case w.Proto == 3:
		w.buf = append(w.buf, "_\r\n"...)
	default:
		w.buf = append(w.buf, "*-1\r\n"...)
	}
}

// Array announces n replies that together are an array.
func (w *Writer) Array(n int) {
	if w.room(24) {
		w.buf = redcon.AppendArray(w.buf, n)
	}
}

// Map announces pairs keys, each followed by its value; in RESP2 an array of
// twice as many.
func (w *Writer) Map(pairs int) {
	if w.Proto == 3 {
		w.header('%', pairs)
	} else {
		w.Array(2 * pairs)
	}
}

// Set announces n distinct replies in no order; in RESP2 an array.
func (w *Writer) Set(n int) {
	if w.Proto == 3 {
		w.header('~', n)
	} else {
		w.Array(n)
	}
}

// Push announces n replies that together are a message beside the replies, of RESP3 alone.
func (w *Writer) Push(n int) { w.header('>', n) }

// Bool appends a boolean; in RESP2 the integer 1 or 0.
func (w *Writer) Bool(v bool) {
	switch {
	case w.Proto != 3 && v:
		w.Int(1)
	case w.Proto != 3:
		w.Int(0)
	case !w.room(8):
	case v:
		w.buf = append(w.buf, "#t\r\n"...)
	default:
		w.buf = append(w.buf, "#f\r\n"...)
	}
}

// Double appends a floating point number, in the fewest digits that name it
// exactly; in RESP2 as a string.
func (w *Writer) Double(f float64) {
	var digits [32]byte
	text := appendDouble(digits[:0], f)
	if w.Proto != 3 {
		w.Bulk(text)
		return
	}
	if w.room(len(text)) {
		w.buf = append(w.buf, ',')
		w.buf = append(w.buf, text...)
		w.buf = append(w.buf, "\r\n"...)
	}
}

// Verbatim appends text for a person; in RESP2 a string.
func (w *Writer) Verbatim(text string) {
	if w.Proto != 3 {
		w.BulkString(text)
		return
	}
	if w.room(len(text)) {
		w.header('=', len("txt:")+len(text))
		w.buf = append(w.buf, "txt:"...)
		w.buf = append(w.buf, text...)
		w.buf = append(w.buf, "\r\n"...)
	}
}

// Pair appends two strings, such as a key of a map and its value.
func (w *Writer) Pair(key, value string) {
	w.BulkString(key)
	w.BulkString(value)
}

// BulkStrings appends an array of strings.
func (w *Writer) BulkStrings(list []string) {
	w.Array(len(list))
	for _, s := range list {
		w.BulkString(s)
	}
}

// Raw appends what is encoded already.
func (w *Writer) Raw(b []byte) {
	if w.room(len(b)) {
		w.buf = append(w.buf, b...)
	}
}

// Len returns how many bytes wait in the buffer.
func (w *Writer) Len() int { return len(w.buf) }

// Cap returns the memory held by the buffer, in bytes.
func (w *Writer) Cap() int { return cap(w.buf) }

// Bytes returns what waits in the buffer, borrowed until the next call that
// appends, truncates or resets.
func (w *Writer) Bytes() []byte { return w.buf }

// Overflowed reports whether the replies exceeded Limit since the last Reset.
func (w *Writer) Overflowed() bool { return w.overflow }

// Truncate drops all but the first n bytes.
func (w *Writer) Truncate(n int) { w.buf = w.buf[:n] }

// Reset empties the buffer once it was sent. Its memory is kept for the next
// replies, but a large buffer does not outlive the need for it.
func (w *Writer) Reset() {
	if size := w.slack.fit(cap(w.buf), len(w.buf)); size < cap(w.buf) {
		w.buf = make([]byte, 0, size)
	}
	w.buf = w.buf[:0]
	w.overflow = false
}

// room reports whether n more bytes are within Limit.
func (w *Writer) room(n int) bool {
	if w.Limit > 0 && len(w.buf)+n > w.Limit {
		w.overflow = true
	}
	return !w.overflow
}

// header appends a RESP3 type and a count.
func (w *Writer) header(kind byte, n int) {
	if w.room(24) {
		w.buf = append(w.buf, kind)
		w.buf = strconv.AppendInt(w.buf, int64(n), 10)
		w.buf = append(w.buf, "\r\n"...)
	}
}

// appendDouble appends f as RESP3 writes it.
func appendDouble(b []byte, f float64) []byte {
	switch {
	case math.IsInf(f, 1):
		return append(b, "inf"...)
	case math.IsInf(f, -1):
		return append(b, "-inf"...)
	case math.IsNaN(f):
		return append(b, "nan"...)
	}
	return strconv.AppendFloat(b, f, 'g', -1, 64)
}
