package main

import (
	"cmp"
	"context"
	"errors"
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
	if r.Operations == 0 || r.Verified.Acknowledged == 0 || r.Verified.Wrong != 0 || len(r.Errors) > 0 {
		t.Errorf("%s: %+v", o.Workload, r)
	}
}

// TestRealServer loads an fbfkv, and finds every operation counted once, also while the server is killed and started again.
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
	over := make(chan error)
	go func() {
		err := underway(t.Context(), p)
		p.Kill()
		over <- errors.Join(err, p.Run(t.Context()))
	}()
	o = defaultOptions()
	o.Target.URL, o.Duration, o.Pipeline, o.KeyPrefix, o.Connections = p.Address, 1500*time.Millisecond, 16, "killed", 10
	o.Verify = true
	r, err := send(t.Context(), o)
	if err = errors.Join(err, <-over); err != nil || r.Err() != nil || r.reconnects == 0 {
		t.Errorf("%v, %+v", err, r)
	}
}

// underway waits until a server has carried out a few commands more.
func underway(ctx context.Context, p *process.Process) error {
	first := 0.0
	for {
		n, err := info(ctx, p, "total_commands_processed")
		if first = cmp.Or(first, n); err != nil || n > first+500 {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// TestRecipes loads a real Redis with the recipes it can run.
func TestRecipes(t *testing.T) {
	needs(t, "redis-server")
	p, err := process.Redis(t.Context(), "redis-server", "--appendfsync", "no")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	if err := do(t.Context(), p, "CONFIG", "SET", "requirepass", "secret"); err != nil {
		t.Fatal(err)
	}
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
