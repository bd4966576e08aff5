package commands

import (
	"math"
	"strconv"
	"strings"
	"time"
)

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
