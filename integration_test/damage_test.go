package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// snapshotName is the name of a snapshot file: its partition and sequence.
var snapshotName = regexp.MustCompile(`^p(\d+)-\d+\.fbf$`)

// snapshots lists the snapshot files of each partition, oldest first.
func (s *server) snapshots() map[string][]string {
	s.t.Helper()
	files, err := os.ReadDir(filepath.Join(s.dir, "snapshots"))
	if err != nil {
		s.t.Fatal(err)
	}
	byPartition := map[string][]string{}
	for _, f := range files { // sorted by name, so by sequence
		if m := snapshotName.FindStringSubmatch(f.Name()); m != nil {
			byPartition[m[1]] = append(byPartition[m[1]], filepath.Join(s.dir, "snapshots", f.Name()))
		}
	}
	if len(byPartition) == 0 {
		s.t.Fatal("there are no snapshots")
	}
	return byPartition
}

// damage flips a bit in the middle of a file.
func damage(t *testing.T, file string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 0x10
	if err := os.WriteFile(file, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// withHistory starts a server, applies operations with two snapshots among
// them, on an APPROX table too if approx is set, and stops it by end.
func withHistory(t *testing.T, approx bool, end func(*server)) *server {
	s := startServer(t, "--save", "")
	c := s.dial()
	if approx {
		c.want("+OK", "CTABLE", "CREATE", "approx", "PREFIX", "approx:", "MODE", "APPROX", "IDTIME", "NONE")
	}
	for round := range 4 {
		var b strings.Builder
		for i := range 100 {
			for _, prefix := range []string{"exact:", "approx:"} {
				b.WriteString(frame("CINCRBY", fmt.Sprintf("%s%d", prefix, i), fmt.Sprintf("op-%d", round),
					"1"))
			}
		}
		c.send(b.String())
		for range 200 {
			c.reply()
		}
		if approx && round == 0 {
			fillLog(t, c)
		}
		if round < 3 {
			c.want("+OK", "SAVE")
		}
	}
	end(s)
	return s
}

// fillLog makes the op log go on in another file, so that the first one, with
// what was logged so far, goes with the snapshots that no longer need it.
func fillLog(t *testing.T, c *rawConn) {
	t.Helper()
	const operations, pipeline = 80_000, 500
	for i := 0; i < operations; i += pipeline {
		var b strings.Builder
		for n := i; n < i+pipeline; n++ {
			fmt.Fprintf(&b, "*4\r\n$7\r\nCINCRBY\r\n$%d\r\nfill:%d\r\n$500\r\n%0500d\r\n$1\r\n0\r\n",
				len(fmt.Sprint("fill:", n%100)), n%100, n)
		}
		c.send(b.String())
		for range pipeline {
			if got := c.reply(); got != ":0" {
				t.Fatal(got)
			}
		}
	}
}

// checkHistory retries every operation and expects that each is recognised.
func checkHistory(t *testing.T, s *server, prefix string) {
	t.Helper()
	c := s.dial()
	for round := range 4 {
		for i := range 100 {
			key := fmt.Sprintf("%s%d", prefix, i)
			if got := c.do("CINCRBY", key, fmt.Sprintf("op-%d", round), "1",
				"WITHSTATUS"); !strings.HasSuffix(got, " :0]") {
				t.Fatalf("the retry of op-%d on %s was answered %s", round, key, got)
			}
		}
	}
	for i := range 100 {
		c.want(":4", "CGET", fmt.Sprintf("%s%d", prefix, i))
	}
}

// TestDamagedSnapshot damages the newest snapshot of every partition: the older
// one is used, nothing is forgotten, and the damage is reported.
func TestDamagedSnapshot(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*server){"stop": (*server).stop, "kill": (*server).kill} {
		s := withHistory(t, true, end)
		two := 0
		for _, files := range s.snapshots() {
			damage(t, files[len(files)-1])
			if len(files) > 1 {
				two++
			}
		}
		if two == 0 {
			t.Fatal("no partition has an older snapshot")
		}
		s.start()
		if log := s.log.String(); !strings.Contains(log, "recovered from damage") {
			t.Errorf("after %s: the damage is not reported:\n%s", name, log)
		}
		checkHistory(t, s, "exact:")
		checkHistory(t, s, "approx:")
		if info := s.dial().do("INFO",
			"persistence"); !regexp.MustCompile(`recovery_older_snapshots:[1-9]`).MatchString(info) {
			t.Errorf("after %s: INFO does not tell: %s", name, info)
		}
	}
}

// TestTruncatedSnapshot does the same with files that end early, and ones that
// are empty.
func TestTruncatedSnapshot(t *testing.T) {
	t.Parallel()
	s := withHistory(t, true, (*server).stop)
	for partition, files := range s.snapshots() {
		newest := files[len(files)-1]
		info, err := os.Stat(newest)
		if err != nil {
			t.Fatal(err)
		}
		size := info.Size() - 1
		if partition == "0000" {
			size = 0
		}
		if err := os.Truncate(newest, size); err != nil {
			t.Fatal(err)
		}
	}
	s.start()
	checkHistory(t, s, "exact:")
	checkHistory(t, s, "approx:")
}

// TestLostSnapshots damages every snapshot. EXACT tables rebuild what they
// remember; with an APPROX table the server refuses to start, in one line,
// until it is told to accept the loss.
func TestLostSnapshots(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*server){"stop": (*server).stop, "kill": (*server).kill} {
		t.Run("exact/"+name, func(t *testing.T) {
			t.Parallel()
			s := withHistory(t, false, end)
			for _, files := range s.snapshots() {
				for _, f := range files {
					damage(t, f)
				}
			}
			s.start()
			checkHistory(t, s, "exact:")
			checkHistory(t, s, "approx:")
			s.crash()
			checkHistory(t, s, "exact:")
		})
	}
	t.Run("approx", func(t *testing.T) {
		t.Parallel()
		s := withHistory(t, true, (*server).stop)
		for _, files := range s.snapshots() {
			for _, f := range slices.Backward(files) {
				damage(t, f)
			}
		}
		refuses(t, "--accept-forgotten-window", "--port", "0", "--dir", s.dir)
		refuses(t, "--accept-forgotten-window", "--port", "0", "--dir", s.dir)
		s.start("--accept-forgotten-window", "yes")
		checkHistory(t, s, "exact:")
		c := s.dial()
		for i := range 100 {
			c.want(":4", "CGET", fmt.Sprintf("approx:%d", i))
		}
		// A forgotten operation is refused where its time is known (G7).
		if got := c.do("CINCRBY", "approx:1", "op-9", "1", "AT", "1700000000000"); !strings.HasPrefix(got,
			"-STALE") {
			t.Errorf("an operation from before: %s", got)
		}
		s.restart()
		checkHistory(t, s, "exact:")
	})
}
