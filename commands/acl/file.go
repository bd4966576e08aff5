package acl

import (
	"errors"
	"fmt"
	"strings"
)

// unchanged ends the error of a file that was refused.
const unchanged = "WARNING: ACL errors detected, no change to the previously active ACL rules was performed"

// maxFileErrors bounds how many lines one error blames.
const maxFileErrors = 100

// ParseFile reads the text of an ACL file, one "user name rule …" per line,
// into new users; name is the file's, for errors. If the file does not define
// the user default, that one has the password given; "": none. An error, on
// one line, says what is wrong in every line, in Redis' words, without passwords.
func ParseFile(c *Catalog, name, text, password string) (*Users, error) {
	users := NewUsers(c)
	users.SetDefaultPassword(password)
	defined := map[string]bool{}
	var faults []string
	n := 0
	for line := range strings.Lines(text) {
		n++
		words := strings.FieldsFunc(line, isBlank)
		if len(words) == 0 {
			continue
		}
		if fault := users.defineLine(words, fmt.Sprintf("%s:%d", name, n), n, defined); fault != "" &&
			len(faults) < maxFileErrors {
			faults = append(faults, fault)
		}
	}
	if len(faults) > 0 {
		return nil, errors.New(strings.Join(append(faults, unchanged), " "))
	}
	return users, nil
}

// isBlank reports whether a rune separates the words of a line.
func isBlank(r rune) bool { return r == ' ' || r == '\t' || r == '\r' || r == '\n' }

// defineLine defines the user of one line, which is at a place in a file, and
// returns what is wrong with it, or "".
func (u *Users) defineLine(words []string, at string, line int, defined map[string]bool) string {
	if words[0] != "user" || len(words) < 2 {
		return at + " should start with user keyword followed by the username."
	}
	err := u.Define(words[1], words[2:], defined)
	var rule *RuleError
	var open *ParenthesisError
	switch {
	case err == nil:
		return ""
	case errors.Is(err, ErrBadName):
		return fmt.Sprintf("'%s: username '%q' contains invalid characters.", at, words[1])
	case errors.Is(err, ErrDuplicate):
		return fmt.Sprintf("WARNING: Duplicate user '%s' found on line %d.", words[1], line)
	case errors.As(err, &open):
		return at + ": Unmatched parenthesis in selector definition."
	case errors.As(err, &rule) && errors.Is(err, errUnknown):
		return fmt.Sprintf("%s: Error in applying operation '%s': %s.", at, rule.Rule, rule.Err)
	}
	return fmt.Sprintf("%s: %s.", at, err)
}

// File is the text of an ACL file that describes the users.
func (u *Users) File() string {
	var b strings.Builder
	for _, user := range u.List() {
		b.WriteString(user.String())
		b.WriteByte('\n')
	}
	return b.String()
}
