package integration

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// benchResult is what of `fbfkv bench --json` the tests look at.
type benchResult struct {
	Operations int64            `json:"operations"`
	Throughput float64          `json:"throughput"`
	Duplicates int64            `json:"duplicates"`
	Errors     map[string]int64 `json:"errors"`
	Verified   struct {
		Acknowledged, Wrong int64
	} `json:"verified"`
}

// runBench runs the load generator.
func runBench(t *testing.T, args ...string) benchResult {
	t.Helper()
	cmd := exec.Command(program, append([]string{"bench"}, args...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("bench %v: %v: %s%s", args, err, out, stderr.String())
	}
	var r benchResult
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return r
}

// TestBench loads the real server for a second with each workload, and finds
// every operation counted once.
func TestBench(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	for _, args := range [][]string{
		{"--workload", "cincrby", "--keys", "zipf:1000:1.1"},
		{"--workload", "retry", "--retry-share", "0.4", "--pipeline", "16", "--threads", "2"},
		{"--workload", "incrby", "--rate", "5000"},
		{"--workload", "retry", "--ids", "client-seq", "--loop", "goroutines", "--retry-delay", "20ms"},
	} {
		r := runBench(t, append(args, s.address(), "--connections", "10", "--duration", "1s", "--verify", "--json")...)
		if r.Operations == 0 || r.Verified.Acknowledged == 0 || r.Verified.Wrong != 0 || len(r.Errors) > 0 {
			t.Errorf("%v: %+v", args, r)
		}
		if retries := args[1] == "retry"; retries != (r.Duplicates > 0) {
			t.Errorf("%v: %d duplicates", args, r.Duplicates)
		}
	}
}

// TestBenchRecipes loads a real Redis with the recipes it can run.
func TestBenchRecipes(t *testing.T) {
	t.Parallel()
	requireProgram(t, "redis-server", "install Debian's package redis-server")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_, port, _ := net.SplitHostPort(address)
	l.Close()
	cmd := exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--dir", t.TempDir(), "--save", "", "--requirepass", "secret")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if nc, err := net.Dial("tcp", address); err == nil {
			nc.Close()
			break
		}
		if time.Now().After(end) {
			t.Fatal("redis-server does not answer")
		}
	}
	for _, workload := range []string{"lua", "fcall", "sadd", "incrby"} {
		r := runBench(t, "redis://:secret@"+address, "--workload", workload, "--connections", "10", "--pipeline", "4",
			"--duration", "300ms", "--verify", "--json", "--key-prefix", workload+":")
		if r.Operations == 0 || r.Verified.Acknowledged == 0 || r.Verified.Wrong != 0 || len(r.Errors) > 0 {
			t.Errorf("%s: %+v", workload, r)
		}
	}
	out, err := exec.Command(program, "bench", address, "--auth", "wrong", "--duration", "100ms").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "WRONGPASS") {
		t.Errorf("with a wrong password: %v: %s", err, out)
	}
}

