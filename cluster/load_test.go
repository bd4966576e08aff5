package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fbfkv/fbfkv/internal/testwait"
	"github.com/fbfkv/fbfkv/store"
)

// load is clients that count with opids until they are told to stop, and send each operation
// until it is answered.
type load struct {
	s       *shard
	stop    atomic.Bool
	clients sync.WaitGroup
	sent    atomic.Int64 // operations that were answered
	pause   int          // ms, at most, before an operation is sent again

	mu      sync.Mutex
	answers map[string][]int64 // by key: the counter's values that were answered
	highest map[string]int64   // … and read
	ops     []done
}

type done struct {
	key, id string
	value   int64
}

func newLoad(s *shard) *load {
	return &load{s: s, pause: 5, answers: make(map[string][]int64), highest: make(map[string]int64)}
}

func startLoad(s *shard, clients, keys int) *load {
	l := newLoad(s)
	for c := range 2 {
		l.clients.Go(func() {
			r := rand.New(rand.NewPCG(uint64(c), 2))
			for !l.stop.Load() {
				l.read(fmt.Sprint("k", r.IntN(keys)), r)
			}
		})
	}
	for c := range clients {
		l.clients.Go(func() {
			r := rand.New(rand.NewPCG(uint64(c), 1))
			for i := 0; !l.stop.Load(); i++ {
				l.count(fmt.Sprint("k", r.IntN(keys)), fmt.Sprint(c, "-", i), r)
			}
		})
	}
	return l
}

// count sends one operation until it is answered: to any node, as a client that has lost
// track of the leader.
func (l *load) count(key, id string, r *rand.Rand) {
	at := r.IntN(len(l.s.members))
	for {
		if n := l.s.members[at].use(); n != nil {
			var b store.Batch
			op := b.Add(store.CIncrBy)
			op.Key, op.ID, op.Delta = []byte(key), []byte(id), 1
			n.Store().Execute(&b)
			l.s.members[at].users.Done()
			switch {
			case op.Err == nil:
				l.mu.Lock()
				l.answers[key] = append(l.answers[key], op.Value)
				l.highest[key] = max(l.highest[key], op.Value)
				l.ops = append(l.ops, done{key, id, op.Value})
				l.mu.Unlock()
				l.sent.Add(1)
				return
			case !retried(op.Err):
				l.s.t.Errorf("%s %s: %v", key, id, op.Err)
				return
			}
		}
		at = (at + 1) % len(l.s.members)
		time.Sleep(time.Duration(r.IntN(l.pause)) * time.Millisecond)
	}
}

// read reads a counter from any node that answers as a leader, and checks that it sees what
// anybody was told before.
func (l *load) read(key string, r *rand.Rand) {
	time.Sleep(time.Duration(r.IntN(5)) * time.Millisecond)
	m := l.s.members[r.IntN(len(l.s.members))]
	n := m.use()
	if n == nil {
		return
	}
	l.mu.Lock()
	least := l.highest[key]
	l.mu.Unlock()
	var b store.Batch
	b.Add(store.Get).Key = []byte(key)
	n.Store().Execute(&b)
	m.users.Done()
	op := &b.Ops[0]
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case op.Err == nil && op.Value < least:
		l.s.t.Errorf("%s is read as %d after %d was answered", key, op.Value, least)
	case op.Err == nil:
		l.highest[key] = max(l.highest[key], op.Value)
	case !retried(op.Err):
		l.s.t.Errorf("read %s: %v", key, op.Err)
	}
}

// retried reports whether a client sends an operation again after an error.
func retried(err error) bool {
	return errors.Is(err, store.ErrNotLeader) || errors.Is(err, store.ErrUndecided) ||
		errors.Is(err, store.ErrUnknownOutcome) || errors.Is(err, store.ErrDiskFull)
}

// more waits until so many more operations were answered.
func (l *load) more(n int64) {
	l.s.t.Helper()
	want := l.sent.Load() + n
	for end := time.Now().Add(testwait.Limit); l.sent.Load() < want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			l.s.t.Fatal("nothing is answered any more")
		}
	}
}

// finish stops the load and checks that each operation counted once: the answers of a
// counter are 1 to n, each operation sent again gets its first answer, and all replicas know
// the same.
func (l *load) finish() {
	t := l.s.t
	t.Helper()
	l.stop.Store(true)
	l.clients.Wait()
	for key, values := range l.answers {
		slices.Sort(values)
		for i, v := range values {
			if v != int64(i+1) {
				t.Fatalf("%s: answer %d is %d: lost or counted twice", key, i+1, v)
			}
		}
	}
	for from := 0; from < len(l.ops); {
		some := l.ops[from:min(from+500, len(l.ops))]
		var b store.Batch
		for _, o := range some {
			op := b.Add(store.CIncrBy)
			op.Key, op.ID, op.Delta = []byte(o.key), []byte(o.id), 1
		}
		l.s.leader().running().Store().Execute(&b)
		if retried(b.Ops[0].Err) {
			continue // a busy machine has elected another leader
		}
		for i, o := range some {
			if op := &b.Ops[i]; op.Err != nil || op.Applied || op.Value != o.value {
				t.Fatalf("%s %s sent again: %d, applied %v, %v; it was %d", o.key, o.id, op.Value, op.Applied,
					op.Err, o.value)
			}
		}
		from += len(some)
	}
	leader := l.s.leader().running()
	for _, m := range l.s.members {
		n := m.running()
		if n == nil {
			continue
		}
		l.awaitApplied(n, leader)
		for key, values := range l.answers {
			var b store.Batch
			b.Replica = true
			b.Add(store.Get).Key = []byte(key)
			n.Store().Execute(&b)
			if op := &b.Ops[0]; op.Err != nil || op.Value != int64(len(values)) {
				t.Errorf("node %s: %s is %d (%v), want %d", m.id[39:], key, op.Value, op.Err, len(values))
			}
		}
	}
}

// awaitApplied waits until a node has applied what the leader has.
func (l *load) awaitApplied(n, leader *Node) {
	l.s.t.Helper()
	want := leader.Status().Committed // its own applied index may lag behind its answers
	for end := time.Now().Add(testwait.Limit); n.Status().Applied < want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			l.s.t.Fatalf("a node has applied %d of %d", n.Status().Applied, want)
		}
	}
}
