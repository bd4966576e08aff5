package regions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// While a source has much to tell, and all goes well, a session keeps some requests under way, so
// that the source need not wait for the next one to arrive. The first one says where each reading
// is; the others are REGION.PULL NEXT. They are answered in order, so none waits long: neither
// acknowledgements nor other requests may come late. If something fails, the session ends, and the
// next one begins with a request that others may follow.

const (
	// A source that has much to tell answers so often in a round trip, but not more and not less
	// often than these: each answer costs the header of each range.
	inRoundTrip = 4
	leastEvery  = 5 * time.Millisecond
	mostEvery   = 25 * time.Millisecond
	// underWay is how many requests there are at most: with what takes time beside the way, there
	// is always one to be answered.
	underWay = inRoundTrip + 2
)

// ahead are the requests that are under way on a link.
type ahead struct {
	*link
	m     membership
	q     *Request      // that others follow; its ranges are where the readings are
	n     int           // requests without an answer
	every time.Duration // see next
	well  bool          // the last answer is no reason to ask one by one
	// since is when the source could begin to wait for its next news, as far as is known here.
	since  time.Time
	acked  int   // so many answers are to come before the source knows of q what is acknowledged
	behind int64 // own clock less the source's when an answer arrived that was waited for, ms
}

// errAfresh ends a session with requests under way that must not be answered any more.
var errAfresh = errors.New("the region is asked afresh")

// ask sends a request that others may follow, unless all readings wait.
func (p *peer) ask(ctx context.Context, a *ahead, version uint64) error {
	if err := p.learnTables(a.link, &a.m); err != nil {
		return err
	}
	asked, err := p.readStates(a.link, a.m)
	if err != nil {
		return err
	}
	q, wait, err := p.request(a.m)
	if err != nil {
		return err
	}
	if len(q.Ranges) == 0 {
		// Without ranges no answer tells a version, and the session may wait for others' addresses.
		if _, err := p.learn(a.link, a.m, version, 0); err != nil || asked {
			return err
		}
		p.rest(ctx, wait)
		_, err := p.learn(a.link, a.m, version, 0) // perhaps that is what all wait for
		return err
	}
	if a.since.IsZero() {
		q.Block = time.Millisecond // so that we learn at once that it answers
	}
	for i := range q.Ranges { // those that follow go on behind what the source has just told
		to := &q.Ranges[i]
		r := p.reading(to.First)
		to.Code = p.opts.Store.CodeOf(r.Own, r.Source, to.After)
	}
	q.write(&a.w)
	a.q, a.n, a.acked, a.since = q, 1, 0, time.Now()
	return a.send(q.Block + p.opts.Timeout)
}

// hear takes the next answer, and asks for more.
func (p *peer) hear(ctx context.Context, a *ahead, version uint64) error {
	if err := a.SetDeadline(time.Now().Add(p.opts.Block + p.opts.Timeout)); err != nil {
		return err
	}
	before, began := a.bytes, time.Now()
	h, answers, err := a.read(a.q)
	a.n, a.acked = a.n-1, a.acked-1
	if errors.Is(err, ErrRefused) && a.n > 0 {
		return errAfresh
	}
	if a.n == 0 && (errors.Is(err, ErrRefused) || err == nil && h.version > version) {
		newer, failed := p.learn(a.link, a.m, version, h.version)
		if failed != nil {
			err = failed
		} else if newer && err != nil {
			err = errChanged
		}
	}
	if err != nil {
		return err
	}
	waited := time.Since(a.since)
	a.since, a.well = time.Now(), len(answers) > 0 && h.version <= version
	at := a.arrived(h.clock, p.opts.now(), a.n == 0 || time.Since(began) > time.Millisecond)
	p.answered(a.q, h, at, answers, a.bytes-before)
	if len(answers) == 0 && waited < a.q.Block/2 {
		p.rest(ctx, p.opts.delay(0)) // it does not wait: then we do
	}
	if !p.take(a.q, answers, at) {
		return fmt.Errorf("%w: no range that follows", ErrAnswer)
	}
	if p.gapHere() {
		return errElsewhere
	}
	switch {
	case a.n == 0 || a.learnt.IsZero():
		if err := p.learnAgain(a.link, &a.m); err != nil {
			return err
		}
	case time.Since(a.learnt) > p.opts.learnPeriod:
		a.well = false // first all that is under way must be answered
	}
	if p.tablesDue(a.link) {
		a.well = false // the same, and then a request that begins anew
	}
	return p.askOn(a)
}

// arrived returns when an answer arrived, by the own clock, if it was read so late that it may have
// waited for that.
func (a *ahead) arrived(clock, now int64, inTime bool) int64 {
	if inTime {
		a.behind = now - clock
	}
	return min(now, clock+a.behind)
}

// askOn sends requests that follow those that are under way, if all readings go on.
func (p *peer) askOn(a *ahead) error {
	if a.n == 0 && !a.well {
		return nil
	}
	p.follow(a.q)
	q, _, err := p.request(a.m)
	if err != nil {
		return err
	}
	goesOn := len(q.Ranges) == len(p.readings) &&
		slices.EqualFunc(q.Ranges, a.q.Ranges, func(now, before Range) bool {
			now.Acked = before.Acked
			return now == before
		})
	switch {
	case !goesOn && a.n > 0:
		return errAfresh
	case !goesOn || !a.well:
		return nil
	}
	n := next{block: min(q.Block, p.opts.soon).Truncate(time.Millisecond),
		every: a.every.Truncate(time.Millisecond)}
	if a.acked <= 0 && !slices.Equal(q.Ranges, a.q.Ranges) { // this is under way once
		for _, r := range q.Ranges {
			n.acked = append(n.acked, r.Acked)
		}
		a.q, a.acked = q, a.n+1
	}
	for a.q.Block = n.block; a.n < underWay; a.n++ {
		n.write(&a.w)
		n.acked = nil
	}
	return a.send(p.opts.Block + p.opts.Timeout)
}

// follow moves the ranges of a request behind the part that was taken of them.
func (p *peer) follow(q *Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range q.Ranges {
		q.Ranges[i].After, q.Ranges[i].Code = p.reading(q.Ranges[i].First).taken, 0
	}
}
