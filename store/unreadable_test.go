package store

import (
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/persistence/oplog"
)

// garbled is an object whose encoding is no encoding.
type garbled struct{ object }

func (garbled) encode(*machine) io.Reader {
	return strings.NewReader(strings.Repeat("garbled ", 20_000))
}

// logUnredone logs an entry that nobody redoes now.
func logUnredone(t *testing.T, s *Store, e *entry) {
	t.Helper()
	p := s.partitions[0]
	x := s.internal(p)
	x.lock()
	must(t, x.reserveMore(1000))
	p.draft.first = p.seq + 1
	p.draft.section = e.appendTo(beginSection(p.draft.section[:0], p.at))
	p.seq++
	must(t, x.finish())
}

// ruin is a way in which an object becomes unreadable: of key "s" a sketch, of "f" an FBF key.
type ruin struct {
	key   string
	why   string // part of it
	spoil func(t *testing.T, s *Store)
}

func changePages(change func(b *persistence.Changes, object uint64)) func(*testing.T, *Store) {
	return func(t *testing.T, s *Store) {
		t.Helper()
		must(t, s.Snapshot())
		b := s.db.NewChanges()
		change(b, s.partitions[0].objects["s"].object().(*paged).created)
		must(t, b.Commit())
		must(t, s.db.Flush())
	}
}

func badSnapshot(key string) func(*testing.T, *Store) {
	return func(t *testing.T, s *Store) {
		t.Helper()
		c := s.partitions[0].objects[key]
		is := c.object()
		c.setObject(garbled{is})
		must(t, s.Snapshot())
		must(t, s.Snapshot()) // the older one, too
		c.setObject(is)
	}
}

var ruins = map[string]ruin{
	"its header is refused": {"s", "page 0", changePages(func(b *persistence.Changes, object uint64) {
		b.PutPage(0, persistence.Page{Object: object, Seq: object + 1, Content: []byte{9, 9, 9}})
	})},
	"its pages are missing": {"s", "pages are missing",
		changePages(func(b *persistence.Changes, object uint64) { b.DropPages(0, object, object) })},
	"its options are refused":       {"s", "", badSnapshot("s")},
	"its encoding is refused":       {"f", "", badSnapshot("f")},
	"its encoding goes on too long": {"t", "goes on after its end", badSnapshot("t")},
	"a change is refused": {"s", "change of a count-min sketch", func(t *testing.T, s *Store) {
		logUnredone(t, s, &entry{kind: entryChange, typ: TypeCountMin, key: []byte("s"), id: []byte{99}})
	}},
	"its creation is refused": {"new", "options", func(t *testing.T, s *Store) {
		logUnredone(t, s, &entry{kind: entryCreate, flags: flagCreated, typ: TypeCountMin, key: []byte("new"),
			id: []byte{0, 0}})
	}},
}

// TestUnreadableObject: an object that cannot be read keeps nothing else from being served. It
// answers an error that names it, before and behind a checkpoint, until its key is dropped; Check
// names it, in a backup too.
func TestUnreadableObject(t *testing.T) {
	for name, r := range ruins {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			open := func() *Store { return testStore(t, func(o *Options) { o.FS, o.Partitions = fs, 1 }) }
			s := open()
			wantOp(t, cincr(s, "counter", "id", 7), 7, true)
			must(t, newSketch(s, "s", SketchOptions{Width: 100, Depth: 2}))
			must(t, newSketch(s, "sound", SketchOptions{Width: 100, Depth: 2}))
			must(t, do(s, Op{Kind: FBFAdd, Key: []byte("f"), Keys: keysOf("a")}).Err)
			do(s, Op{Kind: tallyAdd, Key: []byte("t"), Delta: 5})
			addItems(s, "s", "a", 3)
			addItems(s, "sound", "a", 3)
			r.spoil(t, s)
			addItems(s, "s", "a", 4) // ignored, if s is what cannot be read
			addItems(s, "sound", "a", 4)
			must(t, s.CloseNow())

			mustNameUnreadable(t, fs, "data", r)
			s = open()
			mustBeUnreadable(t, s, r)
			must(t, s.Snapshot())
			must(t, s.Snapshot())
			must(t, s.Backup("backup"))
			mustNameUnreadable(t, fs, "backup", r)
			must(t, s.CloseNow())
			mustNameUnreadable(t, fs, "data", r)

			s = open()
			mustBeUnreadable(t, s, r)
			keys, _ := s.DBSize()
			must(t, s.Close())
			of := Options{Dir: "backup", FS: fs, Partitions: 1, SnapshotInterval: -1, MinFreeDisk: -1}
			before := treeOf(t, fs, "backup")
			if dropped, err := DropUnreadable(of); !errors.Is(err, ErrBackup) || dropped != nil ||
				treeOf(t, fs, "backup") != before {
				t.Errorf("a backup was changed, %v, %v", dropped, err)
			}
			used, err := Open(of)
			must(t, err)
			must(t, used.Close())
			dropped, err := DropUnreadable(of)
			if must(t, err); len(dropped) != 1 || dropped[0].Key != r.key {
				t.Errorf("dropped %v", dropped)
			}
			checkSound(t, fs, "backup")

			s = open()
			if op := do(s, Op{Kind: Del, Keys: keysOf(r.key)}); op.Err != nil || op.Value != 1 {
				t.Fatalf("DEL answered %d %v", op.Value, op.Err)
			}
			if n, _ := s.DBSize(); n != keys-1 || s.Stats().Unreadable != 0 {
				t.Errorf("%d keys are left of %d, %d unreadable", n, keys, s.Stats().Unreadable)
			}
			must(t, newSketch(s, r.key, SketchOptions{Width: 100, Depth: 2}))
			addItems(s, r.key, "a", 1)
			must(t, s.CloseNow())
			checkSound(t, fs, "data")
			s = open()
			if op := addItems(s, r.key, "a", 1); op.Err != nil || op.Values[0] != 2 {
				t.Errorf("of the new sketch %v %v", op.Values, op.Err)
			}
			must(t, s.Snapshot())
			must(t, s.Close())
			checkSound(t, fs, "data")
		})
	}
}

