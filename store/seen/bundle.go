package seen

import (
	"cmp"
	"encoding/binary"
)

// bundle is records in memory, packed one behind the other, with a head for each. It
// grows under the owner's lock. Once it is sealed its chunks and heads are immutable,
// and a Build reads them without the lock.
type bundle struct {
	chunks   [][]byte
	heads    headList // of the records, in their order
	index    index
	count    int
	size     int
	tables   []tableCount
	firstSeq uint64
	lastSeq  uint64
	first    int64 // logged times
	last     int64
}

// tableCount is how many records a bundle has of a table.
type tableCount struct {
	table uint32
	n     int
}

const (
	// chunkSize is the size of a chunk. A record never spans two.
	chunkSize = 256 << 10
	// chunkBits are the bits of a location that say where in its chunk.
	chunkBits = 18
	// maxChunks bounds a bundle, so that locations fit into 32 bits even if no
	// run can be built for long: 2 GiB.
	maxChunks = 1 << (31 - chunkBits)
	// firstChunk is where an idle partition's memory begins.
	firstChunk = 4 << 10
)

// A record in a chunk: a header of fixed size, then its value.
//
//	table u32 | length of the value u32 | hash u64 | sequence u64 | value
const recordHeader = 4 + 4 + 8 + 8

// recordRoom bounds what a record's value takes beside key and opid: their lengths, three
// numbers, and three fields.
const recordRoom = (2+3+3)*binary.MaxVarintLen64 + 3*2 + 1

func (s *bundle) add(r *Record) {
	n := s.reserve(recordHeader + len(r.Key) + len(r.ID) + recordRoom)
	if s.count == 0 {
		s.firstSeq, s.first = r.Seq, r.Logged
	}
	s.lastSeq, s.last = r.Seq, r.Logged
	c := s.chunks[n]
	at := len(c)
	c = binary.LittleEndian.AppendUint64(c, uint64(r.Table))
	c = binary.LittleEndian.AppendUint64(c, r.Hash)
	c = binary.LittleEndian.AppendUint64(c, r.Seq)
	c = r.AppendTo(c)
	binary.LittleEndian.PutUint32(c[at+4:], uint32(len(c)-at-recordHeader))
	s.chunks[n] = c
	s.heads.add(headOf(r.Hash, n, at))
	s.size += len(c) - at
	s.count++
	s.countTable(r.Table)
}

func (s *bundle) countTable(table uint32) {
	for i := range s.tables {
		if t := &s.tables[i]; t.table == table {
			t.n++
			return
		}
	}
	s.tables = append(s.tables, tableCount{table, 1})
}

// reserve returns the chunk that has room for most bytes.
func (s *bundle) reserve(most int) int {
	n := len(s.chunks) - 1
	if n >= 0 && len(s.chunks[n])+most <= cap(s.chunks[n]) {
		return n
	}
	switch {
	case n < 0 && most <= firstChunk: // so that idle partitions stay small
		s.chunks = append(s.chunks, make([]byte, 0, firstChunk))
	case most <= chunkSize:
		s.chunks = append(s.chunks, newChunk())
	default:
		s.chunks = append(s.chunks, make([]byte, 0, most))
	}
	return n + 1
}

// at returns the record at a location, followed by others.
func (s *bundle) at(loc uint64) []byte {
	return s.chunks[loc>>chunkBits][loc&(1<<chunkBits-1):]
}

func recordTable(b []byte) uint32 { return binary.LittleEndian.Uint32(b) }

// recordValue returns the value of the record at the beginning of b.
func recordValue(b []byte) []byte {
	end := recordHeader + int(binary.LittleEndian.Uint32(b[4:]))
	return b[recordHeader:end:end]
}

func recordHash(b []byte) uint64 { return binary.LittleEndian.Uint64(b[8:]) }

func recordSeq(b []byte) uint64 { return binary.LittleEndian.Uint64(b[16:]) }

// find returns the record of (key, id), followed by others; nil if there is none. It
// asks the records that are not in the index by their heads, newest first, and then
// the index. It adds to others how many it met that only have the same hash.
func (s *bundle) find(hash uint64, key, id []byte, others *int) []byte {
	if s.count == 0 {
		return nil // its index may be large, and in no cache
	}
	s.index.updateIfDue(s)
	if b := s.findFrom(s.index.count, hash, key, id, others); b != nil {
		return b
	}
	return s.index.find(s, hash, key, id, others)
}

// findFrom asks the records from number from on by their heads, newest first.
func (s *bundle) findFrom(from int, hash uint64, key, id []byte, others *int) []byte {
	for i := s.count; ; {
		if i = s.heads.findLast(hash, from, i) - 1; i < from {
			return nil
		}
		if b := s.recordAt(s.heads.at(i).location(), hash, key, id, others); b != nil {
			return b
		}
	}
}

// recordAt returns the record at a location if it belongs to (key, id), and counts it if it is
// another one with the same hash.
func (s *bundle) recordAt(loc, hash uint64, key, id []byte, others *int) []byte {
	b := s.at(loc)
	if recordHash(b) != hash {
		return nil
	}
	if isOf(recordValue(b), key, id) {
		return b
	}
	*others++
	return nil
}

// recycle gives the memory back.
func (s *bundle) recycle() {
	for _, c := range s.chunks {
		recycleChunk(c)
	}
	s.heads.recycle()
	s.index.recycle()
}

// compareRecords orders entries of runs.
func compareRecords(aHash, aSeq, bHash, bSeq uint64) int {
	return cmp.Or(cmp.Compare(aHash, bHash), cmp.Compare(aSeq, bSeq))
}
