package regions

import (
	"sync"

	"github.com/fbfkv/fbfkv/store"
	"github.com/fbfkv/fbfkv/store/part"
)

// Node is what a server keeps of regions: it answers others, and once the store is a member reads
// them. It may be one that is no member; then it reads nobody, and refuses those that ask. Safe
// for concurrent use.
type Node struct {
	Source
	opts Options

	mu   sync.Mutex // of mesh; held while the members change
	mesh *Mesh      // nil: the store is no member
}

// Open begins to read the other regions at the addresses that the members of the store have;
// Options.Peers is not used.
func Open(o Options) (*Node, error) {
	n := &Node{Source: Source{Store: o.Store, Clock: o.Clock}, opts: o}
	return n, n.follow()
}

// Change changes the members, or makes the store one (store.SetRegions), and follows that.
func (n *Node) Change(set store.RegionSet) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.Store.SetRegions(set); err != nil {
		return err
	}
	return n.followLocked()
}

// Flush deletes everything in all regions, for good: it begins a new era here, which others follow when
// they hear of it. What they count until then, and whatever a region that is away counts, is lost.
func (n *Node) Flush() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	set, ok := n.Store.Regions()
	if !ok {
		return store.ErrNoRegions
	}
	set.Version++
	set.Era++
	if err := n.Store.SetRegions(set); err != nil {
		return err
	}
	return n.followLocked()
}

func (n *Node) follow() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.followLocked()
}

// followLocked reads the members that there are now. The lock is held.
func (n *Node) followLocked() error {
	set, ok := n.Store.Regions()
	if !ok {
		return nil
	}
	peers := make(map[part.Region]string)
	for _, m := range set.Members {
		if m.Region != set.Self && m.Address != "" {
			peers[m.Region] = m.Address
		}
	}
	if n.mesh != nil {
		return n.mesh.SetPeers(peers)
	}
	o := n.opts
	o.Peers = peers
	mesh, err := Start(o)
	if err == nil {
		n.mesh = mesh
	}
	return err
}

// Mesh is what reads the others; nil: the store is no member.
func (n *Node) Mesh() *Mesh {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mesh
}

// Close ends the reading. To be called before the store is closed, and after the last Change.
func (n *Node) Close() error {
	if m := n.Mesh(); m != nil {
		return m.Close()
	}
	return nil
}
