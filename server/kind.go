package server

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fbfkv/fbfkv/commands"
	"github.com/fbfkv/fbfkv/commands/observe"
	"github.com/fbfkv/fbfkv/resp"
)

// kind is the syntax of a setting's value and where in a Config it is kept.
type kind struct {
	// parse reads the words of a value into c.
	parse func(c *Config, words []string) error
	// format is parse's inverse.
	format func(c *Config) []string
	// syntax is the value in a help text, such as "yes|no".
	syntax string
	// list says that a value is any number of words; others are exactly one.
	list bool
}

// Redis' words for wrong values.
var (
	errNotInteger = errors.New("argument couldn't be parsed into an integer")
	errNotMemory  = errors.New("argument must be a memory value")
	errNotYesNo   = errors.New("argument must be 'yes' or 'no'")
	errOneWord    = errors.New("wrong number of arguments")
)

// scalar is the kind of a value that is one word.
func scalar[T any](field func(*Config) *T, syntax string, parse func(string) (T, error),
	format func(T) string) kind {
	return kind{
		parse: func(c *Config, words []string) error {
			if len(words) != 1 {
				return errOneWord
			}
			v, err := parse(words[0])
			if err == nil {
				*field(c) = v
			}
			return err
		},
		format: func(c *Config) []string { return []string{format(*field(c))} },
		syntax: syntax,
	}
}

// integer is the kind of a whole number in a range, both ends included.
func integer(field func(*Config) *int, lowest, highest int64) kind {
	return scalar(field, "<number>",
		func(s string) (int, error) {
			n, err := parseInteger(s, lowest, highest)
			return int(n), err
		},
		strconv.Itoa)
}

// count is the kind of a time that is kept as a number of units.
func count(field func(*Config) *int, unit time.Duration, lowest, highest int64) kind {
	return scalar(field, "<number>",
		func(s string) (int, error) {
			n, err := parseTime(s, unit, lowest, highest)
			return int(n), err
		},
		strconv.Itoa)
}

// seconds and millis are the kinds of a duration in whole units within a range.
func seconds(field func(*Config) *time.Duration, lowest, highest int64) kind {
	return duration(field, "<seconds>", time.Second, lowest, highest)
}

func millis(field func(*Config) *time.Duration, lowest, highest int64) kind {
	return duration(field, "<milliseconds>", time.Millisecond, lowest, highest)
}

func duration(field func(*Config) *time.Duration, syntax string, unit time.Duration, lowest,
	highest int64) kind {
	return scalar(field, syntax,
		func(s string) (time.Duration, error) {
			n, err := parseTime(s, unit, lowest, highest)
			return time.Duration(n) * unit, err
		},
		func(d time.Duration) string { return strconv.FormatInt(int64(d/unit), 10) })
}

// memory is the kind of a number of bytes, written with redis.conf's units.
func memory(field func(*Config) *int64, lowest, highest int64) kind {
	return scalar(field, "<bytes>",
		func(s string) (int64, error) { return parseBytes(s, lowest, highest) },
		func(n int64) string { return strconv.FormatInt(n, 10) })
}

// yesNo is the kind of a switch.
func yesNo(field func(*Config) *bool) kind {
	return scalar(field, "yes|no",
		func(s string) (bool, error) {
			switch {
			case strings.EqualFold(s, "yes"):
				return true, nil
			case strings.EqualFold(s, "no"):
				return false, nil
			}
			return false, errNotYesNo
		},
		func(v bool) string {
			if v {
				return "yes"
			}
			return "no"
		})
}

// choice is the kind of one word out of a few.
func choice(field func(*Config) *string, words ...string) kind {
	return scalar(field, strings.Join(words, "|"),
		func(s string) (string, error) {
			if s = strings.ToLower(s); slices.Contains(words, s) {
				return s, nil
			}
			return "", fmt.Errorf("argument(s) must be one of the following: %s", strings.Join(words, ", "))
		},
		func(s string) string { return s })
}

