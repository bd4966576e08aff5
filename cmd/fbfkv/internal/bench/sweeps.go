package bench

import (
	"fmt"
	"strconv"
)

// sweep is throughput against one thing that it depends on.
type sweep struct {
	name   string // of its files
	title  string
	x      string // what is varied
	linear bool   // the axis; else logarithmic
	points []float64
	curves []curve
	// byPoint measures all curves at one point before the next: with servers
	// that are expensive to fill and differ by point only.
	byPoint bool
}

// curve is one line of a sweep: a measurement for every x.
type curve struct {
	name string
	at   func(x float64) trial
}

// trial is one measurement: a server and a load. Trials in a row with the same
// server share it.
type trial struct {
	fsync    string     // "" for everysec
	args     []string   // of the server
	env      []string   // of the server
	setup    [][]string // commands once it runs
	server   string     // tells apart servers that are started alike
	fill     string     // workload that was sent to the server before measuring
	fillKeys string     // on which counters; "" for those of the trial
	preload  int64      // operations of it
	steady   bool       // the load must not add more than as much again to what was filled in
	restart  []string   // more arguments, with which the server is started again then
	settle   bool       // what was filled in is brought to disk, and is compacted, before the load
	warmup   float64    // seconds of the load before the first that is measured
	change   func(o *Options)
}

// sweeps are all sweeps of throughput, in the order of the document.
func sweeps() []sweep {
	return []sweep{
		{name: "connections", title: "Throughput and the number of connections", x: "connections",
			points: []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000},
			curves: []curve{
				{"pipeline 16, everysec", connectionsAt("everysec", 16)}, {"pipeline 16, always", connectionsAt("always", 16)},
				{"pipeline 1, everysec", connectionsAt("everysec", 1)}, {"pipeline 1, always", connectionsAt("always", 1)},
			}},
		{name: "pipeline", title: "Throughput and the depth of pipelines", x: "operations in a pipeline",
			points: []float64{1, 2, 4, 8, 16, 32, 64, 128, 256},
			curves: []curve{{"everysec", pipelineAt("everysec", "exact:")}, {"always", pipelineAt("always", "exact:")},
				{"everysec, APPROX", pipelineAt("everysec", "approx:")}}},
		{name: "steps", title: "What an operation does, step by step", x: "operations in a pipeline",
			points: []float64{1, 16, 64},
			curves: []curve{{"PING", stepAt("ping", "exact:")}, {"INCRBY", stepAt("incrby", "exact:")},
				{"CINCRBY, APPROX", stepAt("cincrby", "approx:")}, {"CINCRBY, EXACT", stepAt("cincrby", "exact:")}}},
		{name: "partitions", title: "Throughput and the number of partitions", x: "partitions",
			points: []float64{1, 2, 4, 8, 16, 32, 64},
			curves: []curve{{"pipeline 64", partitionsAt(64)}, {"pipeline 16", partitionsAt(16)}, {"pipeline 1", partitionsAt(1)}}},
		{name: "processors", title: "Throughput and the server's GOMAXPROCS", x: "GOMAXPROCS", linear: true,
			points: []float64{1, 2},
			curves: []curve{{"pipeline 64", processorsAt(64)}, {"pipeline 16", processorsAt(16)}, {"pipeline 1", processorsAt(1)}}},
		{name: "counters", title: "Throughput and the number of counters", x: "counters, evenly used",
			points: []float64{1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7},
			curves: []curve{{"pipeline 64", countersAt(64)}, {"pipeline 16", countersAt(16)}}, byPoint: true},
		{name: "cold", title: "Throughput with one counter in a hundred (at least 10 000) in memory, pipeline 16", x: "counters, evenly used",
			points: []float64{1e4, 2e4, 1e5, 1e6, 1e7, 1e8},
			curves: []curve{{"pipeline 16", coldAt}}},
		{name: "window", title: "Throughput and the number of remembered operations, pipeline 16", x: "ids in the window",
			points: []float64{1e4, 1e5, 1e6, 1e7, 1e8},
			curves: []curve{{"EXACT", windowAt("EXACT")}, {"APPROX", windowAt("APPROX")}}},
	}
}

func connectionsAt(fsync string, pipeline int) func(float64) trial {
	return func(x float64) trial {
		return trial{fsync: fsync, change: func(o *Options) { o.Connections, o.Pipeline = int(x), pipeline }}
	}
}

func pipelineAt(fsync, prefix string) func(float64) trial {
	return func(x float64) trial {
		return trial{fsync: fsync, setup: [][]string{{"CTABLE", "CREATE", "approx", "PREFIX", "approx:", "MODE", "APPROX"}},
			change: func(o *Options) { o.Pipeline, o.KeyPrefix = int(x), prefix }}
	}
}

// stepAt sends one of the workloads of which each does more than the one before.
func stepAt(workload, prefix string) func(float64) trial {
	at := pipelineAt("everysec", prefix)
	return func(x float64) trial {
		t := at(x)
		change := t.change
		t.change = func(o *Options) {
			change(o)
			o.Workload = workload
		}
		return t
	}
}

func partitionsAt(pipeline int) func(float64) trial {
	return func(x float64) trial {
		return trial{args: []string{"--partitions", strconv.Itoa(int(x))}, change: func(o *Options) { o.Pipeline = pipeline }}
	}
}

func processorsAt(pipeline int) func(float64) trial {
	return func(x float64) trial {
		return trial{env: []string{fmt.Sprintf("GOMAXPROCS=%d", int(x))}, change: func(o *Options) { o.Pipeline = pipeline }}
	}
}

// countersAt has all counters made before.
func countersAt(pipeline int) func(float64) trial {
	return func(x float64) trial {
		return trial{server: fmt.Sprintf("%.0f counters", x), args: []string{"--hot-counters", "12000000"},
			fill: "incrby", fillKeys: fmt.Sprintf("sequence:%.0f", x), preload: int64(x), settle: true,
			change: func(o *Options) { o.Pipeline, o.Keys = pipeline, uniform(x) }}
	}
}

// coldAt is the same with little memory, and all counters on disk at first. The load
// goes on for a while before it is measured, until the server has an index of the rows.
func coldAt(x float64) trial {
	t := countersAt(16)(x)
	t.settle = false
	t.restart = []string{"--hot-counters", fmt.Sprintf("%.0f", max(10_000, x/100)), "--cache-memory", "16mb"}
	t.warmup = max(5, x/200e3)
	return t
}

// windowAt fills the window further for every x.
func windowAt(mode string) func(float64) trial {
	return func(x float64) trial {
		return trial{setup: [][]string{{"CTABLE", "ALTER", "default", "MODE", mode, "WINDOW", "36000000"}},
			args: []string{"--filter-maxmemory", "4gb"}, fill: "cincrby", preload: int64(x), steady: true,
			change: func(o *Options) { o.Pipeline = 16 }}
	}
}

func uniform(x float64) string { return fmt.Sprintf("uniform:%.0f", x) }
