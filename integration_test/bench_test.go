package integration

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
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
	cmd := exec.Command(program, "bench", "table", "--rows", "lua-everysec-16,duplicates,recovery", "--seconds", "0.3", "--rounds", "1", "--json")
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
	want := "lua-everysec-16 duplicates-100-memory duplicates-10-memory duplicates-100-runs duplicates-10-runs recovery"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("rows %s, want %s", got, want)
	}
	if left, _ := filepath.Glob(filepath.Join(tmp, "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestBenchSweep makes one small sweep with the real server.
func TestBenchSweep(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	out := filepath.Join(tmp, "out")
	cmd := exec.Command(program, "bench", "sweep", "--only", "processors", "--seconds", "0.1", "--out", out)
	cmd.Env = append(cmd.Environ(), "TMPDIR="+t.TempDir())
	if b, err := cmd.CombinedOutput(); err != nil || strings.Count(string(b), "\n") != 6 {
		t.Fatalf("%v: %s", err, b)
	}
	for _, name := range []string{"processors.csv", "processors.svg"} {
		if info, err := os.Stat(filepath.Join(out, name)); err != nil || info.Size() < 200 {
			t.Errorf("%s: %v", name, err)
		}
	}
}
