package resp

import "bytes"

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

// isHTTP reports whether the first word of an inline command is that of an HTTP
// request with a body, or of its Host header, either of which is how a web page
// on a visitor's machine would try to talk to a server on localhost.
func isHTTP(word []byte) bool {
	return bytes.EqualFold(word, []byte("POST")) || bytes.EqualFold(word, []byte("Host:"))
}
