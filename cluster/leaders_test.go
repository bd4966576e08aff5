package cluster

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/cluster/wire"
)

// TestLeaders: a leader is believed what it says of its own shard, and in the highest term.
func TestLeaders(t *testing.T) {
	var config atomic.Pointer[Configuration]
	config.Store(new(Configuration))
	configuration := func() Configuration { return *config.Load() }
	var c Configuration
	var nets []*Net
	var all []*Leaders
	var news atomic.Int64
	for n := range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		way, err := Listen(l,
			NetOptions{Self: Identity{Cluster: testID("c"), Node: id(n), Format: FormatLevel},
				Secret: testSecret, patience: time.Minute})
		must(t, err)
		m := member(n)
		// 1 and 2 are of one shard
		m.ID, m.ClusterPort, m.Shard = id(n), l.Addr().(*net.TCPAddr).Port, id(100+min(n, 1))
		c.Members = append(c.Members, m)
		nets = append(nets, way)
		all = append(all, NewLeaders(way, configuration, 10*time.Millisecond, func() { news.Add(1) }))
		t.Cleanup(func() {
			all[n].Close()
			must(t, way.Close())
		})
	}
	config.Store(&c)
	leads := func(l *Leaders, shard, node string, term uint64) bool {
		got, _, known := l.Of(shard)
		return known && got.Node == node && got.Term == term
	}
	all[1].Tell(Leader{Shard: id(101), Node: id(1), Term: 5, Failed: []string{id(2)}})
	await(t, "it is known who leads", func() bool { return leads(all[0], id(101), id(1), 5) })
	if got, _, _ := all[0].Of(id(101)); len(got.Failed) != 1 {
		t.Errorf("%+v", got)
	}
	await(t, "both others have heard it", func() bool { return news.Load() == 2 })
	_, first, _ := all[0].Of(id(101))
	await(t, "it is said again", func() bool { _, heard, _ := all[0].Of(id(101)); return heard.After(first) })
	if news.Load() != 2 {
		t.Error("the same is news")
	}
	// Another node of the shard has led in an earlier term, and does not know better.
	all[2].Tell(Leader{Shard: id(101), Node: id(2), Term: 4})
	conn, err := nets[2].Caller(t.Context(), id(0), c.Members[0].ClusterAddress())
	must(t, err)
	for shard, term := range map[string]uint64{id(101): 4, id(100): 9} {
		_, err := conn.Do(wire.Ask{Verb: verbLeader, Ask: Leader{Shard: shard, Node: id(2), Term: term},
			Within: time.Minute})
		if (err == nil) != (shard == id(101)) {
			t.Errorf("a leader of its own shard, or of another one, is answered %v", err)
		}
	}
	conn.Close()
	if _, _, known := all[0].Of(id(100)); known || !leads(all[0], id(101), id(1), 5) {
		t.Error("an old leader, or one of another shard, is believed")
	}
	all[2].Tell(Leader{Shard: id(101), Node: id(2), Term: 6})
	await(t, "the new leader is known", func() bool { return leads(all[0], id(101), id(2), 6) })
	await(t, "it is known in its shard", func() bool { return leads(all[1], id(101), id(2), 6) })
	all[2].Tell(Leader{Shard: id(101), Node: id(2)})
	all[2].mu.Lock()
	if len(all[2].telling) != 0 {
		t.Error("a node that does not lead tells others")
	}
	all[2].mu.Unlock()
}
