package paper

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// batchWarmup is how many batches of a size go before those that count.
const batchWarmup = 5

// figure15 measures how long a batch of increments takes with and without the filter.
func figure15(r *run) (result, error) {
	sizes := pick(r, []int{1, 3, 10, 30, 100, 300, 1000}, []int{1, 100})
	budget := pick(r, 5*time.Second, 200*time.Millisecond)
	all := ways()
	took := make([][][]time.Duration, len(all)) // by way and size
	err := withServer(func(s *liveServer) error {
		c := s.client()
		defer c.Close()
		for i, size := range sizes {
			batches, err := batchTimes(c, all, size, budget)
			if err != nil {
				return err
			}
			for w := range all {
				took[w] = append(took[w], batches[w])
			}
			r.progress(float64(i+1) / float64(len(sizes)))
		}
		return nil
	})
	if err != nil {
		return result{}, err
	}
	return latencyResult(all, sizes, took), nil
}

// batchTimes sends batches of one size for a while, each way in turn so that a
// change of the machine's load meets all alike, and returns the times of each way.
func batchTimes(c *redis.Client, all []way, size int, budget time.Duration) ([][]time.Duration, error) {
	took := make([][]time.Duration, len(all))
	begin := time.Now()
	for round := 0; round < batchWarmup+3 || time.Since(begin) < budget; round++ {
		for turn := range all {
			w := (turn + round) % len(all)
			d, err := sendBatch(c, all[w], size, round)
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
func sendBatch(c *redis.Client, w way, size, round int) (time.Duration, error) {
	ctx := context.Background()
	pipe := c.Pipeline()
	for i := range size {
		pipe.Do(ctx, w.increment(w.prefix+"batch:"+strconv.Itoa(i%counters), fmt.Sprintf("b-%d-%d-%d", size, round, i))...)
	}
	begin := time.Now()
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, fmt.Errorf("batch of %d: %w", size, err)
	}
	return time.Since(begin), nil
}

func latencyResult(all []way, sizes []int, took [][][]time.Duration) result {
	t := table{columns: []string{"batch", "batches", "p25_ms", "median_ms", "p75_ms", "p95_ms", "median_over_no_filter"}}
	latency := panel{title: "Fig. 15: what the filter costs in the latency of a batch", x: axis{label: "increments per batch (one pipeline)", log: true},
		y: axis{label: "median latency (ms)", log: true}}
	ratio := panel{title: "the same, as a ratio", x: latency.x, y: axis{label: "latency over that of INCRBY", min: 0.5, max: 2},
		guides: []guide{{name: "within 10%, as the paper finds", at: 1.1}}}
	ms := func(d time.Duration) float64 { return float64(d) / 1e6 }
	for w := range all {
		var x, y, over []float64
		for i, size := range sizes {
			median := latencyAt(took[w][i], 0.5)
			plain := latencyAt(took[0][i], 0.5)
			x, y, over = append(x, float64(size)), append(y, ms(median)), append(over, float64(median)/float64(plain))
			t.labels = append(t.labels, all[w].name)
			t.add(float64(size), float64(len(took[w][i])), ms(latencyAt(took[w][i], 0.25)), ms(median), ms(latencyAt(took[w][i], 0.75)),
				ms(latencyAt(took[w][i], 0.95)), over[i])
		}
		latency.series = append(latency.series, series{all[w].name, x, y, all[w].style})
		if w > 0 {
			ratio.series = append(ratio.series, series{all[w].name, x, over, all[w].style})
		}
	}
	res := result{tables: []table{t}, panels: []panel{latency, ratio}}
	for i, size := range sizes {
		if size == 1 || size == 100 || size == 1000 {
			res.findings = append(res.findings, finding{fmt.Sprintf("batch of %d: latency with the filter (APPROX) over without", size),
				"up to 1.1", none, none, ratio.series[0].y[i]})
		}
	}
	return res
}
