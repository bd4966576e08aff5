package main

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
)

// runCommand runs `bench` with arguments.
func runCommand(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out strings.Builder
	err := execute(t.Context(), args, &out)
	return out.String(), err
}

// TestCompare finds the slower of two servers. Addresses stand before, between and behind the flags.
func TestCompare(t *testing.T) {
	fast, slow := newCounterServer(t), newCounterServer(t)
	other, err := net.Dial("tcp", fast.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	answers := bufio.NewReader(other)
	slow.reply = func(n int64, usual string) string { // as slow as ten of the other, however busy the machine is
		for range 10 {
			fmt.Fprint(other, "*1\r\n$4\r\nPING\r\n")
			answers.ReadString('\n')
		}
		return usual
	}
	args := []string{"compare", "--max-steal", "1", fast.Addr().String(), "--workload-b=incrby", slow.Addr().String(),
		"--duration", "150ms", "--rounds", "3", "--connections", "4"}
	out, err := runCommand(t, args...)
	lines := strings.Split(out, "\n")
	if err != nil || len(lines) < 7 || !strings.HasPrefix(lines[0], "A  cincrby on "+fast.Addr().String()) ||
		!strings.HasPrefix(lines[1], "B  incrby on "+slow.Addr().String()) {
		t.Fatalf("%v: %s", err, out)
	}
	if rate, p50 := strings.Fields(lines[4]), strings.Fields(lines[5]); rate[0] != "operations/s" || p50[3] > "0.70" {
		t.Errorf("%s", out)
	}
	if _, err = runCommand(t, append(args, "--rounds", "0")...); err == nil {
		t.Error("no rounds were accepted")
	}
}

func TestRatio(t *testing.T) {
	results := func(rates ...float64) (all []*Result) {
		for _, r := range rates {
			all = append(all, &Result{Throughput: r, Steal: r / 1000})
		}
		return all
	}
	got := ratio(results(10, 30, 20, 40), results(10, 10, 40, 10), throughput)
	if want := (Ratio{A: 25, B: 10, Ratio: 2.5, Lowest: 0.5, Most: 4, Steal: 0.04}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestVerifyFails makes the command end with an error where a server counts wrongly, after the result.
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

// TestHelp names every workload, and what is wrong with a command line.
func TestHelp(t *testing.T) {
	for _, command := range [][]string{{"--help"}, {"compare", "-h"}, {"table", "--help"}} {
		out, err := runCommand(t, command...)
		if err != nil || !strings.Contains(out, "Usage: bench") {
			t.Errorf("%v: %v: %s", command, err, out)
		}
		for _, w := range workloads {
			if command[0] == "--help" && !strings.Contains(out, "  "+w.name+" ") {
				t.Errorf("no word about %s", w.name)
			}
		}
	}
	for want, args := range map[string][]string{"one address at most": {"a", "b"}, "two addresses": {"compare", "127.0.0.1:1"},
		"connection refused": {"127.0.0.1:1"}, "-plott": {"--plott"}, "only flags": {"table", "x"}} {
		if out, err := runCommand(t, args...); err == nil || !strings.Contains(err.Error(), want) || out != "" {
			t.Errorf("%v: %v, want %q: %s", args, err, want, out)
		}
	}
}
