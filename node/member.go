package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fbfkv/fbfkv/cluster"
	"github.com/fbfkv/fbfkv/commands"
	"github.com/fbfkv/fbfkv/persistence/oplog"
	"github.com/fbfkv/fbfkv/server"
	"github.com/fbfkv/fbfkv/store"
)

// member is what a server is as a node of a cluster, be it a member or not yet. It connects
// package cluster, which knows no commands, with package commands, which knows no Raft.
type member struct {
	o         Options
	config    *server.Config
	log       *slog.Logger
	directory *cluster.Directory
	admin     *cluster.Admin
	st        *store.Store
	starts    uint64                       // the number of the directory's start
	witness   *cluster.Witness             // nil: no member
	net       *cluster.Net                 // nil: no member
	meta      atomic.Pointer[cluster.Meta] // nil: no member, or not yet opened
	node      atomic.Pointer[cluster.Node] // likewise
	leaders   *cluster.Leaders             // of the other shards
	tables    *cluster.TableKeeper
	mover     atomic.Pointer[cluster.Mover]
	heard     chan struct{} // one of them, or what this node tells them, has changed

	commits commitTimes
	opened  time.Time
	hadAll  atomic.Pointer[time.Time] // hasAllUntil's
	// hasAllUntil's: this node has had all that was committed, at least once since its start
	hadOnce atomic.Bool
	led     time.Time // when a look found it leading last; hasAllUntil's
	looking sync.Mutex
	view    atomic.Pointer[commands.ClusterView]
	changed atomic.Pointer[chan struct{}] // closed when the view changes

	leaves  sync.Once
	cutOff  atomic.Pointer[func()] // nil: there is no server yet
	restart chan struct{}          // the node has files to take over
	ctx     context.Context        // of a member, until it is closed
	stop    context.CancelFunc
	running sync.WaitGroup
}

// Times of a node.
const (
	// lookEvery is how often a node looks whether the others answer.
	lookEvery = 100 * time.Millisecond
	// quietPart is the part of the node timeout after which a leader that says nothing is taken
	// for gone by the nodes that follow it: a few of its heartbeats.
	quietPart = 5
	// leaderPart is the part of the node timeout after which a leader tells other shards again that
	// it leads.
	leaderPart = 2
	// silentFor is how many node timeouts a node may be silent until clients are told.
	silentFor = 3
	// handOverTime bounds an orderly change of the leader.
	handOverTime = 5 * time.Second
	// replicaPeriod is how often WAIT looks.
	replicaPeriod = 2 * time.Millisecond
)

// openMember opens the data directory as a node's.
func openMember(o Options) (*member, error) {
	directory, err := cluster.OpenDirectory(o.FS, o.Config.Dir)
	if err != nil {
		return nil, err
	}
	n := &member{o: o, config: o.Config, log: o.Logger, directory: directory, restart: make(chan struct{}, 1),
		heard: make(chan struct{}, 1)}
	n.show(&commands.ClusterView{Node: directory.ID()})
	n.admin = &cluster.Admin{Directory: directory, Self: selfOf(o.Config), Version: o.Version,
		Fetch: func(ctx context.Context, id, address string) ([]byte, error) {
			way, err := n.listen(id)
			if err != nil {
				return nil, err
			}
			defer way.Close()
			return way.FetchConfiguration(ctx, address)
		}}
	if c, member := directory.Configuration(); member {
		err = n.join(c)
	} else {
		n.st, err = o.openStore(func(*store.Options) {})
	}
	if err != nil {
		return nil, errors.Join(err, directory.Close())
	}
	n.admin.Store = n.st
	return n, nil
}

// selfOf is what the settings say of the node's addresses, and the program of its level.
func selfOf(config *server.Config) cluster.Member {
	c := &config.Cluster
	or := func(announced, port int) int {
		if announced != 0 && port != 0 {
			return announced
		}
		return port
	}
	m := cluster.Member{Host: c.AnnounceIP, Hostname: c.AnnounceHostname,
		Port:        or(c.AnnouncePort, config.Port),
		TLSPort:     or(c.AnnounceTLSPort, config.TLS.Port),
		ClusterPort: or(c.AnnounceBusPort, config.ClusterPort()), Level: cluster.FormatLevel}
	return m
}

