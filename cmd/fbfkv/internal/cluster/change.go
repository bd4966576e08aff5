package cluster

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	nodes "github.com/fbfkv/fbfkv/cluster"
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/operate"
)

const addHelp = `Adds running servers to the cluster of the server EXISTING. Each must have been started with
--cluster-enabled yes and an empty directory. Each gets a copy of a shard's data and votes
once it has caught up; the cluster serves meanwhile. They join the shard with the fewest
nodes, unless --shard names another by the beginning of its id (see fbfkv cluster status).

With --new-shard the servers form a shard of their own, which has no partitions until fbfkv cluster
rebalance or move gives it some.`

const removeHelp = `Removes the node NODE from the cluster to which the server ANY belongs. NODE may be
lost. If it leads, another node leads first. A server that was removed stops; it can only
come back with an empty directory. The last node of a shard can be removed once the shard has no
partitions: fbfkv cluster rebalance ANY --empty SHARD.`

const replaceHelp = `Puts the server NEW in the place of the node OLD of the cluster to which the server ANY
belongs. OLD may be lost; if it is not, it stops. NEW was started with --cluster-enabled
yes and an empty directory. It catches up before OLD is removed, and votes afterwards.

A node that came back with an empty directory at the address that it had before is
another node: replace ANY OLD OLD. Until it has caught up the cluster has one node less.`

func addCommand() operate.Subcommand {
	var shard string
	var begin bool
	return operate.Subcommand{
		Use:   "add-node NEW[,NEW...] EXISTING [--shard ID|--new-shard] [--yes]",
		Short: "make servers nodes of a cluster", Long: addHelp, Args: cobra.ExactArgs(2),
		Flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&shard, "shard", "", "the shard whose replicas they become (default the "+
				"one with the fewest nodes)")
			cmd.Flags().BoolVar(&begin, "new-shard", false, "they form a new shard")
			cmd.MarkFlagsMutuallyExclusive("shard", "new-shard")
		},
		Run: run(func(o *operator, args []string) error {
			return o.addNodes(strings.Split(args[0], ","), args[1], shard, begin)
		}),
	}
}

func removeCommand() operate.Subcommand {
	return operate.Subcommand{
		Use:   "remove-node ANY NODE [--yes]",
		Short: "remove a node from a cluster", Long: removeHelp, Args: cobra.ExactArgs(2),
		Run: run(func(o *operator, args []string) error { return o.removeNode(args[0], args[1]) }),
	}
}

func replaceCommand() operate.Subcommand {
	return operate.Subcommand{
		Use:   "replace ANY OLD NEW [--yes]",
		Short: "put a server in the place of a node", Long: replaceHelp, Args: cobra.ExactArgs(3),
		Run: run(func(o *operator, args []string) error { return o.replace(args[0], args[1], args[2]) }),
	}
}

func (o *operator) addNodes(added []string, existing, named string, begin bool) error {
	c, err := o.member(existing)
	if err != nil {
		return err
	}
	found, err := o.surveyAll(added)
	if err != nil {
		return err
	}
	var missing, here []string
	for _, a := range found {
		if err := candidate(a, c); err != nil {
			return err
		}
		if m := c.Member(a.Self.ID); m != nil {
			here = append(here, m.Shard)
		}
		if !voted(c, a.Self.ID) {
			missing = append(missing, a.addr)
		}
	}
	if len(missing) == 0 {
		o.Say("the cluster %s has these nodes already", short(c.Cluster))
		return nil
	}
	shard, err := chooseShard(c, here, named, begin)
	if err != nil {
		return err
	}
	voters := c.Voters(shard)
	plan := []string{fmt.Sprintf("The cluster %s of %s gets %d more: %s", short(c.Cluster),
		operate.Count(len(c.Members), "node"), len(missing), strings.Join(missing, ", "))}
	if c.Shard(shard) == nil {
		plan = append(plan, "They form a new shard, which has no partitions yet.")
	} else if len(c.Shards) > 1 {
		plan = append(plan, fmt.Sprintf("They become nodes of the shard %s, which has %d.", short(shard),
			voters))
	}
	if err := o.Confirm(append(plan, o.warn(voters+len(missing))...)...); err != nil {
		return err
	}
	for _, addr := range missing {
		if err := o.add(c, shard, addr); err != nil {
			return err
		}
	}
	return o.settle(existing)
}

