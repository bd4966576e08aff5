package integration

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestCLI uses the server as a person does, with redis-cli: what it prints is
// what it prints of Redis.
func TestCLI(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	for _, step := range []struct {
		args string
		want string
	}{
		{"CINCRBY hits op-1 5", "(integer) 5"},
		{"CINCRBY hits op-1 5 WITHSTATUS", "1) (integer) 5\n2) (integer) 0"},
		{"CINCRBY hits op-1 6", "(error) MISMATCH opid was used with another delta"},
		{"CINCRBY hits", "(error) ERR wrong number of arguments for 'cincrby' command: CINCRBY key opid " +
			"delta [AT unix-time-milliseconds] [WITHSTATUS] [LBOUND lowerbound] [UBOUND upperbound] " +
			"[EX seconds | PX milliseconds | EXAT " +
			"unix-time-seconds | PXAT unix-time-milliseconds | PERSIST] [ENX]"},
		{"nosuch a", "(error) ERR unknown command 'nosuch', with args beginning with: 'a' "},
		{"GET nothing", "(nil)"},
		{"-3 GET nothing", "(nil)"},
		{"-3 FBF.ADD seen x", "(true)"},
		{"-3 FBF.ADD seen x", "(false)"},
		{"FBF.ADD seen x", "(integer) 0"},
		{"KEYS *", "1) \"hits\"\n2) \"seen\""},
		{"--scan --pattern h*", `"hits"`},
		{"-3 CTABLE LIST", "1# \"default\" => \"\""},
		{"-n 0 PING", "PONG"},
		{"SHUTDOWN NOSAVE", ""},
	} {
		if got := s.cli(strings.Fields(step.args)...); got != step.want {
			t.Errorf("redis-cli %s\n got %s\nwant %s", step.args, got, step.want)
		}
	}
	if code := s.exitCode(); code != 0 {
		t.Errorf("after SHUTDOWN the server exited with status %d", code)
	}
}

// TestPipeTwice loads a file of operations with redis-cli --pipe, and then, as
// after a failure half way, the whole file again.
func TestPipeTwice(t *testing.T) {
	t.Parallel()
	requireProgram(t, "redis-cli", "install Debian's package redis-tools")
	const operations, counters = 20000, 7
	s := startServer(t)
	var file strings.Builder
	for i := range operations {
		file.WriteString(frame("CINCRBY", fmt.Sprintf("counter-%d", i%counters), fmt.Sprintf("line-%d", i),
			"2"))
	}
	for range 2 {
		cmd := exec.Command("redis-cli", "-p", s.port(), "--pipe")
		cmd.Stdin = strings.NewReader(file.String())
		out, err := cmd.CombinedOutput()
		if want := fmt.Sprintf("errors: 0, replies: %d", operations); err != nil ||
			!strings.Contains(string(out), want) {
			t.Fatalf("redis-cli --pipe: %v\n%s", err, out)
		}
	}
	c := s.dial()
	for i := range counters {
		n := operations / counters
		if i < operations%counters {
			n++
		}
		c.want(fmt.Sprintf(":%d", 2*n), "CGET", fmt.Sprintf("counter-%d", i))
	}
}

// benchmarks returns the lines of the README, and of the guides, that run
// redis-benchmark.
func benchmarks(t *testing.T) (lines [][]string) {
	for _, page := range append(guides(t), "../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("[`\n]redis-benchmark (-[^`\n]*)").FindAllStringSubmatch(string(text), -1) {
			lines = append(lines, strings.Fields(m[1]))
		}
	}
	return lines
}

// TestBenchmarks runs the lines that the documents have for redis-benchmark, in
// both versions of the protocol: each ends well, and counts what it says.
func TestBenchmarks(t *testing.T) {
	t.Parallel()
	requireProgram(t, "redis-benchmark", "install Debian's package redis-tools")
	lines := benchmarks(t)
	if len(lines) < 2 {
		t.Fatalf("only %d lines: %q", len(lines), lines)
	}
	for _, line := range lines {
		for _, protocol := range [][]string{nil, {"-3"}} {
			const requests = 20_000
			s := startServer(t, "--appendfsync", "everysec")
			args := slices.Concat([]string{"-p", s.port(), "-n", fmt.Sprint(requests), "-c", "50", "-P",
				"16"}, protocol, line)
			out, err := exec.Command("redis-benchmark", args...).CombinedOutput()
			if text := string(out); err != nil || strings.Contains(text, "rror") ||
				strings.Contains(text, "WARN") {
				t.Fatalf("redis-benchmark %q: %v\n%s", args, err, out)
			}
			c := s.dial()
			if slices.Contains(line, "CINCRBY") {
				// Of these ids, drawn from a billion, hardly one is drawn twice.
				if n := number(c.do("CGET", "counter")); n < requests-10 || n > requests {
					t.Errorf("the counter is %d", n)
				}
				continue
			}
			for _, name := range []string{"PING_INLINE", "PING_MBULK", "INCR", "GET"} {
				if !strings.Contains(string(out), name+": ") {
					t.Errorf("redis-benchmark says nothing of %s:\n%s", name, out)
				}
			}
			c.want(fmt.Sprintf(":%d", requests), "CGET", "counter:__rand_int__")
		}
	}
}
