package integration

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/internal/testwait"
)

// clientPrograms are the programs in clients, one for each client library that
// we promise to work with, and the versions of the protocol it speaks. Each is
// called with the server's address, a version, and what its keys begin with. With the
// addresses of several nodes, separated by commas, it uses the library's client for
// clusters. It
//
//   - says who it is, as the library does, and checks what it is told,
//   - sends 100 increments of "pipeline" as a pipeline,
//   - counts "spread:0" and so on, in all shards of a cluster, in one pipeline or what it has for that,
//     and reads them as it reads many keys (but for redis-cli and hiredis),
//   - increments "transaction" by 5 in MULTI and EXEC,
//   - receives a null, an error and a boolean,
//   - prints "ready" and increments "load:0" and so on, each operation with an
//     opid of its own that is sent again until it is answered, by the library
//     if it can. Every answer must be the number of increments so far.
//   - prints "counted KEY OPID VALUE" for each answer, but for hiredis, and "applied N"
//     when its standard input is closed.
//
// They are written to be read: this is how to use fbfkv from that library.
var clientPrograms = []struct {
	name      string
	protocols []string
	clusters  bool // it has a client for clusters
	command   func(t *testing.T) []string
}{
	{"goredis", []string{"2", "3"}, true, buildGo("goredis")},
	{"rueidis", []string{"2", "3"}, true, buildGo("rueidis")},
	{"node-redis", []string{"2", "3"}, true, nodeScript("noderedis.js")},
	{"ioredis", []string{"2"}, true, nodeScript("ioredis.js")},
	{"redis-py", []string{"2"}, true, pythonScript("clients/python/redispy.py")}, // RESP3 since redis-py 5
	{"hiredis", []string{"2"}, false, buildC},                                    // RESP3 since hiredis 1.0
	{"redis-cli", []string{"2", "3"}, true, func(t *testing.T) []string {
		requireProgram(t, "redis-cli", "install Debian's package redis-tools")
		return []string{"clients/shell/rediscli.sh"}
	}},
}

// TestClients runs every client program against the server, which falls silent once
// under its load, and is killed and started again. Nothing is lost and nothing
// counted twice.
func TestClients(t *testing.T) {
	t.Parallel()
	for _, p := range clientPrograms {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			command := p.command(t)
			for _, proto := range p.protocols {
				t.Run("RESP"+proto, func(t *testing.T) {
					t.Parallel()
					runClient(t, command, proto)
				})
			}
		})
	}
}

// failures is how often a server fails a client: it is silent once, then killed.
const failures = 3

// runClient runs one program to its end.
func runClient(t *testing.T, command []string, proto string) {
	s := startServer(t)
	port := s.port()
	p := startProgram(t, command, s.address(), proto, "")
	for i := range failures {
		before := s.loaded()
		eventually(t, patience, "increments go on", func() bool { return s.loaded() > before+10 })
		if i == 0 {
			s.pauseUntilGivenUp(t)
			continue // the next increment finds the silence over
		}
		s.kill()
		s.start("--port", port)
	}
	eventually(t, patience, "increments go on", func() bool { return s.loaded() > 0 })
	p.end()
	if got := strconv.FormatInt(s.loaded(), 10); got != p.applied {
		t.Errorf("%s increments were answered, the counters say %s", p.applied, got)
	}
	c := s.dial()
	c.want(`"100"`, "GET", "pipeline")
	c.want(`"5"`, "GET", "transaction")
}

// clientProgram is a running program of clients.
type clientProgram struct {
	t       *testing.T
	out     *logBuffer
	input   io.Closer
	cmd     *exec.Cmd
	done    chan struct{} // closed when it has ended
	applied string        // how many increments it counted by its end
}

// startProgram starts a program and waits until it is ready. The programs end without closing their
// clients: that takes for ever in some, while they look for nodes.
func startProgram(t *testing.T, command []string, addresses, proto, prefix string) *clientProgram {
	t.Helper()
	args := append(append([]string(nil), command[1:]...), addresses, proto, prefix)
	p := &clientProgram{t: t, cmd: exec.Command(command[0], args...), out: newLogBuffer(),
		done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a shell's children go with it
	var err error
	if p.input, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.cmd.Wait(); close(p.done) }()
	t.Cleanup(func() {
		syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-p.done
		if t.Failed() {
			t.Logf("the program printed:\n%s", tail(p.out.String(), 2000))
		}
	})
	if !p.out.await(regexp.MustCompile(`(?m)^ready$`), p.done) {
		t.Fatalf("the program does not become ready: %s", command)
	}
	return p
}

