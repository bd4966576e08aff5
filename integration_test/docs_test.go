package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestReferenceIsFresh expects the reference pages to be what the program
// prints of its tables.
func TestReferenceIsFresh(t *testing.T) {
	t.Parallel()
	for page, name := range map[string]string{"COMMANDS.md": "commands", "SETTINGS.md": "settings"} {
		want, err := exec.Command(program, "docs", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile("../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("docs/%s is stale: run make docs", page)
		}
	}
}

// TestGuides runs the console blocks of the README and of every guide, one page after
// the other on the same server, as a reader may, and compares what they print with
// what the page says. No page leaves a counter, a table or a user behind.
func TestGuides(t *testing.T) {
	t.Parallel()
	requireProgram(t, "redis-cli", "install Debian's package redis-tools")
	s := startServer(t)
	for _, page := range append([]string{"../README.md"}, guides(t)...) {
		t.Run(filepath.Base(page), func(t *testing.T) {
			playConsole(t, s, page)
			c := s.dial()
			c.want(":0", "DBSIZE")
			c.want(`["default" ""]`, "CTABLE", "LIST")
			c.want(`["default"]`, "ACL", "USERS")
		})
	}
}

// guides lists the pages.
func guides(t *testing.T) []string {
	pages, err := filepath.Glob("../docs/guide/*.md")
	if err != nil || len(pages) < 8 {
		t.Fatalf("%d guides, %v", len(pages), err)
	}
	return pages
}

// playConsole runs the console blocks of a page in a shell, one command after
// the other, and returns how many there were. The page's server is on port
// 6379. Ours is elsewhere, so the programs that it calls are ones that know
// where; redis-cli prints as on a terminal. A line `go run ./cmd/fbfkv` starts
// the server again.
func playConsole(t *testing.T, s *server, page string) (steps int) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	redisCLI, err := exec.LookPath("redis-cli")
	if err != nil {
		t.Fatal(err)
	}
	bin, port := t.TempDir(), s.port()
	for name, script := range map[string]string{
		"redis-cli": fmt.Sprintf("exec %s --no-raw -p %s \"$@\"", redisCLI, port),
		"fbfkv": fmt.Sprintf("[ $1 = backup ] && set -- \"$@\" --port %s\nexec %s \"$@\"",
			port, program),
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		for _, part := range strings.Split("\n"+block[1], "\n$ ")[1:] {
			command, want, _ := strings.Cut(part, "\n")
			steps++
			if strings.HasPrefix(command, "go run ./cmd/fbfkv") {
				s.launch("--port", port) // the page says how to wait until it is ready
				continue
			}
			cmd := exec.Command("bash", "-c", command)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
			out, _ := cmd.CombinedOutput() // errors are part of the page
			got := strings.ReplaceAll(string(out), ":"+port+":", ":6379:")
			got, want = unixTime.ReplaceAllString(got, "<ms>"), unixTime.ReplaceAllString(want, "<ms>")
			if strings.TrimSpace(got) != strings.TrimSpace(want) {
				t.Errorf("$ %s\nprints\n%s\nbut %s says\n%s", command, got, page, want)
			}
			if strings.HasPrefix(command, "kill -9") {
				<-s.done // no reader is quicker than the process ends
			}
		}
	}
	return steps
}

// TestDocsShowTheExamples expects the excerpts of programs in the README and
// the guides to be in the programs that the tests run.
func TestDocsShowTheExamples(t *testing.T) {
	t.Parallel()
	sources := map[string]string{"go": "../examples/go/main.go", "js": "../examples/node/increment.js",
		"python": "../examples/python/increment.py", "bash": "../examples/migrate/copy.sh"}
	shown := map[string]int{}
	for _, page := range append(guides(t), "../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for language, file := range sources {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
				shown[language]++
				if !strings.Contains(string(source), m[1]) {
					t.Errorf("an excerpt in %s is not in %s", page, file)
				}
			}
		}
	}
	for language := range sources {
		if shown[language] == 0 {
			t.Errorf("no page shows the example in %s", language)
		}
	}
}

