package cluster

import (
	"errors"
	"testing"

	"github.com/fbfkv/fbfkv/cluster/wire"
	"github.com/fbfkv/fbfkv/store"
)

// stay takes the move of partition 3 back, and waits until nodes know that.
func stay(t *testing.T, g *metaGroup, nodes ...*tableNode) {
	t.Helper()
	version := uint64(0)
	g.configure(g.nodes[0], func(c *Configuration) error {
		if len(c.Moves) > 0 {
			version = c.Version + 1
		}
		c.stay([]int{3})
		return nil
	})
	for _, n := range nodes {
		knows(t, n, version)
	}
}

// opened is an arrival of a move that goes on by hand, and has fetched the file.
func opened(t *testing.T, to *tableNode, move Move) *arrival {
	t.Helper()
	b := to.mover(t)
	b.Close()
	b = &Mover{o: b.o, dir: b.dir, ctx: t.Context(), again: make(chan struct{}, 1),
		following: map[string]*arrival{}}
	a := b.newArrival(move)
	t.Cleanup(a.cancel)
	a.connected(t, "it is open", a.open)
	return a
}

// connected tries something until it goes well, over a new connection to the source each time.
func (a *arrival) connected(t *testing.T, what string, try func() error) {
	t.Helper()
	await(t, what, func() bool {
		var err error
		if a.source, err = a.leaderOfSource(); err != nil {
			return false
		}
		defer a.source.Close()
		return try() == nil
	})
}

// handOver has the source hand over, and the target receive everything.
func (a *arrival) handOver(t *testing.T) (last uint64) {
	t.Helper()
	a.connected(t, "all has come", func() error {
		answer, _, err := askMove(a.source, moveHandOver, moveAsk{Partition: a.p, Move: a.move.Epoch},
			moveTime)
		for last = answer.Last; err == nil && a.in.Last() < last; {
			_, err = a.follow()
		}
		return err
	})
	return last
}

// adopted has the target adopt everything, and tells nobody.
func (a *arrival) adopted(t *testing.T, last uint64) {
	t.Helper()
	n := a.m.o.Node
	await(t, "it is adopted", func() bool {
		return n.st.Adopt(a.p, a.is.Load().to, last, a.move.Epoch) == nil
	})
}

// answers expects an operation to be answered so, as soon as the partition is served.
func answers(t *testing.T, n *tableNode, key, opid string, value int64, applied bool) {
	t.Helper()
	await(t, "it is served", func() bool {
		op := countOne(n.node.st, key, opid)
		if op.Err == nil && (op.Value != value || op.Applied != applied) {
			t.Fatalf("operation %s is answered %d, applied %v; want %d, %v", opid, op.Value, op.Applied,
				value, applied)
		}
		if op.Err != nil && !errors.Is(op.Err, store.ErrNotLeader) {
			t.Fatal(op.Err)
		}
		return op.Err == nil
	})
}

// refused expects nobody to be answered for a partition.
func refused(t *testing.T, n *tableNode, key string) {
	t.Helper()
	if op := countOne(n.node.st, key, "refused"); !errors.Is(op.Err, store.ErrNotLeader) {
		t.Errorf("it is answered %d, %v", op.Value, op.Err)
	}
}

// TestMoveIsTakenBack: a move is taken back behind the hand-over, and behind the adoption, of which
// the configuration does not know. The source serves the partition; the target never does, whoever
// goes on with the move there, and has it anew when it moves again (G1, G2).
func TestMoveIsTakenBack(t *testing.T) {
	for name, adopted := range map[string]bool{"handed over": false, "adopted": true} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) { takesBack(t, adopted) })
		})
	}
}

func takesBack(t *testing.T, adopted bool) {
	g, from, to, move, key := newMove(t)
	from.mover(t)
	move = moves(t, g, move, from, to)
	a := opened(t, to, move)
	last := a.handOver(t)
	refused(t, from, key)
	if adopted {
		a.adopted(t, last)
		refused(t, to, key)
	}
	stay(t, g, from)
	answers(t, from, key, "2", 2, true)
	// A node that does not know that goes on.
	await(t, "nothing is left to do", func() bool {
		return to.node.Leads() && a.adopt(a.is.Load().to, last) == nil
	})
	if c := to.meta.Configuration(); c.Owner(3).ID != from.shard {
		t.Error("what was taken back has arrived")
	}
	refused(t, to, key)
	await(t, "what counts for nothing is deleted", func() bool {
		c := to.meta.Configuration()
		a.m.tidy(&c)
		return to.node.st.Vacant(3)
	})

	// It moves after all.
	to.mover(t)
	move = moves(t, g, Move{Partition: 3, From: from.shard, To: to.shard}, from, to)
	await(t, "it has arrived", func() bool {
		c := to.meta.Configuration()
		return c.Owner(3).ID == to.shard
	})
	answers(t, to, key, "1", 1, false)
	answers(t, to, key, "2", 2, false)
	answers(t, to, key, "3", 3, true)
	await(t, "the source has deleted it", func() bool { return from.node.st.Vacant(3) })
	// Too late.
	g.configure(g.nodes[0], func(c *Configuration) error {
		c.stay([]int{3})
		return nil
	})
	if c := g.nodes[0].meta.Configuration(); c.Owner(3).ID != to.shard {
		t.Error("what has arrived is taken back")
	}
}

