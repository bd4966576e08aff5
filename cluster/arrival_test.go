package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/internal/testwait"
	"github.com/fbfkv/fbfkv/persistence/disk"
	"github.com/fbfkv/fbfkv/persistence/oplog"
	"github.com/fbfkv/fbfkv/store"
)

// exported is a partition of another store, with counters, as a file.
type exported struct {
	t    testing.TB
	fs   vfs.FS
	p    uint16
	key  string
	out  *store.Moving
	path string
}

const exportedOps = 20

// export makes a partition in which the load has no key.
func export(t testing.TB, behind *Node) *exported {
	fsys := vfs.NewMem()
	src, err := store.Open(store.Options{Dir: "d", FS: fsys, Partitions: 4, Seed: [16]byte{7},
		MinFreeDisk: -1})
	must(t, err)
	e := &exported{t: t, fs: fsys, key: "a"}
	for store.Slot([]byte(e.key))/4096 == store.Slot([]byte("k0"))/4096 {
		e.key += "a"
	}
	e.p = store.Slot([]byte(e.key)) / 4096
	for i := range exportedOps {
		must(t, countOne(src, e.key, fmt.Sprint(i)).Err)
	}
	e.out, err = src.Export(e.p, "aside", behind.st.LastOf(e.p), 1<<30)
	must(t, err)
	e.path = "aside/" + e.out.Name
	t.Cleanup(func() {
		e.out.Close()
		must(t, src.Close())
	})
	return e
}

func countOne(s *store.Store, key, opid string) *store.Op {
	var b store.Batch
	op := b.Add(store.CIncrBy)
	op.Key, op.ID, op.Delta = []byte(key), []byte(opid), 1
	s.Execute(&b)
	return &b.Ops[0]
}

// give has a replica receive the partition.
func (e *exported) give(m *replica) {
	b, err := disk.ReadFile(e.fs, e.path, 1<<30)
	must(e.t, err)
	must(e.t, errors.Join(m.fs.MkdirAll("aside", 0o755), disk.WriteFile(m.fs, "aside", e.out.Name, b)))
	_, err = m.running().st.Receive(e.p, e.path)
	must(e.t, err)
}

// adopt lets the partition go on in the shard, of which these replicas have received it.
func (e *exported) adopt(s *shard, have ...*replica) {
	await(e.t, "it is adopted", func() bool {
		m := s.leader()
		n := m.running()
		for _, h := range have {
			if h == m {
				return n != nil && n.st.Adopt(e.p, e.out.To, e.out.From, 1) == nil &&
					n.st.Release(e.p, 1) == nil
			}
		}
		_ = n.HandOver(e.t.Context(), have[0].id) // else it is tried again
		return false
	})
}

// knows expects a node that leads to answer every operation as it was answered where the partition was.
func (e *exported) knows(s *shard, m *replica) {
	e.t.Helper()
	await(e.t, "it has the partition", func() bool {
		n := m.running()
		return n != nil && n.st.Adopted(e.p) > 0
	})
	await(e.t, "it leads and knows all operations", func() bool {
		if s.leader() != m {
			_ = s.leader().running().HandOver(e.t.Context(), m.id)
			return false
		}
		n := m.running()
		for i := range exportedOps {
			if n == nil {
				return false
			}
			op := countOne(n.st, e.key, fmt.Sprint(i))
			switch {
			case op.Err != nil && retried(op.Err):
				return false
			case op.Err != nil || op.Applied || op.Value != int64(i+1):
				e.t.Fatalf("operation %d is answered %d, applied %v: %v", i, op.Value, op.Applied, op.Err)
			}
		}
		return true
	})
}

// TestAdoptionIsNotReceived: a replica that has not received what its shard adopts takes the
// leader's files while the shard serves, and is well then.
func TestAdoptionIsNotReceived(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 3)
		l := startLoad(s, 2, 1)
		l.more(50)
		e := export(t, s.leader().running())
		e.give(s.members[0])
		e.give(s.members[1])
		e.adopt(s, s.members[0], s.members[1])
		l.more(100)
		lacks := s.members[2]
		await(t, "it has taken the files", func() bool { return lacks.restarted.Load() > 0 })
		l.more(100)
		e.knows(s, lacks)
		l.finish()
	})
}

