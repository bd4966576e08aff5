package regions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
	"github.com/fbfkv/fbfkv/store/part"
)

// REGION.PULL DIGEST, and its caller: a look compares the data of this region with the data of each
// other one.

// wordDigest begins the arguments of a request for a digest.
const wordDigest = "DIGEST"

const (
	digestArgs = 8
	// maxDigest bounds a digest, bytes: 1024 sums with clocks, and how far the logs of 15 regions,
	// of 1024 partitions, were taken.
	maxDigest = 1 << 20
	// verifyRounds is how often slots that are being changed are tried again at most.
	verifyRounds = 12
	// maxFails is how many digests may fail until the rest is given up.
	maxFails = 5
	// A digest costs about 1.3 µs of a processor for each key (BenchmarkDigest in store). Nobody
	// waits for a look that the Mesh takes by itself: it tries less often, and rests after each
	// digest, up to maxRest, for lookRest times as long as that took here, so that it takes little
	// of a processor here and there.
	lookRounds = 3
	lookRest   = 9
	maxRest    = 30 * time.Second
	// groupSlots is how many slots are compared together at first, and fineSlots how many are asked
	// for at once by buckets: to read few keys takes a short time, in which few of them change.
	groupSlots = store.DigestSlots
	fineSlots  = 16 * groupSlots
	// expiryMargin is how far ahead of the clock here keys that expire are left out: another
	// region's, by which it deletes them, may be ahead.
	expiryMargin = 10 * time.Second
	// verifyTimeout is how long a digest may take, by Options.Timeout: it reads all keys.
	verifyTimeout = 20
)

// ErrBusy: some keys could not be compared, since they were being changed all the time, or their
// changes had not been taken yet.
var ErrBusy = errors.New("keys that clients were changing could not be compared: run it again, or see " +
	"fbfkv region status of both")

// ErrLevelling: the same, and that lasts until a removal is at its end.
var ErrLevelling = errors.New("a region was removed, and some regions still lack operations of it that " +
	"others have: see fbfkv region status")

// ErrPaused: the same, and this region does not read the other one until that is resumed.
var ErrPaused = errors.New("it is not read until fbfkv region resume")

// Difference is slots in which this region and another one have not got the same.
type Difference struct {
	Region part.Region
	store.SlotRange
	// Err is why they, or some keys of them, could not be compared: ErrBusy, ErrLevelling,
	// ErrPaused, or what kept the region from being asked, or this one from being read (errHere).
	// nil: they differ.
	Err error
}

// parseDigest reads the arguments behind the word. The text of its errors is the reply.
func parseDigest(args [][]byte) (q store.DigestQuery, err error) {
	if len(args) != digestArgs {
		return q, errArguments
	}
	a := numbers{rest: args}
	q.Group, q.By, q.Incarnation = a.next("group", 0, 1<<64-1),
		part.Region(a.next("region", 0, part.MaxRegions-1)), a.next("incarnation", 0, 1<<64-1)
	q.Partition, q.First, q.Last = a.slot("partition"), a.slot("first slot"), a.slot("last slot")
	q.Fine, q.At = a.next("1 for buckets", 0, 1) == 1, int64(a.next("time", 0, math.MaxInt64))
	return q, a.err
}

// writeDigest appends a request as a client sends it.
func writeDigest(w *resp.Writer, q *store.DigestQuery) {
	fine := uint64(0)
	if q.Fine {
		fine = 1
	}
	w.Array(2 + digestArgs)
	w.BulkString(Command)
	w.BulkString(wordDigest)
	for _, n := range []uint64{q.Group, uint64(q.By), q.Incarnation, uint64(q.Partition), uint64(q.First),
		uint64(q.Last), fine, uint64(q.At)} {
		w.BulkString(strconv.FormatUint(n, 10))
	}
}

// errHere: it is this region that cannot be read.
var errHere = errors.New("the counters here cannot be read")

// digest answers a request for a digest, unless ctx ends before.
func (s *Source) digest(ctx context.Context, args [][]byte, w *resp.Writer) {
	q, err := parseDigest(args)
	if err == nil && !s.leads() { // which may have taken more than it has logged
		err = errNotLeader
	}
	if err == nil {
		var digest []byte
		if digest, err = s.Store.Digest(ctx, q); err == nil {
			w.Bulk(digest)
			return
		}
	}
	w.Error(replyOf(err))
}

