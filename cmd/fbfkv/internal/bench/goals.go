package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// againstLength is how long it takes to compare the two servers: with loads in a
// round, loads without a warm-up, and profiles.
func againstLength(loads, short, profiles float64) func(*table) float64 {
	return func(t *table) float64 {
		seconds := 3 + float64(t.rounds)*t.seconds*(1.2*loads+short)
		if t.profile > 0 {
			seconds += profiles * (float64(t.profile) + 0.6)
		}
		return seconds
	}
}

// against measures everything that compares the two servers at one durability.
// If a part fails, the next ones get new servers.
func (t *table) against(ctx context.Context, fsync string) (err error) {
	p := &pair{t: t, fsync: fsync}
	defer func() { err = errors.Join(err, p.stop()) }()
	parts := []func(context.Context) error{p.pipelines, p.hot}
	if fsync == "everysec" {
		parts = append(parts, p.ping, p.modes, p.recipes, p.duplicates)
	}
	for _, part := range parts {
		if err := p.start(ctx); err != nil {
			return err
		}
		failed := part(ctx)
		if ctx.Err() != nil {
			return errInterrupted
		}
		if failed != nil {
			t.note(fsync, errors.Join(failed, p.stop()))
		}
	}
	return nil
}

// start starts both servers unless they run.
func (p *pair) start(ctx context.Context) (err error) {
	if p.fbfkv == nil {
		if p.fbfkv, err = startFBFKV(ctx, p.t.fbfkv, p.fsync, nil); err != nil {
			return err
		}
	}
	if p.redis == nil {
		if p.redis, err = startRedis(ctx, p.t.redis, p.fsync, p.t.redisArgs...); err != nil {
			return err
		}
	}
	p.t.compared = []*process{p.fbfkv, p.redis}
	return nil
}

// stop stops those that run.
func (p *pair) stop() (err error) {
	p.t.compared = nil
	for _, server := range []**process{&p.fbfkv, &p.redis} {
		if *server != nil {
			err = errors.Join(err, (*server).close())
			*server = nil
		}
	}
	return err
}

// rates says what a ratio of throughputs is made of.
func rates(r Ratio) string {
	return fmt.Sprintf("%.0fk and %.0fk operations/s", r.A/1000, r.B/1000)
}

// times says what a ratio of latencies is made of.
func times(r Ratio) string { return short(r.A) + " and " + short(r.B) }

// pipelines compares unique increments with the recipe and with plain INCRBY.
func (p *pair) pipelines(ctx context.Context) error {
	for _, g := range goalsOf {
		lua, incrby := fmt.Sprintf("lua-%s-%d", p.fsync, g.pipeline), fmt.Sprintf("incrby-%s-%d", p.fsync, g.pipeline)
		tail := g.showsTail && p.fsync == "everysec" && p.t.wantsRow("p99")
		if !p.t.wantsRow(lua) && !p.t.wantsRow(incrby) && !tail {
			continue
		}
		res, err := p.t.measure(ctx, fmt.Sprintf("pipeline %d", g.pipeline), p.t.options(p.fbfkv, "cincrby", g.pipeline),
			p.t.options(p.redis, "lua", g.pipeline), p.t.options(p.redis, "incrby", g.pipeline))
		if err != nil {
			return err
		}
		where := fmt.Sprintf("pipeline %d, %s: CINCRBY against ", g.pipeline, p.fsync)
		if r := ratio(res[0], res[1], throughput); p.t.wantsRow(lua) {
			p.t.emit(atLeast(lua, where+"the Lua recipe", g.lua[p.fsync], r, rates(r)))
		}
		if r := ratio(res[0], res[2], throughput); p.t.wantsRow(incrby) {
			p.t.emit(atLeast(incrby, where+"INCRBY", g.incrby, r, rates(r)))
		}
		if r := ratio(res[0], res[1], p99); tail {
			p.t.emit(atMost("p99", "pipeline 1, everysec: p99 against the Lua recipe's", 1, r, times(r)))
		}
		if err := p.t.profileWhile(ctx, p.fbfkv, p.t.options(p.fbfkv, "cincrby", g.pipeline), p.fsync, res[0]); err != nil {
			return err
		}
	}
	return nil
}

