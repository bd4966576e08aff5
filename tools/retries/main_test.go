package main

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRetries: where a third of the answers is cut, Redis counts payments twice and fbfkv does not. Where none is, both
// have what was paid.
func TestRetries(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil && os.Getenv("FBFKV_CI") == "" {
		t.Skip(err)
	}
	dir := t.TempDir()
	o := options{fbfkv: filepath.Join(dir, "fbfkv"), redis: "redis-server", plot: filepath.Join(dir, "plot.svg"), payments: 200,
		shares: []float64{0, 0.3}}
	if out, err := exec.Command("go", "-C", "../..", "build", "-o", o.fbfkv, "./cmd/fbfkv").CombinedOutput(); err != nil {
		t.Fatal(string(out))
	}
	surplus := o.measure(t.Context())
	for i, of := range surplus {
		if math.Abs(of[0]) > 1e-9 {
			t.Errorf("%s has %v %% too much, and no answer was cut", names[i], of[0])
		}
	}
	if redis, ours := surplus[0][1], surplus[1][1]; redis < 5 || math.Abs(ours) > 1e-9 {
		t.Errorf("Redis has %v %% too much, fbfkv %v %%", redis, ours)
	}
	if err := o.draw(surplus); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(o.plot); err != nil || !strings.Contains(string(b), names[1]) {
		t.Errorf("the plot has %d bytes, %v", len(b), err)
	}
}