// listen opens the cluster port as a member of a cluster.
func (n *member) listen(id string) (*cluster.Net, error) {
	o := cluster.NetOptions{Self: cluster.Identity{Cluster: id, Node: n.directory.ID(),
		Format: cluster.FormatLevel, Starts: n.starts},
		Version: func() uint64 { return n.configuration().Version }, Removed: n.removed, Witness: n.witness,
		Level: func() uint16 { return uint16(n.configuration().Format) }, Admit: n.admit,
		Secret: n.config.Cluster.Secret, Dial: n.o.DialCluster, Log: n.log}
	if n.config.Cluster.TLS {
		o.TLS = n.o.Certificates.Cluster
	}
	listen := n.o.ListenCluster
	if listen == nil {
		listen = func() (net.Listener, error) { return server.ListenCluster(n.config) }
	}
	l, err := listen()
	if err != nil {
		return nil, err
	}
	way, err := cluster.Listen(l, o)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return way, nil
}

// configuration returns the newest that the node knows.
func (n *member) configuration() cluster.Configuration {
	c, _ := n.directory.Configuration()
	if meta := n.meta.Load(); meta != nil {
		if newest := meta.Configuration(); newest.Version > c.Version {
			c = newest
		}
	}
	return c
}

// meantToLead returns the node that is meant to lead this one's shard.
func (n *member) meantToLead() string {
	c := n.configuration()
	if self := c.Member(n.directory.ID()); self != nil {
		if first := c.First(self.Shard); first != nil {
			return first.ID
		}
	}
	return ""
}

// admit refuses nodes that are no members.
func (n *member) admit(peer cluster.Identity, _ byte) error {
	if c := n.configuration(); c.Member(peer.Node) == nil {
		return fmt.Errorf("the node %s is not a member of the cluster", peer.Node)
	}
	return nil
}

// join opens the store as a replica and takes part in the shard.
func (n *member) join(c cluster.Configuration) (err error) {
	self := c.Member(n.directory.ID())
	if self == nil {
		return fmt.Errorf("data directory %s: the node %s is not in the configuration that it has itself",
			n.config.Dir, n.directory.ID())
	}
	if n.starts, err = n.directory.Stable.CountStart(); err != nil {
		return err
	}
	if n.witness, err = cluster.OpenWitness(n.o.FS, n.config.Dir); err != nil {
		return err
	}
	if n.net, err = n.listen(c.Cluster); err != nil {
		return errors.Join(err, n.witness.Close())
	}
	timeout := n.config.Cluster.NodeTimeout
	// The shard first: what its log ends with is part of what this node says of itself to all.
	options := cluster.Options{
		ID: self.ID, Stable: n.directory.Stable, Net: n.net, Address: self.ClusterAddress(), Timeout: timeout,
		Logger: n.log,
		FS:     n.o.FS, Dir: n.config.Dir, Fatal: n.end, First: n.meantToLead,
		Found: c.Shard(self.Shard).Founder == self.ID,
		DiskHangs: func() {
			if meta := n.meta.Load(); meta != nil {
				meta.DiskHangs()
			}
		},
		Restart: func() {
			select {
			case n.restart <- struct{}{}:
			default: // it is about to
			}
		},
		Open: func(replicated func(*oplog.Log) store.Log) (*store.Store, error) {
			return n.o.openStore(func(o *store.Options) {
				o.Seed, o.Partitions = c.Seed, c.Partitions
				o.Replicated, o.Sections = replicated, cluster.Sections
				o.Shard = func() store.Shard { return n.configuration().FollowedShard(self.Shard) }
				_, o.RegionIncarnation = cluster.RegionIdentity(c.Cluster)
			})
		},
	}
	if n.o.TuneCluster != nil {
		n.o.TuneCluster(&options)
	}
	node, err := cluster.Start(options)
	if err != nil {
		return errors.Join(err, n.witness.Close(), n.net.Close())
	}
	o := cluster.MetaOptions{ID: self.ID, Stable: n.directory.Stable, Net: n.net,
		Address: self.ClusterAddress(), Timeout: timeout, Keep: n.directory.Learn, Logger: n.log,
		Fatal: n.end}
	if n.directory.Founder() {
		o.Found = &c
	}
	meta, err := cluster.StartMeta(o)
	if err != nil {
		return errors.Join(err, node.Close(), n.net.Close())
	}
	n.meta.Store(meta)
	n.opened, n.st, n.admin.Node, n.admin.Meta = time.Now(), node.Store(), node, meta
	n.admin.Behind = n.behind
	n.node.Store(node)
	n.st.DescribeBackups(n.admin.Describe)
	n.admin.Serve(n.net)
	n.ctx, n.stop = context.WithCancel(context.Background())
	lookAgain := func() {
		select {
		case n.heard <- struct{}{}:
		default: // it is about to look
		}
	}
	n.leaders = cluster.NewLeaders(n.net, n.configuration, timeout/leaderPart, lookAgain)
	n.tables = cluster.KeepTables(node, meta, n.leaders, self.Shard, lookAgain)
	n.mover.Store(cluster.StartMover(cluster.MoverOptions{Node: node, Meta: meta, Net: n.net,
		Leaders: n.leaders, Shard: self.Shard, Show: n.look, Logger: n.log}))
	n.look()
	n.running.Go(n.watch)
	n.log.Info("this server is a member of a cluster", "cluster", c.Cluster, "node", self.ID, "address",
		self.ClusterAddress(),
		"partitions", c.Partitions)
	return nil
}