// chooseShard returns the shard whose nodes some servers become. here are the shards of those that
// an earlier attempt has made members.
func chooseShard(c *nodes.Configuration, here []string, named string, begin bool) (shard string, err error) {
	switch {
	case named != "":
		return findShard(c, named)
	case len(here) > 0:
		return here[0], nil
	case !begin:
		return smallest(c), nil
	case len(c.Shards) >= c.Partitions:
		return "", fmt.Errorf("the cluster has %d partitions, and so at most as many shards", c.Partitions)
	}
	return nodes.NewID(), nil
}

// smallest returns the shard that has the fewest nodes.
func smallest(c *nodes.Configuration) string {
	return slices.MinFunc(c.Shards,
		func(a, b nodes.Shard) int { return cmp.Compare(c.Voters(a.ID), c.Voters(b.ID)) }).ID
}

// findShard returns the shard whose id begins so.
func findShard(c *nodes.Configuration, named string) (id string, err error) {
	for _, s := range c.Shards {
		if strings.HasPrefix(s.ID, named) {
			if id != "" {
				return "", fmt.Errorf("the ids of several shards begin with %s", named)
			}
			id = s.ID
		}
	}
	if id == "" {
		err = fmt.Errorf("the cluster %s has no shard %.40q: see fbfkv cluster status", short(c.Cluster),
			named)
	}
	return id, err
}

// candidate refuses a server that cannot become a node of the cluster.
func candidate(a asked, c *nodes.Configuration) error {
	switch {
	case a.Cluster == c.Cluster:
		return nil
	case a.Cluster != "":
		return fmt.Errorf("%s belongs to another cluster, %s", a.addr, short(a.Cluster))
	case a.Self.Level < c.Format:
		return errOld(a, c.Format)
	case !a.Pristine && c.Member(a.Self.ID) == nil:
		return fmt.Errorf("%s has data: start it with an empty directory", a.addr)
	}
	return nil
}

// add makes a server a full member of a shard, from wherever an earlier attempt left off.
func (o *operator) add(c *nodes.Configuration, shard, addr string) error {
	id, err := o.follow(c, shard, addr)
	if err != nil {
		return err
	}
	return o.promote(c, shard, addr, id, true)
}

// follow makes a server a member of a shard, without a vote unless it begins it, and returns its id.
func (o *operator) follow(c *nodes.Configuration, shard, addr string) (id string, err error) {
	info, err := o.info(addr)
	if err != nil {
		return "", err
	}
	m := at(info.Self, addr)
	m.Shard, m.Voter = shard, false
	if err := o.configure(c, nodes.VerbAdmit, m); err != nil {
		return "", err
	}
	if info.Cluster == "" {
		var via []string
		for _, other := range c.Members {
			if other.ID != m.ID {
				via = append(via, other.ClusterAddress())
			}
		}
		n, err := o.remote(addr)
		if err != nil {
			return "", err
		}
		if err := o.Wait(addr+" to join", func() (bool, error) {
			return true, n.do(nodes.VerbJoin, nodes.JoinRequest{Cluster: c.Cluster, Via: via}, nil)
		}); err != nil {
			return "", err
		}
		if _, err := o.joined(n, c.Cluster); err != nil {
			return "", err
		}
		o.Say("%s: has joined", addr)
	}
	return m.ID, nil
}

// at is a server as the others reach it.
func at(m nodes.Member, addr string) nodes.Member {
	if m.Host == "" {
		m.Host, _, _ = net.SplitHostPort(addr)
	}
	return m
}

