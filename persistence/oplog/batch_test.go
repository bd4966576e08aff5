package oplog

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence/crashtest"
)

func TestBatchStates(t *testing.T) {
	o := testOptions(vfs.NewMem())
	db := mustOpen(t, o)
	b := db.NewBatch()
	if err := b.Wait(); !errors.Is(err, errBatchState) {
		t.Fatal(err)
	}
	for seq := range uint64(3) {
		expect(t, "empty", b.Empty(), true)
		b.AppendLog(0, seq, []byte("r"))
		expect(t, "empty", b.Empty(), false)
		if err := errors.Join(b.Apply(), b.Wait()); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(b.Apply(), b.Wait()); err != nil {
		t.Fatal("empty batch:", err)
	}
	b.AppendLog(0, 9, []byte("dropped"))
	b.Reset()
	if err := errors.Join(b.Apply(), b.Wait()); err != nil {
		t.Fatal(err)
	}
	mustClose(t, db)
	db = mustOpen(t, o)
	defer mustClose(t, db)
	expect(t, "log", logOf(t, db, 0, 0), "0=r 1=r 2=r ")
}

// TestApplyAgain: a batch is applied several times before Wait, which waits for all of
// them.
func TestApplyAgain(t *testing.T) {
	o := testOptions(vfs.NewMem())
	o.Fsync = Always
	db := mustOpen(t, o)
	b := db.NewBatch()
	for round := range uint64(3) {
		for i := range round {
			b.AppendLog(0, 10*round+i, []byte("r"))
			if err := b.Apply(); err != nil {
				t.Fatal(err)
			}
			expect(t, "empty", b.Empty(), true)
			if err := b.Apply(); err != nil { // of nothing
				t.Fatal(err)
			}
		}
		b.AppendLog(0, 99, []byte("dropped"))
		b.Reset()
		if err := errors.Join(b.Apply(), b.Wait()); err != nil {
			t.Fatal(err)
		}
		if b.place > db.written {
			t.Fatalf("%d bytes are written when Wait returns for %d", db.written, b.place)
		}
	}
	mustClose(t, db)
	db = mustOpen(t, o)
	defer mustClose(t, db)
	expect(t, "log", logOf(t, db, 0, 0), "10=r 20=r 21=r ")
}

// A record may be larger than everything the log keeps for reuse.
func TestLargeBatch(t *testing.T) {
	o := testOptions(vfs.NewMem())
	db := mustOpen(t, o)
	large := bytes.Repeat([]byte("0123456789abcdef"), 50_000)
	b := db.NewBatch()
	for seq := uint64(1); seq <= 2; seq++ {
		b.AppendLog(0, seq, large)
		if err := b.Apply(); err != nil {
			t.Fatal(err)
		}
		if err := b.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	b.AppendLog(0, 3, []byte("small"))
	if err := errors.Join(b.Apply(), b.Wait()); err != nil {
		t.Fatal(err)
	}
	mustClose(t, db)
	db = mustOpen(t, o)
	defer mustClose(t, db)
	n := 0
	err := db.Read(0, 1, func(seq uint64, record []byte) error {
		n++
		if seq < 3 && !bytes.Equal(record, large) {
			t.Errorf("record %d differs", seq)
		}
		return nil
	})
	if err != nil || n != 3 {
		t.Fatal(n, err)
	}
}

// BenchmarkCommit is the server's hot path: one pipeline's packed record,
// applied and waited for, by one and by many connections at once.
func BenchmarkCommit(b *testing.B) {
	record := crashtest.Noise[:4<<10]
	for _, policy := range []Fsync{Always, Everysec} {
		open := func(b *testing.B, fsys vfs.FS, dir string) *Log {
			db := mustOpen(b, testOptionsAt(fsys, dir, policy))
			b.Cleanup(func() { mustClose(b, db) })
			b.SetBytes(int64(len(record)))
			b.ReportAllocs()
			b.ResetTimer()
			return db
		}
		one := func(b *testing.B, db *Log) {
			batch := db.NewBatch()
			for i := range b.N {
				batch.AppendLog(0, uint64(i), record)
				if batch.Apply() != nil || batch.Wait() != nil {
					b.Fatal(db.Failure())
				}
			}
		}
		b.Run(policy.String()+"/memory/1", func(b *testing.B) { one(b, open(b, vfs.NewMem(), "data")) })
		b.Run(policy.String()+"/disk/1", func(b *testing.B) { one(b, open(b, vfs.Default, b.TempDir())) })
		b.Run(policy.String()+"/disk/50", func(b *testing.B) {
			db := open(b, vfs.Default, b.TempDir())
			b.SetParallelism(25)
			b.RunParallel(func(pb *testing.PB) {
				batch := db.NewBatch()
				for seq := uint64(0); pb.Next(); seq++ {
					batch.AppendLog(uint16(seq%16), seq, record)
					if batch.Apply() != nil || batch.Wait() != nil {
						b.Fatal(db.Failure())
					}
				}
			})
		})
	}
}

// TestCommitAllocates holds the hot path, a commit of operations, to no
// allocation.
func TestCommitAllocates(t *testing.T) {
	o := testOptionsAt(vfs.Default, t.TempDir(), Everysec)
	at := time.Now()
	o.Now = func() time.Time { return at } // on a slow machine what is not fsynced may become old
	db := mustOpen(t, manualTicks(o))
	defer mustClose(t, db)
	record, batch, seq := crashtest.Noise[:4<<10], db.NewBatch(), uint64(0)
	allocs := testing.AllocsPerRun(2000, func() {
		seq++
		batch.AppendLog(0, seq, record)
		if batch.Apply() != nil || batch.Wait() != nil {
			t.Fatal(db.Failure())
		}
	})
	expect(t, "allocations in a commit", allocs, 0)
}
