package bench

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestOnly: of the servers compared one runs, with what it forked, and the others
// stand still; afterwards all run.
func TestOnly(t *testing.T) {
	var table table
	for i := range 2 {
		p := &process{name: "sleeper", cmd: exec.Command("sh", "-c", "sleep 100 & wait"), ended: make(chan error, 1)}
		p.target.address = fmt.Sprint(i)
		p.cmd.SysProcAttr = childAttributes()
		if err := p.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() { p.ended <- p.cmd.Wait() }()
		t.Cleanup(p.kill)
		waitStates(t, p.cmd.Process.Pid, false) // both processes are there
		table.compared = append(table.compared, p)
	}
	for i, p := range table.compared {
		if err := table.only(p.target); err != nil {
			t.Fatal(err)
		}
		for j, q := range table.compared {
			waitStates(t, q.cmd.Process.Pid, i != j)
		}
	}
	table.resume()
	for _, p := range table.compared {
		waitStates(t, p.cmd.Process.Pid, false)
	}
}

// waitStates waits until all of a process group are stopped, or none is.
func waitStates(t *testing.T, group int, stopped bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		states := statesOf(group)
		if n := strings.Count(states, "T"); len(states) == 2 && (stopped && n == 2 || !stopped && n == 0) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("states %q, should they be stopped: %v", states, stopped)
		}
	}
}

// statesOf returns one letter for each process of a group.
func statesOf(group int) (states string) {
	dirs, _ := os.ReadDir("/proc")
	for _, d := range dirs {
		b, err := os.ReadFile("/proc/" + d.Name() + "/stat")
		if err != nil {
			continue
		}
		fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		if fields[2] == fmt.Sprint(group) {
			states += fields[0]
		}
	}
	return states
}
