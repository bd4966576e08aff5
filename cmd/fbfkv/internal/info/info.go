// Package info reads what a server answers to INFO, for subcommands that ask one.
package info

import (
	"strconv"
	"strings"
)

// Info has the fields of INFO, by name.
type Info map[string]string

// Parse reads the lines of INFO; what is no field is left out.
func Parse(text string) Info {
	fields := make(Info)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

// Number returns a field as a number; 0 if it is not one.
func (f Info) Number(name string) float64 {
	n, err := strconv.ParseFloat(f[name], 64)
	if err != nil {
		return 0
	}
	return n
}

// Pairs returns the parts of a field that is name=value,name=value.
func (f Info) Pairs(name string) Info {
	pairs := make(Info)
	for part := range strings.SplitSeq(f[name], ",") {
		if name, value, ok := strings.Cut(part, "="); ok {
			pairs[name] = value
		}
	}
	return pairs
}
