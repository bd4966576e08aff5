package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestPause stops a server with its children, and lets it go on; Close ends all of them.
func TestPause(t *testing.T) {
	p := &Process{Name: "sleeper", dir: t.TempDir(), ended: make(chan error, 1),
		cmd: exec.Command("sh", "-c", "sleep 100 & wait")}
	p.cmd.SysProcAttr = childAttributes()
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.ended <- p.cmd.Wait() }()
	awaitStates(t, p.PID(), "SS")
	if err := p.Pause(); err != nil {
		t.Fatal(err)
	}
	awaitStates(t, p.PID(), "TT")
	if err := p.Resume(); err != nil {
		t.Fatal(err)
	}
	awaitStates(t, p.PID(), "SS")
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	awaitStates(t, p.PID(), "")
}

// awaitStates waits until the processes of a group that are not dead have these states.
func awaitStates(t *testing.T, group int, want string) {
	t.Helper()
	got := "?"
	for end := time.Now().Add(time.Minute); got != want && time.Now().Before(end); time.Sleep(time.Millisecond) {
		got = ""
		files, _ := filepath.Glob("/proc/[0-9]*/stat")
		for _, file := range files {
			b, _ := os.ReadFile(file)
			_, rest, _ := strings.Cut(string(b), ") ")
			if f := strings.Fields(rest); len(f) > 2 && f[2] == fmt.Sprint(group) && f[0] != "Z" {
				got += f[0]
			}
		}
	}
	if got != want {
		t.Fatalf("states %q, want %q", got, want)
	}
}
