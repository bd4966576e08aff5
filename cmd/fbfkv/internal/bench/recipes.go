package bench

import (
	"context"
	"errors"
	"fmt"
)

// setDepths are the pipeline depths at which other idempotent recipes are compared.
var setDepths = []int{16, 64}

// setRecipes are the recipes that keep the window's opids in one key: a set, which any
// Redis has, and a Bloom filter, which needs a module.
var setRecipes = []struct {
	workload, what string
	command        string // that the server must have
}{
	{"sadd", "the recipe with a set", "SADD"},
	{"bfadd", "the recipe with a Bloom filter", "BF.ADD"},
}

// setGoals are how many times such a recipe's rate CINCRBY must reach, by pipeline depth.
var setGoals = map[int]float64{16: 2.5, 64: 4}

// recipes compares with the best other idempotent recipes.
func (p *pair) recipes(ctx context.Context) error {
	for _, recipe := range setRecipes {
		if !p.t.wantsAny(atDepths(recipe.workload, setDepths...)...) {
			continue
		}
		has, err := p.redis.hasCommand(ctx, recipe.command)
		if err != nil {
			return err
		}
		if !has {
			if len(p.t.rows) > 0 {
				p.t.note(recipe.workload, errors.New("the redis-server has no "+recipe.command+": --redis-arg can load a module"))
			}
			continue
		}
		for _, pipeline := range setDepths {
			name := fmt.Sprintf("%s-%d", recipe.workload, pipeline)
			if !p.t.wantsRow(name) {
				continue
			}
			res, err := p.t.measure(ctx, name, p.t.options(p.fbfkv, "cincrby", pipeline), p.t.options(p.redis, recipe.workload, pipeline))
			if err != nil {
				return err
			}
			r := ratio(res[0], res[1], throughput)
			p.t.emit(atLeast(name, fmt.Sprintf("pipeline %d, everysec: CINCRBY against %s", pipeline, recipe.what), setGoals[pipeline], r, rates(r)))
		}
	}
	return nil
}

// hasCommand reports whether the server knows a command.
func (p *process) hasCommand(ctx context.Context, name string) (bool, error) {
	c := p.target.client()
	defer c.Close()
	reply, err := c.Do(ctx, "COMMAND", "INFO", name).Slice()
	if err != nil {
		return false, fmt.Errorf("%s: COMMAND INFO: %w", p.name, err)
	}
	return len(reply) == 1 && reply[0] != nil, nil
}
