package bench

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/cpuprofile"
)

// TestDivideUsage divides a machine's time, of which the parts make the whole.
func TestDivideUsage(t *testing.T) {
	p := new(cpuprofile.Shares)
	p.Of[cpuprofile.Finding], p.Of[cpuprofile.Files], p.InSystemCalls = 0.75, 0.25, 0.25
	for _, tt := range []struct {
		name                                               string
		u                                                  usage
		finding, files, generator, elsewhere, idle, faults float64
		bound                                              string
	}{
		{"a busy machine", usage{server: 2, kernel: 1, generator: 1, machine: machineTime{all: 4, idle: 0.2}}, 0.375, 0.125, 0.25, 0.2, 0.05, 0.125,
			"processors; most: finding, files"},
		{"one that waits", usage{server: 1, kernel: 0.1, generator: 0.5, machine: machineTime{all: 4, idle: 2.5}}, 0.1875, 0.0625, 0.125, 0, 0.625, 0,
			"waiting, 62 % idle; most: finding, files"},
		{"one that does much else", usage{server: 1, kernel: 0.1, generator: 0.5, machine: machineTime{all: 4, idle: 0.5}}, 0.1875, 0.0625, 0.125, 0.5, 0.125, 0,
			"other work on the machine; most: finding, files"},
		{"clocks that disagree", usage{server: 3, generator: 1.5, machine: machineTime{all: 4, idle: 0.5}}, 0.5, 1.0 / 6, 1.0 / 3, 0, 0, 0,
			"processors; most: finding, files"},
	} {
		s := divideUsage(tt.u, p)
		sum := 0.0
		for _, share := range s.of {
			sum += share
		}
		got := []float64{s.of[cpuprofile.Finding], s.of[cpuprofile.Files], s.of[spentGenerator], s.of[spentElsewhere], s.of[spentIdle], s.faults, sum}
		for i, want := range []float64{tt.finding, tt.files, tt.generator, tt.elsewhere, tt.idle, tt.faults, 1} {
			if math.Abs(got[i]-want) > 1e-9 {
				t.Errorf("%s: %v, of which the %dth should be %v", tt.name, got, i, want)
			}
		}
		if s.bound() != tt.bound {
			t.Errorf("%s: %q, want %q", tt.name, s.bound(), tt.bound)
		}
	}
}

// TestSpentTables writes profiled points as a CSV row, as Markdown and as a picture.
func TestSpentTables(t *testing.T) {
	p := profiled{curve: "pipeline 1, always", x: 1000, throughput: 123_456}
	p.of[cpuprofile.Network], p.of[spentIdle], p.faults = 0.6, 0.4, 0.023
	head, row := spentHeader("connections"), p.row()
	if len(head) != len(row) || head[0] != "connections" || row[0] != "1000" || row[len(row)-1] != "2.3" {
		t.Errorf("%v\n%v", head, row)
	}
	lines := strings.Split(strings.TrimSpace(spentMarkdown("connections", []profiled{p, {curve: "other", x: 1}})), "\n")
	if len(lines) != 4 {
		t.Fatalf("%d lines", len(lines))
	}
	for _, line := range lines {
		if strings.Count(line, "|") != strings.Count(lines[0], "|") {
			t.Errorf("columns differ:\n%s\n%s", lines[0], line)
		}
	}
	for _, want := range []string{"| pipeline 1, always | 1k | 123k |", "| 60 |", "| 40 |", "*2*", "| waiting, 40 % idle; most: network |"} {
		if !strings.Contains(lines[2], want) {
			t.Errorf("%q is not in %s", want, lines[2])
		}
	}
	busy := profiled{curve: "busy"}
	busy.of[spentElsewhere] = 0.5
	if text := spentMarkdown("x", []profiled{busy}); !strings.HasPrefix(text, "Taken while the machine did much else (50 % on average)") {
		t.Errorf("%s", text)
	}
	file := filepath.Join(t.TempDir(), "bars.svg")
	if err := writeBars(file, "title", "connections", []profiled{p, {curve: "other", x: 1}, {curve: "other", x: 2}}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"title", "always", "other", "generator", "idle", ">1k<"} {
		if !strings.Contains(string(b), want) {
			t.Errorf("the picture does not say %s", want)
		}
	}
}

