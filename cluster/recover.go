package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/persistence/oplog"
	"github.com/fbfkv/fbfkv/store"
)

// End is where the log of a member's directory ends.
type End struct {
	Dir     string
	Cluster string // its id
	Term    uint64 // of the last entry
	Last    uint64 // index of the last entry
	Applied uint64 // index up to which it is known to be committed
}

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
	if err := d.Close(); err != nil {
		return e, err
	}
	if !member {
		return e, fmt.Errorf("data directory %s belongs to no cluster", dir)
	}
	if n := len(c.Shards); n > 1 {
		return e, fmt.Errorf("data directory %s has one of %d shards: only a cluster of one shard can be recovered as yet", dir, n)
	}
	db, err := persistence.OpenReadOnly(persistence.Options{FS: vfs.Default, Dir: dir, Sections: Sections, Fatal: func(error) {}})
	if err != nil {
		return e, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	e = End{Dir: dir, Cluster: c.Cluster, Applied: db.Log().Applied()}
	if _, e.Last = db.Log().EntryBounds(); e.Last > 0 {
		var last oplog.Entry
		err = db.Log().Entry(e.Last, &last)
		e.Term = last.Term
	}
	return e, err
}

// Longer reports whether the log of e has everything that was acknowledged as far as that of o
// has: Raft's rule for votes.
func (e End) Longer(o End) bool { return e.Term > o.Term || e.Term == o.Term && e.Last >= o.Last }

// recoverTime bounds how long a node alone needs to lead and to apply its log.
const recoverTime = 10 * time.Minute

// Recover copies what a member's directory has to a new one, which must be empty or not exist:
// all that its log says, be it known to be committed or not. The copy belongs to no cluster.
// The directory itself would lead a cluster of its own, so no server takes it from then on. After an error
// Recover can be called again. ErrTarget: to cannot be used, and nothing has changed.
func Recover(dir, to string, log *slog.Logger) (err error) {
	if err := persistence.CheckTarget(vfs.Default, dir, to); err != nil {
		return err
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
	way, err := Listen(l, NetOptions{Self: Identity{Cluster: c.Cluster, Node: d.ID(), Format: FormatLevel}, Admit: alone, Log: log})
	if err != nil {
		return errors.Join(err, l.Close(), d.Close())
	}
	defer way.Close()
	n, err := Start(Options{
		ID: d.ID(), Stable: d.Stable, Net: way, Address: l.Addr().String(), Dir: dir, Logger: log, Alone: true,
		Open: func(replicated func(*oplog.Log) store.Log) (*store.Store, error) {
			return store.Open(store.Options{Dir: dir, Seed: uint64(c.Seed), Replicated: replicated, Sections: Sections, Logger: log})
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
	return n.st.Backup(to)
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
func (n *Node) standAlone(entries *LogStore) error {
	term, err := n.o.Stable.GetUint64([]byte(termValue))
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
	only := raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(n.o.ID), Address: raft.ServerAddress(n.o.Address)}}}
	if err := n.o.Stable.SetUint64([]byte(termValue), term); err != nil {
		return err
	}
	return entries.StoreLog(&raft.Log{Index: last + 1, Term: term, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(only)})
}
