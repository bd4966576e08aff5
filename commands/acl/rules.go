package acl

import (
	"errors"
	"strings"
)

// The faults of a rule, in Redis' words.
var (
	errSyntax      = errors.New("Syntax error")
	errUnknown     = errors.New("Unknown command or category name in ACL")
	errAfterAllKey = errors.New("Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid " +
		"and does not have any effect. Try 'resetkeys' to start with an empty list of patterns")
	errAfterAllChannel = errors.New("Adding a pattern after the * pattern (or the 'allchannels' flag) is " +
		"not valid and does not have any effect. Try 'resetchannels' to start with an empty list of channels")
	errNoSuchPassword = errors.New("The password you are trying to remove from the user does not exist")
	errBadHash        = errors.New("The password hash must be exactly 64 characters and contain only " +
		"lowercase hexadecimal characters")
	errSubcommandArg = errors.New("Allowing first-arg of a subcommand is not supported")
)

// ErrDuplicate is why a file that describes a user twice is refused.
var ErrDuplicate = errors.New("Duplicate user found. A user can only be defined once in config files")

// RuleError is a rule that cannot be applied.
type RuleError struct {
	Rule string // may be a password: not for logs
	Err  error  // in Redis' words
}

// Error says what is wrong, without the rule.
func (e *RuleError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e *RuleError) Unwrap() error { return e.Err }

// ParenthesisError is a selector that is not closed.
type ParenthesisError struct{ Rule string }

// Error words the error as ACL SETUSER does.
func (e *ParenthesisError) Error() string {
	return "Unmatched parenthesis in acl selector starting at '" + e.Rule + "'."
}

// MergeSelectors joins the words of each selector, "(+get" and "~x)", to one
// rule. An error is a *ParenthesisError.
func MergeSelectors(words []string) (rules []string, err error) {
	start := -1
	for i, w := range words {
		switch {
		case start < 0 && strings.HasPrefix(w, "(") && !strings.HasSuffix(w, ")"):
			start = i
		case start < 0:
			rules = append(rules, w)
		case strings.HasSuffix(w, ")"):
			rules = append(rules, strings.Join(words[start:i+1], " "))
			start = -1
		}
	}
	if start >= 0 {
		return nil, &ParenthesisError{words[start]}
	}
	return rules, nil
}

// maxPattern is the longest pattern, in bytes: it is matched against keys.
const maxPattern = 1024

// hasSpaces reports whether a text would not survive in a line of words.
func hasSpaces(s string) bool { return strings.ContainsAny(s, " \t\n\v\f\r\x00") }

// selectorWords are the rules of a selector that are single words.
var selectorWords = map[string]func(s *selector){
	"allkeys":       func(s *selector) { s.allKeys, s.keys = true, nil },
	"~*":            func(s *selector) { s.allKeys, s.keys = true, nil },
	"resetkeys":     func(s *selector) { s.allKeys, s.keys = false, nil },
	"allchannels":   func(s *selector) { s.allChannels, s.channels = true, nil },
	"&*":            func(s *selector) { s.allChannels, s.channels = true, nil },
	"resetchannels": func(s *selector) { s.allChannels, s.channels = false, nil },
	"allcommands":   func(s *selector) { s.setAll(true) },
	"+@all":         func(s *selector) { s.setAll(true) },
	"nocommands":    func(s *selector) { s.setAll(false) },
	"-@all":         func(s *selector) { s.setAll(false) },
}

// apply changes the selector by one rule.
func (s *selector) apply(rule string) error {
	if set := selectorWords[strings.ToLower(rule)]; set != nil {
		set(s)
		return nil
	}
	switch {
	case len(rule) < 1:
		return errSyntax
	case rule[0] == '~':
		return s.applyKeys(rule[1:], readWrite)
	case rule[0] == '%':
		return s.applyAccess(rule[1:])
	case rule[0] == '&':
		return s.applyChannel(rule[1:])
	case rule[0] != '+' && rule[0] != '-':
		return errSyntax
	case strings.HasPrefix(rule[1:], "@"):
		return s.applyCategory(rule[2:], rule[0] == '+')
	case rule[0] == '-':
		return s.applyCommand(rule[1:], false)
	case strings.Contains(rule, "|"):
		return s.applySubcommand(rule[1:])
	}
	return s.applyCommand(rule[1:], true)
}

// applyAccess is %R~pattern, %W~pattern and %RW~pattern.
func (s *selector) applyAccess(rule string) error {
	if s.allKeys {
		return errAfterAllKey
	}
	var access Access
	letters, pattern, ok := strings.Cut(rule, "~")
	for _, letter := range strings.ToUpper(letters) {
		bit := map[rune]Access{'R': Read, 'W': Write}[letter]
		if bit == 0 || access&bit != 0 {
			return errSyntax
		}
		access |= bit
	}
	if !ok || access == 0 {
		return errSyntax
	}
	return s.applyKeys(pattern, access)
}

// applyKeys is ~pattern.
func (s *selector) applyKeys(pattern string, access Access) error {
	switch {
	case s.allKeys:
		return errAfterAllKey
	case hasSpaces(pattern) || len(pattern) > maxPattern:
		return errSyntax
	}
	s.addKeys(pattern, access)
	return nil
}

// applyChannel is &pattern.
func (s *selector) applyChannel(pattern string) error {
	switch {
	case s.allChannels:
		return errAfterAllChannel
	case hasSpaces(pattern) || len(pattern) > maxPattern:
		return errSyntax
	}
	for _, known := range s.channels {
		if known == pattern {
			return nil
		}
	}
	s.channels = append(s.channels, pattern)
	return nil
}

// applyCategory is +@category and -@category.
func (s *selector) applyCategory(name string, on bool) error {
	name = strings.ToLower(name)
	if _, ok := s.catalog.Members(name); !ok {
		return errUnknown
	}
	for _, i := range s.catalog.members[name] {
		s.setCommand(i, on)
	}
	s.note("@"+name, on)
	return nil
}

// applyCommand is +command, -command and -command|subcommand.
func (s *selector) applyCommand(name string, on bool) error {
	i, ok := s.catalog.lookup(name)
	if !ok {
		return errUnknown
	}
	s.setCommand(i, on)
	s.note(s.catalog.commands[i].Name, on)
	return nil
}

// applySubcommand is +command|subcommand, and +command|argument for a command
// without subcommands.
func (s *selector) applySubcommand(rule string) error {
	at := strings.LastIndexByte(rule, '|')
	name, arg := rule[:at], strings.ToLower(rule[at+1:])
	i, ok := s.catalog.lookup(name)
	switch {
	case !ok:
		return errUnknown
	case strings.Contains(name, "|"):
		return errSubcommandArg
	case arg == "" || hasSpaces(arg):
		return errSyntax
	case s.catalog.subs[i] != nil:
		return s.applyCommand(rule, true)
	}
	s.allowFirstArg(i, arg)
	s.note(s.catalog.commands[i].Name+"|"+arg, true)
	return nil
}

// note keeps a rule on commands for the description; it replaces those that it
// makes void, about the same name or its subcommands.
func (s *selector) note(name string, on bool) {
	kept := s.rules[:0]
	for _, r := range s.rules {
		if r[1:] != name && !strings.HasPrefix(r[1:], name+"|") {
			kept = append(kept, r)
		}
	}
	sign := "-"
	if on {
		sign = "+"
	}
	s.rules = append(kept, sign+name)
}
