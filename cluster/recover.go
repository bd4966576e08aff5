package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/cluster/raftgroup"
	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/persistence/oplog"
	"github.com/fbfkv/fbfkv/store"
)

// End is where the log of a member's directory ends.
type End struct {
	Dir     string
	Cluster string // its id
	Shard   string // the id of the node's shard
	Node    string // the node's id
	Term    uint64 // of the last entry
	Last    uint64 // index of the last entry
	Applied uint64 // index up to which it is known to be committed

	config Configuration // the newest that the node knew
}

// Shards returns the ids of the shards of the cluster that have partitions, as far as the node knew.
func (e End) Shards() (ids []string) {
	for _, s := range e.config.Shards {
		if s.Count() > 0 {
			ids = append(ids, s.ID)
		}
	}
	return ids
}

// Voters is how many nodes of a shard vote, as far as the node knew.
func (e End) Voters(shard string) int { return e.config.Voters(shard) }

// Newer reports whether the node knew a newer configuration than another one.
func (e End) Newer(o End) bool { return e.config.Version > o.config.Version }

// EndOf reads where the log of a member's directory ends, which no server has open.
func EndOf(dir string) (e End, err error) {
	if _, err := vfs.Default.Stat(vfs.Default.PathJoin(dir, persistence.ValuesName)); err != nil {
		return e, fmt.Errorf("%s is not the data directory of a node of a cluster: %w", dir, err)
	}
	d, err := openDirectory(nil, dir, true)
	if err != nil {
		return e, err
	}
	c, member := d.Configuration()
	e = End{Dir: dir, Cluster: c.Cluster, Node: d.ID(), config: c}
	if err := d.Close(); err != nil {
		return e, err
	}
	self := c.Member(e.Node)
	if !member || self == nil {
		return e, fmt.Errorf("data directory %s belongs to no cluster", dir)
	}
	e.Shard = self.Shard
	db, err := persistence.OpenReadOnly(persistence.Options{FS: vfs.Default, Dir: dir, Sections: Sections,
		Fatal: func(error) {}})
	if err != nil {
		return e, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	e.Applied = db.Log().Applied()
	if _, e.Last = db.Log().EntryBounds(); e.Last > 0 {
		var last oplog.Entry
		err = db.Log().Entry(e.Last, &last)
		e.Term = last.Term
	}
	return e, err
}

// Longer reports whether the log of e has everything acknowledged that the log of o has: Raft's
// rule for votes.
func (e End) Longer(o End) bool { return e.Term > o.Term || e.Term == o.Term && e.Last >= o.Last }

// recoverTime bounds how long a node alone needs to lead and to apply its log.
const recoverTime = 10 * time.Minute

// CheckRecover refuses a directory to which Recover cannot write what e is the end of: one that is
// not empty, unless it is the copy of that already.
func CheckRecover(e End, to string) (done bool, err error) {
	one, err := readBackup(vfs.Default, to)
	if err == nil && one.Origin != nil && one.Origin.Cluster == e.Cluster && one.Origin.Node == e.Node {
		return true, nil
	}
	return false, persistence.CheckTarget(vfs.Default, e.Dir, to)
}

// Recover copies what a member's directory has to a new one, which must be empty or not exist: all
// that its log says, be it known to be committed or not. The copy belongs to no cluster, and says
// of which shard it is, as newest knew that cluster. The directory itself would lead a cluster of
// its own, so no server takes it from then on. After an error Recover can be called again.
// ErrTarget: to cannot be used, and nothing has changed.
func Recover(from End, to string, newest End, log *slog.Logger) (err error) {
	dir := from.Dir
	if done, err := CheckRecover(from, to); done || err != nil {
		return err
	}
	origin := originOf(newest.config, from.Shard, from.Node)
	if newest.config.Shard(from.Shard) == nil {
		return fmt.Errorf("the shard %.8s of %s was removed from the cluster: leave that directory out",
			from.Shard, dir)
	}
	d, err := openDirectory(nil, dir, true)
	if err != nil {
		return err
	}
	c, _ := d.Configuration()
	if err := d.retire(); err != nil {
		return errors.Join(err, d.Close())
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, d.Close())
	}
	alone := func(Identity, byte) error { return errors.New("this node is being recovered, alone") }
	way, err := Listen(l, NetOptions{Self: Identity{Cluster: c.Cluster, Node: d.ID(), Format: FormatLevel},
		Admit: alone, Log: log})
	if err != nil {
		return errors.Join(err, l.Close(), d.Close())
	}
	defer way.Close()
	n, err := Start(Options{
		ID: d.ID(), Stable: d.Stable, Net: way, Address: l.Addr().String(), Dir: dir, Logger: log,
		Alone: true,
		Open: func(replicated func(*oplog.Log) store.Log) (*store.Store, error) {
			return store.Open(store.Options{Dir: dir, Seed: c.Seed, Replicated: replicated,
				Sections: Sections, Logger: log})
		},
	})
	if err != nil {
		return errors.Join(err, d.Close())
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	ctx, cancel := context.WithTimeout(context.Background(), recoverTime)
	defer cancel()
	if err := n.awaitLeading(ctx); err != nil {
		return err
	}
	if err := endMoves(n.st, &newest.config, from.Shard); err != nil {
		return err
	}
	n.st.DescribeBackups(func() func() ([]byte, error) { return origin.encode })
	return n.st.Backup(to)
}

// endMoves leaves a shard's leader with the partitions that a configuration gives to it, and no
// others, when nothing moves any more. A shard that has a partition by the configuration has
// everything acknowledged of it: another shard serves it only from the next configuration on.
func endMoves(st *store.Store, c *Configuration, shard string) error {
	over := *c
	over.Version, over.Moves = math.MaxUint64, nil
	for p := range c.Partitions {
		if _, err := endMove(st, &over, shard, p); err != nil {
			return fmt.Errorf("end the move of partition %d: %w", p, err)
		}
	}
	return nil
}

// Retire makes a member's directory, which no server has open, one that no server takes any more: the
// cluster goes on from another's (Recover).
func Retire(dir string) error {
	d, err := openDirectory(nil, dir, true)
	if err != nil {
		return err
	}
	return errors.Join(d.retire(), d.Close())
}

// standAlone makes this node the only one of its shard, whatever the log says, by an entry
// behind all others.
func (n *Node) standAlone(entries *raftgroup.LogStore) error {
	term, err := n.o.Stable.GetUint64([]byte(raftgroup.TermValue))
	if err != nil {
		return err
	}
	_, last := n.log.EntryBounds()
	if last > 0 {
		var e oplog.Entry
		if err := n.log.Entry(last, &e); err != nil {
			return err
		}
		term = max(term, e.Term)
	} else if meta, err := n.o.Stable.Last(); err != nil || meta == nil {
		return errors.Join(err, errors.New("the log is empty: there is nothing to recover"))
	} else {
		last, term = meta.Index, max(term, meta.Term)
	}
	only := raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(n.o.ID),
		Address: raft.ServerAddress(n.o.Address)}}}
	if err := n.o.Stable.SetUint64([]byte(raftgroup.TermValue), term); err != nil {
		return err
	}
	return entries.StoreLog(&raft.Log{Index: last + 1, Term: term, Type: raft.LogConfiguration,
		Data: raft.EncodeConfiguration(only)})
}
