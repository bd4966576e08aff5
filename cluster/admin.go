package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/cluster/raftgroup"
	"github.com/fbfkv/fbfkv/cluster/wire"
	"github.com/fbfkv/fbfkv/internal/longlock"
	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/store"
)

const (
	// adminTime bounds what a verb waits for.
	adminTime = 10 * time.Second
	// nearEnough is how many entries a node may lack when it gets its vote (R9).
	nearEnough = 1000
)

// Admin answers the verbs of CLUSTER FBFKV (messages.go) for a node, be it a member of a
// cluster or not yet. Fields do not change after the first Do.
type Admin struct {
	// Directory is the node's, Store what it has open. Node and Meta are nil unless it is a member.
	Directory *Directory
	Store     *store.Store
	Node      *Node
	Meta      *Meta
	// Self is what the settings say of the node's ports, and of its host and hostname if
	// they announce one, with the level that the program reads.
	Self Member
	// Version is the program's.
	Version string
	// Behind returns for how long a member that is a replica has not had all that was committed.
	// nil: the member is no replica.
	Behind func() time.Duration
	// Digests returns hashes of the settings and of the users that should be equal on all
	// nodes.
	Digests func() (settings, users string)
	// Fetch returns the encoded configuration of a cluster from a member's cluster port, which
	// must know this node.
	Fetch func(ctx context.Context, cluster, address string) ([]byte, error)
	// Restart closes everything and opens it again, in the background, after the replies to
	// clients have been sent; Stop ends the process likewise.
	Restart, Stop func()

	one longlock.Mutex // held while a verb changes something
}

// again is an error of a verb that may go well if it is sent again.
func again(format string, args ...any) error {
	return errors.New(TryAgain + " " + fmt.Sprintf(format, args...))
}

// Do carries out a verb and returns its answer in JSON. Safe for concurrent use.
func (a *Admin) Do(verb string, request []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), adminTime)
	defer cancel()
	answer, err := a.do(ctx, strings.ToLower(verb), request)
	switch {
	case err == nil:
		return json.Marshal(answer)
	case errors.Is(err, store.ErrNotLeader) || errors.Is(err, raft.ErrNotLeader) ||
		errors.Is(err, raft.ErrLeadershipLost) ||
		errors.Is(err, raft.ErrLeadershipTransferInProgress) || errors.Is(err, errNoMeta) ||
		errors.Is(err, errVotersLag) || errors.Is(err, raft.ErrEnqueueTimeout) ||
		errors.Is(err, context.DeadlineExceeded):
		return nil, again("%v", err)
	}
	return nil, err
}

// none is the answer of a verb that has none.
var none = struct{}{}

func (a *Admin) do(ctx context.Context, verb string, request []byte) (any, error) {
	switch verb {
	case VerbInfo:
		return a.info()
	case VerbInit:
		return decoded(request, func(r InitRequest) (any, error) { return none, a.begin(r) })
	case VerbAdmit:
		return decoded(request, func(m Member) (any, error) { return none, a.admit(ctx, m) })
	case VerbJoin:
		return decoded(request, func(r JoinRequest) (any, error) { return none, a.join(ctx, r) })
	case VerbPromote:
		return decoded(request, func(r PromoteRequest) (any, error) { return a.promote(ctx, r) })
	case VerbHandOver:
		return decoded(request, func(r NodeRequest) (any, error) { return none, a.handOver(ctx, r.ID) })
	case VerbRemove:
		return decoded(request, func(r NodeRequest) (any, error) { return none, a.remove(ctx, r.ID) })
	case VerbDissolve:
		return decoded(request, func(r NodeRequest) (any, error) { return none, a.dissolve(ctx, r.ID) })
	case VerbMove:
		return decoded(request, func(r MoveRequest) (any, error) { return none, a.move(ctx, r) })
	case VerbStay:
		return decoded(request, func(r MoveRequest) (any, error) { return none, a.stay(ctx, r) })
	case VerbForget:
		return decoded(request, func(r ForgetRequest) (any, error) { return none, a.forget(r.Cluster) })
	case VerbBackups:
		return decoded(request, func(r RestoreRequest) (any, error) {
			return FindBackups(a.Directory.fs, r.Dir)
		})
	case VerbRestore:
		return decoded(request, func(r RestoreRequest) (any, error) { return none, a.restore(r.Dir) })
	}
	return nil, fmt.Errorf("there is no verb %.40q", verb)
}

