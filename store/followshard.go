package store

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/fbfkv/fbfkv/persistence/oplog"
	"github.com/fbfkv/fbfkv/store/coding"
	"github.com/fbfkv/fbfkv/store/part"
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

const followVersion = 2

// A cursor says of a partition that it has left a log, or begins as its FollowStart says, or is in one of the
// logs that the cursor names, the first of which is cursorLogs.
const (
	cursorLeft = uint64(FollowCursor)
	cursorLogs = uint64(FollowSnapshot) + 1
)

// cursor encodes how far was read, in URL-safe Base64 of: version; what the log is of, which is a cluster or
// a directory, and how many logs there are, with their names; number of partitions, and for each what is
// said of it, its last sequence and the fingerprint of its section, as far as there are any; within a
// snapshot its partition, the key of the counter told last and how many of the partition were told. All are
// varints. Then comes a checksum of all that, 4 bytes.
func (r *following) cursor() string {
	names := make(map[uint64]uint64, 1)
	var logs, partitions []byte
	for i := range r.at {
		at := &r.at[i]
		if at.begins != FollowCursor {
			partitions = binary.AppendUvarint(partitions, uint64(at.begins))
			continue
		}
		if at.log == 0 {
			partitions = appendUvarints(partitions, cursorLeft, at.seq)
			continue
		}
		name, known := names[at.log]
		if !known {
			name = cursorLogs + uint64(len(names))
			names[at.log] = name
			logs = binary.AppendUvarint(logs, at.log)
		}
		partitions = appendUvarints(partitions, name, at.seq, uint64(at.print))
	}
	b := appendUvarints([]byte{followVersion}, r.shard.Cluster, uint64(len(names)))
	b = append(appendUvarints(append(b, logs...), uint64(len(r.at))), partitions...)
	if c := r.place; c != nil {
		b = coding.AppendBytes(binary.AppendUvarint(b, uint64(c.partition)), c.key)
		b = binary.AppendUvarint(b, c.told)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(xxhash.Sum64(b)))
	return base64.RawURLEncoding.EncodeToString(b)
}

// parse is the inverse of cursor.
func (r *following) parse(cursor string) error {
	const number = binary.MaxVarintLen64
	if len(cursor) > base64.RawURLEncoding.EncodedLen(1+(6+4*len(r.at))*number+MaxKey+4) {
		return ErrCursor
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(b) < 1+4 {
		return ErrCursor
	}
	sum, b := binary.LittleEndian.Uint32(b[len(b)-4:]), b[:len(b)-4]
	if sum != uint32(xxhash.Sum64(b)) || b[0] != followVersion {
		return ErrCursor
	}
	rd := reader{coding.Reader{Rest: b[1:]}}
	if rd.Uvarint() != r.shard.Cluster {
		return ErrOtherLog
	}
	logs := make([]uint64, rd.UpTo(uint64(len(r.at))))
	for i := range logs {
		logs[i] = rd.Uvarint()
	}
	if rd.Uvarint() != uint64(len(r.at)) {
		return ErrOtherLog
	}
	for i := range r.at {
		at := &r.at[i]
		switch tag := rd.UpTo(cursorLogs + uint64(len(logs)) - 1); {
		case tag == cursorLeft:
			at.seq = rd.Uvarint()
		case tag < cursorLogs:
			at.begins = FollowStart(tag)
		default:
			at.log, at.seq, at.print = logs[tag-cursorLogs], rd.Uvarint(), rd.Uint32()
		}
	}
	if len(rd.Rest) > 0 {
		c := &followedPlace{int(rd.UpTo(uint64(len(r.at) - 1))), rd.Bytes(), rd.Uvarint()}
		if r.place = c; len(c.key) == 0 {
			c.key = nil
		} else if checkKey(c.key) != nil || int(Slot(c.key)>>r.s.shift) != c.partition {
			return ErrCursor
		}
		if r.at[c.partition].begins != FollowCursor {
			return ErrCursor
		}
	}
	if rd.End(); rd.err() != nil {
		return ErrCursor
	}
	return nil
}

// A region logs in one section all that it has taken from another one (take.go): for each counter a merge,
// which tells by how much that has changed, then the operations of that region as they are
// heard, then the cursor, which names the region. A follower is told
//
//	merged     what the merge did, but for the operations heard behind it: it names none
//	add        each of these operations, with opid, delta and region; a drain's delta is negative
//	takeback   what this region took back for one of them, with the negative delta
//
// so that the deltas add up to the counter, at each entry. Of operations that are heard without such a merge
// nothing is told: the counter had them before, or a deletion has removed them.

// takenSection is what is known of the section at hand.
type takenSection struct {
	looked bool // The rest is known.
	// The section was taken from this region.
	of   part.Region
	name string
	// The sums of operations whose merge was not told yet.
	named map[namedOps]int64
	// The keys whose operations are named, as they were told.
	values map[string]int64

	regional regional // of the entry at hand
}

// namedOps are the operations of a key that a region has applied.
type namedOps struct {
	key string
	by  part.Region
}

// look reads the rest of the section: which region it is of, and what its operations add.
func (r *following) look() {
	t := &r.taken
	t.looked, t.name = true, ""
	t.named, t.values = make(map[namedOps]int64), make(map[string]int64)
	rd, known := r.reader, false
	rd.r = new(regional)
	for e := (entry{}); rd.next(&e); {
		switch e.kind {
		case entryHeard, entryTakeBack:
			by := e.r.heard.Origin
			if t.named[namedOps{string(e.key), by}] += e.winner().Made; !known {
				t.of, known = by, true
			}
		case entryCursor:
			t.of, known = e.r.cursor.Region, true
		}
	}
	if known {
		t.name = r.regions.name(t.of)
	}
}

// byRegion tells of the entry at hand, which only members of regions log, with what the section says of it.
// It reports whether it has a change.
func (r *following) byRegion(tells bool) bool {
	e, f, t := &r.entry, &r.change, &r.taken
	switch e.kind {
	case entryHeard:
		return r.names()
	case entryMerge:
		if !t.looked {
			r.look()
		}
		f.Region = t.name
		ops := namedOps{string(e.key), t.of}
		named, are := t.named[ops]
		if !are || e.r.merged != 0 || !e.shows() {
			return tells
		}
		delete(t.named, ops)
		f.Delta, f.Value = f.Delta-named, f.Value-named
		t.values[ops.key] = f.Value
		return f.Delta != 0
	}
	back := *f
	if e.kind == entryTakeBack && r.names() { // the operation that counts
		r.pass()
		back.Value, back.Index = f.Value+back.Delta, 1
		if t.values[string(e.key)] = back.Value; e.ends() { // later operations are of a counter that is gone
			delete(t.values, string(e.key))
		}
	}
	*f = back
	f.Region = r.regions.name(r.regions.Self)
	return tells
}

// names makes the operation that the entry at hand has heard the change, if the merge of its key was told
// without it.
func (r *following) names() bool {
	e, f, t := &r.entry, &r.change, &r.taken
	value, is := t.values[string(e.key)]
	if !t.looked || !is || e.r.heard.Origin != t.of {
		return false
	}
	f.Kind, f.ID, f.Delta, f.Region = FollowedAdd, e.id, e.winner().Made, t.name
	f.Value = value + f.Delta
	t.values[string(e.key)] = f.Value
	return true
}
