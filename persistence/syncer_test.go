package persistence

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
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
	db := manualTicks(mustOpen(t, o))
	defer mustClose(t, db)
	mustCommit(t, db, func(b *Batch) { b.AppendLog(0, 1, []byte("first")) })
	f := db.log.sync.current()
	first := f.written.Load()
	c := make(chan bool)
	gate.Store(&c)
	ticked := make(chan bool)
	go func() {
		db.log.sync.tick()
		close(ticked)
	}()
	<-c // it has begun
	mustCommit(t, db, func(b *Batch) { b.AppendLog(0, 2, []byte("second")) })
	c <- true
	<-ticked
	check := func(want int64) {
		t.Helper()
		mark, ok, err := readMark(o.FS, o.Dir, logMarkName)
		if err != nil || !ok || mark.Offset != want || f.synced.Load() != want {
			t.Errorf("LOGSYNC says %d and the log %d instead of %d (%v, %v)", mark.Offset, f.synced.Load(), want, ok, err)
		}
	}
	check(first)
	before := syncs.Load()
	db.log.sync.tick()
	if syncs.Load() != before+1 {
		t.Error("what was written meanwhile was not fsynced")
	}
	check(f.written.Load())
}
