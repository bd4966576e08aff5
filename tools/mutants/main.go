package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/fbfkv/fbfkv/tools/process"
)

func main() {
	match := flag.String("run", "", "only mutants whose name matches this regular expression")
	files := flag.String("files", "", "only mutants of files whose path matches this regular expression")
	seeds := flag.Duration("seeds", 0, "instead of the tests named for it, each mutant meets simulated "+
		"worlds until they have taken so much CPU time")
	some := flag.Int("sample", 0, "with -seeds: only so many mutants, at random; 0: all")
	limit := flag.Duration("timeout", 2*time.Minute, "time that the tests of one mutant may take")
	find := flag.Bool("check", false, "only say which texts do not occur exactly once in their files")
	move := flag.Bool("move", false, "with -check: name the file that has the text now in the list")
	flag.Parse()
	all, err := parse(list)
	switch {
	case err != nil:
	case *find:
		err = check(all, *move)
	default:
		err = run(all, *match, *files, *limit, *seeds, *some)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// run tries the mutants whose name and file match: with their tests, or with simulated worlds for some time.
func run(mutants []mutant, match, files string, limit, seeds time.Duration, some int) (err error) {
	defer process.Catch(&err)
	wanted, within := process.Must(regexp.Compile(match)), process.Must(regexp.Compile(files))
	dir := process.Must(os.MkdirTemp("", "mutants"))
	defer os.RemoveAll(dir)
	copyTree(productRoot(), dir)
	if seeds > 0 {
		return meetSeeds(sample(mutants, wanted, within, some), dir, seeds)
	}
	sound := make(map[string]bool)
	table := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	bad, all := 0, 0
	for _, m := range mutants {
		if !wanted.MatchString(m.name) || !within.MatchString(m.file) {
			continue
		}
		if !sound[m.command()] {
			out, err := m.test(dir, limit)
			if err != nil {
				return fmt.Errorf("the tests fail without a mutant, too (%s): %w\n%s", m.command(), err, out)
			}
			sound[m.command()] = true
		}
		verdict := m.mutated(dir, func() string { return m.judge(dir, limit) })
		if all++; !strings.HasPrefix(verdict, "caught") {
			bad++
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", m.guarantee, m.name, verdict)
		table.Flush()
	}
	switch {
	case all == 0:
		return fmt.Errorf("no mutant has a name that matches %q", match)
	case bad > 0:
		return fmt.Errorf("%d of %d mutants are not caught", bad, all)
	}
	fmt.Printf("all %d mutants are caught\n", all)
	return nil
}

// productRoot finds the module whose tests are tried, from that of this command.
func productRoot() string {
	out := process.Must(exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/fbfkv/fbfkv").Output())
	return strings.TrimSpace(string(out))
}

// walk calls f for what the tests need: Go files, go.mod, go.sum, assembly, testdata, the status page, scripts.
func walk(root string, f func(rel string)) {
	process.Check(fs.WalkDir(os.DirFS(root), ".", func(rel string, d fs.DirEntry, err error) error {
		process.Check(err)
		if d.IsDir() {
			if name := d.Name(); name != "." && strings.HasPrefix(name, ".") || rel == "docs" ||
				rel == "tools" || name == "node_modules" {
				return fs.SkipDir
			}
			return nil
		}
		switch filepath.Ext(rel) {
		case ".go", ".mod", ".sum", ".s", ".html", ".css", ".js", ".jsonl":
			f(rel)
		default:
			if strings.Contains(rel, "testdata") {
				f(rel)
			}
		}
		return nil
	}))
}

// copyTree copies what the tests need.
func copyTree(from, to string) {
	walk(from, func(rel string) {
		process.Check(os.MkdirAll(filepath.Join(to, filepath.Dir(rel)), 0o755))
		process.Check(os.WriteFile(filepath.Join(to, rel), process.Must(os.ReadFile(filepath.Join(from, rel))), 0o644))
	})
}

// mutated makes the edit in dir, does something with it and takes the edit back.
func (m mutant) mutated(dir string, do func() string) string {
	path := filepath.Join(dir, m.file)
	whole, err := os.ReadFile(path)
	if err != nil {
		return "ERROR: " + err.Error()
	}
	edited, err := m.edit(string(whole))
	if err != nil {
		return "ERROR: " + err.Error()
	}
	if err := os.WriteFile(path, []byte(edited), 0o644); err != nil {
		return "ERROR: " + err.Error()
	}
	defer os.WriteFile(path, whole, 0o644)
	return do()
}

// judge runs the tests of the mutant that dir has.
func (m mutant) judge(dir string, limit time.Duration) string {
	began := time.Now()
	out, err := m.test(dir, limit)
	took := time.Since(began).Round(time.Second)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return fmt.Sprintf("SURVIVED (%v)", took)
	case !errors.As(err, &exit):
		return "ERROR: " + err.Error()
	case bytes.Contains(out, []byte("[build failed]")) || bytes.Contains(out, []byte("[setup failed]")):
		return "ERROR: it does not compile\n" + string(out)
	}
	return fmt.Sprintf("caught by %s (%v)", failed(out), took)
}

// command tells the mutant's tests from those of others.
func (m mutant) command() string { return m.packages + " " + m.tests + " " + m.args }

// test runs the mutant's tests. The limit is theirs: who compiles for longer on a busy machine has
// caught nothing.
func (m mutant) test(dir string, limit time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit+compileTime)
	defer cancel()
	args := []string{"test", "-count=1", "-failfast", "-timeout", limit.String(), "-run", m.tests}
	args = append(args, strings.Fields(m.packages)...)
	args = append(args, strings.Fields(m.args)...)
	c := exec.CommandContext(ctx, "go", args...)
	c.Dir, c.WaitDelay = dir, time.Second
	out, err := c.CombinedOutput()
	if ctx.Err() != nil {
		return out, ctx.Err()
	}
	return out, err
}

// compileTime bounds how long one mutant's tests may take to compile and to end.
const compileTime = 15 * time.Minute

var failure = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)|^(panic: .*|fatal error: .*)`)

// failed names the first test that failed, or the panic that ended it.
func failed(out []byte) string {
	name := "its exit status"
	for _, f := range failure.FindAllSubmatch(out, -1) {
		switch {
		case len(f[1]) > 0:
			name = string(f[1])
		case name == "its exit status":
			name = string(f[2])
		}
	}
	return name
}