// TestAdoptionOfAnEarlierMove: a partition was adopted for a move that was taken back, and moves
// again before the target has noticed. The adopted partition is not taken for the one that comes
// (G2).
func TestAdoptionOfAnEarlierMove(t *testing.T) {
	virtual(t, func(t *testing.T) {
		g, from, to, move, key := newMove(t)
		from.mover(t)
		move = moves(t, g, move, from, to)
		a := opened(t, to, move)
		a.adopted(t, a.handOver(t))
		stay(t, g, from)
		answers(t, from, key, "2", 2, true)
		again := moves(t, g, Move{Partition: 3, From: from.shard, To: to.shard}, from, to)
		if b := a.m.newArrival(again); b.isHere() {
			t.Error("it is taken for here")
		}
		to.mover(t)
		await(t, "it has arrived", func() bool {
			c := to.meta.Configuration()
			return c.Owner(3).ID == to.shard
		})
		answers(t, to, key, "2", 2, false)
	})
}

// TestHandOverForAnotherMove: the source hands over only for the move that it knows itself.
func TestHandOverForAnotherMove(t *testing.T) {
	virtual(t, func(t *testing.T) {
		g, from, to, move, key := newMove(t)
		m := from.mover(t)
		move = moves(t, g, move, from, to)
		asker := &wire.Call{From: to.id}
		for _, epoch := range []uint64{0, move.Epoch - 1, move.Epoch + 1} {
			if _, _, err := m.handOver(moveAsk{Partition: 3, Move: epoch}, asker); err == nil {
				t.Fatalf("it is handed over for the move %d, and not %d", epoch, move.Epoch)
			}
		}
		answers(t, from, key, "2", 2, true)
		await(t, "it is handed over", func() bool {
			_, _, err := m.handOver(moveAsk{Partition: 3, Move: move.Epoch}, asker)
			return err == nil
		})
		refused(t, from, key)
	})
}

// TestOlderConfiguration: a leader that knows only a configuration before the move neither serves
// nor deletes what is held for it.
func TestOlderConfiguration(t *testing.T) {
	virtual(t, func(t *testing.T) {
		g, from, to, move, key := newMove(t)
		from.mover(t)
		older := from.meta.Configuration()
		move = moves(t, g, move, from, to)
		a := opened(t, to, move)
		a.adopted(t, a.handOver(t))
		for _, n := range []*tableNode{from, to} {
			if ended, err := endMove(n.node.st, &older, n.shard, 3); ended || err != nil {
				t.Errorf("the move is ended: %v", err)
			}
			refused(t, n, key)
		}
		if to.node.st.Vacant(3) {
			t.Error("what was adopted is deleted")
		}
	})
}

// TestReceivedIsDropped: what a node of the target has received goes when the move is taken back,
// but not before the leader of its shard knows that: until then it may count on it.
func TestReceivedIsDropped(t *testing.T) {
	virtual(t, func(t *testing.T) {
		g, from, to, move, _ := newMove(t)
		from.mover(t)
		move = moves(t, g, move, from, to)
		a := opened(t, to, move)
		received := func() uint64 {
			last, err := to.node.st.Received(3)
			must(t, err)
			return last
		}
		stay(t, g, from, to)
		version := to.meta.Configuration().Version
		says := func(version uint64) bool {
			answer, _, err := a.m.received(moveAsk{Partition: 3, Version: version}, &wire.Call{From: to.id})
			must(t, err)
			return answer.Leads
		}
		a.m.following[move.From] = a
		await(t, "the target has a leader", to.node.Leads)
		if says(version) {
			t.Error("it says that it leads while it may have the partition adopted")
		}
		delete(a.m.following, move.From)
		if says(version + 1) {
			t.Error("it says that it leads, and does not know that the move was taken back")
		}
		if received() == 0 {
			t.Fatal("nothing was received")
		}
		await(t, "it is given up", a.giveUp)
		if received() != 0 || a.in != nil {
			t.Error("what was received is there")
		}

		// If it is to come again it is kept.
		move = moves(t, g, move, from, to)
		a = opened(t, to, move)
		a.move.Epoch--
		if !a.giveUp() || received() == 0 {
			t.Error("what is to come again is dropped")
		}
		b := a.m.newArrival(move)
		t.Cleanup(b.cancel)
		b.connected(t, "it goes on", b.open)
		if b.bytes > 0 {
			t.Error("the file was fetched once more")
		}
	})
}

// TestBlockedMove: a partition whose shard does not answer holds up no other shard's.
func TestBlockedMove(t *testing.T) {
	virtual(t, func(t *testing.T) {
		g, from, to, move, key := newMove(t)
		var blocked string
		g.configure(g.nodes[0], func(c *Configuration) error {
			if len(c.Moves) > 0 {
				return nil // it is asked again
			}
			blocked = c.Shards[2].ID
			c.Shard(from.shard).set(5, false)
			c.Shard(blocked).set(5, true)
			return c.moves(MoveRequest{Partitions: []int{5}, To: to.shard})
		})
		from.mover(t)
		to.mover(t)
		moves(t, g, move, from, to)
		await(t, "it has arrived", func() bool {
			c := to.meta.Configuration()
			return c.Owner(3).ID == to.shard
		})
		answers(t, to, key, "1", 1, false)
		if c := to.meta.Configuration(); c.Move(5) == nil || c.Owner(5).ID != blocked {
			t.Error("a shard that does not answer has given its partition")
		}
	})
}
