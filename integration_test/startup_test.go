package integration

import (
	"fmt"
	"hash/crc32"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// refuses starts the program and expects one plain line and exit status 1.
func refuses(t *testing.T, want string, args ...string) {
	t.Helper()
	refusesCmd(t, want, exec.Command(program, args...))
}

// refusesCmd is refuses for a command that is prepared already.
func refusesCmd(t *testing.T, want string, cmd *exec.Cmd) {
	t.Helper()
	out := newLogBuffer()
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("%q: exit status %d, want 1", cmd.Args[1:], code)
	}
	// Messages of the log come before; the reason is the last line, and no
	// other line looks like it.
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	last := lines[len(lines)-1]
	if !regexp.MustCompile("^fbfkv: .*" + want).MatchString(last) {
		t.Errorf("%q: got\n%s\nwant %s", cmd.Args[1:], out, want)
	}
	for _, line := range lines[:len(lines)-1] {
		if !strings.HasPrefix(line, "time=") {
			t.Errorf("%q: an unexpected line: %s", cmd.Args[1:], line)
		}
	}
}

func TestRefusesToStart(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	refuses(t, "in use", "--port", "0", "--dir", s.dir)
	refuses(t, "the port is in use", "--port", s.port(), "--dir", t.TempDir())
	s.dial().want("+PONG", "PING") // it did not disturb the one that runs

	foreign := t.TempDir()
	os.WriteFile(filepath.Join(foreign, "letter.txt"), []byte("dear"), 0o644)
	refuses(t, "letter.txt", "--port", "0", "--dir", foreign)

	refuses(t, "no-such-setting", "--no-such-setting", "1")
	refuses(t, "--appendfsync: .*always, everysec, no", "--appendfsync", "sometimes")
	refuses(t, "/does/not/exist", "/does/not/exist.conf")
	refuses(t, "port", "--port", "65536")
	refuses(t, "cannot listen on 192.0.2.1:0", "--bind", "192.0.2.1", "--port", "0", "--dir", t.TempDir())
}

// TestNewerFormat refuses a directory written by a later release, and a META
// file that is damaged.
func TestNewerFormat(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.stop()
	meta := filepath.Join(s.dir, "META")
	original, err := os.ReadFile(meta)
	if err != nil {
		t.Fatal(err)
	}
	newer := regexp.MustCompile(`format \d+`).ReplaceAllString(string(original), "format 99")
	body, _, _ := strings.Cut(newer, "checksum ")
	sum := crc32.Checksum([]byte(body), crc32.MakeTable(crc32.Castagnoli))
	os.WriteFile(meta, fmt.Appendf(nil, "%schecksum %08x\n", body, sum), 0o644)
	refuses(t, "newer format", "--port", "0", "--dir", s.dir)
	os.WriteFile(meta, []byte(newer), 0o644)
	refuses(t, "damaged", "--port", "0", "--dir", s.dir)
	os.WriteFile(meta, original, 0o644)
	s.start()
	s.dial().want("+PONG", "PING")
}

// TestUnwritableDirectory starts the program where it may not write.
func TestUnwritableDirectory(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	os.WriteFile(file, nil, 0o644)
	refuses(t, "not a directory", "--port", "0", "--dir", filepath.Join(file, "data"))

	dir, err := os.MkdirTemp("", "fbfkv-unwritable-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	for _, mode := range []os.FileMode{0o555, 0} { // the second one may not even be entered
		os.Chmod(dir, mode)
		cmd := exec.Command(program, "--port", "0", "--dir", dir)
		if os.Geteuid() == 0 { // root may write anywhere; nobody may not
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}
		refusesCmd(t, "not writable; check its owner, its permissions", cmd)
	}
}

// TestHelpAndVersion expects both on standard output, with status 0, and every
// setting in the help text.
func TestHelpAndVersion(t *testing.T) {
	t.Parallel()
	help, err := exec.Command(program, "--help", "settings").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"--port", "--dir", "--appendfsync", "--requirepass", "--maxclients",
		"--timeout", "--save", "--accept-forgotten-window"} {
		if !strings.Contains(string(help), want) {
			t.Errorf("--help does not mention %s", want)
		}
	}
	version, err := exec.Command(program, "--version").Output()
	if err != nil || !regexp.MustCompile(`^fbfkv \S+ .*go1\.\d+.*\n$`).Match(version) {
		t.Errorf("--version: %q, %v", version, err)
	}
}

// TestConfigFile reads settings from a file; the command line wins.
func TestConfigFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "fbfkv.conf")
	os.WriteFile(file, []byte("# a comment\nappendfsync everysec\nrequirepass \"two words\"\nmaxclients "+
		"7\nsave 300 1\n"), 0o600)
	s := startServer(t, file, "--maxclients", "9")
	c := s.dial()
	c.want("+OK", "AUTH", "two words")
	c.want(`["appendfsync" "everysec"]`, "CONFIG", "GET", "appendfsync")
	c.want(`["maxclients" "9"]`, "CONFIG", "GET", "maxclients")
	c.want(`["save" "300 1"]`, "CONFIG", "GET", "save")
	if info := c.do("INFO", "server"); !strings.Contains(info, file) {
		t.Errorf("INFO does not name the configuration file: %s", info)
	}
	os.WriteFile(file, []byte("port 1\nnonsense\n"), 0o600)
	refuses(t, `:2: unknown setting "nonsense"`, file)
}

// TestConfigSet changes settings while clients work, and the change of
// appendfsync loses nothing.
func TestConfigSet(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--appendfsync", "no")
	c := s.dial()
	c.want(":1", "CINCRBY", "k", "a", "1")
	for i, policy := range []string{"everysec", "always", "no", "always"} {
		c.want("+OK", "CONFIG", "SET", "appendfsync", policy)
		c.want(fmt.Sprintf(`["appendfsync" "%s"]`, policy), "CONFIG", "GET", "appendfsync")
		c.want(fmt.Sprintf(":%d", i+2), "CINCRBY", "k", "b"+policy+fmt.Sprint(i), "1")
	}
	s.crash()
	s.dial().want(":5", "CGET", "k")
}

// TestSecondAddress listens on every address it is told to.
func TestSecondAddress(t *testing.T) {
	t.Parallel()
	if l, err := net.Listen("tcp", "[::1]:0"); err != nil {
		t.Skip("this machine has no IPv6 loopback address")
	} else {
		l.Close()
	}
	s := startServer(t, "--bind", "127.0.0.1", "::1")
	c, err := net.Dial("tcp", "[::1]:"+s.port())
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	s.dial().want("+PONG", "PING")
}
