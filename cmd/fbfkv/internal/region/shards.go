package region

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fbfkv/fbfkv/regions"
)

// A region that is a cluster: each of its shards reads others by its leader, which alone knows how that goes.

// readers returns a server, what it says of itself, and the servers by which its region reads
// others: itself, or the leaders of its cluster's shards.
func (o *operator) readers(addr string) (s *server, st regions.NodeStatus, all []*server, err error) {
	if s, err = o.Server(addr); err == nil {
		st, err = statusOf(s)
	}
	if err != nil || len(st.Shards) == 0 {
		return s, st, []*server{s}, err
	}
	for i := range st.Shards {
		leader := ""
		for _, n := range st.Shards[i].Nodes {
			if n.Leads {
				leader = n.Address(o.Login.TLS())
			}
		}
		if leader == "" {
			return s, st, nil,
				fmt.Errorf("%s: a shard of the cluster has no leader now; run the command again", addr)
		}
		l, err := o.Server(leader)
		if err != nil {
			return s, st, nil, err
		}
		all = append(all, l)
	}
	return s, st, all, nil
}

// others returns the nodes of a cluster that lead no shard. Each has counted what it took while it led.
func (o *operator) others(st *regions.NodeStatus) (all []*server) {
	for i := range st.Shards {
		for _, n := range st.Shards[i].Nodes {
			if s, err := o.Server(n.Address(o.Login.TLS())); err == nil && !n.Leads {
				all = append(all, s)
			}
		}
	}
	return all
}

// whole is region with what such nodes know. One that is down has forgotten it.
func (o *operator) whole(addr string) (st regions.NodeStatus, err error) {
	if _, st, err = o.region(addr); err != nil {
		return st, err
	}
	for _, s := range o.others(&st) {
		if n, err := statusOf(s); err == nil {
			st.Operations.Add(&n.Operations)
			st.Acknowledged += n.Acknowledged
			addIlls(&st, n.Ills)
		}
	}
	return st, nil
}

// acknowledge takes note of operations that may count twice.
func (o *operator) acknowledge(addr string, st *regions.NodeStatus) error {
	_, _, readers, err := o.readers(addr)
	if err != nil {
		return err
	}
	for _, s := range readers { // of more than it has counted, each notes what it has
		if _, err := s.Ask("REGION", "ACKNOWLEDGE", st.Operations.Unchecked); err != nil {
			return err
		}
	}
	for _, s := range o.others(st) {
		_, _ = s.Ask("REGION", "ACKNOWLEDGE", st.Operations.Unchecked) // fails if it is down
	}
	return nil
}

func addIlls(st *regions.NodeStatus, ills []string) {
	for _, ill := range ills {
		if !slices.Contains(st.Ills, ill) {
			st.Ills = append(st.Ills, ill)
		}
	}
}

// merged combines the statuses of the leaders of a region's shards.
func merged(st regions.NodeStatus, leaders []regions.NodeStatus) regions.NodeStatus {
	st.Peers, st.Removals, st.Operations, st.Acknowledged = nil, nil, regions.Operations{}, 0
	asked := make(map[string]int)
	for i := range leaders {
		l := &leaders[i]
		addIlls(&st, l.Ills)
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
			at := slices.IndexFunc(st.Removals, func(o regions.RemovalStatus) bool {
				return o.Number == r.Number && o.Heir == r.Heir
			})
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
