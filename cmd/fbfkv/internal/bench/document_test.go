package bench

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWriteInto replaces a document's tables and nothing else.
func TestWriteInto(t *testing.T) {
	file := filepath.Join(t.TempDir(), "doc.md")
	const goals, profiles = "<!-- table: begin -->\nold\n<!-- table: end -->\n", "<!-- table-profile: begin -->\nold too\n<!-- table-profile: end -->\n"
	if err := os.WriteFile(file, []byte("# Before\n\n"+goals+"\nBetween.\n"+profiles+"\nAfter.\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	tab := &table{into: file, fbfkv: "/no/such/program", redis: "/no/such/program", rounds: 3, seconds: 1.5}
	tab.done = []Row{atLeast("lua-1", "first", 1.1, Ratio{Ratio: 1.25, Lowest: 1, Most: 2, Steal: 0.02}, "note"), atMost("p99", "second", 1, Ratio{Ratio: 3}, ""),
		noGoal("disk-EXACT", "third", Ratio{Ratio: 80}, "")}
	tab.stage = "everysec"
	tab.keep("pipeline 16", 1, &Result{Target: "here", Workload: "lua", Throughput: 5, Steal: 0.25})
	tab.keepStart("recovery", 0, 1.5, 0)
	tab.failed = []error{errors.New("hot: broken\nand gone")}
	for _, profiles := range [][]profiled{nil, {{curve: "everysec", x: 16, throughput: 5e5}}} {
		tab.profiles = profiles
		if err := tab.write(t.Context()); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if kept := strings.Contains(string(b), "old too"); kept != (profiles == nil) {
			t.Errorf("with %d profiles, the old profiles stand: %v", len(profiles), kept)
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got := string(b)
	for _, want := range []string{"# Before\n\n<!-- table: begin -->\n", "| `lua-1` | first | 1.25 | 1.00 to 2.00 | at least 1.1 | yes | 2 % | note |\n",
		"| at most 1 | **no** | 0 % |", "| — | — | 0 % |", "<!-- table: end -->\n\nBetween.\n", "<!-- table-profile: end -->\n\nAfter.\n", "3 rounds of 1.5 s",
		"Not measured: hot: broken; and gone\n", "| everysec | 16 | 500k |"} {
		if strings.Count(got, want) != 1 {
			t.Errorf("%q is not once in:\n%s", want, got)
		}
	}
	raw, err := os.ReadFile(rawFile(file))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\neverysec,pipeline 16,here,lua,0,,2,5,", ",25\n", "\neverysec,recovery,fbfkv,,,,1,,,,,,1.5,0\n"} {
		if !strings.Contains(string(raw), want) {
			t.Errorf("%q is not in the single measurements:\n%s", want, raw)
		}
	}
	if strings.Contains(got, "old") {
		t.Error("an old table is still there")
	}
	if err := os.WriteFile(file, []byte("no marks"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := tab.write(t.Context()); err == nil {
		t.Error("a document without marks was changed")
	}
}

// TestTableFails lets every experiment fail: each is named, and the document
// keeps what was measured before.
func TestTableFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "doc.md")
	const text = "<!-- table: begin -->\nold\n<!-- table: end -->\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := runCommand(t, "table", "--fbfkv", "/no/such/program", "--redis", "true", "--into", file, "--all")
	if err == nil || !strings.Contains(out, "0 of 0 goals") {
		t.Fatalf("%v: %s", err, out)
	}
	for _, e := range experiments() {
		if !strings.Contains(err.Error(), "\n"+e.name+": ") {
			t.Errorf("%s is not named: %v", e.name, err)
		}
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != text {
		t.Errorf("%v: %s", err, b)
	}
}

// TestDocumentHasPlaces finds in docs/PERFORMANCE.md the marks of every table
// that is written there.
func TestDocumentHasPlaces(t *testing.T) {
	b, err := os.ReadFile("../../../../docs/PERFORMANCE.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(sweepNames(), goalsMark, profileMark) {
		if _, err := between(string(b), name, ""); err != nil {
			t.Error(err)
		}
		if svg := "(performance/" + name + ".svg)"; name != goalsMark && name != profileMark && !strings.Contains(string(b), svg) {
			t.Errorf("the document does not show %s", svg)
		}
	}
}
