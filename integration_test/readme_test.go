package integration

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// readme returns the text of README.md.
func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// unixTime is what differs from run to run in the tour's outputs.
var unixTime = regexp.MustCompile(`\b1\d{12}\b`)

// TestTour runs the commands of the README's console blocks, one after the
// other in a shell, and compares what they print with what the README says.
func TestTour(t *testing.T) {
	t.Parallel()
	requireProgram(t, "redis-cli", "install Debian's package redis-tools")
	redisCLI, err := exec.LookPath("redis-cli")
	if err != nil {
		t.Fatal(err)
	}
	s := startServer(t)
	// The tour's server is on port 6379. Ours is elsewhere, so its redis-cli
	// is one that knows where; it prints as on a terminal.
	bin := t.TempDir()
	port := s.port()
	script := "#!/bin/sh\nexec " + redisCLI + " --no-raw -p " + port + " \"$@\"\n"
	if err := os.WriteFile(filepath.Join(bin, "redis-cli"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	steps := 0
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(readme(t), -1) {
		for _, part := range strings.Split("\n"+block[1], "\n$ ")[1:] {
			command, want, _ := strings.Cut(part, "\n")
			steps++
			if strings.HasPrefix(command, "go run ./cmd/fbfkv") {
				<-s.done
				s.start("--port", port)
				continue
			}
			cmd := exec.Command("bash", "-c", command)
			cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
			out, _ := cmd.CombinedOutput() // errors are part of the tour
			got := strings.ReplaceAll(string(out), ":"+port+":", ":6379:")
			got, want = unixTime.ReplaceAllString(got, "<ms>"), unixTime.ReplaceAllString(want, "<ms>")
			if strings.TrimSpace(got) != strings.TrimSpace(want) {
				t.Errorf("$ %s\nprints\n%s\nbut the README says\n%s", command, got, want)
			}
		}
	}
	if steps < 15 {
		t.Errorf("the tour has only %d steps: were the README's blocks found?", steps)
	}
}

// isOption holds the words that stand in the README as commands do, but are errors or
// options.
var isOption = map[string]bool{"WINDOW": true, "MODE": true, "ERROR": true, "CAPACITY": true, "PAST": true,
	"MAXMEMORY": true, "MAXDISK": true, "OVERLOAD": true, "IDTIME": true, "SKEW": true, "BITS": true, "AT": true, "MISMATCH": true, "STALE": true, "OOM": true}

// TestReadmeIsComplete expects every command and every setting of the running
// server in the README, and every error of its table among those that the
// dialogues provoke.
func TestReadmeIsComplete(t *testing.T) {
	t.Parallel()
	text := readme(t)
	s := startServer(t)
	c := s.client()
	commands, err := c.CommandList(context.Background(), nil).Result()
	if err != nil || len(commands) < 50 {
		t.Fatalf("COMMAND LIST: %d commands, %v", len(commands), err)
	}
	for _, name := range commands {
		name = strings.ToUpper(name)
		if !regexp.MustCompile("`" + regexp.QuoteMeta(name) + "[` ]").MatchString(text) {
			t.Errorf("the README does not mention the command %s", name)
		}
	}
	_, section, _ := strings.Cut(text, "\n## Commands\n")
	section, _, _ = strings.Cut(section, "\nNot there on purpose")
	for _, m := range regexp.MustCompile("`([A-Z]+(\\.[A-Z]+)?)[` ]").FindAllStringSubmatch(section, -1) {
		if name := strings.ToLower(m[1]); !slices.Contains(commands, name) && !isOption[m[1]] {
			t.Errorf("the README mentions %s, which the server does not know", m[1])
		}
	}
	settings, err := c.ConfigGet(context.Background(), "*").Result()
	if err != nil || len(settings) < 15 {
		t.Fatalf("CONFIG GET *: %d settings, %v", len(settings), err)
	}
	for name := range settings {
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("the README does not mention the setting %s", name)
		}
	}
	for _, words := range []string{"go run ./cmd/fbfkv\n", "go test ./...\n"} {
		if !strings.Contains(text, "```sh\n"+words+"```") {
			t.Errorf("the README does not say how to run or test: %q", words)
		}
	}
}

// TestReadmeNamesTests expects that every test the README refers to exists.
func TestReadmeNamesTests(t *testing.T) {
	t.Parallel()
	var sources strings.Builder
	files, _ := filepath.Glob("*_test.go")
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		sources.Write(b)
	}
	for _, name := range regexp.MustCompile("`(Test[A-Za-z]+)`").FindAllStringSubmatch(readme(t), -1) {
		if !strings.Contains(sources.String(), "func "+name[1]+"(") {
			t.Errorf("the README refers to %s, which does not exist", name[1])
		}
	}
}

// TestReadmeShowsTheExamples expects the README's excerpts in the programs that
// the tests run.
func TestReadmeShowsTheExamples(t *testing.T) {
	t.Parallel()
	text := readme(t)
	for language, file := range map[string]string{"go": "../examples/go/main.go", "js": "../examples/node/increment.js"} {
		program, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		blocks := regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(text, -1)
		if len(blocks) != 1 {
			t.Fatalf("the README has %d excerpts in %s", len(blocks), language)
		}
		if !strings.Contains(string(program), blocks[0][1]) {
			t.Errorf("the README's excerpt is not in %s", file)
		}
	}
}
