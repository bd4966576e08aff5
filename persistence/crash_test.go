package persistence

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/fbfkv/fbfkv/persistence/crashtest"
)

// crash returns what may be left of a file system after a power loss, when
// percent of the unsynced pages and names have reached the disk. 100 is what
// kill -9 leaves: everything.
func crash(mem *vfs.MemFS, percent int, rng *rand.Rand) *vfs.MemFS {
	if rng == nil {
		rng = rand.New(rand.NewPCG(0, 0))
	}
	return crashtest.Clone(mem, percent, rng)
}

// recordOf is the content of the log record with that sequence: up to 8 KiB,
// so that many cross WAL blocks.
func recordOf(seq uint64) []byte {
	r := rand.New(rand.NewPCG(seq, 7))
	return noise[r.IntN(1<<19):][:r.IntN(8<<10)]
}

// noise does not compress, and no part of it repeats.
var noise = func() []byte {
	b := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b) // never fails
	return b
}()

// logPrefix checks that the op log of partition 0 is the records 1..n, whole
// and without holes, and returns n.
func logPrefix(t testing.TB, db *DB) uint64 {
	t.Helper()
	var n uint64
	err := db.ReadLog(0, 0, func(seq uint64, record []byte) error {
		n++
		if seq != n || string(record) != string(recordOf(seq)) {
			return fmt.Errorf("record %d in place %d, or damaged", seq, n)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// verifyCrashed opens what a crash left, and checks that the log is a prefix
// of what was written that holds at least the promised records and at most the
// attempted ones, and that life goes on.
func verifyCrashed(t testing.TB, fsys vfs.FS, policy Fsync, promised, attempted uint64) Recovery {
	t.Helper()
	o := testOptions(fsys)
	o.Fsync = policy
	db, err := Open(o)
	if err != nil {
		t.Fatalf("promised %d: %v", promised, err)
	}
	recovery := db.Recovery()
	n := logPrefix(t, db)
	if n < promised || n > attempted {
		t.Fatalf("%d records, %d were promised, %d attempted", n, promised, attempted)
	}
	mustCommit(t, db, func(b *Batch) { b.AppendLog(0, n+1, recordOf(n+1)) })
	mustClose(t, db)
	db = mustOpen(t, o)
	defer mustClose(t, db)
	expect(t, "records after another start", logPrefix(t, db), n+1)
	return recovery
}

// TestCrash writes under each policy, and crashes at random moments. G2:
// always keeps all that was acknowledged, everysec what was acknowledged
// before the last finished tick, and kill -9 (percent 100) loses nothing under
// any policy. "mixed" also switches live.
func TestCrash(t *testing.T) {
	for _, mode := range []string{"always", "everysec", "no", "mixed"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			cut := 0
			for seed := range uint64(4) {
				cut += crashRun(t, mode, seed)
			}
			if mode == "everysec" || mode == "no" {
				if cut == 0 {
					t.Fatal("no crash left a hole in the WAL: the test does not reach the trap")
				}
			} else if mode == "always" && cut > 0 {
				t.Fatal("the WAL was cut though all was synced")
			}
		})
	}
}

func crashRun(t *testing.T, mode string, seed uint64) (cut int) {
	rng := rand.New(rand.NewPCG(seed, 1))
	mem := vfs.NewCrashableMem()
	o := testOptions(mem)
	o.LogFileSize = 200 << 10 // several files, some of them recycled
	policy, err := ParseFsync(mode)
	if err != nil {
		policy = Everysec
	}
	o.Fsync = policy
	db := mustOpen(t, o)
	defer mustClose(t, db)
	var acked, promised uint64
	b := db.NewBatch()
	for range 200 {
		b.AppendLog(0, acked+1, recordOf(acked+1))
		if err := errors.Join(b.Apply(), b.Wait()); err != nil {
			t.Fatal(err)
		}
		acked++
		if policy == Always {
			promised = acked
		}
		if rng.IntN(30) == 0 {
			db.log.sync.tick()
			if policy == Everysec {
				promised = acked
			}
		}
		if mode == "mixed" && rng.IntN(25) == 0 {
			policy = Fsync(rng.IntN(3))
			if err := db.SetFsync(policy); err != nil {
				t.Fatal(err)
			}
			promised = acked
		}
		if rng.IntN(20) == 0 {
			percent := []int{0, 30, 70, 95, 100}[rng.IntN(5)]
			least := promised
			if percent == 100 {
				least = acked
			}
			if r := verifyCrashed(t, crash(mem, percent, rng), Fsync(rng.IntN(3)), least, acked); r.LostBytes > 0 {
				cut++
			}
		}
	}
	return cut
}

// manualTicks leaves the background fsync to the test.
func manualTicks(db *DB) *DB {
	db.stopTicks()
	db.stopTicks = nil
	return db
}

// holedDirectory returns a copy of what a power loss under everysec leaves when
// the first page behind the mark did not reach the disk and all others did.
func holedDirectory(t testing.TB) *vfs.MemFS {
	t.Helper()
	holedOnce.Do(func() { holed = makeHole(t) })
	if holed == nil {
		t.Fatal("no page lies behind the mark")
	}
	return crash(holed, 0, nil)
}

var (
	holedOnce sync.Once
	holed     *vfs.MemFS
	// The records that a holed directory promises, and those it attempted.
	holePromised, holeAttempted uint64
)

func makeHole(t testing.TB) *vfs.MemFS {
	mem := vfs.NewCrashableMem()
	o := testOptions(mem)
	o.Fsync = Everysec
	db := manualTicks(mustOpen(t, o))
	write := func(n int) {
		for range n {
			holeAttempted++
			mustCommit(t, db, func(b *Batch) { b.AppendLog(0, holeAttempted, recordOf(holeAttempted)) })
		}
	}
	write(20)
	holePromised = holeAttempted
	db.log.sync.tick()
	write(60)
	full := crash(mem, 100, nil)
	mustClose(t, db)
	mark, _, err := readMark(full, "data", logMarkName)
	if err != nil || mark.File != db.log.sync.current().num {
		t.Fatal("the WAL changed behind the mark", mark, err)
	}
	path := fmt.Sprintf("data/log/%06d.log", mark.File)
	for page := mark.Offset/4096 + 1; page*4096 < db.log.sync.current().written.Load(); page++ {
		c := crash(full, 0, nil)
		f, err := c.OpenReadWrite(path, writeCategory)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteAt(make([]byte, 4096), page*4096)
		if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
			t.Fatal(err)
		}
		return c
	}
	return nil
}

// TestWALHole is the trap that the mark is for: Open cuts and says how much.
func TestWALHole(t *testing.T) {
	r := verifyCrashed(t, holedDirectory(t), Everysec, holePromised, holeAttempted)
	if r.File == "" || r.LostBytes <= 0 || r.CutAt <= 0 {
		t.Fatalf("%+v", r)
	}
	// Without the mark all counts as synced, and the hole as damage.
	unmarked := holedDirectory(t)
	if err := unmarked.Remove("data/" + logMarkName); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(testOptions(unmarked)); !errors.Is(err, ErrCorrupt) {
		t.Fatal(err)
	}
}

// TestCrashWhileRecovering crashes again at every kind of moment while Open
// cuts the log.
func TestCrashWhileRecovering(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for at := 1; ; at += 1 + rng.IntN(20) {
		var crashed []*vfs.MemFS
		mem := holedDirectory(t)
		hook := atOperation(at, func() {
			crashed = append(crashed, crash(mem, 50*rng.IntN(2), rng))
		})
		o := testOptions(errorfs.Wrap(mem, hook))
		o.Fsync = Fsync(rng.IntN(3))
		mustClose(t, mustOpen(t, o))
		if crashed == nil {
			return // past the last operation
		}
		for _, c := range crashed {
			verifyCrashed(t, c, Fsync(rng.IntN(3)), holePromised, holeAttempted)
		}
	}
}

// TestCrashWhileCreating crashes while a directory is created: whatever is
// left is a directory that opens.
func TestCrashWhileCreating(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	for at := 1; ; at += 1 + rng.IntN(4) {
		var crashed []*vfs.MemFS
		mem := vfs.NewCrashableMem()
		o := testOptions(errorfs.Wrap(mem, atOperation(at, func() {
			crashed = append(crashed, crash(mem, 0, nil), crash(mem, 50, rng))
		})))
		o.Fsync = Fsync(rng.IntN(3))
		mustClose(t, mustOpen(t, o))
		if crashed == nil {
			return
		}
		for _, c := range crashed {
			verifyCrashed(t, c, Fsync(rng.IntN(3)), 0, 0)
		}
	}
}

// atOperation calls do before the file system's operation number at.
func atOperation(at int, do func()) errorfs.InjectorFunc {
	var mu sync.Mutex
	n := 0
	return func(errorfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if n++; n == at {
			do()
		}
		return nil
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
	db := manualTicks(mustOpen(t, o))
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
		mustCommit(t, db, func(b *Batch) { b.AppendLog(0, n, recordOf(n)) })
		verifyCrashed(t, crash(mem, 0, nil), Always, step.kept, step.kept)
	}
}
