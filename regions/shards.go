package regions

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
	"github.com/fbfkv/fbfkv/store/part"
)

// A region that is a cluster has its partitions in shards, each with nodes of its own, of which any
// tells what is committed. A reader of such a region reads each shard by itself (peer), from
// whichever of its nodes answers; and a cluster reads others by the leader of each of its shards,
// for the partitions of that. The cluster agrees on the members as on all else (Cluster); each
// leader then logs it (store.KeepRegions).

// wordShards asks for the shards, in the place of a request's first number.
const wordShards = "SHARDS"

// Bounds of an answer to it.
const (
	maxShardNodes  = 64
	maxShardsBytes = 128 << 10
)

// Cluster is what a Node needs of the cluster if its store is one replica of a shard. Its funcs are safe for
// concurrent use.
type Cluster struct {
	// Data, Incarnation and Partitions are what the cluster says of itself to become a member:
	// others know it, and the logs of all of its partitions, by them (store.RegionMember).
	Data        string
	Incarnation uint64
	Partitions  int
	// Members are those that the cluster has agreed on; false: it is no region.
	Members func() (store.RegionSet, bool)
	// Agree makes the cluster agree on others in the place of those of a version; 0: there were none.
	Agree func(ctx context.Context, set store.RegionSet, after uint64) error
	// CatchUp returns when this node knows what the cluster had agreed on before the call, or
	// cannot learn it.
	CatchUp func(ctx context.Context) error
	// Leads reports whether this node leads its shard, which has the partitions Own.
	Leads func() bool
	Own   func() []uint16
	// Changed returns a channel that is closed when any of these returns something else.
	Changed func() <-chan struct{}
	// Shards are those that have partitions.
	Shards func() []Shard
}

// Shard is a part of a region: partitions, and the nodes that have them.
type Shard struct {
	// Partitions are ranges, both ends included, ascending.
	Partitions [][2]uint16 `json:"partitions"`
	// Nodes are all that can be asked; none: the one that has said this.
	Nodes []ShardNode `json:"nodes,omitempty"`
	// Own: the node that has said this is one of them.
	Own bool `json:"own,omitempty"`
}

// ShardNode is where a node is reached by clients; a port is 0 if there is none.
type ShardNode struct {
	Host    string `json:"host"`
	Port    uint16 `json:"port,omitempty"`
	TLSPort uint16 `json:"tls,omitempty"`
	Leads   bool   `json:"leads,omitempty"` // it leads the shard, as far as is known
}

// Address is HOST:PORT; "" if it cannot be reached so.
func (n *ShardNode) Address(tls bool) string {
	port := n.Port
	if tls {
		port = n.TLSPort
	}
	if port == 0 {
		return ""
	}
	return net.JoinHostPort(n.Host, strconv.Itoa(int(port)))
}

// first is the shard's first partition, by which it is known.
func (s *Shard) first() uint16 { return s.Partitions[0][0] }

func (s *Shard) has(partition uint16) bool {
	return slices.ContainsFunc(s.Partitions, func(r [2]uint16) bool {
		return r[0] <= partition && partition <= r[1]
	})
}

// addresses returns the addresses of its nodes.
func (s *Shard) addresses(tls bool) (all []string) {
	for i := range s.Nodes {
		if a := s.Nodes[i].Address(tls); a != "" {
			all = append(all, a)
		}
	}
	return all
}

// Leader is the address at which clients reach the node that leads it, as far as is known; otherwise "".
func (s *Shard) Leader() string { return cmp.Or(s.leader(false), s.leader(true)) }

// leader is the address of the node that leads it, as far as is known; otherwise "".
func (s *Shard) leader(tls bool) string {
	i := slices.IndexFunc(s.Nodes, func(n ShardNode) bool { return n.Leads })
	if i < 0 {
		return ""
	}
	return s.Nodes[i].Address(tls)
}

// decodeShards reads an answer of a region with so many partitions, each of which is in one shard;
// an empty one comes from a server that has all. The shards are ordered by their first partitions.
func decodeShards(b []byte, partitions int) (all []Shard, err error) {
	bad := func(what string) ([]Shard, error) { return nil, fmt.Errorf("%w: %s", ErrAnswer, what) }
	if err := json.Unmarshal(b, &all); err != nil {
		return bad("what are no shards")
	}
	if len(all) == 0 {
		return []Shard{{Partitions: [][2]uint16{{0, uint16(partitions - 1)}}, Own: true}}, nil
	}
	taken, nodes, own := make([]bool, partitions), 0, 0
	for i := range all {
		s := &all[i]
		if nodes += len(s.Nodes); len(s.Partitions) == 0 || nodes > maxShardNodes {
			return bad("a shard without partitions, or with too many nodes")
		}
		next := 0
		for _, r := range s.Partitions {
			if int(r[0]) < next || r[1] < r[0] || int(r[1]) >= partitions ||
				slices.Contains(taken[r[0]:r[1]+1], true) {
				return bad("partitions of a shard")
			}
			for p := r[0]; p <= r[1]; p++ {
				taken[p] = true
			}
			next = int(r[1]) + 1
		}
		for j := range s.Nodes {
			if n := &s.Nodes[j]; checkAddress(net.JoinHostPort(n.Host,
				strconv.Itoa(cmp.Or(int(n.Port), int(n.TLSPort), 1)))) != nil {
				return bad("the address of a node")
			}
		}
		if s.Own {
			own++
		}
	}
	if slices.Contains(taken, false) || own > 1 {
		return bad("partitions that are in no shard, or two shards of one node")
	}
	slices.SortFunc(all, func(a, b Shard) int { return cmp.Compare(a.first(), b.first()) })
	return all, nil
}