// TestAdoptionIsNotReceivedYet: a replica that lacks what was adopted, and has no files of another
// yet, applies nothing, and is stopped and started again. Its disk holds no trace of the adoption:
// it takes the files then, and is well.
func TestAdoptionIsNotReceivedYet(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 3)
		await(t, "it counts", func() bool { return countOne(s.leader().running().st, "k0", "1").Err == nil })
		e := export(t, s.leader().running())
		e.give(s.members[0])
		e.give(s.members[1])
		lacks := s.members[2]
		n := lacks.running()
		n.files.running.Store(true) // it fetches nothing yet
		e.adopt(s, s.members[0], s.members[1])
		await(t, "it lacks the partition", n.files.lacks.Load)
		await(t, "it takes no entries", func() bool {
			return n.transport.Refuses()
		})
		applied := n.log.Applied()
		c := command{kind: commandBegin, origin: n.log.origin}
		machine{n}.Apply(&raft.Log{Index: applied + 100, Term: n.raft.CurrentTerm(), Data: c.encode(nil)})
		if now := n.log.Applied(); now != applied {
			t.Errorf("it has applied entries to %d, and lacks what one behind %d needs", now, applied)
		}
		asked := make(chan struct{})
		go func() {
			defer close(asked)
			_, _, _ = n.st.TablesVersion()
		}()
		select {
		case <-asked:
		case <-time.After(testwait.Limit):
			t.Error("a request waits for what is never applied, and the process for the request")
		}
		lacks.stop()
		lacks.start()
		e.knows(s, lacks)
	})
}

// TestAdoptionIsAnEntryOfItsOwn: a node that lacks what is adopted has applied nothing of the entry, so
// that it can start again.
func TestAdoptionIsAnEntryOfItsOwn(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 1)
		await(t, "it counts", func() bool { return countOne(s.leader().running().st, "k0", "1").Err == nil })
		n := s.members[0].running()
		e := export(t, n)
		e.give(s.members[0])
		e.adopt(s, s.members[0])
		var adoption, other []byte
		var entry oplog.Entry
		for i, last := n.log.EntryBounds(); i <= last; i++ {
			must(t, n.log.Entry(i, &entry))
			if c, err := decodeCommand(entry.Data); err == nil && store.Adopts(c.body) {
				adoption = bytes.Clone(c.body)
			} else if err == nil && c.kind == commandSections {
				other = bytes.Clone(c.body)
			}
		}
		l := newLog(new(oplog.Log), 1, time.Second)
		l.last = func(uint16) uint64 { return 1 }
		l.setReign(oplog.Reign{Term: 3, Index: 8})
		for _, record := range [][]byte{other, other, adoption, adoption, other, other} {
			_, _, err := l.Append(record)
			must(t, err)
		}
		both := slices.Concat(other, other)
		for i, want := range [][]byte{both, adoption, adoption, both} {
			data, _ := l.next()
			if c, err := decodeCommand(data); err != nil || !bytes.Equal(c.body, want) {
				t.Errorf("entry %d is %x, %v; it should be %x", i, c.body, err, want)
			}
			l.committed(func(uint16, uint64) {})
		}
	})
}

// TestAdoptionOutlivesItsLeader: the leader that had a partition adopted is lost. Of the two
// others, one has the longer log and not the partition, and one the partition. The first one is
// elected, and has the other lead.
func TestAdoptionOutlivesItsLeader(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newShard(t, 3)
		e := export(t, s.leader().running())
		one, has, lacks := s.members[0], s.members[1], s.members[2]
		e.give(one)
		e.give(has)
		await(t, "the first one leads", func() bool {
			if s.leader() != one {
				_ = s.leader().running().HandOver(t.Context(), one.id)
			}
			return s.leader() == one
		})
		lacks.running().files.running.Store(true) // it fetches nothing yet
		has.isolate()
		e.adopt(s, one)
		one.kill(rand.New(rand.NewPCG(1, 1)))
		has.heal()
		lacks.running().files.running.Store(false)
		await(t, "the one that has it leads", func() bool { return has.running().Leads() })
		await(t, "the other one has taken the files", func() bool { return lacks.restarted.Load() > 0 })
		e.knows(s, lacks)
		one.start()
		e.knows(s, one)
	})
}

