package oplog

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/fbfkv/fbfkv/persistence/crashtest"
	"github.com/fbfkv/fbfkv/persistence/disk"
)

// TestWriteDuringFsync: what is written while an fsync runs may not be on the disk when
// it ends. LOGSYNC does not say that it is, and the next fsync is not spared.
func TestWriteDuringFsync(t *testing.T) {
	var gate atomic.Pointer[chan bool]
	var syncs atomic.Int64
	o := testOptions(errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileSyncData && strings.Contains(op.Path, "/log/") {
			syncs.Add(1)
			if g := gate.Swap(nil); g != nil {
				*g <- true
				<-*g
			}
		}
		return nil
	})))
	o.Fsync = Everysec
	db := mustOpen(t, manualTicks(o))
	defer mustClose(t, db)
	mustCommit(t, db, func(b *Batch) { b.AppendLog(0, 1, []byte("first")) })
	f := db.sync.current()
	first := f.written.Load()
	c := make(chan bool)
	gate.Store(&c)
	ticked := make(chan bool)
	go func() {
		db.sync.tick()
		close(ticked)
	}()
	<-c // it has begun
	mustCommit(t, db, func(b *Batch) { b.AppendLog(0, 2, []byte("second")) })
	c <- true
	<-ticked
	check := func(want int64) {
		t.Helper()
		mark, ok, err := disk.ReadMark(o.FS, o.MarkDir, MarkName)
		if err != nil || !ok || mark.Offset != want || f.synced.Load() != want {
			t.Errorf("LOGSYNC says %d and the log %d instead of %d (%v, %v)", mark.Offset, f.synced.Load(),
				want, ok, err)
		}
	}
	check(first)
	before := syncs.Load()
	db.sync.tick()
	if syncs.Load() != before+1 {
		t.Error("what was written meanwhile was not fsynced")
	}
	check(f.written.Load())
}

// TestFsyncTimes: fsyncs are counted by how long they took.
func TestFsyncTimes(t *testing.T) {
	if len(FsyncBounds) >= len(fsyncTimes{}.buckets) || !slices.IsSorted(FsyncBounds) {
		t.Fatal("the bounds")
	}
	var f fsyncTimes
	for _, took := range []time.Duration{0, 50 * time.Microsecond, 51 * time.Microsecond, time.Second,
		11 * time.Second} {
		f.add(took)
	}
	got := f.load()
	if got.Count != 5 || got.Sum != 12*time.Second+101*time.Microsecond || got.Buckets[0] != 2 ||
		got.Buckets[1] != 3 ||
		got.Buckets[slices.Index(FsyncBounds, time.Second)] != 4 || got.Buckets[len(FsyncBounds)-1] != 4 {
		t.Errorf("%+v", got)
	}
	db := mustOpen(t, testOptions(vfs.NewMem()))
	defer mustClose(t, db)
	before := db.Fsyncs().Count
	mustCommit(t, db, func(b *Batch) { b.AppendLog(0, 1, nil) })
	if after := db.Fsyncs().Count; after != before+1 {
		t.Errorf("%d fsyncs after %d", after, before)
	}
}

// TestMarkIsDurable: a change of the policy is on the disk before it is in
// force.
func TestMarkIsDurable(t *testing.T) {
	mem := vfs.NewCrashableMem()
	db := mustOpen(t, testOptions(mem))
	defer mustClose(t, db)
	for _, policy := range []Fsync{Everysec, Always, No, Always} {
		if err := db.SetFsync(policy); err != nil {
			t.Fatal(err)
		}
		mark, ok, err := disk.ReadMark(crashtest.Left(mem, 0, nil), "data", MarkName)
		if err != nil || !ok || mark.Lazy != (policy != Always) {
			t.Fatal(policy, mark, ok, err)
		}
	}
}

// TestBackgroundFaultReachesWait: a batch that was applied, and written, before
// the background fsync failed is not acknowledged after it (G2, G8).
func TestBackgroundFaultReachesWait(t *testing.T) {
	f := &crashtest.Fault{}
	o := testOptions(errorfs.Wrap(vfs.NewMem(), f))
	o.Fsync = Everysec
	db := mustOpen(t, manualTicks(o))
	b := db.NewBatch()
	b.AppendLog(0, 1, nil)
	if err := b.Apply(); err != nil {
		t.Fatal(err)
	}
	mustCommit(t, db, func(b *Batch) { b.AppendLog(0, 2, nil) }) // now both are written
	f.Arm(syscall.EIO, crashtest.On(".log", errorfs.OpFileSyncData))
	db.sync.tick()
	if err := b.Wait(); !errors.Is(err, disk.ErrFailed) || !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
}

// TestEverysecAge: once the oldest acknowledged write is 2 s old and no
// background fsync has covered it, writes wait for a real one (Redis' rule).
func TestEverysecAge(t *testing.T) {
	mem := vfs.NewCrashableMem()
	now := time.Unix(1, 0)
	var mu sync.Mutex
	o := testOptions(mem)
	o.Fsync = Everysec
	o.Now = func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	db := mustOpen(t, manualTicks(o))
	defer mustClose(t, db)
	for seq, step := range []struct {
		after time.Duration
		kept  uint64 // records that survive a power loss afterwards
	}{
		{0, 0}, {1999 * time.Millisecond, 0}, {time.Millisecond, 3},
		{time.Hour, 3}, {2 * time.Second, 5},
	} {
		mu.Lock()
		now = now.Add(step.after)
		mu.Unlock()
		n := uint64(seq + 1)
		mustCommit(t, db, func(b *Batch) { b.AppendLog(0, n, crashtest.Record(n)) })
		verifyCrashed(t, crashtest.Left(mem, 0, nil), Always, step.kept, step.kept)
	}
}
