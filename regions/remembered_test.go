package regions

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/store/part"
)

// drawer keeps the nodes that a region remembers.
type drawer struct {
	mu   sync.Mutex
	has  []byte
	puts int
}

func (d *drawer) options(o *Options) {
	o.Remember = func(b []byte) error {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.has = b
		d.puts++
		return nil
	}
	o.Recall = func() ([]byte, error) { return d.is(), nil }
}

func (d *drawer) is() []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.has)
}

// knows waits until addresses are remembered.
func (d *drawer) knows(t *testing.T, all ...*testServer) {
	t.Helper()
	for _, s := range all {
		eventually(t, "a node is remembered", func() bool {
			return strings.Contains(string(d.is()), s.address())
		})
	}
}

// TestRemembersNodes: after a restart a region finds the shards of another one by any of its nodes,
// also if the one that is named is down, and another region has the place of one. The nodes are
// written once, and those of other regions are not used.
func TestRemembersNodes(t *testing.T) {
	all := newRegions(t, 2, 2, 2)
	c := &cutShards{t: t, r: all[0],
		all: []Shard{{Partitions: [][2]uint16{{0, 0}}}, {Partitions: [][2]uint16{{1, 1}}}}}
	named, first, second := c.node(0), c.node(0), c.node(1)
	d := &drawer{}
	peers := map[part.Region]string{0: named.address(), 2: all[2].server.address()}
	all[1].start(peers, d.options)
	all[0].once("k", "x", 1)
	eventually(t, "k has arrived", func() bool { return all[1].value("k") == 1 })
	d.knows(t, named, first, second)
	must(t, all[1].mesh.Close())
	puts := d.puts
	for i := range 4 { // at whichever node it is read
		all[1].start(peers, d.options)
		all[0].once("k", fmt.Sprint("again", i), 1)
		eventually(t, "it is read again", func() bool { return all[1].value("k") == int64(i+2) })
		must(t, all[1].mesh.Close())
	}
	if d.puts != puts {
		t.Errorf("what did not change was written %d times more", d.puts-puts)
	}

	named.close()
	stranger := all[2].server.address()
	d.has = []byte(strings.Replace(string(d.has), `"`+min(first.address(), named.address()),
		`"`+stranger+`","`+min(first.address(), named.address()), 1))
	known, err := decodeRemembered(d.is())
	if err != nil || len(known.Nodes[0]) != 4 {
		t.Fatalf("%s: %v", d.is(), err)
	}
	all[1].start(peers, d.options)
	for i, k := range []string{"a", "b", "c", "d", "e", "f"} {
		all[0].once(k, fmt.Sprint("y", i), 1)
		eventually(t, k+" has arrived from another node", func() bool { return all[1].value(k) == 1 })
	}
	eventually(t, "the stranger is forgotten", func() bool {
		return !strings.Contains(string(d.is()), stranger)
	})
	must(t, all[1].mesh.Close())

	d.has = []byte(strings.Replace(string(d.is()), `"group":77`, `"group":78`, 1))
	all[1].start(peers, d.options)
	eventually(t, "nodes of other groups are not asked", func() bool {
		s := all[1].of(0)
		return s.Failing && s.LastError != ""
	})
	if got := all[1].mesh.opts.remembered.of(77, 0); got != nil {
		t.Errorf("it remembers %v", got)
	}
}

