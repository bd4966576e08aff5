package region

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fbfkv/fbfkv/regions"
)

// A region that is a cluster: each of its shards reads others by its leader, which alone knows how that goes.

// leaders returns the leaders of the shards of which a server is a node; none: it is no cluster's.
func (o *operator) leaders(addr string, st *regions.NodeStatus) (all []*server, err error) {
	for i := range st.Shards {
		leader := ""
		for _, n := range st.Shards[i].Nodes {
			if n.Leads {
				leader = n.Address(o.Server.TLS())
			}
		}
		if leader == "" {
			return nil, fmt.Errorf("%s: a shard of the cluster has no leader now; run the command again", addr)
		}
		s, err := o.server(leader)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// readers returns the servers by which a region reads others: the one that was named, or the leaders of its shards.
func (o *operator) readers(addr string) ([]*server, error) {
	s, err := o.server(addr)
	if err != nil {
		return nil, err
	}
	st, err := s.status()
	if err != nil {
		return nil, err
	}
	if leaders, err := o.leaders(addr, &st); err != nil || len(leaders) > 0 {
		return leaders, err
	}
	return []*server{s}, nil
}

// merged is the status of a region by those of the leaders of its shards.
func merged(st regions.NodeStatus, leaders []regions.NodeStatus) regions.NodeStatus {
	st.Peers, st.Removals, st.Operations, st.Acknowledged = nil, nil, regions.Operations{}, 0
	asked := make(map[string]int)
	for i := range leaders {
		l := &leaders[i]
		for _, ill := range l.Ills {
			if !slices.Contains(st.Ills, ill) {
				st.Ills = append(st.Ills, ill)
			}
		}
		st.Operations.Add(&l.Operations)
		st.Acknowledged += l.Acknowledged
		for _, p := range l.Peers {
			asked[p.Name]++
			at := slices.IndexFunc(st.Peers, func(o regions.PeerStatus) bool { return o.Name == p.Name })
			if at < 0 {
				st.Peers = append(st.Peers, p)
				continue
			}
			st.Peers[at].Add(&p)
		}
		for _, r := range l.Removals {
			at := slices.IndexFunc(st.Removals, func(o regions.RemovalStatus) bool { return o.Number == r.Number && o.Heir == r.Heir })
			switch {
			case at < 0:
				st.Removals = append(st.Removals, r)
			case !r.Done:
				st.Removals[at] = r
			}
		}
	}
	for i := range st.Peers {
		p := &st.Peers[i]
		p.Connected = p.Connected && asked[p.Name] == len(leaders)
	}
	slices.SortFunc(st.Peers, func(a, b regions.PeerStatus) int { return cmp.Compare(a.Number, b.Number) })
	return st
}