// Verify compares this region with all that it reads, each over a connection of its own, and returns where
// they differ, or could not be compared. One that cannot be asked does not keep it from comparing the others.
func (m *Mesh) Verify(ctx context.Context) (all []Difference, err error) {
	err = m.look(ctx, nil, func(o *outcome) {
		all = append(all, o.differences()...)
		m.note(o, nil)
	})
	return all, err
}

// look compares this region with the other regions in only, gently; if only is nil, with all that
// it reads, at once. It tells of each when it is done.
func (m *Mesh) look(ctx context.Context, only map[part.Region]bool, tell func(*outcome)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(m.ctx, cancel)()
	m.mu.Lock()
	if m.ctx.Err() != nil {
		m.mu.Unlock()
		return net.ErrClosed
	}
	peers := make([]*peer, 0, len(m.peers))
	for k, p := range m.peers {
		if k.first == 0 && (only == nil || only[k.region]) {
			peers = append(peers, p)
		}
	}
	m.wg.Add(1)
	m.mu.Unlock()
	defer m.wg.Done()
	slices.SortFunc(peers, func(a, b *peer) int { return int(a.region) - int(b.region) })
	for _, p := range peers {
		o := &outcome{region: p.region, began: time.Now()}
		if err := p.verify(ctx, only != nil, o); err != nil {
			if o.why = err; !errors.Is(err, errHere) {
				o.why = fmt.Errorf("it cannot be asked at %s: %w", p.address, err)
			}
		}
		if ctx.Err() != nil {
			break
		}
		tell(o)
	}
	return ctx.Err()
}

// piece is slots that are compared at once.
type piece struct {
	store.SlotRange
	partition uint16 // of the other region
	fine      bool   // by buckets
}

// open is what is still to be compared.
type open struct {
	ranges  []store.PullRange
	of      [digestGroups]int // the range that a group is in
	left    *buckets
	suspect buckets // of these: what differed when it was looked at before
}

func newOpen(ranges []store.PullRange, left *buckets) *open {
	o := &open{ranges: ranges, left: left}
	for n, r := range ranges {
		for i := r.First / groupSlots; i <= r.Last/groupSlots; i++ {
			o.of[i], left[i] = n, allBuckets
		}
	}
	return o
}

// next returns the next groups to compare, behind the group after: as many as are neighbours in a
// range, by buckets only a few.
func (o *open) next(after int, fine bool) (p piece, ok bool) {
	first, most := after+1, slots
	if fine {
		most = fineSlots
	}
	for first < digestGroups && o.left[first] == 0 {
		first++
	}
	if first == digestGroups {
		return p, false
	}
	last := first
	for last+1 < digestGroups && o.left[last+1] != 0 && o.of[last+1] == o.of[first] &&
		(last+2-first)*groupSlots <= most {
		last++
	}
	return piece{store.SlotRange{First: uint16(first * groupSlots), Last: uint16((last+1)*groupSlots - 1)},
		o.ranges[o.of[first]].Source.Partition, fine}, true
}

// agreed takes note of how buckets of a group compared, and returns those that differ, as they did before.
func (o *open) agreed(group int, some uint64, is store.Agreement) (differ uint64) {
	switch some &= o.left[group]; {
	case is == store.Agree:
		o.left[group] &^= some
	case is == store.Differ && some&o.suspect[group] != 0:
		o.left[group] &^= some
		return some
	case is == store.Differ:
		o.suspect[group] |= some
	}
	return 0
}

