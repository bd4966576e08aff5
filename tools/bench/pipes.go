package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fbfkv/fbfkv/tools/process"
)

var followed = &special{"follow", func(r *row) string {
	return "pipeline 16, everysec, processor: " + r.ours.String() + " with `fbfkv follow` against without"
}, (*table).followed}

// followed measures what a follower of all changes costs the server.
func (t *table) followed(ctx context.Context, rows []*row) {
	p := process.Must(process.FBFKV(ctx, t.fbfkv, "--appendfsync", "everysec"))
	defer p.Close()
	results := alternate(t.rounds, 2, func(i int) *Result {
		return takeQuiet(ctx, &t.quiet, func() *Result {
			if i == 0 {
				follower := exec.CommandContext(ctx, t.fbfkv, "follow", p.Address, "--from", "now")
				process.Check(follower.Start())
				defer follower.Wait()
				defer follower.Process.Kill()
			}
			return runMetered(ctx, p, t.options(p, rows[0].ours))
		})
	})
	for i, name := range []string{"followed", "alone"} {
		for round, r := range results[i] {
			t.keep("follow", name, round, r)
		}
	}
	q := ratio(results[0], results[1], (*Result).serverCPU)
	t.emit(rows[0], q, fmt.Sprintf("%.2f µs and %.2f µs", q.A, q.B))
}

var lagging = &special{"lag", func(r *row) string {
	return fmt.Sprintf("ms until `fbfkv follow` has written an operation, p99, at %d operations/s", lagRate)
}, (*table).lagging}

// lagRate is how many operations are counted a second while the lag of a follower is measured.
const lagRate = 20_000

// lagging measures how far a follower is behind the times of the operations, which the server notes.
func (t *table) lagging(ctx context.Context, rows []*row) {
	p := process.Must(process.FBFKV(ctx, t.fbfkv))
	defer p.Close()
	results := alternate(t.rounds, 1, func(int) *Result {
		return takeQuiet(ctx, &t.quiet, func() *Result {
			follower := exec.CommandContext(ctx, t.fbfkv, "follow", p.Address, "--from", "now")
			lines := process.Must(follower.StdoutPipe())
			process.Check(follower.Start())
			var lags []float64
			var written atomic.Int64
			var ended atomic.Bool
			var reading sync.WaitGroup
			reading.Go(func() {
				lags = readLags(lines, &written)
				ended.Store(true)
			})
			sleep := func(d time.Duration) {
				if process.Sleep(ctx, d); ended.Load() {
					process.Check(errors.New("the follower has ended"))
				}
			}
			defer follower.Wait()
			defer reading.Wait()
			defer follower.Process.Kill()
			began := int64(0)
			for ; written.Load() == 0; sleep(10 * time.Millisecond) {
				do(ctx, p, "CINCRBY", "bench:begin", rand.Uint64(), 1)
			}
			for ; written.Load() > began; sleep(100 * time.Millisecond) {
				began = written.Load() // all that were sent until it began
			}
			o := t.options(p, rows[0].ours)
			o.Rate = lagRate
			r := process.Must(runClean(ctx, o))
			for written.Load() < began+r.Sent {
				sleep(10 * time.Millisecond)
			}
			follower.Process.Kill()
			reading.Wait()
			lags = lags[began:]
			slices.Sort(lags)
			r.Latency = latency{P50: lags[len(lags)/2], P99: lags[len(lags)*99/100], Max: lags[len(lags)-1]}
			return r
		})
	})[0]
	for round, r := range results {
		t.keep("lag", "follow", round, r)
	}
	lags := figures(results, func(r *Result) float64 { return r.Latency.P99 * 1e3 })
	t.emit(rows[0], ratioOf(lags, slices.Max(figures(results, (*Result).stolen))),
		fmt.Sprintf("p50 %.0f ms", 1e3*median(figures(results, func(r *Result) float64 { return r.Latency.P50 }))))
}

// readLags reads what a follower writes, counts that, and returns how old each operation was then, seconds.
func readLags(follower io.Reader, written *atomic.Int64) (lags []float64) {
	in := bufio.NewReaderSize(follower, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return lags
		}
		if _, rest, ok := bytes.Cut(line, []byte(`"time":`)); ok {
			digits, _, _ := bytes.Cut(rest, []byte(","))
			ms := process.Must(strconv.ParseInt(string(bytes.Trim(digits, "}\n")), 10, 64))
			lags = append(lags, time.Since(time.UnixMilli(ms)).Seconds())
			written.Add(1)
		}
	}
}

var streamed = &special{"stream", func(r *row) string {
	return "everysec: lines of `fbfkv stream count` against the generator's operations at pipeline 64"
}, (*table).streamed}

// streamed compares how fast lines are counted with how fast the server counts.
func (t *table) streamed(ctx context.Context, rows []*row) {
	p := process.Must(process.FBFKV(ctx, t.fbfkv, "--appendfsync", "everysec"))
	defer p.Close()
	dir := process.Must(os.MkdirTemp("", "bench"))
	defer os.RemoveAll(dir)
	lines := int(100_000 * t.seconds)
	results := alternate(t.rounds, 2, func(i int) *Result {
		return takeQuiet(ctx, &t.quiet, func() *Result {
			if i == 1 {
				return process.Must(runClean(ctx, t.options(p, rows[0].peer)))
			}
			var text bytes.Buffer
			round := rand.Uint64()
			for line := range lines {
				fmt.Fprintf(&text, "%d %d-%d\n", rand.Uint64()%10_000, round, line)
			}
			path := filepath.Join(dir, "lines")
			process.Check(os.WriteFile(path, text.Bytes(), 0o600))
			in := process.Must(os.Open(path))
			defer in.Close()
			count := exec.CommandContext(ctx, t.fbfkv, "stream", "count", "--counter", "bench:{1}", "--id", "2", p.Address)
			count.Stdin = in
			stolen, began := watchSteal(), time.Now()
			if out, err := count.CombinedOutput(); err != nil {
				process.Check(errors.Join(err, errors.New(string(out))))
			}
			return &Result{Throughput: float64(lines) / time.Since(began).Seconds(), Steal: stolen()}
		})
	})
	for i, name := range []string{"lines", "generator"} {
		for round, r := range results[i] {
			t.keep("stream", name, round, r)
		}
	}
	q := ratio(results[0], results[1], throughput)
	t.emit(rows[0], q, fmt.Sprintf("%.0fk and %.0fk/s", q.A/1000, q.B/1000))
}
