package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/persistence/crashtest"
	"github.com/fbfkv/fbfkv/store/sketch"
)

// pagesOnDisk returns the pages of all partitions, by object and number.
func pagesOnDisk(t *testing.T, s *Store) map[[2]uint64]persistence.Page {
	t.Helper()
	all := make(map[[2]uint64]persistence.Page)
	for _, p := range s.partitions {
		must(t, s.db.Pages(p.id, func(pg persistence.Page) error {
			pg.Content = slices.Clone(pg.Content)
			all[[2]uint64{pg.Object, uint64(pg.Number)}] = pg
			return nil
		}))
	}
	return all
}

// TestCheckpointWritesDirtyPages: of a large sketch a checkpoint writes the pages that have
// changed since the last one, and of those that go, none stays.
func TestCheckpointWritesDirtyPages(t *testing.T) {
	s := testStore(t, func(o *Options) { o.Partitions = 1 })
	must(t, newSketch(s, "s", SketchOptions{Width: 1 << 20, Depth: 4})) // 16 MiB: 1024 pages
	written := func() int {
		t.Helper()
		before := s.partitions[0].saving.state.seq
		must(t, s.Snapshot())
		n := 0
		for _, pg := range pagesOnDisk(t, s) {
			if pg.Seq > before {
				n++
			}
		}
		return n
	}
	if n := written(); n != 1 {
		t.Errorf("of an empty sketch %d pages were written, instead of the header", n)
	}
	addItems(s, "s", "a", 1, "b", 2)
	if n := written(); n != 2*4+1 {
		t.Errorf("%d pages were written for two items", n)
	}
	addItems(s, "s", "a", 1)
	if n := written(); n != 4+1 {
		t.Errorf("%d pages were written for an item", n)
	}
	size := s.partitions[0].saving.state.seq
	must(t, s.Snapshot())
	if s.partitions[0].saving.state.seq != size || len(pagesOnDisk(t, s)) != 2*4+1 {
		t.Error("pages were written though nothing has changed")
	}
	for _, away := range []Op{{Kind: Del, Keys: [][]byte{[]byte("s")}}, {Kind: FlushAll},
		{Kind: Set, Key: []byte("s")}, {Kind: ExpireAt, Key: []byte("s"), ExpireAt: 1}} {
		do(s, Op{Kind: Del, Keys: [][]byte{[]byte("s")}})
		must(t, newSketch(s, "s", SketchOptions{Width: 1 << 20, Depth: 4}))
		addItems(s, "s", "a", 1)
		must(t, s.Snapshot())
		do(s, away)
		must(t, s.Snapshot())
		if n := len(pagesOnDisk(t, s)); n != 0 {
			t.Errorf("after kind %d %d pages are left", away.Kind, n)
		}
	}
}

// TestPageInTheMiddle: the pages of a sketch are written in different states, while entries
// that change all of them go on; and the log is redone from before all that, twice.
func TestPageInTheMiddle(t *testing.T) {
	fs := vfs.NewMem()
	open := func() *Store { return testStore(t, func(o *Options) { o.FS, o.Partitions = fs, 1 }) }
	s := open()
	o := SketchOptions{Width: 50_000, Depth: 3}
	plain := newPlainSketch(o)
	must(t, newSketch(s, "s", o))
	n := 0
	add := func() {
		var pairs []any
		for range 30 {
			n++
			item := fmt.Sprint("item", n%700)
			pairs = append(pairs, item, 1)
			plain.add(item, 1)
		}
		must(t, addItems(s, "s", pairs...).Err)
	}
	add()
	must(t, s.Snapshot())
	add()
	// A checkpoint that gets as far as its pages.
	p := s.partitions[0]
	s.snapshots.mu.Lock()
	s.snapshots.building.Lock()
	c := checkpoint{s: s, p: p}
	c.capture(0, true)
	for len(c.pages) > 0 {
		b := s.db.NewChanges()
		p.mu.Lock()
		var w pagesWritten
		for range 3 {
			c.capturePage(b, &w)
		}
		p.mu.Unlock()
		must(t, b.Commit())
		add() // changes pages that are written, and those that are not yet
	}
	must(t, s.db.Flush())
	c.build.GiveBack()
	p.endSnapshot()
	s.snapshots.building.Unlock()
	s.snapshots.mu.Unlock()
	for range 2 { // the second time, nothing of the first is on disk
		must(t, s.CloseNow())
		checkSound(t, fs, "data")
		s = open()
		if err := plain.differs(s, "s"); err != nil {
			t.Fatal(err)
		}
	}
	add()
	must(t, s.Close())
	s = open()
	if err := plain.differs(s, "s"); err != nil {
		t.Fatal(err)
	}
}

