package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/fbfkv/fbfkv/store/part"
)

// What package regions needs to read many logs at once: which ones there are, and a way to wait
// for all of them together.

// PullRange is what one partition here reads of one of another region.
type PullRange struct {
	Own         uint16 // partition here
	Source      RegionSource
	First, Last uint16 // slots
}

// PullRanges returns what this region reads of another one, by slots. All slots are in one of them,
// and none is in two; in a shard of a cluster those that it has. Errors: ErrNoRegions; ErrStream,
// if the other is no member, or this one.
func (s *Store) PullRanges(from part.Region) ([]PullRange, error) {
	set, ok := s.Regions()
	if !ok {
		return nil, ErrNoRegions
	}
	m := set.member(from)
	if m == nil || m.Gone || from == set.Self {
		return nil, streamError("region %d is none that this one reads", from)
	}
	own := len(s.partitions)
	all := make([]PullRange, max(own, m.Partitions))
	for i := range all {
		first, last := slotRange(i, len(all))
		all[i] = PullRange{first >> s.shift, RegionSource{from, uint16(i * m.Partitions / len(all))}, first,
			last}
	}
	return slices.DeleteFunc(all, func(r PullRange) bool { return !s.partitions[r.Own].isMember() }), nil
}

// CommittedOf returns the last sequence of a partition that is committed; 0 if there is no such
// partition.
func (s *Store) CommittedOf(partition uint16) uint64 {
	p, err := s.ownPartition(partition)
	if err != nil {
		return 0
	}
	return p.committed.upTo()
}

// Behind is a place in the log of a partition.
type Behind struct {
	Partition uint16
	Seq       uint64
}

// AwaitAny returns when something is committed behind any of the places, or ctx is done, which
// is no error. It fails if the store has, or has no such partition. Safe for concurrent use.
func (s *Store) AwaitAny(ctx context.Context, at []Behind) error {
	wake := make(chan struct{}, 1)
	for _, b := range at {
		p, err := s.ownPartition(b.Partition)
		if err != nil {
			return err
		}
		p.committed.watch(wake)
		defer p.committed.unwatch(wake)
	}
	for {
		for _, b := range at {
			if s.CommittedOf(b.Partition) > b.Seq {
				return nil
			}
		}
		if err := s.Failure(); err != nil {
			return fmt.Errorf("waiting for what is committed: %w", err)
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return nil
		}
	}
}

// watch makes the mark tell a channel, which has room for one, that it has moved or failed. A
// channel may watch many marks, and a mark may be watched by a channel more than once.
func (m *commitMark) watch(wake chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.watchers == nil {
		m.watchers = make(map[chan struct{}]int)
	}
	m.watchers[wake]++
}

func (m *commitMark) unwatch(wake chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.watchers[wake]--; m.watchers[wake] == 0 {
		delete(m.watchers, wake)
	}
}

// wakeWatchers tells all channels. The mark is locked.
func (m *commitMark) wakeWatchers() {
	for wake := range m.watchers {
		select {
		case wake <- struct{}{}:
		default: // it has been told, and has not looked yet
		}
	}
}
