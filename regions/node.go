package regions

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fbfkv/fbfkv/internal/longlock"
	"github.com/fbfkv/fbfkv/store"
	"github.com/fbfkv/fbfkv/store/part"
)

// Node is a server's part in regions: it answers others, and once the store is a member reads them.
// While the store is no member, it reads nobody, and refuses requests. Safe for concurrent use.
type Node struct {
	Source
	opts Options

	ctx    context.Context // done when closed
	cancel context.CancelFunc
	wg     sync.WaitGroup
	learnt chan struct{} // has room for one: the members have changed

	// changing is held while the members change, and a reader of a region may take it. mu, of mesh,
	// is held while the Mesh follows that, and so waits for the readers.
	changing longlock.Mutex

	acknowledged atomic.Uint64            // see Acknowledge
	stray        atomic.Pointer[[]string] // ills: removed regions that go on

	levelling struct {
		wake chan struct{} // has room for one: the members may have changed
		mu   sync.Mutex
		why  string // it is held up
	}

	mu   longlock.Mutex // as it is held while the members are followed
	mesh *Mesh          // nil: the store is no member
	why  error          // it cannot follow the members
}

// Open begins to read the other regions at the addresses that the members of the store have;
// Options.Peers is not used.
func Open(o Options) (*Node, error) {
	n := &Node{Source: Source{Store: o.Store, Clock: o.Clock, cluster: o.Cluster}, opts: o.withDefaults(),
		learnt: make(chan struct{}, 1)}
	n.opts.learn, n.known = n.learn, n.knownTo
	n.doubted = func(err error) {
		if m := n.Mesh(); m != nil {
			m.doubt(err)
		}
	}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.levelling.wake = make(chan struct{}, 1)
	n.sayUnread()
	n.wg.Go(n.run)
	n.wg.Go(n.removals)
	n.wg.Go(n.strays)
	if n.cluster != nil {
		n.wg.Go(n.survey)
		return n, nil // run follows it
	}
	if err := n.follow(); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// sayUnread writes to the log that no other region reads this one, if that was known before.
func (n *Node) sayUnread() {
	set, _ := n.Members()
	own, ok := set.Member(set.Self)
	switch {
	case !ok:
	case set.Removed:
		n.opts.Logger.Error(store.ErrRemoved.Error(), "region", own.Name)
	case own.Incarnation != n.opts.identity().Incarnation || n.Store.Older():
		n.opts.Logger.Error(store.ErrRestored.Error(), "region", own.Name)
	}
}

// run follows the members that others tell of, or the cluster.
func (n *Node) run() {
	for fails := 0; ; {
		changed := n.changes()
		err := n.follow()
		n.mu.Lock()
		n.why = err
		n.mu.Unlock()
		var again <-chan time.Time
		if err == nil || errors.Is(err, net.ErrClosed) {
			fails = 0
		} else {
			if n.opts.Logger.Warn("the set of regions has changed, and this server cannot apply the "+
				"change yet", "error", err); n.cluster != nil {
				again = time.After(n.opts.delay(fails))
			}
			fails++
		}
		select {
		case <-n.ctx.Done():
			return
		case <-n.learnt:
		case <-changed:
		case <-again:
		}
	}
}

// Change changes the members, or makes the store one (store.SetRegions), and follows that.
func (n *Node) Change(set store.RegionSet) error {
	n.changing.Lock()
	known, _ := n.Members()
	err := n.set(set, known.Version)
	n.changing.Unlock()
	if err != nil {
		return err
	}
	return n.follow()
}

// Flush deletes everything in all regions, for good: it begins a new era here, which others follow when
// they hear of it. What they count until then, and whatever a region that is away counts, is lost.
// Errors: the same as of Admit.
func (n *Node) Flush() error {
	_, err := n.change(func(set *store.RegionSet) error {
		set.Era++
		return nil
	})
	return err
}

// follow reads the members that there are now.
func (n *Node) follow() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if reads, err := n.keep(); err != nil || !reads {
		return err
	}
	set, ok := n.Store.Regions()
	if !ok {
		return nil
	}
	peers := make(map[part.Region]string)
	for _, m := range set.Members {
		if m.Region != set.Self && !m.Gone && m.Address != "" && !set.Removed {
			peers[m.Region] = m.Address
		}
	}
	select {
	case n.levelling.wake <- struct{}{}:
	default:
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

// knownTo notes that a region reads this one.
func (n *Node) knownTo(r part.Region) {
	if m := n.Mesh(); m != nil {
		m.askedBy(r)
	}
}

// Mesh is what reads the others; nil: the store is no member.
func (n *Node) Mesh() *Mesh {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mesh
}

// cannotRead says why it cannot begin to; "": nothing is wrong.
func (n *Node) cannotRead() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.why == nil {
		return ""
	}
	return n.why.Error()
}

// Verify compares this region with all that it reads (Mesh.Verify).
func (n *Node) Verify(ctx context.Context) ([]Difference, error) {
	m := n.Mesh()
	if m == nil {
		return nil, store.ErrNoRegions
	}
	return m.Verify(ctx)
}

// Close ends the reading. To be called before the store is closed, and after the last change.
func (n *Node) Close() error {
	n.cancel()
	n.wg.Wait()
	if m := n.Mesh(); m != nil {
		return m.Close()
	}
	return nil
}