// TestUsage reads the clocks of this process and machine.
func TestUsage(t *testing.T) {
	before, err := usageOf(nil)
	if err != nil {
		t.Skip("this system has no /proc/stat:", err)
	}
	for end := time.Now().Add(120 * time.Millisecond); time.Now().Before(end); {
	}
	after, err := usageOf(nil)
	u := after.since(before)
	if err != nil || u.machine.all < 0.05 || u.machine.idle < 0 || u.machine.steal < 0 || u.machine.idle+u.machine.steal > u.machine.all || u.generator < 0.01 || u.generator > 10 {
		t.Errorf("%v: %+v", err, u)
	}
}

// TestForecast foretells the rest from how the work went so far.
func TestForecast(t *testing.T) {
	f := newForecast(100)
	if got := f.left(); got != "2 min left" {
		t.Errorf("at first %s", got)
	}
	f.began = time.Now().Add(-40 * time.Second)
	if f.add(20); f.left() != "3 min left" {
		t.Errorf("at half the pace %s", f.left())
	}
	if f.add(75); f.left() != "2 s left" {
		t.Errorf("near the end %s", f.left())
	}
	if f.add(75); f.left() != "0 s left" {
		t.Errorf("beyond the end %s", f.left())
	}
}

// TestJobs expects each point of each curve once, and profiles at the first,
// the middle and the last.
func TestJobs(t *testing.T) {
	s := &sweeper{most: 1e5, profile: 1}
	one := sweep{points: []float64{1, 10, 100, 1e3, 1e6}, curves: []curve{{name: "a"}, {name: "b"}}}
	show := func() (text string) {
		for _, j := range s.jobs(one) {
			mark := ""
			if j.profile {
				mark = "!"
			}
			text += one.curves[j.curve].name + tickLabel(one.points[j.point]) + mark + " "
		}
		return text
	}
	if got := show(); got != "a1! a10 a100! a1k! b1! b10 b100! b1k! " {
		t.Errorf("%s", got)
	}
	one.curves[1].at = func(x float64) trial { return trial{steady: true} }
	if got := show(); got != "a1! a10 a100! a1k! b1 b10 b100 b1k " {
		t.Errorf("of few ids: %s", got)
	}
	one.byPoint, s.profile = true, 0
	if got := show(); got != "a1 b1 a10 b10 a100 b100 a1k b1k " {
		t.Errorf("%s", got)
	}
}

// TestNothingMeasured lets every server fail to start: the sweep says so for
// every point, and leaves earlier files alone.
func TestNothingMeasured(t *testing.T) {
	out := t.TempDir()
	old := filepath.Join(out, "processors.csv")
	if err := os.WriteFile(old, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	text, err := runCommand(t, "sweep", "--only", "processors", "--seconds", "0.1", "--out", out, "--fbfkv", "/no/such/program")
	if err == nil || !strings.Contains(err.Error(), "6 measurements failed") || strings.Count(text, "FAILED  processors, pipeline") < 6 {
		t.Errorf("%v: %s", err, text)
	}
	if b, err := os.ReadFile(old); err != nil || string(b) != "old" {
		t.Errorf("%v: the old file holds %q", err, b)
	}
	missing := filepath.Join(out, "missing.md")
	if err := os.WriteFile(missing, []byte("<!-- processors: begin -->\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := runCommand(t, "sweep", "--only", "processors", "--out", out, "--into", missing); err == nil || !strings.Contains(err.Error(), "processors: end") {
		t.Errorf("a document without a place for the table: %v", err)
	}
	if _, err := runCommand(t, "sweep", "--only", "processors", "--out", out, "--into", "/no/such/file"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no document: %v", err)
	}
}
