package regions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/fbfkv/fbfkv/store"
	"github.com/fbfkv/fbfkv/store/part"
)

// cutShards are the shards of a region whose store is one, as the tests show it.
type cutShards struct {
	t   *testing.T
	mu  sync.Mutex // of all
	r   *region
	all []Shard
	at  []*testServer
}

// node starts a node of a shard.
func (c *cutShards) node(shard int) *testServer {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(c.t, err)
	s := &testServer{listener: l, conns: make(map[net.Conn]bool)}
	s.source = Source{Store: c.r.s, Clock: c.r.clock, cluster: &Cluster{
		Members: c.r.s.Regions, Leads: func() bool { return true },
		Shards: func() []Shard {
			c.mu.Lock()
			defer c.mu.Unlock()
			all := append([]Shard(nil), c.all...)
			all[shard].Own = true
			return all
		},
	}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.wg.Go(s.accept)
	c.t.Cleanup(s.close)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all[shard].Nodes = append(c.all[shard].Nodes, s.asNode())
	c.at = append(c.at, s)
	return s
}

func (s *testServer) asNode() ShardNode {
	host, port, _ := net.SplitHostPort(s.address())
	n, _ := strconv.Atoi(port)
	return ShardNode{Host: host, Port: uint16(n), Leads: true}
}

// TestReadsShards: each shard of another region is read from one of its nodes, whichever is named;
// if that is lost, from another one, without a state; and nobody waits for a shard from which
// nothing needs to be read.
func TestReadsShards(t *testing.T) {
	all := newRegions(t, 4, 2)
	c := &cutShards{t: t, r: all[0],
		all: []Shard{{Partitions: [][2]uint16{{0, 0}, {2, 2}}}, {Partitions: [][2]uint16{{1, 1}}},
			{Partitions: [][2]uint16{{3, 3}}}}}
	first, second, named := c.node(0), c.node(0), c.node(1)
	c.node(2)
	all[1].start(map[part.Region]string{0: named.address()}, nil)
	all[0].start(map[part.Region]string{1: all[1].server.address()}, nil)
	for _, k := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		all[0].once(k, "x", 1)
		eventually(t, k+" has arrived", func() bool { return all[1].value(k) == 1 })
	}
	eventually(t, "all is read", func() bool {
		s := all[1].of(0)
		return s.Connected && !s.Failing && s.LagOps == 0
	})
	if s := all[1].of(0); len(s.Ranges) != 4 {
		t.Fatalf("%+v", s)
	}
	exchanged := all[1].of(0).StateExchanges
	differ, err := all[1].mesh.Verify(t.Context())
	if err != nil || len(differ) > 0 {
		t.Errorf("%v, %v", differ, err)
	}
	lost := first
	if first.pulls.Load() < second.pulls.Load() {
		lost = second
	}
	lost.close()
	for _, k := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		all[0].once(k, "y", 1)
		eventually(t, k+" has arrived from another node", func() bool { return all[1].value(k) == 2 })
	}
	if n := all[1].of(0).StateExchanges; n != exchanged {
		t.Errorf("%d states were exchanged", n-exchanged)
	}
}

// TestGapAtOneNode: a node that has given up its log is left for another one before the state is taken.
func TestGapAtOneNode(t *testing.T) {
	p := &peer{opts: new(Options).pointer(), nodes: []string{"a", "b"},
		readings: []*reading{{PullRange: store.PullRange{First: 0, Last: slots - 1}}}}
	for n, want := range []bool{true, false} {
		p.settle([]answer{{first: 0, err: "GAP"}}, []error{store.ErrGap})
		if p.gapHere() != want || (p.readings[0].state == nil) != want {
			t.Errorf("after %d: %+v", n+1, p.readings[0])
		}
	}
	if p.next != 1 {
		t.Errorf("%d nodes were left", p.next)
	}
}

func (o *Options) pointer() *Options {
	all := o.withDefaults()
	return &all
}

// agreeing is a cluster that agrees with everybody.
type agreeing struct {
	mu      sync.Mutex
	set     *store.RegionSet
	leads   bool
	changed chan struct{}
}

func (a *agreeing) change(do func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	do()
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *agreeing) cluster(partitions int) *Cluster {
	return &Cluster{
		Data: "0123456789abcdef0123456789abcdef", Incarnation: 99, Partitions: partitions,
		Members: func() (store.RegionSet, bool) {
			a.mu.Lock()
			defer a.mu.Unlock()
			if a.set == nil {
				return store.RegionSet{}, false
			}
			return *a.set, true
		},
		Agree: func(_ context.Context, set store.RegionSet, after uint64) error {
			a.mu.Lock()
			is := a.set == nil && after == 0 || a.set != nil && a.set.Version == after
			a.mu.Unlock()
			if !is {
				return errors.New("another one was first")
			}
			a.change(func() { a.set = &set })
			return nil
		},
		CatchUp: func(context.Context) error { return nil },
		Leads: func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			return a.leads
		},
		Own: func() []uint16 { return []uint16{0, 1} },
		Changed: func() <-chan struct{} {
			a.mu.Lock()
			defer a.mu.Unlock()
			return a.changed
		},
		Shards: func() []Shard { return nil },
	}
}