// TestFragmentsInterrupted cuts the power between the fragments of a MERGE: nothing of it is
// seen, the next start drops the fragments, and another MERGE works.
func TestFragmentsInterrupted(t *testing.T) {
	o := SketchOptions{Width: 4000, Depth: 3}
	for at := int64(1); ; at++ {
		mem := crashtest.NewDisk()
		disk := newCrashDisk(mem, 0)
		open := func(fs vfs.FS) *Store {
			return testStore(t, func(o *Options) { o.FS, o.Partitions, o.Fsync = fs, 1, Always })
		}
		s := open(disk.fs)
		must(t, newSketch(s, "a", o))
		must(t, newSketch(s, "b", o))
		must(t, addItems(s, "b", "x", 5, "y", 7).Err)
		disk.cutAt(at, func() {}, 100, 1)
		must(t, mergeSketch(s, "a", []string{"b"}, []int64{2}))
		after := disk.isCut()
		must(t, s.CloseNow())
		if after == nil {
			if at < 4 {
				t.Fatal("the MERGE has no fragments")
			}
			return
		}
		s = open(after)
		before, merged := newPlainSketch(o), newPlainSketch(o)
		merged.add("x", 10)
		merged.add("y", 14)
		if e1, e2 := before.differs(s, "a"), merged.differs(s, "a"); e1 != nil && e2 != nil {
			t.Fatal(e1, e2)
		}
		if s.partitions[0].fragments.number != 0 {
			t.Fatal("fragments are left")
		}
		must(t, mergeSketch(s, "a", []string{"b"}, []int64{2}))
		must(t, s.CloseNow())
		checkSound(t, after, "data")
		s = open(after)
		if err := merged.differs(s, "a"); err != nil {
			t.Fatal(err)
		}
		must(t, s.Close())
	}
}

// TestUnfinishedFragments: fragments without the last one change nothing, the next start drops
// them and says so in the log, and what is logged in fragments afterwards is seen.
func TestUnfinishedFragments(t *testing.T) {
	fs := vfs.NewMem()
	open := func() *Store { return testStore(t, func(o *Options) { o.FS, o.Partitions = fs, 1 }) }
	s := open()
	o := SketchOptions{Width: 4000, Depth: 3}
	must(t, newSketch(s, "a", o))
	must(t, newSketch(s, "b", o))
	must(t, addItems(s, "b", "x", 5).Err)
	p := s.partitions[0]
	x := s.internal(p)
	x.lock()
	number := p.seq + 1
	merged := newPlainSketch(o)
	b := p.objects["b"].object().(*paged).Sketch.(*sketch.CountMin)
	whole, err := merged.AppendMerge(nil, []*sketch.CountMin{b}, []int64{4})
	must(t, err)
	for len(whole) > 1000 {
		x.log(&p.machine, &entry{kind: entryFragment, delta: int64(number), id: whole[:1000]})
		whole = whole[1000:]
	}
	must(t, x.finish())
	for i := range 3 {
		must(t, s.CloseNow())
		s = open()
		if p = s.partitions[0]; p.fragments.number != 0 {
			t.Fatal("fragments are left")
		}
		if err := merged.differs(s, "a"); err != nil {
			t.Fatal(err)
		}
		must(t, mergeSketch(s, "a", []string{"a", "b"}, []int64{1, 2}))
		merged.add("x", 10)
		if i == 1 {
			must(t, s.Snapshot())
		}
	}
	must(t, s.CloseNow())
	db, err := persistence.OpenReadOnly(persistence.Options{FS: fs, Dir: "data", Fatal: func(error) {}})
	must(t, err)
	defer db.Close()
	drops := 0
	must(t, db.Log().Read(0, number, func(_ uint64, record []byte) error {
		r, err := newSectionReader(record)
		var e entry
		for r.next(&e) {
			if e.kind == entryDrop {
				drops++
			}
		}
		return err
	}))
	if drops != 1 {
		t.Errorf("the log says %d times that fragments are dropped", drops)
	}
}

