package main

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"
)

// mutants returns the list.
func mutants(t *testing.T) []mutant {
	t.Helper()
	all, err := parse(list)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestParse: what a list says, and what is wrong with one.
func TestParse(t *testing.T) {
	const head = "mutant G1: a name: with more\nfile: a.go\npackages: ./a ./b\ntests: TestA|TestB\n"
	all, err := parse("# A comment.\n\n" + head + "args: -x=1\n before\n-old\n-\n+new\n after\n\n" +
		"# Another.\n" + head + "-x\n")
	want := mutant{name: "a name: with more", guarantee: "G1", file: "a.go", packages: "./a ./b",
		tests: "TestA|TestB", args: "-x=1", old: "before\nold\n\nafter\n", new: "before\nnew\nafter\n", at: 3}
	if err != nil || len(all) != 2 || all[0] != want ||
		all[1].old != "x\n" || all[1].new != "" || all[1].at != 15 {
		t.Errorf("%+v, %v", all, err)
	}
	for text, want := range map[string]string{
		"-x\n":                                  "mutants.txt:1: a mutant begins with",
		"\nmutant G1\n":                         "mutants.txt:2: a mutant begins with",
		"mutant G1: \n":                         "mutants.txt:1: a mutant begins with",
		"mutant G1: n\n":                        `mutants.txt:1: here must be "file: "`,
		"mutant G1: n\nfile: \n":                `mutants.txt:2: here must be "file: "`,
		"mutant G1: n\nfile: a\ntests: T\n-x\n": `mutants.txt:3: here must be "packages: "`,
		head + "args:  \n-x\n":                  `mutants.txt:5: here must be "args: "`,
		head:                                    "mutants.txt:4: no line tells",
		head + "+x\n":                           "mutants.txt:5: no line tells",
		head + " x\n":                           "mutants.txt:5: the edit changes nothing",
		head + "-x\n+x\n":                       "mutants.txt:6: the edit changes nothing",
		head + "-x\nx\n":                        "mutants.txt:6: a line of an edit",
		head + "-x\n\n+y\n":                     "mutants.txt:7: a mutant begins with",
		head + "-x\n" + head:                    "mutants.txt:6: a line of an edit",
		head + "-x\n# a comment within\n":       "mutants.txt:6: a line of an edit",
		"# a\n" + head + "tests: again\n-x\n":   "mutants.txt:6: a line of an edit",
	} {
		if _, err := parse(text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestEdit finds whole lines only, each of them.
func TestEdit(t *testing.T) {
	m := mutant{file: "a.go", old: "a\n", new: "b\n"}
	for text, want := range map[string]string{
		"a\n": "b\n", "aa\na\nba\n": "aa\nb\nba\n", "a\na\n": "", "aa\n": "", "": "",
	} {
		if got, err := m.edit(text); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

// TestListFollowsTheCode: the text of each mutant occurs exactly once, and each test that
// is to catch it exists, so that nobody has to run them all to learn that code has moved.
func TestListFollowsTheCode(t *testing.T) {
	root := productRoot()
	seen := make(map[string]bool)
	for _, m := range mutants(t) {
		if seen[m.name] {
			t.Errorf("two mutants are named %q", m.name)
		}
		seen[m.name] = true
		whole, err := os.ReadFile(filepath.Join(root, m.file))
		if err == nil {
			_, err = m.edit(string(whole))
		}
		if err != nil {
			t.Errorf("mutants.txt:%d: %s: %v", m.at, m.name, err)
		}
		tests := testsOf(t, root, m.packages)
		for name := range strings.SplitSeq(m.tests, "|") {
			top, _, _ := strings.Cut(name, "/")
			if !regexp.MustCompile("(?m)" + top).MatchString(tests) {
				t.Errorf("%s: there is no test %s in %s", m.name, name, m.packages)
			}
		}
	}
}

// testsOf lists the tests of packages.
func testsOf(t *testing.T, root, packages string) string {
	var names strings.Builder
	for dir := range strings.FieldsSeq(packages) {
		files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", dir, err)
		}
		for _, file := range files {
			whole, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range testFunc.FindAllSubmatch(whole, -1) {
				names.Write(append(f[1], '\n'))
			}
		}
	}
	return names.String()
}

var testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)

// TestRunOfNone: a name that no mutant has is an error, and no success.
func TestRunOfNone(t *testing.T) {
	err := run(mutants(t), "no mutant is named so", "", time.Second, 0, 0)
	if err == nil || !strings.Contains(err.Error(), "no mutant") {
		t.Errorf("got %v", err)
	}
}

// TestMutantsCompile: each mutant in Go is a program, else no test has a chance to catch it.
func TestMutantsCompile(t *testing.T) {
	root := productRoot()
	type goPackage struct {
		ImportPath, Export, Dir string
		GoFiles                 []string
	}
	exports, packages := make(map[string]string), make(map[string]goPackage) // by import path, by directory
	for _, module := range []string{root, filepath.Join(root, "clients", "go"),
		filepath.Join(root, "clients", "go", "limiter")} {
		c := exec.Command("go", "list", "-deps", "-export", "-json=ImportPath,Export,Dir,GoFiles", "./...")
		c.Dir, c.Stderr = module, os.Stderr
		out, err := c.Output()
		if err != nil {
			t.Fatal(err)
		}
		for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
			var p goPackage
			if err := d.Decode(&p); err != nil {
				t.Fatal(err)
			}
			exports[p.ImportPath], packages[p.Dir] = p.Export, p
		}
	}
	files := token.NewFileSet()
	imports := importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	for _, m := range mutants(t) {
		if filepath.Ext(m.file) != ".go" {
			continue
		}
		path := filepath.Join(root, m.file)
		p := packages[filepath.Dir(path)]
		var all []*ast.File
		for _, name := range p.GoFiles {
			source, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if name == filepath.Base(path) {
				edited, err := m.edit(string(source))
				if err != nil {
					t.Error(err)
				}
				source = []byte(edited)
			}
			f, err := parser.ParseFile(files, name, source, parser.SkipObjectResolution)
			if err != nil {
				t.Errorf("%s: %v", m.name, err)
			}
			all = append(all, f)
		}
		check := types.Config{Importer: imports, Sizes: types.SizesFor("gc", runtime.GOARCH)}
		if _, err := check.Check(p.ImportPath, files, all, nil); err != nil || len(all) == 0 {
			t.Errorf("%s: of %d files: %v", m.name, len(all), err)
		}
	}
}
