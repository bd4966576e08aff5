package store

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// toldOf are the changes that a store has told since the last look.
type toldOf struct {
	mu   sync.Mutex
	list []string // keys, or "all"
	by   []int64
}

// listen makes a store tell of its changes.
func listen(s *Store) *toldOf {
	l := new(toldOf)
	s.TellChanges(func(key []byte, source int64) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if key == nil {
			key = []byte("all")
		}
		l.list, l.by = append(l.list, string(key)), append(l.by, source)
	})
	return l
}

// expect compares what was told with keys in any order, each as often as it is told.
func (l *toldOf) expect(t *testing.T, what string, keys ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.Sort(l.list)
	slices.Sort(keys)
	if got := slices.Compact(l.list); !slices.Equal(got, keys) {
		t.Errorf("%s: told of %v, want %v", what, got, keys)
	}
	l.list, l.by = nil, nil
}

// TestEveryKindIsTold: an entry without a key tells of all keys, unless it changes what none answers.
func TestEveryKindIsTold(t *testing.T) {
	silent := map[entryKind]string{
		entryControl:  "opids alone",
		entryTighten:  "opids alone",
		entryJump:     "numbers of entries",
		entryFragment: "the last one counts",
		entryDrop:     "what did not count",
		entryCursor:   "what was taken has entries of its own",
		entryLevelled: "what regions may forget",
	}
	for kind := entryApply; kind < entryEnd; kind++ {
		row := kind.row()
		_, quiet := silent[kind]
		if told := row.key != noKey || row.traits&changesAll != 0; told == quiet {
			t.Errorf("%s: told %v, and listed as one that changes nothing %v", row.name, told, quiet)
		}
	}
}

// TestChangesAreTold: of clients' writes, of the server's own, and of none that changes nothing.
func TestChangesAreTold(t *testing.T) {
	clock := newFakeClock()
	s := testStore(t, func(o *Options) { o.Clock = clock.now })
	incr(s, "before", 1)
	l := listen(s)
	incr(s, "k", 1)
	l.expect(t, "INCRBY", "k")
	cincr(s, "k", "1", 5)
	l.expect(t, "CINCRBY", "k")
	cincr(s, "k", "1", 5)
	do(s, Op{Kind: Get, Key: []byte("k")})
	l.expect(t, "a retry and a read")
	do(s, Op{Kind: Del, Keys: [][]byte{[]byte("k"), []byte("nothing"), []byte("before")}})
	l.expect(t, "DEL", "k", "before")
	do(s, Op{Kind: CHold, Key: []byte("held"), ID: []byte("h"), Delta: 3, ExpireAt: clock.wall + 1000})
	l.expect(t, "CHOLD", "held")
	do(s, Op{Kind: CSettle, Key: []byte("held"), ID: []byte("h"), Delta: 2})
	l.expect(t, "CSETTLE", "held")
	do(s, Op{Kind: Set, Key: []byte("short"), Delta: 7, Flags: HasExpire, ExpireAt: clock.wall + 1000})
	l.expect(t, "SET", "short")
	clock.advance(2 * time.Second)
	s.expireAllDue(new(Batch))
	l.expect(t, "the expiry cycle", "short")
	for b := new(Batch); len(l.by) < 2; b.Reset() {
		told := len(l.by)
		b.Add(FlushAll)
		if s.Execute(b); len(l.by) != told+1 {
			t.Fatalf("FLUSHALL is told %d times", len(l.by)-told) // each is a message to every client
		}
	}
	l.expect(t, "FLUSHALL", "all")
	must(t, s.CreateTable(TableOptions{Name: "t", Prefix: "t:"}))
	l.expect(t, "CTABLE CREATE", "all")
	b := Batch{Source: 12}
	op := b.Add(IncrBy)
	op.Key, op.Delta = []byte("mine"), 1
	s.Execute(&b)
	if by := slices.Clone(l.by); !slices.Equal(by, []int64{12}) {
		t.Errorf("the change is of %v", by)
	}
	l.expect(t, "a client's change", "mine")
	must(t, s.Snapshot()) // nothing of the log is redone, and told
	must(t, s.rebuild(all(s.partitions[1])...))
	l.expect(t, "a partition that is made anew", "all")
	s.TellChanges(nil)
	incr(s, "k", 1)
	l.expect(t, "afterwards")
}

// TestOthersChangesAreTold: of a leader's log, and of another region.
func TestOthersChangesAreTold(t *testing.T) {
	clock := newFakeClock()
	a, la := testReplica(t, vfs.NewMem(), clock.now)
	b, lb := testReplica(t, vfs.NewMem(), clock.now)
	must(t, a.Lead())
	incr(a, "before", 1)
	first, n := la.records(0)
	receive(t, b, lb, first)
	l := listen(b)
	incr(a, "k", 1)
	more, _ := la.records(n)
	receive(t, b, lb, more)
	l.expect(t, "a follower", "k")

	r := newIDStore(t, nil)
	l = listen(r.Store)
	wall := r.clock.wall
	must(t, r.take(r.next(told{key: "far", id: "1", wall: wall, now: wall, delta: 4, result: 4})))
	l.expect(t, "another region", "far")
}
