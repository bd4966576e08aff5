package store

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/fbfkv/fbfkv/store/coding"
	"github.com/fbfkv/fbfkv/store/part"
)

// Digests of counters: for each 1/1024 of the slots, a sum of hashes over its keys. Two regions that have
// taken each other's logs, and equally much of others' (Compare asks that), must have the same. Why each
// piece of it is:
//
//	a part: clock, live, cum, register,   made by its region's changes alone, which all take in the order of
//	expiry, take-backs                    their log; whole parts (Merge) are copies as of one of them
//	its base                              the highest of what deletions say, and these are in the logs, too
//	whether a part or a base is there     who has forgotten a dead counter (part.Parts.Droppable) lacks the
//	                                      closed parts, and the bases of those that go on: neither is told
//	                                      (part.Parts.AppendAgreed). A part that is closed has nothing else, since
//	                                      its region has deleted it itself, as all knew before anybody forgot it
//	whether the key is there              it is told if some part lives, which follows from parts and bases
//	a counter without parts               as its region's part, with the clock of its newest entry (asParts)
//	expired                               not told from the time on at which it expires here: each region deletes
//	                                      it by its own clock. In between they may differ
//	tables                                keys of REGIONS ALL are told: tables must have the same prefixes everywhere
//
// Of no other thing that regions do not agree on it depends: what is in memory or in rows, who deleted what
// has expired, ids, what is owed. A digest is as of one sequence: if anything is logged in the partition
// while its keys are read, it says so, and is no use.

const (
	// digestSlots is how many slots have a sum together.
	digestSlots         = slots / 1024
	regionDigestVersion = 1
)

// RegionDigest is what a region has in a slot range.
type RegionDigest struct {
	RegionSource        // the region, and its partition
	First, Last  uint16 // slots
	Seq          uint64 // of the partition, when it was made
	// Busy: the partition has changed while its keys were read, so that the sums are of no one sequence.
	Busy  bool
	Taken []RegionTaken // how far the partition had taken others' logs, by source
	Sums  []uint64      // of each 16 slots from First on
}

// DigestQuery is what a region asks another one for: a digest of one of the ranges of slots that it reads.
type DigestQuery struct {
	By                 part.Region
	Group, Incarnation uint64 // … of the source, as who asks knows it
	Partition          uint16
	First, Last        uint16
}

// Digest answers another region's query, for DecodeDigest. Errors: as Pull, but for ErrGap.
func (s *Store) Digest(q DigestQuery) ([]byte, error) {
	p, err := s.ownPartition(q.Partition)
	if err != nil {
		return nil, err
	}
	pull := Pull{By: q.By, Group: q.Group, Incarnation: q.Incarnation, Partition: q.Partition, First: q.First, Last: q.Last}
	p.lock()
	_, err = pull.check(p)
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	d, err := s.RegionDigest(q.First, q.Last)
	if err != nil {
		return nil, err
	}
	return d.appendTo(nil), nil
}

// RegionDigest returns a digest of slots of one partition here. It reads all their keys.
func (s *Store) RegionDigest(first, last uint16) (d RegionDigest, err error) {
	p := s.partitions[first>>s.shift]
	p.taking.mu.Lock()
	p.lock()
	if p.regions == nil || first > last || s.partitions[last>>s.shift] != p {
		p.mu.Unlock()
		p.taking.mu.Unlock()
		return d, ErrNoRegions
	}
	here := p.here()
	d = RegionDigest{RegionSource: RegionSource{p.self(), p.id}, First: first, Last: last, Seq: p.seq}
	d.Taken = sortTaken(p.regions.cursors)
	for i := range d.Taken {
		t := &d.Taken[i]
		t.Seq = max(t.Seq, p.heldTaking().ahead[t.RegionSource])
	}
	p.mu.Unlock()
	p.taking.mu.Unlock()
	wall, _ := s.look()
	d.Sums = make([]uint64, int(last/digestSlots-first/digestSlots)+1)
	var after, buf []byte
	for more := true; more && !d.Busy; {
		var keys []foundKey
		var at point
		if keys, more, at, err = s.partsBehind(p, after, last, max(positionOfNext(after), position(first, 0)), stateKeys); err != nil {
			return d, err
		}
		for i := range keys {
			k := &keys[i]
			after = k.key
			buf = coding.AppendBytes(buf[:0], k.key)
			// What has expired is seen by nobody, and each region deletes it in its own time.
			if at := k.parts.Expiry().At; at != 0 && at <= wall {
				continue
			}
			if n := len(buf); k.told && len(k.parts.AppendAgreed(buf)) > n {
				buf = k.parts.AppendAgreed(buf)
				d.Sums[Slot(k.key)/digestSlots-first/digestSlots] += xxhash.Sum64(buf)
			}
		}
		d.Busy = at != here
	}
	return d, here.wait()
}

func (d *RegionDigest) appendTo(b []byte) []byte {
	b = d.RegionSource.appendTo(append(b, regionDigestVersion))
	b = binary.AppendUvarint(b, uint64(d.First))
	b = binary.AppendUvarint(b, uint64(d.Last))
	b = append(binary.AppendUvarint(b, d.Seq), bit(d.Busy))
	b = appendTaken(b, d.Taken)
	for _, sum := range d.Sums {
		b = binary.BigEndian.AppendUint64(b, sum)
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
	d.Seq, d.Busy, d.Taken = r.Uvarint(), r.bit(), r.taken()
	if d.First > d.Last || len(r.Rest) != 8*(int(d.Last/digestSlots-d.First/digestSlots)+1) {
		return RegionDigest{}, ErrPulled
	}
	for rest := r.Rest; len(rest) > 0; rest = rest[8:] {
		d.Sums = append(d.Sums, binary.BigEndian.Uint64(rest))
	}
	if !bytes.Equal(d.appendTo(nil), b) {
		return RegionDigest{}, ErrPulled
	}
	return d, nil
}

// SlotRange is slots from First to Last.
type SlotRange struct{ First, Last uint16 }

// Compare returns the slots in which two regions differ, and whether that can be said: each has taken all
// that the other had done, and they have taken equally much of third ones.
func (d *RegionDigest) Compare(o *RegionDigest, set *RegionSet) (differ []SlotRange, ok bool) {
	if d.Busy || o.Busy || d.First != o.First || d.Last != o.Last || len(d.Sums) != len(o.Sums) {
		return nil, false
	}
	if d.taken(o.RegionSource) < o.Seq || o.taken(d.RegionSource) < d.Seq {
		return nil, false
	}
	g := newRegions(*set)
	for _, r := range g.ids {
		if r == d.Region || r == o.Region {
			continue
		}
		for n := g.source(r, d.First).Partition; n <= g.source(r, d.Last).Partition; n++ {
			if d.taken(RegionSource{r, n}) != o.taken(RegionSource{r, n}) {
				return nil, false
			}
		}
	}
	for i := range d.Sums {
		if d.Sums[i] == o.Sums[i] {
			continue
		}
		first := (int(d.First)/digestSlots + i) * digestSlots
		r := SlotRange{max(uint16(first), d.First), min(uint16(first+digestSlots-1), d.Last)}
		if n := len(differ); n > 0 && differ[n-1].Last+1 == r.First {
			differ[n-1].Last = r.Last
			continue
		}
		differ = append(differ, r)
	}
	return differ, true
}

func (d *RegionDigest) taken(from RegionSource) uint64 {
	i, ok := slices.BinarySearchFunc(d.Taken, from, func(t RegionTaken, from RegionSource) int { return t.compare(from) })
	if !ok {
		return 0
	}
	return d.Taken[i].Seq
}
