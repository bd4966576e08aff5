package integration

import (
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// fbfkv runs a subcommand of the program and returns what it prints and its
// exit status.
func fbfkv(t testing.TB, args ...string) (out string, code int) {
	t.Helper()
	b, err := exec.Command(program, args...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if exit != nil {
		code = exit.ExitCode()
	}
	return string(b), code
}

// TestBackupUnderLoad backs a server up in the middle of a load, and the leader and a follower
// of a shard. The restored server has at least what was acknowledged before (a follower's
// copy may lack the newest), and nothing that was never sent; once everything was sent to
// it again, every counter is exact (G1, G4).
func TestBackupUnderLoad(t *testing.T) {
	for _, fsync := range []string{"always", "everysec"} {
		t.Run(fsync, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, "--appendfsync", fsync)
			backUpUnderLoad(t, s, s)
		})
	}
	for _, from := range []string{"leader", "follower"} {
		t.Run(from, func(t *testing.T) {
			t.Parallel()
			all := startShard(t)
			leader := leaderOf(t, all...)
			if from == "leader" {
				backUpUnderLoad(t, leader, leader)
			} else {
				backUpUnderLoad(t, leader, without(all, leader)[0])
			}
		})
	}
}

// backUpUnderLoad backs a server up that takes the load, or one that follows it.
func backUpUnderLoad(t *testing.T, s, from *server) {
	if r := s.dial().do("CTABLE", "CREATE", "approx", "PREFIX", "approx:", "MODE", "APPROX", "ERROR", "0.000000001"); r != "+OK" {
		t.Fatal(r)
	}
	loads := []*load{newLoad(t, s, "exact:"), newLoad(t, s, "approx:")}
	root := t.TempDir()
	backup, restored := filepath.Join(root, "backup"), filepath.Join(root, "restored")
	var acked []map[string]int64
	during(loads, 300*time.Millisecond, func() {
		for _, l := range loads {
			acked = append(acked, l.sums(func(op *operation) bool { return op.acked && from == s }))
		}
		if out, code := fbfkv(t, "backup", "--port", from.port(), backup); code != 0 || !strings.Contains(out, "backed up") {
			t.Errorf("backup: %d %s", code, out)
		}
		time.Sleep(200 * time.Millisecond)
	})
	if out, code := fbfkv(t, "backup", "--port", from.port(), backup); code != 1 || !strings.Contains(out, "is not empty") {
		t.Errorf("a second backup to the same place: %d %s", code, out)
	}
	s.kill() // what was acknowledged after the backup is lost with this directory
	if out, code := fbfkv(t, "restore", backup, restored); code != 0 {
		t.Fatalf("restore: %d %s", code, out)
	}
	s.dir = restored
	if slices.Contains(s.args, "--cluster-enabled") {
		s.args = nil // it goes on alone
	}
	s.start()
	for i, l := range loads {
		sent := l.sums(func(*operation) bool { return true })
		for key, v := range l.values() {
			if v < acked[i][key] || v > sent[key] {
				t.Errorf("%s is %d in the backup; %d were acknowledged before it and %d ever sent", key, v, acked[i][key], sent[key])
			}
		}
		if err := l.resendAll(false); err != nil {
			t.Error(err)
		}
		l.checkExact()
	}
	s.stop()
	if out, code := fbfkv(t, "check", restored); code != 0 || !strings.Contains(out, "is sound") {
		t.Errorf("check: %d %s", code, out)
	}
}

// TestBackupCommand: the password is asked for, and a server that is not there
// is named.
func TestBackupCommand(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--requirepass", "open sesame")
	dir := filepath.Join(t.TempDir(), "backup")
	if out, code := fbfkv(t, "backup", "--port", s.port(), dir); code != 1 || !strings.Contains(out, "NOAUTH") {
		t.Errorf("without the password: %d %s", code, out)
	}
	if out, code := fbfkv(t, "backup", "--port", s.port(), "--requirepass", "open sesame", dir); code != 0 {
		t.Errorf("with the password: %d %s", code, out)
	}
	if out, code := fbfkv(t, "check", dir); code != 0 {
		t.Errorf("check of the backup: %d %s", code, out)
	}
	s.kill()
	if out, code := fbfkv(t, "backup", "--port", s.port(), "--requirepass", "open sesame", dir+"2"); code != 1 || !strings.Contains(out, "connection") {
		t.Errorf("without a server: %d %s", code, out)
	}
}

// TestCheckCommand: exit status and words for a directory that is sound, one
// in use, one that is none, and damaged ones.
func TestCheckCommand(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	for range 3 {
		s.dial().do("CINCRBY", "k", "1", "5")
		s.dial().do("SAVE")
		s.dial().do("INCR", "other")
	}
	expect := func(dir string, code int, want ...string) {
		t.Helper()
		out, got := fbfkv(t, "check", dir)
		for _, w := range want {
			if got != code || !strings.Contains(out, w) {
				t.Errorf("check %s: status %d, want %d and %q:\n%s", dir, got, code, w, out)
			}
		}
	}
	s.restart() // Pebble makes a table of its log when it opens
	expect(s.dir, 1, "another process is using it")
	s.stop()
	expect(s.dir, 0, "is sound: 2 keys in 16 partitions")
	expect(filepath.Join(s.dir, "nowhere"), 1, "no such file")
	expect(t.TempDir(), 1, "not a data directory")
	snapshots, err := filepath.Glob(filepath.Join(s.dir, "snapshots", "*.fbf"))
	if err != nil || len(snapshots) == 0 {
		t.Fatal(snapshots, err)
	}
	damage(t, snapshots[len(snapshots)-1])
	expect(s.dir, 1, "problem: partition 15: filter snapshot", "the server starts with the older snapshot, nothing is lost", "has 1 problem")
	runs, err := filepath.Glob(filepath.Join(s.dir, "runs", "*.run"))
	if err != nil || len(runs) == 0 {
		t.Fatal(runs, err)
	}
	damage(t, runs[0])
	expect(s.dir, 1, "runs/"+filepath.Base(runs[0])+": ", "is damaged", "restore a backup")
}
