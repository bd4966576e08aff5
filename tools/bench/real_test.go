package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/tools/process"
)

// outcome is what of bench --json these tests look at.
type outcome struct {
	Operations int64
	Errors     map[string]int64
	Verified   struct{ Acknowledged, Wrong int64 }
}

// mustLoad runs bench, and expects every operation counted once.
func mustLoad(t *testing.T, args ...string) {
	t.Helper()
	out, err := runCommand(t, append(args, "--connections", "10", "--verify", "--json")...)
	if err != nil {
		t.Fatalf("%v: %v: %s", args, err, out)
	}
	var r outcome
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if r.Operations == 0 || r.Verified.Acknowledged == 0 || r.Verified.Wrong != 0 || len(r.Errors) > 0 {
		t.Errorf("%v: %+v", args, r)
	}
}

// TestRealServer loads an fbfkv with each workload, and finds every operation counted
// once, also while the server is killed and started again.
func TestRealServer(t *testing.T) {
	p, err := process.FBFKV(t.Context(), fbfkv, "--appendfsync", "everysec")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	for _, args := range [][]string{
		{"--workload", "cincrby", "--keys", "uniform:1000", "--pipeline", "16"},
		{"--workload", "incrby", "--rate", "5000"},
	} {
		mustLoad(t, append(args, p.Address, "--duration", "1s")...)
	}
	for _, loop := range loops {
		over := make(chan error)
		go func() {
			err := underway(t.Context(), p)
			p.Kill()
			over <- errors.Join(err, p.Run(t.Context()))
		}()
		o := defaultOptions()
		o.Target.URL, o.Duration, o.Pipeline, o.KeyPrefix, o.Connections = p.Address, 1500*time.Millisecond, 16, loop, 10
		o.Verify, o.blocking = true, loop == blocking
		r, err := send(t.Context(), o)
		if err = errors.Join(err, <-over); err != nil || r.Err() != nil || r.Reconnects == 0 {
			t.Errorf("%s: %v, %+v", loop, err, r)
		}
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
		mustLoad(t, "redis://:secret@"+p.Address, "--workload", workload, "--pipeline", "4", "--count", "2000", "--key-prefix", workload+":")
	}
	if out, err := runCommand(t, "redis://:wrong@"+p.Address, "--duration", "100ms"); err == nil {
		t.Errorf("a wrong password was good enough: %s", out)
	}
}
