package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/fbfkv/fbfkv/tools/process"
)

// quiet takes measurements again during which the hypervisor gave much of this machine's processor time
// to others ("steal" in /proc/stat). Such a measurement says how busy others were: two servers in
// turn do not get the same processors, and a thread that is stopped in the middle of its work holds up
// all that wait for it.
type quiet struct {
	maxSteal float64       // the share of the processor time from which on it is
	retries  int           // how often at most
	patience time.Duration // how long to wait before them, in all
	// how many measurements were taken, how many of them again, and how many were disturbed nevertheless
	taken, repeated, loud int
}

// disturbed is a measurement that knows what share of the machine's processor time others had meanwhile.
type disturbed interface{ stolen() float64 }

func (r *Result) stolen() float64    { return r.Steal }
func (r *Result) serverCPU() float64 { return r.ServerCPU }
func (c crash) stolen() float64      { return c.steal }

func newQuiet() quiet { return quiet{maxSteal: showSteal, retries: 6, patience: 10 * time.Minute} }

// addFlags adds the flags to set it.
func (q *quiet) addFlags(f *flag.FlagSet) {
	f.Float64Var(&q.maxSteal, "max-steal", q.maxSteal, "measure again when the hypervisor gave a larger share of the "+
		"processor time to\nothers; the least disturbed measurement counts")
	f.IntVar(&q.retries, "retries", q.retries, "how often at most, each time")
}

// pause is by how much the wait before each further retry is longer: what disturbs,
// another's work or a quota that is used up, often lasts for seconds.
const pause = 2 * time.Second

// takeQuiet measures, and measures again while it was disturbed. It returns the least disturbed measurement.
func takeQuiet[T disturbed](ctx context.Context, q *quiet, measure func() T) (best T) {
	q.taken++
	least := 2.0
	for try := range 1 + q.retries {
		d := min(time.Duration(try)*pause, q.patience)
		q.patience -= d
		process.Sleep(ctx, d)
		process.Check(ctx.Err())
		m := measure()
		if steal := m.stolen(); steal < least {
			best, least = m, steal
		}
		if least <= q.maxSteal {
			return best
		}
		if try == 0 && q.retries > 0 {
			q.repeated++
		}
	}
	q.loud++
	return best
}

// run runs a load.
func (q *quiet) run(ctx context.Context, o options) *Result {
	return takeQuiet(ctx, q, func() *Result { return process.Must(runClean(ctx, o)) })
}

// runClean runs a load; error replies are an error.
func runClean(ctx context.Context, o options) (*Result, error) {
	r, err := send(ctx, o)
	if err == nil && len(r.errors) > 0 {
		err = fmt.Errorf("%s on %s: error replies: %v, the first: %s", r.Workload, r.Target, r.errors, r.first)
	}
	return r, err
}

// print says what was disturbed, if anything was.
func (q *quiet) print(out io.Writer) {
	if q.repeated > 0 || q.loud > 0 {
		fmt.Fprintf(out, "\nThe hypervisor gave more than %.3g %% of the processor time to others during %d of %d "+
			"measurements; %d were taken again, %d stayed disturbed.\n",
			100*q.maxSteal, max(q.repeated, q.loud), q.taken, q.repeated, q.loud)
	}
}

// watchSteal returns what tells the share of the processor time that others had from
// now on; 0 if this system does not say.
func watchSteal() (share func() float64) {
	all, steal := processorTime()
	return func() float64 {
		all2, steal2 := processorTime()
		return divide(steal2-steal, all2-all)
	}
}

// processorTime is what this machine's processors have done since it started, in ticks of the system: in all, and what of
// it the hypervisor let others have.
func processorTime() (all, steal float64) {
	b, _ := os.ReadFile("/proc/stat")
	// cpu user nice system idle iowait irq softirq steal, and guests, which are part of user and nice.
	var t [8]float64
	if _, err := fmt.Sscanf(string(b), "cpu %f %f %f %f %f %f %f %f", &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], &t[6], &t[7]); err != nil {
		return 0, 0
	}
	for _, v := range t {
		all += v
	}
	return all, t[7]
}