// decoded calls fn with a request, which a client has sent.
func decoded[T any](request []byte, fn func(T) (any, error)) (any, error) {
	var r T
	if len(request) > maxConfiguration {
		return nil, errors.New("the request is too long")
	}
	if err := wire.Decode(request, &r); err != nil {
		return nil, fmt.Errorf("the request cannot be read: %w", err)
	}
	return fn(r)
}

// configuration returns the newest configuration that the node knows; false: it is no member.
func (a *Admin) configuration() (c Configuration, member bool) {
	if c, member = a.Directory.Configuration(); !member || a.Node == nil {
		return c, false
	}
	if newest := a.Meta.Configuration(); newest.Version > c.Version {
		c = newest
	}
	return c, true
}

func (a *Admin) info() (any, error) {
	c, member := a.configuration()
	is := a.Directory.state()
	info := Info{Version: a.Version, Self: a.Self, Partitions: a.Store.Stats().Partitions}
	if is.Pending == "" { // otherwise the next start has it
		info.Restored = is.Restored
		if is.Shard != "" {
			_, newest, err := a.Store.TablesVersion()
			if err != nil {
				return nil, err
			}
			info.Tables = &Tables{Version: newest, Set: a.Store.Tables()}
		}
	}
	info.Self.ID = a.Directory.ID()
	info.Settings, info.Users = a.Digests()
	if !member {
		info.Pristine = is.Pending == "" && a.Store.Pristine()
		return info, nil
	}
	public := c.Public()
	info.Cluster, info.Configuration, info.State = c.Cluster, &public, a.state()
	info.Meta = a.Meta.Status()
	if m := c.Member(info.Self.ID); m != nil {
		info.Self = *m
		info.Self.Level = a.Self.Level
	}
	return info, nil
}

func (a *Admin) state() *State {
	s := a.Node.Status()
	aside := ""
	if s.Aside != nil {
		aside = s.Aside.Error()
	}
	behind := time.Duration(0)
	if a.Behind != nil {
		behind = a.Behind()
	}
	return &State{Aside: aside, Behind: behind.Milliseconds(), DiskFull: a.Node.Store().DiskFull(),
		Role: strings.ToLower(s.State), Ready: s.Leads, Leader: s.Leader, Term: s.Term, Last: s.Last,
		Commit: s.Committed, Applied: s.Applied}
}

// strange refuses to make a node a member that is one of another cluster, or has been; done
// says that it is one of this cluster.
func (a *Admin) strange(cluster string) (done bool, err error) {
	is := a.Directory.state()
	c, _ := a.Directory.Configuration()
	switch {
	case is.Configuration != nil && c.Cluster == cluster:
		return true, nil
	case is.Configuration != nil:
		return false, fmt.Errorf("it is a member of the cluster %s already", c.Cluster)
	case is.Removed != "":
		return false, errRemoved
	case is.Pending != "":
		return false, again("it is about to open what was restored")
	}
	return false, nil
}

