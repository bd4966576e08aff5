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

	"github.com/fbfkv/fbfkv/persistence/disk"
)

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
		f, err := vfs.Default.Create(filepath.Join(b.TempDir(), "file"), disk.WriteCategory)
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
