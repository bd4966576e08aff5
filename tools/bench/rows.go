package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// row is a goal, and what is measured for it.
type row struct {
	name   string
	fsync  string // appendfsync of both servers; "" for everysec
	via    string // how requests come: "" by this program, "redis-benchmark" by that, or "tls" by it over TLS
	ours   load
	peer   load
	figure string // of both; "" for throughput, p99, or processor: the server's time for an operation
	goal   float64
	atMost bool // the goal is an upper bound
	slow   bool // only if it is asked for: it fills a server for minutes

	// measure is for what is no ratio of two loads. One that is shared by several rows
	// measures those that are wanted together.
	measure *special
}

// load is what is sent to a server. Its zero values are those of most rows.
type load struct {
	server   string // redis, or "" for fbfkv
	workload string
	pipeline int
	hot      bool   // only one counter, not 10,000
	counters int64  // that many, and each is made before
	mode     string // of fbfkv's table default; "" for EXACT

	share float64  // of duplicates
	runs  bool     // they are looked up in runs, not in memory
	args  []string // more arguments of the server
}

func cincrby(pipeline int) load { return load{workload: "cincrby", pipeline: pipeline} }
func lua(pipeline int) load     { return load{server: "redis", workload: "lua", pipeline: pipeline} }
func incrby(pipeline int) load  { return load{server: "redis", workload: "incrby", pipeline: pipeline} }
func approx(pipeline int) load {
	return load{workload: "cincrby", pipeline: pipeline, mode: "APPROX"}
}
func on(sketch string) load { return load{workload: sketch, pipeline: 16} }
func hot(l load) load       { l.hot = true; return l }
func many(n int64) load {
	l := cincrby(16)
	l.counters, l.args = n, []string{"--hot-counters", "10000000"}
	return l
}
func repeated(share float64, runs bool) load {
	return load{workload: "cincrby", pipeline: 16, share: share, runs: runs}
}

// small makes what is configured, and does not grow with the ids, small.
func small(cache string) []string { return []string{"--cache-memory", cache} }

// rows are the goals that are measured here, in the order of the table.
var rows = []row{
	{name: "lua-everysec-1", ours: cincrby(1), peer: lua(1), goal: 1.1},
	{name: "incrby-everysec-1", ours: cincrby(1), peer: incrby(1), goal: 0.85},
	{name: "p99", ours: cincrby(1), peer: lua(1), figure: "p99", goal: 1, atMost: true},
	{name: "approx-1", ours: cincrby(1), peer: approx(1), goal: 0.8},
	{name: "approx-p99-1", ours: cincrby(1), peer: approx(1), figure: "p99", goal: 1.3, atMost: true},
	{name: "lua-everysec-16", ours: cincrby(16), peer: lua(16), goal: 6},
	{name: "incrby-everysec-16", ours: cincrby(16), peer: incrby(16), goal: 1},
	{name: "approx-16", ours: cincrby(16), peer: approx(16), goal: 0.8},
	{name: "approx-p99-16", ours: cincrby(16), peer: approx(16), figure: "p99", goal: 1.3, atMost: true},
	{name: "lua-everysec-64", ours: cincrby(64), peer: lua(64), goal: 12},
	{name: "incrby-everysec-64", ours: cincrby(64), peer: incrby(64), goal: 1.4},
	{name: "hot-everysec", ours: hot(cincrby(64)), peer: hot(incrby(64)), goal: 1.5},
	{name: "approx-64", ours: cincrby(64), peer: approx(64), goal: 0.8},
	{name: "approx-p99-64", ours: cincrby(64), peer: approx(64), figure: "p99", goal: 1.3, atMost: true},

	{name: "lua-always-1", fsync: "always", ours: cincrby(1), peer: lua(1), goal: 1.1},
	{name: "incrby-always-1", fsync: "always", ours: cincrby(1), peer: incrby(1), goal: 0.85},
	{name: "lua-always-16", fsync: "always", ours: cincrby(16), peer: lua(16), goal: 4},
	{name: "incrby-always-16", fsync: "always", ours: cincrby(16), peer: incrby(16), goal: 1},
	{name: "lua-always-64", fsync: "always", ours: cincrby(64), peer: lua(64), goal: 10},
	{name: "incrby-always-64", fsync: "always", ours: cincrby(64), peer: incrby(64), goal: 1.4},
	{name: "hot-always", fsync: "always", ours: hot(cincrby(64)), peer: hot(incrby(64)), goal: 1.5},

	{name: "redis-benchmark-1", via: "redis-benchmark", ours: cincrby(1), peer: incrby(1), goal: 1},
	{name: "redis-benchmark-16", via: "redis-benchmark", ours: cincrby(16), peer: incrby(16), goal: 1.2},
	{name: "redis-benchmark-64", via: "redis-benchmark", ours: cincrby(64), peer: incrby(64), goal: 2},
	{name: "tls-1", via: "tls", ours: cincrby(1), peer: incrby(1), goal: 1},
	{name: "tls-16", via: "tls", ours: cincrby(16), peer: incrby(16), goal: 1.2},
	{name: "tls-64", via: "tls", ours: cincrby(64), peer: incrby(64), goal: 1.5},

	{name: "duplicates-100-memory", ours: repeated(1, false), peer: cincrby(16), goal: 0.5, measure: duplicates},
	{name: "duplicates-10-memory", ours: repeated(0.1, false), peer: cincrby(16), goal: 0.5, measure: duplicates},
	{name: "duplicates-100-runs", ours: repeated(1, true), peer: cincrby(16), goal: 0.5, measure: duplicates},
	{name: "duplicates-10-runs", ours: repeated(0.1, true), peer: cincrby(16), goal: 0.5, measure: duplicates},
	{name: "recovery", goal: 2, atMost: true, measure: recovery},
	// Against RedisBloom's microseconds, of which no server is at hand (SKETCHES.md's figures
	// times or by the goal's factor).
	{name: "bf.add", ours: on("bf.add"), goal: 1.5, atMost: true, measure: processor},
	{name: "bf.exists", ours: on("bf.exists"), goal: 1.3, atMost: true, measure: processor},
	{name: "cms.incrby", ours: on("cms.incrby"), goal: 1.45, atMost: true, measure: processor},
	{name: "cms.query", ours: on("cms.query"), goal: 1.1, atMost: true, measure: processor},
	{name: "bf.madd-10", ours: on("bf.madd-10"), goal: 0.50, atMost: true, measure: processor},
	{name: "cms.incrby-10", ours: on("cms.incrby-10"), goal: 0.54, atMost: true, measure: processor},
	{name: "bf.madd-10-54MB", ours: on("bf.madd-10-54MB"), goal: 0.64, atMost: true, measure: processor},
	{name: "cms.incrby-10-80MB", ours: on("cms.incrby-10-80MB"), goal: 0.92, atMost: true, measure: processor},
	{name: "bf.madd-10-1GB", ours: on("bf.madd-10-1GB"), goal: 0.64, atMost: true, slow: true, measure: processor},
	{name: "bf.cadd", ours: on("bf.cadd"), peer: on("bf.add"), figure: "processor", goal: 1 / 0.6, atMost: true},
	{name: "cms.cincrby", ours: on("cms.cincrby"), peer: cincrby(16), figure: "processor", goal: 1 / 0.8, atMost: true},

	{name: "counters-10M", ours: many(1e7), peer: many(1e4), goal: 0.7, slow: true},
	{name: "start-10M", ours: many(1e7), goal: 2, atMost: true, slow: true, measure: startFull},
	{name: "memory-APPROX", ours: load{mode: "APPROX", args: small("2mb")}, goal: 9, atMost: true, slow: true, measure: memory},
	{name: "memory-EXACT", ours: load{mode: "EXACT", args: small("8mb")}, goal: 6, atMost: true, slow: true, measure: memory},
}

