package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/cluster/raftgroup"
	"github.com/fbfkv/fbfkv/cluster/wire"
	"github.com/fbfkv/fbfkv/internal/longlock"
)

// Times of the meta group, as parts of Timeout. It is in no hurry: nothing but a change of
// the configuration waits for its leader.
const (
	metaElectionPart = 1
	metaLeasePart    = 0.5
	metaCommitPart   = 0.1
	// metaSnapshotEvery is how many entries the log of the meta group has at most, about: each is a
	// whole configuration.
	metaSnapshotEvery = 4
	// maxMetaVoters is how many nodes vote at most; the others follow.
	maxMetaVoters = 5
	// metaPeriod is how often its leader looks who is to vote.
	metaPeriod = time.Second
	metaHurry  = 50 * time.Millisecond // while it is not as it should be
)

// MetaOptions configure StartMeta. All but Found, Timeout, Lost, Logger and Fatal are required.
type MetaOptions struct {
	// ID is the node's, Stable the directory's.
	ID     string
	Stable *raftgroup.Stable
	// Net reaches the other nodes; Address is the HOST:PORT at which they reach this one.
	Net     *Net
	Address string
	// Found is the first configuration of a cluster that this node has made, nil otherwise.
	Found *Configuration
	// Keep makes a configuration durable before this node goes by it. A change that another node
	// answers for is in no log of this one yet, and a crash would take the node back to the
	// configuration before. nil: nothing is kept.
	Keep func(Configuration) error
	// Timeout is cluster-node-timeout. Default 1 s.
	Timeout time.Duration
	// Lost is how long a node is silent until another one votes in its place. Default 1 min.
	Lost time.Duration
	// Logger receives what an operator should know; default: discard.
	Logger *slog.Logger
	// Fatal is called when the process must end (G8).
	Fatal func(error)
}

// Meta is this node's part in the meta group: the Raft group of all nodes of a cluster, whose state is
// the Configuration. So every node has it. Three or five of the nodes vote, on
// different hosts if that is possible; whoever leads the group sees to that. While it has no leader the
// shards work on, and only changes of the configuration wait. Safe for concurrent use.
type Meta struct {
	ending
	o         MetaOptions
	raft      *raft.Raft
	transport *raftgroup.Transport
	log       *raftgroup.MetaLog
	ledSince  time.Time // watch's goroutine
	// the term in which this node leads and has applied all that was committed before; watch's
	knowsAll  uint64
	applying  longlock.Mutex
	learning  longlock.Mutex
	settledAt atomic.Uint64 // the version of the configuration that the group agrees with; this node leads
	config    atomic.Pointer[Configuration]
	changes   atomic.Pointer[chan struct{}]
	stop      chan struct{}
	running   sync.WaitGroup
}

// Errors of a change of the configuration.
var (
	errSuperseded = errors.New("another change of the configuration was first")
	errNoMeta     = errors.New("the meta group has no leader at the moment: a change of the configuration " +
		"needs a majority of its voters")
)

