package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMutantsApply holds that the text that each mutant replaces is in its file, once,
// and that no two have the same name.
func TestMutantsApply(t *testing.T) {
	root, err := productRoot()
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]bool)
	for _, m := range mutants {
		if names[m.name] {
			t.Errorf("two mutants are named %q", m.name)
		}
		names[m.name] = true
		b, err := os.ReadFile(filepath.Join(root, m.file))
		if err != nil {
			t.Errorf("%s: %v", m.name, err)
		} else if n := strings.Count(string(b), m.old); n != 1 {
			t.Errorf("%s: %s has %d times\n%s", m.name, m.file, n, m.old)
		}
	}
	t.Log(len(mutants), "mutants")
}
