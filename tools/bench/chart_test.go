package main

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestPlot draws latencies over time, of a run against a small server.
func TestPlot(t *testing.T) {
	s := newCounterServer(t)
	svg := filepath.Join(t.TempDir(), "l.svg")
	if out, err := runCommand(t, s.Addr().String(), "--duration", "2100ms", "--plot", svg); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b, err := os.ReadFile(svg)
	if err != nil || !strings.Contains(string(b), "<svg") || !strings.Contains(string(b), "p99.9") {
		t.Errorf("%v: %.200s", err, b)
	}
}

// TestRecorder has each latency in its interval, and all in total.
func TestRecorder(t *testing.T) {
	r := newRecorder(1e9, int64(time.Second))
	r.record(5e8, 1e6, 100) // before the measurement
	r.record(1.5e9, 1e6, 10)
	r.record(1.6e9, 3e6, 10)
	r.record(3.5e9, 2e6, 30) // the second interval is empty
	r.flush()
	if n := r.total.TotalCount(); n != 50 {
		t.Errorf("%d operations in all", n)
	}
	if len(r.series) != 3 || r.series[1].Max != 0 || r.series[2].Max < 0.00199 {
		t.Fatalf("%+v", r.series)
	}
	if got := r.series[0]; math.Abs(got.P50-0.001) > 1e-5 || math.Abs(got.P99-0.003) > 1e-5 || got.Second != 1 {
		t.Errorf("%+v", got)
	}
}