// StartMeta takes part in the meta group.
func StartMeta(o MetaOptions) (*Meta, error) {
	if o.Timeout == 0 {
		o.Timeout = time.Second
	}
	if o.Lost == 0 {
		o.Lost = time.Minute
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	m := &Meta{ending: ending{logger: o.Logger, fatal: o.Fatal}, o: o, stop: make(chan struct{})}
	m.config.Store(new(Configuration))
	changed := make(chan struct{})
	m.changes.Store(&changed)
	stable := o.Stable.Meta()
	var err error
	if m.log, err = raftgroup.OpenMetaLog(stable, m.fail); err != nil {
		return nil, err
	}
	elected := make(chan bool, 16)
	c := raftgroup.Config(o.ID, o.Timeout, metaElectionPart, metaLeasePart, metaCommitPart, elected, o.Logger)
	c.SnapshotThreshold, c.TrailingLogs, c.SnapshotInterval = metaSnapshotEvery, 1, time.Second
	m.transport = o.Net.Transport(KindMeta, o.Address, max(o.Timeout, minMessageTime))
	m.transport.BeforeSending(m.settling(o.Stable))
	if o.Found != nil {
		err = raftgroup.Begin(c, m.log, stable, m.transport)
	}
	if err == nil {
		m.raft, err = raft.NewRaft(c, metaMachine{m}, m.log, stable.ForRaft(m.fail), stable, m.transport)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the meta group: %w", err), m.transport.Close())
	}
	m.transport.Observe(raftgroup.Watch(m.raft, func(raft.ServerID, time.Time, uint64) {}))
	m.serve()
	m.running.Go(func() { m.watch(elected) })
	m.running.Go(m.announce)
	raftgroup.LeadAlone(m.raft, o.ID)
	return m, nil
}

// level is the newest format level that this node's program reads.
func (m *Meta) level() int { return int(m.o.Net.self.format) }

// Configuration returns the newest configuration that this node knows; its version is 0 if the node
// knows none.
func (m *Meta) Configuration() Configuration { return *m.config.Load() }

// Changed is closed when Configuration returns another one.
func (m *Meta) Changed() <-chan struct{} { return *m.changes.Load() }

// learn takes in a configuration that was committed.
func (m *Meta) learn(c Configuration) {
	m.learning.Lock()
	defer m.learning.Unlock()
	old := m.config.Load()
	if old.Version >= c.Version {
		return
	}
	if m.o.Keep != nil {
		if err := m.o.Keep(c); err != nil {
			m.fail(fmt.Errorf("the cluster's configuration cannot be kept: %w", err))
			return
		}
	}
	m.config.Store(&c)
	if old.Version > 0 && c.Format > old.Format {
		m.o.Logger.Info("the cluster is at a newer format level, which the programs of all nodes read: "+
			"older ones are refused from now on", "level", c.Format)
	}
	next := make(chan struct{})
	close(*m.changes.Swap(&next))
}

// metaMachine is the state machine of the meta group.
type metaMachine struct{ m *Meta }

// Apply takes in a configuration that was committed, unless it follows another one than the
// present: of two changes at a time the first one counts.
func (f metaMachine) Apply(l *raft.Log) any {
	c, err := decodeConfiguration(l.Data, f.m.level())
	if err != nil {
		f.m.fail(fmt.Errorf("entry %d of the meta group: %w", l.Index, err))
		return err
	}
	if now := f.m.Configuration(); now.Version > 0 && c.Follows(now) != nil {
		return errSuperseded
	}
	f.m.learn(c)
	return nil
}

// Snapshot is the configuration.
func (f metaMachine) Snapshot() (raft.FSMSnapshot, error) {
	c := f.m.Configuration()
	if c.Version == 0 {
		return raftgroup.Own{Sync: f.m.o.Stable.Settle}, nil
	}
	b, err := c.Encode()
	return raftgroup.Own{Content: b, Sync: f.m.o.Stable.Settle}, err
}

// Restore takes in a configuration.
func (f metaMachine) Restore(r io.ReadCloser) error {
	defer r.Close()
	if contradicts, err := f.m.log.Contradicts(); err != nil || contradicts {
		err = cmp.Or(err, raftgroup.ErrContradicts)
		f.m.fail(err)
		return err
	}
	b, err := io.ReadAll(io.LimitReader(r, maxConfiguration+1))
	if err != nil || len(b) == 0 {
		return err
	}
	c, err := decodeConfiguration(b, f.m.level())
	if err == nil {
		f.m.learn(c)
	}
	return err
}

// shorten makes a snapshot take the place of a long log.
func (m *Meta) shorten() {
	if m.log.IsLong() {
		_ = m.raft.Snapshot().Error() // there is one already, or it is tried again
	}
}

// announce says in the configuration which format level this node's program reads, whenever another one
// is said there: the node has been started with another program.
func (m *Meta) announce() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	m.running.Go(func() {
		<-m.stop
		cancel()
	})
	for ctx.Err() == nil {
		changed := m.Changed()
		c := m.Configuration()
		if self := c.Member(m.o.ID); self != nil && self.Level != m.level() {
			err := m.Configure(ctx, func(c *Configuration) error {
				if self := c.Member(m.o.ID); self != nil {
					self.Level = m.level()
				}
				return nil
			})
			if err != nil && !m.stopped.Load() {
				m.o.Logger.Warn("the format level that this program reads cannot be announced", "level",
					m.level(), "error", err)
			}
		}
		select {
		case <-changed:
		case <-m.stop:
		}
	}
}