// TestPagesAreChecked: a sketch without its pages is unreadable, not empty; so is one whose pages
// are refused. Check names it, and finds pages that belong to nobody or are newer than the log.
func TestPagesAreChecked(t *testing.T) {
	for what, spoil := range map[string]func(b *persistence.Changes, object, seq uint64){
		"its pages are missing": func(b *persistence.Changes, object, seq uint64) {
			b.DropPages(0, object, object)
		},
		"belong to no key": func(b *persistence.Changes, object, seq uint64) {
			b.PutPage(0, persistence.Page{Object: object - 1, Seq: seq})
		},
		"the log ends": func(b *persistence.Changes, object, seq uint64) {
			b.PutPage(0,
				persistence.Page{Object: object, Number: 1, Seq: seq + 1, Content: make([]byte, 800)})
		},
		"beyond the end": func(b *persistence.Changes, object, seq uint64) {
			b.PutPage(0, persistence.Page{Object: object, Number: 2, Seq: seq, Content: make([]byte, 800)})
		},
		"page 0: corrupt": func(b *persistence.Changes, object, seq uint64) {
			b.PutPage(0, persistence.Page{Object: object, Seq: seq, Content: []byte{0, 0}})
		},
		"older than its object": func(b *persistence.Changes, object, seq uint64) {
			b.PutPage(0,
				persistence.Page{Object: object, Number: 1, Seq: object - 1, Content: make([]byte, 800)})
		},
	} {
		fs := vfs.NewMem()
		s := testStore(t, func(o *Options) { o.FS, o.Partitions = fs, 1 })
		must(t, newSketch(s, "s", SketchOptions{Width: 100, Depth: 2}))
		object := s.partitions[0].seq
		must(t, s.Snapshot())
		b := s.db.NewChanges()
		spoil(b, object, s.partitions[0].seq)
		must(t, b.Commit())
		must(t, s.db.Flush())
		must(t, s.CloseNow())
		r, err := Check(CheckOptions{Dir: "data", FS: fs})
		if must(t, err); len(r.Problems) != 1 || !strings.Contains(r.Problems[0].What, what) {
			t.Errorf("%s: %v", what, r.Problems)
		}
		opened, err := Open(Options{Dir: "data", FS: fs, Partitions: 1, SnapshotInterval: -1,
			MinFreeDisk: -1})
		switch what {
		case "belong to no key": // it goes
			must(t, err)
			must(t, opened.Snapshot())
			if n := len(pagesOnDisk(t, opened)); n != 1 {
				t.Errorf("%d pages are left", n)
			}
			must(t, opened.Close())
		case "the log ends": // only the check looks
			must(t, err)
			must(t, opened.CloseNow())
		default:
			must(t, err)
			if op := do(opened, Op{Kind: CMSQuery, Key: []byte("s"), Keys: keysOf("a")}); !errors.Is(op.Err,
				ErrUnreadable) || !strings.Contains(op.Err.Error(), what) {
				t.Errorf("%s: %v", what, op.Err)
			}
			must(t, opened.CloseNow())
		}
	}
}

