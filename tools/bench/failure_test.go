package main

import (
	"strings"
	"testing"
)

// TestRefused runs against servers that refuse everything, and some operations. Only what was answered well counts as throughput, the full text of
// an error is shown, and a run of refusals is no success.
func TestRefused(t *testing.T) {
	const text = "ERR unknown command 'CINCRBY', with args beginning with: 'x' "
	for _, tt := range []struct {
		name, wrong, shown string
		reply              func(n int64, usual string) string
		good               int64
		args               []string
	}{
		{"all", "every reply was an error: \"" + text, "the first: \"" + text, func(int64, string) string { return "-" + text + "\r\n" }, 0, nil},
		{"half", "", "50 of all 100 replies", func(n int64, usual string) string {
			if n%2 == 0 {
				return "-" + text + "\r\n"
			}
			return usual
		}, 50, nil},
		{"one, to be verified", "not verified: 1 operations were refused: \"ERR \\x1b\"", "1 \"ERR\"", func(n int64, usual string) string {
			if n == 20 {
				return "-ERR \x1b\r\n"
			}
			return usual
		}, 99, []string{"--verify"}},
	} {
		s := newCounterServer(t)
		s.reply = tt.reply
		if tt.name == "one, to be verified" {
			s.apply = func(n int64) int64 {
				if n == 20 {
					return 0
				}
				return 1
			}
		}
		args := append([]string{s.Addr().String(), "--count", "100", "--connections", "2"}, tt.args...)
		out, err := runCommand(t, args...)
		if tt.wrong == "" && err != nil || tt.wrong != "" && (err == nil || !strings.Contains(err.Error(), tt.wrong)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.wrong)
		}
		if !strings.Contains(out, tt.shown) || strings.Contains(out, "\x1b") || strings.Contains(out, "verified ") != (tt.args != nil && err == nil) {
			t.Errorf("%s: want %q:\n%s", tt.name, tt.shown, out)
		}
		if !strings.Contains(out, "("+number(float64(tt.good))+" in ") {
			t.Errorf("%s: want %d good replies:\n%s", tt.name, tt.good, out)
		}
	}
}