// writeShards appends a request for the shards.
func writeShards(w *resp.Writer, group uint64, by part.Region) {
	w.BulkStrings([]string{Command, wordShards, strconv.FormatUint(group, 10), strconv.Itoa(int(by))})
}

// shards answers REGION.PULL SHARDS.
func (s *Source) shards(args [][]byte, w *resp.Writer) {
	if _, err := s.asMember(args); err != nil {
		w.Error(replyOf(err))
		return
	}
	all := []Shard{}
	if s.cluster != nil {
		all = s.cluster.Shards()
	}
	b, err := json.Marshal(all)
	if err != nil {
		panic(err) // numbers and strings of UTF-8
	}
	w.Bulk(b)
}

// shards asks a region that is a member for its shards.
func (l *link) shards(m *membership, o *Options) ([]Shard, error) {
	writeShards(&l.w, m.group, m.self)
	asked := time.Now()
	if err := l.send(o.Timeout); err != nil {
		return nil, err
	}
	b, failed, err := l.bulk(maxShardsBytes)
	l.rtt = time.Since(asked)
	switch {
	case err != nil:
		return nil, err
	case failed != "":
		return nil, errorOf(failed)
	}
	return decodeShards(b, m.Partitions)
}

// errElsewhere ends a session with a node that has given up what another one may have kept.
var errElsewhere = errors.New("another node of the shard may have more")

// enter connects to a node of the shard that the peer reads, and learns which nodes there are.
// After a failure the next one is tried.
func (p *peer) enter(ctx context.Context, m *membership) (*link, error) {
	for range 2 { // the address of the region may be that of another shard's node
		all := p.candidates(m)
		p.mu.Lock()
		at := all[p.next%len(all)]
		p.mu.Unlock()
		l, err := p.connectTo(ctx, at)
		if err != nil {
			return nil, err
		}
		stop := context.AfterFunc(ctx, func() { l.Close() })
		own := false
		if at != p.address { // where there may be somebody else by now
			err = l.is(m, p.opts)
		}
		if err == nil {
			own, err = p.learnShards(l, m)
		}
		stop()
		switch {
		case err != nil:
			l.Close()
			return nil, err
		case own:
			p.mu.Lock()
			p.at = at
			p.mu.Unlock()
			return l, nil
		}
		l.Close()
		p.mu.Lock()
		p.next++
		p.mu.Unlock()
	}
	return nil, fmt.Errorf("%w: a node of another shard", ErrAnswer)
}

// gapHere reports whether a gap at this node makes it necessary to try another one.
func (p *peer) gapHere() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	is := p.elsewhere
	if p.elsewhere = false; is {
		p.next++
	}
	return is
}

// learnShards asks for the region's shards, and reports whether the node is of the one that the peer reads.
func (p *peer) learnShards(l *link, m *membership) (own bool, err error) {
	all, err := l.shards(m, p.opts)
	if err != nil {
		return false, err
	}
	i := slices.IndexFunc(all, func(s Shard) bool { return s.first() == p.first })
	if i < 0 {
		return false, fmt.Errorf("%w: no shard begins with partition %d", ErrAnswer, p.first)
	}
	ranges, err := p.opts.Store.PullRanges(p.region)
	if err != nil {
		return false, err
	}
	p.mu.Lock()
	if len(p.nodes) == 0 {
		p.next = rand.IntN(maxShardNodes) // not all are to read the same one
	}
	p.shard, p.nodes, p.all = &all[i], all[i].addresses(p.opts.Secure), all
	p.mu.Unlock()
	own = all[i].Own
	// the others have none of the slots that are here
	read := slices.DeleteFunc(slices.Clone(all), func(s Shard) bool {
		return !slices.ContainsFunc(ranges, func(r store.PullRange) bool { return s.has(r.Source.Partition) })
	})
	p.acquainted.expect(p.region, read)
	if p.found != nil {
		p.found(p, read)
	}
	return own, nil
}

