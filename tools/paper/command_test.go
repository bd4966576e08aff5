package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gonum.org/v1/plot"

	"github.com/fbfkv/fbfkv/tools/chart"
)

// fbfkv is the server's program.
var fbfkv string

// TestMain builds it.
func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "paper-test-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	fbfkv = filepath.Join(dir, "fbfkv")
	if out, err := exec.Command("go", "-C", "../..", "build", "-o", fbfkv, "./cmd/fbfkv").CombinedOutput(); err != nil {
		panic(string(out))
	}
	return m.Run()
}

// execute runs the command with arguments.
func execute(args ...string) (stdout, stderr string, err error) {
	var out, errs bytes.Buffer
	cmd := newCommand()
	cmd.SetArgs(append([]string{"--fbfkv", fbfkv}, args...))
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	err = cmd.Execute()
	return out.String(), errs.String(), err
}

func TestQuickRunWritesEverything(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "out")
	stdout, stderr, err := execute("--quick", "--png", "--out", dir)
	if err != nil {
		t.Fatal(err)
	}
	for n := 8; n <= 15; n++ {
		name := filepath.Join(dir, fmt.Sprintf("fig%02d", n))
		checkSVG(t, name+".svg", fmt.Sprintf("Fig. %d:", n))
		checkCSV(t, name+".csv")
		if png, err := os.ReadFile(name + ".png"); err != nil || !bytes.HasPrefix(png, []byte("\x89PNG")) {
			t.Errorf("%s.png: %v", name, err)
		}
		if !strings.Contains(stderr, fmt.Sprintf("Fig. %d: ", n)) {
			t.Errorf("no progress for figure %d: %s", n, stderr)
		}
	}
	rows := checkCSV(t, filepath.Join(dir, "summary.csv"))
	for n := 8; n <= 15; n++ {
		if !slices.ContainsFunc(rows, func(row []string) bool { return row[0] == fmt.Sprint(n) }) {
			t.Errorf("the summary lacks figure %d", n)
		}
	}
	if !strings.Contains(stdout, "1.05e-4") || !strings.Contains(stdout, "Written to "+dir) {
		t.Errorf("printed: %s", stdout)
	}
}

// checkSVG parses the file and looks for a title.
func checkSVG(t *testing.T, path, title string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	found := false
	for d := xml.NewDecoder(f); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Errorf("%s: %v", path, err)
			return
		}
		if text, ok := token.(xml.CharData); ok && strings.Contains(string(text), title) {
			found = true
		}
	}
	if !found {
		t.Errorf("%s: no title %q", path, title)
	}
}

// checkCSV parses the file; the reader wants rows of one length.
func checkCSV(t *testing.T, path string) [][]string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
		return nil
	}
	rows, err := csv.NewReader(bytes.NewReader(data)).ReadAll()
	if err != nil || len(rows) < 2 {
		t.Errorf("%s: %d rows, %v", path, len(rows), err)
	}
	return rows
}

func TestChosenFigures(t *testing.T) {
	dir := t.TempDir()
	if _, _, err := execute("--quick", "--figures", "11", "--out", dir); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{filepath.Join(dir, "fig11.csv"), filepath.Join(dir, "fig11.svg"), filepath.Join(dir, "summary.csv")}
	if !slices.Equal(files, want) {
		t.Errorf("wrote %v, want %v", files, want)
	}
	for _, bad := range [][]string{{"--figures", "7"}, {"--figures", "x"}, {"surplus"}, {"--sede", "1"}} {
		if _, _, err := execute(append(bad, "--out", dir)...); err == nil {
			t.Errorf("%v: no error", bad)
		}
	}
	if help, _, err := execute("--help"); err != nil || !strings.Contains(help, "--figures") || !strings.Contains(help, "Subramanyam") {
		t.Errorf("help: %v %s", err, help)
	}
}

