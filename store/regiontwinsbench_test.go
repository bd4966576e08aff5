package store

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/store/part"
)

// readEachOther lets each of two regions take all that the other one has done, in turns, and the
// cycle of each take back what it owes, until nobody owes anything.
func (w *benchRegions) readEachOther() {
	for busy := true; busy; {
		busy = false
		for to := range w.s {
			for told := w.pullOf(to, 1-to); len(told) > 0; told = w.pullOf(to, 1-to) {
				busy = true
				for _, b := range told {
					_, err := w.s[to].Take(b)
					must(w.b, err)
				}
			}
			for _, p := range w.s[to].partitions {
				w.s[to].dropEnded(p, new(Batch))
				p.lock()
				busy = busy || p.regions.owed.count[to] > 0
				p.mu.Unlock()
			}
		}
	}
}

// pullOf is pull of any of the two.
func (w *benchRegions) pullOf(to, from int) (told [][]byte) {
	ranges, err := w.s[to].PullRanges(part.Region(from))
	must(w.b, err)
	var qs []Pull
	for _, r := range ranges {
		after, acked, err := w.s[to].TakenOf(r.Own, r.Source)
		must(w.b, err)
		qs = append(qs, Pull{
			By: part.Region(to), Group: 77, Incarnation: w.s[from].Meta().Incarnation,
			Partition: r.Source.Partition,
			First:     r.First, Last: r.Last, After: after, Acked: acked,
		})
	}
	all, _ := w.s[from].PullAll(qs, 4<<20, false)
	for _, a := range all {
		must(w.b, a.Err)
		if a.Data != nil {
			told = append(told, a.Data)
		}
	}
	return told
}

// BenchmarkTwins measures what 4000 opids cost that both regions have applied, in processor time of
// both until all are taken back: of one key, and of as many keys. The cost must be about the same,
// and no client of the key may wait for long.
func BenchmarkTwins(b *testing.B) {
	const twins = 4000
	var cost [2]float64
	for i, keys := range []int{twins, 1} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			w := newBenchRegions(b, 1)
			w.meet(0, 1)
			var longest atomic.Int64
			var done atomic.Bool
			defer done.Store(true)
			for _, s := range w.s {
				go func() {
					for !done.Load() {
						began := time.Now()
						get(s, "key 0")
						longest.Store(max(longest.Load(), int64(time.Since(began))))
						time.Sleep(time.Millisecond)
					}
				}()
			}
			var cpu time.Duration
			n := 0
			for b.Loop() {
				b.StopTimer()
				for _, s := range w.s {
					var batch Batch
					for t := range twins {
						*batch.Add(CIncrBy) = Op{Kind: CIncrBy, Key: fmt.Append(nil, "key ", t%keys),
							ID: fmt.Append(nil, "id ", n, t), Delta: 1}
					}
					s.Execute(&batch)
					for i := range batch.Ops {
						must(b, batch.Ops[i].Err)
					}
				}
				b.StartTimer()
				began := processorTime(b)
				w.readEachOther()
				cpu += processorTime(b) - began
				n++
				for _, s := range w.s {
					if v, _ := get(s, "key 0"); v != int64(n*twins/keys) {
						b.Fatalf("%d, not %d", v, n*twins/keys)
					}
				}
			}
			cost[i] = float64(cpu) / float64(n) / twins
			b.ReportMetric(cost[i], "cpu-ns/twin")
			b.ReportMetric(float64(longest.Load())/1e6, "longest-wait-ms")
		})
	}
	if cost[0] > 0 && cost[1] > 0 {
		b.Logf("one key costs %.2f of as many keys", cost[1]/cost[0])
	}
}
