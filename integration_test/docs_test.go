package integration

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var updateReference = flag.Bool("reference.update", false, "write COMMANDS.md and SETTINGS.md anew")

// TestReferenceIsFresh expects the reference pages to be what the tables of the code say.
func TestReferenceIsFresh(t *testing.T) {
	t.Parallel()
	for page, want := range map[string]string{"COMMANDS.md": commandsPage(), "SETTINGS.md": settingsPage()} {
		page = "../docs/" + page
		if *updateReference {
			if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s is stale: run make docs", page)
		}
	}
}

// TestGuides runs the console blocks of the README and of every guide, one page after
// the other on the same server, as a reader may, and compares what they print with
// what the page says. No page leaves a counter, a table or a user behind.
func TestGuides(t *testing.T) {
	t.Parallel()
	requireProgram(t, "redis-cli", "install Debian's package redis-tools")
	s := startServer(t, "--backup-dir", "")
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

// pages returns the text of every document of the repository, by its path from here.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == ".git"):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		all[path] = string(text)
		return err
	})
	if err != nil || len(all) < 15 {
		t.Fatalf("%d pages, %v", len(all), err)
	}
	return all
}

// TestTour runs the commands of the README's console blocks, one after the
// other in a shell, and compares what they print with what the README says.
func TestTour(t *testing.T) {
	t.Parallel()
	requireProgram(t, "redis-cli", "install Debian's package redis-tools")
	if steps := playConsole(t, startServer(t), "../README.md"); steps < 15 {
		t.Errorf("the tour has only %d steps: were the README's blocks found?", steps)
	}
}

// unixTime is what differs from run to run in the tour's outputs.
var unixTime = regexp.MustCompile(`\b1\d{12}\b`)

// shortID is how a cluster's id is shown, which is drawn.
var shortID = regexp.MustCompile(`\bcluster [0-9a-f]{8}\b`)

// pageNodes are the servers that a page about clusters or regions starts, on ports 7001 to 7006.
type pageNodes struct {
	ports, shown *strings.Replacer // ours for the page's, and back
}

func newPageNodes(t *testing.T) *pageNodes {
	var ours, back []string
	first := freePorts(t, 6)
	for i := range 6 {
		page, our := fmt.Sprint(7001+i), fmt.Sprint(first+i)
		ours, back = append(ours, page, our), append(back, our, page)
	}
	return &pageNodes{ports: strings.NewReplacer(ours...), shown: strings.NewReplacer(back...)}
}

// run carries out a command of a page, and returns what it prints. One that starts servers goes on
// until the test ends, and run returns when they are ready.
func (n *pageNodes) run(t *testing.T, cmd *exec.Cmd, command string) string {
	ready := ""
	switch {
	case strings.HasPrefix(command, "fbfkv cluster local"):
		cmd.Args[2], ready = strings.TrimSuffix(cmd.Args[2],
			" >/dev/null")+" --port "+n.ports.Replace("7001"), "Ctrl-C.*\n"
	case strings.HasPrefix(command, "fbfkv --cluster-enabled"),
		strings.HasPrefix(command, "fbfkv --port 700"):
		logfile := strings.Fields(command)
		if err := os.WriteFile(filepath.Join(cmd.Dir, n.ports.Replace(logfile[len(logfile)-1])), nil,
			0o600); err != nil {
			t.Fatal(err)
		}
		cmd.Args[2], ready = strings.Split(cmd.Args[2], " --logfile")[0], "ready for clients.*\n"
	default:
		for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
			again := *cmd
			out, _ := again.CombinedOutput() // errors are part of the page
			// On a busy machine there may be an election at any time.
			if !strings.Contains(string(out), "CLUSTERDOWN The shard has no leader at the moment") ||
				time.Now().After(end) {
				return string(out)
			}
		}
	}
	s := start(t, cmd)
	if !s.log.await(regexp.MustCompile(ready), s.done) {
		t.Fatalf("%s: not ready:\n%s", command, s.log)
	}
	if strings.HasPrefix(command, "fbfkv cluster local") && !strings.HasSuffix(command, ">/dev/null") {
		return s.log.String()
	}
	return ""
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
		"fbfkv": fmt.Sprintf("case $1 in backup) shift; set -- backup 127.0.0.1:%s \"$@\";; "+
			"export|stream) set -- \"$@\" 127.0.0.1:%[1]s;; esac\nexec %s \"$@\"",
			port, program),
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"),
			0o755); err != nil {
			t.Fatal(err)
		}
	}
	dir, nodes := t.TempDir(), newPageNodes(t)
	if err := os.Symlink(s.dir+"-backups", filepath.Join(dir, "fbfkv-data-backups")); err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(string(text),
		-1) {
		for _, part := range strings.Split("\n"+block[1], "\n$ ")[1:] {
			command, want, _ := strings.Cut(part, "\n")
			steps++
			if strings.HasPrefix(command, "go run ./cmd/fbfkv") {
				s.launch("--port", port) // the page says how to wait until it is ready
				continue
			}
			cmd := exec.Command("bash", "-c", nodes.ports.Replace(command))
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
			out := nodes.run(t, cmd, command)
			got := strings.ReplaceAll(nodes.shown.Replace(out), ":"+port+":", ":6379:")
			for differs, name := range map[*regexp.Regexp]string{unixTime: "<ms>", shortID: "cluster <id>"} {
				got, want = differs.ReplaceAllString(got, name), differs.ReplaceAllString(want, name)
			}
			if strings.TrimSpace(got) != strings.TrimSpace(want) {
				t.Errorf("$ %s\nprints\n%s\nbut %s says\n%s", command, got, page, want)
			}
			if strings.HasPrefix(command, "kill -9") && !strings.Contains(command, "-p 700") {
				<-s.done // no reader is quicker than the process ends
			}
		}
	}
	return steps
}

