package integration

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
)

// rounds is how often a crash test crashes the server.
const rounds = 3

// TestKillUnderLoad kills the server in the middle of a load, again and again,
// while snapshots are being written. After each restart nothing acknowledged
// may be missing (G2), and once every operation was re-sent, every counter must
// be exact (G1).
func TestKillUnderLoad(t *testing.T) {
	for _, fsync := range []string{"always", "everysec"} {
		t.Run(fsync, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, "--appendfsync", fsync)
			endUnderLoad(t, s, func() { s.kill() })
		})
	}
}

// TestStopUnderLoad is the same with SIGTERM, for which every policy must keep
// what was acknowledged.
func TestStopUnderLoad(t *testing.T) {
	for _, fsync := range []string{"always", "no"} {
		t.Run(fsync, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, "--appendfsync", fsync)
			endUnderLoad(t, s, func() { s.stop() })
		})
	}
}

// TestShutdownUnderLoad is the same with SHUTDOWN, with and without a snapshot.
func TestShutdownUnderLoad(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--appendfsync", "everysec")
	modes := []string{"SAVE", "NOSAVE"}
	endUnderLoad(t, s, func() {
		mode := modes[rand.IntN(len(modes))]
		s.client().Do(context.Background(), "SHUTDOWN", mode)
		if code := s.exitCode(); code != 0 {
			t.Errorf("after SHUTDOWN %s the server exited with status %d", mode, code)
		}
	})
}

// endUnderLoad runs loads on an EXACT and an APPROX table and ends the server
// under them.
func endUnderLoad(t *testing.T, s *server, end func()) {
	c := s.client()
	// With an ERROR of 1e-9 not one of these operations is dismissed wrongly
	// but once in ten thousand runs of this test.
	err := c.Do(context.Background(), "CTABLE", "CREATE", "approx", "PREFIX", "approx:",
		"MODE", "APPROX", "ERROR", "0.000000001", "WINDOW", "1h").Err()
	if err != nil {
		t.Fatal(err)
	}
	changeTables(t, s, "ALTER", "default", "WINDOW", "1h") // all are sent again in every round
	loads := []*load{newLoad(t, s, "exact:"), newLoad(t, s, "approx:")}
	for round := range rounds {
		saving := make(chan struct{})
		go func() {
			defer close(saving)
			for c.Do(context.Background(), "BGSAVE").Err() == nil || !gone(s) {
				time.Sleep(20 * time.Millisecond)
			}
		}()
		during(loads, time.Duration(100+rand.IntN(200))*time.Millisecond, end)
		<-saving
		s.start()
		for _, l := range loads {
			l.checkNothingLost()
		}
		if round%2 == 1 {
			endWhileResending(s, loads, end)
		}
		for _, l := range loads {
			if err := l.resendAll(l.name == "exact:"); err != nil {
				t.Errorf("%s: re-sending: %v", l.name, err)
			}
			l.checkExact()
		}
		if t.Failed() {
			t.Fatalf("failed in round %d", round+1)
		}
	}
	t.Logf("%d and %d operations in %d rounds", len(loads[0].ops), len(loads[1].ops), rounds)
	if strings.Contains(s.log.String(), "recovered from damage") {
		t.Errorf("the server found damage:\n%s", s.log)
	}
}

// endWhileResending ends the server while the loads' operations are being sent
// again, and starts it again.
func endWhileResending(s *server, loads []*load, end func()) {
	var resending sync.WaitGroup
	for _, l := range loads {
		resending.Go(func() { l.resendAll(l.name == "exact:") })
	}
	time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond)
	end()
	resending.Wait()
	s.start()
	for _, l := range loads {
		l.checkNothingLost()
	}
}

// gone reports whether the server's process has ended.
func gone(s *server) bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}
