package main

import (
	"encoding/csv"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/tools/process"
)

// fbfkv is the program that tests start.
var fbfkv string

// TestMain builds it.
func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "bench-test-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	fbfkv = filepath.Join(dir, "fbfkv")
	if out, err := exec.Command("go", "-C", "../..", "build", "-o", fbfkv, "./cmd/fbfkv").CombinedOutput(); err != nil {
		panic(string(out))
	}
	return m.Run()
}

// needs skips a test whose programs are not there. In continuous integration they must be.
func needs(t *testing.T, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if _, err := exec.LookPath(program); err == nil {
			continue
		} else if os.Getenv("FBFKV_CI") != "" {
			t.Fatal(err)
		} else {
			t.Skip(err)
		}
	}
}

// TestRowsChosen: rows are chosen by the beginnings of their names, numbers are not
// cut, and every row says what it is and is measured with others of its kind.
func TestRowsChosen(t *testing.T) {
	for _, tc := range []struct {
		asked string
		all   bool
		want  int
	}{
		{"", false, 55}, {"", true, len(rows)}, {"lua-everysec-1", false, 1}, {"lua-", false, 6}, {"duplicates,recovery", false, 5}, {"start", false, 1}, {"tls-1", false, 1},
	} {
		if got, err := choose(tc.asked, tc.all); err != nil || len(got) != tc.want {
			t.Errorf("%q: %d rows, want %d: %v", tc.asked, len(got), tc.want, err)
		}
	}
	if _, err := choose("lua-everysec-6", false); err == nil {
		t.Error("an unknown row is chosen")
	}
	names, groups := map[string]bool{}, map[string]int{}
	for _, r := range rows {
		if names[r.name] || r.goal <= 0 || r.what() == "" {
			t.Errorf("row %s: twice, or without a goal or a word", r.name)
		}
		names[r.name] = true
		groups[r.together()]++
	}
	if groups["everysec pipeline 1"] != 6 || groups["duplicates"] != 4 {
		t.Errorf("%v", groups)
	}
}

// TestTable measures rows of every kind with servers of its own, and leaves only
// the files that were asked for.
func TestTable(t *testing.T) {
	needs(t, "redis-server", "redis-benchmark")
	tmp, out := t.TempDir(), t.TempDir()
	raw, plot := filepath.Join(out, "raw.csv"), filepath.Join(out, "plot.svg")
	t.Setenv("TMPDIR", tmp)
	text, err := runCommand(t, "table", "--fbfkv", fbfkv, "--max-steal", "1", "--seconds", "0.1", "--rounds", "1", "--ids", "20000", "--csv", raw, "--plot", plot,
		"--rows", "incrby-everysec,p99,approx-1,lua-always-1,hot-,redis-benchmark-16,tls-16,duplicates,recovery,chold,holds,opid-16,transfer,scale,throttle,follow,stream,counters,start")
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	var names []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, ">=") || strings.Contains(line, "<=") {
			names = append(names, strings.Fields(line)[0])
		}
	}
	want := "incrby-everysec-1 approx-1 p99-1 incrby-everysec-16 opid-16 transfer scale throttle throttle-opid incrby-everysec-64 hot-everysec lua-always-1 redis-benchmark-16 tls-16 hot-always " +
		"duplicates-100-memory duplicates-10-memory duplicates-100-runs duplicates-10-runs recovery chold holds-lua follow follow-lag stream-count counters-10M start-10M"
	if got := strings.Join(names, " "); got != want || !strings.Contains(text, " of 27 goals are met.") {
		t.Errorf("rows %s, want %s:\n%s", got, want, text)
	}
	f, err := os.Open(raw)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if lines, err := csv.NewReader(f).ReadAll(); err != nil || len(lines) < 20 {
		t.Errorf("%d lines of single measurements: %v", len(lines), err)
	}
	if b, err := os.ReadFile(plot); err != nil || !strings.Contains(string(b), "CINCRBY") {
		t.Errorf("the plot: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(tmp, "fbfkv-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestTableFails measures an fbfkv that does not start: each group is named, and
// nothing is printed as measured. Programs that are missing are found at once.
func TestTableFails(t *testing.T) {
	script := filepath.Join(t.TempDir(), "fbfkv")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho no room; exit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", t.TempDir())
	text, err := runCommand(t, "table", "--fbfkv", script, "--redis", script, "--rows", "lua-always-16,recovery", "--seconds", "0.1")
	if err == nil || !strings.Contains(err.Error(), "recovery: fbfkv ended: exit status 3: no room") || !strings.Contains(text, "\n0 of 0 goals") {
		t.Errorf("%v: %s", err, text)
	}
	for flag, value := range map[string]string{"--fbfkv": "/no/such/program", "--redis": "/no/such/program", "--rounds": "0", "--rows": "x"} {
		if text, err := runCommand(t, "table", "--fbfkv", script, flag, value); err == nil || text != "" {
			t.Errorf("%s %s: %v: %s", flag, value, err, text)
		}
	}
}

// TestRealServers loads an fbfkv, and a Redis with the recipes that it can run, and finds every operation counted once.
func TestRealServers(t *testing.T) {
	needs(t, "redis-server")
	p := process.Must(process.FBFKV(t.Context(), fbfkv, "--appendfsync", "everysec"))
	t.Cleanup(func() { p.Close() })
	r := process.Must(process.Redis(t.Context(), "redis-server", "--appendfsync", "no"))
	t.Cleanup(func() { r.Close() })
	do(t.Context(), r, "CONFIG", "SET", "requirepass", "secret")
	for _, tt := range []struct {
		address, workload string
		rate              float64
	}{{p.Address, "cincrby", 0}, {p.Address, "incrby", 5000}, {"redis://:secret@" + r.Address, "lua", 0}, {"redis://:secret@" + r.Address, "incrby", 0}} {
		o := defaultOptions()
		o.Target.URL, o.Workload, o.Rate, o.Pipeline, o.Duration = tt.address, tt.workload, tt.rate, 16, time.Second
		o.Connections, o.Verify, o.KeyPrefix = 10, true, tt.workload+":"
		r, err := send(t.Context(), o)
		if err != nil || r.Operations == 0 || r.Verified.Acknowledged == 0 || r.Verified.Wrong != 0 || len(r.errors) > 0 {
			t.Errorf("%+v: %+v, %v", tt, r, err)
		}
	}
	if out, err := runCommand(t, "redis://:wrong@"+r.Address, "--duration", "100ms"); err == nil {
		t.Errorf("a wrong password was good enough: %s", out)
	}
}
