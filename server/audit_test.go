package server

import (
	"bufio"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// acts returns the administrative acts that a JSON log tells of, and checks that
// each says who it was.
func acts(t *testing.T, log, client string) (commands []string) {
	t.Helper()
	lines := bufio.NewScanner(strings.NewReader(log))
	for lines.Scan() {
		var line struct{ Msg, Command, User, Client, Client_name string }
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		if line.Msg != "admin command" {
			continue
		}
		if line.User != "root" || line.Client != client || line.Client_name != "console" {
			t.Errorf("nobody knows who it was: %s", lines.Text())
		}
		commands = append(commands, line.Command)
	}
	return commands
}

// TestAdministrativeActsAreLogged: each once, with who did it and without
// passwords, in MULTI too; and not what was refused, only asked or not executed.
func TestAdministrativeActsAreLogged(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "fbfkv.conf")
	users := filepath.Join(dir, "users.acl")
	for path, text := range map[string]string{file: "timeout 0\n",
		users: "user root on >s3cret ~* &* +@all\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, loop := range loops {
		var log lockedBuffer
		s := startLoop(t, loop,
			Options{Store: openStore(t), ConfigFile: file, Logger: slog.New(slog.NewJSONHandler(&log, nil))},
			"aclfile", users, "rename-command", "FLUSHDB sweep", "backup-dir", dir)
		c := s.dial(t)
		for _, line := range []string{
			"AUTH root s3cret", "CLIENT SETNAME console",
			"CONFIG SET timeout 10 requirepass s3cret", "CONFIG SET nosuch 1", "CONFIG GET timeout",
			"CONFIG RESETSTAT",
			"FLUSHALL ASYNC", "sweep", "FLUSHALL nosuch",
			"CTABLE CREATE tab PREFIX p: WINDOW 9000", "CTABLE CREATE tab PREFIX p:",
			"CTABLE ALTER tab WINDOW 8000",
			"CTABLE LIST", "CTABLE DROP tab", "SET k 1", "INFO",
			"ACL SETUSER bob on >s3cret #" + strings.Repeat("5", 64) + " ~x +get (+set ~y)",
			"ACL SETUSER bob <nosuch", "ACL GETUSER bob",
			"ACL DELUSER bob", "ACL SAVE", "ACL LOAD", "ACL LOG", "ACL LOG RESET", "CLIENT KILL ID 999",
			"BACKUP " + filepath.Join(dir, loop[:3]), "CONFIG REWRITE",
			"MULTI", "FLUSHALL", "CONFIG SET timeout 11", "EXEC",
			"MULTI", "FLUSHALL", "DISCARD",
			"WATCH k", "SET k 2", "MULTI", "FLUSHALL", "EXEC",
		} {
			c.do(strings.Fields(line)...)
		}
		c.send(frame("CLIENT", "REPLY", "OFF") + frame("FLUSHALL") + frame("CLIENT", "REPLY", "ON"))
		c.expectReply("+OK")
		client := c.LocalAddr().String()
		c.send(frame("SHUTDOWN", "NOSAVE"))
		s.wait(t)
		want := []string{
			"CONFIG SET timeout 10 requirepass (redacted)", "CONFIG RESETSTAT", "FLUSHALL ASYNC", "FLUSHDB",
			"CTABLE CREATE tab PREFIX p: WINDOW 9000", "CTABLE ALTER tab WINDOW 8000", "CTABLE DROP tab",
			`ACL SETUSER bob on (redacted) (redacted) ~x +get (+set ~y)`,
			"ACL DELUSER bob", "ACL SAVE", "ACL LOAD", "ACL LOG RESET", "CLIENT KILL ID 999", "BACKUP " +
				filepath.Join(dir, loop[:3]),
			"CONFIG REWRITE", "FLUSHALL", "CONFIG SET timeout 11", "FLUSHALL", "SHUTDOWN NOSAVE",
		}
		if got := acts(t, log.String(), client); !slices.Equal(got, want) {
			t.Errorf("%s: logged\n%s\nwant\n%s", loop, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if strings.Contains(log.String(), "s3cret") {
			t.Errorf("%s: the log holds a password", loop)
		}
	}
}

// TestAuditedWords: a line is one line, whatever bytes and lengths a client sends.
func TestAuditedWords(t *testing.T) {
	var log lockedBuffer
	s := startWith(t, Options{Store: openStore(t), Logger: slog.New(slog.NewJSONHandler(&log, nil))})
	c := s.dial(t)
	c.expect("+OK", "ACL", "SETUSER", "a\"\\\xff\a", "~"+strings.Repeat("x", 1000))
	eventually(t, "the line", func() bool { return strings.Contains(log.String(), "admin command") })
	var line struct{ Command string }
	if err := json.Unmarshal([]byte(log.String()), &line); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(line.Command, `ACL SETUSER "a\"\\\xff\a" "~xxx`) ||
		!strings.HasSuffix(line.Command, `xxx... (873 more bytes)"`) {
		t.Errorf("logged %q", line.Command)
	}
}
