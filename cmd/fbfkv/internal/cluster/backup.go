package cluster

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	nodes "github.com/fbfkv/fbfkv/cluster"
	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/operate"
)

const backupHelp = `Asks the server ANY of a cluster for a consistent copy of the data, in DIR
below its backup-dir, and waits until it is complete. Clients are served meanwhile. DIR must
be empty or not exist. A follower's copy costs the leader nothing; it has the entries that
this follower knew to be committed when the copy began.

fbfkv check DIR checks the copy. fbfkv cluster restore makes a cluster of it, and
fbfkv restore a single server's directory.

With several shards a replica of each copies its shard to DIR/SHARD below its own
backup-dir; SHARD is the beginning of the shard's id. Each copy is consistent by itself, and says
which partitions it has. fbfkv cluster restore DIR makes a cluster of them all.`

func backupCommand() operate.Subcommand {
	return operate.Subcommand{
		Use:   "backup ANY DIR",
		Short: "copy the data of a cluster", Long: backupHelp, Args: cobra.ExactArgs(2),
		Run: run(func(o *operator, args []string) error { return o.backup(args[0], args[1]) }),
	}
}

func (o *operator) backup(addr, dir string) error {
	c, err := o.member(addr)
	if err != nil {
		return err
	}
	if len(c.Shards) == 1 {
		return o.backupOf("cluster "+short(c.Cluster), addr, dir)
	}
	var failed error
	for _, shard := range c.Shards {
		err := o.copier(c, shard.ID, addr, func(at string) error {
			return o.backupOf("shard "+short(shard.ID), at, filepath.Join(dir, short(shard.ID)))
		})
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("shard %s: %w", short(shard.ID), err))
		}
	}
	return failed
}

// copier calls fn with the node that is to copy a shard: wanted if that is one of its nodes, or else a
// replica; the leader if no other answers.
func (o *operator) copier(c *nodes.Configuration, shard, wanted string, fn func(addr string) error) error {
	all := o.survey(o.addresses(c.Of(shard)))
	leads, best := leading(c, all), ""
	for _, a := range all {
		switch {
		case a.err != nil || a.Cluster != c.Cluster || a.State == nil:
		case a.addr == wanted:
			return fn(wanted)
		case best == "" || leads != nil && best == leads.addr:
			best = a.addr
		}
	}
	if best == "" {
		return errors.Join(append(problems(all), errors.New("no node answers"))...)
	}
	return fn(best)
}

// backupOf has a node copy its shard; what names the copied data for people.
func (o *operator) backupOf(what, addr, dir string) error {
	n, err := o.Patient(addr)
	if err != nil {
		return err
	}
	began := time.Now()
	path, err := n.Ask("BACKUP", dir)
	if err != nil {
		return fmt.Errorf("no backup was made: %w", err)
	}
	o.Say("the %s is backed up to %s on %s in %.1f s", what, path, addr, time.Since(began).Seconds())
	return nil
}
