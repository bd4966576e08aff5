package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestListFollowsTheCode: the text of each mutant occurs exactly once, so that none of
// them waits to be run before somebody learns that the code has moved.
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
	}
}

// TestRunOfNone: a name that no mutant has is an error, and no success.
func TestRunOfNone(t *testing.T) {
	if err := run("no mutant is named so", time.Second); err == nil || !strings.Contains(err.Error(), "no mutant") {
		t.Errorf("got %v", err)
	}
}
