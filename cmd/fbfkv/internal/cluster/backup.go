package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	nodes "github.com/fbfkv/fbfkv/cluster"
)

const backupHelp = `Asks the server ANY of a cluster for a consistent copy of the shard's data, in DIR on
its machine, and waits until it is complete. Clients go on meanwhile. DIR must be empty
or not exist. A follower's copy costs the leader nothing; it has what was committed
when it began, as far as that follower knew.

fbfkv check DIR checks the copy. fbfkv cluster restore makes a cluster of it, and
fbfkv restore a single server's directory.`

const restoreHelp = `Makes a cluster as create does, whose first node begins with what is in the backup DIR
on its machine. All the servers must be empty.`

func backupCommand() subcommand {
	return subcommand{
		use:   "backup ANY DIR",
		short: "copy the data of a cluster", long: backupHelp, args: cobra.ExactArgs(2),
		run: func(o *operator, args []string) error { return o.backup(args[0], args[1]) },
	}
}

func (o *operator) backup(addr, dir string) error {
	c, err := o.member(addr)
	if err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	client, err := o.server.Client(addr, -1)
	if err != nil {
		return err
	}
	defer client.Close()
	began := time.Now()
	if err := client.Do(context.Background(), "BACKUP", dir).Err(); err != nil {
		return fmt.Errorf("no backup was made: %w", (&remote{addr, client}).explain(err))
	}
	o.say("the cluster %s is backed up to %s on %s in %.1f s", short(c.Cluster), dir, addr, time.Since(began).Seconds())
	return nil
}

func restoreCommand() subcommand {
	var c creation
	return subcommand{
		use:   "restore DIR HOST:PORT ... [--replicas N] [--yes]",
		short: "make a cluster from a backup", long: restoreHelp,
		args: cobra.MinimumNArgs(2), flags: c.flags,
		run: func(o *operator, args []string) error {
			dir, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			c.operator, c.addrs = o, args[1:]
			return c.run(dir)
		},
	}
}

// restoreTo makes a node take what is in a backup on its machine.
func (o *operator) restoreTo(n *remote, dir string) error {
	o.say("%s: checks and copies %s", n.addr, dir)
	client, err := o.server.Client(n.addr, -1) // as long as it takes
	if err != nil {
		return err
	}
	defer client.Close()
	if err := (&remote{n.addr, client}).do(nodes.VerbRestore, nodes.RestoreRequest{Dir: dir}, nil); err != nil {
		return err
	}
	return o.wait(n.addr+" to open what was restored", func() (bool, error) {
		info, err := o.info(n.addr)
		return info.Restored == dir, err
	})
}
