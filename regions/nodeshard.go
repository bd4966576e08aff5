package regions

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/fbfkv/fbfkv/store"
)

// A Node whose store is a replica of a shard: it reads others while it leads.

// agreeTime bounds how long a cluster may take to agree on the members.
const agreeTime = 5 * time.Second

const catchUpTime = time.Second

// identity is what others know this region by.
func (o *Options) identity() Admission {
	if c := o.Cluster; c != nil {
		return Admission{Data: c.Data, Incarnation: c.Incarnation, Partitions: c.Partitions}
	}
	meta := o.Store.Meta()
	return Admission{Data: hex.EncodeToString(meta.ID[:]), Incarnation: meta.Incarnation,
		Partitions: meta.Partitions}
}

// set makes others the members, in the place of those of a version; 0: there are none.
func (n *Node) set(set store.RegionSet, after uint64) error {
	if n.cluster == nil {
		return n.Store.SetRegions(set)
	}
	ctx, cancel := context.WithTimeout(n.ctx, agreeTime)
	defer cancel()
	return n.cluster.Agree(ctx, set, after)
}

// CatchUp returns when the node knows what its cluster has agreed on, or after a while: for an
// operator, who has had another node change that.
func (n *Node) CatchUp() {
	if n.cluster == nil {
		return
	}
	ctx, cancel := context.WithTimeout(n.ctx, catchUpTime)
	defer cancel()
	_ = n.cluster.CatchUp(ctx) // else what it knows is told
}

// changes returns a channel that is closed when there is something to follow in the cluster.
func (n *Node) changes() <-chan struct{} {
	if n.cluster == nil {
		return nil
	}
	return n.cluster.Changed()
}

// keep logs, as the leader of a shard, what the cluster has agreed on, and reports whether this
// node is to read others. n.mu is held.
func (n *Node) keep() (reads bool, err error) {
	if n.cluster == nil {
		return true, nil
	}
	set, ok := n.cluster.Members()
	leads, asking := n.cluster.Leads(), n.Store.Asking()
	if n.mesh != nil && (!leads || asking != nil && asking != n.mesh.asking) { // or it leads anew
		err = n.mesh.Close()
		n.mesh = nil
	}
	switch {
	case !leads || err != nil:
		return false, err
	case !ok || len(n.cluster.Own()) == 0:
		return false, nil
	}
	return true, n.Store.KeepRegions(set, n.cluster.Own())
}
