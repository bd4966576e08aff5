package integration

import (
	"bytes"
	"errors"
	"fmt"
	"os"
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
	for _, how := range []string{"always", "everysec", "always, as a stream"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			fsync, _, asStream := strings.Cut(how, ",")
			s := startServer(t, "--appendfsync", fsync)
			backUpUnderLoad(t, s, s, asStream)
		})
	}
	for _, from := range []string{"leader", "follower"} {
		t.Run(from, func(t *testing.T) {
			t.Parallel()
			all := startShard(t)
			leader := leaderOf(t, all...)
			if from == "leader" {
				backUpUnderLoad(t, leader, leader, false)
			} else {
				backUpUnderLoad(t, leader, without(all, leader)[0], false)
			}
		})
	}
}

// backUpUnderLoad backs a server up that takes the load, or one that follows it.
func backUpUnderLoad(t *testing.T, s, from *server, asStream bool) {
	t.Helper()
	var stream []byte
	if r := s.dial().do("CTABLE", "CREATE", "approx", "PREFIX", "approx:", "MODE", "APPROX", "ERROR",
		"0.000000001", "WINDOW", "1h"); r != "+OK" {
		t.Fatal(r)
	}
	changeTables(t, s, "ALTER", "default", "WINDOW", "1h") // all are sent again
	loads := []*load{newLoad(t, s, "exact:"), newLoad(t, s, "approx:")}
	root := t.TempDir()
	backup, restored := filepath.Join(root, "backup"), filepath.Join(root, "restored")
	var acked []map[string]int64
	during(loads, 300*time.Millisecond, func() {
		for _, l := range loads {
			acked = append(acked, l.sums(func(op *operation) bool { return op.acked && from == s }))
		}
		if asStream {
			stream = backupStream(t, from)
		} else if out, code := fbfkv(t, "backup", from.address(), backup); code != 0 ||
			!strings.Contains(out, "backed up") {
			t.Errorf("backup: %d %s", code, out)
		}
		time.Sleep(200 * time.Millisecond)
	})
	if out, code := fbfkv(t, "backup", from.address(), backup); !asStream &&
		(code != 1 || !strings.Contains(out, "is not empty")) {
		t.Errorf("a second backup to the same place: %d %s", code, out)
	}
	s.kill() // what was acknowledged after the backup is lost with this directory
	if asStream {
		backup = "-"
	}
	for _, args := range [][]string{{"verify", backup}, {"restore", backup, restored}} {
		if out, err, code := filter(t, stream, args...); code != 0 {
			t.Fatalf("%q: %d %s %s", args, code, out, err)
		}
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
				t.Errorf("%s is %d in the backup; %d were acknowledged before it and %d ever sent", key, v,
					acked[i][key], sent[key])
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

// filter runs a subcommand with a standard input, and expects that it leaves no temporary
// files.
func filter(t *testing.T, input []byte, args ...string) (stdout []byte, stderr string, code int) {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Stdin = bytes.NewReader(input)
	var out, errors bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errors
	aside := t.TempDir()
	cmd.Env = append(os.Environ(), "TMPDIR="+aside)
	cmd.Run()
	if left, err := os.ReadDir(aside); err != nil || len(left) > 0 {
		t.Errorf("%q leaves %v: %v", args, left, err)
	}
	return out.Bytes(), errors.String(), cmd.ProcessState.ExitCode()
}

// backupStream returns what backup - writes.
func backupStream(t *testing.T, s *server, args ...string) []byte {
	t.Helper()
	stream, text, code := filter(t, nil, append(append([]string{"backup", s.address()}, args...), "-")...)
	if code != 0 || len(stream) == 0 || !strings.Contains(text, fmt.Sprintf("sent %d bytes", len(stream))) {
		t.Fatalf("backup -: %d %s", code, text)
	}
	return stream
}

// TestBackupStream: a stream that is cut or damaged is refused and leaves nothing; a good
// one is compared with what the server counted, and the server knows of it from then on
// and not before.
func TestBackupStream(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	c := s.dial()
	for i := range 500 {
		c.do("CINCRBY", fmt.Sprint("k", i), "op", "1")
	}
	c.want("+OK", "ACL", "SETUSER", "saver", "on", ">copy-cat", "+backup")
	login := []string{"--user", "saver", "--requirepass", "copy-cat"}
	stream := backupStream(t, s, login...)
	lastSuccess := func() string { return infoField(c, "backup_last_success_time") }
	if got := lastSuccess(); got != "0" {
		t.Errorf("nobody knows yet whether the backup is good, and the last success was at %s", got)
	}

	dir := filepath.Join(t.TempDir(), "restored")
	for _, n := range []int{0, 1, len(stream) / 2, len(stream) - 1} {
		damaged := bytes.Clone(stream)
		damaged[n] ^= 1
		for what, bad := range map[string][]byte{"cut": stream[:n], "damaged": damaged} {
			for _, args := range [][]string{{"verify", s.address(), "-"}, {"restore", "-", dir}} {
				if out, text, code := filter(t, bad, args...); code != 1 ||
					!strings.Contains(text, "fbfkv: ") || strings.Count(text, "\n") != 1 {
					t.Errorf("%q of a stream that is %s at %d: %d %s %q", args, what, n, code, out, text)
				}
			}
		}
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(dir), "*")); err != nil || len(left) > 0 {
		t.Errorf("%v is left: %v", left, err)
	}
	if got := lastSuccess(); got != "0" {
		t.Errorf("after bad streams the last success was at %s", got)
	}

	if out, text, code := filter(t, stream,
		append([]string{"verify", s.address()}, append(login, "-")...)...); code != 0 ||
		!strings.Contains(string(out), "is good; it has 500 keys, and the server had 500 before it was "+
			"made and 500 after") {
		t.Errorf("verify: %d %s %s", code, out, text)
	}
	if got := lastSuccess(); got == "0" {
		t.Error("the server does not know of its backup")
	}
	file := filepath.Join(t.TempDir(), "b.tar")
	if err := os.WriteFile(file, stream, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, code := fbfkv(t, "verify", file); code != 1 || !strings.Contains(out, "with - for BACKUP") {
		t.Errorf("verify of a stream by its name: %d %s", code, out)
	}
	other := startServer(t)
	if out, text, code := filter(t, stream, "verify", other.address(), "-"); code != 1 ||
		!strings.Contains(text, "the backup is of another server's data") {
		t.Errorf("verify with another server: %d %s %s", code, out, text)
	}
}

// infoField returns a field of INFO.
func infoField(c *rawConn, name string) string {
	_, rest, _ := strings.Cut(c.do("INFO", "everything"), name+":")
	value, _, _ := strings.Cut(rest, `\r`)
	return value
}

// TestBackupStreamDialogue: a stream belongs to its connection and ends with it; there is
// one at a time, and nothing of it is left in the data directory.
func TestBackupStreamDialogue(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	c, d := s.dial(), s.dial()
	for i := range 2000 {
		c.do("CINCRBY", fmt.Sprint("k", i), "op", "1")
	}
	for _, bad := range []string{"NEXT", "../relative/path", "VERIFIED", "- -", "NEXT NEXT", "VERIFIED x 1",
		"VERIFIED 00000000000000000000000000000000 1",
		"VERIFIED 00000000000000000000000000000000 x", "VERIFIED 0000000000000000000000000000000000 1"} {
		if r := c.do(append([]string{"BACKUP"}, strings.Fields(bad)...)...); !strings.HasPrefix(r, "-ERR") {
			t.Errorf("BACKUP %s: %s", bad, r)
		}
	}
	staged := filepath.Join(s.dir, "tmp", "backup")
	begin := func(c *rawConn) string { return c.do("BACKUP", "-") }
	if r := begin(c); strings.HasPrefix(r, "-") {
		t.Fatal(r)
	}
	if r := begin(d); !strings.HasPrefix(r, "-ERR a backup is already in progress") {
		t.Error(r)
	}
	d.want("-ERR BACKUP NEXT goes on with what BACKUP - began on the same connection", "BACKUP", "NEXT")
	if r := begin(c); strings.HasPrefix(r, "-") { // from the start again
		t.Error(r)
	}
	c.Close()
	eventually(t, patience, "the copy of a client that is gone is removed", func() bool {
		_, err := os.Stat(staged)
		return errors.Is(err, os.ErrNotExist)
	})
	eventually(t, patience, "another backup may be made", func() bool {
		return !strings.HasPrefix(begin(d), "-")
	})
	for r := "x"; r != `""`; {
		if r = d.do("BACKUP", "NEXT"); strings.HasPrefix(r, "-") {
			t.Fatal(r)
		}
	}
	if _, err := os.Stat(staged); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after the end of the stream: %v", err)
	}
	s.stop()
}

// TestBackupCommand: the password is asked for, and a server that is not there
// is named.
func TestBackupCommand(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--requirepass", "open sesame")
	dir := filepath.Join(t.TempDir(), "backup")
	if out, code := fbfkv(t, "backup", s.address(), dir); code != 1 || !strings.Contains(out, "NOAUTH") {
		t.Errorf("without the password: %d %s", code, out)
	}
	if out, code := fbfkv(t, "backup", s.address(), "--requirepass", "open sesame", dir); code != 0 {
		t.Errorf("with the password: %d %s", code, out)
	}
	if out, code := fbfkv(t, "check", dir); code != 0 {
		t.Errorf("check of the backup: %d %s", code, out)
	}
	s.kill()
	if out, code := fbfkv(t, "backup", s.address(), "--requirepass", "open sesame", dir+"2"); code != 1 ||
		!strings.Contains(out, "connection") {
		t.Errorf("without a server: %d %s", code, out)
	}
}

// TestCheckCommand: exit status and words for a sound data directory, one in use, a directory of
// another kind, and damaged ones.
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
	expect(s.dir, 1, "problem: partition 15: filter snapshot", "the server starts with the older "+
		"snapshot, nothing is lost", "has 1 problem")
	runs, err := filepath.Glob(filepath.Join(s.dir, "runs", "*.run"))
	if err != nil || len(runs) == 0 {
		t.Fatal(runs, err)
	}
	damage(t, runs[0])
	expect(s.dir, 1, "runs/"+filepath.Base(runs[0])+": ", "is damaged", "restore a backup")
}
