package bench

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestDiskUse adds up files by part, and several looks at them.
func TestDiskUse(t *testing.T) {
	dir := t.TempDir()
	for path, size := range map[string]int{"log/a": 10, "log/deep/b": 5, "runs/c": 20, "snapshots/d": 3, "db/e": 7, "tmp/f": 1, "META": 2} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, make([]byte, size), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	parts, err := filesOf(dir)
	if err != nil || !slices.Equal(parts, []float64{15, 20, 3, 10}) {
		t.Fatalf("%v, %v", parts, err)
	}
	var d diskUse
	d.add(parts)
	d.add([]float64{25, 30, 3, 10})
	if d.samples != 2 || d.least != 48 || d.most != 68 || d.total() != 58 || d.parts[1] != 25 {
		t.Errorf("%+v", d)
	}
}
