package oplog

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// anotherFile makes one as the log does beside the writer.
func anotherFile(db *Log) {
	if n, err := db.createFilled(1000, ""); err == nil {
		_ = n.file.Close()
	}
}

// TestHang: a write or an fsync that does not end is counted once it is too old, whatever the
// policy and whoever began it, and reported at each look until it ends. A call that ends in time is
// not; a pause makes nothing older by more than a second; and many calls that each end in time are
// no hang.
func TestHang(t *testing.T) {
	for name, test := range map[string]struct {
		policy Fsync
		kind   errorfs.OpKind
		do     func(db *Log)
	}{
		"fsync of a commit": {Always, errorfs.OpFileSyncData,
			func(db *Log) { _ = commit(db, func(b *Batch) { b.AppendLog(0, 3, []byte("late")) }) }},
		"background fsync":  {Everysec, errorfs.OpFileSyncData, func(db *Log) { db.sync.tick() }},
		"room for a record": {Always, errorfs.OpFileWriteAt, func(db *Log) { _ = db.Reserve(8 << 20) }},
		"header of a file":  {Always, errorfs.OpFileWriteAt, anotherFile},
		"a file's fsync":    {Always, errorfs.OpFileSync, anotherFile},
		"a file's name":     {Always, errorfs.OpRename, anotherFile},
		"write": {No, errorfs.OpFileWrite,
			func(db *Log) { _ = commit(db, func(b *Batch) { b.AppendLog(0, 3, []byte("late")) }) }},
	} {
		t.Run(name, func(t *testing.T) {
			var gate atomic.Pointer[chan struct{}]
			reached := make(chan struct{}, 1)
			o := testOptions(errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
				if g := gate.Load(); g != nil && op.Kind == test.kind && strings.Contains(op.Path, "/log/") {
					reached <- struct{}{}
					<-*g
				}
				return nil
			})))
			o.Fsync = test.policy
			db := mustOpen(t, manualTicks(o))
			db.stopLooks() // this test looks
			db.stopLooks = func() {}
			defer mustClose(t, db)
			var mu sync.Mutex
			var told []time.Duration
			db.OnHang(2*time.Second, func(age time.Duration) {
				mu.Lock()
				told = append(told, age)
				mu.Unlock()
			})
			look := func(passed, age time.Duration, count uint64) {
				t.Helper()
				db.Look(passed)
				if got := db.Hangs(); got != (Hangs{count, age}) {
					t.Fatalf("%+v, want %d, %v", got, count, age)
				}
			}
			mustCommit(t, db, func(b *Batch) { b.AppendLog(0, 1, []byte("first")) })
			for range 9 { // each of these ends between two looks
				look(time.Second, 0, 0)
				mustCommit(t, db, func(b *Batch) { b.AppendLog(0, 2, []byte("more")) })
			}
			c := make(chan struct{})
			gate.Store(&c)
			release := sync.OnceFunc(func() {
				gate.Store(nil)
				close(c)
			})
			defer release()
			done := make(chan struct{})
			go func() {
				defer close(done)
				test.do(db)
			}()
			<-reached
			look(time.Second, 0, 0) // the first look that sees it
			look(time.Hour, 0, 0)   // a pause
			look(999*time.Millisecond, 0, 0)
			look(time.Millisecond, 2*time.Second, 1)
			look(time.Second, 3*time.Second, 1)
			release()
			<-done
			look(time.Second, 0, 1)
			look(time.Second, 0, 1)
			if len(told) != 3 || told[0] != 2*time.Second || told[1] != 3*time.Second || told[2] != 0 {
				t.Errorf("told of %v", told)
			}
		})
	}
}