// Timed-out increments over-count without ids and do not with them.
func TestRetriesOverRealSockets(t *testing.T) {
	err := withServer(fbfkv, func(s *liveServer) error {
		over := int64(0)
		for round := 0; over == 0 && round < 20; round++ {
			for i, w := range ways() {
				// Far less time than a request takes at first.
				o, err := s.increments(w, fmt.Sprintf("r%d", round), 320, 50*time.Microsecond)
				if err != nil {
					return err
				}
				more := o.total - int64(o.operations)
				if more < 0 || more > int64(o.timeouts) || o.operations != 320 {
					t.Errorf("%s: %d counted of %d, %d time-outs", w.name, o.total, o.operations, o.timeouts)
				}
				if i > 0 && more != 0 {
					t.Errorf("%s: %d too many", w.name, more)
				}
				if i == 0 {
					over += more
				}
			}
		}
		if over == 0 {
			t.Error("no request timed out after it was carried out: the test shows nothing")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// What fails on the server ends the figure with an error, and the data is gone.
func TestServerErrorsAreReported(t *testing.T) {
	dir := ""
	wrong := errors.New("wrong")
	err := withServer(fbfkv, func(s *liveServer) error {
		dir = s.Dir()
		c := s.client()
		defer c.Close()
		if err := c.Set(context.Background(), "plain:r:0", "12", 0).Err(); err != nil {
			return err
		}
		if total, err := s.settled(ways()[0], "r"); total != 12 || err != nil {
			t.Errorf("settled: %d %v", total, err)
		}
		bad := way{prefix: strings.Repeat("k", 70_000), ids: true}
		if _, err := s.increments(bad, "r", clients, time.Second); err == nil || !strings.Contains(err.Error(), "key") {
			t.Errorf("a key too long: %v", err)
		}
		return wrong
	})
	if !errors.Is(err, wrong) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the data directory is still there: %v", err)
	}
}

func TestSeriesDrawsOnlyWhatCanBeDrawn(t *testing.T) {
	s := series{x: []float64{1, 2, 3, 4, 5, 6}, y: []float64{0.5, math.NaN(), 0, -1, 3, math.Inf(1)}}
	if got := s.points(true, 0.1, 1); len(got) != 1 || got[0].X != 1 {
		t.Errorf("logarithmic: %v", got)
	}
	if got := s.points(false, -2, 4); len(got) != 4 {
		t.Errorf("linear: %v", got)
	}
}

func TestAxisBoundsAndTicks(t *testing.T) {
	for _, c := range []struct {
		axis      axis
		values    []float64
		low, high float64
	}{
		{axis{}, []float64{2, 10}, 0, 10.5},
		{axis{log: true}, []float64{0.02, math.NaN(), 0, 30}, 0.01, 100},
		{axis{log: true, min: 1e-3, max: 1}, []float64{5}, 1e-3, 1},
		{axis{}, nil, 1, 10},
	} {
		low, high := c.axis.bounds(c.values)
		if math.Abs(low-c.low) > 1e-9 || math.Abs(high-c.high) > 1e-9 {
			t.Errorf("%+v of %v: %g to %g", c.axis, c.values, low, high)
		}
	}
	for _, c := range []struct {
		ticks plot.TickerFunc
		low   float64
		high  float64
		want  []string
	}{
		{chart.Evenly, 0, 1200, []string{"0", "200", "400", "600", "800", "1000", "1200"}},
		{chart.Evenly, 2.5, 20, []string{"4", "6", "8", "10", "12", "14", "16", "18", "20"}},
		{chart.Evenly, 0, 9.6, []string{"0", "2", "4", "6", "8"}},
		{decades, 1e-4, 1, []string{"1e-4", "0.001", "0.01", "0.1", "1"}},
		{decades, 1e-10, 1, []string{"1e-10", "1e-8", "1e-6", "1e-4", "0.01", "1"}},
	} {
		var got []string
		for _, tick := range c.ticks(c.low, c.high) {
			if tick.Label != "" {
				got = append(got, tick.Label)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%g to %g: %v, want %v", c.low, c.high, got, c.want)
		}
	}
}
