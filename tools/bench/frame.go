package main

import (
	"fmt"
	"strconv"
	"strings"
)

// frame is one encoded request with room for the digits of a key and for an opid. All frames of a run have the same
// length.
type frame struct {
	bytes  []byte
	keyAt  []int // where the digits of each key begin
	digits int   // how many there are
	idAt   int   // where the opid begins, 0 if the request has none
	idLen  int
}

// What stands for something else in the words of a workload.
const (
	prefix  = "\x00p" // of the counters' names
	counter = "\x00k" // the digits of a counter's name, or an item's, at the end of a word
	opid    = "\x00i" // at the end of a word
	script  = "\x00s" // the name of the script
)

// encode encodes the words of a request.
func encode(words []string, digits, idLen int, namePrefix, scriptName string) *frame {
	f := &frame{digits: digits, idLen: idLen, bytes: fmt.Appendf(nil, "*%d\r\n", len(words))}
	is := strings.NewReplacer(prefix, namePrefix, counter, strings.Repeat("0", digits), opid, strings.Repeat("\x00", idLen), script, scriptName)
	for _, w := range words {
		text := is.Replace(w)
		f.bytes = fmt.Appendf(f.bytes, "$%d\r\n%s\r\n", len(text), text)
		switch end := len(f.bytes) - 2; {
		case strings.HasSuffix(w, counter):
			f.keyAt = append(f.keyAt, end-digits)
		case strings.HasSuffix(w, opid):
			f.idAt = end - idLen
		}
	}
	return f
}

// keyName is the name of a counter.
func keyName(prefix string, key uint32, digits int) string {
	return fmt.Sprintf("%s%0*d", prefix, digits, key)
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
