package integration

import (
	"context"
	"os"
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
	if steps := playConsole(t, startServer(t), "../README.md"); steps < 15 {
		t.Errorf("the tour has only %d steps: were the README's blocks found?", steps)
	}
}

// isOption holds the words that stand in the README as commands do, but are errors or
// options.
var isOption = map[string]bool{"WINDOW": true, "MODE": true, "ERROR": true, "CAPACITY": true, "PAST": true,
	"MAXMEMORY": true, "MAXDISK": true, "OVERLOAD": true, "IDTIME": true, "SKEW": true, "BITS": true, "AT": true, "MISMATCH": true, "STALE": true, "OOM": true}

// TestReadmeIsComplete expects every command of the running server in the
// README, and no command or setting that it does not have.
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
	_, section, _ = strings.Cut(text, "\n## Settings\n")
	section, _, _ = strings.Cut(section, "\n## ")
	settings, err := c.ConfigGet(context.Background(), "*").Result()
	if err != nil || len(settings) < 15 {
		t.Fatalf("CONFIG GET *: %d settings, %v", len(settings), err)
	}
	for _, m := range regexp.MustCompile("`([a-z][a-z-]+)`").FindAllStringSubmatch(section, -1) {
		if _, known := settings[m[1]]; !known {
			t.Errorf("the README mentions the setting %s, which the server does not know", m[1])
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
	limits, err := os.ReadFile("../docs/guide/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile("`(Test[A-Za-z]+)`").FindAllStringSubmatch(readme(t)+string(limits), -1) {
		if !strings.Contains(sources.String(), "func "+name[1]+"(") {
			t.Errorf("the README refers to %s, which does not exist", name[1])
		}
	}
}
