package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/fbfkv/fbfkv/store/coding"
	"github.com/fbfkv/fbfkv/store/part"
)

// Digests of counters: for each 1/1024 of the slots, a group, or for each bucket of keys in it, a
// sum of hashes over its keys, and for each region the highest clock of its parts of them. Two
// regions must have the same sum if each has taken all changes that the other one shows (Compare
// asks that). Why each piece of it is:
//
//	a part: clock, live, cum, register,   made by its region's changes alone, which all take in the order of
//	expiry, take-backs                    their log; whole parts (Merge) are copies as of one of them
//	its base                              the highest of what deletions say, and these are in the logs, too
//	whether a part or a base is there     a region that has forgotten a dead counter
//	                                      (part.Parts.Droppable) lacks the closed parts, and the bases
//	                                      of those that go on: neither is told (part.Parts.AppendAgreed).
//	                                      A closed part has nothing else, since its region has deleted
//	                                      it itself, as all knew before any region forgot it
//	whether the key is there              it is told if some part lives, which follows from parts and bases
//	a counter without parts               as its region's part, with the clock of its newest entry (asParts)
//	a key that expires                    not told from a time on that the asking region names: each
//	                                      region hides it in its own time. One that deletes it meanwhile
//	                                      has made a change
//	tables                                keys of REGIONS ALL are told: tables must have the same
//	                                      prefixes everywhere
//	the clock of a part                   each change that a region makes of a key is in the clock of
//	                                      its part, also a deletion: so the clocks of a group's parts,
//	                                      dead ones too, say which changes it shows. An heir's changes
//	                                      are in the clocks of the parts that it inherits: their sum
//	                                      says how many of these a group shows
//	a key that was dropped                that is in the region's own log, and counts as a change of its
//	                                      own: a region that has taken it had taken the key's end before
//
// The digest depends on nothing else that may differ between regions: which keys are in memory or
// in rows, which region deleted an expired key, ids, owed take-backs. Keys may change while they
// are read, and while the other region reads. Changes taken before the first key was read are shown
// in any case, and clocks tell of later ones. A group with a later change cannot be compared; all
// others can, and so can its buckets without one.
//
// The hashes are not keyed, since regions have no secret in common. Nothing is gained by keys
// that collide: they only make a bucket larger, within the same group of slots, which is read as a
// whole; and a sum that is the same by intent hides a difference that no client can make.

// RegionDigest is what a region has in a slot range.
type RegionDigest struct {
	RegionSource        // the region, and its partition
	First, Last  uint16 // slots, of whole groups
	Fine         bool   // there is a sum for each bucket, else for each group
	At           int64  // unix ms: keys that expire until then are not in the sums
	Era          uint64 // of the region
	Seq          uint64 // of the partition, before its keys were read
	Gone         uint16 // the regions that were removed, a bit each
	// Busy: a region that was removed is not levelled yet, or what was read was taken back. Nothing
	// can be compared.
	Busy  bool
	Taken []RegionTaken // how far the partition had taken others' logs before its keys were read, by source
	Sums  []DigestSum   // of groups of 16 slots, from First on, or of their buckets
}

// DigestSum is what a region has in a group of slots, or a bucket of it.
type DigestSum struct {
	Sum uint64 // of hashes of keys and their parts
	// Clocks has the highest clock of each region's parts, and what was dropped here last; of a
	// region that is gone, the sum of its parts' clocks.
	Clocks [part.MaxRegions]uint64
}

// DigestQuery is what a region asks another one for: a digest of slots that are in one partition of
// both, whole groups. By buckets at most 16 groups.
type DigestQuery struct {
	By                 part.Region
	Group, Incarnation uint64 // the latter of the source, as the asking region knows it
	Partition          uint16
	First, Last        uint16
	Fine               bool  // see RegionDigest
	At                 int64 // see RegionDigest
}

// Digest answers another region's query, for DecodeDigest. Errors: as Pull, but for ErrGap.
func (s *Store) Digest(ctx context.Context, q DigestQuery) ([]byte, error) {
	p, err := s.ownPartition(q.Partition)
	if err != nil {
		return nil, err
	}
	p.lock()
	err = (&Pull{By: q.By, Group: q.Group, Incarnation: q.Incarnation}).checkPeer(p)
	p.mu.Unlock()
	if err == nil && (q.First > q.Last || sumsOf(q.First, q.Last, q.Fine) > maxSums ||
		s.partitions[q.First>>s.shift] != p || s.partitions[q.Last>>s.shift] != p) {
		err = streamError("partition %d for the slots %d to %d", p.id, q.First, q.Last)
	}
	if err != nil {
		return nil, err
	}
	d, err := s.RegionDigest(ctx, q.First, q.Last, q.At, q.Fine)
	if err != nil {
		return nil, err
	}
	return d.appendTo(nil), nil
}

