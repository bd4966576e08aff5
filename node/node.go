// Package node wires one process together: the data directory, the cluster that it may be a member
// of, and the other regions. Its server is made by the caller, and attached. The file system,
// listeners, connections, the clock and the end of the process are options, so that a test can run
// nodes in a world of its own.
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/cluster"
	"github.com/fbfkv/fbfkv/commands"
	"github.com/fbfkv/fbfkv/commands/acl"
	"github.com/fbfkv/fbfkv/regions"
	"github.com/fbfkv/fbfkv/server"
	"github.com/fbfkv/fbfkv/store"
)

// Options say what a node is, and what it meets.
type Options struct {
	// Config has the settings, Certificates the certificates that they name (nil: none), Users the
	// server's users.
	Config       *server.Config
	Certificates *server.TLS
	Users        *acl.Users
	// OpenFiles is how many files the data directory may have open; 0: the store's default.
	OpenFiles int
	// Version is the program's, without a "v".
	Version string
	// Logger receives what an operator should know.
	Logger *slog.Logger

	// FS holds the data directory; nil: the machine's file system.
	FS vfs.FS
	// ListenCluster opens the cluster port; nil: as Config says.
	ListenCluster func() (net.Listener, error)
	// DialCluster and DialRegion open a connection to another node, and to another region; nil: by TCP.
	DialCluster, DialRegion func(ctx context.Context, address string) (net.Conn, error)
	// TuneStore and TuneCluster change the options of the store and of the shard's Raft group,
	// beyond the settings; nil: nothing does.
	TuneStore   func(*store.Options)
	TuneCluster func(*cluster.Options)
	// Exit ends the process with a status, and does not return; nil: os.Exit.
	Exit func(status int)
}

// Node is an open data directory: of a server that stands alone, of a member of a cluster, or of a
// server that is about to become one. Its methods are safe for concurrent use, but for Attach and
// Close.
type Node struct {
	o       Options
	st      *store.Store
	member  *member    // nil: it stands alone
	regions *regionEnd // nil: the node is not a member of a cluster yet
}

// Open opens the data directory. Its server is not there yet.
func Open(o Options) (*Node, error) {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.Exit == nil {
		o.Exit = os.Exit
	}
	n := &Node{o: o}
	if o.Config.Cluster.Enabled {
		if err := n.openMember(); err != nil {
			return nil, err
		}
		return n, nil
	}
	err := cluster.CheckAlone(o.FS, o.Config.Dir)
	if err == nil {
		n.st, err = o.openStore(func(*store.Options) {})
	}
	if err != nil {
		return nil, err
	}
	if n.regions, err = openRegions(n.st, nil, o); err != nil {
		return nil, errors.Join(err, n.st.Close())
	}
	return n, nil
}

// openMember opens the directory as a node's, be it a member of a cluster or not yet.
func (n *Node) openMember() (err error) {
	if n.member, err = openMember(n.o); err != nil {
		return err
	}
	n.st = n.member.st
	if n.member.ctx == nil {
		return nil
	}
	if n.regions, err = openRegions(n.st, n.member.region(), n.o); err != nil {
		return errors.Join(err, n.member.close(false))
	}
	return nil
}

// Store returns the store.
func (n *Node) Store() *store.Store { return n.st }

// Shard returns this node's replica of its shard; nil if it has none.
func (n *Node) Shard() *cluster.Node {
	if n.member == nil {
		return nil
	}
	return n.member.node.Load()
}

// Cluster returns what commands need of the cluster; nil if this cannot be a member of any.
func (n *Node) Cluster() *commands.Cluster {
	if n.member == nil {
		return nil
	}
	return n.member.commands()
}

// Regions returns what commands need of regions; nil if this cannot be one.
func (n *Node) Regions() *regions.Node {
	if n.regions == nil {
		return nil
	}
	return n.regions.node
}

// Attach connects the node with its server. again makes the process close everything and
// open it again; cutOff closes all listeners and connections at once.
func (n *Node) Attach(s *server.Server, again, cutOff func()) {
	if n.member != nil {
		n.member.attach(s, again, cutOff)
	}
	if n.regions != nil {
		n.regions.server.Store(s)
	}
}

// HandOver makes another node lead the shard, if this one leads and there is another.
func (n *Node) HandOver() {
	if n.member != nil {
		n.member.handOver()
	}
}

// Close closes the data directory, with a snapshot if one is wanted. The server must have stopped.
func (n *Node) Close(snapshot bool) error {
	var err error
	if n.regions != nil {
		err = n.regions.node.Close()
	}
	if n.member != nil {
		return errors.Join(err, n.member.close(snapshot))
	}
	return errors.Join(err, n.o.closeStore(n.st, snapshot))
}

// openStore opens the data directory with options that change may change, and says what was found.
func (o Options) openStore(change func(*store.Options)) (*store.Store, error) {
	options, err := o.Config.StoreOptions()
	if err != nil {
		return nil, err
	}
	options.Logger, options.OpenFiles, options.FS = o.Logger, o.OpenFiles, o.FS
	if o.TuneStore != nil {
		o.TuneStore(&options)
	}
	change(&options)
	st, err := store.Open(options)
	if err != nil {
		return nil, err
	}
	found := st.Stats()
	o.Logger.Info("data directory open", "dir", o.Config.Dir, "appendfsync", o.Config.AppendFsync,
		"partitions", found.Partitions, "tables", len(st.Tables()), "keys", found.Recovery.Keys,
		"redone", found.Recovery.Entries, "took", found.Recovery.Took.Round(time.Millisecond))
	for _, problem := range found.Recovery.Problems {
		o.Logger.Warn("recovered from damage", "problem", problem)
	}
	return st, nil
}

// closeStore closes the data directory, with a snapshot if one is wanted.
func (o Options) closeStore(st *store.Store, snapshot bool) error {
	begin := time.Now()
	closeIt := st.Close
	if !snapshot {
		closeIt = st.CloseNow
	}
	if err := closeIt(); err != nil {
		return fmt.Errorf("closing the data directory: %w", err)
	}
	o.Logger.Info("stopped", "snapshot", snapshot, "took", time.Since(begin).Round(time.Millisecond))
	return nil
}
