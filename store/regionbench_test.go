package store

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/store/part"
)

// benchRegions are two regions on a real disk; the second one reads the first.
type benchRegions struct {
	b      *testing.B
	s      [2]*Store
	ranges []PullRange
	ops    uint64
}

func newBenchRegions(b *testing.B, partitions int) *benchRegions {
	w := &benchRegions{b: b}
	mode, set := Exact, RegionSet{Group: 77}
	for i := range w.s {
		w.s[i] = testStore(b, func(o *Options) {
			o.FS, o.Dir, o.Fsync, o.Partitions = vfs.Default, b.TempDir(), No, partitions
			o.LogFileSize, o.MaxLogBytes, o.Seed = 128<<20, 1<<40, [16]byte{byte(i + 1)}
		})
		must(b, w.s[i].AlterTable(DefaultTable, TableChange{Mode: &mode}))
		set.Members = append(set.Members, RegionMember{
			Region: part.Region(i), Name: fmt.Sprint("region", i), Partitions: partitions,
			Incarnation: w.s[i].Meta().Incarnation,
		})
	}
	for i, s := range w.s {
		set.Self = part.Region(i)
		must(b, s.SetRegions(set))
	}
	w.ranges = w.meet(1, 0)
	return w
}

// meet lets a region take what another one did alone, and returns the ranges by which it reads it.
func (w *benchRegions) meet(to, from int) []PullRange {
	ranges, err := w.s[to].PullRanges(part.Region(from))
	must(w.b, err)
	for _, r := range ranges {
		q := StateQuery{Pull: Pull{
			By: part.Region(to), Group: 77, Incarnation: w.s[from].Meta().Incarnation,
			Partition: r.Source.Partition, First: r.First, Last: r.Last, Most: 1000,
		}, Of: part.Region(from)}
		for more := true; more; more = q.At != nil {
			page, err := w.s[from].State(q)
			must(w.b, err)
			taken, err := w.s[to].Take(page)
			must(w.b, err)
			q.Seq, q.At = taken.State.Seq, taken.State.Next
		}
	}
	return ranges
}

// apply lets the first region apply operations with UUIDv7 opids, in pipelines.
func (w *benchRegions) apply(n, pipeline int, keys uint64) {
	var batch Batch
	id := [16]byte{6: 0x70, 8: 0x80}
	for n > 0 {
		batch.Reset()
		binary.BigEndian.PutUint64(id[:], uint64(time.Now().UnixMilli())<<16|0x7000)
		for range min(pipeline, n) {
			w.ops++
			binary.BigEndian.PutUint64(id[8:], w.ops*0x9E3779B97F4A7C15>>2|1<<63)
			op := batch.Add(CIncrBy)
			op.Key, op.ID, op.Delta = fmt.Appendf(nil, "counter:%d", w.ops*7919%keys),
				append([]byte(nil), id[:]...), 1
		}
		w.s[0].Execute(&batch)
		for i := range batch.Ops {
			must(w.b, batch.Ops[i].Err)
		}
		n -= len(batch.Ops)
	}
}

// pull asks for all ranges, and returns what was told.
func (w *benchRegions) pull(most int) (told [][]byte) {
	qs := make([]Pull, len(w.ranges))
	for i, r := range w.ranges {
		after, acked, err := w.s[1].TakenOf(r.Own, r.Source)
		must(w.b, err)
		qs[i] = Pull{
			By: 1, Group: 77, Incarnation: w.s[0].Meta().Incarnation, Partition: r.Source.Partition,
			First: r.First, Last: r.Last, After: after, Acked: acked, Most: most,
		}
	}
	all, _ := w.s[0].PullAll(qs, most, false)
	for _, a := range all {
		must(w.b, a.Err)
		if a.Data != nil {
			told = append(told, a.Data)
		}
	}
	return told
}

func (w *benchRegions) take(told [][]byte) {
	for _, b := range told {
		_, err := w.s[1].Take(b)
		must(w.b, err)
	}
}

// BenchmarkPull measures a pull of all partitions that is asked for often, where the op log's
// newest file is long: ns/op is per pull of 64 new operations.
func BenchmarkPull(b *testing.B) {
	for _, partitions := range []int{16, 1024} {
		b.Run(fmt.Sprintf("partitions=%d", partitions), func(b *testing.B) {
			w := newBenchRegions(b, partitions)
			w.apply(1_000_000, 1024, 100_000)
			for told := w.pull(8 << 20); len(told) > 0; told = w.pull(8 << 20) {
				w.take(told)
			}
			_, size := w.s[0].db.Log().Sizes()
			b.ReportMetric(float64(size)/(1<<20), "log-MiB")
			for b.Loop() {
				b.StopTimer()
				w.apply(64, 64, 100_000)
				b.StartTimer()
				told := w.pull(4 << 20)
				b.StopTimer()
				w.take(told)
				b.StartTimer()
			}
		})
	}
}

