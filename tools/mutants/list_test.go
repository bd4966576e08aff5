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

// TestListFollowsTheCode: the text of each mutant occurs exactly once, and each test that
// is to catch it exists, so that nobody has to run them all to learn that code has moved.
func TestListFollowsTheCode(t *testing.T) {
	root, err := productRoot()
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, m := range mutants {
		if seen[m.name] {
			t.Errorf("two mutants are named %q", m.name)
		}
		seen[m.name] = true
		whole, err := os.ReadFile(filepath.Join(root, m.file))
		if n := bytes.Count(whole, []byte(m.old)); err != nil || n != 1 || m.old == m.new {
			t.Errorf("%s: its text occurs %d times in %s, %v", m.name, n, m.file, err)
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
	if err := run("no mutant is named so", "", time.Second, 0, 0); err == nil || !strings.Contains(err.Error(), "no mutant") {
		t.Errorf("got %v", err)
	}
}

// TestMutantsCompile: each mutant in Go is a program, else no test has a chance to catch it.
func TestMutantsCompile(t *testing.T) {
	root, err := productRoot()
	if err != nil {
		t.Fatal(err)
	}
	type goPackage struct {
		ImportPath, Export, Dir string
		GoFiles                 []string
	}
	exports, packages := make(map[string]string), make(map[string]goPackage) // by import path, by directory
	for _, module := range []string{root, filepath.Join(root, "clients", "go")} {
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
	for _, m := range mutants {
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
				source = bytes.Replace(source, []byte(m.old), []byte(m.new), 1)
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
