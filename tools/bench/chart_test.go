package main

import (
	"encoding/csv"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestPlotAndCSV draws latencies over time and writes them, of a run against a
// small server.
func TestPlotAndCSV(t *testing.T) {
	s := newCounterServer(t)
	dir := t.TempDir()
	svg, table := filepath.Join(dir, "l.svg"), filepath.Join(dir, "l.csv")
	if out, err := runCommand(t, s.Addr().String(), "--duration", "400ms", "--interval", "100ms", "--plot", svg, "--csv", table); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b, err := os.ReadFile(svg)
	if err != nil || !strings.Contains(string(b), "<svg") || !strings.Contains(string(b), "p99.9") {
		t.Errorf("%v: %.200s", err, b)
	}
	f, err := os.Open(table)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil || len(rows) < 4 || len(rows[0]) != 7 || rows[0][4] != "p99" {
		t.Errorf("%v: %v", err, rows)
	}
	if _, err := runCommand(t, s.Addr().String(), "--duration", "50ms", "--plot", filepath.Join(dir, "l.doc")); err == nil {
		t.Error("an unknown format was drawn")
	}
}

func TestTicks(t *testing.T) {
	for _, tt := range []struct {
		low, high float64
		want      string
	}{
		{1, 1e7, "1 10 100 1k 10k 100k 1M 10M"},
		{1, 64, "1 2 4 8 16 32 64"},
		{0.25, 3, "0.25 0.5 1 2"},
	} {
		var got []string
		for _, tick := range powers(tt.low, tt.high) {
			got = append(got, tick.Label)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%v to %v: %v, want %s", tt.low, tt.high, got, tt.want)
		}
	}
}

// TestCollector adds up what workers record, each in its own time.
func TestCollector(t *testing.T) {
	c := newCollector(2, int64(time.Second))
	a, b := c.recorder(1e9), c.recorder(1e9)
	a.record(5e8, 1e6, 100) // before the measurement
	a.record(1.5e9, 1e6, 10)
	b.record(1.6e9, 3e6, 10)
	a.record(3.5e9, 2e6, 30) // the second interval is empty
	a.flush()
	b.flush()
	c.finish()
	if n := c.total.TotalCount(); n != 50 {
		t.Errorf("%d operations in all", n)
	}
	if len(c.series) != 3 || c.series[0].Operations != 20 || c.series[1].Operations != 0 || c.series[2].Operations != 30 {
		t.Fatalf("%+v", c.series)
	}
	if got := c.series[0]; math.Abs(got.P50-0.001) > 1e-5 || math.Abs(got.P99-0.003) > 1e-5 || got.Second != 1 {
		t.Errorf("%+v", got)
	}
}
