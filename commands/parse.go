package commands

import (
	"bytes"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/fbfkv/fbfkv/store"
)

// parseInt reads a signed 64-bit integer in its canonical decimal form, the
// only one it accepts, as Redis' string2ll: no plus sign, space, leading zero
// or "-0".
func parseInt(b []byte) (int64, bool) {
	if len(b) == 0 || len(b) > 20 {
		return 0, false
	}
	negative := b[0] == '-'
	digits := b
	if negative {
		digits = b[1:]
	}
	n, ok := parseUint(digits)
	switch {
	case !ok || negative && n == 0:
		return 0, false
	case negative:
		return -int64(n), n <= 1<<63 // -int64(1<<63) wraps to itself
	default:
		return int64(n), n <= math.MaxInt64
	}
}

// parseAmount reads a number as a counter of any table may take it, [-]digits[.digits], and how it was
// written. Whether the table of the key takes it is for the store to say.
func parseAmount(b []byte) (n int64, points store.Points, ok bool) {
	if n, ok = parseInt(b); ok {
		return n, 0, true
	}
	return parseDecimals(b)
}

// notAmount is the refusal of what parseAmount does not take. Of a number in a notation that is not ours, or
// that no table holds, it says so.
func notAmount(refused error, b []byte) error {
	if _, number := parseDecimal(b); !number {
		return refused
	}
	why := ": a counter holds -2^63 to 2^63-1, in a table with SCALE n so many steps of 10^-n"
	if foreignForm.Match(b) {
		why = ": decimals are written as -12.34, in a table with SCALE"
	}
	return refusal(strings.TrimSuffix(refused.Error(), ": "+integerReason) + why)
}

// foreignForm matches a number such as +1, 1e2, .5 or 1.
var foreignForm = regexp.MustCompile(`[+eE]|^-?\.|\.$`)

// notWhole refuses an amount that is not an integer, and names the way for decimals, if it is one.
func notWhole(refused error, b []byte, way string) error {
	if _, number := parseDecimal(b); number && bytes.ContainsAny(b, ".eE") {
		return refusal(refused.Error() + ": " + way + " adds decimals, in a table with SCALE")
	}
	return refused
}

// maxAmount is the longest number of an amount, in bytes.
const maxAmount = 64

// parseDecimals is parseAmount of a number that Redis does not take for an integer.
func parseDecimals(b []byte) (n int64, points store.Points, ok bool) {
	digits, negative := bytes.CutPrefix(b, []byte("-"))
	most, behind := uint64(math.MaxInt64), -1 // digits behind the point; -1: there is none
	if negative {
		most++
	}
	u, fits := uint64(0), true
	for i, c := range digits {
		if c == '.' && behind < 0 && i > 0 {
			behind = 0
			continue
		}
		d := uint64(c - '0')
		if d > 9 {
			return 0, 0, false
		}
		if behind >= 0 {
			behind++
		}
		fits = fits && u <= (most-d)/10
		u = u*10 + d
	}
	tooFine := behind > store.MaxScale // no table takes it, whatever it is
	if len(b) > maxAmount || len(digits) == 0 || behind == 0 || !fits && !tooFine {
		return 0, 0, false
	}
	if n = int64(u); negative {
		n = -n
	}
	return n, store.Points(min(max(behind, 0), store.MaxScale+1)) | store.Decimal, true
}