// TestPagesWaitForTheCommit: no page reaches Pebble before its changes are committed.
func TestPagesWaitForTheCommit(t *testing.T) {
	inBubble(func(t *testing.T) {
		s := testStore(t, func(o *Options) { o.Partitions = 1 })
		must(t, newSketch(s, "s", SketchOptions{Width: 100, Depth: 2}))
		p := s.partitions[0]
		x := s.internal(p)
		x.lock()
		c := p.objects["s"]
		x.changeObject(&ref{key: []byte("s"), p: &p.machine, c: c},
			new(sketch.CountMin).AppendPairs(nil, keysOf("a"), []int64{3}), 0)
		x.apply()
		x.unlock()
		checkpoint := checkpoint{s: s, p: p, pages: p.takeDirtyPages()}
		done := make(chan error, 1)
		go func() { done <- checkpoint.writePages() }()
		synctest.Wait()
		if n := len(pagesOnDisk(t, s)); n > 0 {
			t.Errorf("%d pages are ahead of the commit", n)
		}
		x.giveBackRoom()
		x.wait()
		must(t, <-done)
		if n := len(pagesOnDisk(t, s)); n != 2 {
			t.Errorf("%d pages were written", n)
		}
	})(t)
}

// TestPagesOfAFailedCommit: what a commit did not write is written by the next one.
func TestPagesOfAFailedCommit(t *testing.T) {
	fs := vfs.NewMem()
	s := testStore(t, func(o *Options) { o.FS, o.Partitions = fs, 1 })
	o := SketchOptions{Width: 9000, Depth: 2}
	must(t, newSketch(s, "gone", o))
	must(t, s.Snapshot())
	do(s, Op{Kind: Del, Keys: [][]byte{[]byte("gone")}})
	must(t, newSketch(s, "s", o))
	must(t, addItems(s, "s", "a", 3, "b", 4).Err)
	plain := newPlainSketch(o)
	plain.add("a", 3)
	plain.add("b", 4)
	p := s.partitions[0]
	c := checkpoint{s: s, p: p, pages: p.takeDirtyPages()}
	w := c.capturePages(s.db.NewChanges()) // which is never committed
	must(t, addItems(s, "s", "a", 1).Err)  // some are dirty again
	plain.add("a", 1)
	p.pagesFailed(&w)
	must(t, s.Snapshot())
	must(t, s.Close())
	checkSound(t, fs, "data")
	s = testStore(t, func(o *Options) { o.FS, o.Partitions = fs, 1 })
	if err := plain.differs(s, "s"); err != nil {
		t.Error(err)
	}
	for at := range pagesOnDisk(t, s) {
		if at[0] != p.objects["s"].object().(*paged).created {
			t.Errorf("page %d of object %d is left", at[1], at[0])
		}
	}
}

// TestBackupOfSketches backs up a sketch while it is incremented and checkpoints go on: the
// copy is sound and counts what was acknowledged before, and nothing twice.
func TestBackupOfSketches(t *testing.T) {
	fs := vfs.NewMem()
	s := testStore(t, func(o *Options) { o.FS, o.Partitions = fs, 1 })
	o := SketchOptions{Width: 20_000, Depth: 3}
	must(t, newSketch(s, "s", o))
	var acked atomic.Int64
	stop := make(chan struct{})
	var others sync.WaitGroup
	for _, other := range []func() error{
		func() error { defer acked.Add(1); return addItems(s, "s", "a", 1, "b", 1).Err },
		s.Snapshot,
	} {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					if err := other(); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	for i := range 5 {
		dir := fmt.Sprint("copy", i)
		before := acked.Load()
		must(t, s.Backup(dir))
		checkSound(t, fs, dir)
		c := testStore(t, func(o *Options) { o.FS, o.Dir, o.Partitions = fs, dir, 1 })
		n := do(c, Op{Kind: CMSInfo, Key: []byte("s")}).Object.(*SketchInfo).Count / 2
		plain := newPlainSketch(o)
		plain.add("a", n)
		plain.add("b", n)
		if err := plain.differs(c, "s"); err != nil || n < before {
			t.Errorf("%d instead of at least %d: %v", n, before, err)
		}
		must(t, c.Close())
	}
	close(stop)
	others.Wait()
}
