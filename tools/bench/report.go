package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fbfkv/fbfkv/tools/chart"
)

// showSteal is the share of the processor time from which on people are told that it went to others.
const showSteal = 0.03

// print writes the result for people.
func (r *Result) print(out io.Writer) {
	fmt.Fprintf(out, "%s  %s  %d connections, pipeline %d, keys %s\n", r.Workload, r.Target, r.Connections, r.Pipeline, r.Keys)
	fmt.Fprintf(out, "  throughput  %s operations/s  (%d in %.2f s; the generator used %.2f s of CPU)\n",
		thousands(r.Throughput), r.Operations, r.Seconds, r.CPU)
	if l := r.Latency; r.Operations > 0 {
		fmt.Fprintf(out, "  latency     p50 %s  p95 %s  p99 %s  p99.9 %s  max %s\n",
			short(l.P50), short(l.P95), short(l.P99), short(l.P999), short(l.Max))
	}
	if r.duplicates > 0 {
		fmt.Fprintf(out, "  duplicates  %d (%.1f%% of all)\n", r.duplicates, 100*float64(r.duplicates)/float64(max(r.Sent, 1)))
	}
	r.printErrors(out)
	if r.Steal > showSteal {
		fmt.Fprintf(out, "  disturbed   the hypervisor gave %.0f%% of this machine's processor time to others\n", 100*r.Steal)
	}
	if v := r.Verified; v != nil && r.Err() == nil {
		fmt.Fprintf(out, "  verified    %d counters hold the %d acknowledged operations\n", v.Counters, v.Acknowledged)
	}
}

// printErrors writes how many error replies there were, and the text of the first.
func (r *Result) printErrors(out io.Writer) {
	n := r.errorReplies()
	if n == 0 {
		return
	}
	var codes []string
	for _, code := range slices.Sorted(maps.Keys(r.errors)) {
		codes = append(codes, fmt.Sprintf("%d %q", r.errors[code], code))
	}
	fmt.Fprintf(out, "  errors      %d of all %d replies, and not in the figures above: %s\n", n, r.Sent, strings.Join(codes, ", "))
	fmt.Fprintf(out, "              the first: %s\n", r.first)
}

// short writes a time in seconds with three digits.
func short(seconds float64) string {
	d := time.Duration(seconds * 1e9)
	switch {
	case d >= time.Second:
		return fmt.Sprintf("%.2fs", d.Seconds())
	case d >= 10*time.Millisecond:
		return fmt.Sprintf("%.0fms", d.Seconds()*1e3)
	case d >= time.Millisecond:
		return fmt.Sprintf("%.2fms", d.Seconds()*1e3)
	}
	return fmt.Sprintf("%dus", d.Microseconds())
}

// thousands writes a rate with spaces between groups of three digits.
func thousands(x float64) string {
	s := strconv.FormatFloat(x, 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + " " + s[i:]
	}
	return s
}

func number(x float64) string { return strconv.FormatFloat(x, 'g', 6, 64) }

// plot draws the latencies over time.
func (r *Result) plot(path string) error {
	p := chart.Panel{Title: r.Workload + " on " + r.Target + ": latency of operations",
		X: chart.Axis{Label: "time, s"}, Y: chart.Axis{Label: "latency, ms", Log: true}}
	for i, of := range []struct {
		name  string
		value func(moment) float64
	}{
		{"max", func(m moment) float64 { return m.Max }}, {"p99.9", func(m moment) float64 { return m.P999 }},
		{"p99", func(m moment) float64 { return m.P99 }}, {"p50", func(m moment) float64 { return m.P50 }},
	} {
		l := chart.Line(of.name, i, nil, nil)
		for _, m := range r.Series {
			l.X, l.Y = append(l.X, m.Second), append(l.Y, of.value(m)*1e3)
		}
		p.Series = append(p.Series, l)
	}
	return chart.Write(path, p)
}

// failed counts an error reply. Only the first of its kind costs more than that.
func (t *tally) failed(text []byte) {
	code, _, _ := bytes.Cut(text, []byte(" "))
	if t.errors == nil {
		t.errors = map[string]int64{}
	}
	t.errors[string(code)]++
	if t.first == "" {
		t.first = fmt.Sprintf("%.300q", text) // it may have what ends up in a terminal
	}
}

// errorReplies is how many replies were errors.
func (r *Result) errorReplies() (n int64) {
	for _, k := range r.errors {
		n += k
	}
	return n
}

// Err says why the run is no success although it came to its end, or returns nil: the server only refused, or counts
// wrongly, or refused operations whose effect should be verified.
func (r *Result) Err() error {
	n := r.errorReplies()
	switch v := r.Verified; {
	case n > 0 && n == r.Sent:
		return fmt.Errorf("every reply was an error: %s", r.first)
	case v == nil:
		return nil
	case n > 0:
		return errors.Join(v.Err(), fmt.Errorf("not verified: %d operations were refused: %s", n, r.first))
	}
	return r.Verified.Err()
}
