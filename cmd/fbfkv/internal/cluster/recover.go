package cluster

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	nodes "github.com/fbfkv/fbfkv/cluster"
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/operate"
)

const recoverHelp = `Makes a new directory from the remains of a cluster. Use it only if a majority of nodes is lost
for ever. Name the directories of all members that are left, on one machine, with no server
running; the one with the longest log counts. Operations that only lost nodes had are lost,
acknowledged or not; the last operations of the log may never have been acknowledged.

NEW must be empty or not exist. It belongs to no cluster and has new ids: start a server
with --cluster-enabled yes --dir NEW, name it first in fbfkv cluster create, and give
the other nodes empty directories. No server opens the old directories any more.

If the cluster has several shards, stop all of it and name the directories that are left of all its shards.
recover writes one subdirectory per shard, NEW/SHARD, and fbfkv cluster restore NEW makes a cluster of
them. The shards that have a majority lose nothing. On several machines, run it on each for whole shards,
and copy the results into one directory. If nothing of a shard is left, copy its backup there.`

func recoverCommand() operate.Subcommand {
	to := ""
	return operate.Subcommand{
		Use:   "recover DIR ... --to NEW [--yes]",
		Short: "make a directory from the remains when a majority is lost for ever", Long: recoverHelp,
		Args: cobra.MinimumNArgs(1),
		Flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&to, "to", "", "the new directory")
			_ = cmd.MarkFlagRequired("to")
		},
		Run: run(func(o *operator, dirs []string) error { return o.recover(dirs, to) }),
	}
}

func (o *operator) recover(dirs []string, to string) error {
	to, err := filepath.Abs(to)
	if err != nil {
		return err
	}
	longest, newest, named, err := o.ends(dirs)
	if err != nil {
		return err
	}
	many, missing := len(newest.Shards()) > 1 || len(longest) > 1, newest.Shards()
	var plan []string
	targets := make([]string, len(longest))
	for i, end := range longest {
		missing = slices.DeleteFunc(missing, func(id string) bool { return id == end.Shard })
		if targets[i] = to; many {
			targets[i] = filepath.Join(to, short(end.Shard))
		}
		done, err := nodes.CheckRecover(end, targets[i])
		switch {
		case err != nil:
			return err
		case done:
			plan = append(plan, fmt.Sprintf("The data of %s is in %s already.", end.Dir, targets[i]))
		default:
			plan = append(plan, fmt.Sprintf("The data of %s becomes %s, a directory of no cluster.", end.Dir,
				targets[i]))
		}
		if all := newest.Voters(end.Shard); many && named[end.Shard] < all {
			plan = append(plan, fmt.Sprintf("Of the shard %s, %d of %s are named: entries that only "+
				"others had are lost.", short(end.Shard), named[end.Shard], operate.Count(all, "node")))
		}
	}
	for _, id := range missing {
		plan = append(plan, fmt.Sprintf("None of these is of the shard %s: %s needs one of it as well.",
			short(id), to))
	}
	if err := o.Confirm(append(plan,
		"Operations that only lost nodes had are lost, though they may have been acknowledged.",
		fmt.Sprintf("No node of the cluster %s may be started again.",
			short(newest.Cluster)))...); err != nil {
		return err
	}
	for i, end := range longest {
		if err := nodes.Recover(end, targets[i], newest, slog.New(slog.DiscardHandler)); err != nil {
			return err
		}
	}
	for _, dir := range dirs {
		if err := nodes.Retire(dir); err != nil {
			return err
		}
	}
	switch {
	case !many:
		o.Say("%s is complete: start a server with --cluster-enabled yes --dir %s and name it first in "+
			"fbfkv cluster create", to, to)
	case len(missing) > 0:
		o.Say("%s has the shards of these directories, and lacks %s: recover these as well, or put a "+
			"backup there", to, shorts(missing))
	default:
		o.Say("%s is complete: start servers with empty directories and name them in fbfkv cluster restore %s", to, to)
	}
	return nil
}

// ends returns the end of the longest log of each shard, that of the node that knew the newest
// configuration, and how many nodes of each shard are named.
func (o *operator) ends(dirs []string) (longest []nodes.End, newest nodes.End, named map[string]int,
	err error) {
	named = map[string]int{}
	for i, dir := range dirs {
		end, err := nodes.EndOf(dir)
		switch {
		case err != nil:
			return nil, newest, nil, err
		case i > 0 && end.Cluster != newest.Cluster:
			return nil, newest, nil, fmt.Errorf("%s and %s belong to different clusters", dir, newest.Dir)
		}
		if i == 0 || end.Newer(newest) {
			newest = end
		}
		o.Say("%s: its log ends with entry %d of term %d; up to entry %d it is known to be committed", dir,
			end.Last, end.Term, end.Applied)
		named[end.Shard]++
		j := slices.IndexFunc(longest, func(e nodes.End) bool { return e.Shard == end.Shard })
		switch {
		case j < 0:
			longest = append(longest, end)
		case !longest[j].Longer(end):
			longest[j] = end
		}
	}
	return longest, newest, named, nil
}

// shorts is how ids are shown.
func shorts(ids []string) string {
	var list []string
	for _, id := range ids {
		list = append(list, short(id))
	}
	return strings.Join(list, ", ")
}
