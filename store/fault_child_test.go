package store

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/internal/testwait"
)

// faultVariable tells a child process which fault to run, and where.
const faultVariable = "FBFKV_TEST_FAULT"

// TestFaultChild is not a test of its own: it is what faultInChild starts.
func TestFaultChild(t *testing.T) {
	var f fault
	var place faultPlace
	var fsync Fsync
	var dir string
	if n, _ := fmt.Sscan(os.Getenv(faultVariable), &f, &place.kind, &place.name, &place.n, &fsync,
		&dir); n < 6 {
		t.Skip("started by TestFaults only")
	}
	r := &crashRun{fsync: fsync}
	r.from(faultBase())
	d := newFaultDisk(vfs.Default, f, math.MaxInt64)
	d.place = place
	err := r.scenario(os.Stdout, Options{
		Dir: dir, FS: d.fs, Fsync: fsync, SnapshotInterval: -1, MinFreeDisk: -1, HotCounters: 32,
		BlockCache: 1 << 20, LogFileSize: 16 << 10, Clock: r.clock.now,
	})
	if err != nil {
		fmt.Println("broken", err)
	}
	os.Exit(0)
}

// faultInChild runs a point at which the process must end in a process of its
// own, on a real directory: it ends with status 1, by itself, and what it
// acknowledged is there afterwards.
func faultInChild(t *testing.T, f fault, place faultPlace, fsync Fsync) {
	t.Helper()
	base := faultBase()
	dir := filepath.Join(t.TempDir(), "data")
	if ok, err := vfs.Clone(base.disk.mem, vfs.Default, "data", dir); !ok || err != nil {
		t.Fatal(ok, err)
	}
	c := exec.Command(os.Args[0], "-test.run=^TestFaultChild$")
	c.Env = append(os.Environ(), faultVariable+"="+fmt.Sprint(uint8(f), " ", int(place.kind), " ", place.name,
		" ", place.n, " ", uint8(fsync), " ", dir))
	var out bytes.Buffer
	c.Stdout = &out
	must(t, c.Start())
	timer := time.AfterFunc(testwait.Limit, func() { c.Process.Kill() })
	ended := c.Wait()
	timer.Stop()
	var exit *exec.ExitError
	if errors.As(ended, &exit) && exit.ExitCode() != 1 {
		t.Fatalf("%v at %v in a process of its own: %v\n%s", f, place, ended, out.String())
	}
	r := &crashRun{fsync: fsync, percent: 100}
	r.from(base)
	planned, _ := r.plan(0)
	for range faultSteps {
		ops, _ := r.plan(faultOps)
		planned = append(planned, ops...)
	}
	acked := 0
	for lines := bufio.NewScanner(&out); lines.Scan(); {
		word, rest, _ := strings.Cut(lines.Text(), " ")
		if word == "broken" {
			t.Fatalf("%v at %v in a process of its own: %s", f, place, rest)
		}
		for _, op := range planned {
			if word == "ack" && op.id == rest {
				op.ack, acked = crashAck{at: 1}, acked+1
			}
		}
	}
	o := Options{Dir: dir, SnapshotInterval: -1, MinFreeDisk: -1, Clock: r.clock.now}
	var err error
	r.s, err = Open(o)
	if err != nil {
		t.Fatalf("%v at %v in a process of its own, then opening: %v", f, place, err)
	}
	defer r.s.CloseNow()
	must(t, r.verifyShared(0))
	t.Logf("%v: the process ended (%v) after %d acknowledgements, all of them are there", place, ended, acked)
}
