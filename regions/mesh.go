package regions

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/fbfkv/fbfkv/internal/longlock"
	"github.com/fbfkv/fbfkv/store"
	"github.com/fbfkv/fbfkv/store/part"
)

// ErrRefused: another region does not let this one read, or is not the expected one. Time alone
// does not mend that; the Mesh asks again at the longest delay.
var ErrRefused = errors.New("refused")

// Options of a Mesh. Zero fields have defaults, but for Store.
type Options struct {
	// Store is the store of a member of regions, open until the Mesh is closed.
	Store *store.Store
	// Peers are the addresses, host:port, of the other regions. See SetPeers.
	Peers map[part.Region]string
	// Dial connects to an address; default: TCP, and TLS if there is a configuration.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	TLS  *tls.Config
	// Login returns what this region logs in with, for a connection that is made; no password: it
	// does not. The user may be "". Nil: no password.
	Login func() (user, password string)
	// Logger receives what an operator should know; default: discard.
	Logger *slog.Logger
	// Clock is what clocks of others are compared with; default: the machine's.
	Clock store.Clock
	// Most is about how many bytes an answer has, 1 to 64 MiB; default 4 MiB.
	Most int
	// Block is how long a source waits for something new before it says that there is nothing,
	// up to a minute; default 10 s.
	Block time.Duration
	// Timeout is how long a source may take for an answer, beside Block, and half of it to accept a
	// connection; default 30 s.
	Timeout time.Duration
	// FirstRetry and LastRetry are how long to wait after the first failure and, twice as long each
	// time, at most; default 100 ms and 15 s. A wait is shorter than that by up to a half, by chance.
	FirstRetry, LastRetry time.Duration
	// Takers is how many partitions take at the same time what a source has answered; default 8.
	Takers int
	// Announce returns the address, HOST:PORT, at which other regions reach this one, as a Node
	// tells them; "": the operator says it. Nil: the same.
	Announce func() string
	// Secure: connections that Dial makes are TLS, so nodes of a shard are reached at their ports for that.
	Secure bool
	// Cluster is the one of whose shard the store is a replica; nil: the store is all of the region.
	Cluster *Cluster
	// DigestPeriod is how often this region compares itself with the others by digests, as Verify
	// does; default 1 h. The first time is at random within it, and what differs is looked at again
	// after a sixtieth of it.
	DigestPeriod time.Duration
	// Unsafe says why this server must be no member, if anyone could read it; nil: it may be one.
	// A Node asks before it becomes one, or lets others in.
	Unsafe func() error
	// Remember keeps a few bytes (MaxRemembered), in the place of those before, and Recall returns
	// them, also after a restart; nil, or nothing: what regions say of their nodes is forgotten
	// with the process.
	Remember func([]byte) error
	Recall   func() ([]byte, error)

	learn       func(store.RegionSet) error // takes newer members; nil: nobody does
	remembered  *remembered
	learnPeriod time.Duration // between two requests for the nodes of other regions; default 15 s
	soon        time.Duration // Block of a request that waits behind others; default 250 ms

	doubt       func(error)   // is told why an answer cannot be taken
	doubtPeriod time.Duration // how often others are asked for positions at most; default 10 s
	sure        bool          // in tests: it has no doubt when it starts

	tablesPeriod time.Duration // how often others are asked for their tables; default 1 min
	strayPeriod  time.Duration // how often removed regions are asked whether they go on; default 1 min

	after func(time.Duration) <-chan time.Time // for DigestPeriod; default time.After
}

func (o Options) withDefaults() Options {
	def(&o.Most, 4<<20)
	def(&o.Block, 10*time.Second)
	def(&o.Timeout, 30*time.Second)
	def(&o.FirstRetry, 100*time.Millisecond)
	def(&o.LastRetry, 15*time.Second)
	def(&o.Takers, 8)
	def(&o.soon, 250*time.Millisecond)
	def(&o.learnPeriod, 15*time.Second)
	def(&o.DigestPeriod, time.Hour)
	def(&o.tablesPeriod, time.Minute)
	def(&o.strayPeriod, time.Minute)
	def(&o.doubtPeriod, 10*time.Second)
	o.Most, o.Block = min(o.Most, maxMost), min(o.Block, maxBlock)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = store.SystemClock()
	}
	if o.Dial == nil {
		o.Dial = o.dial
	}
	if o.after == nil {
		o.after = time.After
	}
	if o.Login == nil {
		o.Login = func() (user, password string) { return "", "" }
	}
	if o.remembered == nil {
		o.remembered = o.recall()
	}
	return o
}