// TestNewNode: a node that is added while another one is read is known when that is lost.
func TestNewNode(t *testing.T) {
	for _, busy := range []bool{false, true} {
		t.Run(fmt.Sprint("busy=", busy), func(t *testing.T) {
			all := newRegions(t, 2, 2)
			c := &cutShards{t: t, r: all[0], all: []Shard{{Partitions: [][2]uint16{{0, 1}}}}}
			named, d := c.node(0), &drawer{}
			all[1].start(map[part.Region]string{0: named.address()}, func(o *Options) {
				d.options(o)
				o.learnPeriod = time.Nanosecond
				if busy {
					o.learnPeriod = 20 * time.Millisecond
				}
			})
			if busy { // each answer is followed by others that are under way
				var writers sync.WaitGroup
				stop := make(chan struct{})
				writers.Go(func() {
					for i := 0; ; i++ {
						select {
						case <-stop:
							return
						default:
							all[0].once("busy", fmt.Sprint("op", i), 1)
						}
					}
				})
				defer writers.Wait()
				defer close(stop)
			}
			for i := range 3 {
				all[0].once("k", fmt.Sprint("op", i), 1)
				eventually(t, "it is read", func() bool { return all[1].value("k") == int64(i+1) })
				if i == 0 {
					added := c.node(0)
					all[0].once("l", "x", 1) // the request at hand ends
					d.knows(t, added)
					named.close()
				}
			}
		})
	}
}

// TestStrangerIsNotLearnt: a node of another region that has the place of one says nothing of that.
func TestStrangerIsNotLearnt(t *testing.T) {
	all := newRegions(t, 2, 2, 2)
	given := all[1].options(nil)
	o := given.pointer()
	p := &peer{opts: o, region: 0, address: "127.0.0.1:1", acquainted: &acquainted{}}
	set, _ := all[1].s.Regions()
	m := &membership{set.Group, set.Self, set.Members[0]}
	must(t, o.remembered.learn(set.Group, 0, []Shard{{Nodes: []ShardNode{all[2].server.asNode()}}}, false))
	p.next = 1
	if l, err := p.enter(t.Context(), m); err == nil ||
		!strings.Contains(err.Error(), "a node of the region region2") || p.nodes != nil || p.shard != nil {
		t.Errorf("%v, %v, %+v", l, err, p.nodes)
	}
}

// TestSurvey: a node that does not lead learns, too, where others are.
func TestSurvey(t *testing.T) {
	all := newServers(t, 2, 2)
	c := &cutShards{t: t, r: all[0], all: []Shard{{Partitions: [][2]uint16{{0, 1}}}}}
	named, other := c.node(0), c.node(0)
	set := setOf(all, 0)
	set.Members[0].Address = named.address()
	must(t, all[0].s.SetRegions(set))
	set.Self = 1
	a, d := &agreeing{changed: make(chan struct{}), set: &set}, &drawer{}
	all[1].openNode(func(o *Options) {
		d.options(o)
		o.Cluster, o.learnPeriod = a.cluster(2), time.Millisecond
	})
	d.knows(t, named, other)
}

// TestRemembered: only what could have been learnt is taken for it.
func TestRemembered(t *testing.T) {
	many := `"h:1"` + strings.Repeat(`,"h:1"`, maxShardNodes)
	for _, bad := range []string{`{`, `[]`,
		`{"nodes":{"16":["h:1"]}}`, `{"nodes":{"-1":["h:1"]}}`, `{"nodes":{"0":["h"]}}`,
		`{"nodes":{"0":["h h:1"]}}`,
		`{"nodes":{"0":[` + many + `]}}`, strings.Repeat(" ", MaxRemembered+1)} {
		if n, err := decodeRemembered([]byte(bad)); err == nil || n.Nodes != nil {
			t.Errorf("%.50s: %+v, %v", bad, n, err)
		}
	}
	for _, good := range []string{``,
		`{}`, `{"group":18446744073709551615,"nodes":{"15":["h:1","[::1]:2"]}}`} {
		if _, err := decodeRemembered([]byte(good)); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	failing := &remembered{save: func([]byte) error { return context.Canceled }}
	shards := []Shard{{Nodes: []ShardNode{{Host: "h", Port: 1}}}}
	if err := failing.learn(1, 0, shards, false); err == nil || failing.of(1, 0) == nil {
		t.Error("what cannot be saved is not told, or is forgotten")
	}
	if must(t, (&remembered{}).learn(1, 0, nil, false)); failing.of(2, 0) != nil {
		t.Error("nodes of another group")
	}
}