// end ends the process. A thread that waits for a disk keeps it from ending for as long, so clients
// are cut off before that.
func (n *member) end(error) {
	if cut := n.cutOff.Load(); cut != nil {
		done := make(chan struct{})
		go func() {
			(*cut)()
			close(done)
		}()
		select {
		case <-done:
		case <-time.After(time.Second):
		}
	}
	n.o.Exit(1)
}

// removed takes in that the cluster goes on without this node, which was away when it was told so.
func (n *member) removed() {
	if node := n.node.Load(); node != nil && node.Leads() {
		return // its shard goes on with it
	}
	if _, member := n.directory.Configuration(); !member {
		return // it is about to join
	}
	n.leaves.Do(func() {
		go func() {
			err := n.directory.Leave(n.configuration().Cluster)
			n.log.Error("this node stops: it was removed from its cluster while it was away, and another "+
				"node may have its place; start it with an empty directory", "error", err)
			n.end(err)
		}()
	})
}

// attach connects the node with its server. again makes the process close everything and
// open it again; cutOff closes all listeners and connections at once.
func (n *member) attach(s *server.Server, again, cutOff func()) {
	n.cutOff.Store(&cutOff)
	n.admin.Digests, n.admin.Restart, n.admin.Stop = s.Digests, again, func() { go s.Stop(false) }
	if n.ctx == nil {
		return
	}
	n.running.Go(func() {
		select {
		case <-n.restart:
			again()
		case <-n.ctx.Done():
		}
	})
}

// commands are what package commands needs of the cluster.
func (n *member) commands() *commands.Cluster {
	c := &commands.Cluster{View: n.view.Load, Changed: func() <-chan struct{} { return *n.changed.Load() },
		Admin: n.admin.Do}
	if n.node.Load() != nil {
		c.Progress, c.Replicas, c.Tables, c.Behind = n.progress, n.replicas, n.tables, n.lacks
	}
	return c
}

// show makes a view the present one.
func (n *member) show(v *commands.ClusterView) {
	n.view.Store(commands.NewClusterView(*v))
	next := make(chan struct{})
	if was := n.changed.Swap(&next); was != nil {
		close(*was)
	}
}

// watch keeps the view up to date.
func (n *member) watch() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	node, meta := n.node.Load(), n.meta.Load()
	for {
		changed, configured := node.Changed(), meta.Changed()
		n.look()
		if meta.Configuration().Version > 0 {
			newest := n.configuration() // the meta group may not have caught up with the directory yet
			n.witness.KeepOnly(&newest)
		}
		select {
		case <-changed:
		case <-configured:
		case <-n.heard:
		case <-tick.C:
		case <-n.ctx.Done():
			return
		}
	}
}

