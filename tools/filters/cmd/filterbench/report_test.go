package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestMiddle: the ratio is the median of the rounds' ratios, not the ratio of the medians.
func TestMiddle(t *testing.T) {
	var all []sample
	add := func(name string, ns ...float64) {
		for i, x := range ns {
			all = append(all, sample{target: "1e-06", bytes: 1024, name: name, round: string(rune('0' + i)), op: "new", ns: x})
		}
	}
	add("fbf", 10, 20, 40)
	add("other", 30, 20, 80)
	all = append(all, sample{target: "1e-06", bytes: 2048, name: "other", round: "0", op: "new", ns: 999})
	ns, ratio := middle(all, "1e-06", 1024, "other", "new")
	if ns != 30 || ratio != 2 {
		t.Errorf("median %g, ratio %g; want 30 and 2", ns, ratio)
	}
}

// TestPipeline measures a little of everything and reports it.
func TestPipeline(t *testing.T) {
	dir := t.TempDir()
	var printed bytes.Buffer
	for _, args := range []string{"speed -size 131072 -rounds 2 -slice 1ms", "speed -size 262144 -rounds 1 -slice 1ms -append -only fbf",
		"bits -ids 10000", "fpp -ids 10000 -probes 10000", "report"} {
		if err := run(append(strings.Fields(args), "-out", dir), &printed); err != nil {
			t.Fatalf("%s: %v", args, err)
		}
	}
	s := printed.String()
	for _, name := range []string{"fbf batch", "blobloom", "bits-and-blooms", "apbf", "paper's N-FBF", "exact map"} {
		want := 3 // new, duplicate, bits
		if name == "fbf batch" {
			want = 2
		}
		if n := strings.Count(s, "| "+name+" |"); n != want {
			t.Errorf("%s in %d tables, want %d", name, n, want)
		}
	}
	svg, err := os.ReadFile(filepath.Join(dir, "filters.svg"))
	if err != nil || !strings.Contains(string(svg), "</svg>") {
		t.Errorf("no whole plot: %v", err)
	}
}

// TestDocument expects the tables of docs/FILTERS.md to be those of the results here.
func TestDocument(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/FILTERS.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir() // for the plot
	if err := os.CopyFS(dir, os.DirFS("../../results")); err != nil {
		t.Fatal(err)
	}
	var printed bytes.Buffer
	if err := run([]string{"report", "-out", dir, "-target", "1e-6"}, &printed); err != nil {
		t.Fatal(err)
	}
	for table := range strings.SplitSeq(printed.String(), "\n\n") {
		if !strings.Contains(string(page), strings.TrimSpace(table)) {
			t.Errorf("docs/FILTERS.md does not have this table:\n%s", table)
		}
	}
}

// TestClock: the clock counts what this thread does, not what it waits.
func TestClock(t *testing.T) {
	runtime.LockOSThread()
	from := clock()
	for end := time.Now().Add(20 * time.Millisecond); time.Now().Before(end); {
	}
	if clock() <= from {
		t.Error("clock stands still")
	}
}

func TestWrongUse(t *testing.T) {
	for _, args := range [][]string{nil, {"dance", "-out", t.TempDir()}, {"speed", "-size", "x"}, {"report", "-out", t.TempDir()}} {
		if err := run(args, io.Discard); err == nil {
			t.Errorf("run(%q) succeeded", args)
		}
	}
}
