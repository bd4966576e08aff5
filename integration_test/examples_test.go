package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestExamples runs the examples of the packages for applications, those that the
// documents show, while the server is killed and started again. It stays on its port, as
// it would in earnest. Every increment that they report counts once.
func TestExamples(t *testing.T) {
	t.Parallel()
	for name, example := range map[string]struct {
		command func(t *testing.T) []string
		options func(address string, n int) []string
	}{
		"Go": {buildGoClient("../clients/go", "example"), func(address string, n int) []string {
			return []string{"-addr", address, "-key", "page:home", "-n", strconv.Itoa(n)}
		}},
		"Node": {installedNodeExample, func(address string, n int) []string {
			return []string{"redis://" + address, "page:home", strconv.Itoa(n)}
		}},
		"Python": {pythonScript("../clients/python/example.py"), func(address string, n int) []string {
			return []string{address, "page:home", strconv.Itoa(n)}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command := example.command(t)
			s := startServer(t)
			const n = 500
			cmd := exec.Command(command[0], append(command[1:], example.options(s.address(), n)...)...)
			runExample(t, s, cmd, n)
		})
	}
}

// TestClientReadmes runs the first program in the README of each client package.
func TestClientReadmes(t *testing.T) {
	t.Parallel()
	for directory, run := range map[string]func(t *testing.T, program string) *exec.Cmd{
		"go": func(t *testing.T, program string) *exec.Cmd {
			binary := filepath.Join(t.TempDir(), "program")
			if out, err := exec.Command("go", "build", "-C", "../clients/go", "-o", binary,
				program).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			return exec.Command(binary)
		},
		"node": func(t *testing.T, program string) *exec.Cmd {
			example := installedNodeExample(t)[1]
			if err := os.Rename(program, example); err != nil {
				t.Fatal(err)
			}
			return exec.Command("node", example)
		},
		"python": python,
	} {
		t.Run(directory, func(t *testing.T) {
			t.Parallel()
			readme, err := os.ReadFile(filepath.Join("../clients", directory, "README.md"))
			if err != nil {
				t.Fatal(err)
			}
			source := regexp.MustCompile("(?s)```(?:go|js|python)\n(.*?)```").FindStringSubmatch(string(readme))
			if source == nil {
				t.Fatal("the README has no program")
			}
			s := startServer(t)
			text := strings.NewReplacer("127.0.0.1:6379", s.address(), "6379", s.port()).Replace(source[1])
			program := filepath.Join(t.TempDir(), "program.go")
			if err := os.WriteFile(program, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := run(t, program).CombinedOutput(); err != nil ||
				!strings.HasPrefix(string(out), "1") {
				t.Errorf("%v\n%s", err, out)
			}
			s.dial().want(`"1"`, "GET", "page:home")
		})
	}
}

// python runs a program with the Python package.
func python(t *testing.T, program string) *exec.Cmd {
	command := pythonScript(program)(t)
	packages, err := filepath.Abs("../clients/python")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+packages)
	return cmd
}

// runExample runs a program that increments page:home n times and prints each answer.
func runExample(t *testing.T, s *server, cmd *exec.Cmd, n int) {
	port := s.port()
	out := newLogBuffer()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	defer func() { // also if the test has failed
		cmd.Process.Kill()
		<-ended
	}()
	for i := 1; i <= 3; i++ {
		if !out.await(regexp.MustCompile(fmt.Sprintf(`(?m)^page:home %d$`, i*n/4)), ended) {
			t.Fatalf("the example does not go on:\n%s", tail(out.String(), 1000))
		}
		s.kill()
		s.start("--port", port)
	}
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("the example does not end")
	}
	if !cmd.ProcessState.Success() {
		t.Errorf("the example ended with %v:\n%s", cmd.ProcessState, tail(out.String(), 1000))
	}
	s.dial().want(strconv.Quote(strconv.Itoa(n)), "GET", "page:home")
	for i := 1; i <= n; i++ {
		if !strings.Contains(out.String(), fmt.Sprintf("page:home %d\n", i)) {
			t.Fatalf("no increment was answered %d", i)
		}
	}
}

// installedNodeExample puts the files of the Node package where its libraries are found,
// as npm install would.
func installedNodeExample(t *testing.T) []string {
	library := nodeScript("driver.js")(t)[1]
	modules, err := filepath.Abs(filepath.Join(filepath.Dir(library), "node_modules"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../clients/node")); err != nil {
		t.Fatal(err)
	}
	os.RemoveAll(filepath.Join(dir, "node_modules")) // of somebody who works on it
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	return []string{"node", filepath.Join(dir, "example.js")}
}
