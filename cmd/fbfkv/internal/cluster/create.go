package cluster

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	nodes "github.com/fbfkv/fbfkv/cluster"
)

const createHelp = `Makes a cluster of servers that were started with --cluster-enabled yes. The first one
may have data, which the cluster then has; the others must be empty. They become its
replicas one after the other, and take over when it is lost. With fewer than three nodes
there is a cluster, but none of them may be lost.

HOST is where clients and the other nodes reach the server; so on several machines it is
not 127.0.0.1. The setting cluster-announce-ip overrides it.`

// creation is what create and restore are asked for.
type creation struct {
	*operator
	replicas, partitions int
	addrs                []string
}

func (c *creation) flags(cmd *cobra.Command) {
	cmd.Flags().IntVar(&c.replicas, "replicas", 0, "how many replicas the leader has (default all nodes but one)")
	cmd.Flags().IntVar(&c.partitions, "partitions", 16,
		"into how many parts the data is divided, a power of two up to 1024; a directory that has data keeps its own")
}

func createCommand() subcommand {
	var c creation
	return subcommand{
		use:   "create HOST:PORT ... [--replicas N] [--partitions N] [--yes]",
		short: "make a cluster of servers", long: createHelp,
		args: cobra.MinimumNArgs(1), flags: c.flags,
		run: func(o *operator, args []string) error {
			c.operator, c.addrs = o, args
			return c.run("")
		},
	}
}

// run makes the cluster, of the data in a backup unless that is "", as far as it does not
// exist yet.
func (c *creation) run(backup string) error {
	if err := c.checkArguments(); err != nil {
		return err
	}
	found, err := c.surveyAll(c.addrs)
	if err != nil {
		return err
	}
	exists, err := c.judge(found, backup)
	if err != nil {
		return err
	}
	missing := slices.DeleteFunc(slices.Clone(found), func(a asked) bool { return exists != nil && voted(exists, a.Self.ID) })
	if len(missing) == 0 {
		c.say("the cluster %s exists already, with these nodes", short(exists.Cluster))
		return nil
	}
	if err := c.confirm(c.plan(found, exists, backup)...); err != nil {
		return err
	}
	if exists == nil {
		if exists, err = c.first(found[0], backup); err != nil {
			return err
		}
	}
	for _, a := range missing {
		if a.addr != found[0].addr {
			if err := c.add(exists, a.addr); err != nil {
				return err
			}
		}
	}
	c.say("the cluster %s is complete: %s", short(exists.Cluster), strings.Join(c.addrs, ", "))
	return nil
}

