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
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/operate"
)

const moveHelp = `Moves partitions of the cluster to which the server ANY belongs to a shard, which is named by the
beginning of its id, and waits until they have arrived. Clients are served meanwhile: requests wait for a
moment while their partition is handed over. The nodes carry out the move: it goes on if this command ends.

With --cancel, partitions that have not arrived stay where they are, and are served there, also if one of the two shards
is lost, and whatever the other one has received. A partition that has arrived stays at the new shard.`

const rebalanceHelp = `Moves partitions of the cluster to which the server ANY belongs until each shard has as many as any
other, or one more. With --empty SHARD that shard gets none, so that its nodes can be removed.`

func moveCommand() operate.Subcommand {
	var partitions, to string
	var cancel bool
	return operate.Subcommand{
		Use:   "move ANY --partitions A-B[,C...] {--to SHARD|--cancel} [--yes]",
		Short: "move partitions to a shard, or take that back", Long: moveHelp, Args: cobra.ExactArgs(1),
		Flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&partitions, "partitions", "", "the partitions: numbers and ranges")
			cmd.Flags().StringVar(&to, "to", "", "the shard to move them to")
			cmd.Flags().BoolVar(&cancel, "cancel", false, "take back the moves that have not arrived")
			_ = cmd.MarkFlagRequired("partitions")
			cmd.MarkFlagsOneRequired("to", "cancel")
			cmd.MarkFlagsMutuallyExclusive("to", "cancel")
		},
		Run: run(func(o *operator, args []string) error {
			c, err := o.member(args[0])
			if err != nil {
				return err
			}
			list, err := parsePartitions(partitions, c.Partitions)
			if err != nil {
				return err
			}
			if cancel {
				return o.stay(args[0], c, list)
			}
			shard, err := findShard(c, to)
			if err != nil {
				return err
			}
			return o.move(args[0], c, map[string][]int{shard: list})
		}),
	}
}

func rebalanceCommand() operate.Subcommand {
	empty := ""
	return operate.Subcommand{
		Use:   "rebalance ANY [--empty SHARD] [--yes]",
		Short: "divide the partitions evenly among the shards", Long: rebalanceHelp, Args: cobra.ExactArgs(1),
		Flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&empty, "empty", "", "a shard to take all partitions from")
		},
		Run: run(func(o *operator, args []string) error {
			c, err := o.member(args[0])
			if err != nil {
				return err
			}
			without := ""
			if empty != "" {
				if without, err = findShard(c, empty); err != nil {
					return err
				}
				if !slices.ContainsFunc(c.Shards, func(s nodes.Shard) bool {
					return s.ID != without && s.Founder != ""
				}) {
					return fmt.Errorf("the shard %s is the only one that can have partitions: add another "+
						"one first, with fbfkv cluster add-node --new-shard", short(without))
				}
			}
			for {
				if err := o.move(args[0], c, balance(c, without)); err != nil || without == "" {
					return err
				}
				if c, err = o.member(args[0]); err != nil || c.Shard(without) == nil ||
					c.Shard(without).Count() == 0 {
					return err
				}
			} // partitions on their way to the shard to be emptied have arrived
		}),
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
			return nil, fmt.Errorf("--partitions: %.40q is not a partition or range of 0 to %d", part,
				partitions-1)
		}
		for p := from; p <= to; p++ {
			list = append(list, p)
		}
	}
	return list, nil
}

// balance says which partitions move to which shard, so that all shards, except one to be emptied,
// have the same number, or one more. A partition on its way counts as arrived.
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
				return fmt.Errorf("partition %d is on its way to the shard %s: move it from there when it "+
					"has arrived, or take that back with --cancel", p, short(m.To))
			}
		}
		list := slices.DeleteFunc(slices.Clone(moves[s.ID]), func(p int) bool {
			return c.Owner(p).ID == s.ID || c.Move(p) != nil
		})
		if len(list) > 0 {
			slices.Sort(list)
			plan = append(plan, fmt.Sprintf("To the shard %s: %s, %s.", short(s.ID),
				operate.Count(len(list), "partition"), spans(nodes.Ranges(list))))
		}
		moves[s.ID] = list
	}
	if len(plan) == 0 && len(c.Moves) == 0 {
		o.Say("nothing is to be moved")
		return nil
	}
	if len(plan) > 0 {
		if err := o.Confirm(plan...); err != nil {
			return err
		}
	}
	var asked []nodes.Move
	for shard, list := range moves {
		if len(list) == 0 {
			continue
		}
		if err := o.configure(c, nodes.VerbMove, nodes.MoveRequest{Partitions: list, To: shard}); err != nil {
			return err
		}
		for _, p := range list {
			asked = append(asked, nodes.Move{Partition: p, To: shard})
		}
	}
	return o.await(existing, asked)
}

