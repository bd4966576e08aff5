package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
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
	atMost bool          // the goal is an upper bound
	slow   bool          // only if it is asked for: it fills a server for minutes
	after  time.Duration // a start; 0: the start itself

	// measure is for a row that is not a ratio of two loads. If several rows share it, it
	// measures the wanted ones together.
	measure *special
}

// load is what is sent to a server. Most rows have its zero values.
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
func plain(pipeline int) load   { return load{workload: "incrby", pipeline: pipeline} }
func lua(pipeline int) load     { return load{server: "redis", workload: "lua", pipeline: pipeline} }
func incrby(pipeline int) load  { return load{server: "redis", workload: "incrby", pipeline: pipeline} }
func approx(pipeline int) load {
	return load{workload: "cincrby", pipeline: pipeline, mode: "APPROX"}
}
func on(workload string) load      { return load{workload: workload, pipeline: 16} }
func onRedis(workload string) load { return load{server: "redis", workload: workload, pipeline: 16} }
func hot(l load) load              { l.hot = true; return l }
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

// pipelines are rows at pipeline 1, 16 and 64.
func pipelines(name, fsync, via string, ours, peer func(pipeline int) load, goals ...float64) (all []row) {
	for i, n := range []int{1, 16, 64} {
		all = append(all, row{name: fmt.Sprintf("%s-%d", name, n), fsync: fsync, via: via, ours: ours(n), peer: peer(n), goal: goals[i]})
	}
	return all
}

// costs makes rows of throughput rows of what a request costs, by another figure.
func costs(figure string, all []row) []row {
	for i := range all {
		all[i].figure, all[i].atMost = figure, true
	}
	return all
}

// rows are the goals that are measured here, in the order of the table.
var rows = slices.Concat(
	pipelines("lua-everysec", "", "", cincrby, lua, 1.1, 6, 12),
	pipelines("incrby-everysec", "", "", cincrby, incrby, 0.85, 1, 1.4),
	costs("processor", pipelines("opid", "", "", cincrby, plain, 1.1, 1.5, 2)),
	pipelines("approx", "", "", cincrby, approx, 0.8, 0.8, 0.8),
	costs("p99", pipelines("approx-p99", "", "", cincrby, approx, 1.3, 1.3, 1.3)),
	costs("p99", pipelines("p99", "", "", cincrby, lua, 1, 1, 1))[:1],
	pipelines("lua-always", "always", "", cincrby, lua, 1.1, 4, 10),
	pipelines("incrby-always", "always", "", cincrby, incrby, 0.85, 1, 1.4),
	pipelines("redis-benchmark", "", "redis-benchmark", cincrby, incrby, 1, 1.2, 2),
	pipelines("tls", "", "tls", cincrby, incrby, 1, 1.2, 1.5), otherRows)

var otherRows = []row{
	{name: "hot-everysec", ours: hot(cincrby(64)), peer: hot(incrby(64)), goal: 1.5},
	{name: "hot-always", fsync: "always", ours: hot(cincrby(64)), peer: hot(incrby(64)), goal: 1.5},
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
	{name: "chold", ours: on("chold"), peer: on("cincrby"), figure: "processor", goal: 1.3, atMost: true, measure: holds},
	{name: "csettle", ours: on("csettle"), peer: on("cincrby"), figure: "processor", goal: 1.3, atMost: true, measure: holds},
	{name: "holds-lua", ours: on("chold"), peer: onRedis("lua-reserve"), goal: 5, measure: holds},
	{name: "transfer", ours: on("transfer"), peer: cincrby(16), figure: "processor", goal: 2, atMost: true},
	{name: "scale", ours: on("scale"), peer: cincrby(16), figure: "processor", goal: 1.05, atMost: true},
	{name: "throttle", ours: on("throttle"), peer: cincrby(16), goal: 0.9},
	{name: "throttle-opid", ours: on("throttle-opid"), peer: cincrby(16), goal: 0.9},
	{name: "follow", ours: cincrby(16), peer: cincrby(16), figure: "processor", goal: 1.1, atMost: true, measure: followed},
	{name: "follow-lag", ours: cincrby(1), goal: 250, atMost: true, measure: lagging},
	{name: "stream-count", ours: cincrby(64), peer: cincrby(64), goal: 0.8, measure: streamed},

	{name: "counters-10M", ours: many(1e7), peer: many(1e4), goal: 0.7, slow: true},
	{name: "start-10M", ours: many(1e7), goal: 2, atMost: true, slow: true, measure: startFull},
	{name: "warm-10s", after: 10 * time.Second, ours: many(1e7), goal: 0.5, slow: true, measure: startFull},
	{name: "warm-30s", after: 30 * time.Second, ours: many(1e7), goal: 0.9, slow: true, measure: startFull},
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
	case l.workload == "incrby" && l.server == "":
		text = "INCRBY of fbfkv"
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
	name := fmt.Sprintf("%s pipeline %d %s", r.sync(), r.ours.pipeline, r.via)
	if r.slow {
		name += "slow"
	}
	return strings.TrimSpace(name)
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