// what says in words what is compared.
func (r *row) what() string {
	if r.measure != nil {
		return r.measure.what(r)
	}
	via := ""
	if r.via != "" {
		via = ", " + r.via
	}
	figure := ""
	if r.figure != "" {
		figure = ", " + r.figure
	}
	return fmt.Sprintf("pipeline %d, %s%s%s: %s against %s", r.ours.pipeline, r.sync(), via, figure, r.ours, r.peer)
}

func (r *row) sync() string { return cmp.Or(r.fsync, "everysec") }

// String says what is sent, and to whom.
func (l load) String() string {
	text := strings.ToUpper(l.workload)
	switch {
	case l.workload == "lua":
		text = "the Lua recipe"
	case l.mode != "":
		text = l.mode
	}
	switch {
	case l.hot:
		text += " on one counter"
	case l.counters > 0:
		text += fmt.Sprintf(" on %d counters", l.counters)
	}
	return text
}

// together are the rows that are measured together: those of the same durability,
// pipeline and way, or of the same special measurement. Their loads run in turn.
func (r *row) together() string {
	if r.measure != nil {
		return r.measure.name
	}
	return fmt.Sprintf("%s %s pipeline %d %v", r.sync(), r.via, r.ours.pipeline, r.slow)
}

// choose returns the rows that are asked for by the beginnings of their names; if none
// are, all, the slow ones only if all is set.
func choose(text string, all bool) (chosen []row, err error) {
	var asked []string
	if text != "" {
		asked = strings.Split(text, ",")
	}
	for _, name := range asked {
		if !slices.ContainsFunc(rows, func(r row) bool { return begins(r.name, name) }) {
			return nil, fmt.Errorf("--rows: no row begins with %q; tools/bench/rows.go has all", name)
		}
	}
	for _, r := range rows {
		if len(asked) == 0 && (all || !r.slow) || slices.ContainsFunc(asked, func(name string) bool { return begins(r.name, name) }) {
			chosen = append(chosen, r)
		}
	}
	return chosen, nil
}

// begins reports whether a row's name begins as was asked for. Numbers are not cut
// short: tls-1 is not the beginning of tls-16.
func begins(name, asked string) bool {
	rest, ok := strings.CutPrefix(name, asked)
	digit := func(c byte) bool { return '0' <= c && c <= '9' }
	return ok && (rest == "" || asked == "" || !digit(rest[0]) || !digit(asked[len(asked)-1]))
}