// promote waits until a member has caught up and votes; or, if it is not to vote yet, until
// it has caught up.
func (o *operator) promote(c *nodes.Configuration, shard, addr, id string, vote bool) error {
	if c.Of(shard) == nil { // the first one of its shard
		info, err := o.info(addr)
		if err != nil {
			return err
		}
		refresh(c, asked{Info: info})
	}
	progress := o.Progress(addr + " catches up, entries of the log")
	defer progress.Clear()
	for ; ; time.Sleep(operate.RetryPeriod) {
		var p nodes.Progress
		if err := o.change(c, shard, nodes.VerbPromote, nodes.PromoteRequest{ID: id, Vote: vote},
			&p); err != nil {
			return err
		}
		if p.Voter || !vote && p.Near {
			progress.Clear()
			o.Say("%s: has caught up%s", addr, map[bool]string{true: " and votes"}[p.Voter])
			return nil
		}
		// It may take long, but not without the node.
		if err := o.Wait(addr+" to catch up", func() (bool, error) {
			info, err := o.info(addr)
			return info.Cluster == c.Cluster, err
		}); err != nil {
			return err
		}
		progress.Left(p.Behind)
	}
}

func (o *operator) removeNode(existing, addr string) error {
	c, err := o.member(existing)
	if err != nil {
		return err
	}
	m := c.At(addr)
	if m == nil {
		o.Say("the cluster %s has no node %s", short(c.Cluster), addr)
		return nil
	}
	if err := o.spare(c, *m); err != nil {
		return err
	}
	left := c.Voters(m.Shard)
	if m.Voter {
		left--
	}
	plan := []string{fmt.Sprintf("The node %s is removed from the cluster %s. Nodes left: %d.", addr,
		short(c.Cluster), len(c.Members)-1)}
	last := len(c.Of(m.Shard)) == 1
	if last {
		plan = append(plan, fmt.Sprintf("It is the last one of the shard %s, which ends.", short(m.Shard)))
	} else {
		plan = append(plan, o.warn(left)...)
	}
	if err := o.Confirm(plan...); err != nil {
		return err
	}
	if last {
		if err := o.configure(c, nodes.VerbDissolve, nodes.NodeRequest{ID: m.ID}); err != nil {
			return err
		}
		o.dismiss(c, *m, addr)
	} else if err := o.remove(c, *m, addr); err != nil {
		return err
	}
	return o.settle(o.other(c, *m))
}

// other is where we reach another member than one that was removed.
func (o *operator) other(c *nodes.Configuration, gone nodes.Member) string {
	i := slices.IndexFunc(c.Members, func(m nodes.Member) bool { return m.ID != gone.ID })
	return o.reach(c.Members[i])
}

// spare refuses to remove a voter without which too few are left that answer.
func (o *operator) spare(c *nodes.Configuration, gone nodes.Member) error {
	shard := c.Shard(gone.Shard)
	if !gone.Voter || len(c.Of(gone.Shard)) == 1 && shard.Count() == 0 && len(c.Shards) > 1 {
		return nil
	}
	left, well := 0, 0
	for _, a := range o.survey(o.addresses(c.Of(gone.Shard))) {
		m := c.At(a.addr)
		if m == nil || m.ID == gone.ID || !m.Voter {
			continue
		}
		left++
		if a.err == nil && a.Self.ID == m.ID && a.Cluster == c.Cluster {
			well++
		}
	}
	switch {
	case left == 0 && len(c.Shards) > 1:
		return fmt.Errorf("%s is the last node of the shard %s, which has %s: move them away first, with "+
			"fbfkv cluster move, or rebalance --empty %[2]s",
			gone.Address(), short(gone.Shard), operate.Count(shard.Count(), "partition"))
	case left == 0:
		return fmt.Errorf("%s is the last node of the cluster", gone.Address())
	case well <= left/2:
		return fmt.Errorf("without %s the shard %s would have %d nodes of which %d answer, too few to go "+
			"on: start those that are lost, or replace them first; "+
			"if a majority is lost for ever, see fbfkv cluster recover", gone.Address(), short(gone.Shard),
			left, well)
	}
	return nil
}

