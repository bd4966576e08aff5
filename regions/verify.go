package regions

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
	"github.com/fbfkv/fbfkv/store/part"
)

// REGION.PULL DIGEST, and who asks it: a look compares what this region has with what each other one has.

// wordDigest begins the arguments of a request for a digest.
const wordDigest = "DIGEST"

const (
	digestArgs = 8
	// maxDigest bounds a digest, bytes: 1024 sums with clocks, and how far the logs of 15 regions, of 1024 partitions, were taken.
	maxDigest = 1 << 20
	// verifyRounds is how often slots that are being changed are tried again at most.
	verifyRounds = 12
	// A digest costs about 1.3 µs of a processor for each key (BenchmarkDigest in store). Nobody waits for a look that
	// the Mesh takes by itself: it tries less often, and rests after each digest, up to maxRest, for
	// lookRest times as long as that took here, so that it takes little of a processor here and there.
	lookRounds = 3
	lookRest   = 9
	maxRest    = 30 * time.Second
	// groupSlots is how many slots are compared together at first, and fineSlots how many are asked for at once by buckets: to
	// read few keys takes a short time, in which few of them change.
	groupSlots = store.DigestSlots
	fineSlots  = 16 * groupSlots
	// expiryMargin is how far ahead of the clock here keys that expire are left out: another region's, by which it deletes
	// them, may be ahead.
	expiryMargin = 10 * time.Second
	// verifyTimeout is how long a digest may take, by Options.Timeout: it reads all keys.
	verifyTimeout = 20
)

// ErrBusy: some slots could not be compared, since they were being changed all the time, or their changes had not
// been taken yet.
var ErrBusy = errors.New("keys that are being changed, or lately were, were not compared: run it again, or see fbfkv region status of both")

// ErrLevelling: the same, and that lasts until a removal is at its end.
var ErrLevelling = errors.New("a region was removed, and not all others have taken yet what it had told: see fbfkv region status")

// ErrPaused: the same, and this region does not read the other one until that is resumed.
var ErrPaused = errors.New("it is not read until fbfkv region resume")

// Difference is slots in which this region and another one have not got the same.
type Difference struct {
	Region part.Region
	store.SlotRange
	// Err is why they, or some keys of them, could not be compared: ErrBusy, ErrLevelling, ErrPaused, or what kept the region from being
	// asked, or this one from being read (errHere). nil: they differ.
	Err error
	// Missed is how many buckets of keys (store.DigestBuckets) were not compared.
	Missed int
}

