package acl

import (
	"maps"
	"slices"
)

// Access is how a command uses a key.
type Access uint8

// The ways to use a key. One that is neither read nor written (EXISTS, TYPE)
// needs a pattern that matches, whatever that allows, as in Redis.
const (
	Read  Access = 1 << iota // its value reaches the client
	Write                    // it may be changed or deleted

	readWrite = Read | Write
)

// keyPattern allows a kind of access to the keys that match.
type keyPattern struct {
	pattern string
	access  Access
}

// selector is a set of permissions: commands, and keys to use them with. A
// user's selectors are alternatives, of which one has to allow all of a
// request.
type selector struct {
	catalog *Catalog

	fromAll   bool             // commands began with +@all, not -@all
	commands  bitset           // allowed ones
	firstArgs map[int][]string // of commands that are not: allowed with these, in lower case
	rules     []string         // beyond +@all or -@all, in order

	allKeys bool
	keys    []keyPattern

	allChannels bool
	channels    []string
}

// newSelector returns a selector that allows nothing.
func newSelector(c *Catalog) *selector { return &selector{catalog: c, commands: c.newBitset()} }

// clone returns an independent copy.
func (s *selector) clone() *selector {
	own := *s
	own.commands = slices.Clone(s.commands)
	own.firstArgs = maps.Clone(s.firstArgs)
	for i, args := range own.firstArgs {
		own.firstArgs[i] = slices.Clone(args)
	}
	own.rules = slices.Clone(s.rules)
	own.keys = slices.Clone(s.keys)
	own.channels = slices.Clone(s.channels)
	return &own
}

// everything reports whether the selector allows every command on every key.
func (s *selector) everything() bool {
	if !s.fromAll || !s.allKeys {
		return false
	}
	for i := range s.catalog.commands {
		if !s.commands.has(i) {
			return false
		}
	}
	return true
}

// setAll allows all commands or none.
func (s *selector) setAll(on bool) {
	s.fromAll = on
	s.rules, s.firstArgs = nil, nil
	for i := range s.catalog.commands {
		s.commands.set(i, on)
	}
}

// setCommand allows or forbids a command with its subcommands.
func (s *selector) setCommand(i int, on bool) {
	s.commands.set(i, on)
	delete(s.firstArgs, i)
	for _, sub := range s.catalog.subs[i] {
		s.setCommand(sub, on)
	}
}

// allowFirstArg allows a command with a certain first argument.
func (s *selector) allowFirstArg(i int, arg string) {
	if s.firstArgs == nil {
		s.firstArgs = map[int][]string{}
	}
	if !slices.Contains(s.firstArgs[i], arg) {
		s.firstArgs[i] = append(s.firstArgs[i], arg)
	}
}

// addKeys allows access to the keys that match a pattern.
func (s *selector) addKeys(pattern string, access Access) {
	for i := range s.keys {
		if s.keys[i].pattern == pattern {
			s.keys[i].access |= access
			return
		}
	}
	s.keys = append(s.keys, keyPattern{pattern, access})
}
