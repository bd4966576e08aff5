package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	nodes "github.com/fbfkv/fbfkv/cluster"
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/operate"
)

const restoreHelp = `Makes a cluster as create does. The first node begins with the backup DIR on its machine.
All the servers must be empty.

If fbfkv cluster backup has made a directory for each of several shards in DIR, the new cluster
has as many, with the same ids and partitions. Each begins, at one of its nodes, with the backup of
that shard, which must be in DIR on that node's machine; so put them there, or all on one machine.
Each key is as it was when its shard was backed up; the tables are those of the newest backup.`

func restoreCommand() operate.Subcommand {
	var c creation
	return operate.Subcommand{
		Use:   "restore DIR HOST:PORT ... [--replicas N] [--yes]",
		Short: "make a cluster from a backup", Long: restoreHelp,
		Args: cobra.MinimumNArgs(2), Flags: c.flags,
		Run: run(func(o *operator, args []string) (err error) {
			c.operator, c.addrs = o, args[1:]
			if c.backup, err = filepath.Abs(args[0]); err != nil {
				return err
			}
			return c.run()
		}),
	}
}

// part is the backup of a shard, and the node that is to begin it, HOST:PORT.
type part struct {
	nodes.Backup
	begins string
}

// brings returns the backup with which a node is to begin, "" if there is none: the one at a place
// of a shard.
func (c *creation) brings(shard, place int) string {
	switch {
	case place > 0:
	case shard < len(c.parts):
		return c.parts[shard].Dir
	case shard == 0:
		return c.backup
	}
	return ""
}

// findParts looks for the backups of several shards, and refuses those of which no cluster can be made, and
// a cluster that exists and is not made of them.
func (c *creation) findParts(found []asked, exists *nodes.Configuration) error {
	if c.backup == "" {
		return nil
	}
	var all []nodes.Backup
	sees := map[string][]nodes.Backup{}
	for _, a := range found {
		var here []nodes.Backup
		if err := a.node.do(nodes.VerbBackups, nodes.RestoreRequest{Dir: c.backup},
			&here); err != nil {
			return err
		}
		sees[a.addr], all = here, append(all, here...)
	}
	whole := func(b nodes.Backup) bool { return b.Dir == c.backup && (b.Origin == nil || b.Origin.Whole()) }
	if !slices.ContainsFunc(all, func(b nodes.Backup) bool { return !whole(b) }) {
		return nil
	}
	parts, faults := nodes.Gather(all)
	if n := c.shards(); len(parts) > 0 && len(parts) != n && !parts[0].Origin.Whole() {
		faults = append(faults, fmt.Errorf("there are backups of %s, and %d nodes with %d replicas for "+
			"each leader are %d: "+
			"restore as many shards as there were, since that moves no partitions from one to another",
			operate.Count(len(parts), "shard"), len(c.addrs), c.replicas, n))
	}
	if len(faults) == 0 && len(parts) == 1 && parts[0].Origin.Whole() {
		c.backup = parts[0].Dir
		return nil
	}
	for _, b := range parts {
		c.parts = append(c.parts, part{Backup: b})
	}
	switch {
	case len(faults) > 0:
		return errors.Join(faults...)
	case exists == nil:
		return c.chooseFounders(found, sees)
	case !slices.EqualFunc(exists.Shards, c.parts,
		func(s nodes.Shard, p part) bool { return s.ID == p.Origin.Shard }):
		return fmt.Errorf("the cluster %s exists and is not made of these backups: name servers with "+
			"empty directories", short(exists.Cluster))
	}
	return nil
}

// chooseFounders says which node begins which shard: one that has restored its backup already, or
// finds it and has none. Those of which there are few choose first, and they are on different hosts
// if that is possible. In whatever order the nodes are named, it is the same ones: an earlier
// attempt may have asked them.
func (c *creation) chooseFounders(found []asked, sees map[string][]nodes.Backup) error {
	finds := func(a asked, dir string) bool {
		return slices.ContainsFunc(sees[a.addr], func(b nodes.Backup) bool { return b.Dir == dir })
	}
	free := slices.SortedFunc(slices.Values(found), func(a, b asked) int {
		return cmp.Compare(a.addr, b.addr)
	})
	var chosen []asked
	take := func(p *part, may func(asked) bool) {
		list := slices.DeleteFunc(slices.Clone(free), func(a asked) bool { return !may(a) })
		if p.begins != "" || len(list) == 0 {
			return
		}
		best := slices.MinFunc(list, func(a, b asked) int {
			return cmp.Or(cmp.Compare(len(sees[a.addr]), len(sees[b.addr])),
				cmp.Compare(onHost(chosen, a.host()), onHost(chosen, b.host())))
		})
		p.begins, chosen = best.addr, append(chosen, best)
		free = slices.DeleteFunc(free, func(a asked) bool { return a.addr == best.addr })
	}
	for i := range c.parts {
		take(&c.parts[i], func(a asked) bool { return a.Restored == c.parts[i].Dir })
	}
	var faults []error
	order := make([]*part, len(c.parts))
	for i := range c.parts {
		order[i] = &c.parts[i]
	}
	number := func(p *part) (n int) {
		for _, a := range found {
			if finds(a, p.Dir) {
				n++
			}
		}
		return n
	}
	slices.SortStableFunc(order, func(a, b *part) int { return cmp.Compare(number(a), number(b)) })
	for _, p := range order {
		take(p, func(a asked) bool { return a.Pristine && finds(a, p.Dir) })
		if p.begins == "" {
			faults = append(faults, fmt.Errorf("no empty server has %s on its machine", p.Dir))
		}
	}
	return errors.Join(faults...)
}

// restores is the first configuration of a cluster whose shards' first nodes have restored their
// backups. Its tables are the newest, under a version that none of them has seen.
func (c *creation) restores(shards [][]asked) (*nodes.Configuration, error) {
	first := &nodes.Configuration{Cluster: nodes.NewID(), Partitions: c.parts[0].Partitions}
	for i, p := range c.parts {
		addr := shards[i][0].addr
		info, err := c.info(addr)
		switch {
		case err != nil:
			return nil, err
		case info.Tables == nil:
			return nil, fmt.Errorf("%s does not have the data of %s: start it with an empty directory", addr,
				p.Dir)
		case info.Tables.Version >= first.Tables.Version:
			first.Tables = *info.Tables
		}
		first.Version, first.Format = max(first.Version, p.Origin.Version), max(first.Format, p.Origin.Format)
		self, shard := at(info.Self, addr), *p.Origin.Of()
		self.Shard, self.Voter, shard.Founder = shard.ID, true, self.ID
		first.Members, first.Shards = append(first.Members, self), append(first.Shards, shard)
	}
	first.Version++
	first.Tables.Version++
	return first, nil
}

// restoreTo makes a node take what is in a backup on its machine.
func (o *operator) restoreTo(n remote, dir string) error {
	o.Say("%s: checks and copies %s", n.Addr, dir)
	patient, err := o.Patient(n.Addr)
	if err != nil {
		return err
	}
	if err := o.Wait(n.Addr+" to copy "+dir, func() (bool, error) {
		return true, remote{patient}.do(nodes.VerbRestore, nodes.RestoreRequest{Dir: dir}, nil)
	}); err != nil {
		return err
	}
	return o.Wait(n.Addr+" to open what was restored", func() (bool, error) {
		info, err := o.info(n.Addr)
		return info.Restored == dir, err
	})
}
