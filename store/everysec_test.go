package store

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fbfkv/fbfkv/persistence/crashtest"
)

// TestEverysecLosesASecond cuts the power under appendfsync everysec. At most the
// operations of the last second, and those that came while one fsync was under way, may be
// lost of the acknowledged ones (G2).
func TestEverysecLosesASecond(t *testing.T) {
	const slowest = 100 * time.Millisecond // fsync of the op log
	for n := range 12 {
		synctest.Test(t, func(t *testing.T) {
			r := &crashRun{fsync: Everysec, clock: newFakeClock(), logFile: 1 << 20}
			r.disk = newCrashDisk(crashtest.NewDisk(), slowest)
			r.disk.only = ".log"
			var err error
			if r.s, err = r.open(r.disk); err != nil {
				t.Fatal(err)
			}
			end := time.Now().Add(2500*time.Millisecond + time.Duration(n)*125*time.Millisecond)
			var acked []time.Time
			for time.Now().Before(end) {
				if op := cincr(r.s, "k"+fmt.Sprint(len(acked)%10), fmt.Sprint(len(acked)), 1); op.Err != nil {
					t.Fatal(op.Err)
				}
				acked = append(acked, time.Now())
				time.Sleep(2 * time.Millisecond)
			}
			cut := time.Now()
			after := r.disk.clone(rand.IntN(60), uint64(n))
			r.s.CloseNow()
			if r.s, err = r.open(newCrashDisk(after, 0)); err != nil {
				t.Fatal(err)
			}
			defer r.s.CloseNow()
			for i, at := range acked {
				op := cincr(r.s, "k"+fmt.Sprint(i%10), fmt.Sprint(i), 1)
				if age := cut.Sub(at); op.Applied && age > time.Second+slowest {
					t.Fatalf("an operation acknowledged %v before the power loss is lost", age)
				}
			}
		})
	}
}