// verify compares this region with one. Buckets that differ are looked at twice, since they may
// have been in the middle of a change. Buckets that are being changed are looked at more often. out
// has the compared part also after an error.
func (p *peer) verify(ctx context.Context, gently bool, out *outcome) error {
	m, _, err := p.member()
	ranges, failed := p.opts.Store.PullRanges(p.region)
	if err := errors.Join(err, failed); err != nil {
		for i := range out.missed {
			out.missed[i] = allBuckets
		}
		return err
	}
	c := comparison{p: p, m: &m}
	defer c.end()
	left := newOpen(ranges, &out.missed)
	rounds := verifyRounds
	if gently {
		rounds = lookRounds
	}
	out.why = ErrBusy
	if p.Status().Paused { // what it has counted does not come
		rounds, out.why = 2, ErrPaused
	}
	fails := 0 // and the last one of a round:
	var failure error
	for round := range rounds + 1 {
		fine := round > 0
		if fine && !sleep(ctx, min(p.opts.delay(round-1), time.Second)) {
			return ctx.Err()
		}
		any := false
		c.levelling, failure = false, nil
		for some, ok := left.next(-1, fine); ok; some, ok = left.next(int(some.Last/groupSlots), fine) {
			any = true
			agreed, err := c.of(ctx, &some)
			if err == nil && gently && !sleep(ctx, min(lookRest*c.took, maxRest)) {
				return ctx.Err()
			}
			// perhaps its leader is being elected: the next round asks again
			if failure = cmp.Or(err, failure); err != nil {
				if fails++; fails > maxFails || !c.connected || errors.Is(err, errHere) ||
					!sleep(ctx, min(p.opts.delay(fails), time.Second)) {
					return err
				}
				continue
			}
			for i, is := range agreed {
				group := int(some.First/groupSlots) + i
				switch {
				case fine:
					group = int(some.First/groupSlots) + i/store.DigestBuckets
					out.differ[group] |= left.agreed(group, 1<<(i%store.DigestBuckets), is)
				case is == store.Agree: // else its buckets are looked at
					out.missed[group] = 0
				}
			}
		}
		if !any {
			break
		}
	}
	if c.levelling && out.why == ErrBusy {
		out.why = ErrLevelling
	}
	return failure
}

// sleep returns false if ctx was done before.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// comparison is how this region is compared with another one.
type comparison struct {
	p         *peer
	m         *membership
	links     *shardLinks   // nil: there are none
	connected bool          // there were
	levelling bool          // a removed region is, as was seen in this round
	took      time.Duration // how long the last digest here took; the other one's takes about as long
}

func (c *comparison) end() {
	if c.links != nil {
		c.links.close()
	}
	c.links = nil
}

// of compares slots, in one partition of each region, by groups. It connects anew if a connection
// does not serve any more: between two digests it may have been idle for too long, or another node
// may lead.
func (c *comparison) of(ctx context.Context, which *piece) (agreed []store.Agreement, err error) {
	for range 2 {
		fresh := c.links == nil
		if fresh {
			if c.links, err = c.p.linksTo(ctx, c.m, true); err != nil {
				return nil, err
			}
			c.connected = true
		}
		if agreed, err = c.once(ctx, which); err == nil || fresh || errors.Is(err, errHere) ||
			ctx.Err() != nil {
			return agreed, err
		}
		c.end()
	}
	return agreed, err
}

func (c *comparison) once(ctx context.Context, which *piece) ([]store.Agreement, error) {
	p, m := c.p, c.m
	l, err := c.links.to(ctx, which.partition)
	if err != nil {
		return nil, err
	}
	q := store.DigestQuery{
		By: m.self, Group: m.group, Incarnation: m.Incarnation, Partition: which.partition,
		First: which.First, Last: which.Last,
		Fine: which.fine, At: p.opts.now() + expiryMargin.Milliseconds(),
	}
	began := time.Now()
	own, err := p.opts.Store.RegionDigest(ctx, q.First, q.Last, q.At, q.Fine)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errHere, err)
	}
	c.took = time.Since(began)
	writeDigest(&l.w, &q)
	if err := l.send(verifyTimeout * p.opts.Timeout); err != nil {
		return nil, err
	}
	b, failed, err := l.string(maxDigest)
	if err = errors.Join(err, failed); err != nil {
		return nil, err
	}
	theirs, err := store.DecodeDigest(b)
	if err != nil || theirs.RegionSource != (store.RegionSource{Region: p.region, Partition: q.Partition}) {
		return nil, fmt.Errorf("%w: a digest", ErrAnswer)
	}
	c.levelling = c.levelling || own.Busy || theirs.Busy
	set, _ := p.opts.Store.Regions()
	return own.Compare(&theirs, &set), nil
}
