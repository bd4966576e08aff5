package persistence

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/fbfkv/fbfkv/internal/raced"
	"github.com/fbfkv/fbfkv/persistence/crashtest"
	"github.com/fbfkv/fbfkv/persistence/oplog"
)

// logPrefix checks that the op log of partition 0 is the records 1..n, whole
// and without holes, and returns n.
func logPrefix(t testing.TB, db *DB) uint64 {
	t.Helper()
	var n uint64
	err := db.log.Read(0, 0, func(seq uint64, record []byte) error {
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

// verifyCrashed opens the directory that a crash left, and checks that the log is a prefix of the
// written records that holds at least the promised records and at most the attempted ones, and that
// life goes on.
func verifyCrashed(t testing.TB, fsys vfs.FS, policy oplog.Fsync, promised, attempted uint64) oplog.Recovery {
	t.Helper()
	o := testOptions(fsys)
	o.Fsync = policy
	db, err := Open(o)
	if err != nil {
		t.Fatalf("promised %d: %v", promised, err)
	}
	recovery := db.log.Recovery()
	n := logPrefix(t, db)
	if n < promised || n > attempted {
		t.Fatalf("%d records, %d were promised, %d attempted", n, promised, attempted)
	}
	mustCommit(t, db, func(b *oplog.Batch) { b.AppendLog(0, n+1, crashtest.Record(n+1)) })
	mustClose(t, db)
	db = mustOpen(t, o)
	defer mustClose(t, db)
	expect(t, "records after another start", logPrefix(t, db), n+1)
	return recovery
}

// TestCrashWhileCreating crashes while a directory is created: whatever is
// left is a directory that opens.
func TestCrashWhileCreating(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	for at := 1; ; at += (1 + rng.IntN(4)) * raced.Step {
		var crashed []*vfs.MemFS
		mem := vfs.NewCrashableMem()
		o := testOptions(errorfs.Wrap(mem, crashtest.AtOperation(at, func() {
			crashed = append(crashed, crashtest.Left(mem, 0, nil), crashtest.Left(mem, 50, rng))
		})))
		o.Fsync = oplog.Fsync(rng.IntN(3))
		mustClose(t, mustOpen(t, o))
		if crashed == nil {
			return
		}
		for _, c := range crashed {
			verifyCrashed(t, c, oplog.Fsync(rng.IntN(3)), 0, 0)
		}
	}
}

// TestNothingAheadOfTheLog: when a row is durable, so is everything that was
// appended to the log before it, under every policy (G4).
func TestNothingAheadOfTheLog(t *testing.T) {
	for _, policy := range []oplog.Fsync{oplog.Always, oplog.Everysec, oplog.No} {
		mem := vfs.NewCrashableMem()
		o := testOptions(mem)
		o.Fsync = policy
		db := mustOpen(t, manualTicks(o))
		b := db.log.NewBatch()
		b.AppendLog(0, 1, crashtest.Record(1))
		if err := b.Apply(); err != nil {
			t.Fatal(err)
		}
		mustChange(t, db, func(b *Changes) { b.PutRow(RowKey{Key: []byte("k")}, []byte("1")) })
		if err := db.pebble.Flush(); err != nil { // of its own accord
			t.Fatal(err)
		}
		crashed := mustOpen(t, testOptions(crashtest.Left(mem, 0, nil)))
		expect(t, "records behind the row", logPrefix(t, crashed), 1)
		mustClose(t, crashed)
		if err := b.Wait(); err != nil {
			t.Fatal(err)
		}
		mustClose(t, db)
	}
}
