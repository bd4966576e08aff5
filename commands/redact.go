package commands

import (
	"slices"
	"strings"

	"github.com/fbfkv/fbfkv/commands/observe"
)

// redacted stands where an argument is not shown.
var redacted = []byte("(redacted)")

// secretSettings are the settings whose values are passwords: the server's own, of which a test of it
// finds one that is missing, and such of Redis's as clients may send.
var secretSettings = []string{"REQUIREPASS", "MASTERAUTH", "TLS-KEY-FILE-PASS", "TLS-CLIENT-KEY-FILE-PASS",
	"CLUSTER-SECRET", "REGION-PASSWORD"}

// redact returns a request of a command as it may be shown in MONITOR and SLOWLOG: args
// itself if nothing in it is secret, or else a copy with "(redacted)" for passwords and
// for what ACL says of users. It does not matter whether the request is valid.
func (c *Command) redact(args [][]byte) [][]byte {
	if c.Secret == nil {
		return args
	}
	shown := args
	c.Secret(args, func(i int) {
		if i >= len(args) {
			return
		}
		if &shown[0] == &args[0] {
			shown = slices.Clone(args)
		}
		shown[i] = redacted
	})
	return shown
}

// secretFrom makes a Command.Secret that hides the arguments from index first.
func secretFrom(first int) func(args [][]byte, hide func(int)) {
	return func(args [][]byte, hide func(int)) {
		for i := first; i < len(args); i++ {
			hide(i)
		}
	}
}

// helloSecret hides what follows AUTH in HELLO. The word AUTH may itself be a
// client's name or a password, so what follows every one of them is hidden.
func helloSecret(args [][]byte, hide func(int)) {
	for i := 1; i < len(args); i++ {
		if is(args[i], "AUTH") {
			hide(i + 1)
			hide(i + 2)
		}
	}
}

// configSecret hides the passwords in CONFIG SET.
func configSecret(args [][]byte, hide func(int)) {
	for i := 2; i < len(args); i++ {
		if slices.ContainsFunc(secretSettings, func(name string) bool { return is(args[i], name) }) {
			hide(i + 1)
		}
	}
}

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
		if word == "" || strings.ContainsFunc(word, func(r rune) bool {
			return r <= ' ' || r > '~' || r == '"' || r == '\\'
		}) {
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
