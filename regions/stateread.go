package regions

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fbfkv/fbfkv/store"
	"github.com/fbfkv/fbfkv/store/part"
)

// A reading whose log does not reach back takes the state instead, page by page, between the requests
// for the logs of the others, and then goes on with the log. Where it is, memory knows; after a failure of
// the link it goes on there, after a crash it begins again.

// stateMost is about how many bytes a page has.
const stateMost = 1 << 20

// stateReading is a state that is being taken.
type stateReading struct {
	seq  uint64
	at   []byte
	says string // how far it is
}

func (x *stateReading) beginAgain() { *x = stateReading{says: "keys 0%"} }

// acquainted are the regions that have answered this one as a member. A region that has taken nothing
// yet may not take a state before all have: one that does not know it would forget a dead key that
// another one still tells it of. Safe for concurrent use.
type acquainted struct {
	mu sync.Mutex
	// known says of each shard of a region whether it has answered.
	known map[part.Region]map[uint16]bool
}

// expect notes which shards a region has.
func (a *acquainted) expect(r part.Region, shards []Shard) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known == nil {
		a.known = make(map[part.Region]map[uint16]bool)
	}
	if a.known[r] == nil {
		a.known[r] = make(map[uint16]bool)
	}
	for i := range shards {
		first := shards[i].first()
		a.known[r][first] = a.known[r][first]
	}
}

// answered notes that a shard has answered, which is expected.
func (a *acquainted) answered(r part.Region, first uint16) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known[r][first] = true
}

// forget forgets what is known of a region.
func (a *acquainted) forget(r part.Region) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.known, r)
}

// whole reports whether all of a region has answered.
func (a *acquainted) whole(r part.Region) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.has(r)
}

// has reports whether all of a region has answered. The lock is held.
func (a *acquainted) has(r part.Region) bool {
	for _, known := range a.known[r] {
		if !known {
			return false
		}
	}
	return len(a.known[r]) > 0
}

// waitsFor returns a member that has not answered; false if there is none.
func (a *acquainted) waitsFor(s *store.Store) (m store.RegionMember, waits bool) {
	set, _ := s.Regions()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range set.Members {
		if m.Region != set.Self && !m.Gone && !a.has(m.Region) {
			return m, true
		}
	}
	return m, false
}

// gap lets a reading take the state, and reports whether it did not do so before. The lock is held.
func (r *reading) gap() bool {
	if r.state != nil {
		return false
	}
	r.state, r.err, r.fails, r.gaps = new(stateReading), nil, 0, 0
	r.state.beginAgain()
	return true
}

// dueState is a page to be asked for.
type dueState struct {
	*reading
	store.StateQuery
}

// dueStates returns the pages to be asked for now, as many as are taken at the same time.
func (p *peer) dueStates(m membership) (due []dueState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for i := range p.readings {
		i = (p.nextState + i) % len(p.readings)
		r := p.readings[i]
		if r.state == nil || r.until.After(now) {
			continue
		}
		if len(due) == p.opts.Takers {
			p.nextState = i
			break
		}
		due = append(due, dueState{r, store.StateQuery{Pull: store.Pull{
			By: m.self, Group: m.group, Incarnation: m.Incarnation, Partition: r.Source.Partition,
			First: r.First, Last: r.Last, Most: min(p.opts.Most, stateMost),
		}, Of: p.region, Seq: r.state.seq, At: r.state.at}})
	}
	return due
}

// readStates takes pages of states, if there are any to be taken now.
func (p *peer) readStates(l *link, m membership) (asked bool, err error) {
	due := p.dueStates(m)
	if len(due) == 0 {
		return false, nil
	}
	if p.opts.Store.Newcomer() {
		if o, waits := p.acquainted.waitsFor(p.opts.Store); waits {
			p.postpone(due, fmt.Errorf("region %q has not answered this one as a member", o.Name))
			return false, nil
		}
	}
	for i := range due {
		writeState(&l.w, &due[i].StateQuery)
	}
	if err := l.send(p.opts.Timeout); err != nil {
		return false, err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for i := range due {
		before := l.bytes
		page, failed, err := l.string(min(p.opts.Most, stateMost) + maxSection)
		if err == nil {
			err = l.SetDeadline(time.Now().Add(p.opts.Timeout))
		}
		if err != nil {
			return false, err
		}
		bytes := l.bytes - before
		wg.Go(func() { p.takeState(due[i].reading, page, failed, bytes) })
	}
	return true, nil
}

// takeState hands the store a page, or notes why there is none.
func (p *peer) takeState(r *reading, page []byte, failed error, bytes uint64) {
	var taken store.Taken
	again := errors.Is(failed, ErrRefused) // else the same page may be asked for later
	if failed == nil {
		taken, failed = p.opts.Store.Take(page)
		again = true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status.Bytes += bytes
	state := taken.State
	if failed == nil && (taken.RegionSource != r.Source || state == nil || state.Of != p.region) {
		failed = fmt.Errorf("%w: the state of partition %d of region %d", ErrAnswer, taken.Partition,
			taken.Region)
	}
	if failed != nil {
		if again {
			r.state.beginAgain()
		}
		if !slices.ContainsFunc(p.readings, func(o *reading) bool { return o.err != nil }) && !p.over() {
			p.opts.Logger.Warn("the state of another region cannot be fetched", "region", p.region, "address",
				p.address, "error", failed)
		}
		p.settleOne(r, failed)
		return
	}
	r.err, r.fails = nil, 0
	if r.state.seq, r.state.at, r.state.says = state.Seq, state.Next, state.Done; state.Next == nil {
		r.state, r.taken, r.newest = nil, taken.Seq, max(r.newest, taken.Seq)
		p.status.StateExchanges++
	}
}

// postpone lets states wait until others know this region.
func (p *peer) postpone(due []dueState, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range due {
		d.err = why
		d.until = time.Now().Add(p.opts.delay(min(d.fails, 3)))
		d.fails++
		p.status.LastError, p.status.LastErrorAt = why.Error(), time.Now()
	}
}

// settleOne notes that a reading waits after a failure. The lock is held.
func (p *peer) settleOne(r *reading, err error) {
	fails := r.fails
	switch {
	case errors.Is(err, ErrRefused):
		fails = 64 // time alone does not mend it
	case errors.Is(err, store.ErrEra):
		fails = 0 // this region follows as soon as it has heard what is new
	}
	if p.opts.doubt != nil {
		p.opts.doubt(err)
	}
	r.err = err
	r.until = time.Now().Add(p.opts.delay(fails))
	p.status.LastError, p.status.LastErrorAt = err.Error(), time.Now()
	r.fails++
}
