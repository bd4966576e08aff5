package server

import (
	"fmt"
	"strconv"

	"github.com/fbfkv/fbfkv/store"
)

// GroupSketches heads the settings of Bloom filters and count-min sketches.
const GroupSketches = "Sketches"

// sketchSettings are RedisBloom's settings, with its words for wrong values.
var sketchSettings = []Setting{
	{
		Name: "bf-error-rate", Group: GroupSketches, Default: "0.01", Mutable: true,
		Doc: "The error rate of a Bloom filter that BF.ADD, BF.MADD, BF.INSERT or BF.CADD creates, above 0 " +
			"and below 1. Above 0.25 it is 0.25.",
		kind: scalar(func(c *Config) *float64 { return &c.Bloom.Error }, "<probability>", parseErrorRate,
			func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }),
	}, {
		Name: "bf-initial-size", Group: GroupSketches, Default: "100", Mutable: true,
		Doc:  "The capacity of the first sub-filter of such a filter.",
		kind: bloomNumber(func(c *Config) *uint64 { return &c.Bloom.Capacity }, "bf-initial-size", 1, 1<<30),
	}, {
		Name: "bf-expansion-factor", Group: GroupSketches, Default: "2", Mutable: true,
		Doc: "Each sub-filter has so many times the capacity of the one before. 0: the filter does not grow.",
		kind: bloomNumber(func(c *Config) *uint32 { return &c.Bloom.Expansion }, "bf-expansion-factor", 0,
			32768),
	}, {
		Name: "module-list-bf", Group: GroupSketches, Default: "no", Mutable: true,
		Doc:  "Whether MODULE LIST and INFO show RedisBloom's module bf, for tools that look for it.",
		kind: yesNo(func(c *Config) *bool { return &c.ListBloom }),
	},
}

func parseErrorRate(s string) (float64, error) {
	v, err := strconv.ParseFloat(s, 64)
	switch {
	case err != nil:
		return 0, fmt.Errorf("Invalid value for `bf-error-rate`")
	case !(v > 0 && v < 1):
		return 0, fmt.Errorf("Value for `bf-error-rate` must be in the range (0.000000, 1.000000)")
	}
	return min(v, 0.25), nil
}

// bloomNumber is the kind of a whole number of a Bloom filter.
func bloomNumber[T uint32 | uint64](field func(*Config) *T, name string, lowest, highest T) kind {
	return scalar(field, "<number>", func(s string) (T, error) {
		v, err := strconv.ParseInt(s, 10, 64)
		switch {
		case err != nil:
			return 0, fmt.Errorf("Invalid value for `%s`", name)
		case v < int64(lowest) || v > int64(highest):
			return 0, fmt.Errorf("Value for `%s` must be in the range [%d, %d]", name, lowest, highest)
		}
		return T(v), nil
	}, func(v T) string { return strconv.FormatUint(uint64(v), 10) })
}

// newBloom returns the options of a filter that is made without any.
func (s *Server) newBloom() *store.BloomOptions { return &s.config.Load().Bloom }
