package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

// runCommand runs `bench` with arguments.
func runCommand(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := newCommand()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(new(bytes.Buffer))
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// TestCompare finds the slower of two servers.
func TestCompare(t *testing.T) {
	fast, slow := newCounterServer(t), newCounterServer(t)
	slow.reply = func(n int64, usual string) string {
		time.Sleep(20 * time.Millisecond)
		return usual
	}
	args := []string{"compare", "--max-steal", "1", fast.Addr().String(), slow.Addr().String(), "--workload-b", "incrby",
		"--duration", "150ms", "--rounds", "3", "--connections", "4"}
	out, err := runCommand(t, append(args, "--json")...)
	if err != nil {
		t.Fatal(err)
	}
	var c Comparison
	if err := json.Unmarshal([]byte(out), &c); err != nil {
		t.Fatal(err)
	}
	r := c.Throughput
	if len(c.A) != 3 || len(c.B) != 3 || c.A[0].Workload != "cincrby" || c.B[0].Workload != "incrby" ||
		r.Ratio < 2 || r.Lowest > r.Ratio || r.Most < r.Ratio || math.Abs(r.Ratio-r.A/r.B) > 1e-9 || c.P50.Ratio > 0.7 {
		t.Errorf("%+v, %+v", r, c.P50)
	}
	if out, err = runCommand(t, args...); err != nil || !strings.Contains(out, "operations/s") {
		t.Errorf("%v: %s", err, out)
	}
	if _, err = runCommand(t, append(args, "--rounds", "0")...); err == nil {
		t.Error("no rounds were accepted")
	}
}

// TestCompareInterrupted compares the rounds that were over.
func TestCompareInterrupted(t *testing.T) {
	s := newCounterServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s.reply = func(n int64, usual string) string {
		if n == 550 { // in the second round
			cancel()
		}
		return usual
	}
	c := &compareCommand{o: defaultOptions(), a: "cincrby", b: "incrby", rounds: 5, quiet: quiet{maxSteal: 1}}
	c.o.Duration, c.o.Count, c.o.Connections = 0, 200, 2
	var out bytes.Buffer
	err := c.run(ctx, s.Addr().String(), s.Addr().String(), &out, new(bytes.Buffer))
	if !errors.Is(err, errInterrupted) || !strings.Contains(out.String(), "interrupted after 1 rounds") {
		t.Errorf("%v: %s", err, &out)
	}
}

func TestRatio(t *testing.T) {
	results := func(rates ...float64) (all []*Result) {
		for _, r := range rates {
			all = append(all, &Result{Throughput: r})
		}
		return all
	}
	got := ratio(results(10, 30, 20, 40), results(10, 10, 40, 10), throughput)
	if want := (Ratio{A: 25, B: 10, Ratio: 2.5, Lowest: 0.5, Most: 4}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestVerifyFails makes the command end with an error where a server counts
// wrongly, after the result.
func TestVerifyFails(t *testing.T) {
	s := newCounterServer(t)
	s.apply = func(n int64) int64 {
		if n == 7 {
			return 2
		}
		return 1
	}
	out, err := runCommand(t, s.Addr().String(), "--count", "100", "--connections", "2", "--verify")
	if err == nil || !strings.Contains(err.Error(), "1 operations counted too often") || !strings.Contains(out, "throughput") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestHelpTexts keeps lines short, and every workload and row named.
func TestHelpTexts(t *testing.T) {
	for _, command := range [][]string{{"--help"}, {"compare", "--help"}, {"table", "--help"}} {
		out, err := runCommand(t, command...)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out) {
			if len(line) > 130 {
				t.Errorf("%v: %d columns: %s", command, len(line), line)
			}
		}
		if command[0] == "--help" {
			for _, w := range workloads {
				if !strings.Contains(out, "  "+w.name+" ") {
					t.Errorf("no word about %s", w.name)
				}
			}
		}
	}
}