// TestNodeOfShard: who is a member, the cluster agrees on, under its own name; a node logs that,
// and reads others, while it leads.
func TestNodeOfShard(t *testing.T) {
	r := newServers(t, 2)[0]
	a := &agreeing{changed: make(chan struct{})}
	n := r.openNode(func(o *Options) { o.Cluster = a.cluster(2) })
	set, err := n.Create("eu", "127.0.0.1:1")
	must(t, err)
	if m := set.Members[0]; m.Incarnation != 99 || m.Data != "0123456789abcdef0123456789abcdef" {
		t.Errorf("%+v", m)
	}
	if _, logged := r.s.Regions(); logged || n.Mesh() != nil {
		t.Error("it has logged the members, or reads, and does not lead")
	}
	if st := n.Status(); !st.Member || st.Restored || st.Version != 1 || st.Reads {
		t.Errorf("%+v", st)
	}
	a.change(func() { a.leads = true })
	eventually(t, "the leader has logged it, and reads", func() bool {
		_, logged := r.s.Regions()
		return logged && n.Mesh() != nil
	})
	if st := n.Status(); !st.Reads || len(st.Ills) > 0 {
		t.Errorf("leads: %+v", st)
	}
	admitted, err := n.Create("eu", "127.0.0.1:2")
	must(t, err)
	eventually(t, "the leader has logged the change", func() bool {
		is, _ := r.s.Regions()
		return is.Version == admitted.Version && is.Version == 2
	})
	a.change(func() { a.leads = false })
	eventually(t, "it reads no more", func() bool { return n.Mesh() == nil })
	if err := n.Pause("us"); !errors.Is(err, ErrMember) {
		t.Errorf("paused where nothing is read: %v", err)
	}
	a.change(func() {
		other := *a.set
		other.Group, other.Version = other.Group+1, other.Version+1
		a.set, a.leads = &other, true
	})
	eventually(t, "it says why it does not read", func() bool {
		return strings.Contains(fmt.Sprint(n.Status().Ills), "cannot begin to read")
	})
}

// TestShardsAnswer: only shards that have every partition once are taken.
func TestShardsAnswer(t *testing.T) {
	for _, good := range []string{`[]`, `[{"partitions":[[0,3]]}]`,
		`[{"partitions":[[2,3]]},{"partitions":[[0,1]],"own":true,"nodes":[{"host":"::1","tls":5}]}]`} {
		all, err := decodeShards([]byte(good), 4)
		if err != nil || all[0].first() != 0 {
			t.Errorf("%s: %+v, %v", good, all, err)
		}
	}
	for _, bad := range []string{
		``, `{}`, `[{}]`, `[{"partitions":[[0,2]]}]`, `[{"partitions":[[0,4]]}]`,
		`[{"partitions":[[0,2],[2,3]]}]`, `[{"partitions":[[2,3],[0,1]]}]`,
		`[{"partitions":[[0,3]]},{"partitions":[[3,3]]}]`, `[{"partitions":[[3,0]]}]`,
		`[{"partitions":[[0,1]],"own":true},{"partitions":[[2,3]],"own":true}]`,
		`[{"partitions":[[0,3]],"nodes":[{"host":"","port":1}]}]`,
		`[{"partitions":[[0,3]],"nodes":[{"host":"a b","port":1}]}]`, `[{"partitions":[[0,-1]]}]`,
	} {
		if all, err := decodeShards([]byte(bad), 4); !errors.Is(err, ErrAnswer) {
			t.Errorf("%s: %+v, %v", bad, all, err)
		}
	}
}

// FuzzShards: an answer is refused, or has every partition in one shard.
func FuzzShards(f *testing.F) {
	f.Add([]byte(`[{"partitions":[[2,3]]},{"partitions":[[0,1]],"own":true,"nodes":[{"host":"::1","tls":5}]}]`), uint8(2))
	f.Add([]byte(`[]`), uint8(0))
	f.Fuzz(func(t *testing.T, b []byte, log2 uint8) {
		n := 1 << (log2 % 11)
		all, err := decodeShards(b, n)
		if err != nil {
			return
		}
		for p := range n {
			has := 0
			for i := range all {
				if all[i].has(uint16(p)) {
					has++
				}
			}
			if has != 1 {
				t.Fatalf("partition %d is in %d shards", p, has)
			}
		}
		if _, err := json.Marshal(all); err != nil {
			t.Fatal(err)
		}
	})
}
