package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fbfkv/fbfkv/tools/process"
)

// workload is one way to count.
type workload struct {
	name string
	what string
	// prepare makes the server ready and returns the name of a script. Nil if nothing is needed.
	prepare func(ctx context.Context, c *redis.Client) (string, error)
	words   []string // of the request, see encode

	items int    // of a sketch, in each request; 0: the workload is about counters
	keys  string // which items there are
}

func loadLua(ctx context.Context, c *redis.Client) (string, error) {
	return c.ScriptLoad(ctx, process.LuaRecipe).Result()
}

// workloads are all workloads, in the order of the help text.
var workloads = append([]workload{
	{name: "cincrby", what: "CINCRBY with a new opid each (fbfkv)", words: []string{"CINCRBY", prefix + counter, opid, "1"}},
	{name: "incrby", what: "plain INCRBY, not idempotent", words: []string{"INCRBY", prefix + counter, "1"}},
	{name: "lua", what: "the usual recipe on Redis: SET opid NX EX (two minutes), then INCRBY, in a script", prepare: loadLua,
		words: []string{"EVALSHA", script, "2", prefix + counter, prefix + "id:" + opid, "1", "120"}},

	{name: "transfer", what: "CMINCRBY that moves 1 from one counter to another one (fbfkv)",
		words: []string{"CMINCRBY", opid, "2", "from:" + counter, "-1", "to:" + counter, "1"}},
	{name: "scale", what: "CINCRBY of cents in a table with SCALE 2 (fbfkv)", prepare: decimals,
		words: []string{"CINCRBY", "scaled:" + counter, opid, "0.01"}},
	{name: "throttle", what: "CL.THROTTLE that lets all in (fbfkv)", words: []string{"CL.THROTTLE", "rate:" + counter, "1000000", "1000000", "1"}},
	{name: "throttle-opid", what: "the same with a new opid each (fbfkv)",
		words: []string{"CL.THROTTLE", "rates:" + counter, "1000000", "1000000", "1", "1", "OPID", opid}},

	// The sketches of the goals.
	onSketch("bf.add", "BF.ADD", smallFilter, 1, "", false),
	onSketch("bf.exists", "BF.EXISTS", smallFilter, 1, "", false),
	onSketch("bf.cadd", "BF.CADD", smallFilter, 1, "", true),
	onSketch("bf.madd-10", "BF.MADD", smallFilter, 10, "", false),
	onSketch("bf.madd-10-54MB", "BF.MADD", filter("54mb", 45_000_000), 10, "", false),
	onSketch("bf.madd-10-1GB", "BF.MADD", filter("1gb", 1_000_000_000), 10, "", false),
	onSketch("cms.incrby", "CMS.INCRBY", smallCells, 1, "1", false),
	onSketch("cms.query", "CMS.QUERY", smallCells, 1, "", false),
	onSketch("cms.cincrby", "CMS.CINCRBY", smallCells, 1, "1", true),
	onSketch("cms.incrby-10", "CMS.INCRBY", smallCells, 10, "1", false),
	onSketch("cms.incrby-10-80MB", "CMS.INCRBY", cells("80mb", 2_000_000, 10), 10, "1", false),
}, holdWorkloads...)

// decimals makes the table of counters with two digits behind the point.
func decimals(ctx context.Context, c *redis.Client) (string, error) {
	err := c.Do(ctx, "CTABLE", "CREATE", "scaled", "PREFIX", "scaled:", "SCALE", 2).Err()
	if err != nil && strings.Contains(err.Error(), "exists") {
		return "", nil
	}
	return "", err
}

// sketch is one that a workload makes unless it exists.
type sketch struct {
	key, items string
	create     []any
}

// filter is a Bloom filter of 9.6 bits for each of so many items, of which it is sent no others: of 1.2, 54 or 1,200 MB.
func filter(suffix string, capacity int) sketch {
	key := "filter-" + suffix
	return sketch{key, fmt.Sprint("uniform:", min(capacity, maxKeys)), []any{"BF.RESERVE", key, 0.01, capacity, "NONSCALING"}}
}

// cells is a count-min sketch, which is sent a million items: of 56 KB or 80 MB.
func cells(suffix string, width, depth int) sketch {
	key := "cells-" + suffix
	return sketch{key, "uniform:1000000", []any{"CMS.INITBYDIM", key, width, depth}}
}

var smallFilter, smallCells = filter("small", 1_000_000), cells("small", 2000, 7)

// onSketch returns a workload whose requests have so many items of one sketch, each with an
// increment if there is one, and an opid if the command takes one.
func onSketch(name, command string, on sketch, items int, increment string, id bool) workload {
	w := workload{name: name, what: fmt.Sprintf("%s, %d items in a request", command, items), items: items, keys: on.items}
	w.prepare = func(ctx context.Context, c *redis.Client) (string, error) {
		if n, err := c.Exists(ctx, on.key).Result(); n > 0 || err != nil {
			return "", err
		}
		return "", c.Do(ctx, on.create...).Err()
	}
	w.words = []string{command, on.key}
	if id {
		w.words = append(w.words, opid)
	}
	for range items {
		if w.words = append(w.words, prefix+counter); increment != "" {
			w.words = append(w.words, increment)
		}
	}
	return w
}

// findWorkload returns a workload by its name.
func findWorkload(name string) (*workload, error) {
	var names []string
	for i := range workloads {
		if workloads[i].name == name {
			return &workloads[i], nil
		}
		names = append(names, workloads[i].name)
	}
	return nil, fmt.Errorf("--workload: %q is none of %s", name, strings.Join(names, ", "))
}
