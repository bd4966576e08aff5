package store

import (
	"encoding/binary"
	"math/bits"
)

// recents are the EXACT records of a partition that are not yet in a run on
// disk: a chain of segments, the newest of which grows. A record leaves memory
// only after the run that holds it is durable and visible.
type recents struct {
	segments []*recentSegment // oldest first; the last one grows
}

// recentSegment is a batch of records, packed one behind the other, with a
// hash index. It grows under the partition's lock and is immutable once it is
// sealed, when the builder of runs reads it without the lock.
type recentSegment struct {
	chunks   [][]byte
	index    []uint32 // open addressing by the hash: location+1; 0 is empty
	count    int
	size     int
	firstSeq uint64
	lastSeq  uint64
	first    int64 // logged times
	last     int64
}

// recentChunk is the size of a chunk. A record never spans two.
const recentChunk = 256 << 10

// maxPresized bounds the index that a new segment gets in advance.
const maxPresized = 1 << 16

// record is an EXACT record: what is remembered of an operation.
type record struct {
	table  uint32
	hash   uint64
	seq    uint64
	logged int64
	key    []byte
	id     []byte
	seen   Seen
}

// appendTo appends the record's run value: key, opid, delta, result, wall time.
func (r *record) appendTo(dst []byte) []byte {
	dst = appendBytes(dst, r.key)
	dst = appendBytes(dst, r.id)
	dst = binary.AppendVarint(dst, r.seen.Delta)
	dst = binary.AppendVarint(dst, r.seen.Result)
	return binary.AppendVarint(dst, r.seen.UnixMs)
}

// decodeRunValue is the one decoder of what appendTo writes. Key and id alias b.
func decodeRunValue(b []byte) (record, error) {
	r := reader{rest: b}
	rec := r.runValue()
	return rec, r.err
}

func (r *reader) runValue() record {
	return record{key: r.bytes(), id: r.bytes(), seen: Seen{Delta: r.varint(), Result: r.varint(), UnixMs: r.varint()}}
}

// add remembers an operation.
func (rs *recents) add(r *record) {
	if len(rs.segments) == 0 {
		rs.segments = append(rs.segments, newRecentSegment(0))
	}
	rs.segments[len(rs.segments)-1].add(r)
}

func (s *recentSegment) add(r *record) {
	most := len(r.key) + len(r.id) + 64
	n := len(s.chunks)
	if n == 0 || len(s.chunks[n-1])+most > cap(s.chunks[n-1]) {
		// The first chunk grows from small, so that idle partitions stay small.
		size := recentChunk
		if n == 0 {
			size = 4 << 10
		}
		s.chunks = append(s.chunks, make([]byte, 0, max(size, most)))
		n++
	}
	if s.count == 0 {
		s.firstSeq, s.first = r.seq, r.logged
	}
	s.lastSeq, s.last = r.seq, r.logged
	c := s.chunks[n-1]
	at := len(c)
	c = binary.AppendUvarint(c, uint64(r.table))
	c = binary.BigEndian.AppendUint64(c, r.hash)
	c = binary.AppendUvarint(c, r.seq)
	c = binary.AppendUvarint(c, uint64(r.logged))
	c = r.appendTo(c)
	s.chunks[n-1] = c
	s.size += len(c) - at
	s.count++
	s.addToIndex(r.hash, uint32(n-1)<<18|uint32(at))
}

// newRecentSegment makes an empty segment with an index for n records.
func newRecentSegment(n int) *recentSegment {
	return &recentSegment{index: make([]uint32, indexSize(n))}
}

// indexSize is the power of two that holds n records at most three quarters full.
func indexSize(n int) int { return max(64, 1<<bits.Len(uint(n+n/3))) }

// addToIndex keeps the index at most three quarters full.
func (s *recentSegment) addToIndex(hash uint64, at uint32) {
	if s.count*4 > len(s.index)*3 {
		old := s.index
		s.index = make([]uint32, 2*len(old))
		for _, loc := range old {
			if loc != 0 {
				s.place(loc, s.hashAt(loc-1))
			}
		}
	}
	s.place(at+1, hash)
}

// touch loads the place in the index where a record with this hash will go, so
// that the cache misses of a batch overlap. The result only keeps the load.
func (rs *recents) touch(hash uint64) uint32 {
	if len(rs.segments) == 0 {
		return 0
	}
	index := rs.segments[len(rs.segments)-1].index
	return index[hash&uint64(len(index)-1)]
}

func (s *recentSegment) place(loc uint32, hash uint64) {
	mask := uint64(len(s.index) - 1)
	i := hash & mask
	for s.index[i] != 0 {
		i = (i + 1) & mask
	}
	s.index[i] = loc
}

func (s *recentSegment) at(loc uint32) []byte { return s.chunks[loc>>18][loc&(1<<18-1):] }

func (s *recentSegment) hashAt(loc uint32) uint64 {
	r := reader{rest: s.at(loc)}
	r.uvarint()
	return r.uint64()
}

func decodeRecent(b []byte) (record, []byte) {
	r := reader{rest: b}
	table, hash, seq, logged := uint32(r.uvarint()), r.uint64(), r.uvarint(), int64(r.uvarint())
	rec := r.runValue()
	rec.table, rec.hash, rec.seq, rec.logged = table, hash, seq, logged
	return rec, r.rest
}

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

func (s *recentSegment) find(hash uint64, key, id []byte) (record, bool) {
	if s.count == 0 {
		return record{}, false
	}
	mask := uint64(len(s.index) - 1)
	for i := hash & mask; s.index[i] != 0; i = (i + 1) & mask {
		if s.hashAt(s.index[i]-1) != hash {
			continue
		}
		r, _ := decodeRecent(s.at(s.index[i] - 1))
		if string(r.key) == string(key) && string(r.id) == string(id) {
			return r, true
		}
	}
	return record{}, false
}

// each calls fn with every record in the order of application.
func (s *recentSegment) each(fn func(record)) {
	for _, c := range s.chunks {
		for len(c) > 0 {
			var r record
			r, c = decodeRecent(c)
			fn(r)
		}
	}
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

// release drops the n oldest segments, which are in durable, visible runs now.
func (rs *recents) release(n int) {
	rs.segments = append([]*recentSegment(nil), rs.segments[n:]...)
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
