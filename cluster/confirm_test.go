package cluster

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// TestDeposedLeaderIsNotConfirmed cuts leaders off, both ways or one, while every node
// asks again and again whether it leads. Nobody may be confirmed after another has
// committed something in a later term.
func TestDeposedLeaderIsNotConfirmed(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var f faults
		names := []string{"1", "2", "3"}
		nodes := startNodes(t, &f, names...)
		var committed atomic.Uint64 // the highest term in which something was
		var confirmed atomic.Int64
		var asking sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		for _, n := range nodes {
			asking.Go(func() {
				var term uint64 // of its last leadership
				for ctx.Err() == nil {
					if now := n.raft.CurrentTerm(); n.raft.State() == raft.Leader {
						term = now
					}
					before := committed.Load()
					wait, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
					if n.confirmer.Confirm(wait, term) == nil {
						if confirmed.Add(1); term < before {
							t.Errorf("%s is confirmed in term %d after a commit in term %d", n.id[:1], term,
								before)
						}
					}
					cancel()
					time.Sleep(time.Millisecond) // a node that does not lead learns it at once
				}
			})
		}
		random := rand.New(rand.NewPCG(1, 2))
		for range 4 {
			name, l := leader(t, nodes, names...)
			term := l.raft.CurrentTerm()
			for at := confirmed.Load(); confirmed.Load() < at+3; time.Sleep(time.Millisecond) {
				if l.raft.CurrentTerm() != term {
					break // it has lost its leadership without us
				}
			}
			rest := others(names, name)
			switch random.IntN(3) {
			case 0:
				f.isolate(name, rest...)
			case 1: // the others do not hear it
				f.cut(name, rest[0])
				f.cut(name, rest[1])
			case 2: // it does not hear the others
				f.cut(rest[0], name)
				f.cut(rest[1], name)
			}
			_, next := leader(t, nodes, rest...)
			committed.Store(next.raft.CurrentTerm())
			f.reconnect(name, rest...)
		}
		stop()
		asking.Wait()
		t.Logf("confirmed %d times", confirmed.Load())
	})
}

// BenchmarkConfirm proves leadership, for one and for many at a time.
func BenchmarkConfirm(b *testing.B) {
	var f faults
	nodes := startNodes(b, &f, "1", "2", "3")
	_, l := leader(b, nodes, "1", "2", "3")
	prove := func() {
		if err := l.confirmer.Confirm(b.Context(), l.raft.CurrentTerm()); err != nil {
			b.Error(err)
		}
	}
	b.Run("one", func(b *testing.B) {
		for b.Loop() {
			prove()
		}
	})
	b.Run("many", func(b *testing.B) {
		b.SetParallelism(50)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				prove()
			}
		})
	})
}

// TestNonvoterProvesNothing asks a leader of three, of whom one does not vote, while only
// that one hears it.
func TestNonvoterProvesNothing(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var f faults
		names := []string{"1", "2", "3"}
		nodes := startNodes(t, &f, names...)
		name, l := leader(t, nodes, names...)
		rest := others(names, name)
		if err := l.raft.DemoteVoter(nodes[rest[0]].id, 0, time.Minute).Error(); err != nil {
			t.Fatal(err)
		}
		f.isolate(name, rest[1])
		term, begun := l.raft.CurrentTerm(), time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- l.confirmer.Confirm(ctx, term) }()
		for l.raft.State() == raft.Leader &&
			l.transport.Progress()[nodes[rest[0]].id].Contact.Before(begun.Add(100*time.Millisecond)) {
			time.Sleep(time.Millisecond)
		}
		cancel()
		if <-done == nil {
			t.Error("a node without a vote has confirmed its leader")
		}
	})
}