// held returns the slots of a shard whose partitions are being handed over.
func (n *member) held(s cluster.Shard, c cluster.Configuration) []commands.SlotRange {
	mover := n.mover.Load()
	if mover == nil {
		return nil
	}
	var held cluster.Shard
	for _, r := range s.Partitions {
		for p := r.First; p <= r.Last; p++ {
			if mover.Held(p) {
				held.Partitions = append(held.Partitions, cluster.Range{First: p, Last: p})
			}
		}
	}
	return slotsOf(held, c)
}

// look shows what has changed of the node's view of its cluster, and tells the other shards. One at a time.
func (n *member) look() {
	n.looking.Lock()
	defer n.looking.Unlock()
	c, status, was := n.configuration(), n.node.Load().Status(), n.view.Load()
	n.commits.note(max(status.Committed, status.Heard.Commit))
	n.hasAllUntil(status)
	self := c.Member(n.directory.ID())
	if self == nil {
		return // it was removed, and is about to stop
	}
	v := &commands.ClusterView{Node: self.ID, Epoch: c.Version}
	for _, shard := range c.Shards {
		s := commands.ClusterShard{ID: shard.ID, Slots: slotsOf(shard, c), Leader: -1}
		leader := ""
		if shard.ID == self.Shard {
			leader = n.lookAtOwn(&s, c, status, was)
			s.Held = n.held(shard, c)
		} else {
			leader = n.lookAtOther(&s, c)
		}
		s.Leader = slices.IndexFunc(s.Nodes, func(node commands.ClusterNode) bool {
			return node.ID == leader
		})
		v.Shards = append(v.Shards, s)
	}
	if !sameView(was, v) {
		n.show(v)
	}
}

// lookAtOwn fills in what this node knows of its own shard, and returns its leader: the last one if it has
// no leader now, "" if it never had one.
func (n *member) lookAtOwn(s *commands.ClusterShard, c cluster.Configuration, status cluster.Status,
	was *commands.ClusterView) (leader string) {
	self := n.directory.ID()
	s.Ready, s.Term = status.Leads, status.Term
	own := cluster.Leader{Shard: s.ID, Node: self}
	own.Tables, own.Refusal = n.tables.Kept()
	for _, m := range c.Of(s.ID) {
		if !m.Voter && m.ID != self {
			continue // it may know little yet
		}
		p, known := status.Peers[m.ID]
		failed := status.Leads && m.ID != self &&
			(!known || time.Since(p.Contact) > silentFor*n.config.Cluster.NodeTimeout)
		if failed {
			own.Failed = append(own.Failed, m.ID)
		}
		if m.ID == status.Leader && m.ID != self {
			// Requests wait here, rather than at a leader that is probably gone.
			failed = time.Since(status.Contact) > n.config.Cluster.NodeTimeout/quietPart
		}
		s.Nodes = append(s.Nodes, shown(m, failed))
	}
	if status.Leads {
		own.Term = status.Term
	}
	n.leaders.Tell(own)
	if leader = status.Leader; leader != "" {
		return leader
	}
	for i := range was.Shards {
		if old := &was.Shards[i]; old.ID == s.ID {
			if old.Leader >= 0 {
				leader = old.Nodes[old.Leader].ID
			}
			if s.LostAt = old.LostAt; s.LostAt.IsZero() {
				s.LostAt = time.Now()
			}
		}
	}
	return leader
}

// lookAtOther fills in what this node knows of another shard, and returns its present or last leader;
// "" if none is known yet.
func (n *member) lookAtOther(s *commands.ClusterShard, c cluster.Configuration) (leader string) {
	told, heard, known := n.leaders.Of(s.ID)
	for _, m := range c.Of(s.ID) {
		if m.Voter {
			s.Nodes = append(s.Nodes, shown(m, slices.Contains(told.Failed, m.ID)))
		}
	}
	s.Term = told.Term
	if silent := silentFor * n.config.Cluster.NodeTimeout; known && time.Since(heard) > silent {
		s.LostAt = heard.Add(silent)
	}
	return told.Node
}

