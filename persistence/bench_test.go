package persistence

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// BenchmarkCommit is the server's hot path: one pipeline's packed record,
// applied and waited for, by one and by many connections at once.
func BenchmarkCommit(b *testing.B) {
	record := randomBytes(4 << 10)
	for _, policy := range []Fsync{Always, Everysec} {
		open := func(b *testing.B, fsys vfs.FS, dir string) *DB {
			db := mustOpen(b, Options{FS: fsys, Dir: dir, Fsync: policy})
			b.Cleanup(func() { mustClose(b, db) })
			b.SetBytes(int64(len(record)))
			b.ReportAllocs()
			b.ResetTimer()
			return db
		}
		one := func(b *testing.B, db *DB) {
			batch := db.NewBatch()
			for i := range b.N {
				batch.AppendLog(0, uint64(i), record)
				if batch.Apply() != nil || batch.Wait() != nil {
					b.Fatal(db.failure())
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
						b.Fatal(db.failure())
					}
				}
			})
		})
	}
}

// BenchmarkRow reads one row of many from the block cache.
func BenchmarkRow(b *testing.B) {
	db := mustOpen(b, Options{FS: vfs.NewMem(), Dir: "data"})
	defer mustClose(b, db)
	key := RowKey{Slot: 1, Hash: 2, Key: []byte("some:counter")}
	mustCommit(b, db, func(batch *Batch) { batch.PutRow(key, []byte("value")) })
	b.ReportAllocs()
	buffer := make([]byte, 0, 64)
	for b.Loop() {
		if _, ok, err := db.Row(buffer, key); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}

// TestCommitAllocates holds the hot path, a commit of operations, to no
// allocation.
func TestCommitAllocates(t *testing.T) {
	db := mustOpen(t, Options{Dir: t.TempDir(), Fsync: Everysec})
	defer mustClose(t, db)
	record, batch, seq := randomBytes(4<<10), db.NewBatch(), uint64(0)
	allocs := testing.AllocsPerRun(2000, func() {
		seq++
		batch.AppendLog(0, seq, record)
		if batch.Apply() != nil || batch.Wait() != nil {
			t.Fatal(db.failure())
		}
	})
	expect(t, "allocations in a commit", allocs, 0)
}