// hot compares increments of one counter.
func (p *pair) hot(ctx context.Context) error {
	name := "hot-" + p.fsync
	if !p.t.wantsRow(name) {
		return nil
	}
	a, b := p.t.options(p.fbfkv, "cincrby", 64), p.t.options(p.redis, "incrby", 64)
	a.Keys, b.Keys = "hot", "hot"
	a.KeyPrefix, b.KeyPrefix = "hot", "hot"
	res, err := p.t.measure(ctx, "hot counter", a, b)
	if err != nil {
		return err
	}
	r := ratio(res[0], res[1], throughput)
	p.t.emit(atLeast(name, "one hot counter, pipeline 64, "+p.fsync+": against INCRBY", 1.5, r, rates(r)))
	return p.t.profileWhile(ctx, p.fbfkv, a, "one hot counter, "+p.fsync, res[0])
}

// ping compares with a command that does nothing, and the same with plain INCRBY on the
// same server: what finding a counter and logging it leave of the distance.
func (p *pair) ping(ctx context.Context) error {
	for _, g := range goalsOf {
		name, plain := fmt.Sprintf("ping-%d", g.pipeline), fmt.Sprintf("ping-incrby-%d", g.pipeline)
		if !p.t.wantsAny(name, plain) {
			continue
		}
		ping := p.t.options(p.fbfkv, "ping", g.pipeline)
		res, err := p.t.measure(ctx, name, p.t.options(p.fbfkv, "cincrby", g.pipeline), ping, p.t.options(p.fbfkv, "incrby", g.pipeline))
		if err != nil {
			return err
		}
		where := fmt.Sprintf("pipeline %d, everysec: against PING of as many bytes", g.pipeline)
		if r := ratio(res[0], res[1], throughput); p.t.wantsRow(name) {
			p.t.emit(atLeast(name, where, g.ping, r, rates(r)))
		}
		if r := ratio(res[2], res[1], throughput); p.t.wantsRow(plain) {
			p.t.emit(noGoal(plain, where+", fbfkv's own INCRBY", r, rates(r)))
		}
		if err := p.t.profileWhile(ctx, p.fbfkv, ping, "PING", res[1]); err != nil {
			return err
		}
	}
	return nil
}

// modes compares EXACT with APPROX, each on a new server of its own: what EXACT
// does in the background is its own affair, and both remember as much.
func (p *pair) modes(ctx context.Context) (err error) {
	if !p.t.wantsAny(append(atDepths("approx", depths...), atDepths("approx-p99", depths...)...)...) {
		return nil
	}
	before := p.t.compared
	servers := make(map[string]*process)
	defer func() {
		p.t.compared = before
		for _, server := range servers {
			err = errors.Join(err, server.close())
		}
	}()
	for _, mode := range []string{"EXACT", "APPROX"} {
		server, err := startFBFKV(ctx, p.t.fbfkv, p.fsync, nil)
		if err != nil {
			return err
		}
		server.name = "fbfkv " + mode
		servers[mode] = server
		p.t.compared = append(slices.Clone(p.t.compared), server)
		if err := server.do(ctx, "CTABLE", "ALTER", "default", "MODE", mode); err != nil {
			return err
		}
	}
	for _, pipeline := range depths {
		rate, tail := fmt.Sprintf("approx-%d", pipeline), fmt.Sprintf("approx-p99-%d", pipeline)
		if !p.t.wantsAny(rate, tail) {
			continue
		}
		exact, approx := p.t.options(servers["EXACT"], "cincrby", pipeline), p.t.options(servers["APPROX"], "cincrby", pipeline)
		res, err := p.t.measure(ctx, "EXACT and APPROX", exact, approx)
		if err != nil {
			return err
		}
		where := fmt.Sprintf("pipeline %d, everysec: EXACT against APPROX, ", pipeline)
		if r := ratio(res[0], res[1], throughput); p.t.wantsRow(rate) {
			p.t.emit(atLeast(rate, where+"throughput", 0.8, r, rates(r)))
		}
		if r := ratio(res[0], res[1], p99); p.t.wantsRow(tail) {
			p.t.emit(atMost(tail, where+"p99", 1.3, r, times(r)))
		}
		if pipeline == 64 {
			if err := p.t.profileWhile(ctx, servers["APPROX"], approx, "APPROX, everysec", res[1]); err != nil {
				return err
			}
		}
	}
	return nil
}
