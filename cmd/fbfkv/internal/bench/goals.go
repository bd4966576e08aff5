package bench

import (
	"context"
	"errors"
	"fmt"
)

// goalsOf are what CINCRBY must reach at a pipeline depth, in relation to the
// recipe (by durability) and to plain INCRBY.
var goalsOf = []struct {
	pipeline  int
	lua       map[string]float64
	incrby    float64
	ping      float64
	showsTail bool
}{
	{1, map[string]float64{"everysec": 1.1, "always": 1.1}, 0.85, 0.9, true},
	{16, map[string]float64{"everysec": 6, "always": 4}, 1.0, 0.8, false},
	{64, map[string]float64{"everysec": 12, "always": 10}, 1.4, 0.7, false},
}

// pair is the two servers compared.
type pair struct {
	t            *table
	fbfkv, redis *process
	fsync        string
}

// against measures everything that compares the two servers at one durability.
func (t *table) against(ctx context.Context, fsync string) (rows []Row, err error) {
	p := &pair{t: t, fsync: fsync}
	if p.fbfkv, err = startFBFKV(ctx, t.fbfkv, fsync, nil); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.fbfkv.close()) }()
	if p.redis, err = startRedis(ctx, t.redis, fsync); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.redis.close()) }()
	parts := []func(context.Context) ([]Row, error){p.pipelines, p.hot}
	if fsync == "everysec" {
		parts = append(parts, p.ping, p.modes, p.duplicates)
	}
	for _, part := range parts {
		more, err := part(ctx)
		if err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

// rates says what a ratio of throughputs is made of.
func rates(r Ratio) string {
	return fmt.Sprintf("%.0fk and %.0fk operations/s", r.A/1000, r.B/1000)
}

// times says what a ratio of latencies is made of.
func times(r Ratio) string { return short(r.A) + " and " + short(r.B) }

// pipelines compares unique increments with the recipe and with plain INCRBY.
func (p *pair) pipelines(ctx context.Context) (rows []Row, err error) {
	for _, g := range goalsOf {
		lua, incrby := fmt.Sprintf("lua-%s-%d", p.fsync, g.pipeline), fmt.Sprintf("incrby-%s-%d", p.fsync, g.pipeline)
		tail := g.showsTail && p.fsync == "everysec" && p.t.wantsRow("p99")
		if !p.t.wantsRow(lua) && !p.t.wantsRow(incrby) && !tail {
			continue
		}
		res, err := p.t.measure(ctx, fmt.Sprintf("pipeline %d", g.pipeline), p.t.options(p.fbfkv, "cincrby", g.pipeline),
			p.t.options(p.redis, "lua", g.pipeline), p.t.options(p.redis, "incrby", g.pipeline))
		if err != nil {
			return nil, err
		}
		where := fmt.Sprintf("pipeline %d, %s: CINCRBY against ", g.pipeline, p.fsync)
		if r := ratio(res[0], res[1], throughput); p.t.wantsRow(lua) {
			rows = append(rows, atLeast(lua, where+"the Lua recipe", g.lua[p.fsync], r, rates(r)))
		}
		if r := ratio(res[0], res[2], throughput); p.t.wantsRow(incrby) {
			rows = append(rows, atLeast(incrby, where+"INCRBY", g.incrby, r, rates(r)))
		}
		if r := ratio(res[0], res[1], p99); tail {
			rows = append(rows, atMost("p99", "pipeline 1, everysec: p99 against the Lua recipe's", 1, r, times(r)))
		}
	}
	return rows, nil
}

// hot compares increments of one counter.
func (p *pair) hot(ctx context.Context) ([]Row, error) {
	name := "hot-" + p.fsync
	if !p.t.wantsRow(name) {
		return nil, nil
	}
	a, b := p.t.options(p.fbfkv, "cincrby", 64), p.t.options(p.redis, "incrby", 64)
	a.Keys, b.Keys = "hot", "hot"
	a.KeyPrefix, b.KeyPrefix = "hot", "hot"
	res, err := p.t.measure(ctx, "hot counter", a, b)
	if err != nil {
		return nil, err
	}
	r := ratio(res[0], res[1], throughput)
	return []Row{atLeast(name, "one hot counter, pipeline 64, "+p.fsync+": against INCRBY", 1.5, r, rates(r))}, nil
}

// ping compares with a command that does nothing.
func (p *pair) ping(ctx context.Context) (rows []Row, err error) {
	for _, g := range goalsOf {
		name := fmt.Sprintf("ping-%d", g.pipeline)
		if !p.t.wantsRow(name) {
			continue
		}
		res, err := p.t.measure(ctx, name, p.t.options(p.fbfkv, "cincrby", g.pipeline), p.t.options(p.fbfkv, "ping", g.pipeline))
		if err != nil {
			return nil, err
		}
		r := ratio(res[0], res[1], throughput)
		rows = append(rows, atLeast(name, fmt.Sprintf("pipeline %d, everysec: against PING of as many bytes", g.pipeline), g.ping, r, rates(r)))
	}
	return rows, nil
}

// modes compares EXACT with APPROX.
func (p *pair) modes(ctx context.Context) (rows []Row, err error) {
	if !p.t.wantsGroup("approx") {
		return nil, nil
	}
	if err := p.fbfkv.do(ctx, "CTABLE", "CREATE", "approx", "PREFIX", "approx:", "MODE", "APPROX"); err != nil {
		return nil, err
	}
	for _, pipeline := range []int{1, 16, 64} {
		exact, approx := p.t.options(p.fbfkv, "cincrby", pipeline), p.t.options(p.fbfkv, "cincrby", pipeline)
		approx.KeyPrefix = "approx:"
		res, err := p.t.measure(ctx, "EXACT and APPROX", exact, approx)
		if err != nil {
			return nil, err
		}
		where := fmt.Sprintf("pipeline %d, everysec: EXACT against APPROX, ", pipeline)
		r := ratio(res[0], res[1], throughput)
		rows = append(rows, atLeast(fmt.Sprintf("approx-%d", pipeline), where+"throughput", 0.8, r, rates(r)))
		r = ratio(res[0], res[1], p99)
		rows = append(rows, atMost(fmt.Sprintf("approx-p99-%d", pipeline), where+"p99", 1.3, r, times(r)))
	}
	return rows, nil
}