// watch looks after the group while this node leads it.
func (m *Meta) watch(elected <-chan bool) {
	for {
		changed, next := m.Changed(), metaPeriod
		m.shorten()
		if m.raft.State() != raft.Leader {
			m.settledAt.Store(0)
			m.ledSince = time.Time{}
		} else {
			if m.ledSince.IsZero() {
				m.ledSince = time.Now()
			}
			if !m.caughtUp() || !m.lookAfter() {
				next = metaHurry
			}
		}
		select {
		case <-m.stop:
			return
		case <-elected:
			m.transport.Silence(false)
		case <-changed:
		case <-time.After(next):
		}
	}
}

// caughtUp reports whether this node, which leads, has applied all that was committed before it
// did. Until then its configuration may be an old one, by which it would remove the newest voters.
// From watch's goroutine.
func (m *Meta) caughtUp() bool {
	term := m.raft.CurrentTerm()
	if m.knowsAll != term && m.raft.Barrier(m.o.Timeout).Error() == nil && m.raft.CurrentTerm() == term {
		m.knowsAll = term
	}
	return m.knowsAll == term
}

// lookAfter brings the group nearer to what the configuration says, and reports whether it is so: each
// member is in it, nobody else, and those vote who are to. The cluster's format level is the newest one that
// all members read.
func (m *Meta) lookAfter() bool {
	c := m.Configuration()
	if c.Version == 0 {
		if m.o.Found != nil {
			_ = m.apply(*m.o.Found) // else it is tried again
		}
		return false
	}
	next, err := c.Changed(func(c *Configuration) error {
		c.rise(m.level())
		return nil
	})
	if next.Version > c.Version {
		_ = m.apply(next) // else it is tried again
		return false
	}
	changed := false
	if err == nil {
		changed, err = m.step(&c)
	}
	if err != nil && !m.stopped.Load() {
		m.o.Logger.Info("the meta group does not have its intended voters yet", "error", err)
	}
	settled := !changed && err == nil
	if settled {
		m.settledAt.Store(c.Version)
	}
	return settled
}

// step changes what it can, and reports whether there was something to change. A voter goes only when
// those that are to vote do.
func (m *Meta) step(c *Configuration) (changed bool, err error) {
	servers := m.raft.GetConfiguration().Configuration().Servers
	votes := func(id string) bool {
		return slices.ContainsFunc(servers, func(s raft.Server) bool {
			return string(s.ID) == id && s.Suffrage == raft.Voter
		})
	}
	voters := metaVoters(c, votes, m.isLost)
	gone := func(id raft.ServerID) bool { return c.Member(string(id)) == nil }
	group := &group{raft.ServerID(m.o.ID), m.raft, m.transport, m.o.Timeout, m.ledSince, m.stop, gone}
	for _, member := range c.Members {
		id, address := raft.ServerID(member.ID), raft.ServerAddress(member.ClusterAddress())
		known := slices.ContainsFunc(servers, func(s raft.Server) bool { return s.ID == id })
		before := slices.IndexFunc(servers, func(s raft.Server) bool {
			return s.Address == address && gone(s.ID)
		})
		switch {
		case before >= 0: // Raft takes no two nodes at one address
			err = group.remove(servers[before].ID)
		case !known:
			err = m.raft.AddNonvoter(id, address, 0, m.o.Timeout).Error()
		case votes(member.ID) || !slices.Contains(voters, member.ID) || m.isLost(member.ID):
			continue
		case m.hasLog(id):
			err = group.promote(id, address)
		}
		if changed = true; err != nil {
			return true, err
		}
	}
	for _, s := range servers {
		switch {
		case changed || !gone(s.ID) && (s.Suffrage != raft.Voter || slices.Contains(voters, string(s.ID))):
			continue
		case string(s.ID) == m.o.ID:
			return true, m.raft.LeadershipTransfer().Error() // another one does it
		case gone(s.ID):
			err = group.remove(s.ID)
		default:
			err = group.demote(s.ID)
		}
		return true, err
	}
	return changed || group.lag(m.raft.LastIndex(), time.Time{}, "", "") != nil, nil
}