// RegionDigest returns a digest, without what expires until at, unix ms, of the groups of slots
// from first to last, or of their buckets, which are of one partition here. It reads all their
// keys, one call after the other, and ends with ctx.
func (s *Store) RegionDigest(ctx context.Context, first, last uint16, at int64, fine bool) (d RegionDigest,
	err error) {
	select {
	case s.digesting <- struct{}{}:
		defer func() { <-s.digesting }()
	case <-ctx.Done():
		return d, ctx.Err()
	}
	first, last = first/DigestSlots*DigestSlots, last|(DigestSlots-1)
	p := s.partitions[first>>s.shift]
	p.taking.mu.Lock()
	p.lock()
	if p.regions == nil || first > last || s.partitions[last>>s.shift] != p {
		p.mu.Unlock()
		p.taking.mu.Unlock()
		return d, ErrNoRegions
	}
	here := p.here()
	d = RegionDigest{RegionSource: RegionSource{p.self(), p.id}, First: first, Last: last, Fine: fine, At: at,
		Era: p.regions.Era, Seq: p.seq}
	d.Taken = sortTaken(p.regions.cursors)
	for i := range d.Taken {
		t := &d.Taken[i]
		t.Seq = max(t.Seq, p.heldTaking().ahead[t.RegionSource])
	}
	for _, m := range p.regions.Members {
		if m.Gone {
			d.Gone |= 1 << m.Region
		}
		d.Busy = d.Busy || m.Gone && slices.ContainsFunc(p.unlevelled(m.Region), func(r part.Region) bool {
			return r == m.Heir || r == d.Region
		})
	}
	p.mu.Unlock()
	p.taking.mu.Unlock()
	d.Sums = make([]DigestSum, sumsOf(first, last, fine))
	var after, buf []byte
	end := here
	for more := true; more; {
		if ctx.Err() != nil {
			return d, ctx.Err()
		}
		var keys []foundKey
		keys, more, end, err = s.partsBehind(p, after, last, max(s.positionOfNext(after), position(first, 0)),
			stateKeys)
		if err != nil {
			return d, err
		}
		for i := range keys {
			k := &keys[i]
			after = k.key
			if k.told {
				buf = d.Sums[sumOf(k.key, first/DigestSlots, fine)].add(buf, k, at, d.Gone)
			}
		}
	}
	p.lock()
	if begin, _ := slotRange(int(p.id), p.count); p.dropped != nil {
		buckets := p.dropped[int(first/DigestSlots-begin/DigestSlots)*DigestBuckets:][:sumsOf(first, last,
			true)]
		for i, seq := range buckets {
			clock := &d.Sums[i*len(d.Sums)/len(buckets)].Clocks[d.Region]
			*clock = max(*clock, seq)
		}
	}
	p.mu.Unlock()
	d.Busy = d.Busy || end.life != here.life
	return d, end.wait()
}

// add adds a key. It returns buf, to be used again.
func (g *DigestSum) add(buf []byte, k *foundKey, at int64, gone uint16) []byte {
	for i := range k.parts {
		q := &k.parts[i]
		if clock := &g.Clocks[q.Region]; gone>>q.Region&1 != 0 {
			*clock += q.Clock
		} else {
			*clock = max(*clock, q.Clock)
		}
	}
	// Nobody sees an expired key, and regions delete it in their own time.
	if expires := k.parts.Expiry().At; expires != 0 && expires <= at {
		return buf
	}
	buf = coding.AppendBytes(buf[:0], k.key)
	n := len(buf)
	if buf = k.parts.AppendAgreed(buf); len(buf) > n {
		g.Sum += xxhash.Sum64(buf)
	}
	return buf
}

