package main

import (
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/tools/process"
)

// mustLoad sends a load, and expects every operation counted once.
func mustLoad(t *testing.T, o options) {
	t.Helper()
	o.Connections, o.Verify = 10, true
	r, err := send(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Operations == 0 || r.Verified.Acknowledged == 0 || r.Verified.Wrong != 0 || len(r.errors) > 0 {
		t.Errorf("%s: %+v", o.Workload, r)
	}
}

// TestRealServer loads an fbfkv, and finds every operation counted once.
func TestRealServer(t *testing.T) {
	p, err := process.FBFKV(t.Context(), fbfkv, "--appendfsync", "everysec")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	o := defaultOptions()
	o.Target.URL, o.Pipeline, o.Duration = p.Address, 16, time.Second
	mustLoad(t, o)
	o.Workload, o.Rate = "incrby", 5000
	mustLoad(t, o)
}

// TestRecipes loads a real Redis with the recipes it can run.
func TestRecipes(t *testing.T) {
	needs(t, "redis-server")
	p, err := process.Redis(t.Context(), "redis-server", "--appendfsync", "no")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	do(t.Context(), p, "CONFIG", "SET", "requirepass", "secret")
	for _, workload := range []string{"lua", "incrby"} {
		o := defaultOptions()
		o.Target.URL, o.Workload, o.Pipeline, o.KeyPrefix = "redis://:secret@"+p.Address, workload, 4, workload+":"
		o.Count, o.Duration = 2000, 0
		mustLoad(t, o)
	}
	if out, err := runCommand(t, "redis://:wrong@"+p.Address, "--duration", "100ms"); err == nil {
		t.Errorf("a wrong password was good enough: %s", out)
	}
}