// await waits until partitions, and all others that are on their way, have arrived, or were taken back.
func (o *operator) await(existing string, left []nodes.Move) error {
	progress := bar.New(o.Stderr)
	defer progress.Clear()
	var stayed []nodes.Move
	all, arrived, last := len(left), 0, time.Now()
	for first := true; first || len(left) > 0; time.Sleep(operate.RetryPeriod) {
		now, err := o.member(existing)
		if err != nil {
			if time.Since(last) > o.Patience {
				return err
			}
			continue
		}
		first = false
		for _, m := range now.Moves {
			if !slices.ContainsFunc(left, func(o nodes.Move) bool {
				return o.Partition == m.Partition && o.To == m.To
			}) {
				left, all, last = append(left, m), all+1, time.Now()
			}
		}
		var still []nodes.Move
		for _, m := range left {
			move := now.Move(m.Partition)
			switch {
			case move != nil && move.To == m.To:
				still = append(still, m)
			case now.Owner(m.Partition).ID != m.To:
				stayed = append(stayed, m)
			default:
				if arrived++; !bar.IsTerminal(o.Out) {
					o.Say("partition %d is in the shard %s: %d of %d", m.Partition, short(m.To), arrived, all)
				}
			}
		}
		if len(still) < len(left) {
			left, last = still, time.Now()
		}
		progress.Set("partitions", false, int64(all-len(left)), int64(all))
		if time.Since(last) > o.Patience {
			if err := o.led(now); err != nil {
				return err
			}
			last = time.Now()
		}
	}
	progress.Clear()
	if len(stayed) > 0 {
		return fmt.Errorf("not moved: %s; another move --cancel took that back", partitionsOf(stayed))
	}
	o.Say("all partitions are in place")
	return nil
}

// partitionsOf names the partitions of moves.
func partitionsOf(moves []nodes.Move) string {
	var list []int
	for _, m := range moves {
		list = append(list, m.Partition)
	}
	slices.Sort(list)
	if len(list) == 1 {
		return fmt.Sprint("partition ", list[0])
	}
	return "partitions " + spans(nodes.Ranges(list))
}

// stay takes back the moves of partitions. That is safe whatever has become of the shards: the
// configuration decides who has a partition, and says so once.
func (o *operator) stay(existing string, c *nodes.Configuration, list []int) error {
	var moves []nodes.Move
	for _, m := range c.Moves {
		if slices.Contains(list, m.Partition) {
			moves = append(moves, m)
		}
	}
	if len(moves) == 0 {
		o.Say("none of these partitions is on its way")
		return nil
	}
	var plan []string
	for _, s := range c.Shards {
		if of := slices.DeleteFunc(slices.Clone(moves),
			func(m nodes.Move) bool { return m.From != s.ID }); len(of) > 0 {
			plan = append(plan, fmt.Sprintf("In the shard %s stay: %s. Copies of them at other shards "+
				"count for nothing.", short(s.ID), partitionsOf(of)))
		}
	}
	if err := o.Confirm(plan...); err != nil {
		return err
	}
	if err := o.configure(c, nodes.VerbStay, nodes.MoveRequest{Partitions: list}); err != nil {
		return err
	}
	var now *nodes.Configuration
	if err := o.Wait("the moves to end", func() (ok bool, err error) {
		now, err = o.member(existing)
		return err == nil &&
			!slices.ContainsFunc(moves, func(m nodes.Move) bool { return slices.Contains(now.Moves, m) }), err
	}); err != nil {
		return err
	}
	arrived := slices.DeleteFunc(slices.Clone(moves), func(m nodes.Move) bool {
		return now.Owner(m.Partition).ID == m.From
	})
	if len(arrived) > 0 {
		return fmt.Errorf("too late for %s: arrived already; fbfkv cluster move --to moves back",
			partitionsOf(arrived))
	}
	o.Say("taken back: %s", partitionsOf(moves))
	return nil
}

// led refuses to go on waiting for moves of a shard that has no leader.
func (o *operator) led(c *nodes.Configuration) error {
	led := map[string]bool{}
	for _, m := range c.Moves {
		for _, shard := range []string{m.From, m.To} {
			if !led[shard] && leading(c, o.survey(o.addresses(c.Of(shard)))) == nil {
				return fmt.Errorf("partition %d is still on its way, and the shard %s has no leader: the "+
					"move goes on by itself when that has one; "+
					"see fbfkv cluster status, or take it back with --cancel", m.Partition, short(shard))
			}
			led[shard] = true
		}
	}
	return nil
}
