package oplog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/fbfkv/fbfkv/internal/raced"
	"github.com/fbfkv/fbfkv/persistence/crashtest"
	"github.com/fbfkv/fbfkv/persistence/disk"
)

// prefix checks that the op log of partition 0 is the records 1..n, whole
// and without holes, and returns n.
func prefix(t testing.TB, db *Log) uint64 {
	t.Helper()
	var n uint64
	err := db.Read(0, 0, func(seq uint64, record []byte) error {
		n++
		if seq != n || string(record) != string(crashtest.Record(seq)) {
			return fmt.Errorf("record %d in place %d, or damaged", seq, n)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// verifyCrashed opens the log that a crash left, and checks that it is a prefix of the written
// records that holds at least the promised records and at most the attempted ones, and that life
// goes on.
func verifyCrashed(t testing.TB, fsys vfs.FS, policy Fsync, promised, attempted uint64) Recovery {
	t.Helper()
	o := testOptions(fsys)
	o.Fsync = policy
	db, err := tryOpen(o)
	if err != nil {
		t.Fatalf("promised %d: %v", promised, err)
	}
	recovery := db.Recovery()
	n := prefix(t, db)
	if n < promised || n > attempted {
		t.Fatalf("%d records, %d were promised, %d attempted", n, promised, attempted)
	}
	mustCommit(t, db, func(b *Batch) { b.AppendLog(0, n+1, crashtest.Record(n+1)) })
	mustClose(t, db)
	db = mustOpen(t, o)
	defer mustClose(t, db)
	expect(t, "records after another start", prefix(t, db), n+1)
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
			cut, trap := 0, mode == "everysec" || mode == "no"
			for seed := uint64(0); seed < 4 || trap && cut == 0 && seed < 100; seed += (raced.Step + 1) / 2 {
				cut += crashRun(t, mode, seed) // what is on the disk depends on when files are made, too
			}
			if trap {
				if cut == 0 {
					t.Fatal("no crash left a hole in the log: the test does not reach the trap")
				}
			} else if mode == "always" && cut > 0 {
				t.Fatal("the log was cut though all was synced")
			}
		})
	}
}

func crashRun(t *testing.T, mode string, seed uint64) (cut int) {
	rng := rand.New(rand.NewPCG(seed, 1))
	mem := vfs.NewCrashableMem()
	o := testOptions(mem)
	o.FileSize = 200 << 10 // several files, some of them recycled
	policy, err := ParseFsync(mode)
	if err != nil {
		policy = Everysec
	}
	o.Fsync = policy
	db := mustOpen(t, manualTicks(o)) // else a busy machine syncs all in between
	defer mustClose(t, db)
	var acked, promised uint64
	b := db.NewBatch()
	for range 200 {
		b.AppendLog(0, acked+1, crashtest.Record(acked+1))
		if err := errors.Join(b.Apply(), b.Wait()); err != nil {
			t.Fatal(err)
		}
		acked++
		if policy == Always {
			promised = acked
		}
		if rng.IntN(30) == 0 {
			db.sync.tick()
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
			if r := verifyCrashed(t, crashtest.Left(mem, percent, rng), Fsync(rng.IntN(3)), least,
				acked); r.LostBytes > 0 {
				cut++
			}
		}
	}
	return cut
}

// holedDirectory returns a copy of what a power loss under everysec leaves when
// the first page behind the mark did not reach the disk and all others did.
func holedDirectory(t testing.TB) *vfs.MemFS {
	t.Helper()
	holedOnce.Do(func() { holed = makeHole(t) })
	if holed == nil {
		t.Fatal("no page lies behind the mark")
	}
	return crashtest.Left(holed, 0, nil)
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
	db := mustOpen(t, manualTicks(o))
	write := func(n int) {
		for range n {
			holeAttempted++
			mustCommit(t, db, func(b *Batch) {
				b.AppendLog(0, holeAttempted, crashtest.Record(holeAttempted))
			})
		}
	}
	write(20)
	holePromised = holeAttempted
	db.sync.tick()
	write(60)
	full := crashtest.Left(mem, 100, nil)
	mustClose(t, db)
	mark, _, err := disk.ReadMark(full, "data", MarkName)
	if err != nil || mark.File != db.sync.current().num {
		t.Fatal("the log changed behind the mark", mark, err)
	}
	path := fmt.Sprintf("data/log/%06d.log", mark.File)
	for page := mark.Offset/4096 + 1; page*4096 < db.sync.current().written.Load(); page++ {
		c := crashtest.Left(full, 0, nil)
		f, err := c.OpenReadWrite(path, disk.WriteCategory)
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

// TestLogHole is the trap that the mark is for: Open cuts and says how much.
func TestLogHole(t *testing.T) {
	r := verifyCrashed(t, holedDirectory(t), Everysec, holePromised, holeAttempted)
	if r.File == "" || r.LostBytes <= 0 || r.CutAt <= 0 {
		t.Fatalf("%+v", r)
	}
	// Without the mark all counts as synced, and the hole as damage.
	unmarked := holedDirectory(t)
	if err := unmarked.Remove("data/" + MarkName); err != nil {
		t.Fatal(err)
	}
	if _, err := tryOpen(testOptions(unmarked)); !errors.Is(err, disk.ErrCorrupt) {
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
		hook := crashtest.AtOperation(at, func() {
			crashed = append(crashed, crashtest.Left(mem, 50*rng.IntN(2), rng))
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