// begin makes the node the first of a new cluster.
func (a *Admin) begin(r InitRequest) error {
	a.one.Lock()
	defer a.one.Unlock()
	if done, err := a.strange(r.Cluster); done || err != nil {
		return err
	}
	self := a.Self
	if self.ID, self.Voter = a.Directory.ID(), true; self.Host == "" {
		self.Host = r.Host
	}
	if r.Restores != nil {
		return a.beginRestored(*r.Restores, r.Cluster)
	}
	is := a.Directory.state()
	if is.Shard != "" {
		return fmt.Errorf("it has what the backup %s holds, of one shard of several: fbfkv cluster "+
			"restore goes on with it", is.Restored)
	}
	// Partitions that moved between shards noted versions, which must not come again.
	c := Configuration{Version: is.After + 1, Cluster: r.Cluster, Format: self.Level,
		Partitions: a.Store.Stats().Partitions, Seed: Seed(a.Store.Seed())}
	_, seen, err := a.Store.TablesVersion()
	if err != nil {
		return err
	}
	c.Tables = Tables{Version: seen + 1, Set: a.Store.Tables()} // it may have been another cluster's
	if c.Regions, err = regionsOfData(a.Store); err != nil {
		return err
	}
	empty := a.Store.Pristine()
	if empty {
		c.Partitions = r.Partitions
	}
	if r.Shards < 0 || r.Shards > min(MaxMembers, c.Partitions) {
		return fmt.Errorf("%d shards of %d partitions cannot be made", r.Shards, c.Partitions)
	}
	ids := make([]string, max(r.Shards, 1))
	for i := range ids {
		ids[i] = NewID()
	}
	having := ids
	if !empty {
		having = ids[:1] // data stays in one shard
	}
	c.Shards = Divide(c.Partitions, having...)
	for _, id := range ids[len(having):] {
		c.Shards = append(c.Shards, Shard{ID: id, Epoch: 1})
	}
	self.Shard, c.Shards[0].Founder = ids[0], self.ID
	c.Members = []Member{self}
	if err := a.Directory.become(c, true, empty); err != nil {
		return err
	}
	a.Restart()
	return nil
}

// beginRestored makes the node the first of a new cluster whose shards are made of backups.
func (a *Admin) beginRestored(c Configuration, cluster string) error {
	c.Cluster, c.Seed = cluster, Seed(a.Store.Seed())
	c.Format = max(c.Format, a.Self.Level)
	err := a.hasShard(&c)
	if err == nil {
		c.Regions, err = regionsOfData(a.Store)
	}
	if err != nil {
		return err
	}
	if err := a.Directory.become(c, true, false); err != nil {
		return err
	}
	a.Restart()
	return nil
}

// hasShard refuses a configuration by which the node begins another shard than the one whose backup it has.
func (a *Admin) hasShard(c *Configuration) error {
	is, self := a.Directory.state(), c.Member(a.Directory.ID())
	switch {
	case is.Shard == "":
		return errors.New("it has no backup of a shard")
	case self == nil || self.Shard != is.Shard || c.Shard(is.Shard) == nil ||
		c.Shard(is.Shard).Founder != self.ID:
		return fmt.Errorf("it has the backup %s of the shard %.8s, which another node begins: start it "+
			"with an empty directory", is.Restored, is.Shard)
	case c.Partitions != a.Store.Stats().Partitions || c.Seed != Seed(a.Store.Seed()) ||
		c.Version <= is.After:
		return fmt.Errorf("the backup %s that it has is of other data than the cluster", is.Restored)
	}
	return nil
}

// NewID draws an id: of a cluster, a shard or a node.
func NewID() string {
	return raftgroup.NewID()
}

// admit adds a node to the configuration, in the shard that it names; the first one of a shard
// begins that, with a vote. A shard that does not exist is made, without partitions. For a node
// that is there already, admit updates its entry.
func (a *Admin) admit(ctx context.Context, m Member) error {
	return a.configure(ctx, func(c *Configuration) error {
		m.Voter = false
		if known := c.Member(m.ID); known != nil {
			m.Voter, m.Shard = known.Voter, known.Shard
			if *known != m && known.ClusterAddress() != m.ClusterAddress() {
				return fmt.Errorf("the node %s is a member at %s: remove it before it comes back at "+
					"another address", m.ID, known.ClusterAddress())
			}
			*known = m
			return nil
		}
		shard := c.Shard(m.Shard)
		if shard == nil {
			c.Shards = append(c.Shards, Shard{ID: m.Shard, Epoch: 1})
			shard = &c.Shards[len(c.Shards)-1]
		}
		if shard.Founder == "" {
			shard.Founder, m.Voter = m.ID, true
		}
		c.Members = append(c.Members, m)
		return nil
	})
}

// configure changes the configuration, by whoever leads the meta group.
func (a *Admin) configure(ctx context.Context, fn func(*Configuration) error) error {
	if a.Meta == nil {
		return errors.New("it is not a member of a cluster")
	}
	a.one.Lock()
	defer a.one.Unlock()
	return a.Meta.Configure(ctx, fn)
}

