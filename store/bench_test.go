package store

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// BenchmarkExecute measures the path of a pipeline of CINCRBY through the store
// on a real disk; ns/op is per operation.
func BenchmarkExecute(b *testing.B) {
	for _, mode := range []Mode{Exact, Approx} {
		for _, pipeline := range []int{1, 16, 64, 1024} {
			b.Run(fmt.Sprintf("%v/pipeline=%d", map[Mode]string{Exact: "EXACT", Approx: "APPROX"}[mode], pipeline), func(b *testing.B) {
				s := testStore(b, func(o *Options) { o.FS, o.Dir, o.Fsync, o.Partitions = vfs.Default, b.TempDir(), Everysec, 16 })
				if err := s.AlterTable(DefaultTable, TableChange{Mode: &mode}); err != nil {
					b.Fatal(err)
				}
				benchExecute(b, s, pipeline, 10_000)
			})
		}
	}
}

func benchExecute(b *testing.B, s *Store, pipeline int, spread uint64) {
	var worker atomic.Uint64
	b.SetParallelism(25)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		me := worker.Add(1)
		var batch Batch
		ids := make([][16]byte, pipeline)
		keys := make([][]byte, pipeline)
		for i := range keys {
			keys[i] = make([]byte, 0, 16)
		}
		n := uint64(0)
		for {
			batch.Reset()
			for i := range pipeline {
				if !pb.Next() {
					return
				}
				n++
				binary.BigEndian.PutUint64(ids[i][:], me)
				binary.BigEndian.PutUint64(ids[i][8:], n)
				keys[i] = strconv.AppendUint(append(keys[i][:0], "counter:"...), (n*7919+me<<40)%spread, 10)
				op := batch.Add(CIncrBy)
				op.Key, op.ID, op.Delta = keys[i], ids[i][:], 1
			}
			s.Execute(&batch)
			for i := range batch.Ops {
				if err := batch.Ops[i].Err; err != nil {
					b.Error(err)
					return
				}
			}
		}
	})
}

// BenchmarkNewCounters measures operations of which nearly each makes a new
// counter, so that its row is looked for first.
func BenchmarkNewCounters(b *testing.B) {
	s := testStore(b, func(o *Options) { o.FS, o.Dir, o.Fsync, o.Partitions = vfs.Default, b.TempDir(), Everysec, 16 })
	benchExecute(b, s, 16, 1<<62)
}
