package store

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestEverysecLosesASecond cuts the power under appendfsync everysec, on the
// real clock: of what was acknowledged at most the last second, and what came
// while one fsync was under way, may be lost (G2).
func TestEverysecLosesASecond(t *testing.T) {
	const slowest = 100 * time.Millisecond // fsync
	late := watchTimers(t)
	var runs sync.WaitGroup
	for n := range 12 {
		runs.Go(func() {
			r := &crashRun{fsync: Everysec, clock: newFakeClock(), logFile: 1 << 20}
			r.disk = newCrashDisk(vfs.NewCrashableMem(), slowest)
			var err error
			if r.s, err = r.open(r.disk); err != nil {
				t.Error(err)
				return
			}
			end := time.Now().Add(2500*time.Millisecond + time.Duration(n)*125*time.Millisecond)
			acked := make(map[string]time.Time)
			for i := 0; time.Now().Before(end); i++ {
				id := fmt.Sprint(i)
				if op := cincr(r.s, "k"+fmt.Sprint(i%10), id, 1); op.Err != nil {
					t.Error(op.Err)
					return
				}
				acked[id] = time.Now()
				time.Sleep(2 * time.Millisecond)
			}
			cut := time.Now()
			after := r.disk.clone(rand.IntN(60), uint64(n))
			r.s.CloseNow()
			if r.s, err = r.open(newCrashDisk(after, 0)); err != nil {
				t.Error(err)
				return
			}
			defer r.s.CloseNow()
			for i := range len(acked) {
				id := fmt.Sprint(i)
				age := cut.Sub(acked[id])
				if op := cincr(r.s, "k"+fmt.Sprint(i%10), id, 1); op.Applied && age > time.Second+slowest+300*time.Millisecond+2*late() {
					t.Errorf("an operation acknowledged %v before the power loss is lost", age)
					return
				}
			}
		})
	}
	runs.Wait()
}

// watchTimers tells how late timers come: on a busy machine the background
// fsync cannot be more punctual.
func watchTimers(t *testing.T) (worst func() time.Duration) {
	const period = 20 * time.Millisecond
	var late atomic.Int64
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	go func() {
		for {
			before := time.Now()
			select {
			case <-stop:
				return
			case <-time.After(period):
			}
			if d := int64(time.Since(before) - period); d > late.Load() {
				late.Store(d)
			}
		}
	}()
	return func() time.Duration { return time.Duration(late.Load()) }
}
