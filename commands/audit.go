package commands

import (
	"slices"
	"strings"

	"github.com/fbfkv/fbfkv/commands/observe"
)

// Audit declares that a command is an administrative act, which leaves a line in
// the server's log when it has been carried out. It reports whether this request
// is one, and calls hide with the index of every argument that is secret.
type Audit func(args [][]byte, hide func(i int)) bool

// auditAll is the Audit of a command without secrets.
func auditAll([][]byte, func(int)) bool { return true }

// audited declares that a command is an administrative act.
func audited(how Audit, c Command) Command {
	c.Audit = how
	return c
}

// audit tells the server of an act that a client carried out. Its command has
// the name by which it was declared, and what is secret or long is left out.
func (s *Server) audit(ses *Session, c *Command, args [][]byte) {
	shown := slices.Clone(args)
	hide := func(i int) {
		if i < len(shown) {
			shown[i] = redacted
		}
	}
	if s.Audited == nil || !c.Audit(args, hide) {
		return
	}
	line := []byte(strings.ToUpper(strings.ReplaceAll(c.fullName, "|", " ")))
	names := 1 + strings.Count(c.fullName, "|")
	for _, word := range observe.Abridged(shown[names:]) {
		line = append(line, ' ')
		if word == "" || strings.ContainsFunc(word, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }) {
			line = observe.AppendQuoted(line, []byte(word))
		} else {
			line = append(line, word...)
		}
	}
	s.Audited(ses, string(line))
}

// configAudit shows CONFIG SET without passwords.
func configAudit(args [][]byte, hide func(int)) bool {
	configSecret(args, hide)
	return true
}

// userAudit shows ACL SETUSER without passwords and their hashes.
func userAudit(args [][]byte, hide func(int)) bool {
	for i := 3; i < len(args); i++ {
		if len(args[i]) > 0 && strings.IndexByte("><#!", args[i][0]) >= 0 {
			hide(i)
		}
	}
	return true
}

// denialsAudit takes ACL LOG for an act if it forgets the denials.
func denialsAudit(args [][]byte, _ func(int)) bool { return len(args) == 3 && is(args[2], "RESET") }