// BenchmarkRegions measures what an operation costs in processor time where it is decided, where it
// is told, and in another region that takes it; and what it is on the wire.
func BenchmarkRegions(b *testing.B) {
	for _, keys := range []uint64{10_000, 1_000_000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			w := newBenchRegions(b, 16)
			var decided, told, taken time.Duration
			wire := 0
			lap := func() func() time.Duration {
				began := processorTime(b)
				return func() time.Duration { return processorTime(b) - began }
			}
			n := 0
			for b.Loop() {
				took := lap()
				w.apply(16384, 64, keys)
				decided += took()
				n += 16384
				for {
					took = lap()
					answers := w.pull(4 << 20)
					if told += took(); len(answers) == 0 {
						break
					}
					for _, a := range answers {
						wire += len(a)
					}
					took = lap()
					w.take(answers)
					taken += took()
				}
			}
			b.ReportMetric(float64(decided)/float64(n), "decided-ns/op")
			b.ReportMetric(float64(told)/float64(n), "told-ns/op")
			b.ReportMetric(float64(taken)/float64(n), "taken-ns/op")
			b.ReportMetric(float64(taken)/float64(decided), "taken/decided")
			b.ReportMetric(float64(wire)/float64(n), "wire-B/op")
		})
	}
}

// BenchmarkState measures what a region costs that takes the state of another one: in processor time of
// the source and of the reader, in memory that is allocated, and on the wire; of each of 100,000
// counters with one id.
func BenchmarkState(b *testing.B) {
	const keys = 100_000
	w := newBenchRegions(b, 1)
	w.apply(keys, 1024, keys)
	must(b, w.s[0].Snapshot())
	set, _ := w.s[0].Regions()
	var told, taken time.Duration
	wire, memory := 0, uint64(0)
	lap := func(to *time.Duration, do func()) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := processorTime(b)
		do()
		*to += processorTime(b) - began
		runtime.ReadMemStats(&after)
		memory += after.TotalAlloc - before.TotalAlloc
	}
	for b.Loop() {
		reader := testStore(b, func(o *Options) {
			o.FS, o.Dir, o.Fsync, o.Partitions, o.Seed = vfs.Default, b.TempDir(), No, 1, [16]byte{9}
			o.LogFileSize, o.MaxLogBytes = 128<<20, 1<<40
		})
		mode := Exact
		must(b, reader.AlterTable(DefaultTable, TableChange{Mode: &mode}))
		set.Self, set.Members[1].Incarnation = 1, reader.Meta().Incarnation
		must(b, reader.SetRegions(set))
		q := StateQuery{Pull: Pull{
			By: 1, Group: 77, Incarnation: w.s[0].Meta().Incarnation, Last: slots - 1, Most: 1 << 20,
		}}
		for more := true; more; more = q.At != nil {
			var page []byte
			lap(&told, func() {
				var err error
				page, err = w.s[0].State(q)
				must(b, err)
			})
			wire += len(page)
			lap(&taken, func() {
				t, err := reader.Take(page)
				must(b, err)
				q.Seq, q.At = t.State.Seq, t.State.Next
			})
		}
		must(b, reader.CloseNow())
	}
	per := func(n float64) float64 { return n / float64(b.N) / keys }
	b.ReportMetric(per(float64(told)), "told-ns/key")
	b.ReportMetric(per(float64(taken)), "taken-ns/key")
	b.ReportMetric(per(float64(memory)), "alloc-B/key")
	b.ReportMetric(per(float64(wire)), "wire-B/key")
}

// BenchmarkDigest measures what a digest costs of all counters, coarse, and by buckets.
func BenchmarkDigest(b *testing.B) {
	for _, fine := range []bool{false, true} {
		b.Run(fmt.Sprintf("fine=%t", fine), func(b *testing.B) {
			const keys = 1_000_000
			w := newBenchRegions(b, 16)
			w.apply(keys, 1024, keys)
			must(b, w.s[0].Snapshot())
			began := processorTime(b)
			for b.Loop() {
				for _, r := range w.ranges {
					_, err := w.s[0].RegionDigest(b.Context(), r.First, r.Last, 0, fine)
					must(b, err)
				}
			}
			b.ReportMetric(float64(processorTime(b)-began)/float64(b.N)/keys, "cpu-ns/key")
		})
	}
}
