package resp

import (
	"bytes"
	"io"
	"unsafe"
)

// Reader takes frames from a stream of bytes. It is not safe for concurrent use.
//
// The buffer holds, in this order, frames that were handed out since the last
// Fill, and the frame that is being read:
//
//	buf   | handed out … | arguments parsed | not looked at yet |   free    |
//	      0              start              next             len(buf)   cap(buf)
//
// Only Fill moves bytes, and only those of the last, incomplete frame; hence its
// parsed arguments are kept as offsets from its start.
type Reader struct {
	src    io.Reader
	limits Limits
	err    error // the protocol error that ended the stream

	buf   []byte
	start int // where the frame being read begins
	next  int // first byte not looked at yet

	left  int    // arguments that the frame still lacks; -1: its header is unread
	bulk  int    // length of the argument being read; -1: its header is unread
	spans []span // the frame's arguments so far

	args  [][]byte // arguments handed out since the last Fill
	full  bool     // the last Read left no room
	slack slack
}

// span is an argument within its frame, as offsets from the frame's start.
type span struct{ from, to uint32 }

// maxKeptArgs is how many arguments' bookkeeping, 32 bytes each, is kept from
// one Fill to the next.
const maxKeptArgs = 4096

// NewReader returns a Reader of the frames in src.
func NewReader(src io.Reader, l Limits) *Reader {
	return &Reader{
		src:    src,
		limits: l.orDefaults(),
		buf:    make([]byte, 0, minBuffer),
		left:   -1,
		bulk:   -1,
	}
}

// Reset makes the Reader one of a new stream. The buffer is kept.
func (r *Reader) Reset(src io.Reader) {
	r.src, r.err = src, nil
	r.buf, r.start, r.next = r.buf[:0], 0, 0
	r.left, r.bulk = -1, -1
	r.spans, r.args = r.spans[:0], r.args[:0]
}

// SetSource makes the Reader go on with another source of the same stream.
func (r *Reader) SetSource(src io.Reader) { r.src = src }

// SetLimits changes the limits, from the next header on: also of frames that
// are already in the buffer, so that a pipeline may start with AUTH.
func (r *Reader) SetLimits(l Limits) { r.limits = l.orDefaults() }

// Buffered returns how many bytes of an incomplete frame are held.
func (r *Reader) Buffered() int { return len(r.buf) - r.start }

// Taken returns how many bytes were handed out since the last Fill.
func (r *Reader) Taken() int { return r.start }

// Cap returns the memory held by the buffer, in bytes.
func (r *Reader) Cap() int { return cap(r.buf) }

// Memory returns the memory held by the buffer and the bookkeeping of arguments, in bytes.
func (r *Reader) Memory() int {
	return cap(r.buf) + cap(r.args)*int(unsafe.Sizeof(r.args[0])) +
		cap(r.spans)*int(unsafe.Sizeof(r.spans[0]))
}

// Fill releases the frames handed out, then reads once from the source. Their
// arguments are invalid from here on.
func (r *Reader) Fill() (int, error) {
	used := len(r.buf)
	r.release()
	r.resize(used)
	n, err := r.src.Read(r.buf[len(r.buf):cap(r.buf)])
	r.buf = r.buf[:len(r.buf)+n]
	r.full = len(r.buf) == cap(r.buf)
	return n, err
}

// Next returns the arguments of the next frame if all of it is in the buffer,
// and ok = false if more bytes are needed. The arguments are valid until the
// next Fill. Frames without arguments (`*0`, blank lines) are skipped. An error
// is a *ProtocolError and final.
func (r *Reader) Next() (args [][]byte, ok bool, err error) {
	for r.err == nil && r.next < len(r.buf) {
		var complete bool
		if r.buf[r.start] == '*' {
			complete, r.err = r.array()
		} else {
			complete, r.err = r.inline()
		}
		if r.err != nil || !complete {
			break
		}
		if args := r.take(); len(args) > 0 {
			return args, true, nil
		}
	}
	return nil, false, r.err
}