// shown is a member as clients are shown it.
func shown(m cluster.Member, failed bool) commands.ClusterNode {
	return commands.ClusterNode{ID: m.ID, Host: m.Host, Hostname: m.Hostname, Port: m.Port,
		TLSPort: m.TLSPort, ClusterPort: m.ClusterPort, Failed: failed}
}

// slotsOf returns the slots of a shard's partitions.
func slotsOf(s cluster.Shard, c cluster.Configuration) (ranges []commands.SlotRange) {
	for _, r := range s.Partitions {
		first, last := c.Slots(r)
		ranges = append(ranges, commands.SlotRange{First: uint16(first), Last: uint16(last)})
	}
	return ranges
}

// sameView reports whether clients are told the same.
func sameView(a, b *commands.ClusterView) bool {
	return a.Epoch == b.Epoch && slices.EqualFunc(a.Shards, b.Shards, func(s, o commands.ClusterShard) bool {
		return s.ID == o.ID && s.Leader == o.Leader && s.LostAt.Equal(o.LostAt) && s.Ready == o.Ready &&
			s.Term == o.Term && slices.Equal(s.Nodes, o.Nodes) && slices.Equal(s.Held, o.Held)
	})
}

// progress is how far the shard is.
func (n *member) progress() commands.ClusterProgress {
	s := n.node.Load().Status()
	p := commands.ClusterProgress{Term: s.Term, LeaderChanges: s.Changes, LastIndex: s.Last,
		Committed: s.Committed, Applied: s.Applied,
		Rebuilds: s.Rebuilds, Fenced: s.Fenced, Nodes: make(map[string]commands.NodeProgress, len(s.Peers))}
	fetched, given := n.node.Load().Transfers()
	p.Fetched, p.Given = commands.Transfers(fetched), commands.Transfers(given)
	for id, peer := range s.Peers {
		p.Nodes[id] = commands.NodeProgress{Index: peer.Index, LastContact: time.Since(peer.Contact),
			Lag: n.commits.since(peer.Index)}
	}
	if !s.Leads && s.Leader != "" && !s.Contact.IsZero() {
		p.Nodes[s.Leader] = commands.NodeProgress{Index: s.Committed, LastContact: time.Since(s.Contact)}
	}
	p.Fetching, p.Skew, p.Takeovers, p.LastTakeover = s.Fetching, s.Skew, s.Takeovers, s.LastTakeover
	p.MetaLed = n.meta.Load().Status().Leader != ""
	return p
}

// replicas is WAIT.
func (n *member) replicas(want int, timeout time.Duration) int {
	node := n.node.Load()
	upTo := node.Status().Committed
	end := time.NewTimer(timeout)
	defer end.Stop()
	tick := time.NewTicker(replicaPeriod)
	defer tick.Stop()
	for {
		if have := node.Replicas(upTo); have >= want {
			return have
		}
		select {
		case <-tick.C:
		case <-end.C:
			return node.Replicas(upTo)
		}
	}
}

// handOver makes another node lead, if this one does and there is another.
func (n *member) handOver() {
	node := n.node.Load()
	c := n.configuration()
	if self := c.Member(n.directory.ID()); node == nil || !node.Leads() || self == nil ||
		c.Voters(self.Shard) < 2 {
		return
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), handOverTime)
	defer cancel()
	if err := node.HandOver(ctx, ""); err != nil {
		n.log.Warn("no other node has taken over: the others elect a leader once this node has stopped",
			"error", err)
		return
	}
	n.log.Info("another node leads the shard now", "took", time.Since(began).Round(time.Millisecond))
}

// close closes the data directory, with a snapshot if one is wanted.
func (n *member) close(snapshot bool) error {
	node := n.node.Load()
	if node == nil {
		return errors.Join(n.o.closeStore(n.st, snapshot), n.directory.Close())
	}
	n.handOver()
	n.stop()
	n.running.Wait()
	n.mover.Load().Close()
	n.leaders.Close()
	begin := time.Now()
	if err := errors.Join(n.meta.Load().Close(), node.Close(), n.net.Close()); err != nil &&
		!errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("closing the data directory: %w", err)
	}
	n.log.Info("stopped", "snapshot", true, "took", time.Since(begin).Round(time.Millisecond))
	return nil
}