// mover makes a node's Mover, which begins nothing by itself.
func (n *tableNode) mover(t *testing.T) *Mover {
	m := StartMover(MoverOptions{Node: n.node, Meta: n.meta, Net: n.net, Leaders: n.leaders, Shard: n.shard,
		Show: func() {}, Logger: n.node.o.Logger})
	t.Cleanup(m.Close)
	return m
}

// newMove makes a cluster of which partition 3 is to move from the first shard to the second one,
// and has counters.
func newMove(t *testing.T) (g *metaGroup, from, to *tableNode, move Move, key string) {
	g, nodes := newTableShards(t)
	from, to = nodes[0], nodes[1]
	for i := 0; key == ""; i++ {
		if k := fmt.Sprint("key", i); store.Slot([]byte(k))/1024 == 3 {
			key = k
		}
	}
	await(t, "the source counts", func() bool { return countOne(from.node.st, key, "1").Err == nil })
	move = Move{Partition: 3, From: from.shard, To: to.shard}
	return g, from, to, move, key
}

// moves notes a move, waits until all know it, and returns it as it was noted.
func moves(t *testing.T, g *metaGroup, move Move, nodes ...*tableNode) Move {
	g.configure(g.nodes[0], func(c *Configuration) error {
		if c.Owner(move.Partition).ID != move.From || c.Move(move.Partition) != nil {
			return nil // it is asked again
		}
		move.Epoch = c.Version + 1
		return c.moves(MoveRequest{Partitions: []int{move.Partition}, To: move.To})
	})
	for _, n := range nodes {
		knows(t, n, move.Epoch)
	}
	return move
}

// knows waits until a node knows a version of the configuration.
func knows(t *testing.T, n *tableNode, version uint64) {
	t.Helper()
	await(t, "the configuration is known", func() bool { return n.meta.Configuration().Version >= version })
}

// TestPartitionArrives: a partition moves there and back again, and each operation counts once.
func TestPartitionArrives(t *testing.T) {
	virtual(t, func(t *testing.T) {
		g, from, to, move, key := newMove(t)
		from.mover(t)
		to.mover(t)
		for i := range 4 {
			moves(t, g, move, from, to)
			await(t, "it has arrived", func() bool {
				c := from.meta.Configuration()
				return c.Owner(3).ID == move.To
			})
			await(t, "the source has deleted it", func() bool { return from.node.st.Vacant(3) })
			for n := range i + 1 {
				await(t, "the target counts", func() bool {
					op := countOne(to.node.st, key, fmt.Sprint(n+1))
					if op.Err == nil && (op.Applied || op.Value != int64(n+1)) {
						t.Fatalf("operation %d is answered %d, applied %v", n+1, op.Value, op.Applied)
					}
					return op.Err == nil
				})
			}
			must(t, countOne(to.node.st, key, fmt.Sprint(i+2)).Err)
			from, to = to, from
			move = Move{Partition: 3, From: move.To, To: move.From}
		}
	})
}

// TestPartitionComesBackAtOnce: a partition that came once, and went, comes back before it was
// deleted. The remains are not taken for the partition: it is deleted, and the partition comes.
func TestPartitionComesBackAtOnce(t *testing.T) {
	virtual(t, func(t *testing.T) {
		g, from, to, move, key := newMove(t)
		a, b := from.mover(t), to.mover(t)
		moves(t, g, move, from, to)
		await(t, "the source has deleted it", func() bool { return from.node.st.Vacant(3) })
		await(t, "the target counts", func() bool { return countOne(to.node.st, key, "2").Err == nil })
		a.Close()
		b.Close()
		// It goes on to the third shard, and is to come back, before the second one has noticed.
		_, err := to.node.st.HandOver(3, to.meta.Configuration().Version)
		must(t, err)
		third := to.meta.Configuration().Shards[2].ID
		g.configure(g.nodes[0], func(c *Configuration) error {
			c.Shard(to.shard).set(3, false)
			c.Shard(third).set(3, true)
			c.Moves = []Move{{Partition: 3, From: third, To: to.shard, Epoch: c.Version + 1}}
			return nil
		})
		await(t, "it is to come back", func() bool {
			c := to.meta.Configuration()
			return c.Owner(3).ID == third
		})
		if (&Mover{o: b.o, ctx: t.Context()}).newArrival(Move{Partition: 3}).isHere() {
			t.Error("it is taken for here")
		}
		to.mover(t)
		await(t, "what was left is deleted", func() bool { return to.node.st.Vacant(3) })
		if c := to.meta.Configuration(); c.Owner(3).ID != third {
			t.Error("it is taken for arrived")
		}
	})
}

