package process

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestPause stops a server with what it forked, and lets it go on; Close ends all of
// them and removes the directory.
func TestPause(t *testing.T) {
	p := &Process{Name: "sleeper", dir: t.TempDir(), cmd: exec.Command("sh", "-c", "sleep 100 & wait"), ended: make(chan error, 1)}
	p.cmd.SysProcAttr = childAttributes()
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.ended <- p.cmd.Wait() }()
	t.Cleanup(p.Kill)
	waitStates(t, p.PID(), "2 run")
	if err := p.Pause(); err != nil {
		t.Fatal(err)
	}
	waitStates(t, p.PID(), "2 stopped")
	if err := p.Resume(); err != nil {
		t.Fatal(err)
	}
	waitStates(t, p.PID(), "2 run")
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	waitStates(t, p.PID(), "0 run")
	if _, err := os.Stat(p.Dir()); !os.IsNotExist(err) {
		t.Errorf("the directory is there: %v", err)
	}
}

// waitStates waits until so many of a process group are in a state.
func waitStates(t *testing.T, group int, want string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		states := statesOf(group)
		got := fmt.Sprintf("%d run", len(states))
		if n := strings.Count(states, "T"); n > 0 {
			got = fmt.Sprintf("%d stopped", n)
		}
		if got == want {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("states %q, want %s", states, want)
		}
	}
}

// statesOf returns one letter for each process of a group that is not dead.
func statesOf(group int) (states string) {
	dirs, _ := os.ReadDir("/proc")
	for _, d := range dirs {
		b, err := os.ReadFile("/proc/" + d.Name() + "/stat")
		if err != nil {
			continue
		}
		fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		if fields[2] == fmt.Sprint(group) && fields[0] != "Z" {
			states += fields[0]
		}
	}
	return states
}
