package store

import (
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// BenchmarkExecute measures the path of a pipeline of CINCRBY through the store
// on a real disk; ns/op is per operation.
func BenchmarkExecute(b *testing.B) {
	for _, mode := range []Mode{Exact, Approx} {
		for _, pipeline := range []int{1, 16, 64, 1024} {
			b.Run(fmt.Sprintf("%v/pipeline=%d", map[Mode]string{Exact: "EXACT", Approx: "APPROX"}[mode],
				pipeline), func(b *testing.B) {
				s := testStore(b, func(o *Options) {
					o.FS, o.Dir, o.Fsync, o.Partitions = vfs.Default, b.TempDir(), Everysec, 16
				})
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

// BenchmarkTop measures what TOP costs the operations of its table, of whose counters all rise alike.
func BenchmarkTop(b *testing.B) {
	for _, top := range []int{0, 100, MaxTop} {
		b.Run(fmt.Sprint("TOP=", top), func(b *testing.B) {
			s := testStore(b, func(o *Options) {
				o.FS, o.Dir, o.Fsync, o.Partitions = vfs.Default, b.TempDir(), Everysec, 16
			})
			if top > 0 {
				must(b, s.AlterTable(DefaultTable, TableChange{Top: &top}))
				_, _, err := s.Top("", top)
				must(b, err)
			}
			benchExecute(b, s, 64, 100_000)
		})
	}
}

// BenchmarkNewCounters measures operations of which nearly each makes a new
// counter, so that its row is looked for first.
func BenchmarkNewCounters(b *testing.B) {
	s := testStore(b, func(o *Options) {
		o.FS, o.Dir, o.Fsync, o.Partitions = vfs.Default, b.TempDir(), Everysec, 16
	})
	benchExecute(b, s, 16, 1<<62)
}

// BenchmarkRedo measures what a start takes to redo an operation, in processor time and in
// time, beside what the same operation took to be decided.
func BenchmarkRedo(b *testing.B) {
	for _, of := range []struct {
		pipeline int
		counters uint64
	}{{1, 10_000}, {64, 10_000}, {64, 1_000_000}, {1024, 1_000_000}} {
		b.Run(fmt.Sprintf("pipeline=%d/counters=%d", of.pipeline, of.counters), func(b *testing.B) {
			o := Options{Dir: b.TempDir(), Fsync: Everysec, Partitions: 16, SnapshotInterval: -1,
				MaxLogBytes: 1 << 40, RecordMemory: 1 << 40}
			s, err := Open(o)
			must(b, err)
			must(b, s.Snapshot())
			runtime.GC()
			decided, began := processorTime(b), time.Now()
			benchExecute(b, s, of.pipeline, of.counters)
			decided = processorTime(b) - decided
			deciding := time.Since(began)
			must(b, s.CloseNow())
			runtime.GC()
			redone, began := processorTime(b), time.Now()
			s, err = Open(o)
			must(b, err)
			took := time.Since(began)
			redone = processorTime(b) - redone
			n := float64(s.Stats().Recovery.Entries)
			must(b, s.CloseNow())
			b.ReportMetric(float64(decided)/n, "decided-ns/op")
			b.ReportMetric(float64(redone)/n, "redone-ns/op")
			b.ReportMetric(float64(redone)/float64(decided), "ratio")
			b.ReportMetric(float64(took)/float64(deciding), "time-ratio")
		})
	}
}

// processorTime is the processor time that the process has used so far.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkHolds compares what one phase of a hold takes with an increment. An iteration is one operation, in
// pipelines of 64; those of a hold's two phases alternate.
func BenchmarkHolds(b *testing.B) {
	const pipeline = 64
	for _, kinds := range [][]Kind{{CIncrBy}, {CHold, CSettle}, {CHold, CCancel}} {
		names := map[Kind]string{CIncrBy: "CINCRBY", CSettle: "CHOLD, CSETTLE", CCancel: "CHOLD, CCANCEL"}
		b.Run(names[kinds[len(kinds)-1]],
			func(b *testing.B) {
				s := testStore(b, func(o *Options) {
					o.FS, o.Dir, o.Fsync, o.Partitions = vfs.Default, b.TempDir(), Everysec, 16
				})
				var batch Batch
				var ids [pipeline][16]byte
				b.ReportAllocs()
				for n := 0; n < b.N; {
					for _, kind := range kinds {
						batch.Reset()
						for i := range pipeline {
							binary.BigEndian.PutUint64(ids[i][8:], uint64(n+i))
							op := batch.Add(kind)
							op.Key, op.ID = fmt.Appendf(nil, "counter:%d", (n+i)*7919%10_000), ids[i][:]
							op.Delta, op.ExpireAt = 1, math.MaxInt64
						}
						s.Execute(&batch)
					}
					n += pipeline * len(kinds)
				}
			})
	}
}