// mustBeUnreadable expects one unreadable key, and everything else to be served.
func mustBeUnreadable(t *testing.T, s *Store, r ruin) {
	t.Helper()
	wantOp(t, cincr(s, "counter", "id", 7), 7, false)
	if op := do(s, Op{Kind: CMSQuery, Key: []byte("sound"), Keys: keysOf("a")}); op.Err != nil ||
		op.Values[0] != 7 {
		t.Errorf("of the sound sketch %v %v", op.Values, op.Err)
	}
	key := []byte(r.key)
	for _, op := range []Op{
		{Kind: CMSQuery, Key: key, Keys: keysOf("a")},
		{Kind: CMSInit, Key: key, Object: &SketchOptions{Width: 1, Depth: 1}},
		{Kind: CMSMerge, Keys: keysOf("sound", r.key), Deltas: []int64{1}},
		{Kind: BFExists, Key: key, Keys: keysOf("a")}, {Kind: FBFExists, Key: key, Keys: keysOf("a")},
		{Kind: FBFAdd, Key: key, Keys: keysOf("a")}, {Kind: Get, Key: key}, {Kind: GetDel, Key: key},
		{Kind: IncrBy, Key: key, Delta: 1}, {Kind: CIncrBy, Key: key, ID: key, Delta: 1},
		{Kind: TypeOf, Key: key}, {Kind: Exists, Keys: keysOf("counter", r.key)},
		{Kind: ExpireAt, Key: key, ExpireAt: 1}, {Kind: MemoryUsage, Key: key},
	} {
		if op = do(s, op); !errors.Is(op.Err, ErrUnreadable) ||
			!strings.Contains(op.Err.Error(), `"`+r.key+`"`) || !strings.Contains(op.Err.Error(), r.why) {
			t.Errorf("kind %d answered %v", op.Kind, op.Err)
		}
	}
	listed := 0
	for _, key := range strings.Fields(scanOf(t, s)) {
		if key == r.key {
			listed++
		}
	}
	if n := s.Stats().Unreadable; n != 1 || listed != 1 {
		t.Errorf("%d keys are unreadable, SCAN lists it %d times", n, listed)
	}
}

// mustNameUnreadable expects Check to find nothing else.
func mustNameUnreadable(t *testing.T, fs vfs.FS, dir string, r ruin) {
	t.Helper()
	report, err := Check(CheckOptions{Dir: dir, FS: fs})
	if must(t, err); !report.OnlyUnreadable() || len(report.Unreadable) != 1 ||
		report.Unreadable[0].Key != r.key || !strings.Contains(report.Unreadable[0].Why, r.why) {
		t.Fatalf("%s: %v, %v", dir, report.Unreadable, report.Problems)
	}
}

