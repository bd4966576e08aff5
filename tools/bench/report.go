package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// showSteal is the share of the processor time from which on people are told that it
// went to others.
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