// text is the kind of any string up to a length, in bytes.
func text(field func(*Config) *string, syntax string, longest int) kind {
	return scalar(field, syntax,
		func(s string) (string, error) {
			if len(s) > longest {
				return "", fmt.Errorf("argument must not be longer than %d bytes", longest)
			}
			return s, nil
		},
		func(s string) string { return s })
}

// passwordSyntax marks the settings that are passwords.
const passwordSyntax = "<password>"

// password is the kind of a password. CONFIG GET does not show it.
func password(field func(*Config) *string) kind { return text(field, passwordSyntax, 512) }

// list is the kind of a value of several words.
func list[T any](field func(*Config) *T, syntax string, parse func([]string) (T, error),
	format func(T) []string) kind {
	return kind{
		parse: func(c *Config, words []string) error {
			v, err := parse(words)
			if err == nil {
				*field(c) = v
			}
			return err
		},
		format: func(c *Config) []string { return format(*field(c)) },
		syntax: syntax,
		list:   true,
	}
}

// must adds a condition to a kind.
func (k kind) must(hold func(c *Config) error) kind {
	parse := k.parse
	k.parse = func(c *Config, words []string) error {
		tentative := *c
		if err := parse(&tentative, words); err != nil {
			return err
		}
		if err := hold(&tentative); err != nil {
			return err
		}
		*c = tentative
		return nil
	}
	return k
}

// always makes a kind with a fixed value, which a file cannot change.
func (k kind) always(name, value string) kind {
	parse := k.parse
	k.parse = func(c *Config, words []string) error {
		err := parse(c, words)
		if err == nil && !strings.EqualFold(words[0], value) {
			c.noEffect(name + " " + words[0])
		}
		return err
	}
	k.format = func(*Config) []string { return []string{value} }
	return k
}

// parseInteger reads a decimal within a range.
func parseInteger(s string, lowest, highest int64) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, errNotInteger
	}
	return inRange(n, lowest, highest)
}

// parseBytes reads a number of bytes within a range, with a unit as in 64mb.
func parseBytes(s string, lowest, highest int64) (int64, error) {
	n, ok := commands.ParseBytes(s)
	if !ok {
		return 0, errNotMemory
	}
	return inRange(n, lowest, highest)
}

// parseTime reads a time within a range, as a number of units; it may have a unit
// of its own, as in 10m.
func parseTime(s string, unit time.Duration, lowest, highest int64) (int64, error) {
	d, ok := commands.ParseDuration(s, unit)
	switch _, err := strconv.ParseInt(s, 10, 64); {
	case err == nil || !ok: // it may be below 0, or more than a Duration holds
		return parseInteger(s, lowest, highest)
	case d%unit != 0:
		return 0, fmt.Errorf("argument must be a multiple of %v", unit)
	}
	return inRange(int64(d/unit), lowest, highest)
}

// inRange returns n, or an error if it is out of range.
func inRange(n, lowest, highest int64) (int64, error) {
	if n < lowest || n > highest {
		return 0, fmt.Errorf("argument must be between %d and %d inclusive", lowest, highest)
	}
	return n, nil
}

// splitWords splits a line by the rules of redis.conf and redis-cli.
func splitWords(line string) (words []string, ok bool) {
	split, ok := resp.SplitWords([]byte(line))
	for _, w := range split {
		words = append(words, string(w))
	}
	return words, ok
}

// quoteWord writes a word so that splitWords reads it back.
func quoteWord(w string) string {
	plain := w != "" && w[0] != '#'
	for i := range len(w) {
		if c := w[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`"'\`, c) >= 0 {
			plain = false
		}
	}
	if plain {
		return w
	}
	return string(observe.AppendQuoted(nil, []byte(w)))
}

// The conditions of single settings.

func notEmpty(c *Config) error {
	if c.Dir == "" {
		return errors.New("argument must not be empty")
	}
	return nil
}

func powerOfTwo(c *Config) error {
	if c.Partitions&(c.Partitions-1) != 0 {
		return errors.New("argument must be a power of two")
	}
	return nil
}

// parseAddresses reads the words of bind.
func parseAddresses(words []string) ([]string, error) {
	if len(words) == 0 || slices.Contains(words, "") {
		return nil, errors.New("expected at least one address")
	}
	return slices.Clone(words), nil
}
