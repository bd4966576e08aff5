package regions

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fbfkv/fbfkv/store"
	"github.com/fbfkv/fbfkv/store/part"
)

// What a session reads: which logs, from where on, and what becomes of the answers.

// membership is what a request says of both sides. A session ends when it changes.
type membership struct {
	group uint64
	self  part.Region
	store.RegionMember
}

// member returns also the version of the members.
func (p *peer) member() (membership, uint64, error) {
	set, ok := p.opts.Store.Regions()
	if !ok {
		return membership{}, 0, store.ErrNoRegions
	}
	m, ok := set.Member(p.region)
	if !ok || m.Gone {
		return membership{}, 0, fmt.Errorf("%w: region %d is no member", ErrRefused, p.region)
	}
	return membership{set.Group, set.Self, m}, set.Version, nil
}

// learn asks a source that has told a higher version than the own, or has refused this region, for
// the members, and reports whether they are newer.
func (p *peer) learn(l *link, m membership, own, told uint64) (newer bool, err error) {
	if p.opts.learn == nil {
		return false, nil
	}
	writeMembers(&l.w, m.group, m.self)
	if err := l.send(p.opts.Timeout); err != nil {
		return false, err
	}
	set, err := l.members()
	switch {
	case err != nil:
		return false, err
	case set.Version < told:
		return false, fmt.Errorf("%w: version %d of the members, and %d was told", ErrAnswer, set.Version,
			told)
	case set.Version <= own:
		return false, nil
	}
	return true, p.opts.learn(set)
}

// plan makes the readings, unless they are what they should be.
func (p *peer) plan() error {
	ranges, err := p.opts.Store.PullRanges(p.region)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	ranges = slices.DeleteFunc(ranges, func(r store.PullRange) bool {
		return !p.shard.has(r.Source.Partition)
	})
	if slices.EqualFunc(p.readings, ranges,
		func(r *reading, o store.PullRange) bool { return r.PullRange == o }) {
		return nil
	}
	p.readings = nil
	for _, r := range ranges {
		p.readings = append(p.readings, &reading{PullRange: r, fresh: p.began})
	}
	return nil
}

// request returns what is asked next: all readings but those that wait after a failure. If all
// wait, it has none, and d is for how long.
func (p *peer) request(m membership) (q *Request, d time.Duration, err error) {
	q = &Request{Group: m.group, By: m.self, Incarnation: m.Incarnation, Most: p.opts.Most}
	at := make([]Range, len(p.readings)) // not under the lock: the store may be waiting for its disk
	for i, r := range p.readings {
		after, acked, err := p.opts.Store.TakenOf(r.Own, r.Source)
		if err != nil {
			return nil, 0, err
		}
		at[i] = Range{r.Source.Partition, r.First, r.Last, after, 0, acked}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	d = p.opts.Block
	for i, r := range p.readings {
		r.taken, r.newest = at[i].After, max(at[i].After, r.newest)
		if wait := r.until.Sub(now); wait > 0 || r.state != nil {
			d = max(min(d, wait), 0)
			continue
		}
		q.Ranges = append(q.Ranges, at[i])
	}
	q.Block = max(d.Truncate(time.Millisecond), time.Millisecond)
	return q, q.Block, nil
}

// reading returns that which begins with a slot.
func (p *peer) reading(first uint16) *reading {
	i, _ := slices.BinarySearchFunc(p.readings, first, func(r *reading, first uint16) int {
		return cmp.Compare(r.First, first)
	})
	return p.readings[i]
}

// answered notes what an answer that arrived at a time says beside its data.
func (p *peer) answered(q *Request, h head, now int64, answers []answer, bytes uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.acquainted.answered(p.region, p.first)
	p.status.Connected, p.status.LastAnswer = true, time.Now()
	p.status.ClockSkewMs, p.status.Version = h.clock-now, h.version
	p.excused = false
	p.status.Pulls++
	p.status.Bytes += bytes
	if p.linkErr = nil; p.noted != "" {
		p.opts.Logger.Info("another region is read again", "region", p.name(), "address", p.at)
		p.noted = ""
	}
	follows := make(map[uint16]bool, len(answers))
	for _, a := range answers {
		r := p.reading(a.first)
		follows[a.first], r.newest = true, max(a.newest, r.taken)
	}
	for _, asked := range q.Ranges {
		if r := p.reading(asked.First); !follows[asked.First] {
			r.newest, r.fresh = r.taken, now
			r.err, r.fails = nil, 0
		}
	}
}

// take hands the store what was answered, and reports whether that has changed anything at all: what
// changes nothing must not be asked for again at once.
func (p *peer) take(q *Request, answers []answer, now int64) bool {
	after := make(map[uint16]uint64, len(q.Ranges))
	for _, r := range q.Ranges {
		after[r.First] = r.After
	}
	var wg sync.WaitGroup
	var told []answer // with data or errors
	errs := make([]error, len(answers))
	takers := make(chan struct{}, p.opts.Takers)
	for _, a := range answers {
		i := len(told)
		switch {
		case a.err != "":
			errs[i] = errorOf(a.err)
		case a.data == nil:
			continue
		default:
			takers <- struct{}{}
			wg.Go(func() {
				errs[i] = p.takeOne(a, after[a.first], now)
				<-takers
			})
		}
		told = append(told, a)
	}
	wg.Wait()
	p.settle(told, errs)
	return len(told) > 0 || len(answers) == 0
}

// takeOne takes what was answered of one reading, at a time.
func (p *peer) takeOne(a answer, after uint64, now int64) error {
	taken, err := p.opts.Store.Take(a.data)
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.reading(a.first)
	switch {
	case err != nil:
		return err
	case taken.RegionSource != r.Source || taken.Seq <= after:
		return fmt.Errorf("%w: it ends at %d of partition %d of region %d", ErrAnswer, taken.Seq,
			taken.Partition, taken.Region)
	}
	r.taken, r.newest = taken.Seq, max(r.newest, taken.Seq)
	switch {
	case r.newest == r.taken:
		r.fresh = now
	case taken.Wall > 0:
		r.fresh = max(r.fresh, now-(taken.Clock-taken.Wall))
	}
	return nil
}

// settle notes which readings go on, and which wait.
func (p *peer) settle(told []answer, errs []error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	count, gaps, first := 0, 0, error(nil)
	for i, a := range told {
		r, err := p.reading(a.first), errs[i]
		if isGap(err) {
			if r.gaps++; r.gaps < len(p.nodes) {
				p.elsewhere = true // another node may have kept more of its log
			} else if r.gap() {
				gaps++
			}
			continue
		}
		if err == nil {
			r.err, r.fails, r.gaps = nil, 0, 0
			continue
		}
		if p.settleOne(r, err); r.fails == 1 {
			if count++; first == nil {
				first = err
			}
		}
	}
	if gaps > 0 {
		p.opts.Logger.Info("the log of another region does not reach back far enough: this server fetches "+
			"the state instead", "region", p.region,
			"address", p.address, "ranges", gaps)
	}
	if count > 0 && !p.over() {
		p.opts.Logger.Warn("partitions of another region cannot be read", "region", p.name(), "address",
			p.address,
			"ranges", count, "error", first)
	}
}