// remove takes a member out of the cluster, from wherever an earlier attempt left off.
func (o *operator) remove(c *nodes.Configuration, m nodes.Member, addr string) error {
	err := o.Wait("another node to lead and to remove it", func() (bool, error) {
		leader, info, err := o.leader(c, m.Shard)
		switch {
		case err != nil:
			return false, err
		case info.Self.ID == m.ID: // also if it leads again
			return false, leader.do(nodes.VerbHandOver, nodes.NodeRequest{}, nil)
		}
		return true, leader.do(nodes.VerbRemove, nodes.NodeRequest{ID: m.ID}, nil)
	})
	if err != nil {
		return err
	}
	o.dismiss(c, m, addr)
	return nil
}

// dismiss tells a node that it is no longer a member.
func (o *operator) dismiss(c *nodes.Configuration, m nodes.Member, addr string) {
	o.Say("%s: is no longer a member", addr)
	// One that cannot be reached is told by nobody, and has no vote all the same.
	if n, err := o.remote(o.reach(m)); err == nil {
		if info, err := o.info(n.Addr); err == nil && info.Self.ID == m.ID && info.Cluster == c.Cluster {
			_ = n.do(nodes.VerbForget, nodes.ForgetRequest{Cluster: c.Cluster}, nil)
		}
	}
}

func (o *operator) replace(existing, old, replacement string) error {
	c, err := o.member(existing)
	if err != nil {
		return err
	}
	found, err := o.surveyAll([]string{replacement})
	if err != nil {
		return err
	}
	a := found[0]
	if err := candidate(a, c); err != nil {
		return err
	}
	gone, here := c.At(old), c.Member(a.Self.ID)
	if gone != nil && here != nil && gone.ID == here.ID {
		gone = nil
	}
	switch {
	case gone != nil && here != nil && here.Voter: // an earlier attempt leaves no vote before OLD is removed
		return fmt.Errorf("%s is a node of the cluster already, and cannot take the place of %s as well: "+
			"name an empty server, or see remove-node",
			replacement, old)
	case gone == nil && here != nil && here.Voter:
		o.Say("%s is a member with its directory: there is nothing to replace", replacement)
		return nil
	case gone == nil && here == nil && old != replacement: // otherwise an earlier attempt has removed it
		return fmt.Errorf("the cluster %s has no node %s", short(c.Cluster), old)
	}
	shard := smallest(c) // if an earlier attempt has removed the old node and not admitted the new one
	if here != nil {
		shard = here.Shard
	} else if gone != nil {
		shard = gone.Shard
	}
	if gone != nil {
		if err := o.spare(c, *gone); err != nil {
			return err
		}
	}
	plan := fmt.Sprintf("In the cluster %s, %s takes the place of %s, whose directory is no longer used.",
		short(c.Cluster), replacement, old)
	if old == replacement {
		plan = fmt.Sprintf("In the cluster %s, %s begins anew: it has an empty directory.", short(c.Cluster),
			old)
	}
	if err := o.Confirm(plan); err != nil {
		return err
	}
	// Two members cannot have the same address. Otherwise the new one catches up first, so that as
	// many nodes as before may be lost meanwhile.
	if gone != nil && old == replacement {
		if err := o.remove(c, *gone, old); err != nil {
			return err
		}
		gone = nil
	}
	id, err := o.follow(c, shard, replacement)
	if err != nil {
		return err
	}
	if gone != nil {
		if err := o.promote(c, shard, replacement, id, false); err != nil {
			return err
		}
		if err := o.remove(c, *gone, old); err != nil {
			return err
		}
	}
	if err := o.promote(c, shard, replacement, id, true); err != nil {
		return err
	}
	return o.settle(replacement)
}
