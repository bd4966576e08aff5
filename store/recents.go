package store

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"
)

// recents are the EXACT records of a partition that are not yet in a run on
// disk: a chain of segments, the newest of which grows. A record leaves memory
// only after the run that holds it is visible.
type recents struct {
	segments []*recentSegment // oldest first; the last one grows
}

// recentSegment is a batch of records, packed one behind the other, with a
// hash index. It grows under the partition's lock. Once it is sealed its chunks
// are immutable, and the builder of runs reads them without the lock.
type recentSegment struct {
	chunks [][]byte
	// index is an open-addressing table of location+1, 0 being empty. It covers
	// the records before pending, which are as many as indexed: new ids need no
	// index, and many at once enter it with their cache misses overlapping.
	index    []uint32
	shift    uint8 // hash >> shift is the place
	indexed  int
	pending  recordAt
	count    int
	size     int
	firstSeq uint64
	lastSeq  uint64
	first    int64 // logged times
	last     int64
}

const (
	// recentChunk is the size of a chunk. A record never spans two.
	recentChunk = 256 << 10
	// recentBits are the bits of a location that say where in its chunk.
	recentBits = 18
	// maxChunks bounds a segment, so that locations fit into 32 bits even if no
	// run can be built for long: 2 GiB.
	maxChunks = 1 << (31 - recentBits)
	// firstChunk is where an idle partition's memory begins.
	firstChunk = 4 << 10
	// maxPresized bounds the index that a new segment gets in advance.
	maxPresized = 1 << 16
	// overhang are the places behind the index's last one, so that probing
	// never wraps around.
	overhang = 64
)

// A record in a chunk: a header of fixed size, then the run value.
//
//	table u32 | length of the value u32 | hash u64 | sequence u64 | value
const recordHeader = 4 + 4 + 8 + 8

// record is an EXACT record: what is remembered of an operation.
type record struct {
	table  uint32
	hash   uint64
	seq    uint64
	logged int64
	key    []byte
	id     []byte
	seen   Seen
	// packed, unless it is nil, are key, opid, delta and result as appendTo
	// writes them.
	packed []byte
}

// appendTo appends the record's run value: key, opid, delta, result, wall time
// and, unless it is 0, the clip.
func (r *record) appendTo(dst []byte) []byte {
	if r.packed != nil {
		dst = append(dst, r.packed...)
	} else {
		dst = appendBytes(dst, r.key)
		dst = appendID(dst, r.id)
		dst = binary.AppendVarint(dst, r.seen.Delta)
		dst = binary.AppendVarint(dst, r.seen.Result)
	}
	dst = binary.AppendVarint(dst, r.seen.UnixMs)
	if r.seen.Clip != 0 {
		dst = binary.AppendVarint(dst, r.seen.Clip)
	}
	return dst
}

// seenOf returns what a run value remembers of the operation.
func seenOf(value []byte) (Seen, error) {
	r := reader{rest: value}
	r.bytes()
	r.skipID()
	seen := r.seen()
	return seen, r.err
}

// isOf reports whether a run value is that of (key, id).
func isOf(value, key, id []byte) bool {
	rest, ok := cutBytes(value, key)
	return ok && isID(rest, id)
}

// runValue decodes what appendTo writes.
func (r *reader) runValue() record {
	return record{key: r.bytes(), id: r.opid(new([uuidText]byte)), seen: r.seen()}
}

func (r *reader) seen() Seen {
	s := Seen{Delta: r.varint(), Result: r.varint(), UnixMs: r.varint()}
	if len(r.rest) > 0 {
		s.Clip = r.varint()
	}
	return s
}

// add remembers an operation.
func (rs *recents) add(r *record) {
	if len(rs.segments) == 0 {
		rs.segments = append(rs.segments, newRecentSegment(0))
	}
	s := rs.segments[len(rs.segments)-1]
	if len(s.chunks) > maxChunks {
		s.indexPending() // nobody changes it any more
		s = newRecentSegment(0)
		rs.segments = append(rs.segments, s)
	}
	s.add(r)
}

func (s *recentSegment) add(r *record) {
	n := s.reserve(recordHeader + len(r.key) + len(r.id) + 8*binary.MaxVarintLen64)
	if s.count == 0 {
		s.firstSeq, s.first = r.seq, r.logged
	}
	s.lastSeq, s.last = r.seq, r.logged
	c := s.chunks[n]
	at := len(c)
	c = binary.LittleEndian.AppendUint64(c, uint64(r.table))
	c = binary.LittleEndian.AppendUint64(c, r.hash)
	c = binary.LittleEndian.AppendUint64(c, r.seq)
	c = r.appendTo(c)
	binary.LittleEndian.PutUint32(c[at+4:], uint32(len(c)-at-recordHeader))
	s.chunks[n] = c
	s.size += len(c) - at
	s.count++
}

// recordAt is where a record begins.
type recordAt struct{ chunk, offset int }

// indexPending brings the index up to date.
func (s *recentSegment) indexPending() {
	if s.indexed == s.count {
		return
	}
	if s.count*2 > len(s.index)-overhang {
		s.setIndex(bits.Len(uint(2 * s.count)))
		s.indexed, s.pending = 0, recordAt{}
	}
	for s.indexed < s.count {
		at := &s.pending
		c := s.chunks[at.chunk]
		if at.offset == len(c) {
			*at = recordAt{chunk: at.chunk + 1}
			continue
		}
		loc := uint32(at.chunk)<<recentBits | uint32(at.offset) + 1
		at.offset += recordHeader + int(binary.LittleEndian.Uint32(c[at.offset+4:]))
		s.indexed++
		if !s.place(loc, s.hashAt(loc)) {
			// The overhang is full.
			s.setIndex(64 - int(s.shift) + 1)
			s.indexed, s.pending = 0, recordAt{}
		}
	}
}

