package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/internal/testwait"
	"github.com/fbfkv/fbfkv/server"
)

// asServer makes the test's own binary behave as fbfkv.
const asServer = "FBFKV_TEST_AS_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(asServer) != "" {
		main()
	}
	os.Exit(m.Run())
}

// command is this program with arguments.
func command(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asServer+"=1")
	return cmd
}

// process is a running server.
type process struct {
	*exec.Cmd
	address string

	mu  sync.Mutex
	log bytes.Buffer
	end chan error // the result of Wait
}

var readyLine = regexp.MustCompile(`msg="ready for clients" address=(\S+)`)

// launch starts a server on a free port and waits until it is ready.
func launch(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{Cmd: command(append([]string{"--port", "0"}, args...)...), end: make(chan error, 1)}
	stderr, err := p.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Process.Kill() })
	ready := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			p.mu.Lock()
			fmt.Fprintln(&p.log, lines.Text())
			p.mu.Unlock()
			if m := readyLine.FindStringSubmatch(lines.Text()); m != nil {
				ready <- m[1]
			}
		}
		p.end <- p.Wait()
	}()
	select {
	case p.address = <-ready:
	case <-time.After(testwait.Limit):
		t.Fatalf("not ready: %s", p.logged())
	}
	return p
}

// logged returns what the process wrote to stderr.
func (p *process) logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// exitCode waits for the end of the process.
func (p *process) exitCode(t *testing.T) int {
	t.Helper()
	select {
	case <-p.end:
		return p.ProcessState.ExitCode()
	case <-time.After(testwait.Limit):
		t.Fatalf("does not end: %s", p.logged())
		return -1
	}
}

// ask sends an inline command and returns the first line of the reply.
func (p *process) ask(t *testing.T, line string) string {
	t.Helper()
	nc, err := net.Dial("tcp", p.address)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(testwait.Limit))
	fmt.Fprintf(nc, "%s\r\n", line)
	reply, err := bufio.NewReader(nc).ReadString('\n')
	if err != nil && err != io.EOF {
		t.Fatalf("%s: %v", line, err)
	}
	return strings.TrimSpace(reply)
}

func TestStopAndStartAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	for i, stop := range []func(p *process){
		func(p *process) { p.Process.Signal(syscall.SIGTERM) },
		func(p *process) { p.Process.Signal(syscall.SIGINT) },
		func(p *process) { p.ask(t, "SHUTDOWN") },
		func(p *process) { p.ask(t, "SHUTDOWN NOSAVE") },
	} {
		p := launch(t, "--dir", dir)
		for _, line := range []string{"CINCRBY k first 5", fmt.Sprintf("CINCRBY k id-%d 0", i)} {
			if got := p.ask(t, line); got != ":5" {
				t.Fatalf("start %d: %s: %s\n%s", i, line, got, p.logged())
			}
		}
		p.Process.Signal(syscall.SIGHUP) // means nothing
		stop(p)
		if code := p.exitCode(t); code != 0 {
			t.Errorf("start %d: exit status %d\n%s", i, code, p.logged())
		}
		log := p.logged()
		for _, want := range []string{"msg=\"data directory open\" dir=" + dir, " keys=", " took=",
			"msg=stopped"} {
			if !strings.Contains(log, want) {
				t.Errorf("start %d: the log lacks %q:\n%s", i, want, log)
			}
		}
		if snapshot := !strings.Contains(log, "snapshot=false"); snapshot != (i != 3) {
			t.Errorf("start %d: snapshot written: %v", i, snapshot)
		}
	}
}

// TestSecondSignalStopsAtOnce has a client that keeps the first from finishing: it does not
// read on in a reply that is larger than what the system takes.
func TestSecondSignalStopsAtOnce(t *testing.T) {
	p := launch(t, "--dir", filepath.Join(t.TempDir(), "data"), "--shutdown-timeout", "3600",
		"--proto-max-bulk-len", "64mb")
	nc, err := net.Dial("tcp", p.address)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(testwait.Limit))
	if err := nc.(*net.TCPConn).SetReadBuffer(64 << 10); err != nil {
		t.Fatal(err)
	}
	const size = 48 << 20
	fmt.Fprintf(nc, "*2\r\n$4\r\nECHO\r\n$%d\r\n%s\r\n", size, strings.Repeat("x", size))
	if _, err := nc.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	p.Process.Signal(syscall.SIGTERM)
	for end := time.Now().Add(testwait.Limit); !strings.Contains(p.logged(), "signal=terminated"); {
		if time.Now().After(end) {
			t.Fatalf("no sign of stopping: %s", p.logged())
		}
		time.Sleep(time.Millisecond)
	}
	p.Process.Signal(syscall.SIGTERM)
	if code := p.exitCode(t); code != 1 { // 0: it did not wait for its client
		t.Errorf("exit status %d", code)
	}
}

