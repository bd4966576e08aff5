package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/fbfkv/fbfkv/persistence/oplog"
)

// Followers in a cluster. All replicas of a shard have the same sections with the same sequences. So a cursor
// names the shard's log, and any replica goes on with it, as far as it knows what is committed. A
// cursor has all partitions of the cluster. A shard goes on with those whose sequence is of its
// log, and leaves the others as they are: so the cursor can be shown to one shard after the other.
//
// When a partition moves (move.go), its log goes on in another one:
//
//	source   … S: hand over       S+1: vacate
//	target                        adopt, last S, goes on with A       A+1: release …
//
// The source tells up to the entry before vacate, S, and notes in the cursor that the partition has left:
// from then on the move cannot be taken back. A shard goes on with A if it has adopted a partition that has
// left at the S of the cursor: nothing is between. So a follower that is far behind goes through each log
// that the partition was in, and no shard goes on with a partition before all of it was told.

// Shard is what followers need to know of the shard that a replica belongs to.
type Shard struct {
	Cluster uint64 // names what a cursor is of
	Log     uint64 // names the shard's log among those of the cluster; not 0
	// Owns reports whether the shard has a partition, as far as this replica knows.
	Owns func(partition uint16) bool
	// Exists reports whether the cluster has the shard whose log it is.
	Exists func(log uint64) bool
}

// shard returns the shard, or what stands for one on a single server: its history is the same in no other
// directory but a plain copy.
func (s *Store) shard() Shard {
	if s.opts.Shard != nil {
		return s.opts.Shard()
	}
	m := s.db.Meta()
	history := max(xxhash.Sum64(binary.LittleEndian.AppendUint64(m.ID[:], m.Incarnation)), 1)
	return Shard{Cluster: history, Log: history, Owns: func(uint16) bool { return true },
		Exists: func(log uint64) bool { return log == history }}
}

// cross goes on here with the partitions that have come from where the follower was told all of them.
func (r *following) cross() error {
	var all []uint16
	for p := range r.at {
		at := &r.at[p]
		switch {
		case at.begins != FollowCursor || at.log == r.shard.Log:
		case r.s.opts.Shard == nil:
			return ErrOtherLog
		case at.log == 0 || !r.shard.Exists(at.log):
			all = append(all, uint16(p))
		}
	}
	if len(all) == 0 {
		return nil
	}
	a := &r.s.arrivals
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.find(r.s); err != nil {
		return err
	}
	for _, p := range all {
		at := &r.at[p]
		is := slices.IndexFunc(a.of[p], func(a arrival) bool { return a.last == at.seq })
		comes := slices.ContainsFunc(a.of[p], func(a arrival) bool { return a.to == at.adopted })
		switch {
		case is >= 0:
			at.log, at.seq, at.print = r.shard.Log, a.of[p][is].to, 0
		case at.owned && (!comes || at.log != 0): // else another shard may have what comes next
			return fmt.Errorf("%w: those of partition %d, which has moved, and whose former shard is gone, or this "+
				"one's log does not reach back so far; %s", ErrLost, p, beginAgain)
		}
	}
	return nil
}

// arrivals are the adoptions that the log has, by partition, as far as it was read for them: when a follower
// first needs them. The mutex guards all.
type arrivals struct {
	mu sync.Mutex
	at oplog.Bookmark // where the reading goes on
	of map[uint16][]arrival
}

// arrival is an adoption: a partition goes on here behind another sequence of its former shard.
type arrival struct{ last, to uint64 }

// find reads the log on.
func (a *arrivals) find(s *Store) (err error) {
	log := s.db.Log()
	for range 3 {
		if a.of == nil {
			from := make(map[uint16]uint64)
			for p := range s.partitions {
				from[uint16(p)] = 0
			}
			a.of, a.at = make(map[uint16][]arrival), log.BookmarkAt(from)
		}
		a.at, err = log.Follow(a.at, func(record []byte) error {
			err := oplog.Sections(record, func(p uint16, seq uint64, _ []byte) error {
				if seq > s.CommittedOf(p) {
					return errEnough
				}
				return nil
			})
			if err == nil {
				err = oplog.Sections(record, a.section)
			}
			return err
		})
		switch {
		case errors.Is(err, errEnough):
			return nil
		case !errors.Is(err, oplog.ErrBookmark):
			return err
		}
		a.of = nil // the log was given up meanwhile
	}
	return err
}

// section takes in a section, perhaps once more.
func (a *arrivals) section(p uint16, _ uint64, content []byte) error {
	rd, err := newSectionReader(content)
	if err != nil {
		return err
	}
	for e := (entry{}); rd.next(&e); {
		switch e.kind {
		case entryJump, entryCatalog: // an adoption would be the first one but for these
		case entryAdopt:
			adopted, err := decodeAdoption(e.id)
			if is := (arrival{adopted.last, uint64(e.value)}); !slices.Contains(a.of[p], is) {
				a.of[p] = append(a.of[p], is)
			}
			return err
		default:
			return nil
		}
	}
	return rd.err()
}