// reserve returns the chunk that has room for most bytes.
func (s *recentSegment) reserve(most int) int {
	n := len(s.chunks) - 1
	if n >= 0 && len(s.chunks[n])+most <= cap(s.chunks[n]) {
		return n
	}
	switch {
	case n < 0 && most <= firstChunk: // so that idle partitions stay small
		s.chunks = append(s.chunks, make([]byte, 0, firstChunk))
	case most <= recentChunk:
		s.chunks = append(s.chunks, newChunk())
	default:
		s.chunks = append(s.chunks, make([]byte, 0, most))
	}
	return n + 1
}

// newRecentSegment makes an empty segment with an index for n records.
func newRecentSegment(n int) *recentSegment {
	s := new(recentSegment)
	s.setIndex(max(6, bits.Len(uint(2*n))))
	return s
}

// setIndex gives the segment an empty index of 1<<bits places.
func (s *recentSegment) setIndex(bits int) {
	recycleIndex(s.index)
	s.index, s.shift = newIndex(bits), uint8(64-bits)
}

// place puts a location into the index, which is kept at most half full; false
// if there is no room behind its place.
func (s *recentSegment) place(loc uint32, hash uint64) bool {
	for i := hash >> s.shift; i < uint64(len(s.index)); i++ {
		if s.index[i] == 0 {
			s.index[i] = loc
			return true
		}
	}
	return false
}

// at returns the record at a location, followed by others.
func (s *recentSegment) at(loc uint32) []byte {
	loc--
	return s.chunks[loc>>recentBits][loc&(1<<recentBits-1):]
}

func (s *recentSegment) hashAt(loc uint32) uint64 {
	return binary.LittleEndian.Uint64(s.at(loc)[8:])
}

// recordValue returns the run value of the record at the beginning of b, and
// what follows it.
func recordValue(b []byte) (value, rest []byte) {
	end := recordHeader + int(binary.LittleEndian.Uint32(b[4:]))
	return b[recordHeader:end:end], b[end:]
}

func recordSeq(b []byte) uint64 { return binary.LittleEndian.Uint64(b[16:]) }

// find returns the record of (key, id), whose hash is given; newest segment
// first.
func (rs *recents) find(hash uint64, key, id []byte) (record, bool) {
	for i := len(rs.segments) - 1; i >= 0; i-- {
		if r, ok := rs.segments[i].find(hash, key, id); ok {
			return r, true
		}
	}
	return record{}, false
}

// requestIndex and requestRecord ask for what find will need, first in the
// index, then in the records: called for many hashes in turn, they let the cache
// misses of all overlap. What they return only keeps the loads from being dropped.
func (rs *recents) requestIndex(hash uint64) (x uint32) {
	for _, s := range rs.segments {
		if s.count > 0 {
			s.indexPending()
			x += s.index[hash>>s.shift]
		}
	}
	return x
}

func (rs *recents) requestRecord(hash uint64) (x uint32) {
	for _, s := range rs.segments {
		if s.count == 0 {
			continue
		}
		if loc := s.index[hash>>s.shift]; loc != 0 {
			x += uint32(s.at(loc)[recordHeader-1])
		}
	}
	return x
}

func (s *recentSegment) find(hash uint64, key, id []byte) (record, bool) {
	if s.count == 0 {
		return record{}, false // its index may be large, and in no cache
	}
	s.indexPending()
	for i := hash >> s.shift; i < uint64(len(s.index)) && s.index[i] != 0; i++ {
		b := s.at(s.index[i])
		if binary.LittleEndian.Uint64(b[8:]) != hash {
			continue
		}
		if value, _ := recordValue(b); isOf(value, key, id) {
			// What is decoded here was encoded by add.
			seen, _ := seenOf(value)
			return record{table: binary.LittleEndian.Uint32(b), hash: hash, seq: recordSeq(b), key: key, id: id, seen: seen}, true
		}
	}
	return record{}, false
}

// seal ends the growing segment and returns all segments that are not empty;
// nil when there is none.
func (rs *recents) seal() []*recentSegment {
	n := len(rs.segments)
	if n > 0 && rs.segments[n-1].count > 0 {
		// The next one will be about as large.
		rs.segments = append(rs.segments, newRecentSegment(min(rs.segments[n-1].count, maxPresized)))
		n++
	}
	if n <= 1 {
		return nil
	}
	return rs.segments[: n-1 : n-1]
}

// release drops the n oldest segments, which are in visible runs now. Nobody
// may use them any more.
func (rs *recents) release(n int) {
	for _, s := range rs.segments[:n] {
		for _, c := range s.chunks {
			recycleChunk(c)
		}
		recycleIndex(s.index)
		s.index = nil
	}
	rs.segments = slices.Clone(rs.segments[n:])
}

// bytes is the memory held by records.
func (rs *recents) bytes() (n int) {
	for _, s := range rs.segments {
		n += s.size
	}
	return n
}

func (rs *recents) count() (n int) {
	for _, s := range rs.segments {
		n += s.count
	}
	return n
}

// compareRecords orders entries of runs.
func compareRecords(aHash, aSeq, bHash, bSeq uint64) int {
	return cmp.Or(cmp.Compare(aHash, bHash), cmp.Compare(aSeq, bSeq))
}
