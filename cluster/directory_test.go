package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/fbfkv/fbfkv/cluster/raftgroup"
	"github.com/fbfkv/fbfkv/internal/raced"
	"github.com/fbfkv/fbfkv/persistence/crashtest"
	"github.com/fbfkv/fbfkv/store"
)

// openIn opens the store of a directory in memory, of a seed unless it is zeros.
func openIn(t *testing.T, fs vfs.FS, dir string, seed [16]byte) *store.Store {
	t.Helper()
	s, err := store.Open(store.Options{Dir: dir, FS: fs, Seed: seed, Partitions: 4, MinFreeDisk: -1,
		SnapshotInterval: -1})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// has reports whether a store has a counter.
func has(s *store.Store, key string) bool {
	var b store.Batch
	op := b.Add(store.Get)
	op.Key = []byte(key)
	s.Execute(&b)
	return b.Ops[0].Found
}

// put sets a counter.
func put(t *testing.T, s *store.Store, key string) {
	t.Helper()
	var b store.Batch
	op := b.Add(store.Set)
	op.Key, op.Delta = []byte(key), 1
	if s.Execute(&b); b.Ops[0].Err != nil {
		t.Fatal(b.Ops[0].Err)
	}
}

// TestDirectoryIsInterrupted makes a node a member, which erases its store, and stops it at
// every file operation: by losing power, with the data that was not fsynced. Then the node is in
// its old state or in the new one, and its store opens in that state.
func TestDirectoryIsInterrupted(t *testing.T) {
	for n, stopped := 1, true; stopped; n += raced.Step {
		mem, left := vfs.NewCrashableMem(), (*vfs.MemFS)(nil)
		d, err := OpenDirectory(mem, "d")
		if err != nil {
			t.Fatal(err)
		}
		s := openIn(t, mem, "d", [16]byte{})
		id := d.ID()
		if err := errors.Join(s.Close(), d.Close()); err != nil {
			t.Fatal(err)
		}
		fs := errorfs.Wrap(mem, crashtest.AtOperation(n, func() { left = crashtest.Left(mem, 50, nil) }))
		became := false
		if d, err = OpenDirectory(fs, "d"); err == nil {
			became = d.become(threeNodes(), false, true) == nil && left == nil
			err = d.Close()
		}
		if err == nil {
			d, err = OpenDirectory(fs, "d")
		}
		if err != nil || d.Close() != nil {
			t.Fatal(err)
		}
		stopped = left != nil
		if !stopped {
			left = crashtest.Left(mem, 0, nil)
		}
		d, err = OpenDirectory(left, "d")
		if err != nil {
			t.Fatalf("after operation %d: %v", n, err)
		}
		c, member := d.Configuration()
		if d.ID() != id || became && !member {
			t.Errorf("after operation %d: member %v, id %s, which was %s", n, member, d.ID(), id)
		}
		var seed [16]byte
		if member {
			seed = c.Seed // refused unless the store was erased
		}
		s = openIn(t, left, "d", seed)
		if err := errors.Join(s.Close(), d.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDirectoryRestores: a backup takes the place of the store at the next start, and not before.
func TestDirectoryRestores(t *testing.T) {
	root := t.TempDir()
	backup, dir := filepath.Join(root, "backup"), filepath.Join(root, "d")
	s := openIn(t, nil, filepath.Join(root, "other"), [16]byte{})
	put(t, s, "k")
	if err := errors.Join(s.Backup(backup), s.Close()); err != nil {
		t.Fatal(err)
	}
	d, err := OpenDirectory(nil, dir)
	if err != nil {
		t.Fatal(err)
	}
	s = openIn(t, nil, dir, [16]byte{})
	if err := d.restore(backup, nil); err != nil {
		t.Fatal(err)
	}
	if has(s, "k") {
		t.Error("the backup is there while the store is open")
	}
	if err := errors.Join(s.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if d, err = OpenDirectory(nil, dir); err != nil {
			t.Fatal(err)
		}
		s = openIn(t, nil, dir, [16]byte{})
		if !has(s, "k") || d.state().Restored != backup {
			t.Errorf("restored: %v %+v", has(s, "k"), d.state())
		}
		if _, err := os.Stat(filepath.Join(dir, restoredName)); err == nil {
			t.Error("the copy is still there")
		}
		if err := errors.Join(s.Close(), d.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDirectoryIsRefused: a member's directory without its cluster, that of a node that was
// recovered or removed, and one whose membership cannot be read.
func TestDirectoryIsRefused(t *testing.T) {
	mem := vfs.NewMem()
	if err := CheckAlone(mem, "d"); err != nil {
		t.Errorf("there is none: %v", err)
	}
	use := func(fn func(d *Directory) error) error {
		d, err := OpenDirectory(mem, "d")
		if err != nil {
			return err
		}
		return errors.Join(fn(d), d.Close())
	}
	nothing := func(*Directory) error { return nil }
	if err := errors.Join(use(nothing), CheckAlone(mem, "d")); err != nil {
		t.Errorf("no member: %v", err)
	}
	next := threeNodes()
	if err := use(func(d *Directory) error {
		next.Members[0].ID = d.ID()
		return d.become(next, true, false)
	}); err != nil {
		t.Fatal(err)
	}
	if err := CheckAlone(mem, "d"); !errors.Is(err, ErrMember) {
		t.Errorf("a member: %v", err)
	}
	next.Version++
	if err := use(func(d *Directory) error {
		if !d.Founder() {
			t.Error("a founder does not know that it is")
		}
		return d.Learn(next)
	}); err != nil {
		t.Fatal(err)
	}
	if err := use(func(d *Directory) error {
		if c, member := d.Configuration(); !member || !c.equal(next) || d.Founder() {
			t.Errorf("member %v: %+v", member, c)
		}
		return d.retire()
	}); err != nil {
		t.Fatal(err)
	}
	if err := use(nothing); !errors.Is(err, errRecovered) {
		t.Errorf("recovered: %v", err)
	}
	d, err := openDirectory(mem, "d", true)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.Leave(next.Cluster), d.Close()); err != nil {
		t.Fatal(err)
	}
	if err := use(nothing); !errors.Is(err, errRemoved) {
		t.Errorf("removed: %v", err)
	}
	if err := CheckAlone(mem, "d"); !errors.Is(err, ErrMember) {
		t.Errorf("removed, without its cluster: %v", err)
	}
	s, err := raftgroup.OpenStable(mem, "d")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Set([]byte(membershipValue), []byte(`{"pending":1}`)), s.Close()); err != nil {
		t.Fatal(err)
	}
	if err := use(nothing); err == nil || !strings.Contains(err.Error(), "cannot be read") {
		t.Errorf("damaged: %v", err)
	}
}

// TestFounderBeginsBehindItsData: the log of a founder that keeps its data begins behind a snapshot
// that nobody can be sent, from its first start on.
func TestFounderBeginsBehindItsData(t *testing.T) {
	for _, erase := range []bool{false, true} {
		mem := vfs.NewMem()
		d, err := OpenDirectory(mem, "d")
		must(t, err)
		c := threeNodes()
		c.Members[0].ID = d.ID()
		must(t, errors.Join(d.become(c, true, erase), d.Close()))
		d, err = OpenDirectory(mem, "d")
		must(t, err)
		meta, err := d.Stable.Last()
		must(t, errors.Join(err, d.Close()))
		if behind := meta != nil && meta.Index == foundedAt; behind == erase {
			t.Errorf("erased: %v, the log begins behind %+v", erase, meta)
		}
	}
}

// TestOldConfigurationIsNotLearnt: a node that is started again meets old configurations in its
// log, and keeps the newest, whose members it must not refuse.
func TestOldConfigurationIsNotLearnt(t *testing.T) {
	mem := vfs.NewMem()
	d, err := OpenDirectory(mem, "d")
	if err != nil {
		t.Fatal(err)
	}
	c := threeNodes()
	for _, version := range []uint64{5, 6, 6, 4} {
		c.Version = version
		if err := d.Learn(c); err != nil {
			t.Fatal(err)
		}
	}
	if kept, member := d.Configuration(); !member || kept.Version != 6 {
		t.Errorf("version %d is kept, member %v", kept.Version, member)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestDirectoryIsAskedDuringFsync: every message of Raft asks for the configuration. On a slow disk
// none may wait until another configuration has been written.
func TestDirectoryIsAskedDuringFsync(t *testing.T) {
	var d *Directory
	asked := 0
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if d != nil && (op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData) {
			if asked++; !d.mu.TryLock() {
				t.Error("who asks waits for an fsync")
			} else {
				d.mu.Unlock()
			}
		}
		return nil
	}))
	opened, err := OpenDirectory(fs, "d")
	must(t, err)
	d = opened
	must(t, d.Learn(threeNodes()))
	if asked == 0 {
		t.Error("there was no fsync")
	}
	d = nil
	must(t, opened.Close())
}
