package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	nodes "github.com/fbfkv/fbfkv/cluster"
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/operate"
)

const statusHelp = `Shows the nodes of the cluster to which the server ANY belongs: which one leads, how far
each one is in the log, and what is wrong, with the command that helps. The exit status
is 0 if there is a leader and every node is well, otherwise 1.`

func statusCommand() operate.Subcommand {
	return operate.Subcommand{
		Use:   "status ANY",
		Short: "show the nodes of a cluster", Long: statusHelp, Args: cobra.ExactArgs(1),
		Run: run(func(o *operator, args []string) error { return o.status(args[0]) }),
	}
}

// status shows a cluster.
func (o *operator) status(existing string) error {
	c, err := o.member(existing)
	if err != nil {
		return err
	}
	all := o.survey(o.addresses(c.Members))
	o.Say("cluster %s, %s, %s, %d partitions, format level %d, configuration %d",
		short(c.Cluster), operate.Count(len(c.Members), "node"), operate.Count(len(c.Shards), "shard"), c.Partitions,
		c.Format, c.Version)
	var ills, leaderless []string
	for i := range c.Shards {
		shard := &c.Shards[i]
		if len(c.Shards) > 1 {
			o.Say("shard %s, %s", short(shard.ID), held(c, shard))
		}
		var of []asked
		for j, m := range c.Members {
			if m.Shard == shard.ID {
				of = append(of, all[j])
			}
		}
		ills = append(ills, o.table(c, c.Of(shard.ID), of)...)
		leads, first := leading(c, of), c.First(shard.ID)
		switch {
		case leads == nil:
			leaderless = append(leaderless, short(shard.ID))
		case first != nil && leads.Self.ID != first.ID &&
			slices.ContainsFunc(of, func(a asked) bool { return a.err == nil && a.Self.ID == first.ID }):
			o.Say("leadership returns to %s once that node has been well for half a minute", first.Address())
		}
	}
	for _, m := range c.Moves {
		waits := ""
		if slices.Contains(leaderless, short(m.From)) || slices.Contains(leaderless, short(m.To)) {
			waits = "; it waits for a leader, or fbfkv cluster move --cancel takes that back"
		}
		o.Say("partition %d is on its way from the shard %s to %s%s", m.Partition, short(m.From), short(m.To),
			waits)
	}
	meta := metaIlls(c, all)
	for _, line := range slices.Concat(ills, meta, differences(all), levelHeld(c)) {
		o.Say("%s", line)
	}
	switch {
	case len(leaderless) > 0 && len(c.Shards) == 1:
		return errors.New("the cluster has no leader: it serves no clients until a majority of its nodes " +
			"runs; if one is lost for ever, see fbfkv cluster recover")
	case len(leaderless) > 0:
		return fmt.Errorf("%s without a leader: %s; it serves no clients until a majority of the shard's "+
			"nodes runs; "+
			"if one is lost for ever, see fbfkv cluster recover",
			operate.Count(len(leaderless), "shard"), strings.Join(leaderless, ", "))
	case len(ills) > 0:
		return fmt.Errorf("%d of %d nodes are not well", len(ills), len(c.Members))
	case len(meta) > 0:
		return errors.New("the cluster's configuration cannot be changed at the moment")
	}
	return nil
}

// held says which part of the data a shard has.
func held(c *nodes.Configuration, s *nodes.Shard) string {
	if s.Count() == 0 {
		return "no partitions"
	}
	var slots []string
	for _, r := range s.Partitions {
		slots = append(slots, span(c.Slots(r)))
	}
	return fmt.Sprintf("partitions %s, slots %s", spans(s.Partitions), strings.Join(slots, " "))
}

// spans are ranges of partitions as they are shown.
func spans(ranges []nodes.Range) string {
	var all []string
	for _, r := range ranges {
		all = append(all, span(r.First, r.Last))
	}
	return strings.Join(all, " ")
}

// span is a range as it is shown.
func span(first, last int) string {
	if first == last {
		return strconv.Itoa(first)
	}
	return fmt.Sprintf("%d-%d", first, last)
}

// levelHeld says which nodes hold the cluster's format level back.
func levelHeld(c *nodes.Configuration) []string {
	newest := c.Format
	for _, m := range c.Members {
		newest = max(newest, m.Level)
	}
	var old []string
	for _, m := range c.Members {
		if m.Level < newest {
			old = append(old, m.Address())
		}
	}
	if len(old) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("the format level rises to %d once a newer program runs on %s", newest,
		strings.Join(old, ", "))}
}

