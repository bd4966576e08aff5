package main

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// workload is one way to count.
type workload struct {
	name string
	what string
	// idempotent says that an operation whose outcome is unknown may be sent
	// again with the same opid.
	idempotent bool
	// prepare makes the server ready and returns the name under which the
	// request finds its script. Nil if nothing is needed.
	prepare func(ctx context.Context, c *redis.Client) (string, error)
	encode  func(e *encoder, s setup)
}

// setup is what a request depends on besides key and opid.
type setup struct {
	prefix string
	window time.Duration // how long the recipe remembers an opid
	script string        // what prepare returned
}

func (s setup) seconds() string { return strconv.Itoa(int(math.Ceil(s.window.Seconds()))) }

// luaRecipe answers a duplicate with the counter's present value.
const luaRecipe = `if redis.call('SET', KEYS[2], '', 'NX', 'EX', ARGV[2]) then
 return redis.call('INCRBY', KEYS[1], ARGV[1])
end
return tonumber(redis.call('GET', KEYS[1]) or 0)`

// workloads are all workloads, in the order of the help text.
var workloads = []workload{
	{name: "cincrby", what: "CINCRBY with a new opid each (fbfkv)", idempotent: true, encode: encodeCincrby},
	{name: "incrby", what: "plain INCRBY, not idempotent", encode: func(e *encoder, _ setup) {
		e.begin(3)
		e.arg("INCRBY")
		e.key()
		e.arg("1")
	}},
	{name: "lua", what: "the usual recipe on Redis: SET opid NX EX, then INCRBY, in a script", idempotent: true,
		prepare: loadLua, encode: encodeLua},
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
	e.arg(s.seconds())
}