func TestConfigurationFileAndFlags(t *testing.T) {
	tmp := t.TempDir()
	file := filepath.Join(tmp, "fbfkv.conf")
	log := filepath.Join(tmp, "fbfkv.log")
	text := fmt.Sprintf("# test\ndir %q\nlogfile %q\nappendfsync everysec\nmaxclients 7\nsave 300 1\nsave "+
		"60 100\n",
		filepath.Join(tmp, "with space"), log)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := command(file, "--port", "0", "--bind", "127.0.0.1", "-::1", "--maxclients", "9",
		"--accept-forgotten-window")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	ready := readyLine.FindStringSubmatch(await(t, log, `msg="ready for clients" address=`))
	nc, err := net.Dial("tcp", ready[1])
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(testwait.Limit))
	fmt.Fprintf(nc, "CONFIG GET maxclients appendfsync save accept-forgotten-window bind\r\nQUIT\r\n")
	reply, _ := io.ReadAll(nc)
	var words []string
	for _, line := range strings.Split(string(reply), "\r\n") {
		if line != "" && line[0] != '$' && line[0] != '*' {
			words = append(words, line)
		}
	}
	want := "maxclients 9 appendfsync everysec save 300 1 60 100 accept-forgotten-window yes bind " +
		"127.0.0.1 -::1 +OK"
	if got := strings.Join(words, " "); got != want {
		t.Errorf("settings\n got %s\nwant %s", got, want)
	}
	cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(log); err != nil || !strings.Contains(string(b), "ready for clients") {
		t.Errorf("log file: %v, %s", err, b)
	}
}