// array parses an array of bulk strings as far as its bytes are there.
func (r *Reader) array() (complete bool, err error) {
	if r.left < 0 {
		n, size, err := parseHeader(r.buf[r.start+1:], errMultibulkLength, errMultibulkLine)
		if err != nil || size == 0 {
			return false, err
		}
		if n > int64(r.limits.MaxArgs) {
			return false, r.limits.tooManyArgs()
		}
		r.left = int(max(n, 0))
		r.next = r.start + 1 + size
	}
	for r.left > 0 {
		if ok, err := r.argument(); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

// argument parses one bulk string of an array.
func (r *Reader) argument() (complete bool, err error) {
	if r.bulk < 0 {
		if r.next == len(r.buf) {
			return false, nil
		}
		if got := r.buf[r.next]; got != '$' {
			return false, expectedBulk(got)
		}
		n, size, err := parseHeader(r.buf[r.next+1:], errBulkLength, errBulkLine)
		if err != nil || size == 0 {
			return false, err
		}
		if n < 0 || n > int64(r.limits.MaxBulk) && !(n <= int64(r.limits.MaxChunk) && r.isChunk()) {
			return false, r.limits.tooLongArg(n)
		}
		r.bulk = int(n)
		r.next += 1 + size
		if r.next+r.bulk+2-r.start > r.limits.MaxRequest {
			return false, errRequestLength
		}
	}
	end := r.next + r.bulk
	if len(r.buf) < end+2 {
		return false, nil
	}
	if r.buf[end] != '\r' || r.buf[end+1] != '\n' {
		// Redis skips two bytes whatever they are. A client whose lengths are
		// wrong must not have its next bytes executed as commands.
		return false, errBulkLength
	}
	r.spans = append(r.spans, span{uint32(r.next - r.start), uint32(end - r.start)})
	r.next = end + 2
	r.bulk = -1
	r.left--
	return true, nil
}

// isChunk reports whether the frame is of the command that takes long arguments.
func (r *Reader) isChunk() bool {
	if len(r.spans) == 0 {
		return false
	}
	name := r.spans[0]
	return bytes.EqualFold(r.buf[r.start+int(name.from):r.start+int(name.to)], []byte(r.limits.Chunk))
}

// inline parses a line of words, once its end is there.
func (r *Reader) inline() (complete bool, err error) {
	i := bytes.IndexByte(r.buf[r.next:], '\n')
	if i < 0 {
		r.next = len(r.buf)
	} else {
		r.next += i + 1
	}
	if r.next-r.start > r.limits.MaxInline {
		return false, errInlineLength
	}
	if i < 0 {
		return false, nil
	}
	line := r.buf[r.start : r.next-1]
	var ok bool
	if r.spans, ok = splitWords(line, r.spans); !ok {
		return false, errQuotes
	}
	if len(r.spans) > r.limits.MaxArgs {
		return false, r.limits.tooManyArgs()
	}
	if len(r.spans) > 0 && isHTTP(line[r.spans[0].from:r.spans[0].to]) {
		return false, ErrHTTP
	}
	return true, nil
}

// take hands the complete frame out and prepares for the one after it.
func (r *Reader) take() [][]byte {
	first := len(r.args)
	frame := r.buf[r.start:r.next:r.next]
	for _, s := range r.spans {
		r.args = append(r.args, frame[s.from:s.to:s.to])
	}
	r.spans = r.spans[:0]
	r.start = r.next
	r.left, r.bulk = -1, -1
	return r.args[first:len(r.args):len(r.args)]
}

// release forgets the frames handed out and moves the incomplete one to the
// front, which happens to each frame at most once.
func (r *Reader) release() {
	if cap(r.args) > maxKeptArgs {
		r.args = nil
	}
	r.args = r.args[:0]
	if cap(r.spans) > maxKeptArgs && len(r.spans) == 0 {
		r.spans = nil
	}
	if r.start == 0 {
		return
	}
	rest := copy(r.buf, r.buf[r.start:])
	r.buf = r.buf[:rest]
	r.next -= r.start
	r.start = 0
}

// resize gives the next Read room: twice as much when the last one was cut
// short or an incomplete frame leaves little, less again when less suffices.
// used is how much of the buffer the last round filled.
func (r *Reader) resize(used int) {
	size := cap(r.buf)
	switch {
	case r.full && size < maxBuffer, len(r.buf) > size-size/4:
		size *= 2
	case len(r.buf) <= minBuffer/2:
		size = r.slack.fit(size, used)
	}
	if size == cap(r.buf) {
		return
	}
	r.args = nil // would keep the old buffer alive
	buf := make([]byte, len(r.buf), size)
	copy(buf, r.buf)
	r.buf = buf
}

// maxHeader is the longest header line of an array or a bulk string, after its
// type byte, in bytes. No valid one comes close, so looking again at a header
// whose end has not arrived costs next to nothing.
const maxHeader = 64

// parseHeader reads the number of a header line at the start of b, CRLF
// included, and returns the line's size, 0 if its end is not there yet. Like
// Redis it takes canonical decimals only: no sign but a minus, no leading zero.
// invalid and tooLong are the errors for what can never become a header.
func parseHeader(b []byte, invalid, tooLong error) (n int64, size int, err error) {
	// The fast path: up to nine digits and CRLF.
	i := 0
	for i < len(b) && i < 9 && b[i]-'0' <= 9 {
		n = n*10 + int64(b[i]-'0')
		i++
	}
	if i > 0 && i+1 < len(b) && b[i] == '\r' && b[i+1] == '\n' && (b[0] != '0' || i == 1) {
		return n, i + 2, nil
	}
	return parseOddHeader(b, invalid, tooLong)
}

// parseOddHeader is parseHeader for headers that are incomplete, negative, very
// large or wrong.
func parseOddHeader(b []byte, invalid, tooLong error) (n int64, size int, err error) {
	end := bytes.IndexByte(b[:min(len(b), maxHeader)], '\n')
	if end < 0 && len(b) >= maxHeader {
		return 0, 0, tooLong
	}
	if end < 0 {
		return 0, 0, nil
	}
	if end == 0 || b[end-1] != '\r' {
		return 0, 0, invalid
	}
	digits, negative := bytes.CutPrefix(b[:end-1], []byte{'-'})
	// 18 digits fit in 63 bits, and no limit is as large as 19.
	if len(digits) == 0 || len(digits) > 18 || digits[0] == '0' && (negative || len(digits) > 1) {
		return 0, 0, invalid
	}
	for _, c := range digits {
		if c-'0' > 9 {
			return 0, 0, invalid
		}
		n = n*10 + int64(c-'0')
	}
	if negative {
		n = -n
	}
	return n, end + 1, nil
}

// tooManyArgs is the error for an array beyond MaxArgs.
func (l Limits) tooManyArgs() error {
	if l.Unauthenticated {
		return errUnauthMultibulk
	}
	return errMultibulkLength
}

// tooLongArg is the error for a bulk string of n bytes, below 0 or beyond
// MaxBulk.
func (l Limits) tooLongArg(n int64) error {
	if l.Unauthenticated && n > 0 {
		return errUnauthBulk
	}
	return errBulkLength
}

// isHTTP reports whether an inline command begins like an HTTP request with a body,
// or like its Host header. That is how a web page on a visitor's machine would try
// to talk to a server on localhost.
func isHTTP(word []byte) bool {
	return bytes.EqualFold(word, []byte("POST")) || bytes.EqualFold(word, []byte("Host:"))
}
