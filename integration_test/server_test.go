package integration

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fbfkv/fbfkv/internal/testwait"
)

// patience bounds how long tests wait for something that must come.
const patience = testwait.Limit

// server is the program on a data directory of its own. It may be stopped,
// killed and started again, on another port each time; clients made by its
// methods find it again.
type server struct {
	t    testing.TB
	dir  string
	args []string

	mu   sync.Mutex
	addr string // of the present process, or of the last one

	program   string   // instead of the one under test
	env       []string // beside the test's own
	namespace string   // of the network in which it runs; "": the test's own
	password  string   // of clients; "": they need none

	cmd  *exec.Cmd
	log  *logBuffer
	done chan struct{} // closed when the process has ended
}

// startServer starts the program with additional arguments on a free port and
// a new data directory, and stops it when the test ends.
func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	s := &server{t: t, dir: t.TempDir(), args: args}
	s.start()
	t.Cleanup(s.cleanup)
	return s
}

// start starts the process and returns when it is ready for clients.
func (s *server) start(more ...string) {
	s.t.Helper()
	s.launch(more...)
	ready := regexp.MustCompile(`msg="ready for clients" address=(\S+)`)
	if !s.log.await(ready, s.done) {
		s.t.Fatalf("the server did not become ready; its log:\n%s", s.log)
	}
	s.mu.Lock()
	s.addr = ready.FindStringSubmatch(s.log.String())[1]
	s.mu.Unlock()
}

// launch starts the process.
func (s *server) launch(more ...string) {
	s.t.Helper()
	args := append(append([]string{"--dir", s.dir}, s.args...), more...)
	if !slices.Contains(args, "--backup-dir") {
		args = append(args, "--backup-dir", os.TempDir()) // where tests have their directories
	}
	if !slices.Contains(args, "--port") {
		args = append(args, "--port", "0")
	}
	s.cmd = exec.Command(cmp.Or(s.program, program), args...)
	if s.namespace != "" { // ip becomes the program, so that signals reach it
		s.cmd = exec.Command("ip", append([]string{"netns", "exec", s.namespace, program}, args...)...)
	}
	s.cmd.Env = append(os.Environ(), s.env...)
	s.log = newLogBuffer()
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	s.done = make(chan struct{})
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	cmd, done := s.cmd, s.done
	go func() {
		cmd.Wait()
		close(done)
	}()
}

// kill ends the process as kill -9 does.
func (s *server) kill() {
	s.cmd.Process.Kill()
	<-s.done
	s.checkLog()
}

// stop ends the process in an orderly way and expects it to be content.
func (s *server) stop() {
	s.t.Helper()
	s.cmd.Process.Signal(syscall.SIGTERM)
	if code := s.exitCode(); code != 0 {
		s.t.Errorf("after SIGTERM the server exited with status %d; its log:\n%s", code, s.log)
	}
	s.checkLog()
}

// exitCode waits for the end of the process.
func (s *server) exitCode() int {
	s.t.Helper()
	select {
	case <-s.done:
	case <-time.After(patience):
		s.printStacks()
		s.t.Error("the server does not end")
	}
	return s.cmd.ProcessState.ExitCode()
}

// printStacks ends a process that hangs and shows where.
func (s *server) printStacks() {
	s.t.Helper()
	s.cmd.Process.Signal(syscall.SIGQUIT)
	<-s.done
	log := s.log.String()
	s.t.Logf("the server hangs; its log:\n%s", log[:min(len(log), 60000)])
}

// restart stops the process in an orderly way and starts another.
func (s *server) restart(more ...string) {
	s.t.Helper()
	s.stop()
	s.start(more...)
}

// crash kills the process and starts another.
func (s *server) crash() {
	s.t.Helper()
	s.kill()
	s.start()
}

// cleanup ends what still runs.
func (s *server) cleanup() {
	select {
	case <-s.done:
	default:
		s.cmd.Process.Kill()
		<-s.done
	}
	s.checkLog()
	if s.t.Failed() {
		s.t.Logf("end of the server's log:\n%s", tail(s.log.String(), 4000))
	}
}

// checkLog fails the test if the process panicked or raced.
func (s *server) checkLog() {
	s.t.Helper()
	log := s.log.String()
	for _, bad := range []string{"panic", "DATA RACE", "fatal error:"} {
		if strings.Contains(log, bad) {
			s.t.Errorf("the server's log holds %q:\n%s", bad, tail(log, 8000))
			return
		}
	}
}

// address is where the server is, or was last, to be reached.
func (s *server) address() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addr
}

// port is the port of address.
func (s *server) port() string {
	_, port, err := net.SplitHostPort(s.address())
	if err != nil {
		s.t.Fatal(err)
	}
	return port
}

// client returns a go-redis client that finds the server wherever it is. It
// does not retry by itself: what is retried, and when, is what we test.
func (s *server) client(configure ...func(*redis.Options)) *redis.Client {
	o := &redis.Options{
		Addr:            s.address(), // of now; Dialer knows better later
		Password:        s.password,
		MaxRetries:      -1,
		DialerRetries:   1,
		DialTimeout:     patience,
		ReadTimeout:     patience,
		DisableIdentity: true,
		Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, s.address())
		},
	}
	for _, f := range configure {
		f(o)
	}
	c := redis.NewClient(o)
	s.t.Cleanup(func() { c.Close() })
	return c
}

// cli runs redis-cli against the server and returns what it prints, as on a
// terminal.
func (s *server) cli(args ...string) string {
	s.t.Helper()
	requireProgram(s.t, "redis-cli", "install Debian's package redis-tools")
	cmd := exec.Command("redis-cli", append([]string{"--no-raw", "-p", s.port()}, args...)...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatalf("redis-cli %q: %v", args, err)
	}
	return strings.TrimRight(string(out), "\n")
}

// requireProgram skips the test if a program is not installed. In continuous
// integration it must be.
func requireProgram(t testing.TB, name, advice string) {
	t.Helper()
	if _, err := exec.LookPath(name); err == nil {
		return
	}
	if os.Getenv("FBFKV_CI") != "" {
		t.Fatalf("%s is not installed: %s", name, advice)
	}
	t.Skipf("%s is not installed: %s", name, advice)
}

// logBuffer collects what a process prints.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{} // closed at the next write
}

func newLogBuffer() *logBuffer { return &logBuffer{more: make(chan struct{})} }

// Write implements io.Writer.
func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.more)
	l.more = make(chan struct{})
	return l.text.Write(p)
}

// String returns everything printed so far.
func (l *logBuffer) String() string { return l.from(0) }

// from returns what was printed behind the first n bytes.
func (l *logBuffer) from(n int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text.Bytes()[n:])
}

// await waits until what is printed matches, and returns false if the process
// ends, or takes too long, without.
func (l *logBuffer) await(want *regexp.Regexp, done <-chan struct{}) bool {
	deadline := time.After(patience)
	for ended := false; ; {
		l.mu.Lock()
		found, more := want.Match(l.text.Bytes()), l.more
		l.mu.Unlock()
		if found || ended {
			return found
		}
		select {
		case <-more:
		case <-done:
			ended = true
		case <-deadline:
			return false
		}
	}
}

// tail returns at most n bytes from the end of s.
func tail(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return "…" + s[len(s)-n:]
}

// eventually waits until a condition holds, and fails the test if it does not within limit. It asks
// ever less often, since to look takes a process in many tests.
func eventually(t testing.TB, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	pause := 10 * time.Millisecond
	for deadline := time.Now().Add(limit); !holds(); time.Sleep(pause) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", limit, what)
		}
		pause = min(pause*5/4, 100*time.Millisecond)
	}
}