// TestMistakesAreOnePlainLine tries every way in which a start can fail.
func TestMistakesAreOnePlainLine(t *testing.T) {
	tmp := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(tmp, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	running := launch(t, "--dir", filepath.Join(tmp, "data"))
	_, port, _ := net.SplitHostPort(running.address)
	plainFile := write("plain", "x")
	foreign := filepath.Dir(write("foreign/letter.txt", "Dear Sir"))
	newer := filepath.Join(tmp, "newer")
	makeNewer(t, newer)

	tests := []struct {
		args []string
		want string
	}{
		{[]string{"--nosuch", "1"}, "unknown flag: --nosuch"},
		{[]string{"--port", "x"}, "--port: argument couldn't be parsed into an integer"},
		{[]string{"--port"}, "flag needs an argument: --port"},
		{[]string{"--port", "1", "--port", "2"}, "--port: set twice"},
		{[]string{"--save", "60"}, "--save: expected pairs of seconds and changes"},
		{[]string{"--protected-mode", "perhaps"}, "perhaps"},
		{[]string{"a.conf", "b.conf"}, "expected at most one configuration file"},
		{[]string{"verison"}, "neither a subcommand nor a configuration file"},
		{[]string{"/no/such/file"}, "no such file"},
		{[]string{write("bad.conf", "port 1\nports 2\n")}, `bad.conf:2: unknown setting "ports"`},
		{[]string{"--check-config"}, "flag needs an argument: --check-config"},
		{[]string{"--check-config", ""}, "--check-config needs a configuration file"},
		{[]string{"a.conf", "--check-config", "b.conf"}, "expected at most one configuration file"},
		{[]string{"--check-config", filepath.Join(tmp, "bad.conf")}, `bad.conf:2: unknown setting "ports"`},
		{[]string{"--logfile", "/no/such/dir/log"}, "logfile"},
		{[]string{"--port", port, "--dir", filepath.Join(tmp, "other")}, "the port is in use"},
		{[]string{"--port", "0", "--dir", filepath.Join(tmp, "data")}, "in use"},
		{[]string{"--port", "0", "--dir", foreign}, "not a data directory"},
		{[]string{"--port", "0", "--dir", newer}, "newer"},
		{[]string{"--port", "0", "--dir", filepath.Join(plainFile, "data")}, "not a directory"},
	}
	for _, tt := range tests {
		cmd := command(tt.args...)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		cmd.Run()
		line := stderr.String()
		if cmd.ProcessState.ExitCode() != 1 || stdout.Len() > 0 || strings.Count(line, "\n") != 1 ||
			!strings.HasPrefix(line, "fbfkv: ") || !strings.Contains(line, tt.want) {
			t.Errorf("%q: exit status %d, stdout %q, stderr %q, want one line with %q",
				tt.args, cmd.ProcessState.ExitCode(), &stdout, line, tt.want)
		}
	}
	if got := running.ask(t, "PING"); got != "+PONG" {
		t.Errorf("the running server: %s", got)
	}
}

// TestCheckConfig tells all faults of a file, of the flags, and of the files that
// they name, or says ok; it touches neither the data directory nor the log.
func TestCheckConfig(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "redis.conf")
	for _, tt := range []struct {
		text           string
		args           []string
		stdout, stderr string // FILE stands for the file
	}{
		{"port 0\ndir DIR/data\nlogfile DIR/log\n", nil, "FILE: ok\n", ""},
		{"port 0\ndir DIR/data\n", []string{"--databases", "16", "--appendonly", "yes"},
			"FILE: without effect here: databases 16\nFILE: ok\n", ""},
		{"dir DIR/data\ndaemonize yes\nhz 10\n", nil, "FILE: without effect here: daemonize, hz\nFILE: ok\n",
			""},
		{"replicaof a 1\nport 1\naclfile DIR/users\ntimeout soon\n", []string{"--tls-port", "1"}, "",
			"fbfkv: FILE:1: replicaof: not supported: nodes of a cluster replicate counters, see " +
				"cluster-enabled\n" +
				"fbfkv: FILE:4: timeout: argument couldn't be parsed into an integer\n" +
				"fbfkv: aclfile: open DIR/users: no such file or directory\n" +
				"fbfkv: port and tls-port are both 1: give each its own, or set port to 0\n" +
				"fbfkv: tls-port needs tls-cert-file and tls-key-file\n"},
	} {
		fill := strings.NewReplacer("FILE", file, "DIR", dir).Replace
		if err := os.WriteFile(file, []byte(fill(tt.text)), 0o600); err != nil {
			t.Fatal(err)
		}
		var stdout, stderr bytes.Buffer
		code := run(append(tt.args, "--check-config", file), &stdout, &stderr)
		if (code == 0) != (tt.stderr == "") || code > 1 || stdout.String() != fill(tt.stdout) ||
			stderr.String() != fill(tt.stderr) {
			t.Errorf("%q: exit status %d, stdout %q, stderr\n%s", tt.text, code, &stdout, &stderr)
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
}

// makeNewer makes a data directory that claims to be of a later format.
func makeNewer(t *testing.T, dir string) {
	t.Helper()
	p := launch(t, "--dir", dir)
	p.Process.Signal(syscall.SIGTERM)
	if code := p.exitCode(t); code != 0 {
		t.Fatal(p.logged())
	}
	meta := filepath.Join(dir, "META")
	b, err := os.ReadFile(meta)
	if err != nil {
		t.Fatal(err)
	}
	changed := regexp.MustCompile(`(?m)^(format[ :=]*)\d+`).ReplaceAll(b, []byte("${1}999"))
	if bytes.Equal(b, changed) {
		t.Fatalf("META has no format line:\n%s", b)
	}
	if err := os.WriteFile(meta, changed, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestHelp(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := run([]string{"--help"}, &stdout, &stderr); code != 0 || stderr.Len() > 0 {
		t.Fatalf("exit status %d, stderr %q", code, &stderr)
	}
	if lines := strings.Count(stdout.String(), "\n"); lines > 48 ||
		!strings.Contains(stdout.String(), "--help settings") {
		t.Errorf("%d lines do not fit a screen, or the way to the settings is missing:\n%s", lines, &stdout)
	}
	if code := run([]string{"--help", "settings"}, &stdout, &stderr); code != 0 || stderr.Len() > 0 {
		t.Fatalf("exit status %d, stderr %q", code, &stderr)
	}
	help := stdout.String()
	for i := range server.Settings {
		s := &server.Settings[i]
		if line := "--" + s.Name + " " + s.Syntax(); strings.Contains(help, line) == s.Fixed {
			t.Errorf("%q in the help text: %v", line, !s.Fixed)
		}
	}
	for i, line := range strings.Split(help, "\n") {
		if len(line) > helpWidth || strings.TrimRight(line, " ") != line {
			t.Errorf("line %d is too long or ends in white space: %q", i+1, line)
		}
	}
}

func TestVersion(t *testing.T) {
	var stdout, stderr bytes.Buffer
	code := run([]string{"--version"}, &stdout, &stderr)
	if code != 0 ||
		!regexp.MustCompile(`^fbfkv \d+\.\d+\.\d+\S* .*go1\.\S+ \w+/\w+\n$`).MatchString(stdout.String()) {
		t.Errorf("exit status %d, %q, stderr %q", code, &stdout, &stderr)
	}
}

// TestSubcommandArguments: wrong ones are answered with the usage, and flags that
// are settings' names too are the subcommand's own.
func TestSubcommandArguments(t *testing.T) {
	for in, want := range map[string]string{
		"check": "fbfkv: usage: fbfkv check [--drop-unreadable] DIR (fbfkv check " +
			"--help tells more)",
		"restore a":                           "fbfkv: usage: fbfkv restore BACKUP|- DIR ",
		"healthcheck a":                       "fbfkv: usage: fbfkv healthcheck ",
		"backup --user saver dir":             "fbfkv: --user needs a password",
		"import":                              "fbfkv: usage: fbfkv import [HOST:PORT] SOURCE ",
		"export a":                            "fbfkv: \"a\" is not HOST:PORT",
		"export a b":                          "fbfkv: usage: fbfkv export ",
		"follow a b":                          "fbfkv: usage: fbfkv follow [HOST:PORT] ",
		"follow a":                            "fbfkv: \"a\" is not HOST:PORT",
		"follow --format xml":                 "fbfkv: --format is ndjson, csv or sql, not \"xml\"",
		"follow --from=":                      "fbfkv: --from is start, now, snapshot or a cursor, and not empty",
		"follow --format sql --cursor-file f": "fbfkv: --cursor-file could run ahead of the database: begin ",
		"export a:1 --dir d":                  "fbfkv: export reads either a server or, with --dir, a directory",
		"verify a:1 dir":                      "fbfkv: only a stream (-) needs HOST:PORT",
		"backup a - ":                         "fbfkv: \"a\" is not HOST:PORT",
		"stream train a --bloom f":            "fbfkv: \"a\" is not HOST:PORT",
		"stream":                              "fbfkv: usage: fbfkv stream count|train|query|dedup ",
		"stream x":                            "fbfkv: \"x\" is not count, train, query or dedup",
		"stream query --field -1":             "fbfkv: --field counts from 1",
		"top --port 1":                        "fbfkv: unknown flag: --port (fbfkv top --help lists the flags)",
		"cluster local":                       "fbfkv: usage: fbfkv cluster local --dir DIR ",
		"region":                              "fbfkv: usage: fbfkv region COMMAND ",
		"region join a b":                     "fbfkv: usage: fbfkv region join NEW NAME EXISTING ",
		"region merge":                        "fbfkv: fbfkv region has no command \"merge\" ",
	} {
		var stdout, stderr bytes.Buffer
		if code := run(strings.Fields(in), &stdout, &stderr); code != 1 ||
			!strings.HasPrefix(stderr.String(), want) {
			t.Errorf("fbfkv %s: exit status %d, %q, want %q", in, code, &stderr, want)
		}
	}
}

func TestRedisStyle(t *testing.T) {
	for in, want := range map[string]string{
		"a.conf --port 6380":                        "a.conf|--port=6380",
		"--save 60 1 --port 1":                      "--save=60 1|--port=1",
		"--save 60 1 --save 900 5":                  "--save=60 1|--save=900 5",
		"--bind 127.0.0.1 -::1 --dir x a.conf":      "--bind=127.0.0.1 -::1|--dir=x|a.conf",
		"--accept-forgotten-window --port 1":        "--accept-forgotten-window=yes|--port=1",
		"--accept-forgotten-window no a.conf":       "--accept-forgotten-window=no|a.conf",
		"--accept-forgotten-window a.conf":          "--accept-forgotten-window=yes|a.conf",
		"--port=1 --help":                           "--port=1|--help",
		"--port":                                    "--port",
		"--PORT 1":                                  "--port=1",
		"--client-output-buffer-limit normal 0 0 0": "--client-output-buffer-limit=normal 0 0 0",
	} {
		if got := strings.Join(redisStyle(strings.Fields(in)), "|"); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}