// shardLinks are connections to the shards of a region, made when they are needed.
type shardLinks struct {
	p      *peer // of its first shard, or like one
	m      *membership
	leads  bool // to the leaders
	shards []Shard
	links  map[uint16]*link
	stops  []func() bool
}

// linksTo finds out which shards a region has.
func (p *peer) linksTo(ctx context.Context, m *membership, leads bool) (*shardLinks, error) {
	all, err := p.askShards(ctx, m)
	if err != nil {
		return nil, err
	}
	return &shardLinks{p: p, m: m, leads: leads, shards: all, links: make(map[uint16]*link)}, nil
}

// to returns a connection to a node that has a partition.
func (s *shardLinks) to(ctx context.Context, partition uint16) (*link, error) {
	i := slices.IndexFunc(s.shards, func(o Shard) bool { return o.has(partition) })
	shard := &s.shards[i] // decodeShards: all partitions are in one
	if l := s.links[shard.first()]; l != nil {
		return l, nil
	}
	all := shard.addresses(s.p.opts.Secure)
	switch leader := shard.leader(s.p.opts.Secure); {
	case len(shard.Nodes) == 0:
		all = []string{s.p.address}
	case s.leads && leader == "":
		return nil, fmt.Errorf("nobody leads the shard of partition %d now", partition)
	case s.leads:
		all = []string{leader}
	}
	var failed error
	for _, at := range all {
		l, err := s.p.connectTo(ctx, at)
		if err == nil {
			s.links[shard.first()] = l
			s.stops = append(s.stops, context.AfterFunc(ctx, func() { l.Close() }))
			return l, nil
		}
		failed = errors.Join(failed, err)
	}
	return nil, cmp.Or(failed, fmt.Errorf("no node of the shard of partition %d can be reached", partition))
}

func (s *shardLinks) close() {
	for _, stop := range s.stops {
		stop()
	}
	for _, l := range s.links {
		l.Close()
	}
}

// amongNodes reports whether this region or the other one has many nodes, of which some hear of a
// new member later than others: then time mends a refusal.
func (p *peer) amongNodes() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.opts.Cluster != nil || len(p.nodes) > 1
}

// add adds how the reading of another shard of the region goes.
func (s *Status) add(o *Status) {
	s.Connected, s.Paused, s.Failing = s.Connected && o.Connected, s.Paused || o.Paused, s.Failing ||
		o.Failing
	s.LagMs, s.LagOps, s.ClockSkewMs = max(s.LagMs, o.LagMs), s.LagOps+o.LagOps, o.ClockSkewMs
	s.Version = min(s.Version, o.Version)
	s.Pulls, s.Bytes, s.StateExchanges = s.Pulls+o.Pulls, s.Bytes+o.Bytes, s.StateExchanges+o.StateExchanges
	if o.LastErrorAt.After(s.LastErrorAt) {
		s.LastError, s.LastErrorAt = o.LastError, o.LastErrorAt
	}
	if o.LastAnswer.After(s.LastAnswer) {
		s.LastAnswer = o.LastAnswer
	}
	s.Ranges = append(s.Ranges, o.Ranges...)
	slices.SortFunc(s.Ranges, func(a, b RangeStatus) int { return cmp.Compare(a.First, b.First) })
}

// Add adds how another leader of the region reads it.
func (p *PeerStatus) Add(o *PeerStatus) {
	p.Connected, p.Paused, p.Failing = p.Connected && o.Connected, p.Paused || o.Paused, p.Failing ||
		o.Failing
	p.LagMs, p.LagOps, p.Version = max(p.LagMs, o.LagMs), p.LagOps+o.LagOps, min(p.Version, o.Version)
	p.WaitingOps += o.WaitingOps
	p.Pulls, p.Bytes, p.StateExchanges = p.Pulls+o.Pulls, p.Bytes+o.Bytes, p.StateExchanges+o.StateExchanges
	if p.LastAnswerMs = max(p.LastAnswerMs, o.LastAnswerMs); o.LastErrorMs > p.LastErrorMs {
		p.LastError, p.LastErrorMs = o.LastError, o.LastErrorMs
	}
	p.DigestMismatch, p.DigestCheckedMs = p.DigestMismatch+o.DigestMismatch, min(p.DigestCheckedMs,
		o.DigestCheckedMs)
	p.DigestMissed += o.DigestMissed
	p.Tables = with(p.Tables, o.Tables...) // one shard learns of a change before another one
	p.Operations.Add(&o.Operations)
	p.Ranges = append(p.Ranges, o.Ranges...)
}

// Add adds what was made of the operations of other partitions.
func (s *Operations) Add(o *Operations) { (*store.RegionIDs)(s).Add((*store.RegionIDs)(o)) }
