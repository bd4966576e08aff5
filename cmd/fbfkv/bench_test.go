package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// TestInterruptedBench ends a load with Ctrl-C: what was measured is printed all the
// same, and the exit status is that of an interruption.
func TestInterruptedBench(t *testing.T) {
	p := launch(t, "--dir", t.TempDir())
	var out, failed bytes.Buffer
	cmd := command("bench", p.address, "--duration", "1m", "--connections", "2", "--json")
	cmd.Stdout, cmd.Stderr = &out, &failed
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 130 || failed.String() != "fbfkv: interrupted\n" {
		t.Errorf("%v: %s", err, &failed)
	}
	var r struct {
		Interrupted bool
		Operations  int64
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil || !r.Interrupted || r.Operations == 0 {
		t.Errorf("%v: %s", err, &out)
	}
}