// TestDocsLinks expects that every file a page links to is there.
func TestDocsLinks(t *testing.T) {
	t.Parallel()
	pages := append(guides(t), "../README.md", "../CONTRIBUTING.md", "../docs/PERFORMANCE.md", "../docs/RELIABILITY.md",
		"../docs/FILTERS.md", "../docs/PAPER.md", "../tools/tried.md")
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\]\(([^)#]*)(#[^)]*)?\)`).FindAllStringSubmatch(string(text), -1) {
			target := m[1]
			if target == "" || strings.Contains(target, "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), target)); err != nil {
				t.Errorf("%s links to %s: %v", page, target, err)
			}
		}
	}
}

// TestReliabilityIsTrue expects what docs/RELIABILITY.md says of continuous integration
// in .ci/run, every test that it names in the sources, and no figure that nobody keeps
// up: how many mutants there are is what their command prints.
func TestReliabilityIsTrue(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/RELIABILITY.md")
	if err != nil {
		t.Fatal(err)
	}
	ci, err := os.ReadFile("../.ci/run")
	if err != nil {
		t.Fatal(err)
	}
	_, said, _ := strings.Cut(string(page), "```sh\n")
	said, _, _ = strings.Cut(said, "```")
	if strings.Count(said, "\n") < 2 {
		t.Errorf("the page does not say what continuous integration runs: %q", said)
	}
	for line := range strings.Lines(said) {
		if !strings.Contains(string(ci), "\n"+line) {
			t.Errorf(".ci/run does not have the line %q", line)
		}
	}
	var sources strings.Builder
	for _, pattern := range []string{"*_test.go", "../store/*_test.go", "../tools/bench/*_test.go"} {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			sources.Write(source)
		}
	}
	for _, name := range regexp.MustCompile("`(Test[A-Za-z]+)`").FindAllStringSubmatch(string(page), -1) {
		if !strings.Contains(sources.String(), "func "+name[1]+"(") {
			t.Errorf("the page names %s, which does not exist", name[1])
		}
	}
	if counted := regexp.MustCompile(`(?i)[0-9]+ (mutants|edits)`).Find(page); counted != nil {
		t.Errorf("the page counts by hand: %q", counted)
	}
}

// TestErrorGuide expects the errors of the guide's table in the README's too,
// whose dialogues provoke them.
func TestErrorGuide(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../docs/guide/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(readme(t), "\n## When an error comes back\n")
	table, _, _ = strings.Cut(table, "\n## ")
	rows := regexp.MustCompile("(?m)^\\| (.*?) \\|").FindAllStringSubmatch(table, -1)
	for _, row := range rows {
		for _, name := range regexp.MustCompile("`([A-Z][^`…]*)").FindAllStringSubmatch(row[1], -1) {
			if !strings.Contains(string(guide), strings.TrimSpace(name[1])) {
				t.Errorf("the guide to errors does not mention %q", name[1])
			}
		}
	}
}

// TestMigrate copies counters from a real Redis with the example's script,
// twice, as after a copy that broke off.
func TestMigrate(t *testing.T) {
	t.Parallel()
	requireProgram(t, "redis-cli", "install Debian's package redis-tools")
	redis := newSide(t, "Redis", startRedis(t, "--save", ""), "2")
	for i := range 20 {
		redis.ask("", frame("SET", fmt.Sprintf("page:%d", i), fmt.Sprint(i*1000)))
	}
	redis.ask("", frame("SET", "other", "5"))
	s := startServer(t)
	c := s.dial()
	c.want(":7", "CINCRBY", "page:3", "op-1", "7")
	_, from, _ := strings.Cut(redis.addr, ":")
	for range 2 {
		if out, err := exec.Command("../examples/migrate/copy.sh", from, s.port(), "page:*").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	c.want(":20", "DBSIZE")
	c.want(`"3007"`, "GET", "page:3")
	c.want(`"19000"`, "GET", "page:19")
}