// hangs has the program end, and reports whether it does not: then it has been aborted, and what it
// printed of that is logged.
func (p *clientProgram) hangs() bool {
	p.t.Helper()
	p.input.Close()
	select {
	case <-p.done:
		return false
	case <-time.After(testwait.Limit):
	}
	p.cmd.Process.Signal(syscall.SIGABRT)
	select {
	case <-p.done:
	case <-time.After(testwait.Limit):
		p.cmd.Process.Kill()
		<-p.done
	}
	p.t.Logf("the program was aborted, since it did not end:\n%s", tail(p.out.String(), 8000))
	return true
}

// end has the program end and tell how many increments it counted.
func (p *clientProgram) end() {
	p.t.Helper()
	if p.hangs() {
		p.t.Fatalf("the program does not end: %s", p.cmd.Args)
	}
	applied := regexp.MustCompile(`(?m)^applied (\d+)$`).FindStringSubmatch(p.out.String())
	if !p.cmd.ProcessState.Success() || applied == nil {
		p.t.Fatalf("the program ended with %v", p.cmd.ProcessState)
	}
	p.applied = applied[1]
}

// TestClientsScan: clients that keep SCAN's cursor in a double see every key once,
// whether it has a row or is in memory only.
func TestClientsScan(t *testing.T) {
	t.Parallel()
	command := nodeScript("scan.js")(t)
	const keys = 10000
	s := startServer(t)
	c := s.dial()
	half := func(from int) {
		var increments strings.Builder
		for i := from; i < keys; i += 2 {
			increments.WriteString(frame("INCR", fmt.Sprint("k", i)))
		}
		c.send(increments.String())
		for i := from; i < keys; i += 2 {
			c.reply()
		}
	}
	half(0)
	c.want("+OK", "SAVE")
	half(1)
	out, err := exec.Command(command[0], append(command[1:], s.address())...).CombinedOutput()
	want := fmt.Sprintf("node-redis 4: %[1]d keys, %[1]d different\nioredis: %[1]d keys, %[1]d different\n",
		keys)
	if err != nil || string(out) != want {
		t.Errorf("%v\n%s", err, out)
	}
}

// loaded returns the sum of the counters of a client's load.
func (s *server) loaded() int64 {
	s.t.Helper()
	c := s.dial()
	defer c.Close()
	sum := int64(0)
	for i := range 4 {
		if v := c.do("CGET", fmt.Sprint("load:", i)); v != "$-1" {
			sum += int64(number(v))
		}
	}
	return sum
}

// buildGo builds a program of clients.
func buildGo(name string) func(t *testing.T) []string {
	return func(t *testing.T) []string {
		binary := filepath.Join(t.TempDir(), name)
		if out, err := exec.Command("go", "build", "-o", binary,
			"./clients/"+name).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return []string{binary}
	}
}

// buildC builds the program that uses hiredis.
func buildC(t *testing.T) []string {
	requireProgram(t, "gcc", "install Debian's package gcc")
	requireFile(t, "/usr/include/hiredis/hiredis.h", "install Debian's package libhiredis-dev")
	binary := filepath.Join(t.TempDir(), "hiredis")
	build := exec.Command("gcc", "-Wall", "-Werror", "-O1", "-o", binary, "clients/c/hiredis.c", "-lhiredis")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return []string{binary}
}

// nodeScript runs a script beside the packages that its package.json asks for.
func nodeScript(name string) func(t *testing.T) []string {
	return func(t *testing.T) []string {
		requireProgram(t, "node", "install Debian's package nodejs")
		requireFile(t, "clients/node/node_modules", "run npm ci in integration_test/clients/node")
		return []string{"node", "clients/node/" + name}
	}
}

// pythonScript runs a script with Debian's Python, to whose packages redis-py
// belongs.
func pythonScript(name string) func(t *testing.T) []string {
	return func(t *testing.T) []string {
		requireFile(t, "/usr/lib/python3/dist-packages/redis", "install Debian's package python3-redis")
		return []string{"/usr/bin/python3", name}
	}
}

// requireFile skips the test if a file is not there. In continuous integration
// it must be.
func requireFile(t testing.TB, name, advice string) {
	t.Helper()
	switch _, err := os.Stat(name); {
	case err == nil:
	case !errors.Is(err, os.ErrNotExist):
		t.Fatal(err)
	case os.Getenv("FBFKV_CI") != "":
		t.Fatalf("%s is missing: %s", name, advice)
	default:
		t.Skipf("%s is missing: %s", name, strings.TrimSpace(advice))
	}
}