// indent is what the lines of an excerpt need not have in common with the program.
var indent = regexp.MustCompile(`(?m)^[\t ]+`)

// TestDocsShowTheExamples expects the excerpts of programs in the README and
// the guides to be in the programs that the tests run.
func TestDocsShowTheExamples(t *testing.T) {
	t.Parallel()
	sources := map[string]string{"go": "../clients/go/example/main.go", "js": "../clients/node/example.js",
		"python": "../clients/python/example.py"}
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
				if !strings.Contains(indent.ReplaceAllString(string(source), ""),
					indent.ReplaceAllString(m[1], "")) {
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

// TestDocsLinks expects every file that a page links to, and every heading of it.
func TestDocsLinks(t *testing.T) {
	t.Parallel()
	all := pages(t)
	for page, text := range all {
		for _, m := range regexp.MustCompile(`\]\(([^)#\s]*)(#[^)]*)?\)`).FindAllStringSubmatch(text, -1) {
			target := filepath.Join(filepath.Dir(page), m[1])
			switch {
			case strings.Contains(m[1], "://"):
				continue
			case m[1] == "":
				target = page
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", page, m[1], err)
			} else if m[2] != "" && !slices.Contains(anchors(all[target]), m[2]) {
				t.Errorf("%s links to %s%s, and no heading has this name", page, m[1], m[2])
			}
		}
	}
}

// anchors returns what links to a page's headings end in, as GitHub makes it.
func anchors(text string) (all []string) {
	for _, m := range regexp.MustCompile("(?m)^#+ (.*)$").FindAllStringSubmatch(text, -1) {
		name := regexp.MustCompile("[^a-z0-9 _-]").ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, "#"+strings.ReplaceAll(name, " ", "-"))
	}
	return all
}

// TestDocsAreShort: a page that people write has at most 2,000 words, and the first
// one fewer. The references are as long as what they list.
func TestDocsAreShort(t *testing.T) {
	t.Parallel()
	reference := []string{"COMMANDS.md", "SETTINGS.md", "FORMAT.md", "CHANGELOG.md"}
	for page, text := range pages(t) {
		limit := 2000
		if page == "../README.md" {
			limit = 1700
		}
		if n := len(strings.Fields(text)); n > limit && !slices.Contains(reference, filepath.Base(page)) {
			t.Errorf("%s has %d words, more than %d", page, n, limit)
		}
	}
}

// TestDocsNameTests expects every test that a page names.
func TestDocsNameTests(t *testing.T) {
	t.Parallel()
	var sources strings.Builder
	for _, pattern := range []string{"*_test.go", "../*/*_test.go", "../*/*/*_test.go"} {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			sources.Write(source)
		}
	}
	found := 0
	for page, text := range pages(t) {
		for _, name := range regexp.MustCompile("`(Test[A-Za-z]+)`").FindAllStringSubmatch(text, -1) {
			found++
			if !strings.Contains(sources.String(), "func "+name[1]+"(") {
				t.Errorf("%s names %s, which does not exist", page, name[1])
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d tests are named: were the pages found?", found)
	}
}

// TestDocsNameMutants expects every mutant that a page names.
func TestDocsNameMutants(t *testing.T) {
	t.Parallel()
	mutants, err := os.ReadFile("../tools/mutants/mutants.txt")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for page, text := range pages(t) {
		for _, name := range regexp.MustCompile("mutant\\s+`([^`]+)`").FindAllStringSubmatch(text, -1) {
			found++
			if !strings.Contains(string(mutants), "\nmutant "+name[1]+"\n") {
				t.Errorf("%s names the mutant %s, which does not exist", page, name[1])
			}
		}
	}
	if found < 30 {
		t.Errorf("only %d mutants are named: were the pages found?", found)
	}
}

// TestReadmeSaysHow expects the README to say how to run and test, and what identifies
// an operation before that.
func TestReadmeSaysHow(t *testing.T) {
	t.Parallel()
	text := pages(t)["../README.md"]
	for _, words := range []string{"go run ./cmd/fbfkv\n", "go test ./...\n"} {
		if !strings.Contains(text, "```sh\n"+words+"```") {
			t.Errorf("the README does not say how to run or test: %q", words)
		}
	}
	first, _, _ := strings.Cut(text, "\n## ")
	if !strings.Contains(first, "An operation is identified by its key and its opid.") {
		t.Error("the README does not begin with what identifies an operation")
	}
}

// TestOperateNamesSettings expects every setting in the tables of the page on operating.
func TestOperateNamesSettings(t *testing.T) {
	t.Parallel()
	settings, err := startServer(t).client().ConfigGet(context.Background(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| (`.*?) \\|").FindAllStringSubmatch(pages(t)["../docs/guide/operate.md"], -1)
	found := 0
	for _, row := range rows {
		for _, m := range regexp.MustCompile("`([a-z-]+)`").FindAllStringSubmatch(row[1], -1) {
			found++
			if _, known := settings[m[1]]; !known && m[1] != "always" && m[1] != "everysec" && m[1] != "no" {
				t.Errorf("the guide mentions the setting %s, which the server does not know", m[1])
			}
		}
	}
	if found < 15 {
		t.Errorf("only %d settings: was the table found?", found)
	}
}

// TestReliabilityIsTrue expects what docs/RELIABILITY.md says of continuous integration
// in .ci/run, and no figure that nobody keeps up: how many mutants there are is what
// their command prints.
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
	if counted := regexp.MustCompile(`(?i)[0-9]+ (mutants|edits)`).Find(page); counted != nil {
		t.Errorf("the page counts by hand: %q", counted)
	}
}

// TestErrorGuide expects every kind of error that the dialogues provoke in the guide,
// and those that take a broken disk or a full memory.
func TestErrorGuide(t *testing.T) {
	t.Parallel()
	codes := map[string]bool{"OOM": true, "MISCONF": true, "LOADING": true, "NOAUTH": true, "WRONGPASS": true,
		"NOPERM": true}
	dialogues, _ := filepath.Glob("testdata/*.dialogue")
	for _, dialogue := range dialogues {
		text, err := os.ReadFile(dialogue)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("(?m)^-([A-Z]+) ").FindAllStringSubmatch(string(text), -1) {
			codes[m[1]] = true
		}
	}
	if delete(codes, "NOPROTO"); len(codes) < 8 { // HELLO alone
		t.Errorf("only %d kinds of errors: were the dialogues found?", len(codes))
	}
	guide := pages(t)["../docs/guide/errors.md"]
	for code := range codes {
		if !strings.Contains(guide, "`"+code+" ") {
			t.Errorf("the guide to errors does not mention %s", code)
		}
	}
}
