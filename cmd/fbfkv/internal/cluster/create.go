package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	nodes "github.com/fbfkv/fbfkv/cluster"
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/operate"
)

const createHelp = `Makes a cluster of servers that were started with --cluster-enabled yes. The first one
may have data, which the cluster then has; the others must be empty. They become
replicas one after the other, and take over when a leader is lost. With fewer than three
nodes there is a cluster, but none of them may be lost.

Nine nodes with --replicas 2 are three shards: each has a third of the keys, a leader and
two replicas, and is on as many hosts as possible. Data that the first node brings stays in
its shard.

HOST is where clients and the other nodes reach the server; so on several machines it is
not 127.0.0.1. The setting cluster-announce-ip overrides it.`

// creation is a request to create or restore a cluster.
type creation struct {
	*operator
	replicas, partitions int
	addrs                []string
	given                func() bool // reports whether the number of replicas was; nil: it was not
	backup               string      // that it is made of, "" if it is not
	parts                []part      // of the backup, in the order of the shards; nil: it is a whole one
}

// shards is how many there will be.
func (c *creation) shards() int { return len(c.addrs) / (c.replicas + 1) }

func (c *creation) flags(cmd *cobra.Command) {
	cmd.Flags().IntVar(&c.replicas, "replicas", 0, "how many replicas each leader has (default all nodes "+
		"but one, up to five nodes; 2 for more)")
	c.given = func() bool { return cmd.Flags().Changed("replicas") }
	cmd.Flags().IntVar(&c.partitions, "partitions", 0,
		"into how many parts the data is divided, a power of two up to 1024, and the most shards there "+
			"can ever be; "+
			"a directory that has data keeps its own (default 16 for each shard, or the next power of two)")
}

func createCommand() operate.Subcommand {
	var c creation
	return operate.Subcommand{
		Use:   "create HOST:PORT ... [--replicas N] [--partitions N] [--yes]",
		Short: "make a cluster of servers", Long: createHelp,
		Args: cobra.MinimumNArgs(1), Flags: c.flags,
		Run: run(func(o *operator, args []string) error {
			c.operator, c.addrs = o, args
			return c.run()
		}),
	}
}

// run makes the cluster as far as it does not exist yet.
func (c *creation) run() error {
	if err := c.checkArguments(); err != nil {
		return err
	}
	found, err := c.surveyAll(c.addrs)
	if err != nil {
		return err
	}
	exists, err := c.judge(found)
	if err != nil {
		return err
	}
	if exists != nil && !slices.ContainsFunc(found, func(a asked) bool { return !a.in(exists) }) {
		c.Say("the cluster %s exists already, with these nodes", short(exists.Cluster))
		return c.settle(c.addrs[0])
	}
	if exists != nil && len(exists.Shards) != c.shards() {
		return fmt.Errorf("the cluster %s exists with %s, and these nodes would be %d: to let it grow, "+
			"see add-node",
			short(exists.Cluster), operate.Count(len(exists.Shards), "shard"), c.shards())
	}
	if err := c.findParts(found, exists); err != nil {
		return err
	}
	shards := c.assign(found, exists)
	if err := c.judgeData(shards, exists); err != nil {
		return err
	}
	if err := c.Confirm(c.plan(shards, exists)...); err != nil {
		return err
	}
	begun := ""
	if exists == nil {
		if exists, err = c.first(shards); err != nil {
			return err
		}
		begun = shards[0][0].addr
	}
	for i, shard := range shards {
		for _, a := range shard {
			if a.addr == begun || a.in(exists) {
				continue
			}
			if err := c.add(exists, exists.Shards[i].ID, a.addr); err != nil {
				return err
			}
		}
	}
	if err := c.settle(c.addrs[0]); err != nil {
		return err
	}
	c.Say("the cluster %s is complete: %s", short(exists.Cluster), strings.Join(c.addrs, ", "))
	return nil
}

// checkArguments checks what needs no server.
func (c *creation) checkArguments() error {
	if c.given == nil || !c.given() {
		if c.replicas = 2; len(c.addrs) <= 5 {
			c.replicas = len(c.addrs) - 1
		}
	}
	switch n := len(c.addrs); {
	case c.replicas < 0:
		return fmt.Errorf("--replicas %d is not a number of replicas", c.replicas)
	case n > nodes.MaxMembers:
		return fmt.Errorf("%d nodes, more than %d", n, nodes.MaxMembers)
	case n%(c.replicas+1) != 0:
		return fmt.Errorf("%d nodes cannot be divided into leaders with %d replicas each", n, c.replicas)
	}
	if c.partitions == 0 {
		for c.partitions = 16; c.partitions < 16*c.shards() && c.partitions < 1024; {
			c.partitions *= 2
		}
	}
	if c.partitions < c.shards() {
		return fmt.Errorf("--partitions %d is less than the %d shards that %d nodes with %d replicas for "+
			"each leader are",
			c.partitions, c.shards(), len(c.addrs), c.replicas)
	}
	loopback := ""
	for i, addr := range c.addrs {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return fmt.Errorf("%q is not HOST:PORT", addr)
		}
		if slices.Contains(c.addrs[:i], addr) {
			return fmt.Errorf("%s is named twice", addr)
		}
		if onLoopback(addr) {
			loopback = addr
		}
	}
	if loopback != "" && slices.ContainsFunc(c.addrs, func(a string) bool { return !onLoopback(a) }) {
		return fmt.Errorf("the others cannot reach %s: on several machines, name each by an address that "+
			"the others reach", loopback)
	}
	return nil
}

