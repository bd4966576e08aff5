package raftgroup

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// newConfirmer returns a Confirmer of the node 1 in term 7, and how often it has asked.
func newConfirmer(voters ...raft.ServerID) (*Confirmer, *atomic.Uint64, *atomic.Uint64) {
	var term, asked atomic.Uint64
	term.Store(7)
	return &Confirmer{
		self: "1", answers: map[raft.ServerID]answered{}, term: term.Load,
		voters: func() []raft.ServerID { return voters },
		ask:    func() { asked.Add(1) },
	}, &term, &asked
}

// confirm begins a proof, and returns where its end arrives.
func confirm(c *Confirmer, term uint64) chan error {
	done := make(chan error, 1)
	go func() { done <- c.Confirm(context.Background(), term) }()
	synctest.Wait()
	return done
}

// ended returns how a proof has ended, if it has.
func ended(done chan error) (bool, error) {
	synctest.Wait()
	select {
	case err := <-done:
		return true, err
	default:
		return false, nil
	}
}

// TestProof ends a proof when a majority of the voters has answered what was sent after
// it began, with its term, and not before.
func TestProof(t *testing.T) {
	type note struct {
		peer raft.ServerID
		sent time.Duration // after the proof began
		term uint64
	}
	five := []raft.ServerID{"1", "2", "3", "4", "5"}
	for name, c := range map[string]struct {
		voters []raft.ServerID
		notes  []note
		want   bool
	}{
		"a majority":            {voters: five, notes: []note{{"2", 1, 7}, {"3", 1, 7}}, want: true},
		"a minority":            {voters: five, notes: []note{{"2", 1, 7}}},
		"one voter twice":       {voters: five, notes: []note{{"2", 1, 7}, {"2", 2, 7}}},
		"two of four":           {voters: five[:4], notes: []note{{"2", 1, 7}}},
		"sent before":           {voters: five, notes: []note{{"2", 1, 7}, {"3", -1, 7}}},
		"sent at that moment":   {voters: five, notes: []note{{"2", 1, 7}, {"3", 0, 7}}},
		"an earlier term":       {voters: five, notes: []note{{"2", 1, 7}, {"3", 1, 6}}},
		"no voter":              {voters: five, notes: []note{{"2", 1, 7}, {"6", 1, 7}}},
		"this node is no voter": {voters: five[1:4], notes: []note{{"2", 1, 7}}},
		"a majority without it": {voters: five[1:4], notes: []note{{"2", 1, 7}, {"3", 1, 7}},
			want: true},
		"an old answer comes late": {voters: five[:3], notes: []note{{"2", 1, 7}, {"2", -1, 7}},
			want: true},
		"nobody votes":                {},
		"this node is the only voter": {voters: five[:1], want: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				proofs, _, _ := newConfirmer(c.voters...)
				began := time.Now()
				done := confirm(proofs, 7)
				for _, n := range c.notes {
					proofs.note(n.peer, began.Add(n.sent), n.term)
				}
				if is, err := ended(done); is != c.want || err != nil {
					t.Errorf("ended: %v, %v", is, err)
				}
				proofs.Deposed()
				if is, err := ended(done); !c.want && (!is || err != raft.ErrNotLeader) {
					t.Errorf("deposed: %v, %v", is, err)
				}
			})
		})
	}
}

// TestProofOfAnotherTerm ends a proof when the node learns of a newer term, and begins
// none for an old one.
func TestProofOfAnotherTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, term, _ := newConfirmer("1", "2", "3")
		first, second := confirm(c, 7), confirm(c, 7)
		term.Store(8)
		c.note("2", time.Now().Add(1), 8)
		for _, done := range []chan error{first, second, confirm(c, 7)} {
			if is, err := ended(done); !is || err != raft.ErrNotLeader {
				t.Errorf("ended: %v, %v", is, err)
			}
		}
		time.Sleep(2)
		third := confirm(c, 8)
		if is, _ := ended(third); is {
			t.Error("what was sent before proves a new term")
		}
		c.note("2", time.Now().Add(1), 8)
		if is, err := ended(third); !is || err != nil {
			t.Errorf("in the new term: %v, %v", is, err)
		}
	})
}

// TestOneProofForAll asks once for all who wait, and no one shares a proof that began
// before it asked.
func TestOneProofForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, asked := newConfirmer("1", "2", "3")
		first := confirm(c, 7)
		time.Sleep(1)
		sent := time.Now() // after the first, before the others
		time.Sleep(1)
		var later []chan error
		for range 10 {
			later = append(later, confirm(c, 7))
		}
		if n := asked.Load(); n != 1 {
			t.Errorf("asked %d times", n)
		}
		c.note("2", sent, 7)
		if is, err := ended(first); !is || err != nil {
			t.Errorf("the first: %v, %v", is, err)
		}
		time.Sleep(1)
		for _, done := range later {
			if is, _ := ended(done); is {
				t.Error("a proof that began before is shared")
			}
		}
		c.note("3", time.Now(), 7)
		for _, done := range later {
			if is, err := ended(done); !is || err != nil {
				t.Errorf("the others: %v, %v", is, err)
			}
		}
		if n := asked.Load(); n != 2 {
			t.Errorf("asked %d times", n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // virtual
		defer cancel()
		if err := c.Confirm(ctx, 7); err != context.DeadlineExceeded {
			t.Errorf("without answers: %v", err)
		}
	})
}

// TestAnswerUnderWay holds back an answer that was given before a proof began: it proves
// nothing, neither alone nor in a pipeline. (raft.VerifyLeader takes it.)
func TestAnswerUnderWay(t *testing.T) {
	t.Parallel()
	from, to, way := transports(t)
	const id = "2"
	c, _, _ := newConfirmer("1", id, "3")
	noted := make(chan bool)
	from.Observe(&Watcher{Answered: func(peer raft.ServerID, sent time.Time, term uint64) {
		c.note(peer, sent, term)
		noted <- true
	}})
	p, err := from.AppendEntriesPipeline(id, to.LocalAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	go func() {
		for {
			select {
			case <-p.Consumer():
			case <-t.Context().Done():
				return
			}
		}
	}()
	answer := func() {
		rpc := <-to.Consumer()
		rpc.Respond(&raft.AppendEntriesResponse{Term: 7, Success: true}, nil)
	}
	returned := make(chan bool, 1)
	for name, send := range map[string]func(){
		"heartbeat": func() {
			go func() {
				_ = from.AppendEntries(id, to.LocalAddr(), heartbeat(), new(raft.AppendEntriesResponse))
				returned <- true
			}()
		},
		"pipeline": func() {
			if _, err := p.AppendEntries(heartbeat(), new(raft.AppendEntriesResponse)); err != nil {
				t.Error(err)
			}
			returned <- true
		},
	} {
		send() // opens a connection
		answer()
		<-noted
		<-returned // the connection can be used again
		release := way.hold()
		send()
		answer()
		done := make(chan error, 1)
		begun := make(chan bool, 1)
		c.ask = func() { begun <- true }
		go func() { done <- c.Confirm(t.Context(), 7) }()
		<-begun
		release()
		<-noted
		<-returned
		select {
		case err := <-done:
			t.Fatalf("%s: proved by an answer that was under way: %v", name, err)
		default:
		}
		send()
		answer()
		<-noted
		<-returned
		if err := <-done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