// parseUint reads an unsigned 64-bit integer in its canonical decimal form.
func parseUint(b []byte) (uint64, bool) {
	if len(b) == 0 || len(b) > 20 || b[0] == '0' && len(b) > 1 {
		return 0, false
	}
	var n uint64
	for _, c := range b {
		d := uint64(c - '0')
		if d > 9 || n > (math.MaxUint64-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, true
}

// parseDecimal reads a number in decimal notation. It refuses the other
// notations of strconv (hexadecimal, underscores, inf, nan).
func parseDecimal(b []byte) (float64, bool) {
	if len(b) == 0 || len(b) > 64 {
		return 0, false
	}
	for _, c := range b {
		if (c < '0' || c > '9') && c != '.' && c != '-' && c != '+' && c != 'e' && c != 'E' {
			return 0, false
		}
	}
	f, err := strconv.ParseFloat(string(b), 64)
	return f, err == nil
}

// is compares an argument with an upper-case keyword, in any letter case.
func is(arg []byte, keyword string) bool {
	if len(arg) != len(keyword) {
		return false
	}
	for i, c := range arg {
		if 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		if c != keyword[i] {
			return false
		}
	}
	return true
}

// option is one keyword of a command that fills a T, and the value after it.
type option[T any] struct {
	token string
	// class is a bit mask: two options that share a bit exclude each other,
	// and every option excludes itself,
	// unless again says otherwise.
	class uint32
	// again allows the option more than once, as Redis does in SET and GETEX:
	// the last one counts.
	again bool
	// many takes the integers that follow the value for more of them.
	many bool
	// flag is set instead of value for a keyword that takes none.
	flag  func(t *T)
	value func(t *T, v []byte) error
	// pair is set instead of value for a keyword that takes two.
	pair func(t *T, a, b []byte)
}

// parseOptions reads keywords in any order. A keyword that is not in the list, is
// repeated (unless it may be) or lacks its value is a syntax error. It stops at
// the keyword stop, if that is not empty, and returns the arguments after it.
func parseOptions[T any](t *T, list []option[T], args [][]byte, stop string) (rest [][]byte, err error) {
	var seen, used uint32 // classes, and the options themselves
	for i := 0; i < len(args); i++ {
		if stop != "" && is(args[i], stop) {
			return args[i+1:], nil
		}
		n := optionIndex(list, args[i])
		if n < 0 {
			return nil, errSyntax
		}
		o, bit := &list[n], uint32(1)<<n
		if seen&o.class != 0 && (!o.again || used&bit == 0) {
			return nil, errSyntax
		}
		seen |= o.class
		used |= bit
		switch left := len(args) - i - 1; {
		case o.flag != nil:
			o.flag(t)
			continue
		case o.pair != nil && left >= 2:
			o.pair(t, args[i+1], args[i+2])
			i += 2
			continue
		case o.pair != nil:
			return nil, errSyntax
		}
		if i++; i == len(args) {
			return nil, errSyntax
		}
		for more := true; more; {
			if err := o.value(t, args[i]); err != nil {
				return nil, err
			}
			if more = o.many && i+1 < len(args) && isInt(args[i+1]); more {
				i++
			}
		}
	}
	return nil, nil
}

func isInt(v []byte) bool {
	_, ok := parseInt(v)
	return ok
}

// findOption returns the option called name, or nil.
func findOption[T any](list []option[T], name []byte) *option[T] {
	if i := optionIndex(list, name); i >= 0 {
		return &list[i]
	}
	return nil
}

// optionIndex returns the index of the option called name, or -1.
func optionIndex[T any](list []option[T], name []byte) int {
	for i := range list {
		if is(name, list[i].token) {
			return i
		}
	}
	return -1
}

// intOption reads an option's integer value into dst(t).
func intOption[T any](token string, class uint32, dst func(t *T, n int64)) option[T] {
	return option[T]{token: token, class: class, value: func(t *T, v []byte) error {
		n, ok := parseInt(v)
		if !ok {
			return errNotInteger
		}
		dst(t, n)
		return nil
	}}
}

// checkKey refuses a key that no counter or filter can have.
func checkKey(key []byte) bool { return len(key) >= 1 && len(key) <= store.MaxKey }

// checkOpID refuses an opid of the wrong length.
func checkOpID(id []byte) error {
	if len(id) < 1 || len(id) > store.MaxOpID {
		return store.ErrOpIDSize
	}
	return nil
}

// unit is a suffix of a number and what it multiplies the number by. Letter case
// does not matter.
type unit struct {
	suffix string
	factor uint64
}

// The units of sizes are redis.conf's. No suffix stands before one that it ends
// with.
var (
	sizeUnits = []unit{
		{"kb", 1 << 10}, {"mb", 1 << 20}, {"gb", 1 << 30}, {"tb", 1 << 40},
		{"k", 1e3}, {"m", 1e6}, {"g", 1e9}, {"t", 1e12}, {"b", 1},
	}
	timeUnits = []unit{
		{"ms", uint64(time.Millisecond)}, {"s", uint64(time.Second)}, {"m", uint64(time.Minute)},
		{"h", uint64(time.Hour)}, {"d", uint64(24 * time.Hour)},
	}
)

// ParseBytes reads a size, such as 64mb; without a unit it is in bytes.
func ParseBytes(s string) (bytes int64, ok bool) { return parseUnits(s, sizeUnits, 1) }

// ParseDuration reads a time, such as 10m; without a unit it is in those that
// bare says.
func ParseDuration(s string, bare time.Duration) (d time.Duration, ok bool) {
	n, ok := parseUnits(s, timeUnits, uint64(bare))
	return time.Duration(n), ok
}

// parseUnits reads decimal digits and then one of the units, or none: bare.
func parseUnits(s string, units []unit, bare uint64) (n int64, ok bool) {
	factor := bare
	for _, u := range units {
		if at := len(s) - len(u.suffix); at >= 0 && strings.EqualFold(s[at:], u.suffix) {
			s, factor = s[:at], u.factor
			break
		}
	}
	count, err := strconv.ParseUint(s, 10, 63)
	if err != nil || count > math.MaxInt64/factor {
		return 0, false
	}
	return int64(count * factor), true
}