// TestUnreadableOnAFollower: a replica that cannot read an object, or a change of one, follows
// nevertheless, ignores the object's changes, and has the same again once the key was replaced.
func TestUnreadableOnAFollower(t *testing.T) {
	with := func(o *Options) { o.Partitions, o.Seed = 1, [16]byte{7} }
	leader, follower := testStore(t, with), testStore(t, with)
	q := follower.partitions[0]
	follow := func() {
		t.Helper()
		p := leader.partitions[0]
		must(t, leader.oplog.BeginRecovery(p.id))
		g := newRedoGroup(nil, 5)
		must(t, leader.oplog.Read(p.id, q.seq+1, func(seq uint64, content []byte) error {
			return follower.follow(q, g, seq, content, nil)
		}))
		leader.oplog.EndRecovery()
	}
	for round, replace := range []func(){
		func() { do(leader, Op{Kind: Del, Keys: keysOf("s")}) },
		func() { do(leader, Op{Kind: Set, Key: []byte("s"), Delta: 1}) },
		func() { do(leader, Op{Kind: FlushAll}) },
	} {
		must(t, newSketch(leader, "s", SketchOptions{Width: 100, Depth: 2}))
		addItems(leader, "s", "a", 3)
		follow()
		q.mu.Lock()
		q.markUnreadable(q.objects["s"], errors.New("for a test"))
		q.mu.Unlock()
		addItems(leader, "s", "a", 4)
		wantOp(t, cincr(leader, "counter", string(rune('a'+round)), 1), 1, true)
		follow()
		if op := do(follower, Op{Kind: CMSQuery, Key: []byte("s"), Keys: keysOf("a")}); !errors.Is(op.Err,
			ErrUnreadable) {
			t.Errorf("a change was not ignored: %v %v", op.Values, op.Err)
		}
		if v, _ := get(follower, "counter"); v != 1 || q.unreadable != 1 {
			t.Errorf("counter %d, %d unreadable", v, q.unreadable)
		}
		replace()
		do(leader, Op{Kind: Del, Keys: keysOf("s", "counter")})
		must(t, newSketch(leader, "s", SketchOptions{Width: 100, Depth: 2}))
		addItems(leader, "s", "a", 5)
		follow()
		if op := do(follower, Op{Kind: CMSQuery, Key: []byte("s"), Keys: keysOf("a")}); op.Err != nil ||
			op.Values[0] != 5 || q.unreadable != 0 {
			t.Errorf("once the key was replaced: %v %v, %d unreadable", op.Values, op.Err, q.unreadable)
		}
		do(leader, Op{Kind: Del, Keys: keysOf("s")})
	}
}

// TestUnreadableWhileSaved: an object becomes unreadable while a checkpoint is under way that has
// captured it. The remains on disk are never taken for the object.
func TestUnreadableWhileSaved(t *testing.T) {
	fs := vfs.NewMem()
	var saved atomic.Pointer[partition] // Pebble reads files in its own goroutines
	hook := errorfs.InjectorFunc(func(op errorfs.Op) error {
		// before pages are written
		if p := saved.Load(); p != nil && op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".run") {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.markUnreadable(p.objects["s"], errors.New("for a test"))
		}
		return nil
	})
	with := func(o *Options) { o.FS, o.Partitions = errorfs.Wrap(fs, hook), 1 }
	s := testStore(t, with)
	must(t, newSketch(s, "s", SketchOptions{Width: 100, Depth: 2}))
	addItems(s, "s", "a", 3)
	must(t, s.Snapshot())
	addItems(s, "s", "a", 4)
	wantOp(t, cincr(s, "counter", "id", 7), 7, true)
	p := s.partitions[0]
	saved.Store(p)
	must(t, s.Snapshot())
	if p.unreadable != 1 {
		t.Fatal("it did not become unreadable")
	}
	must(t, s.CloseNow())
	saved.Store(nil)
	s = testStore(t, with)
	if op := do(s, Op{Kind: CMSQuery, Key: []byte("s"), Keys: keysOf("a")}); !errors.Is(op.Err,
		ErrUnreadable) {
		t.Errorf("%v, %v", op.Values, op.Err)
	}
	must(t, s.CloseNow())
	mustNameUnreadable(t, fs, "data", ruin{key: "s", why: "for a test"})
}

// TestUnreadableMoves: a partition that moves brings its unreadable objects as such, and is refused
// where an object becomes unreadable that its source could read.
func TestUnreadableMoves(t *testing.T) {
	m := newMoveToTry(t)
	in, err := m.b.Receive(1, m.path)
	must(t, err)
	key := "{" + m.key + "}bf"
	bad := entry{kind: entryChange, typ: TypeBloom, key: []byte(key), id: []byte{99}}
	record := oplog.AppendSection(nil, 1, in.Last()+1,
		bad.appendTo(beginSection(nil, moment{logged: 5, wall: 1e12})))
	if err := in.redo(record); !errors.Is(err, errCorruptEntry) {
		t.Errorf("a change that is refused here only: %v", err)
	}
	must(t, in.Discard())

	p := m.a.partitions[1]
	p.mu.Lock()
	p.markUnreadable(p.objects[key], errors.New("for a test"))
	p.mu.Unlock()
	must(t, m.a.Snapshot())
	out, err := m.a.Export(1, "again", 0, 1<<30)
	must(t, err)
	must(t, copyBetween(m.fsA, "again/"+out.Name, m.fsB, m.path))
	in, err = m.b.Receive(1, m.path)
	must(t, err)
	if list := in.shadow.listUnreadable(); len(list) != 1 || list[0].Key != key ||
		list[0].Why != "for a test" {
		t.Errorf("what came has the unreadable keys %v", list)
	}
	must(t, in.Discard())
}
