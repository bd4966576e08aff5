package seen

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence"
)

// BenchmarkRuns measures, in processor time by the record, how the records in memory become a run
// (flush), and sixteen runs become one (merge), in files on a real disk.
func BenchmarkRuns(b *testing.B) {
	const records = 50_000 // per run
	o := newOwner(b, vfs.Default, b.TempDir())
	build := o.begin(Flush, 0)
	write := func(b *testing.B, g group) persistence.Run {
		n := 0
		if g.records {
			n = records
		}
		run, err := build.write(g, 1, n)
		if err != nil || run.Count != g.run.Count {
			b.Fatal(run, err)
		}
		return run
	}
	rng := rand.New(rand.NewPCG(1, 2))
	g := group{}
	seq := uint64(1 << 24)
	var flush group
	for range mergeFan {
		var rs Records
		for range records {
			seq++
			rs.Add(&Record{Table: 1, Hash: rng.Uint64(), Seq: seq,
				Key: fmt.Appendf(nil, "counter:%06d", seq%1e6), ID: fmt.Appendf(nil, "%016x", rng.Uint64())})
		}
		build.sealed = rs.seal()
		flush = group{run: newRun(build.sealed, records), records: true}
		run := write(b, flush)
		g.merged = append(g.merged, run)
		g.run.Count, g.run.Bytes = g.run.Count+run.Count, g.run.Bytes+run.Bytes
	}
	for _, bench := range []struct {
		name  string
		group group
	}{{"flush", flush}, {"merge", g}} {
		b.Run(bench.name, func(b *testing.B) {
			began := processorTime(b)
			for b.Loop() {
				o.db.RemoveRuns([]persistence.Run{write(b, bench.group)})
			}
			b.ReportMetric(float64(processorTime(b)-began)/float64(b.N)/float64(bench.group.run.Count),
				"cpu-ns/record")
		})
	}
}

// processorTime is what the process has used.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
