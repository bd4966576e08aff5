package main

import (
	"github.com/fbfkv/fbfkv/fbf"
	reference "github.com/fbfkv/fbfkv/fbf/paper"
)

// The parameters of the paper's experiments. It prints them only in part; m and k
// follow from its numbers: with 150 operations in each of two periods the simple
// check's 4.4e-4 is (1-e^{-300k/m})^k and the optimised one's 3.8e-5 is about
// 2 (1-e^{-150k/m})^k, which m = 6250 and k = 5 fulfil.
const (
	paperBits   = 6250
	paperHashes = 5
)

// subject is a filter under a workload.
type subject interface {
	// tick does what falls due at logged time now, before the inserts of now.
	tick(now int64)
	// room does what must be done before one more insert.
	room(now int64)
	insert(h uint64, now int64)
	contains(h uint64) bool
	// promised is for how long, in ms, what is inserted now will be
	// recognised if the filter stays as it is.
	promised() float64
	bytes() uint64
	// effective is the false positive probability by the model.
	effective() float64
}

// published is the paper's filter, refreshed by time and, if control is set, resized by
// Algorithm 3.
type published struct {
	*reference.Filter
	added   []uint64 // ids per refresh period, newest first, one for each constituent
	period  int64    // t, ms
	next    int64    // time of the next refresh
	control *reference.Controller
	gentle  bool  // control decides at each refresh, not each controlEvery
	adapted int64 // time of the last decision of control
}

func newPublished(bits uint64, past int, period int64) *published {
	f := must(reference.New(bits, paperHashes, past))
	return &published{Filter: f, added: make([]uint64, past+2), period: period, next: period}
}

// controlEvery is how often Algorithm 3 decides, ms.
const controlEvery = 1000

func (p *published) tick(now int64) {
	refresh := now >= p.next
	if p.control != nil && (refresh || !p.gentle && now >= p.adapted+controlEvery) {
		p.adapt(now)
	}
	if refresh {
		p.Refresh()
		copy(p.added[1:], p.added)
		p.added[0] = 0
		p.next = now + p.period
	}
}

// adapt lets Algorithm 3 decide. A new period counts from the last refresh.
func (p *published) adapt(now int64) {
	p.adapted = now
	if !p.control.Adapt(p.effective()) {
		return
	}
	check(p.Resize(p.control.Filters - 2))
	for len(p.added) < p.control.Filters {
		p.added = append(p.added, 0)
	}
	p.added = p.added[:p.control.Filters]
	p.next += p.control.Period - p.period
	p.period = p.control.Period
}

func (p *published) insert(h uint64) {
	p.Insert(h)
	p.added[0]++
}

func (p *published) effective() float64 { return reference.FPPOptimized(p.added, p.Bits(), p.Hashes()) }

// fleetSize is the number of filters in a fleet, and how many times the paper's
// operations a subject is given. The paper's filter is too small to be measured well alone,
// and its operations are fewer than our filter's smallest size (8 KiB) is made for.
const fleetSize = 64

// fleet is many filters of the paper's, each with an equal share of the operations. Its
// false positive probability is the mean of theirs. The low bits of an id choose
// the filter.
type fleet []*published

// newFleet makes n filters; n is a power of two up to fleetSize.
func newFleet(n int, bits uint64, past int, period int64) fleet {
	var all fleet
	for range n {
		all = append(all, newPublished(bits, past, period))
	}
	return all
}

// adaptive lets each filter be resized by a copy of c.
func (f fleet) adaptive(c reference.Controller, gentle bool) fleet {
	for _, p := range f {
		own := c
		p.control, p.gentle = &own, gentle
	}
	return f
}

func (f fleet) of(h uint64) *published { return f[h%uint64(len(f))] }

func (f fleet) tick(now int64) {
	for _, p := range f {
		p.tick(now)
	}
}

func (f fleet) room(int64)                   {}
func (f fleet) insert(h uint64, _ int64)     { f.of(h).insert(h) }
func (f fleet) contains(h uint64) bool       { return f.of(h).Contains(h) }
func (f fleet) containsSimple(h uint64) bool { return f.of(h).ContainsSimple(h) }

func (f fleet) promised() float64 {
	return f.mean(func(p *published) float64 { return float64(p.Past()+1) * float64(p.period) })
}

func (f fleet) effective() float64 { return f.mean((*published).effective) }

func (f fleet) bytes() uint64 {
	var n uint64
	for _, p := range f {
		n += p.Bytes()
	}
	return n
}

// fleetBits is m times the constituents of all filters, without the padding to whole words.
func (f fleet) fleetBits() uint64 { return uint64(len(f)*(f[0].Past()+2)) * f[0].Bits() }

// mean is the mean of a figure over the filters.
func (f fleet) mean(of func(p *published) float64) float64 {
	sum := 0.0
	for _, p := range f {
		sum += of(p)
	}
	return sum / float64(len(f))
}

// product is our filter with its own controller.
type product struct{ *fbf.Filter }

func newProduct(o fbf.Options) *product {
	f := must(fbf.New(o, 0))
	return &product{f}
}

func (p *product) tick(now int64) {
	if !p.Due(now) {
		return
	}
	for {
		e, ok := p.Plan(now, func(uint64) bool { return true })
		if !ok {
			return
		}
		check(p.Apply(e))
	}
}

func (p *product) room(now int64)             { p.tick(now) }
func (p *product) insert(h uint64, now int64) { p.Insert(h, now) }
func (p *product) contains(h uint64) bool     { return p.Contains(h) }
func (p *product) promised() float64          { return float64(p.Options().Window) }
func (p *product) bytes() uint64              { return p.Bytes() }
func (p *product) effective() float64         { return p.EffectiveFPP() }

// withinMemory returns options for n ids in a window within the given memory,
// with the lowest target that fits, and no growth beyond.
func withinMemory(window int64, n uint64, memory uint64) fbf.Options {
	o := fbf.Options{Window: window, Capacity: n, Overload: fbf.Degrade}
	low, high := -15.0, -0.31 // decimal exponents of fbf.MinError and nearly MaxError
	for range 60 {
		mid := (low + high) / 2
		o.Error = pow10(mid)
		if o.InitialBytes() <= memory {
			high = mid
		} else {
			low = mid
		}
	}
	o.Error, o.MaxMemory = pow10(high), max(memory, fbf.MinMemory)
	return o
}