// checkArguments checks what needs no server.
func (c *creation) checkArguments() error {
	if c.replicas < 1 {
		c.replicas = len(c.addrs) - 1
	}
	switch n := len(c.addrs); {
	case n > nodes.MaxMembers:
		return fmt.Errorf("%d nodes, more than %d", n, nodes.MaxMembers)
	case n%(c.replicas+1) != 0:
		return fmt.Errorf("%d nodes cannot be divided into leaders with %d replicas each", n, c.replicas)
	case n > c.replicas+1:
		return fmt.Errorf("%d nodes with %d replicas for each leader would be %d shards; a cluster has one", n, c.replicas, n/(c.replicas+1))
	}
	loopback := ""
	for i, addr := range c.addrs {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return fmt.Errorf("%q is not HOST:PORT", addr)
		}
		if slices.Contains(c.addrs[:i], addr) {
			return fmt.Errorf("%s stands there twice", addr)
		}
		if onLoopback(addr) {
			loopback = addr
		}
	}
	if loopback != "" && slices.ContainsFunc(c.addrs, func(a string) bool { return !onLoopback(a) }) {
		return fmt.Errorf("the others cannot reach %s: on several machines, name each by an address that the others reach", loopback)
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
func (c *creation) judge(found []asked, backup string) (exists *nodes.Configuration, err error) {
	byID := map[string]string{}
	for i, a := range found {
		if other := byID[a.Self.ID]; other != "" {
			return nil, fmt.Errorf("%s and %s are the same node", other, a.addr)
		}
		byID[a.Self.ID] = a.addr
		switch {
		case a.Configuration == nil:
		case i > 0 && exists == nil:
			return nil, fmt.Errorf("%s belongs to the cluster %s already, and %s does not", a.addr, short(a.Cluster), found[0].addr)
		case exists != nil && a.Cluster != exists.Cluster:
			return nil, fmt.Errorf("%s belongs to another cluster, %s, than %s, %s", a.addr, short(a.Cluster), found[0].addr, short(exists.Cluster))
		case exists == nil || a.Configuration.Version > exists.Version:
			exists = a.Configuration
		}
	}
	if exists != nil {
		for _, m := range exists.Members {
			if byID[m.ID] == "" {
				return nil, fmt.Errorf("the cluster %s exists and has another node, %s: to change it, see add-node, remove-node and replace",
					short(exists.Cluster), m.Address())
			}
		}
	}
	return exists, c.judgeData(found, exists, backup)
}

// judgeData refuses nodes whose data would be lost or whose program is too old.
func (c *creation) judgeData(found []asked, exists *nodes.Configuration, backup string) error {
	for i, a := range found {
		switch {
		case a.Configuration != nil:
		case exists != nil && a.Format < exists.Format:
			return errOld(a.addr, a.Info, exists)
		case !a.Pristine && i > 0:
			return fmt.Errorf("%s has data: only the first node may bring data into a cluster; start it with an empty directory", a.addr)
		case !a.Pristine && backup != "" && a.Restored != backup:
			return fmt.Errorf("%s has data: start it with an empty directory to restore a backup there", a.addr)
		}
	}
	return nil
}

func errOld(addr string, info nodes.Info, c *nodes.Configuration) error {
	return fmt.Errorf("%s runs fbfkv %s, which reads format levels up to %d; the cluster is at level %d: upgrade that node first",
		addr, info.Version, info.Format, c.Format)
}

// plan says what will be done.
func (c *creation) plan(found []asked, exists *nodes.Configuration, backup string) (lines []string) {
	if exists != nil {
		lines = append(lines, fmt.Sprintf("The cluster %s exists in part; it will be completed:", short(exists.Cluster)))
	} else {
		lines = append(lines, fmt.Sprintf("A cluster of %d nodes will be made:", len(found)))
	}
	for i, a := range found {
		what := "becomes a replica"
		switch {
		case exists != nil && voted(exists, a.Self.ID):
			what = "is part of it"
		case i == 0 && backup != "":
			what = "begins with what is in " + backup
		case i == 0 && !a.Pristine:
			what = "brings its data"
		case i == 0:
			what = "begins, empty"
		}
		lines = append(lines, "  "+a.addr+" "+what)
	}
	if n := len(found); n < 3 {
		lines = append(lines, "With fewer than three nodes, none may be lost.")
	} else if n%2 == 0 {
		lines = append(lines, fmt.Sprintf("%d nodes survive the loss of no more nodes than %d do.", n, n-1))
	}
	return lines
}

// voted reports whether a node is a full member.
func voted(c *nodes.Configuration, id string) bool {
	m := c.Member(id)
	return m != nil && m.Voter
}

// first makes the first node a cluster of its own.
func (c *creation) first(a asked, backup string) (*nodes.Configuration, error) {
	n := c.nodes[a.addr]
	if backup != "" && a.Restored != backup {
		if err := c.restoreTo(n, backup); err != nil {
			return nil, err
		}
	}
	host, _, _ := net.SplitHostPort(a.addr)
	var id [20]byte
	rand.Read(id[:])
	request := nodes.InitRequest{Cluster: hex.EncodeToString(id[:]), Partitions: c.partitions, Host: host}
	if err := c.wait(a.addr+" to begin a cluster", func() (bool, error) { return true, n.do(nodes.VerbInit, request, nil) }); err != nil {
		return nil, err
	}
	config, err := c.joined(n, request.Cluster)
	if err == nil {
		_, _, err = c.operator.leader(config)
	}
	if err == nil {
		c.say("%s: is the first node of the cluster %s", a.addr, short(config.Cluster))
	}
	return config, err
}

// joined waits until a node is a member, and returns its configuration.
func (o *operator) joined(n *remote, cluster string) (config *nodes.Configuration, err error) {
	err = o.wait(n.addr+" to open its directory as a member", func() (bool, error) {
		info, err := o.info(n.addr)
		config = info.Configuration
		return err == nil && info.Cluster == cluster && config != nil, err
	})
	return config, err
}

// short is how an id is shown.
func short(id string) string { return id[:min(len(id), 8)] }
