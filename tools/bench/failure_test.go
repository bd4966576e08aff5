package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestRefused runs against servers that refuse everything, some operations, and
// some for now. Only what was answered well counts as throughput, the full text of
// an error is shown, and a run of refusals is no success.
func TestRefused(t *testing.T) {
	const text = "ERR unknown command 'CINCRBY', with args beginning with: 'x' "
	for _, tt := range []struct {
		name, wrong, shown string
		reply              func(n int64, usual string) string
		good               int64
		args               []string
	}{
		{"all", "every reply was an error: " + text, "the first: " + text, func(int64, string) string { return "-" + text + "\r\n" }, 0, nil},
		{"half", "", "50 of all 100 replies", func(n int64, usual string) string {
			if n%2 == 0 {
				return "-" + text + "\r\n"
			}
			return usual
		}, 50, nil},
		{"one, to be verified", "not verified: 1 operations were refused: ERR ?", "1 ERR", func(n int64, usual string) string {
			switch n {
			case 10:
				return "-BUSY later\r\n"
			case 20:
				return "-ERR \x1b\r\n"
			}
			return usual
		}, 99, []string{"--verify"}},
		{"one for now, to be verified", "", "the first: BUSY later", func(n int64, usual string) string {
			if n == 10 {
				return "-BUSY later\r\n"
			}
			return usual
		}, 100, []string{"--verify"}},
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
		if tt.wrong == "" && err != nil || tt.wrong != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.wrong)) {
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

// TestInterrupted ends a load early, which keeps what was measured until then.
func TestInterrupted(t *testing.T) {
	for _, loop := range loops {
		s := newCounterServer(t)
		o := quick(s, "cincrby")
		o.blocking, o.Count, o.Duration = loop == blocking, 0, time.Hour
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s.reply = func(n int64, usual string) string {
			if n == 500 {
				cancel()
			}
			return usual
		}
		r, err := send(ctx, o)
		if !errors.Is(err, errInterrupted) || r == nil || !r.Interrupted || r.Operations == 0 || r.Verified != nil {
			t.Errorf("%s: %v, %+v", loop, err, r)
			continue
		}
		var out bytes.Buffer
		if r.print(&out); !strings.Contains(out.String(), "interrupted") {
			t.Errorf("%s", out.String())
		}
		if b, err := json.Marshal(r); err != nil || !strings.Contains(string(b), `"interrupted":true`) {
			t.Errorf("%v: %s", err, b)
		}
		// Before anything is measured there is nothing to keep.
		if r, err = send(ctx, o); err != errInterrupted || r != nil {
			t.Errorf("%s: %v, %+v", loop, err, r)
		}
	}
}

// TestRefusedAtOnce finds before the load what would fail after it, and says in
// words what is wrong.
func TestRefusedAtOnce(t *testing.T) {
	s := newCounterServer(t)
	kept := filepath.Join(t.TempDir(), "kept.svg")
	if err := os.WriteFile(kept, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"--plot: ":            {"--plot", filepath.Join(kept, "x.svg")},
		"neither in .svg":     {"--plot", "x.gif"},
		"one address at most": {"a", "b"},
		"two addresses":       {"compare", "127.0.0.1:1"},
		"connection refused":  {"127.0.0.1:1"},
	} {
		if len(args)%2 == 0 && strings.HasPrefix(args[0], "--") {
			args = append(args, s.Addr().String())
		}
		out, err := runCommand(t, args...)
		if err == nil || !strings.Contains(err.Error(), want) || out != "" || s.count() != 0 {
			t.Errorf("%v: %v, want %q: %s", args, err, want, out)
		}
	}
	if b, err := os.ReadFile(kept); err != nil || string(b) != "old" {
		t.Errorf("%v: %q", err, b)
	}
	fresh := filepath.Join(filepath.Dir(kept), "fresh.csv")
	if err := checkOutput("--csv", fresh); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(fresh); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the check left a file: %v", err)
	}
}

// TestProgress says how far a run is, and of what.
func TestProgress(t *testing.T) {
	var out bytes.Buffer
	o := defaultOptions()
	o.Duration, o.Warmup = 2*time.Second, time.Second
	show := (&status{&out}).showProgress(&o)
	show(soFar{done: 140_000, elapsed: 1400 * time.Millisecond})
	o.Duration = 0
	show(soFar{done: 1_234_567, elapsed: 12345 * time.Millisecond})
	if want := "\r\x1b[K1.4 of 3.0 s, 140 000 ops\r\x1b[K12.3 s, 1 234 567 ops"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
