package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/fbfkv/fbfkv/fbf"
	"github.com/redis/go-redis/v9"
)

// batchWarmup is how many batches of a size go before those that count.
const batchWarmup = 5

// durabilities are the values of appendfsync compared: the reply waits for the
// disk, or only for the operating system.
var durabilities = []string{"always", "everysec"}

// latencies are the times of batches, by durability, way and size.
type latencies [][][][]time.Duration

// figure15 measures how long a batch of increments takes with and without the filter.
func figure15(r *run) (result, error) {
	sizes := pick(r, []int{1, 3, 10, 30, 100, 300, 1000}, []int{1, 100})
	budget := pick(r, 4*time.Second, 100*time.Millisecond)
	all := ways()
	var took latencies
	err := withServer(r.fbfkv, func(s *liveServer) error {
		c := s.client()
		defer c.Close()
		for d, durability := range durabilities {
			if err := c.ConfigSet(context.Background(), "appendfsync", durability).Err(); err != nil {
				return err
			}
			took = append(took, make([][][]time.Duration, len(all)))
			for i, size := range sizes {
				batches, err := batchTimes(c, all, durability, size, budget)
				if err != nil {
					return err
				}
				for w := range all {
					took[d][w] = append(took[d][w], batches[w])
				}
				r.progress(float64(d*len(sizes)+i+1) / float64(len(durabilities)*len(sizes)))
			}
		}
		return nil
	})
	if err != nil {
		return result{}, err
	}
	res := latencyResult(all, sizes, took)
	ns, err := filterTime(r, pick(r, 1_000_000, 10_000))
	res.findings = append(res.findings, finding{"the filter's own part: microseconds per increment", "", none, none, ns / 1000})
	return res, err
}

// filterTime is the time in ns that the filter itself takes to check and insert a new id:
// the median over batches of 100, so that pauses by other work do not count.
func filterTime(r *run, n int) (float64, error) {
	f, err := newProduct(fbf.Options{Window: 120_000, Error: 1e-6, Capacity: uint64(n)})
	if err != nil {
		return 0, err
	}
	defer f.Release()
	rng := rand.New(rand.NewPCG(r.seed, 15))
	hs, present := make([]uint64, 100), make([]bool, 100)
	var took []time.Duration
	for i := 0; i < n; i += len(hs) {
		now := int64(i) * 120_000 / int64(n)
		if err := f.tick(now); err != nil {
			return 0, err
		}
		for j := range hs {
			hs[j] = rng.Uint64()
		}
		begin := time.Now()
		f.CheckAndInsertBatch(hs, now, present)
		took = append(took, time.Since(begin))
	}
	return float64(latencyAt(took, 0.5)) / float64(len(hs)), nil
}

// batchTimes sends batches of one size for a while, each way in turn so that a
// change of the machine's load meets all alike, and returns the times of each way.
func batchTimes(c *redis.Client, all []way, name string, size int, budget time.Duration) ([][]time.Duration, error) {
	took := make([][]time.Duration, len(all))
	begin := time.Now()
	for round := 0; round < batchWarmup+3 || time.Since(begin) < budget; round++ {
		for turn := range all {
			w := (turn + round) % len(all)
			d, err := sendBatch(c, all[w], name, size, round)
			if err != nil {
				return nil, err
			}
			if round >= batchWarmup {
				took[w] = append(took[w], d)
			}
		}
	}
	return took, nil
}

// sendBatch sends one batch as a pipeline, and waits for all of its replies.
func sendBatch(c *redis.Client, w way, name string, size, round int) (time.Duration, error) {
	ctx := context.Background()
	pipe := c.Pipeline()
	for i := range size {
		pipe.Do(ctx, w.increment(w.prefix+"batch:"+strconv.Itoa(i%counters), fmt.Sprintf("%s-%d-%d-%d", name[:1], size, round, i))...)
	}
	begin := time.Now()
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, fmt.Errorf("batch of %d: %w", size, err)
	}
	return time.Since(begin), nil
}

func latencyResult(all []way, sizes []int, took latencies) result {
	t := table{columns: []string{"batch", "batches", "p25_ms", "median_ms", "p75_ms", "p95_ms", "median_over_no_filter", "extra_us_per_increment"}}
	x := axis{label: "increments per batch (one pipeline)", log: true, min: 1, max: 1000}
	latency := panel{title: "Fig. 15: how long a batch takes with and without the filter", x: x, y: axis{label: "median latency (ms)", log: true}}
	ratio := panel{title: "Fig. 15: the same, relative to INCRBY", x: x, y: axis{label: "latency over that of INCRBY"},
		guides: []guide{{name: "within 10%, as the paper finds", at: 1.1}}}
	res := result{tables: []table{t}}
	for d, durability := range durabilities {
		for w := range all {
			line := series{name: all[w].name + ", " + durability, style: all[w].style}
			line.dashed = d > 0
			over := line
			for i, size := range sizes {
				median, plain := latencyAt(took[d][w][i], 0.5), latencyAt(took[d][0][i], 0.5)
				line.x, line.y = append(line.x, float64(size)), append(line.y, milli(median))
				over.x, over.y = line.x, append(over.y, float64(median)/float64(plain))
				res.tables[0].labels = append(res.tables[0].labels, line.name)
				res.tables[0].add(float64(size), float64(len(took[d][w][i])), milli(latencyAt(took[d][w][i], 0.25)), milli(median),
					milli(latencyAt(took[d][w][i], 0.75)), milli(latencyAt(took[d][w][i], 0.95)), over.y[i], 1000*milli(median-plain)/float64(size))
				if w == 1 && (size == 1 || size == 100 || size == 1000) {
					res.findings = append(res.findings, finding{fmt.Sprintf("batch of %d, appendfsync %s: latency with the filter (APPROX) over without",
						size, durability), "up to 1.1", none, none, over.y[i]})
				}
			}
			latency.series = append(latency.series, line)
			if w > 0 {
				ratio.series = append(ratio.series, over)
			}
		}
	}
	res.panels = []panel{latency, ratio}
	return res
}

func milli(d time.Duration) float64 { return float64(d) / 1e6 }