// join makes the node a member of a cluster whose leader has admitted it.
func (a *Admin) join(ctx context.Context, r JoinRequest) error {
	a.one.Lock()
	defer a.one.Unlock()
	if done, err := a.strange(r.Cluster); done || err != nil {
		return err
	}
	begins := a.Directory.state().Shard != ""
	if !begins && !a.Store.Pristine() {
		return errors.New("it has data: start it with an empty directory")
	}
	if !validID(r.Cluster) || len(r.Via) > MaxMembers {
		return errors.New("the request is no join")
	}
	var failed []error
	for _, address := range r.Via {
		b, err := a.Fetch(ctx, r.Cluster, address)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", address, err))
			continue
		}
		c, err := DecodeConfiguration(b)
		switch {
		case err != nil:
			return fmt.Errorf("the configuration of %s: %w", address, err)
		case c.Cluster != r.Cluster:
			return fmt.Errorf("%s is a member of the cluster %s", address, c.Cluster)
		case c.Member(a.Directory.ID()) == nil:
			failed = append(failed, fmt.Errorf("%s does not know this node yet", address))
			continue
		}
		if begins {
			if err := a.hasShard(&c); err != nil {
				return err
			}
		}
		if err := a.Directory.become(c, false, !begins); err != nil {
			return err
		}
		a.Restart()
		return nil
	}
	return again("no member answers: %v", oneLine(errors.Join(failed...)))
}

