package store

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
)

// recents are the EXACT records of a partition that are not yet in a run on
// disk: a chain of segments, the newest of which grows. A record leaves memory
// only after the run that holds it is visible.
type recents struct {
	segments []*recentSegment // oldest first; the last one grows
}

// recentSegment is a recent segment: records, packed one behind the other, with a head
// for each. It grows under the partition's lock. Once it is sealed its chunks and
// heads are immutable, and the builder of runs reads them without the lock.
type recentSegment struct {
	chunks   [][]byte
	heads    headList // of the records, in their order
	index    recentIndex
	count    int
	size     int
	tables   []tableCount
	firstSeq uint64
	lastSeq  uint64
	first    int64 // logged times
	last     int64
}

// tableCount is how many records a segment has of a table.
type tableCount struct {
	table uint32
	n     int
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

// Tagged fields, of which a record has those that it needs, end it: tag and content, as
// bytes. Tags ascend from 1. Unknown fields are skipped.
const tagClip = 1 // the clip, a varint; without it 0

// appendTo appends the record's run value: key, opid, delta, result (what the client was
// told), wall time, tagged fields.
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
		var clip [binary.MaxVarintLen64]byte
		dst = binary.AppendUvarint(dst, tagClip)
		dst = appendBytes(dst, binary.AppendVarint(clip[:0], r.seen.Clip))
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
	for last := uint64(0); len(r.rest) > 0; {
		tag, field := r.uvarint(), reader{rest: r.bytes()}
		if tag == tagClip {
			s.Clip = field.varint()
			field.end()
		}
		if tag <= last || field.err != nil {
			r.fail()
		}
		last = tag
	}
	return s
}

// add remembers an operation.
func (rs *recents) add(r *record) {
	if len(rs.segments) == 0 {
		rs.segments = append(rs.segments, new(recentSegment))
	}
	s := rs.segments[len(rs.segments)-1]
	if len(s.chunks) > maxChunks {
		s = new(recentSegment)
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
	s.heads.add(headOf(r.hash, n, at))
	s.size += len(c) - at
	s.count++
	s.countTable(r.table)
}

func (s *recentSegment) countTable(table uint32) {
	for i := range s.tables {
		if t := &s.tables[i]; t.table == table {
			t.n++
			return
		}
	}
	s.tables = append(s.tables, tableCount{table, 1})
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

// at returns the record at a location, followed by others.
func (s *recentSegment) at(loc uint64) []byte {
	return s.chunks[loc>>recentBits][loc&(1<<recentBits-1):]
}

// recordValue returns the run value of the record at the beginning of b, and
// what follows it.
func recordValue(b []byte) (value, rest []byte) {
	end := recordHeader + int(binary.LittleEndian.Uint32(b[4:]))
	return b[recordHeader:end:end], b[end:]
}

func recordHash(b []byte) uint64 { return binary.LittleEndian.Uint64(b[8:]) }

func recordSeq(b []byte) uint64 { return binary.LittleEndian.Uint64(b[16:]) }

// find returns the record of (key, id), whose hash is given; newest segment
// first.
func (rs *recents) find(hash uint64, key, id []byte) (record, bool) {
	return rs.findWithin(math.MinInt64, math.MaxInt64, hash, key, id)
}

// findWithin is find for a record of the logged times first to last.
func (rs *recents) findWithin(first, last int64, hash uint64, key, id []byte) (record, bool) {
	for i := len(rs.segments) - 1; i >= 0; i-- {
		s := rs.segments[i]
		if s.last < first || s.first > last {
			continue
		}
		if r, ok := s.find(hash, key, id); ok {
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
		x += s.index.first(hash)
	}
	return x
}

func (rs *recents) requestRecord(hash uint64) (x uint32) {
	for _, s := range rs.segments {
		if loc := s.index.first(hash); loc != 0 {
			x += uint32(s.at(uint64(loc - 1))[recordHeader-1])
		}
	}
	return x
}

// recentMark is a place in the chain of segments.
type recentMark struct{ segment, count int }

// mark returns the place behind the newest record. It is good until segments are
// released.
func (rs *recents) mark() recentMark {
	n := len(rs.segments) - 1
	if n < 0 {
		return recentMark{}
	}
	return recentMark{n, rs.segments[n].count}
}

// findSince is find for a record added behind a mark: of one batch, however many
// there are in memory.
func (rs *recents) findSince(m recentMark, hash uint64, key, id []byte) (record, bool) {
	for i := len(rs.segments) - 1; i >= m.segment; i-- {
		from := 0
		if i == m.segment {
			from = m.count
		}
		if r, ok := rs.segments[i].findFrom(from, hash, key, id); ok {
			return r, true
		}
	}
	return record{}, false
}

// find asks the records that are not in the index by their heads, newest first,
// and then the index.
func (s *recentSegment) find(hash uint64, key, id []byte) (record, bool) {
	if s.count == 0 {
		return record{}, false // its index may be large, and in no cache
	}
	s.index.updateIfDue(s)
	if r, ok := s.findFrom(s.index.count, hash, key, id); ok {
		return r, true
	}
	return s.index.find(s, hash, key, id)
}

// findFrom asks the records from number from on by their heads, newest first.
func (s *recentSegment) findFrom(from int, hash uint64, key, id []byte) (record, bool) {
	for i := s.count; ; {
		if i = s.heads.findLast(hash, from, i) - 1; i < from {
			return record{}, false
		}
		if r, ok := s.recordAt(s.heads.at(i).location(), hash, key, id); ok {
			return r, true
		}
	}
}

// recordAt returns the record at a location if it is that of (key, id).
func (s *recentSegment) recordAt(loc, hash uint64, key, id []byte) (record, bool) {
	b := s.at(loc)
	if recordHash(b) != hash {
		return record{}, false
	}
	value, _ := recordValue(b)
	if !isOf(value, key, id) {
		return record{}, false
	}
	// What is decoded here was encoded by add.
	seen, _ := seenOf(value)
	return record{table: binary.LittleEndian.Uint32(b), hash: hash, seq: recordSeq(b), key: key, id: id, seen: seen}, true
}

// seal ends the growing segment and returns all segments that are not empty;
// nil when there is none.
func (rs *recents) seal() []*recentSegment {
	n := len(rs.segments)
	if n > 0 && rs.segments[n-1].count > 0 {
		rs.segments = append(rs.segments, new(recentSegment))
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
		s.heads.recycle()
		s.index.recycle()
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