func def[T int | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

func (o *Options) dial(ctx context.Context, address string) (net.Conn, error) {
	if o.TLS == nil {
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}
	return (&tls.Dialer{Config: o.TLS}).DialContext(ctx, "tcp", address)
}

// now is the wall time, unix ms.
func (o *Options) now() int64 {
	wall, _ := o.Clock()
	return wall
}

// Mesh reads all other regions for one of them. Safe for concurrent use.
type Mesh struct {
	opts   Options
	ctx    context.Context // done when closed
	cancel context.CancelFunc

	mu    longlock.Mutex // of peers; held while they change, which waits for those that end
	peers map[peerKey]*peer

	acquainted acquainted
	digests    digests
	doubts     chan error     // has room for one: the reason to ask the other regions for their positions
	asking     *store.Asking  // nil: the store was not asking when this began
	wg         sync.WaitGroup // audit, examine, and calls of look and of grow
}

// peerKey is a shard of a region, by its first partition: that with partition 0 there always is.
type peerKey struct {
	region part.Region
	first  uint16
}

// Start begins to read. It fails with store.ErrNoRegions if the store is no member, and with
// what SetPeers fails with.
func Start(o Options) (*Mesh, error) {
	if _, ok := o.Store.Regions(); !ok {
		return nil, store.ErrNoRegions
	}
	m := &Mesh{opts: o.withDefaults(), peers: make(map[peerKey]*peer),
		digests: digests{of: make(map[part.Region]*digested)}, doubts: make(chan error, 1)}
	m.opts.doubt, m.asking = m.doubt, o.Store.Asking()
	m.ctx, m.cancel = context.WithCancel(context.Background())
	if err := m.SetPeers(o.Peers); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	m.wg.Go(m.audit)
	m.wg.Go(m.examine)
	return m, nil
}

// SetPeers makes the Mesh read these regions at these addresses, and no others. Those that keep their
// address are not disturbed; whoever is paused stays so. Each must be another member. It returns
// when nothing reads those that are gone. To be called when the members change.
func (m *Mesh) SetPeers(addresses map[part.Region]string) error {
	for r := range addresses {
		if _, err := m.opts.Store.PullRanges(r); err != nil {
			return fmt.Errorf("region %d: %w", r, err)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx.Err() != nil {
		return net.ErrClosed
	}
	paused := make(map[part.Region]bool)
	for k, p := range m.peers {
		if addresses[k.region] != p.address {
			p.stop()
			delete(m.peers, k)
			m.acquainted.forget(k.region)
			paused[k.region] = p.Status().Paused
		}
	}
	for r, address := range addresses {
		if k := (peerKey{r, 0}); m.peers[k] == nil {
			m.add(k, address, paused[r], nil)
		}
	}
	return nil
}

// add begins to read a shard of a region, of which nothing need be known. The lock is held.
func (m *Mesh) add(k peerKey, address string, paused bool, shard *Shard) {
	p := newPeer(m.ctx, &m.opts, k.region, k.first, address, paused, &m.acquainted)
	if k.first == 0 {
		p.found = func(p *peer, all []Shard) { m.wg.Go(func() { m.grow(p, all) }) }
	}
	if shard != nil {
		p.shard, p.nodes, p.next = shard, shard.addresses(m.opts.Secure), rand.IntN(maxShardNodes)
	}
	m.peers[k] = p
	go p.run()
}

// grow begins to read further shards of a region, of which a peer has heard.
func (m *Mesh) grow(p *peer, all []Shard) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx.Err() != nil || m.peers[peerKey{p.region, 0}] != p {
		return
	}
	for i := range all {
		if k := (peerKey{p.region, all[i].first()}); m.peers[k] == nil {
			m.add(k, p.address, p.Status().Paused, &all[i])
		}
	}
}

// Pause ends the reading of a region until Resume; meanwhile the region keeps its log, as far as
// its region-backlog goes. Both report whether that region is read at all.
func (m *Mesh) Pause(r part.Region) bool { return m.each(r, (*peer).pause) }

// Resume reads a region again, also one that is waiting after a failure: at once.
func (m *Mesh) Resume(r part.Region) bool { return m.each(r, (*peer).resume) }

// askedBy notes that a region reads this one: a refusal before that may be over.
func (m *Mesh) askedBy(r part.Region) { m.each(r, (*peer).askedUs) }

func (m *Mesh) each(r part.Region, do func(*peer)) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k, p := range m.peers {
		if k.region == r {
			do(p)
		}
	}
	return m.peers[peerKey{r, 0}] != nil
}

// Status returns how the reading of each region goes, by region.
func (m *Mesh) Status() []Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make(map[part.Region]*Status)
	for k, p := range m.peers {
		s := p.Status()
		switch known := all[k.region]; {
		case known == nil || known.idle:
			all[k.region] = &s
		case !s.idle:
			known.add(&s)
		}
	}
	sorted := make([]Status, 0, len(all))
	for _, r := range slices.Sorted(maps.Keys(all)) {
		all[r].Connected = all[r].Connected && m.acquainted.whole(r)
		m.digests.show(all[r])
		all[r].tables = m.tables(r)
		sorted = append(sorted, *all[r])
	}
	return sorted
}

// Close ends the reading: connections at once, whatever the other side does, and returns when
// what was being taken is committed or has failed. After that the Mesh does not use the store.
func (m *Mesh) Close() error {
	m.mu.Lock()
	m.cancel()
	for _, p := range m.peers {
		<-p.done
	}
	m.mu.Unlock()
	m.wg.Wait()
	return nil
}