// TestReceivedIsKept: a node of the target keeps the received part when the connection breaks, and
// when the source's leader or the node itself restarts. The transfer continues behind that part.
func TestReceivedIsKept(t *testing.T) {
	virtual(t, func(t *testing.T) {
		g, from, to, move, key := newMove(t)
		a, b := from.mover(t), to.mover(t)
		b.Close()
		move = moves(t, g, move, from)
		b = &Mover{o: b.o, dir: b.dir, ctx: t.Context(), again: make(chan struct{}, 1)}
		b.answers(true)
		open := func() *arrival {
			x := b.newArrival(move)
			t.Cleanup(x.cancel)
			await(t, "the source answers", func() (ok bool) {
				var err error
				if x.source, err = x.leaderOfSource(); err != nil {
					return false
				}
				if err = x.open(); err == nil {
					_, err = x.follow()
				}
				return err == nil
			})
			return x
		}
		x := open()
		if x.bytes == 0 {
			t.Fatal("the file was not fetched")
		}
		before := x.in.Last()
		must(t, countOne(from.node.st, key, "2").Err)
		x.source.Close()
		a.Close() // it forgets what it has exported
		a = from.mover(t)
		must(t, x.open())
		await(t, "the source answers", func() bool {
			var err error
			if x.source, err = x.leaderOfSource(); err == nil {
				_, err = x.follow()
			}
			return err == nil && x.in.Last() > before
		})
		before = x.in.Last()
		if a.outgoing[3].moving.Name != "" {
			t.Error("a file was made once more")
		}
		x.in.Close() // as a start does
		x.source.Close()
		if x = open(); x.bytes != 0 || x.in.Last() < before {
			t.Errorf("it has fetched %d bytes, and has entries to %d of %d", x.bytes, x.in.Last(), before)
		}

		// An arrival that cannot continue goes if the leader of the shard, which is this node, has
		// not adopted it.
		await(t, "it is given up", func() bool { return x.anew(0) == nil })
		if received, err := to.node.st.Received(3); err != nil || received != 0 {
			t.Errorf("what cannot be continued is there: %v", err)
		}
		x.source.Close()
	})
}

// TestMajorityHasIt: a replica counts only if it has the whole partition that the leader wants to
// adopt.
func TestMajorityHasIt(t *testing.T) {
	virtual(t, func(t *testing.T) {
		g, nodes := newTableShards(t)
		to, other := nodes[1], nodes[2]
		g.configure(g.nodes[0], func(c *Configuration) error {
			c.Members[2].Shard = to.shard
			c.Shards = c.Shards[:2]
			return nil
		})
		await(t, "they are of one shard", func() bool {
			return len(to.meta.Configuration().Shards) == 2 && len(other.meta.Configuration().Shards) == 2
		})
		move := Move{Partition: 3, From: nodes[0].shard, To: to.shard}
		asks, asked := to.mover(t), other.mover(t)
		x, y := asks.newArrival(move), asked.newArrival(move)
		t.Cleanup(x.cancel)
		t.Cleanup(y.cancel)
		x.is.Store(&received{to: 1 << 32, last: 10})
		asked.mu.Lock()
		asked.following[move.From] = y
		asked.mu.Unlock()
		for _, c := range []struct {
			has        *received
			have, lack int
		}{{nil, 1, 1}, {&received{1 << 32, 9}, 1, 1}, {&received{2 << 32, 10}, 1, 1},
			{&received{1 << 32, 10}, 2, 0}} {
			y.is.Store(c.has)
			if have, lack, voters := x.survey(10); have != c.have || lack != c.lack || voters != 2 {
				t.Errorf("it has %v: %d of %d have it, %d lack something; want %d and %d", c.has, have,
					voters, lack, c.have, c.lack)
			}
		}
		asked.Close()
		if have, lack, _ := x.survey(10); have != 1 || lack != 0 {
			t.Errorf("it does not answer: %d have it, %d lack something", have, lack)
		}
	})
}