// parseDigest reads the arguments behind the word. The text of its errors is the reply.
func parseDigest(args [][]byte) (q store.DigestQuery, err error) {
	if len(args) != digestArgs {
		return q, errArguments
	}
	a := numbers{rest: args}
	q.Group, q.By, q.Incarnation = a.next("group", 0, 1<<64-1), part.Region(a.next("region", 0, part.MaxRegions-1)), a.next("incarnation", 0, 1<<64-1)
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
	for _, n := range []uint64{q.Group, uint64(q.By), q.Incarnation, uint64(q.Partition), uint64(q.First), uint64(q.Last), fine, uint64(q.At)} {
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
func (m *Mesh) Verify(ctx context.Context) ([]Difference, error) {
	l, err := m.look(ctx, nil)
	if err == nil {
		m.note(&l, nil)
	}
	return l.found, err
}

// look compares this region with those of the others that are in only, gently; nil: with all that it reads, at once.
func (m *Mesh) look(ctx context.Context, only map[part.Region]bool) (l look, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(m.ctx, cancel)()
	m.mu.Lock()
	if m.ctx.Err() != nil {
		m.mu.Unlock()
		return l, net.ErrClosed
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
		differ, failed := p.verify(ctx, only != nil)
		l.asked = append(l.asked, p.region)
		l.found = append(l.found, differ...)
		if failed != nil && !errors.Is(failed, errHere) {
			failed = fmt.Errorf("it cannot be asked at %s: %w", p.address, failed)
		}
		if failed != nil {
			l.found = append(l.found, Difference{p.region, store.SlotRange{Last: slots - 1}, failed, m.opts.bucketsOf(p.region)})
		}
	}
	return l, ctx.Err()
}

// piece is slots that are compared at once.
type piece struct {
	store.SlotRange
	partition uint16 // of the other region
	fine      bool   // by buckets
}

// open is what is still to be compared of groups of slots: a bit for each bucket.
type open struct {
	ranges  []store.PullRange
	of      [digestGroups]int // the range that a group is in
	left    [digestGroups]uint64
	suspect [digestGroups]uint64 // of these: what differed when it was looked at before
}

func newOpen(ranges []store.PullRange) *open {
	o := &open{ranges: ranges}
	for n, r := range ranges {
		for i := r.First / groupSlots; i <= r.Last/groupSlots; i++ {
			o.of[i], o.left[i] = n, allBuckets
		}
	}
	return o
}

// allBuckets is a bit for each bucket of a group.
const allBuckets = 1<<store.DigestBuckets - 1

// next returns the groups behind some that are to be compared: as many as are neighbours in a range, and at most so many slots.
func (o *open) next(after int, fine bool, most int) (p piece, ok bool) {
	first := after + 1
	for first < digestGroups && o.left[first] == 0 {
		first++
	}
	if first == digestGroups {
		return p, false
	}
	last := first
	for last+1 < digestGroups && o.left[last+1] != 0 && o.of[last+1] == o.of[first] && (last+2-first)*groupSlots <= most {
		last++
	}
	return piece{store.SlotRange{First: uint16(first * groupSlots), Last: uint16((last+1)*groupSlots - 1)}, o.ranges[o.of[first]].Source.Partition, fine}, true
}

// agreed takes note of how a group, or some of its buckets, compared. What has differed before differs.
func (o *open) agreed(group int, buckets uint64, is store.Agreement) (differs bool) {
	switch buckets &= o.left[group]; {
	case is == store.Agree:
		o.left[group] &^= buckets
	case is == store.Differ && buckets&o.suspect[group] != 0:
		o.left[group] &^= buckets
		return true
	case is == store.Differ:
		o.suspect[group] |= buckets
	}
	return false
}

// verify compares this region with one. Slots that differ are looked at twice, since they may have been in the middle of a
// change; of those that are being changed, the buckets.
func (p *peer) verify(ctx context.Context, gently bool) (all []Difference, err error) {
	m, _, err := p.member()
	if err != nil {
		return nil, err
	}
	ranges, err := p.opts.Store.PullRanges(p.region)
	if err != nil {
		return nil, err
	}
	c := comparison{p: p, m: &m}
	defer c.end()
	var differ groups
	left := newOpen(ranges)
	rounds, busyBy := verifyRounds, ErrBusy
	if gently {
		rounds = lookRounds
	}
	if p.Status().Paused { // what it has counted does not come
		rounds, busyBy = 1, ErrPaused
	}
	for round, fine, most := 0, false, slots; round <= rounds; round, fine, most = round+1, true, fineSlots {
		if round > 0 && !sleep(ctx, min(p.opts.delay(round-1), time.Second)) {
			return p.differences(&differ, new(open), nil), ctx.Err()
		}
		any := false
		for some, ok := left.next(-1, fine, most); ok; some, ok = left.next(int(some.Last/groupSlots), fine, most) {
			any = true
			agreed, err := c.of(ctx, &some)
			if err == nil && gently && !sleep(ctx, min(lookRest*c.took, maxRest)) {
				err = ctx.Err()
			}
			if err != nil {
				return p.differences(&differ, new(open), nil), err
			}
			for i, is := range agreed {
				group, buckets := int(some.First/groupSlots)+i, uint64(allBuckets)
				if fine {
					group, buckets = int(some.First/groupSlots)+i/store.DigestBuckets, 1<<(i%store.DigestBuckets)
				}
				if left.agreed(group, buckets, is) {
					differ[group] = true
				}
			}
		}
		if !any {
			break
		}
	}
	if c.levelling && busyBy == ErrBusy {
		busyBy = ErrLevelling
	}
	return p.differences(&differ, left, busyBy), nil
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

// differences are slots that differ, and others that could not be compared for a reason, each in their order.
func (p *peer) differences(differ *groups, left *open, why error) (all []Difference) {
	for _, r := range differ.slots() {
		all = append(all, Difference{p.region, r, nil, 0})
	}
	var busy groups
	for i, buckets := range left.left {
		busy[i] = buckets != 0
	}
	for _, r := range busy.slots() {
		missed := 0
		for i := r.First / groupSlots; i <= r.Last/groupSlots; i++ {
			missed += bits.OnesCount64(left.left[i])
		}
		all = append(all, Difference{p.region, r, why, missed})
	}
	return all
}

// comparison is how this region is compared with another one.
type comparison struct {
	p         *peer
	m         *membership
	links     *shardLinks   // nil: none yet
	levelling bool          // of a removed region, when something was compared last
	took      time.Duration // … and how long the digest here took; the other one's takes about as long
}

func (c *comparison) end() {
	if c.links != nil {
		c.links.close()
	}
	c.links = nil
}

// of compares slots, in one partition of each region, by groups. It connects anew if a connection does not serve any more: between two
// digests it may have been idle for too long, or another node may lead.
func (c *comparison) of(ctx context.Context, which *piece) (agreed []store.Agreement, err error) {
	for range 2 {
		fresh := c.links == nil
		if fresh {
			if c.links, err = c.p.linksTo(ctx, c.m, true); err != nil {
				return nil, err
			}
		}
		if agreed, err = c.once(ctx, which); err == nil || fresh || errors.Is(err, errHere) || ctx.Err() != nil {
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
		By: m.self, Group: m.group, Incarnation: m.Incarnation, Partition: which.partition, First: which.First, Last: which.Last,
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
	c.levelling = own.Busy || theirs.Busy
	set, _ := p.opts.Store.Regions()
	return own.Compare(&theirs, &set), nil
}
