package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// workload is one way to count.
type workload struct {
	name string
	what string
	// prepare makes the server ready and returns the name under which the
	// request finds its script. Nil if nothing is needed.
	prepare func(ctx context.Context, c *redis.Client) (string, error)
	encode  func(e *encoder, s setup)

	items int    // of a sketch, in each request; 0: the workload is about counters
	keys  string // which items there are
}

// setup is what a request depends on besides key and opid.
type setup struct {
	prefix string
	script string // what prepare returned
}

// luaRecipe answers a duplicate with the counter's present value.
const luaRecipe = `if redis.call('SET', KEYS[2], '', 'NX', 'EX', ARGV[2]) then
 return redis.call('INCRBY', KEYS[1], ARGV[1])
end
return tonumber(redis.call('GET', KEYS[1]) or 0)`

// workloads are all workloads, in the order of the help text.
var workloads = []workload{
	{name: "cincrby", what: "CINCRBY with a new opid each (fbfkv)", encode: encodeCincrby},
	{name: "incrby", what: "plain INCRBY, not idempotent", encode: func(e *encoder, _ setup) {
		e.begin(3)
		e.arg("INCRBY")
		e.key()
		e.arg("1")
	}},
	{name: "lua", what: "the usual recipe on Redis: SET opid NX EX, then INCRBY, in a script",
		prepare: loadLua, encode: encodeLua},

	// The sketches of the goals: a filter of 1.2, 54 or 1,200 MB, and cells of 56 KB or 80 MB.
	onSketch("bf.add", "BF.ADD", smallFilter, 1, "", false),
	onSketch("bf.exists", "BF.EXISTS", smallFilter, 1, "", false),
	onSketch("bf.cadd", "BF.CADD", smallFilter, 1, "", true),
	onSketch("bf.madd-10", "BF.MADD", smallFilter, 10, "", false),
	onSketch("bf.madd-10-54MB", "BF.MADD", filter{"54mb", 45_000_000}, 10, "", false),
	onSketch("bf.madd-10-1GB", "BF.MADD", filter{"1gb", 1_000_000_000}, 10, "", false),
	onSketch("cms.incrby", "CMS.INCRBY", smallCells, 1, "1", false),
	onSketch("cms.query", "CMS.QUERY", smallCells, 1, "", false),
	onSketch("cms.cincrby", "CMS.CINCRBY", smallCells, 1, "1", true),
	onSketch("cms.incrby-10", "CMS.INCRBY", smallCells, 10, "1", false),
	onSketch("cms.incrby-10-80MB", "CMS.INCRBY", cells{"80mb", 2_000_000, 10}, 10, "1", false),
}

// made is a sketch that a workload makes unless it exists.
type made interface {
	name() string
	create(key string) []any
	items() string
}

// filter is a Bloom filter of 9.6 bits for each of so many items, of which it is sent no others.
type filter struct {
	suffix   string
	capacity int
}

func (f filter) name() string  { return "filter-" + f.suffix }
func (f filter) items() string { return fmt.Sprint("uniform:", min(f.capacity, maxKeys)) }
func (f filter) create(key string) []any {
	return []any{"BF.RESERVE", key, 0.01, f.capacity, "NONSCALING"}
}

// cells is a count-min sketch, which is sent a million items.
type cells struct {
	suffix       string
	width, depth int
}

func (c cells) name() string            { return "cells-" + c.suffix }
func (c cells) items() string           { return "uniform:1000000" }
func (c cells) create(key string) []any { return []any{"CMS.INITBYDIM", key, c.width, c.depth} }

var (
	smallFilter = filter{"small", 1_000_000}
	smallCells  = cells{"small", 2000, 7}
)

// onSketch returns a workload whose requests have so many items of one sketch, each with an
// increment if there is one, and an opid if the command takes one.
func onSketch(name, command string, on made, items int, increment string, id bool) workload {
	w := workload{name: name, what: fmt.Sprintf("%s, %d items in a request", command, items), items: items, keys: on.items()}
	w.prepare = func(ctx context.Context, c *redis.Client) (string, error) {
		if n, err := c.Exists(ctx, on.name()).Result(); n > 0 || err != nil {
			return "", err
		}
		return "", c.Do(ctx, on.create(on.name())...).Err()
	}
	w.encode = func(e *encoder, _ setup) {
		words := 2 + items
		if increment != "" {
			words += items
		}
		if id {
			words++
		}
		e.begin(words)
		e.arg(command)
		e.arg(on.name())
		if id {
			e.id("")
		}
		e.items(items, increment)
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

func loadLua(ctx context.Context, c *redis.Client) (string, error) {
	return c.ScriptLoad(ctx, luaRecipe).Result()
}

func encodeCincrby(e *encoder, _ setup) {
	e.begin(4)
	e.arg("CINCRBY")
	e.key()
	e.id("")
	e.arg("1")
}

// encodeLua calls the script on the counter and a key of the opid's own.
func encodeLua(e *encoder, s setup) {
	e.begin(7)
	e.arg("EVALSHA")
	e.arg(s.script)
	e.arg("2")
	e.key()
	e.id(s.prefix + "id:")
	e.arg("1")
	e.arg("120") // seconds for which the recipe remembers it
}
