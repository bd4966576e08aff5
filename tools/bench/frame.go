package main

import "strconv"

// frame is one encoded request with room for the digits of a key and for an
// opid. All frames of a run have the same length.
type frame struct {
	bytes  []byte
	keyAt  int   // where the key's digits begin
	more   []int // where those of further items begin
	digits int   // how many there are
	idAt   int   // where the opid begins, 0 if the request has none
	idLen  int
}

// encoder builds a frame argument by argument.
type encoder struct {
	frame
	prefix string // of the counters' keys
}

// begin starts a request of n arguments.
func (e *encoder) begin(n int) {
	e.bytes = append(strconv.AppendInt(append(e.bytes, '*'), int64(n), 10), "\r\n"...)
}

// arg appends an argument.
func (e *encoder) arg(s string) {
	e.bytes = append(strconv.AppendInt(append(e.bytes, '$'), int64(len(s)), 10), "\r\n"...)
	e.bytes = append(append(e.bytes, s...), "\r\n"...)
}

// command appends a whole request.
func (e *encoder) command(words ...string) {
	e.begin(len(words))
	for _, w := range words {
		e.arg(w)
	}
}

// key appends the counter's key, with zeros for its digits.
func (e *encoder) key() {
	e.arg(keyName(e.prefix, 0, e.digits))
	e.keyAt = len(e.bytes) - 2 - e.digits
}

// items appends items of a sketch in place of the key, each with an increment if there is one.
func (e *encoder) items(n int, increment string) {
	for range n {
		e.key()
		e.more = append(e.more, e.keyAt)
		if increment != "" {
			e.arg(increment)
		}
	}
	e.keyAt, e.more = e.more[0], e.more[1:]
}

// id appends the opid, behind a prefix.
func (e *encoder) id(prefix string) {
	e.arg(prefix + string(make([]byte, e.idLen)))
	e.idAt = len(e.bytes) - 2 - e.idLen
}

// keyName is the name of a counter.
func keyName(prefix string, key uint32, digits int) string {
	b := append([]byte(prefix), make([]byte, digits)...)
	putDecimal(b[len(prefix):], uint64(key))
	return string(b)
}

// putDecimal writes n with leading zeros over all of b.
func putDecimal(b []byte, n uint64) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = byte('0' + n%10)
		n /= 10
	}
}

// digitsFor is how many digits the keys 0..n-1 need.
func digitsFor(n uint32) int { return len(strconv.FormatUint(uint64(max(n, 1)-1), 10)) }
