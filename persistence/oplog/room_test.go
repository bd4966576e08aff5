package oplog

import (
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/fbfkv/fbfkv/internal/raced"
	"github.com/fbfkv/fbfkv/internal/testwait"
	"github.com/fbfkv/fbfkv/persistence/crashtest"
	"github.com/fbfkv/fbfkv/persistence/disk"
)

// TestReserved: what was reserved can be written, however full the disk is by then and
// whichever file it goes to; what was not is refused, and nothing has failed.
func TestReserved(t *testing.T) {
	for _, fsync := range []Fsync{Always, Everysec} {
		t.Run(fsync.String(), func(t *testing.T) {
			small := crashtest.NewFullDisk(vfs.NewMem())
			o := testOptions(small)
			o.Fsync, o.FileSize = fsync, 64<<10
			db := mustOpen(t, manualTicks(o))
			seq := uint64(0)
			for round := range 50 / raced.Step {
				if round%2 == 1 {
					small.Fill(rand.Int64N(128 << 10))
				} else {
					small.Fill(-1)
				}
				full := round%2 == 1
				for i := 0; full || i < 100; i++ { // if full, until it is refused
					n := rand.IntN(20 << 10)
					room := Framed(int64(n) + SectionOverhead)
					err := db.Reserve(room)
					if errors.Is(err, disk.ErrNoSpace) && full {
						break
					}
					if err != nil {
						t.Fatal(err)
					}
					if full {
						small.Fill(0) // between the reservation and the record
					}
					b := db.NewBatch()
					seq++
					b.AppendLog(0, seq, make([]byte, n))
					err = errors.Join(b.Apply(), b.Wait())
					used := b.TakeUsed()
					if err != nil || used > room {
						t.Fatalf("%d bytes were reserved, and %d taken: %v", room, used, err)
					}
					db.Release(room, used)
				}
				if err := db.Trim(0, seq); err != nil {
					t.Fatal(err)
				}
			}
			small.Fill(-1)
			db.mu.Lock()
			if reserved := db.filled - roomMargin - db.pos - db.room.Load(); reserved != 0 {
				t.Errorf("%d bytes stay reserved", reserved)
			}
			db.mu.Unlock()
			mustClose(t, db)
		})
	}
}

// TestFullFileKeepsNobodyWaiting: who appends to the log, and holds locks while it does,
// does not wait until a full file is fsynced, nor does who only looks (G3).
func TestFullFileKeepsNobodyWaiting(t *testing.T) {
	var closed atomic.Bool
	gate, entered := make(chan struct{}), make(chan struct{}, 100)
	o := testOptions(errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if closed.Load() && crashtest.On("/log/", errorfs.OpFileSyncData)(op) {
			entered <- struct{}{}
			<-gate
		}
		return nil
	})))
	o.Fsync, o.FileSize = Everysec, 64<<10
	db := mustOpen(t, manualTicks(o))
	defer mustClose(t, db)
	seq := uint64(0)
	write := func() {
		seq++
		mustCommit(t, db, func(b *Batch) { b.AppendLog(0, seq, make([]byte, 1000)) })
	}
	for begun := false; !begun; {
		write()
		db.mu.Lock()
		begun = db.next != nil
		db.mu.Unlock()
	}
	db.preparing.Wait()
	closed.Store(true)
	written := make(chan struct{})
	go func() {
		defer close(written)
		for range 200 {
			write()
		}
	}()
	<-entered
	copied := make(chan bool)
	go func() {
		db.live() // for a backup, which needs files that are whole
		copied <- closed.Load()
	}()
	done := make(chan struct{})
	go func() {
		defer close(done)
		db.Sizes()
		b := db.NewBatch()
		b.AppendLog(1, 1, []byte("x"))
		if err := b.Apply(); err != nil {
			t.Error(err)
		}
	}()
	select {
	case <-done:
	case <-time.After(testwait.Limit):
		t.Error("they wait for the fsync")
	}
	closed.Store(false)
	close(gate)
	<-done
	<-written
	if <-copied {
		t.Error("a file that is not ended yet counts as ended")
	}
}