// onLoopback reports whether HOST:PORT can only be reached on its machine.
func onLoopback(addr string) bool {
	host, _, _ := net.SplitHostPort(addr)
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// judge refuses servers that cannot form the cluster. If it exists already, whole or in
// part, judge returns its configuration.
func (c *creation) judge(found []asked) (exists *nodes.Configuration, err error) {
	byID := map[string]string{}
	for i, a := range found {
		if other := byID[a.Self.ID]; other != "" {
			return nil, fmt.Errorf("%s and %s are the same node", other, a.addr)
		}
		byID[a.Self.ID] = a.addr
		switch {
		case a.Configuration == nil:
		case i > 0 && exists == nil && c.backup == "": // a cluster of backups may have begun with another one
			return nil, fmt.Errorf("%s belongs to the cluster %s already, and %s does not", a.addr,
				short(a.Cluster), found[0].addr)
		case exists != nil && a.Cluster != exists.Cluster:
			return nil, fmt.Errorf("%s belongs to another cluster, %s, than others, %s", a.addr,
				short(a.Cluster), short(exists.Cluster))
		case exists == nil || a.Configuration.Version > exists.Version:
			exists = a.Configuration
		}
	}
	if exists != nil {
		for _, m := range exists.Members {
			if byID[m.ID] == "" {
				return nil, fmt.Errorf("the cluster %s exists and has another node, %s: to change it, see "+
					"add-node, remove-node and replace",
					short(exists.Cluster), m.Address())
			}
		}
	}
	return exists, nil
}

// judgeData refuses nodes whose data would be lost or whose program is too old.
func (c *creation) judgeData(shards [][]asked, exists *nodes.Configuration) error {
	level := shards[0][0].Self.Level // that a new cluster gets
	if exists != nil {
		level = exists.Format
	}
	var faults []error
	for i, shard := range shards {
		for j, a := range shard {
			brings := c.brings(i, j) // what it may have
			switch {
			case a.Configuration != nil:
			case a.Self.Level < level:
				faults = append(faults, errOld(a, level))
			case a.Pristine || exists != nil && voted(exists, a.Self.ID):
				// it begins its shard, with its data
			case i == 0 && j == 0 && c.backup == "" && exists == nil:
			case exists == nil && brings != "" && a.Restored == brings:
			case c.backup == "":
				faults = append(faults, fmt.Errorf("%s has data: only the first node may bring data into "+
					"a cluster; start it with an empty directory", a.addr))
			default:
				faults = append(faults, fmt.Errorf("%s has data: start it with an empty directory to "+
					"restore a backup there", a.addr))
			}
		}
	}
	return errors.Join(faults...)
}

func errOld(a asked, level int) error {
	return fmt.Errorf("%s runs fbfkv %s, which reads format levels up to %d; the cluster is at level %d: "+
		"upgrade that node first",
		a.addr, a.Version, a.Self.Level, level)
}

// plan says what will be done.
func (c *creation) plan(shards [][]asked, exists *nodes.Configuration) (lines []string) {
	if exists != nil {
		lines = append(lines, fmt.Sprintf("The cluster %s exists in part; it will be completed:",
			short(exists.Cluster)))
	} else {
		lines = append(lines, fmt.Sprintf("A cluster of %d nodes will be made:", len(c.addrs)))
	}
	for i, shard := range shards {
		if len(shards) > 1 {
			lines = append(lines, fmt.Sprintf("shard %d:", i+1))
		}
		for j, a := range shard {
			does, brings := "becomes a replica", c.brings(i, j)
			switch {
			case exists != nil && a.in(exists):
				does = "is part of it"
			case exists != nil && voted(exists, a.Self.ID):
				does = "begins its shard"
			case exists == nil && brings != "":
				does = "begins with " + brings
			case exists == nil && i == 0 && j == 0 && !a.Pristine:
				does = "brings its data"
			case j == 0:
				does = "begins, empty"
			}
			lines = append(lines, "  "+a.addr+" "+does)
		}
	}
	return slices.Concat(lines, crowded(shards), c.warn(c.replicas+1))
}

// warn says what a shard of so many nodes does not survive.
func (o *operator) warn(voters int) []string {
	switch {
	case voters < 3:
		return []string{"With fewer than three nodes in a shard, none may be lost."}
	case voters%2 == 0:
		return []string{fmt.Sprintf("%d nodes in a shard survive the loss of as many nodes as %d do.", voters,
			voters-1)}
	}
	return nil
}

// assign says which nodes form which shard: the first one of each will lead it. Members
// stay. The nodes of a shard are on different hosts, as far as there are enough, and so are the leaders.
func (c *creation) assign(found []asked, exists *nodes.Configuration) (shards [][]asked) {
	shards = make([][]asked, c.shards())
	var free []asked
	for _, a := range found {
		shard := -1
		if exists == nil {
			shard = slices.IndexFunc(c.parts, func(p part) bool { return p.begins == a.addr })
		} else {
			if m := exists.Member(a.Self.ID); m != nil {
				shard = slices.IndexFunc(exists.Shards, func(s nodes.Shard) bool { return s.ID == m.Shard })
			}
		}
		if shard >= 0 && shard < len(shards) {
			shards[shard] = append(shards[shard], a)
		} else {
			free = append(free, a)
		}
	}
	for round := range c.replicas + 1 {
		for i := range shards {
			if len(shards[i]) > round || len(free) == 0 {
				continue
			}
			beside := shards[i] // none of these may be on the same host
			if round == 0 {
				beside = nil
				for _, s := range shards {
					beside = append(beside, s[:min(len(s), 1)]...)
				}
			}
			best := slices.MinFunc(free, func(a, b asked) int {
				if i == 0 && round == 0 {
					return 0 // the first one may have data
				}
				return cmp.Or(cmp.Compare(onHost(beside, a.host()), onHost(beside, b.host())),
					cmp.Compare(onHost(free, b.host()), onHost(free, a.host())))
			})
			free = slices.DeleteFunc(free, func(a asked) bool { return a.addr == best.addr })
			shards[i] = append(shards[i], best)
		}
	}
	return shards
}

// onHost counts the nodes that are on a host.
func onHost(list []asked, host string) (n int) {
	for _, a := range list {
		if a.host() == host {
			n++
		}
	}
	return n
}

// crowded warns of shards that one lost host would stop.
func crowded(shards [][]asked) (lines []string) {
	all := slices.Concat(shards...)
	if onHost(all, all[0].host()) == len(all) {
		return nil // there is no other host
	}
	for i, shard := range shards {
		warned := map[string]bool{}
		for _, a := range shard {
			host := a.host()
			if n := onHost(shard, host); 2*n >= len(shard) && len(shard) > 1 && !warned[host] {
				warned[host] = true
				lines = append(lines, fmt.Sprintf("shard %d is lost with the host %s, which has %d of its "+
					"%d nodes", i+1, host, n, len(shard)))
			}
		}
	}
	return lines
}

// host is where others reach a node.
func (a asked) host() string {
	if a.Self.Host != "" {
		return a.Self.Host
	}
	host, _, _ := net.SplitHostPort(a.addr)
	return host
}

// in reports whether the node takes part in a cluster and votes there.
func (a asked) in(c *nodes.Configuration) bool { return a.Cluster == c.Cluster && voted(c, a.Self.ID) }

// voted reports whether a node is a full member, or is to begin its shard.
func voted(c *nodes.Configuration, id string) bool {
	m := c.Member(id)
	return m != nil && m.Voter
}

// first makes the first node of the first shard a cluster, in which the others begin their shards.
func (c *creation) first(shards [][]asked) (*nodes.Configuration, error) {
	a := shards[0][0]
	host, _, _ := net.SplitHostPort(a.addr)
	request := nodes.InitRequest{Cluster: nodes.NewID(), Partitions: c.partitions, Shards: c.shards(),
		Host: host}
	for i, shard := range shards {
		if brings := c.brings(i, 0); brings != "" && shard[0].Restored != brings {
			if err := c.restoreTo(shard[0].node, brings); err != nil {
				return nil, err
			}
		}
	}
	var err error
	if c.parts != nil {
		if request.Restores, err = c.restores(shards); err != nil {
			return nil, err
		}
	}
	if err := c.Wait(a.addr+" to begin a cluster",
		func() (bool, error) { return true, a.node.do(nodes.VerbInit, request, nil) }); err != nil {
		return nil, err
	}
	config, err := c.joined(a.node, request.Cluster)
	if err == nil {
		_, _, err = c.leader(config, config.Shards[0].ID)
	}
	if err == nil {
		c.Say("%s: is the first node of the cluster %s", a.addr, short(config.Cluster))
	}
	return config, err
}

// joined waits until a node is a member, and returns its configuration.
func (o *operator) joined(n remote, cluster string) (config *nodes.Configuration, err error) {
	err = o.Wait(n.Addr+" to open its directory as a member", func() (bool, error) {
		info, err := o.info(n.Addr)
		config = info.Configuration
		return err == nil && info.Cluster == cluster && config != nil, err
	})
	return config, err
}

// short is how an id is shown.
func short(id string) string { return id[:min(len(id), 8)] }
