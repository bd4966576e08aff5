package regions

import (
	"context"
	"errors"
	"fmt"
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
	digestArgs = 6
	// maxDigest bounds a digest, bytes: 1024 sums, and how far the logs of 15 regions were taken.
	maxDigest = 8 << 20
	// verifyRounds is how often a range that is being changed is tried again at most.
	verifyRounds = 12
	// verifyTimeout is how long a digest may take, by Options.Timeout: it reads all keys.
	verifyTimeout = 20
)

// ErrBusy: some slots could not be compared, since they were being changed, or their changes had not
// been taken yet.
var ErrBusy = errors.New("slots were not compared, as changes are under way: run it again, or see fbfkv region status of both")

// ErrPaused: the same, and this region does not read the other one until that is resumed.
var ErrPaused = errors.New("it is not read until fbfkv region resume")

// Difference is slots in which this region and another one have not got the same.
type Difference struct {
	Region part.Region
	store.SlotRange
	// Err is why they could not be compared: ErrBusy, ErrPaused, or what kept the region from being asked. nil: they differ.
	Err error
}

// parseDigest reads the arguments behind the word. The text of its errors is the reply.
func parseDigest(args [][]byte) (q store.DigestQuery, err error) {
	if len(args) != digestArgs {
		return q, errArguments
	}
	a := numbers{rest: args}
	q.Group, q.By, q.Incarnation = a.next("group", 0, 1<<64-1), part.Region(a.next("region", 0, part.MaxRegions-1)), a.next("incarnation", 0, 1<<64-1)
	q.Partition, q.First, q.Last = a.slot("partition"), a.slot("first slot"), a.slot("last slot")
	return q, a.err
}

// writeDigest appends a request as a client sends it.
func writeDigest(w *resp.Writer, q *store.DigestQuery) {
	w.Array(2 + digestArgs)
	w.BulkString(Command)
	w.BulkString(wordDigest)
	for _, n := range []uint64{q.Group, uint64(q.By), q.Incarnation, uint64(q.Partition), uint64(q.First), uint64(q.Last)} {
		w.BulkString(strconv.FormatUint(n, 10))
	}
}

// digest answers a request for a digest.
func (s *Source) digest(args [][]byte, w *resp.Writer) {
	q, err := parseDigest(args)
	if err == nil && !s.leads() { // which may have taken more than it has logged
		err = errNotLeader
	}
	if err == nil {
		var digest []byte
		if digest, err = s.Store.Digest(q); err == nil {
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

// look compares this region with those of the others that are in only; nil: with all that it reads.
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
	m.verifying.Add(1)
	m.mu.Unlock()
	defer m.verifying.Done()
	slices.SortFunc(peers, func(a, b *peer) int { return int(a.region) - int(b.region) })
	for _, p := range peers {
		differ, failed := p.verify(ctx)
		l.asked = append(l.asked, p.region)
		if l.found = append(l.found, differ...); failed != nil {
			l.found = append(l.found, Difference{p.region, store.SlotRange{Last: slots - 1}, fmt.Errorf("it cannot be asked at %s: %w", p.address, failed)})
		}
	}
	return l, ctx.Err()
}

// verify compares this region with one.
func (p *peer) verify(ctx context.Context) (all []Difference, err error) {
	m, _, err := p.member()
	if err != nil {
		return nil, err
	}
	ranges, err := p.opts.Store.PullRanges(p.region)
	if err != nil {
		return nil, err
	}
	links, err := p.linksTo(ctx, &m, true)
	if err != nil {
		return nil, err
	}
	defer links.close()
	last, busyBy := verifyRounds, ErrBusy
	if p.Status().Paused { // what it has counted does not come
		last, busyBy = 0, ErrPaused
	}
	for round := 0; len(ranges) > 0; round++ {
		var busy []store.PullRange
		for _, r := range ranges {
			q := store.DigestQuery{By: m.self, Group: m.group, Incarnation: m.Incarnation, Partition: r.Source.Partition, First: r.First, Last: r.Last}
			l, err := links.to(ctx, r.Source.Partition)
			if err != nil {
				return all, err
			}
			differ, ok, err := p.compare(l, &q)
			switch {
			case err != nil:
				return all, err
			case ok:
				for _, slots := range differ {
					all = append(all, Difference{p.region, slots, nil})
				}
			case round < last:
				busy = append(busy, r)
			default:
				all = append(all, Difference{p.region, store.SlotRange{First: r.First, Last: r.Last}, busyBy})
			}
		}
		if ranges = busy; len(busy) > 0 {
			t := time.NewTimer(min(p.opts.delay(round), time.Second))
			select {
			case <-t.C:
			case <-ctx.Done():
				t.Stop()
				return all, ctx.Err()
			}
		}
	}
	return all, nil
}

// compare compares a range; false if that cannot be done now.
func (p *peer) compare(l *link, q *store.DigestQuery) (differ []store.SlotRange, ok bool, err error) {
	own, err := p.opts.Store.RegionDigest(q.First, q.Last)
	if err != nil {
		return nil, false, err
	}
	writeDigest(&l.w, q)
	if err := l.send(verifyTimeout * p.opts.Timeout); err != nil {
		return nil, false, err
	}
	b, failed, err := l.string(maxDigest)
	if err = errors.Join(err, failed); err != nil {
		return nil, false, err
	}
	theirs, err := store.DecodeDigest(b)
	if err != nil || theirs.RegionSource != (store.RegionSource{Region: p.region, Partition: q.Partition}) {
		return nil, false, fmt.Errorf("%w: a digest", ErrAnswer)
	}
	set, _ := p.opts.Store.Regions()
	differ, ok = own.Compare(&theirs, &set)
	return differ, ok, nil
}
