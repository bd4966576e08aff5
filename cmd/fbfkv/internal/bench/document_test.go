package bench

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWriteInto replaces a document's table and nothing else.
func TestWriteInto(t *testing.T) {
	file := filepath.Join(t.TempDir(), "doc.md")
	const text = "# Before\n\n" + tableBegin + "old\n" + tableEnd + "\n\nAfter.\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	tab := &table{into: file, fbfkv: "/no/such/program", redis: "/no/such/program", rounds: 3, seconds: 1.5}
	rows := []Row{atLeast("lua-1", "first", 1.1, Ratio{Ratio: 1.25, Lowest: 1, Most: 2}, "note"), atMost("p99", "second", 1, Ratio{Ratio: 3}, "")}
	for range 2 {
		if err := tab.writeInto(t.Context(), rows); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got := string(b)
	for _, want := range []string{"# Before\n\n" + tableBegin, "| `lua-1` | first | 1.25 | 1.00 to 2.00 | at least 1.1 | yes | note |\n",
		"| at most 1 | **no** |", tableEnd + "\n\nAfter.\n", "3 rounds of 1.5 s"} {
		if strings.Count(got, want) != 1 {
			t.Errorf("%q is not once in:\n%s", want, got)
		}
	}
	if strings.Contains(got, "old") {
		t.Error("the old table is still there")
	}
	if err := os.WriteFile(file, []byte("no marks"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := tab.writeInto(t.Context(), rows); err == nil {
		t.Error("a document without marks was changed")
	}
}
