package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestSums: what a counter holds says what became of its operation, and one that is lost makes up
// for none that was counted twice.
func TestSums(t *testing.T) {
	var s sums
	for _, c := range []struct {
		tries int
		value string
	}{{1, "1"}, {2, "1"}, {1, ""}, {2, "2"}, {3, "3"}} {
		n, err := count(c.value)
		if err != nil {
			t.Error(err)
		}
		s.add(answer{tries: c.tries, counted: n})
	}
	if want := (sums{acknowledged: 5, again: 3, lost: 1, twice: 2}); s != want {
		t.Errorf("%+v, want %+v", s, want)
	}
	for _, value := range []string{"0", "-1", "x"} {
		if _, err := count(value); err == nil {
			t.Errorf("a counter may hold %q", value)
		}
	}
}

// TestErrors: an operation belongs to the fault a second after which it was answered at the latest, and the error at a
// time to all that were answered until then.
func TestErrors(t *testing.T) {
	zero := time.Now()
	at := func(seconds float64) time.Time { return zero.Add(time.Duration(seconds * float64(time.Second))) }
	got := trial{kinds: make([]sums, 2), began: zero, faults: []time.Time{at(3), at(10)}, answers: []answer{
		{at: at(0.1), tries: 1, counted: 1}, {at: at(0.2), tries: 1, counted: 1}, {at: at(2.5), tries: 1}, {at: at(2.6), tries: 2, counted: 3},
		{at: at(8.9), tries: 1, counted: 1}, {at: at(9.1), tries: 1, counted: 2}}}
	got.sort()
	if want := []sums{{acknowledged: 5, again: 1, lost: 1, twice: 1}, {acknowledged: 1, twice: 1}}; !slices.Equal(got.kinds, want) {
		t.Errorf("%+v, want %+v", got.kinds, want)
	}
	points := got.errors()
	if len(points) != 37 || points[0] != (errorsAt{second: 0.25}) {
		t.Fatalf("%d points, the first %+v", len(points), points[0])
	}
	if want := (errorsAt{2.75, 50, 25, 25}); points[10] != want {
		t.Errorf("%+v, want %+v", points[10], want)
	}
	if want := (errorsAt{9.25, 50, 100.0 / 6, 100 * (3.0 - 1) / 6}); points[36] != want {
		t.Errorf("%+v, want %+v", points[36], want)
	}
	file := filepath.Join(t.TempDir(), "plot.svg")
	if err := plotErrors(file, []subject{{name: "some servers"}}, []trial{got}); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{file: "some servers", strings.TrimSuffix(file, "svg") + "csv": "some servers,2.75,50,25,25"} {
		if b, err := os.ReadFile(path); err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%s has %d bytes, %v", path, len(b), err)
		}
	}
}

// TestGap measures times without an answer, at the ends of a span too.
func TestGap(t *testing.T) {
	zero := time.Now()
	at := func(seconds float64) time.Time { return zero.Add(time.Duration(seconds * float64(time.Second))) }
	var answers []answer
	for _, s := range []float64{0, 1, 1.5, 4, 4.1, 9} {
		answers = append(answers, answer{at: at(s)})
	}
	for _, c := range []struct{ from, to, want float64 }{{0.5, 4.2, 2.5}, {1.6, 4.05, 2.4}, {4, 8, 3.9}, {5, 8, 3}, {0, 10, 4.9}} {
		if got := gap(answers, at(c.from), at(c.to)).Round(time.Millisecond); got != at(c.want).Sub(zero).Round(time.Millisecond) {
			t.Errorf("from %v to %v: %v, want %v s", c.from, c.to, got, c.want)
		}
	}
}

// TestReadRole reads the answers of servers that lead, follow, or do not know.
func TestReadRole(t *testing.T) {
	for _, c := range []struct {
		reply []any
		want  role
	}{
		{[]any{"master", int64(7), []any{[]any{"127.0.0.1", "7", "7"}, []any{"127.0.0.1", "8", "7"}}}, role{leads: true, replicas: 2}},
		{[]any{"master", int64(7), []any{}}, role{leads: true}},
		{[]any{"slave", "127.0.0.1", int64(7001), "connected", int64(7)}, role{leader: "127.0.0.1:7001", connected: true}},
		{[]any{"slave", "127.0.0.1", int64(7001), "sync", int64(-1)}, role{leader: "127.0.0.1:7001"}},
		{[]any{"sentinel", []any{"m"}}, role{}},
		{nil, role{}},
	} {
		if got := readRole(c.reply); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.reply, got, c.want)
		}
	}
}

// TestPoints puts answers where they belong on the axis.
func TestPoints(t *testing.T) {
	rates, latencies := curve{answers: []answer{{since: -2, took: 5 * time.Millisecond}, {since: -0.01, took: time.Millisecond},
		{since: 0, took: 3 * time.Millisecond}, {since: 0.09, took: 2 * time.Millisecond}, {since: plotTo}}}.points(0)
	if len(rates.X) != 70 || len(latencies.X) != 3 {
		t.Fatalf("%d rates, %d latencies", len(rates.X), len(latencies.X))
	}
	if y := rates.Y; y[0] != 10 || y[19] != 10 || y[20] != 20 || y[21] != 0 {
		t.Errorf("the rates are %v", y)
	}
	if x, y := latencies.X[2], latencies.Y[2]; y != 3 || x < 0.04 || x > 0.06 {
		t.Errorf("behind the fault: %v ms at %v", y, x)
	}
}
