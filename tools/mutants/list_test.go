package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
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
	if err := run("no mutant is named so", time.Second); err == nil || !strings.Contains(err.Error(), "no mutant") {
		t.Errorf("got %v", err)
	}
}