// oneLine is an error's text without line ends.
func oneLine(err error) string {
	if err == nil {
		return "none was named"
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}

// ofOwnShard returns a member, nil if this node knows of none with that id. One of another shard is
// refused: only the leader of its own can change who votes there.
func (a *Admin) ofOwnShard(c *Configuration, id string) (*Member, error) {
	m, self := c.Member(id), c.Member(a.Node.o.ID)
	if m != nil && (self == nil || m.Shard != self.Shard) {
		return nil, fmt.Errorf("the node %.50q is in another shard", id)
	}
	return m, nil
}

// promote brings a member one step nearer to its vote.
func (a *Admin) promote(ctx context.Context, r PromoteRequest) (p Progress, err error) {
	if a.Node == nil || !a.Node.Leads() {
		return p, again("it does not lead")
	}
	c, _ := a.configuration()
	m, err := a.ofOwnShard(&c, r.ID)
	if err != nil {
		return p, err
	}
	if m == nil {
		// the news may be under way
		return p, again("the node %.50q is not a member, as far as this node knows: admit it first", r.ID)
	}
	status := a.Node.Status()
	server, known := a.Node.server(r.ID)
	if !known {
		return Progress{Behind: status.Last}, a.Node.AddNonvoter(m.ID, m.ClusterAddress())
	}
	if server.Suffrage != raft.Voter {
		has := status.Peers[r.ID].Index
		p.Behind = status.Last - min(status.Last, has)
		p.Near = has > 0 && p.Behind <= nearEnough
		if !p.Near || !r.Vote {
			return p, nil
		}
	}
	if err := a.Node.Promote(m.ID, m.ClusterAddress()); err != nil {
		return p, err
	}
	err = a.configure(ctx, func(c *Configuration) error {
		if m := c.Member(r.ID); m != nil {
			m.Voter = true
		}
		return nil
	})
	return Progress{Voter: err == nil, Near: true}, err
}

// handOver lets another node lead.
func (a *Admin) handOver(ctx context.Context, id string) error {
	if a.Node == nil || !a.Node.Leads() {
		return again("it does not lead")
	}
	if err := a.Node.HandOver(ctx, id); err != nil { // it leads on, or another one does
		return again("%v", err)
	}
	return nil
}

// remove takes a node out of Raft's configuration, and then out of ours.
func (a *Admin) remove(ctx context.Context, id string) error {
	if a.Node == nil || !a.Node.Leads() {
		return again("it does not lead")
	}
	if id == a.Directory.ID() {
		return errors.New("it leads: it must hand over before it is removed")
	}
	// The leader of another shard could remove it from the configuration only, and its own shard
	// would keep a voter for ever.
	c, _ := a.configuration()
	if _, err := a.ofOwnShard(&c, id); err != nil {
		return err
	}
	if _, known := a.Node.server(id); known {
		if err := a.Node.Remove(id); err != nil {
			return err
		}
	}
	return a.configure(ctx, func(c *Configuration) error {
		c.Members = slices.DeleteFunc(c.Members, func(m Member) bool { return m.ID == id })
		return nil
	})
}

// dissolve ends a shard that has no partitions, with its last node.
func (a *Admin) dissolve(ctx context.Context, id string) error {
	return a.configure(ctx, func(c *Configuration) error {
		m := c.Member(id)
		if m == nil {
			return nil
		}
		shard := c.Shard(m.Shard)
		switch {
		case shard.Count() > 0:
			return fmt.Errorf("it is the last node of the shard %.8s, which has %d partitions: move them "+
				"away first (fbfkv cluster move, or rebalance --empty)", shard.ID, shard.Count())
		case len(c.Of(shard.ID)) > 1:
			return fmt.Errorf("the shard %.8s has other nodes", shard.ID)
		}
		c.Shards = slices.DeleteFunc(c.Shards, func(s Shard) bool { return s.ID == m.Shard })
		c.Members = slices.DeleteFunc(c.Members, func(o Member) bool { return o.ID == id })
		return nil
	})
}

// move notes that partitions are to move to a shard.
func (a *Admin) move(ctx context.Context, r MoveRequest) error {
	return a.configure(ctx, func(c *Configuration) error { return c.moves(r) })
}

// stay notes that partitions stay where they are.
func (a *Admin) stay(ctx context.Context, r MoveRequest) error {
	return a.configure(ctx, func(c *Configuration) error {
		c.stay(r.Partitions)
		return nil
	})
}

// forget ends a node that others have removed.
func (a *Admin) forget(cluster string) error {
	a.one.Lock()
	defer a.one.Unlock()
	c, member := a.configuration()
	if !member {
		return nil
	}
	if c.Cluster != cluster {
		return fmt.Errorf("it is a member of the cluster %s", c.Cluster)
	}
	if a.Node.Leads() {
		return errors.New("it leads the cluster: remove it first")
	}
	if err := a.Directory.Leave(cluster); err != nil {
		return err
	}
	a.Stop()
	return nil
}

// restore makes the node's directory one that a backup is copied to.
func (a *Admin) restore(backup string) error {
	a.one.Lock()
	defer a.one.Unlock()
	switch is := a.Directory.state(); {
	case is.Restored == backup && is.Pending == "":
		return nil
	case is.Removed != "":
		return errRemoved
	case is.Configuration != nil:
		return errors.New("it is a member of a cluster: a backup is restored to a new node")
	case is.Pending != "":
		return again("it is about to open what was restored")
	case !a.Store.Pristine():
		return errors.New("it has data: start it with an empty directory")
	}
	report, err := store.Check(store.CheckOptions{Dir: backup})
	switch {
	case errors.Is(err, persistence.ErrInUse): // another node copies it, as an earlier attempt has asked
		return again("%v", err)
	case err != nil:
		return err
	case len(report.Problems) > 0 && !report.OnlyUnreadable():
		return fmt.Errorf("%w: %s has %d problems: fbfkv check lists them", persistence.ErrCorrupt, backup,
			len(report.Problems))
	}
	found, err := readBackup(a.Directory.fs, backup)
	if err != nil {
		return fmt.Errorf("%s: %w", backup, err)
	}
	if err := a.Directory.restore(backup, found.Origin); err != nil {
		return err
	}
	a.Restart()
	return nil
}

// verbConfiguration asks any member for the configuration that it knows.
const verbConfiguration = "configuration"

// Serve answers members that ask for the configuration, with the seed.
func (a *Admin) Serve(n *Net) {
	n.Answer(verbConfiguration, wire.Answer(0, func(*wire.Call, struct{}) (any, []byte, error) {
		c, member := a.configuration()
		if !member {
			return nil, nil, errors.New("it is not a member of a cluster")
		}
		b, err := c.Encode()
		return nil, b, err
	}))
}

// FetchConfiguration returns the configuration that the node at an address knows, encoded.
func (n *Net) FetchConfiguration(ctx context.Context, address string) ([]byte, error) {
	return n.Ask(ctx, "", address, wire.Ask{Verb: verbConfiguration, Limit: maxConfiguration,
		Within: adminTime})
}
