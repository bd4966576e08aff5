package commands

import "slices"

// redacted stands where an argument is not shown.
var redacted = []byte("(redacted)")

// secretSettings are the settings whose values are passwords.
var secretSettings = []string{"REQUIREPASS", "MASTERAUTH", "TLS-KEY-FILE-PASS", "TLS-CLIENT-KEY-FILE-PASS"}

// Redact returns a request as it may be shown in MONITOR, SLOWLOG, a log or an
// error: args itself if nothing in it is secret, or else a copy with
// "(redacted)" for passwords and for what ACL says of users. It does not
// matter whether the request is valid. A request whose command does not exist
// comes back as it is: show the name alone, for it may be a misspelt AUTH.
func (t *Table) Redact(args [][]byte) [][]byte {
	if len(args) == 0 {
		return args
	}
	c := t.Get(args[0])
	if c == nil {
		return args
	}
	if c.subs != nil && len(args) > 1 {
		if sub := c.sub(args[1]); sub != nil {
			c = sub
		}
	}
	if c.Secret == nil {
		return args
	}
	var shown [][]byte
	c.Secret(args, func(i int) {
		if i >= len(args) {
			return
		}
		if shown == nil {
			shown = slices.Clone(args)
		}
		shown[i] = redacted
	})
	if shown == nil {
		return args
	}
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