// isLost reports whether a node has been silent for so long that another one should vote in its place.
func (m *Meta) isLost(id string) bool {
	return id != m.o.ID && time.Since(m.ledSince) > m.o.Lost &&
		time.Since(m.transport.Progress()[raft.ServerID(id)].Contact) > m.o.Lost
}

// hasLog reports whether a node that follows answers and has the log.
func (m *Meta) hasLog(id raft.ServerID) bool {
	p := m.transport.Progress()[id]
	return time.Since(p.Contact) <= m.o.Timeout && p.Index > 0 && p.Index >= m.raft.CommitIndex()
}

// metaVoters returns the members that are to vote in the meta group, of those that vote in their
// shards: one, two, three or five, on as many hosts as there are. Those that are lost come last, and who
// votes already stays if that makes no difference.
func metaVoters(c *Configuration, votes, lost func(id string) bool) (ids []string) {
	onHost := map[string]int{}
	candidates := slices.DeleteFunc(slices.Clone(c.Members), func(m Member) bool { return !m.Voter })
	want := min(len(candidates), maxMetaVoters)
	if want == 4 {
		want = 3
	}
	for len(ids) < want {
		first := slices.MinFunc(candidates, func(a, b Member) int {
			return cmp.Or(compareBool(lost(a.ID), lost(b.ID)), cmp.Compare(onHost[a.Host], onHost[b.Host]),
				compareBool(votes(b.ID), votes(a.ID)))
		})
		ids = append(ids, first.ID)
		onHost[first.Host]++
		candidates = slices.DeleteFunc(candidates, func(m Member) bool { return m.ID == first.ID })
	}
	return ids
}

// compareBool compares, false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// MetaStatus is what a node knows of the meta group.
type MetaStatus struct {
	Leader string   `json:"leader"` // its id; "": unknown
	Voters []string `json:"voters"` // their ids
	// Settled, of the leader: those vote who are to, and nobody else is in the group.
	Settled bool `json:"settled"`
}

// Status returns what this node knows of the group.
func (m *Meta) Status() (s MetaStatus) {
	_, leader := m.raft.LeaderWithID()
	s.Leader = string(leader)
	s.Settled = m.raft.State() == raft.Leader && m.settledAt.Load() == m.Configuration().Version
	for _, server := range m.raft.GetConfiguration().Configuration().Servers {
		if server.Suffrage == raft.Voter {
			s.Voters = append(s.Voters, string(server.ID))
		}
	}
	return s
}

// Close takes no part in the group any more. If this node leads it, another one does first,
// if that is possible.
func (m *Meta) Close() error {
	if m.stopped.Swap(true) {
		return nil
	}
	close(m.stop)
	m.o.Net.Answer(verbChange, wire.Verb{})
	m.o.Net.Answer(verbNewest, wire.Verb{})
	if m.raft.State() == raft.Leader && len(m.Status().Voters) > 1 {
		m.transport.HandOver()
		_ = m.raft.LeadershipTransfer().Error() // the others elect one then
	}
	err := m.raft.Shutdown().Error()
	m.running.Wait() // a change that was under way has failed now
	return err
}
