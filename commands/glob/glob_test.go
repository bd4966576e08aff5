package glob

import (
	"strings"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/internal/testwait"
)

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, s string
		want       bool
	}{
		{"", "", true}, {"", "a", false}, {"a", "", false}, {"*", "", true}, {"**", "", true},
		{"?", "", false},
		{"a", "a", true}, {"a", "A", false}, {"a", "ab", false}, {"ab", "a", false},
		{"*", "anything", true}, {"a*", "abc", true}, {"*c", "abc", true}, {"a*c", "abbbc", true},
		{"a*c", "abbb", false},
		{"a*b*c", "a1b2b3c", true}, {"*a*a*a", "aaa", true}, {"*a*a*a*a", "aaa", false}, {"**a", "bba", true},
		{"h?llo", "hello", true}, {"h?llo", "hllo", false}, {"h*llo", "heeeello", true},
		{"h[ae]llo", "hallo", true}, {"h[ae]llo", "hillo", false}, {"h[^e]llo", "hallo", true},
		{"h[^e]llo", "hello", false},
		{"h[a-c]llo", "hbllo", true}, {"h[c-a]llo", "hbllo", true}, {"h[a-c]llo", "hdllo", false},
		{"[a-]", "-", false}, {"[a-]", "^", true}, {"[a-]]", "]", true}, {"[-a]", "-", true},
		{"[a-", "a", true}, {"[a", "a", true}, {"[a", "b", false},
		{"[]", "a", false}, {"[^]", "a", true}, {"[]a]", "]a]", false}, {"[", "", false}, {"[", "[", false},
		{"a[", "a", false},
		{`\*`, "*", true}, {`\*`, "a", false}, {`\?x`, "?x", true}, {`a\`, `a\`, true}, {`\\`, `\`, true},
		{`\a`, "a", true},
		{`[\]]`, "]", true}, {`[\-x]`, "-", true}, {`[a\-z]`, "b", false}, {`[a\-z]`, "-", true},
		{"*[0-9]", "a5", true}, {"*[0-9]", "5a", false}, {"a\x00*", "a\x00b", true},
		{"[\x80-\xff]", "\x90", true},
		{"*?*?*", "ab", true}, {"*?*?*", "a", false},
	} {
		if got := Match([]byte(c.pattern), []byte(c.s)); got != c.want {
			t.Errorf("Match(%q, %q) = %v", c.pattern, c.s, got)
		}
	}
}

// matchSimply is the rule of each part of a pattern written down as it is
// defined, by recursion; exponential, so for short input only.
func matchSimply(p, s []byte) bool {
	if len(p) == 0 {
		return len(s) == 0
	}
	if p[0] == '*' {
		return matchSimply(p[1:], s) || len(s) > 0 && matchSimply(p, s[1:])
	}
	if len(s) == 0 {
		return false
	}
	next, ok := matchByte(p, 0, s[0])
	return ok && matchSimply(p[next:], s[1:])
}

func FuzzMatch(f *testing.F) {
	for _, p := range []string{"*a*b*c", "[a-c]*[^x", `\*?[\]]`, "h?l*o[", "***"} {
		f.Add([]byte(p), []byte("hello abc*]"))
	}
	f.Fuzz(func(t *testing.T, p, s []byte) {
		p, s = p[:min(len(p), 12)], s[:min(len(s), 12)]
		if got, want := Match(p, s), matchSimply(p, s); got != want {
			t.Errorf("Match(%q, %q) = %v", p, s, got)
		}
	})
}

// A pattern that makes a backtracking matcher run for years takes this one at most the product of
// the lengths.
func TestMatchIsNotExponential(t *testing.T) {
	start := time.Now()
	s := []byte(strings.Repeat("a", 64<<10))
	for _, p := range []string{strings.Repeat("*a", 1024/2-1) + "b", strings.Repeat("a*", 1024/2-1) + "b",
		strings.Repeat("*", 1024-1) + "b", strings.Repeat("*?", 400) + "[^a]"} {
		if Match([]byte(p), s) {
			t.Errorf("%.20q… matches", p)
		}
	}
	if took := time.Since(start); took > testwait.Limit {
		t.Errorf("took %v", took)
	}
}