func (d *RegionDigest) appendTo(b []byte) []byte {
	b = d.RegionSource.appendTo(append(b, regionDigestVersion))
	for _, n := range []uint64{uint64(d.First), uint64(d.Last), uint64(d.At), d.Era, d.Seq, uint64(d.Gone)} {
		b = binary.AppendUvarint(b, n)
	}
	b = appendTaken(append(b, bit(d.Busy), bit(d.Fine)), d.Taken)
	for i := range d.Sums {
		g := &d.Sums[i]
		mask := uint64(0)
		for r, clock := range g.Clocks {
			if clock != 0 {
				mask |= 1 << r
			}
		}
		b = binary.AppendUvarint(binary.AppendUvarint(b, g.Sum), mask)
		for _, clock := range g.Clocks {
			if clock != 0 {
				b = binary.AppendUvarint(b, clock)
			}
		}
	}
	return b
}

// DecodeDigest reads what Digest has answered, and nothing else.
func DecodeDigest(b []byte) (d RegionDigest, err error) {
	r := reader{coding.Reader{Rest: b}}
	if r.Byte() != regionDigestVersion {
		r.Fail()
	}
	d.RegionSource = r.source()
	d.First, d.Last = uint16(r.UpTo(slots-1)), uint16(r.UpTo(slots-1))
	d.At, d.Era, d.Seq, d.Gone = int64(r.UpTo(math.MaxInt64)), r.Uvarint(), r.Uvarint(),
		uint16(r.UpTo(1<<part.MaxRegions-1))
	d.Busy, d.Fine, d.Taken = r.bit(), r.bit(), r.taken()
	if d.First > d.Last || d.First%DigestSlots != 0 || d.Last%DigestSlots != DigestSlots-1 ||
		sumsOf(d.First, d.Last, d.Fine) > maxSums {
		return RegionDigest{}, ErrPulled
	}
	d.Sums = make([]DigestSum, sumsOf(d.First, d.Last, d.Fine))
	for i := range d.Sums {
		g := &d.Sums[i]
		g.Sum = r.Uvarint()
		mask := r.UpTo(1<<part.MaxRegions - 1)
		for of := range g.Clocks {
			if mask>>of&1 != 0 {
				g.Clocks[of] = r.Uvarint()
			}
		}
	}
	if !bytes.Equal(d.appendTo(nil), b) {
		return RegionDigest{}, ErrPulled
	}
	return d, nil
}

// SlotRange is slots from First to Last.
type SlotRange struct{ First, Last uint16 }

// Agreement is whether two regions have the same in a group, or a bucket.
type Agreement byte

const (
	Unknown Agreement = iota // it is being changed, or one of them has not taken it
	Agree
	Differ
)

// Compare returns for each sum whether two regions agree. That can be said if each has taken what
// the other one shows. A difference may also be that they were in the middle of a change that does
// not come with its region's log, as a state does: one that is found again a while later is one.
func (d *RegionDigest) Compare(o *RegionDigest, set *RegionSet) []Agreement {
	all := make([]Agreement, len(d.Sums))
	if d.Busy || o.Busy || d.First != o.First || d.Last != o.Last || d.At != o.At || d.Era != o.Era ||
		d.Gone != o.Gone || d.Fine != o.Fine {
		return all
	}
	g := newRegions(*set)
	for i := range all {
		slot := d.First + uint16(i*(int(d.Last-d.First)+1)/len(d.Sums))
		switch {
		case !d.shown(o, i, slot, g) || !o.shown(d, i, slot, g):
		case d.Sums[i].Sum == o.Sums[i].Sum:
			all[i] = Agree
		default:
			all[i] = Differ
		}
	}
	return all
}

// shown reports whether d's region had taken all that o shows in a sum.
func (d *RegionDigest) shown(o *RegionDigest, i int, slot uint16, g *regions) bool {
	for r, clock := range o.Sums[i].Clocks {
		switch m := g.member(part.Region(r)); {
		case o.Gone>>r&1 != 0 && m != nil:
			// all have what it did itself, and what its heir does is in that one's log
			heir := g.source(m.Heir, slot)
			if clock != d.Sums[i].Clocks[r] && d.taken(heir) < o.taken(heir) {
				return false
			}
		case clock != 0 && (m == nil || d.taken(g.source(m.Region, slot)) < clock):
			return false
		}
	}
	return true
}

// taken is how far the region has what a source did, which may be itself.
func (d *RegionDigest) taken(from RegionSource) uint64 {
	if from == d.RegionSource {
		return d.Seq
	}
	i, ok := slices.BinarySearchFunc(d.Taken, from, func(t RegionTaken, from RegionSource) int {
		return t.compare(from)
	})
	if !ok {
		return 0
	}
	return d.Taken[i].Seq
}
