package persistence

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

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
	mustChange(b, db, func(batch *Changes) { batch.PutRow(key, []byte("value")) })
	b.ReportAllocs()
	buffer := make([]byte, 0, 64)
	for b.Loop() {
		if _, ok, err := db.Row(buffer, key); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}

// BenchmarkColdRow reads rows of a million from disk, in random batches of 700, each in
// the order of rows, with a block cache of 1 MB: what a batch of cold counters costs.
func BenchmarkColdRow(b *testing.B) {
	const rows, batch = 1_000_000, 700
	dir := b.TempDir()
	o := Options{Dir: dir, CacheSize: 1 << 20}
	key := func(i uint64) RowKey {
		return RowKey{Slot: uint16(i * 16384 / rows), Hash: i, Key: fmt.Appendf(nil, "counter:%010d", i)}
	}
	db := mustOpen(b, o)
	for i := uint64(0); i < rows; {
		mustChange(b, db, func(batch *Changes) {
			for range 10_000 {
				batch.PutRow(key(i), fmt.Appendf(nil, "%016x", i))
				i++
			}
		})
	}
	mustClose(b, db) // which leaves nothing in memory
	db = mustOpen(b, o)
	defer mustClose(b, db)
	picked, buffer := make([]uint64, batch), make([]byte, 0, 64)
	reads := 0
	for b.Loop() {
		for i := range picked {
			picked[i] = rand.Uint64N(rows)
		}
		slices.Sort(picked)
		for _, i := range picked {
			if _, ok, err := db.Row(buffer, key(i)); !ok || err != nil {
				b.Fatal(ok, err)
			}
		}
		reads += batch
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(reads), "ns/row")
}

// BenchmarkPages writes 64 MB: through the page cache into a new file, whose pages the
// system has to find and to clear; over the same file again; and past the page cache, as
// runs and snapshots are written. cpu-ns/B is the processor's part of it: the rest of the
// time a thread waits for the disk.
func BenchmarkPages(b *testing.B) {
	const size = 64 << 20
	data := takeBuffer(new(sync.Pool), directPiece)[:directPiece]
	copy(data, randomBytes(directPiece))
	write := func(b *testing.B, f vfs.File, piece int) {
		for at := 0; at < size; at += piece {
			if _, err := f.WriteAt(data[:piece], int64(at)); err != nil {
				b.Fatal(err)
			}
		}
	}
	create := func(b *testing.B) vfs.File {
		f, err := vfs.Default.Create(filepath.Join(b.TempDir(), "file"), writeCategory)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { f.Close() })
		return f
	}
	bench := func(name string, piece int, again, direct bool) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(size)
			var f vfs.File
			began := processorTime(b)
			for b.Loop() {
				if f == nil || !again {
					f = create(b)
				}
				if direct && !setDirect(f, true) {
					b.Skip("no O_DIRECT on this file system")
				}
				write(b, f, piece)
			}
			b.ReportMetric(float64(processorTime(b)-began)/float64(b.N)/size, "cpu-ns/B")
		})
	}
	bench("new", 256<<10, false, false)
	bench("again", 256<<10, true, false)
	bench("direct", directPiece, false, true)
}

// processorTime is what the process has used.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
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
