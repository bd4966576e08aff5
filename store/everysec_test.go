package store

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

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

// TestToldIsDurable: under each policy of appendfsync, what another region was told, of the log or of the
// state, survives a power loss right afterwards: else its sequences would be given again, to operations that
// the other then lacks.
func TestToldIsDurable(t *testing.T) {
	for policy := Always; policy <= No; policy++ {
		for _, state := range []bool{false, true} {
			fs := vfs.NewCrashableMem()
			with := func(o *Options) { o.FS, o.Partitions, o.Fsync = fs, 1, policy }
			s := testStore(t, with)
			must(t, s.SetRegions(twoRegions(1, 0, 1)))
			q := Pull{By: 0, Group: 77, Incarnation: s.Meta().Incarnation, Last: slots - 1,
				After: s.CommittedOf(0)}
			must(t, cincr(s, "k", "a", 5).Err)
			tell := s.Pull
			if state {
				tell = func(q Pull) ([]byte, error) { return s.State(StateQuery{Pull: q, Of: 1}) }
			}
			b, err := tell(q)
			must(t, err)
			fs = fs.CrashClone(vfs.CrashCloneCfg{})
			d, err := decodePulled(b, new(pulledMemory))
			must(t, err)
			told := s.CommittedOf(0)
			if left := testStore(t, with).partitions[0].seq; !state && d.upTo != told || left < told {
				t.Errorf("%v: told up to %d (state %v), of which %d are left", policy, told, state, left)
			}
		}
	}
}
