package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/tools/process"
)

// outcome is what of bench --json these tests look at.
type outcome struct {
	Operations, Duplicates, Reconnects int64
	Errors                             map[string]int64
	Interrupted                        bool
	Verified                           struct{ Acknowledged, Wrong int64 }
}

// mustLoad runs bench, and expects every operation counted once.
func mustLoad(t *testing.T, args ...string) (r outcome) {
	t.Helper()
	out, err := runCommand(t, append(args, "--connections", "10", "--verify", "--json")...)
	if err != nil {
		t.Fatalf("%v: %v: %s", args, err, out)
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if r.Operations == 0 || r.Verified.Acknowledged == 0 || r.Verified.Wrong != 0 || len(r.Errors) > 0 {
		t.Errorf("%v: %+v", args, r)
	}
	return r
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
		{"--workload", "cincrby", "--keys", "zipf:1000:1.1"},
		{"--workload", "retry", "--retry-share", "0.4", "--pipeline", "16", "--threads", "2"},
		{"--workload", "incrby", "--rate", "5000"},
		{"--workload", "retry", "--ids", "client-seq", "--loop", "goroutines", "--retry-delay", "20ms"},
	} {
		r := mustLoad(t, append(args, p.Address, "--duration", "300ms")...)
		if retries := args[1] == "retry"; retries != (r.Duplicates > 0) {
			t.Errorf("%v: %d duplicates", args, r.Duplicates)
		}
	}
	for _, loop := range []string{"epoll", "goroutines"} {
		over := make(chan error)
		go func() {
			time.Sleep(300 * time.Millisecond) // of 1.5 s: the load is under way
			p.Kill()
			over <- p.Run(t.Context())
		}()
		r := mustLoad(t, p.Address, "--duration", "1500ms", "--pipeline", "16", "--loop", loop, "--key-prefix", loop)
		if err := <-over; err != nil || r.Reconnects == 0 {
			t.Errorf("%s: %d connections were made again: %v", loop, r.Reconnects, err)
		}
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
	for _, workload := range []string{"lua", "sadd", "incrby"} {
		mustLoad(t, "redis://:secret@"+p.Address, "--workload", workload, "--pipeline", "4", "--duration", "200ms", "--key-prefix", workload+":")
	}
	if out, err := runCommand(t, p.Address, "--auth", "wrong", "--duration", "100ms"); err == nil {
		t.Errorf("a wrong password was good enough: %s", out)
	}
}
