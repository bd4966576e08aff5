package cluster

import (
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	nodes "github.com/fbfkv/fbfkv/cluster"
)

const recoverHelp = `For a majority of nodes that is lost for ever, and only then: makes a new directory of what
is left. Name the directories of all members that are left, on one machine, with no
server running; the one with the longest log counts. What only lost nodes had is lost,
acknowledged or not; what the log ends with may never have been acknowledged.

NEW must be empty or not exist. It belongs to no cluster and has new ids: start a server
with --cluster-enabled yes --dir NEW, name it first in fbfkv cluster create, and give
the other nodes empty directories. No server takes the old directories any more.`

func recoverCommand() subcommand {
	to := ""
	return subcommand{
		use:   "recover DIR ... --to NEW [--yes]",
		short: "make a directory of what is left of a majority lost for ever", long: recoverHelp, args: cobra.MinimumNArgs(1),
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&to, "to", "", "the new directory")
			_ = cmd.MarkFlagRequired("to")
		},
		run: func(o *operator, dirs []string) error { return o.recover(dirs, to) },
	}
}

func (o *operator) recover(dirs []string, to string) error {
	var longest nodes.End
	for _, dir := range dirs {
		end, err := nodes.EndOf(dir)
		switch {
		case err != nil:
			return err
		case longest.Dir != "" && end.Cluster != longest.Cluster:
			return fmt.Errorf("%s and %s belong to different clusters", dir, longest.Dir)
		}
		o.say("%s: its log ends with entry %d of term %d; up to entry %d it is known to be committed", dir, end.Last, end.Term, end.Applied)
		if longest.Dir == "" || !longest.Longer(end) {
			longest = end
		}
	}
	if err := o.confirm(
		fmt.Sprintf("What %s has becomes %s, a directory of no cluster.", longest.Dir, to),
		"Operations that only lost nodes had are lost, though they may have been acknowledged.",
		fmt.Sprintf("No node of the cluster %s may be started again.", short(longest.Cluster))); err != nil {
		return err
	}
	if err := nodes.Recover(longest.Dir, to, slog.New(slog.DiscardHandler)); err != nil {
		return err
	}
	for _, dir := range dirs {
		if err := nodes.Retire(dir); err != nil {
			return err
		}
	}
	o.say("%s is complete: start a server with --cluster-enabled yes --dir %s and name it first in fbfkv cluster create", to, to)
	return nil
}