// metaIlls says what is wrong with the meta group.
func metaIlls(c *nodes.Configuration, all []asked) []string {
	for _, a := range all {
		if a.err == nil && a.Cluster == c.Cluster && a.Meta.Leader != "" {
			return nil
		}
	}
	return []string{"the meta group has no leader: clients are served, but the configuration cannot be " +
		"changed until a majority of its voters runs"}
}

// table prints a line for each member of a shard, and returns one for each that is not well.
func (o *operator) table(c *nodes.Configuration, members []nodes.Member, all []asked) (ills []string) {
	commit, well, voters := uint64(0), 0, 0
	for i, a := range all {
		there := a.err == nil && a.State != nil && a.Cluster == c.Cluster
		if there {
			commit = max(commit, a.State.Commit)
		}
		if members[i].Voter {
			voters++
			if there && a.Self.ID == members[i].ID && a.State.Aside == "" {
				well++
			}
		}
	}
	replaceable := 2*well > voters
	w := o.Table("node\tid\trole\tterm\tapplied\tbehind\tversion")
	for i, m := range members {
		a := all[i]
		role, ill := judgeMember(m, a, c, replaceable)
		if ill != "" {
			ills = append(ills, m.Address()+" "+ill)
		}
		if a.err != nil || a.State == nil || a.Self.ID != m.ID {
			fmt.Fprintf(w, "%s\t%s\t%s\t-\t-\t-\t%s\n", m.Address(), short(m.ID), role, cmp.Or(a.Version, "-"))
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%d\t%s\n", m.Address(), short(m.ID), role, a.State.Term,
			a.State.Applied,
			commit-min(commit, a.State.Applied), a.Version)
	}
	w.Flush()
	return ills
}

// judgeMember returns what a member is at present, and what is wrong with it and helps. It is
// replaceable while its shard has a majority.
func judgeMember(m nodes.Member, a asked, c *nodes.Configuration, replaceable bool) (role, ill string) {
	switch {
	case a.err != nil && !replaceable:
		return "lost", fmt.Sprintf("is lost: %v; start it again: its shard has no majority, without which "+
			"it cannot be replaced", a.err)
	case a.err != nil:
		return "lost", fmt.Sprintf("is lost: %v; start it again, or replace it: fbfkv cluster replace", a.err)
	case a.Self.ID != m.ID && a.Cluster == "" && !replaceable:
		return "lost", "answers with an empty directory: it lost its own, or another server has its " +
			"address; its shard has no majority, without which it cannot be replaced"
	case a.Self.ID == m.ID && a.Cluster == "":
		return "joining", "was admitted and has not joined: run create, add-node or replace again if none " +
			"is running, or remove-node"
	case a.Self.ID != m.ID && a.Cluster == "":
		return "lost", "answers with an empty directory: it lost its own, or another server has its " +
			"address; fbfkv cluster replace ANY " +
			m.Address() + " " + m.Address()
	case a.Self.ID != m.ID || a.Cluster != c.Cluster:
		return "lost", fmt.Sprintf("answers as the node %s of the cluster %s: another server has its address",
			short(a.Self.ID), short(a.Cluster))
	case a.State == nil:
		return "starting", "is starting"
	case a.State.Aside != "":
		return "aside", "takes no part: " + a.State.Aside
	case !m.Voter:
		return "catching up",
			"has no vote yet: run add-node or replace again if none is running, or remove-node"
	case a.State.Ready:
		return "leader", ""
	case a.State.Leader == "":
		return a.State.Role, "sees no leader"
	case a.State.Behind > tooFarBehind.Milliseconds():
		why := ""
		if a.State.DiskFull {
			why = ": its disk is full"
		}
		return a.State.Role,
			fmt.Sprintf("has lacked committed entries for %v%s; it does not count for the majority",
				(time.Duration(a.State.Behind) * time.Millisecond).Round(time.Second), why)
	}
	return a.State.Role, ""
}

// tooFarBehind is for how long a node that is well may lack something.
const tooFarBehind = 5 * time.Second

// differences are lines about settings and users that should be equal.
func differences(all []asked) (lines []string) {
	for what, of := range map[string]func(a asked) string{
		"settings": func(a asked) string { return a.Settings }, "users": func(a asked) string {
			return a.Users
		},
	} {
		values := map[string]bool{}
		for _, a := range all {
			if a.err == nil {
				values[of(a)] = true
			}
		}
		if len(values) > 1 {
			lines = append(lines, fmt.Sprintf("the nodes differ in their %s: each node has its own, so "+
				"change them on all", what))
		}
	}
	slices.Sort(lines)
	return lines
}