// TestBenchTable measures one row of the table with servers of its own, and
// leaves nothing behind.
func TestBenchTable(t *testing.T) {
	t.Parallel()
	requireProgram(t, "redis-server", "install Debian's package redis-server")
	tmp := t.TempDir()
	cmd := exec.Command(program, "bench", "table", "--max-steal", "1", "--rows", "lua-everysec-16,duplicates,recovery,start",
		"--seconds", "0.3", "--rounds", "1", "--counters", "20000", "--json")
	cmd.Env = append(cmd.Environ(), "TMPDIR="+tmp)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var names []string
	for line := range strings.Lines(string(out)) {
		var row struct {
			Name           string
			Measured, Goal float64
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil || row.Measured <= 0 || row.Goal <= 0 {
			t.Fatalf("%v: %s", err, line)
		}
		names = append(names, row.Name)
	}
	want := "lua-everysec-16 duplicates-100-memory duplicates-10-memory duplicates-100-runs duplicates-10-runs recovery start-kill start-order"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("rows %s, want %s", got, want)
	}
	if left, _ := filepath.Glob(filepath.Join(tmp, "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestBenchSweep makes one small sweep with the real server, and profiles it:
// nearly all of its time must be of a known kind.
func TestBenchSweep(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	out, doc := filepath.Join(tmp, "out"), filepath.Join(tmp, "doc.md")
	if err := os.WriteFile(doc, []byte("<!-- processors: begin -->\n<!-- processors: end -->\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "bench", "sweep", "--only", "processors", "--max-steal", "1", "--seconds", "0.1", "--profile", "1", "--out", out, "--into", doc)
	cmd.Env = append(cmd.Environ(), "TMPDIR="+t.TempDir())
	if b, err := cmd.CombinedOutput(); err != nil || strings.Count(string(b), "\n") != 12 {
		t.Fatalf("%v: %s", err, b)
	}
	for _, name := range []string{"processors.csv", "processors.svg", "processors-profile.svg"} {
		if info, err := os.Stat(filepath.Join(out, name)); err != nil || info.Size() < 200 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if b, err := os.ReadFile(doc); err != nil || strings.Count(string(b), "\n| pipeline ") != 6 {
		t.Errorf("%v: %s", err, b)
	}
	rows := readCSV(t, filepath.Join(out, "processors-profile.csv"))
	if len(rows) != 7 {
		t.Fatalf("%d rows", len(rows))
	}
	first, last := slices.Index(rows[0], "requests"), slices.Index(rows[0], "other")
	known, unknown := 0.0, 0.0
	for _, row := range rows[1:] {
		for i := first; i <= last; i++ {
			share, err := strconv.ParseFloat(row[i], 64)
			if err != nil {
				t.Fatal(err)
			}
			if i == last {
				unknown += share
			} else {
				known += share
			}
		}
	}
	limit := 0.05
	if raceDetector {
		limit = 0.3 // its own functions are of no kind
	}
	if known == 0 || unknown > limit*(known+unknown) {
		t.Errorf("%v %% of the server's time is of a known kind, %v %% of none", known, unknown)
	}
}

// readCSV reads a CSV file.
func readCSV(t *testing.T, file string) [][]string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// TestBenchSweepFailures measures a program of which every second server does
// not start: the other half is written, and the exit status is 1.
func TestBenchSweepFailures(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	script := filepath.Join(tmp, "fbfkv")
	text := fmt.Sprintf("#!/bin/sh\nif [ \"$GOMAXPROCS\" = 1 ]; then echo no room; exit 3; fi\nexec %s \"$@\"\n", program)
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	left := t.TempDir()
	cmd := exec.Command(program, "bench", "sweep", "--only", "processors", "--max-steal", "1", "--seconds", "0.1", "--profile", "0", "--out", tmp, "--fbfkv", script)
	cmd.Env = append(cmd.Environ(), "TMPDIR="+left)
	b, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(b), "3 measurements failed") || !strings.Contains(string(b), "no room") {
		t.Errorf("%v: %s", err, b)
	}
	if rows := readCSV(t, filepath.Join(tmp, "processors.csv")); len(rows) != 4 || rows[1][0] != "2" {
		t.Errorf("%v", rows)
	}
	if all, _ := filepath.Glob(filepath.Join(left, "*")); len(all) > 0 {
		t.Errorf("left behind: %v", all)
	}
}

// TestBenchInterrupted ends a sweep and a table in their midst, as Ctrl-C does:
// they stop their servers, remove what they wrote, and exit with status 130.
func TestBenchInterrupted(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"sweep", "--only", "connections", "--out", filepath.Join(t.TempDir(), "out")}, {"table", "--rows", "recovery"}} {
		left := t.TempDir()
		cmd := exec.Command(program, append([]string{"bench"}, args...)...)
		cmd.Env = append(cmd.Environ(), "TMPDIR="+left)
		var said strings.Builder
		cmd.Stdout, cmd.Stderr = &said, &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if data, _ := filepath.Glob(filepath.Join(left, "*", "data", "*")); len(data) > 0 {
				break
			}
		}
		time.Sleep(300 * time.Millisecond)
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		err := cmd.Wait()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 130 || !strings.Contains(said.String(), "interrupted") {
			t.Errorf("%s: %v: %s", args[0], err, said.String())
		}
		if all, _ := filepath.Glob(filepath.Join(left, "*")); len(all) > 0 {
			t.Errorf("%s left behind: %v", args[0], all)
		}
	}
}
