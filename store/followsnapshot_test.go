package store

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// askMeanwhile asks once within a snapshot, while something happens between the walk over the keys of its
// page and the time as of which the page is.
func (f *testFollower) askMeanwhile(t *testing.T, start FollowStart, meanwhile func()) {
	t.Helper()
	q := &FollowRequest{Start: start, Cursor: f.cursor, Tell: f.tell}
	q.Wants = func([]byte) bool { return true }
	r := f.s.newFollowing(q)
	must(t, r.begin())
	if start == FollowSnapshot {
		r.beginSnapshot()
	}
	at, err := r.read(f.s.db.Log().BookmarkAt(r.from()))
	must(t, r.judge(err))
	var after []byte
	if r.place != nil {
		after = r.place.key
	}
	g, _, err := f.s.findPage(r.nextPage(), after)
	must(t, err)
	meanwhile()
	here, err := g.show(func() {})
	must(t, errors.Join(err, here.wait()))
	_, err = r.tellPage(at, g)
	must(t, r.judge(err))
	f.cursor = r.cursor()
}

// TestFollowSnapshot: whatever happens while a snapshot is told, also while a page of it is read, the
// follower has all that there is, and each change behind it, once.
func TestFollowSnapshot(t *testing.T) {
	s := testStore(t, func(o *Options) { o.Partitions, o.HotCounters, o.FS = 2, 64, vfs.NewMem() })
	n := 0
	change := func() {
		t.Helper()
		b := new(Batch)
		for i := range 400 {
			op := b.Add(CIncrBy)
			op.Key, op.ID, op.Delta = fmt.Append(nil, "k", (i*7+n)%5000), fmt.Append(nil, n, ".", i), int64(i)
			if i%3 == 0 {
				op = b.Add(Del)
				op.Keys = append(op.Keys, fmt.Append(nil, "k", (i*11+n)%5000))
			}
		}
		s.Execute(b)
		n++
	}
	for range 20 {
		change()
	}
	must(t, s.Snapshot())
	f := newTestFollower(s)
	f.catchUp(t, FollowNow)
	cincr(s, "k1", "more", 1)
	f.catchUp(t, FollowCursor)
	f.whole, f.count = true, 100
	for _, meanwhile := range []func(){change, func() {}, func() {
		change()
		must(t, s.Snapshot()) // what was changed gets its rows, and may be evicted
		change()
	}, func() { s.Execute(new(Batch)); change() }} {
		f.cursor = ""
		pages := 0
		for start := FollowSnapshot; start == FollowSnapshot || f.inSnapshot(t); pages++ {
			f.askMeanwhile(t, start, meanwhile)
			start = FollowCursor
			change()
		}
		if pages < 4 {
			t.Fatalf("%d pages", pages)
		}
		f.catchUp(t, FollowCursor)
		f.check(t, fmt.Sprint(pages, " pages"))
		f.lines = nil
	}
	f.catchUp(t, FollowSnapshot)
	must(t, do(s, Op{Kind: FlushAll}).Err)
	change()
	f.catchUp(t, FollowCursor)
	f.check(t, "flushed behind it")
	f.askMeanwhile(t, FollowSnapshot, func() { must(t, do(s, Op{Kind: FlushAll}).Err); change() })
	f.catchUp(t, FollowCursor)
	f.check(t, "flushed within it")
}

// inSnapshot reports whether the cursor is within a snapshot.
func (f *testFollower) inSnapshot(t *testing.T) bool {
	r := f.s.newFollowing(&FollowRequest{Cursor: f.cursor})
	must(t, r.begin())
	return r.nextPage() != nil
}

// TestFollowSnapshotOnce: what a snapshot tells is in one line per counter, with its scale, behind one for
// the partition; nothing of it comes again, also over a restart. It is the remedy that LOST names.
func TestFollowSnapshotOnce(t *testing.T) {
	fs := vfs.NewMem()
	s := testStore(t, func(o *Options) { o.Partitions, o.FS = 1, fs })
	must(t, s.CreateTable(TableOptions{Name: "money", Prefix: "eur:", Mode: Exact, Scale: 2}))
	do(s, Op{Kind: CIncrBy, Key: []byte("eur:k"), ID: []byte("2"), Delta: 25, Points: [3]Points{Decimal | 2}})
	cincr(s, "other:k", "1", 5)
	do(s, Op{Kind: BFCAdd, Key: []byte("sketch"), ID: []byte("1"), Keys: [][]byte{[]byte("x")}})
	f := newTestFollower(s)
	f.catchUp(t, FollowSnapshot)
	must(t, s.Close())
	f.s = testStore(t, func(o *Options) { o.Partitions, o.FS = 1, fs })
	cincr(f.s, "k", "1", 5)
	f.catchUp(t, FollowCursor)
	const want = "snapshot  , value eur:k  = 0.25, add k 1 = 5 by 5"
	if got := strings.Join(f.lines, ", "); got != want {
		t.Errorf("told %q, want %q", got, want)
	}
	if err := (&following{at: make([]followedTo, 1)}).lost(0, 9); !errors.Is(err, ErrLost) ||
		!strings.Contains(err.Error(), "SNAPSHOT") {
		t.Error(err)
	}
}
