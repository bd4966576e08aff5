package integration

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestGoExample builds and runs the Go example while the server is killed and
// started again, over and over, and once falls silent. Every increment it reports
// counts once.
func TestGoExample(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "example")
	if out, err := exec.Command("go", "build", "-o", binary, "../examples/go").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	runExample(t, func(address string, n int) *exec.Cmd {
		return exec.Command(binary, "-addr", address, "-key", "page:home", "-n", strconv.Itoa(n))
	})
}

// TestNodeExample does the same with the node-redis example, installed as its
// package.json says.
func TestNodeExample(t *testing.T) {
	t.Parallel()
	requireProgram(t, "node", "install Debian's package nodejs")
	requireProgram(t, "npm", "install Debian's package npm")
	dir := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", "increment.js"} {
		b, err := os.ReadFile("../examples/node/" + name)
		if err != nil {
			t.Fatal(err)
		}
		os.WriteFile(filepath.Join(dir, name), b, 0o644)
	}
	install := exec.Command("npm", "ci", "--prefer-offline", "--no-audit", "--no-fund")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		if os.Getenv("FBFKV_CI") != "" {
			t.Fatalf("npm ci: %v\n%s", err, out)
		}
		t.Skipf("npm ci failed, the registry may be out of reach: %v\n%s", err, tail(string(out), 500))
	}
	runExample(t, func(address string, n int) *exec.Cmd {
		cmd := exec.Command("node", "increment.js", "redis://"+address, "page:home", strconv.Itoa(n))
		cmd.Dir = dir
		return cmd
	})
}

// TestPythonExample does the same with the redis-py example.
func TestPythonExample(t *testing.T) {
	t.Parallel()
	python := pythonScript("../examples/python/increment.py")(t)
	runExample(t, func(address string, n int) *exec.Cmd {
		return exec.Command(python[0], python[1], address, "page:home", strconv.Itoa(n))
	})
}

// runExample runs an example that increments page:home n times, while the
// server is killed now and then. It stays on its port, as it would in earnest.
// Beside a server that is silent from the beginning the example gives up.
func runExample(t *testing.T, command func(address string, n int) *exec.Cmd) {
	const n = 1500
	silent, err := net.Listen("tcp", "127.0.0.1:0") // connections wait to be accepted, for ever
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	hopeless := command(silent.Addr().String(), 1)
	if err := hopeless.Start(); err != nil {
		t.Fatal(err)
	}
	gaveUp := make(chan error, 1)
	go func() { gaveUp <- hopeless.Wait() }()
	defer hopeless.Process.Kill()
	s := startServer(t)
	port := s.port()
	cmd := command(s.address(), n)
	out := newLogBuffer()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait(); close(ended) }()
	defer func() { // also if the test has failed
		cmd.Process.Kill()
		<-ended
	}()
	kills := 0
	for running := true; running; {
		select {
		case err = <-ended:
			running = false
		case <-time.After(300 * time.Millisecond):
			if kills < 4 && strings.Contains(out.String(), "page:home ") {
				if kills == 1 {
					s.pauseUntilGivenUp(t)
				}
				s.kill()
				s.start("--port", port)
				kills++
			}
		}
	}
	if err != nil || kills == 0 {
		t.Errorf("the example ended with %v after %d kills of the server:\n%s", err, kills, tail(out.String(), 1000))
	}
	s.dial().want(strconv.Quote(strconv.Itoa(n)), "GET", "page:home")
	for i := 1; i <= n; i++ {
		if !strings.Contains(out.String(), fmt.Sprintf("page:home %d\n", i)) {
			t.Fatalf("no increment was answered %d", i)
		}
	}
	select {
	case err := <-gaveUp:
		if err == nil {
			t.Error("the example was content with a silent server")
		}
	case <-time.After(2 * patience): // the example's own is half a minute, too
		t.Error("the example waits for a silent server for ever")
	}
}
