package regions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fbfkv/fbfkv/internal/longlock"
	"github.com/fbfkv/fbfkv/store/part"
)

// A region that is a cluster is read from any of its nodes, and the members name one of them. So
// what a region has told of its nodes is remembered, also across restarts: if the one that is named
// is down, they are asked. That is a hint, which may be old, or lost: whoever answers there must be
// of that region (link.is).

// MaxRemembered bounds what Options.Remember is told, bytes.
const MaxRemembered = part.MaxRegions*maxShardNodes*300 + 100

// remembered are nodes of other regions. Safe for concurrent use.
type remembered struct {
	save  func([]byte) error // nil: nothing outlives the process
	mu    longlock.Mutex     // held while it is saved
	nodes rememberedNodes
}

// rememberedNodes is what is saved, as JSON.
type rememberedNodes struct {
	Group uint64                   `json:"group"` // of the regions
	Nodes map[part.Region][]string `json:"nodes"` // HOST:PORT, ascending
}

// decodeRemembered reads what was saved; nothing: that nothing is known.
func decodeRemembered(b []byte) (n rememberedNodes, err error) {
	if len(b) > MaxRemembered {
		return rememberedNodes{}, fmt.Errorf("it has over %d bytes", MaxRemembered)
	}
	if len(b) > 0 {
		if err := json.Unmarshal(b, &n); err != nil {
			return rememberedNodes{}, err
		}
	}
	for r, all := range n.Nodes {
		if r >= part.MaxRegions || len(all) > maxShardNodes {
			return rememberedNodes{}, fmt.Errorf("%d nodes of region %d", len(all), r)
		}
		for _, a := range all {
			if err := checkAddress(a); err != nil {
				return rememberedNodes{}, err
			}
		}
	}
	return n, nil
}

// of returns the nodes of a region.
func (r *remembered) of(group uint64, region part.Region) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.nodes.Group != group {
		return nil
	}
	return slices.Clone(r.nodes.Nodes[region])
}

// learn takes note of the nodes of a region; none: it is one server.
func (r *remembered) learn(group uint64, region part.Region, shards []Shard, tls bool) error {
	var all []string
	for i := range shards {
		all = append(all, shards[i].addresses(tls)...)
	}
	slices.Sort(all)
	all = slices.Compact(all)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.nodes.Group != group {
		r.nodes = rememberedNodes{Group: group}
	}
	if slices.Equal(all, r.nodes.Nodes[region]) {
		return nil
	}
	if r.nodes.Nodes == nil {
		r.nodes.Nodes = make(map[part.Region][]string)
	}
	if r.nodes.Nodes[region] = all; all == nil {
		delete(r.nodes.Nodes, region)
	}
	if r.save == nil {
		return nil
	}
	b, err := json.Marshal(r.nodes)
	if err != nil {
		panic(err) // numbers and strings
	}
	return r.save(b)
}

// recall reads what was remembered, if there is anything.
func (o *Options) recall() *remembered {
	r := &remembered{save: o.Remember}
	if o.Recall == nil {
		return r
	}
	b, err := o.Recall()
	if err == nil {
		r.nodes, err = decodeRemembered(b)
	}
	if err != nil {
		o.Logger.Warn("the stored addresses of other regions' nodes cannot be read; this server asks the "+
			"regions for them again", "error", err)
	}
	return r
}

// remember takes note of the nodes of a region that has answered as the expected one.
func (o *Options) remember(group uint64, region part.Region, shards []Shard) {
	if err := o.remembered.learn(group, region, shards, o.Secure); err != nil {
		o.Logger.Warn("the addresses of another region's nodes cannot be stored: after a restart only its "+
			"announced address is tried", "region", region, "error", err)
	}
}

// learnAgain remembers the nodes of the region, which has just answered, and learns from time to
// time who has come and gone.
func (p *peer) learnAgain(l *link, m *membership) error {
	if !l.learnt.IsZero() {
		if time.Since(l.learnt) < p.opts.learnPeriod {
			return nil
		}
		if own, err := p.learnShards(l, m); err != nil {
			return err
		} else if !own {
			return errChanged
		}
	}
	l.learnt = time.Now()
	p.opts.remember(m.group, p.region, p.all)
	return nil
}

// is checks that a node belongs to the region that is expected there.
func (l *link) is(m *membership, o *Options) error {
	writeMembers(&l.w, m.group, m.self)
	if err := l.send(o.Timeout); err != nil {
		return err
	}
	set, err := l.members()
	if errors.Is(err, ErrRefused) { // it is no region, say: another node is tried soon
		return fmt.Errorf("%w: %v", ErrAnswer, err)
	}
	if err != nil {
		return err
	}
	if there, _ := set.Member(set.Self); there.Region != m.Region || there.Data != m.Data {
		return fmt.Errorf("%w: a node of the region %s", ErrAnswer, there.Name)
	}
	return nil
}

// survey lets a node that does not read others remember where they are: it may be the next one to
// read them, and what its leader has learnt is lost with that.
func (n *Node) survey() {
	for wait := time.NewTicker(n.opts.learnPeriod); ; {
		select {
		case <-n.ctx.Done():
			wait.Stop()
			return
		case <-wait.C:
		}
		set, ok := n.Members()
		if !ok || n.cluster.Leads() {
			continue
		}
		for _, m := range set.Members {
			if m.Region == set.Self || m.Gone || m.Address == "" {
				continue
			}
			if err := n.surveyOne(&membership{set.Group, set.Self, m}); err != nil && n.ctx.Err() == nil {
				n.opts.Logger.Debug("another region does not answer which nodes it has", "region", m.Name,
					"error", err)
			}
		}
	}
}

func (n *Node) surveyOne(m *membership) error {
	ctx, cancel := context.WithTimeout(n.ctx, n.opts.Timeout)
	defer cancel()
	shards, err := (&peer{opts: &n.opts, region: m.Region, address: m.Address}).askShards(ctx, m)
	if err == nil {
		n.opts.remember(m.group, m.Region, shards)
	}
	return err
}

// askShards asks any node of the region, each of which must be of it, for its shards.
func (p *peer) askShards(ctx context.Context, m *membership) (all []Shard, err error) {
	var failed error
	for _, at := range p.candidates(m) {
		l, err := p.connectTo(ctx, at)
		if err == nil {
			stop := context.AfterFunc(ctx, func() { l.Close() })
			if err = l.is(m, p.opts); err == nil {
				all, err = l.shards(m, p.opts)
			}
			stop()
			l.Close()
		}
		if err == nil {
			return all, nil
		}
		failed = errors.Join(failed, err)
	}
	return nil, failed
}

// candidates are the addresses at which a node of the region, or of the shard that is read, may be.
// Those that were remembered count for nothing where it has told its nodes itself.
func (p *peer) candidates(m *membership) []string {
	old := p.opts.remembered.of(m.group, p.region)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.nodes) > 0 {
		return with(p.nodes, p.address)
	}
	return with([]string{p.address}, old...)
}

// with returns the addresses, and others that are not among them.
func with(all []string, others ...string) []string {
	all = slices.Clone(all)
	for _, a := range others {
		if !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	return all
}
