package main

import (
	"math"
	"math/rand/v2"
)

// tickMs is the step of a simulation in ms of logged time.
const tickMs = 10

// workload is a rate of new operations over time.
type workload struct {
	rate func(ms int64) float64 // operations per second
	end  int64                  // ms
}

// source makes ids. Their low bits count, so that the filters of a fleet
// get the same number of operations each.
type source struct {
	rng *rand.Rand
	n   uint64
}

func (s *source) next() uint64 {
	s.n++
	return s.rng.Uint64()&^(fleetSize-1) | s.n%fleetSize
}

// drive runs the workload, scale times over, through a subject. Each new operation goes to
// operation, which decides whether it is inserted. sample comes at the end of
// each so many ms.
func (w workload) drive(s subject, rng *rand.Rand, scale int, operation func(h uint64, now int64), every int64, sample func(now int64)) {
	ids := source{rng: rng}
	owed := 0.0
	for now := int64(0); now < w.end; now += tickMs {
		s.tick(now)
		for owed += float64(scale) * w.rate(now) * tickMs / 1000; owed >= 1; owed-- {
			s.room(now)
			operation(ids.next(), now)
		}
		if (now+tickMs)%every == 0 {
			sample(now + tickMs)
		}
	}
}

// fill inserts n ids evenly over the time up to end.
func fill(s subject, rng *rand.Rand, n int, end int64) {
	ids := source{rng: rng}
	for i := range n {
		now := int64(float64(end) * float64(i) / float64(n))
		s.tick(now)
		s.insert(ids.next(), now)
	}
}

// sampled is what was seen of a subject over time.
type sampled struct {
	seconds  []float64
	model    []float64 // false positive probability by the model
	got      []float64 // measured, NaN where it was not probed or too small to tell
	bytes    []float64 // divided by the scale
	promised []float64 // seconds
}

// plan says when a subject is sampled and how hard it is probed.
type plan struct {
	every       int64 // ms between samples
	probeEvery  int   // samples between measurements
	want, limit int   // as in measure
}

// add samples a subject at logged time now.
func (o *sampled) add(s subject, rng *rand.Rand, scale int, p plan, now int64) {
	o.seconds = append(o.seconds, float64(now)/1000)
	o.model = append(o.model, s.effective())
	o.bytes = append(o.bytes, float64(s.bytes())/float64(scale))
	o.promised = append(o.promised, s.promised()/1000)
	value := none
	if len(o.seconds)%p.probeEvery == 0 {
		value = measure(rng, s.contains, p.want, p.limit).value()
	}
	o.got = append(o.got, value)
}

// watch runs a workload through a subject that inserts everything, and samples it.
func (w workload) watch(s subject, rng *rand.Rand, scale int, p plan) sampled {
	var out sampled
	w.drive(s, rng, scale, s.insert, p.every, func(now int64) {
		out.add(s, rng, scale, p, now)
	})
	return out
}

func pow10(x float64) float64 { return math.Pow(10, x) }

// must returns what was made. Its parameters are of this package's own: that it fails is a defect.
func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// estimate is a false positive probability measured by probes with new ids.
type estimate struct{ hits, probes int }

// measure probes with random ids, which have not been inserted, until want of
// them are taken for known, or for limit probes.
func measure(rng *rand.Rand, contains func(h uint64) bool, want, limit int) estimate {
	var e estimate
	for e.hits < want && e.probes < limit {
		e.probes++
		if contains(rng.Uint64()) {
			e.hits++
		}
	}
	return e
}

// fewest is the number of hits below which an estimate is not worth drawing: its
// standard error exceeds a quarter of it.
const fewest = 16

// value is the probability, or NaN if there were too few hits to tell.
func (e estimate) value() float64 {
	if e.hits < fewest {
		return none
	}
	return float64(e.hits) / float64(e.probes)
}

// stderr is the standard error of value.
func (e estimate) stderr() float64 {
	return math.Sqrt(float64(e.hits)) / float64(max(1, e.probes))
}
