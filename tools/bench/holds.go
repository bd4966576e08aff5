package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/fbfkv/fbfkv/tools/process"
)

// What people run on Redis to set an amount aside: a key for each hold, with its time, and what is held beside the
// value. A hold that expires leaves its amount set aside there; fbfkv gives it back.
const (
	luaReserve = `if redis.call('SET', KEYS[2], ARGV[1], 'NX', 'EX', ARGV[3]) then
 local f = redis.call('HMGET', KEYS[1], 'value', 'held')
 if (f[1] or 0) + (f[2] or 0) + ARGV[1] > tonumber(ARGV[2]) then
  redis.call('DEL', KEYS[2])
  return redis.error_reply('BOUND')
 end
 return redis.call('HINCRBY', KEYS[1], 'held', ARGV[1])
end
return tonumber(redis.call('HGET', KEYS[1], 'held') or 0)`
	luaSettle = `local held = redis.call('GET', KEYS[2])
if held and held ~= 'settled' then
 redis.call('SET', KEYS[2], 'settled', 'EX', ARGV[2])
 redis.call('HINCRBY', KEYS[1], 'held', -held)
 return redis.call('HINCRBY', KEYS[1], 'value', ARGV[1])
end
return tonumber(redis.call('HGET', KEYS[1], 'value') or 0)`
)

func loadScript(text string) func(ctx context.Context, c *redis.Client) (string, error) {
	return func(ctx context.Context, c *redis.Client) (string, error) { return c.ScriptLoad(ctx, text).Result() }
}

// holdWorkloads are the phases of a hold. A load that settles needs the opids of one that has opened holds.
var holdWorkloads = []workload{
	{name: "chold", what: "CHOLD with a new opid each, for ten minutes (fbfkv)",
		words: []string{"CHOLD", "held:" + counter, opid, "1", "EX", "600", "UBOUND", "1000000000"}},
	{name: "csettle", what: "CSETTLE; the table's rows holds open them first", words: []string{"CSETTLE", "held:" + counter, opid, "1"}},
	{name: "lua-reserve", what: "a script on Redis that sets an amount aside", prepare: loadScript(luaReserve),
		words: []string{"EVALSHA", script, "2", "held:" + counter, prefix + "id:" + opid, "1", "1000000000", "600"}},
	{name: "lua-settle", what: "a script on Redis that settles it", prepare: loadScript(luaSettle),
		words: []string{"EVALSHA", script, "2", "held:" + counter, prefix + "id:" + opid, "1", "600"}},
}

var holds = &special{"holds", func(r *row) string {
	if r.figure != "" {
		return fmt.Sprintf("pipeline 16, everysec, %s: %s against %s", r.figure, r.ours, r.peer)
	}
	return "pipeline 16, everysec: CHOLD and CSETTLE against a script that reserves and one that settles"
}, (*table).holds}

// passes are what the rows of holds need, of which each runs with the same opids on one server.
var passes = [][]load{{on("cincrby")}, {on("chold"), on("csettle")}, {onRedis("lua-reserve"), onRedis("lua-settle")}}

// holds opens holds and settles all of them, in every round as many as there is time for, on both servers in turn.
func (t *table) holds(ctx context.Context, rows []*row) {
	m := &measured{t: t, row: rows[0], servers: map[string]*process.Process{}}
	defer m.close()
	m.start(ctx, slices.Concat(passes...))
	counts, results := make([]int64, len(passes)), map[string][]*Result{}
	for round := range t.rounds {
		for i := range passes {
			if round%2 == 1 {
				i = len(passes) - 1 - i
			}
			phases := takeQuiet(ctx, &t.quiet, func() phases { return m.pass(ctx, passes[i], &counts[i]) })
			for n, r := range phases {
				name := passes[i][n].workload
				results[name] = append(results[name], r)
				t.keep("holds", name, round, r)
			}
		}
	}
	for _, r := range rows {
		if r.figure != "" {
			q := ratio(results[r.ours.workload], results[r.peer.workload], (*Result).serverCPU)
			t.emit(r, q, fmt.Sprintf("%.2f µs and %.2f µs", q.A, q.B))
			continue
		}
		q := ratio(bothPhases(results["chold"], results["csettle"]), bothPhases(results["lua-reserve"], results["lua-settle"]), throughput)
		t.emit(r, q, fmt.Sprintf("%.0fk and %.0fk phases/s", q.A/1000, q.B/1000))
	}
}

// phases are the loads of a pass.
type phases []*Result

func (p phases) stolen() float64 { return slices.Max(figures(p, (*Result).stolen)) }

// pass sends loads with the same opids one behind the other, while other servers are stopped. The first time it finds out
// how many operations there is time for.
func (m *measured) pass(ctx context.Context, loads []load, count *int64) (all phases) {
	own := m.servers[loads[0].where()]
	for _, p := range m.servers {
		if p != own {
			process.Check(p.Pause())
			defer p.Resume()
		}
	}
	o := m.t.options(own, loads[0])
	o.format, o.Warmup = clientSeq, 0
	if *count == 0 {
		trial := process.Must(runClean(ctx, o))
		*count = max(trial.Operations, int64(o.Connections))
	}
	o.Duration, o.Count, o.Seed = 0, *count, rand.Uint64()>>1|1
	for _, l := range loads {
		o.Workload = l.workload
		all = append(all, runMetered(ctx, own, o))
	}
	return all
}

// bothPhases puts two phases together, round by round.
func bothPhases(a, b []*Result) (all []*Result) {
	for i := range a {
		r := &Result{Steal: max(a[i].Steal, b[i].Steal)}
		r.Throughput = divide(float64(a[i].Operations+b[i].Operations), a[i].Seconds+b[i].Seconds)
		all = append(all, r)
	}
	return all
}
