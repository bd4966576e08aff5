package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	nodes "github.com/fbfkv/fbfkv/cluster"
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/bar"
)

const moveHelp = `Moves partitions of the cluster to which the server ANY belongs to a shard, which is named by the
beginning of its id, and waits until they are there. Clients go on meanwhile: each partition is out of reach
for a moment only. The nodes see to the move by themselves: it goes on when this command is ended.`

const rebalanceHelp = `Moves partitions of the cluster to which the server ANY belongs until each shard has as many as any
other, or one more. With --empty SHARD that shard gets none, so that its nodes can be removed.`

func moveCommand() subcommand {
	var partitions, to string
	return subcommand{
		use:   "move ANY --partitions A-B[,C...] --to SHARD [--yes]",
		short: "move partitions to a shard", long: moveHelp, args: cobra.ExactArgs(1),
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&partitions, "partitions", "", "the partitions: numbers and ranges")
			cmd.Flags().StringVar(&to, "to", "", "the shard that is to have them")
			_ = cmd.MarkFlagRequired("partitions")
			_ = cmd.MarkFlagRequired("to")
		},
		run: func(o *operator, args []string) error {
			c, err := o.member(args[0])
			if err != nil {
				return err
			}
			list, err := parsePartitions(partitions, c.Partitions)
			if err != nil {
				return err
			}
			shard, err := findShard(c, to)
			if err != nil {
				return err
			}
			return o.move(args[0], c, map[string][]int{shard: list})
		},
	}
}

func rebalanceCommand() subcommand {
	empty := ""
	return subcommand{
		use:   "rebalance ANY [--empty SHARD] [--yes]",
		short: "divide the partitions evenly among the shards", long: rebalanceHelp, args: cobra.ExactArgs(1),
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&empty, "empty", "", "a shard that is to have no partitions")
		},
		run: func(o *operator, args []string) error {
			c, err := o.member(args[0])
			if err != nil {
				return err
			}
			without := ""
			if empty != "" {
				if without, err = findShard(c, empty); err != nil {
					return err
				}
			}
			for {
				if err := o.move(args[0], c, balance(c, without)); err != nil || without == "" {
					return err
				}
				if c, err = o.member(args[0]); err != nil || c.Shard(without) == nil || c.Shard(without).Count() == 0 {
					return err
				}
			} // what was on its way to the shard that is to be empty is there now
		},
	}
}

// parsePartitions reads a list of partitions.
func parsePartitions(text string, partitions int) (list []int, err error) {
	for _, part := range strings.Split(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err1 := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err1 != nil || err2 != nil || from < 0 || to < from || to >= partitions {
			return nil, fmt.Errorf("--partitions: %.40q is no partition or range of those from 0 to %d", part, partitions-1)
		}
		for p := from; p <= to; p++ {
			list = append(list, p)
		}
	}
	return list, nil
}

// balance says which partitions are to move to which shard, so that all but one that is to be empty have the same
// number, or one more. What is on its way counts as there.
func balance(c *nodes.Configuration, empty string) map[string][]int {
	has := map[string][]int{}
	var shards []string
	for _, s := range c.Shards {
		if s.Founder != "" {
			shards = append(shards, s.ID)
		}
		for p := range c.Partitions {
			if s.Has(p) {
				at := s.ID
				if m := c.Move(p); m != nil {
					at = m.To
				}
				has[at] = append(has[at], p)
			}
		}
	}
	takers := slices.DeleteFunc(slices.Clone(shards), func(id string) bool { return id == empty })
	moves := map[string][]int{}
	for len(takers) > 0 {
		count := func(a, b string) int { return cmp.Compare(len(has[a]), len(has[b])) }
		to, from := slices.MinFunc(takers, count), slices.MaxFunc(shards, count)
		if len(has[empty]) > 0 {
			from = empty
		} else if len(has[from]) <= len(has[to])+1 {
			break
		}
		i := len(has[from]) - 1
		for i >= 0 && c.Move(has[from][i]) != nil {
			i-- // it is on its way there
		}
		if i < 0 {
			break
		}
		p := has[from][i]
		has[from] = slices.Delete(has[from], i, i+1)
		has[to] = append(has[to], p)
		moves[to] = append(moves[to], p)
	}
	return moves
}

// move has partitions move, and waits until they and all others that were on their way are there.
func (o *operator) move(existing string, c *nodes.Configuration, moves map[string][]int) error {
	var plan []string
	for _, s := range c.Shards {
		for _, p := range moves[s.ID] {
			if m := c.Move(p); m != nil && m.To != s.ID {
				return fmt.Errorf("partition %d is on its way to the shard %s: move it from there when it has arrived", p, short(m.To))
			}
		}
		list := slices.DeleteFunc(slices.Clone(moves[s.ID]), func(p int) bool { return c.Owner(p).ID == s.ID || c.Move(p) != nil })
		if len(list) > 0 {
			slices.Sort(list)
			plan = append(plan, fmt.Sprintf("To the shard %s: %s, %s.", short(s.ID), count(len(list), "partition"), spans(nodes.Ranges(list))))
		}
		moves[s.ID] = list
	}
	if len(plan) == 0 && len(c.Moves) == 0 {
		o.say("nothing is to be moved")
		return nil
	}
	if len(plan) > 0 {
		if err := o.confirm(plan...); err != nil {
			return err
		}
	}
	for shard, list := range moves {
		if len(list) > 0 {
			if err := o.configure(c, nodes.VerbMove, nodes.MoveRequest{Partitions: list, To: shard}); err != nil {
				return err
			}
		}
	}
	progress := bar.New(o.stderr)
	defer progress.Clear()
	most, last := 0, time.Now()
	for left := -1; left != 0; time.Sleep(retryPeriod) {
		now, err := o.member(existing)
		if err != nil {
			if time.Since(last) > o.patience {
				return err
			}
			continue
		}
		if n := len(now.Moves); n != left {
			left, last = n, time.Now()
			most = max(most, n)
		}
		progress.Set("partitions", false, int64(most-left), int64(most))
		if time.Since(last) > o.patience {
			if err := o.led(now); err != nil {
				return err
			}
			last = time.Now()
		}
	}
	progress.Clear()
	o.say("all partitions are where they are to be")
	return nil
}

// led refuses to go on waiting for moves of a shard that has no leader.
func (o *operator) led(c *nodes.Configuration) error {
	led := map[string]bool{}
	for _, m := range c.Moves {
		for _, shard := range []string{m.From, m.To} {
			if !led[shard] && leading(c, o.survey(o.addresses(c.Of(shard)))) == nil {
				return fmt.Errorf("partition %d is still on its way, and the shard %s has no leader: the move goes on by itself when that has one; "+
					"see fbfkv cluster status", m.Partition, short(shard))
			}
			led[shard] = true
		}
	}
	return nil
}
