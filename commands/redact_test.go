package commands

import (
	"bytes"
	"strings"
	"testing"
)

// TestRedact: no request shows a password, whatever else is wrong with it, and
// what is not secret stays.
func TestRedact(t *testing.T) {
	for line, want := range map[string]string{
		"AUTH pw":                             "AUTH (redacted)",
		"auth user pw":                        "auth (redacted) (redacted)",
		"AUTH a b c":                          "AUTH (redacted) (redacted) (redacted)",
		"HELLO":                               "HELLO",
		"HELLO 3":                             "HELLO 3",
		"HELLO 3 AUTH user pw SETNAME me":     "HELLO 3 AUTH (redacted) (redacted) SETNAME me",
		"HELLO 3 SETNAME me auth user pw":     "HELLO 3 SETNAME me auth (redacted) (redacted)",
		"HELLO 3 AUTH user":                   "HELLO 3 AUTH (redacted)",
		"HELLO x AUTH AUTH AUTH":              "HELLO x AUTH (redacted) (redacted)",
		"CONFIG SET requirepass pw":           "CONFIG SET requirepass (redacted)",
		"config set timeout 1 REQUIREPASS pw": "config set timeout 1 REQUIREPASS (redacted)",
		"CONFIG SET requirepass":              "CONFIG SET requirepass",
		"CONFIG SET masterauth pw":            "CONFIG SET masterauth (redacted)",
		"CONFIG SET tls-key-file-pass pw":     "CONFIG SET tls-key-file-pass (redacted)",
		"CONFIG GET requirepass":              "CONFIG GET requirepass",
		"GET AUTH":                            "GET AUTH",
		"CINCRBY k id 1":                      "CINCRBY k id 1",
	} {
		words := strings.Fields(line)
		args := make([][]byte, len(words))
		for i, w := range words {
			args[i] = []byte(w)
		}
		c, _ := Commands.resolve(args)
		if shown := string(bytes.Join(c.redact(args), []byte(" "))); shown != want {
			t.Errorf("%s is shown as %s, want %s", line, shown, want)
		}
		if string(bytes.Join(args, []byte(" "))) != line {
			t.Errorf("%s: the request itself was changed", line)
		}
	}
}
