package store

import (
	"encoding/binary"
	"math/bits"
)

// recordSorter puts the records of sealed segments in the order of runs. They lie
// in the order in which they came; fetching each from where it lies, in the order
// of hashes, would cost a cache miss or two a record. So the hashes, which are
// uniform, are divided into slices of a few records, and the records of as many
// slices as the cache takes are copied together: the segments are only ever read
// from their beginning to their end, and what is sorted is in the cache.
type recordSorter struct {
	segments []*recentSegment
	table    uint32
	*sortScratch

	slices int // in all
	from   int // the slices from..to-1 have been gathered,
	to     int // and those from next on are still to be sorted
	next   int
	list   []sortedRecord // what is still to come of the slice before next
}

// sortScratch is the memory of a recordSorter, kept for the next one.
type sortScratch struct {
	sizes []uint32 // bytes of each slice's records
	ends  []uint32 // in buf: where each gathered slice ends
	buf   []byte
	slice []sortedRecord
}

const (
	// sliceRecords is how many records a slice has on average: so few that an
	// insertion sort is the best.
	sliceRecords = 8
	// gatherBytes is how much is gathered at once, unless a slice is larger: what
	// the second-level cache takes beside what it is read from.
	gatherBytes = 1 << 20
	// maxKeptSort is how much of each kind of scratch is kept.
	maxKeptSort = 4 << 20
)

// sortedRecord refers to a record in a sorter's buffer.
type sortedRecord struct {
	hash, seq uint64
	at        uint32
}

// newRecordSorter prepares to sort one table's n records.
func newRecordSorter(scratch *sortScratch, segments []*recentSegment, table uint32, n int) *recordSorter {
	s := &recordSorter{segments: segments, table: table, sortScratch: scratch, slices: n/sliceRecords + 1}
	s.sizes = zeroed(s.sizes, s.slices)
	s.each(func(hash uint64, b []byte) { s.sizes[s.sliceOf(hash)] += uint32(len(b)) })
	return s
}

// zeroed returns n zeros, s's memory if that is enough.
func zeroed(s []uint32, n int) []uint32 {
	if cap(s) < n {
		return make([]uint32, n)
	}
	s = s[:n]
	clear(s)
	return s
}

// each calls fn for the table's records as they lie in the segments.
func (s *recordSorter) each(fn func(hash uint64, record []byte)) {
	for _, seg := range s.segments {
		for _, c := range seg.chunks {
			for len(c) > 0 {
				end := recordHeader + int(binary.LittleEndian.Uint32(c[4:]))
				if binary.LittleEndian.Uint32(c) == s.table {
					fn(binary.LittleEndian.Uint64(c[8:]), c[:end])
				}
				c = c[end:]
			}
		}
	}
}

func (s *recordSorter) sliceOf(hash uint64) int {
	hi, _ := bits.Mul64(hash, uint64(s.slices))
	return int(hi)
}

// gather copies the records of the next slices into the buffer, slice by slice.
func (s *recordSorter) gather() {
	s.from, s.next = s.to, s.to
	s.ends = s.ends[:0]
	size := uint32(0)
	for s.to < s.slices && (s.to == s.from || size+s.sizes[s.to] <= gatherBytes) {
		s.ends = append(s.ends, size) // where it begins, until it is filled
		size += s.sizes[s.to]
		s.to++
	}
	if cap(s.buf) < int(size) {
		s.buf = make([]byte, max(size, gatherBytes))
	}
	s.buf = s.buf[:size]
	from, n := s.from, s.to-s.from
	s.each(func(hash uint64, b []byte) {
		if i := s.sliceOf(hash) - from; uint(i) < uint(n) {
			copy(s.buf[s.ends[i]:], b)
			s.ends[i] += uint32(len(b))
		}
	})
}

// sortNext makes list of the next slice; false at the end.
func (s *recordSorter) sortNext() bool {
	if s.next == s.to {
		if s.to == s.slices {
			return false
		}
		s.gather()
	}
	at := uint32(0)
	if s.next > s.from {
		at = s.ends[s.next-s.from-1]
	}
	list := s.slice[:0]
	for end := s.ends[s.next-s.from]; at < end; {
		b := s.buf[at:]
		r := sortedRecord{hash: binary.LittleEndian.Uint64(b[8:]), seq: recordSeq(b), at: at}
		at += recordHeader + binary.LittleEndian.Uint32(b[4:])
		i := len(list)
		list = append(list, r)
		for ; i > 0 && r.before(&list[i-1]); i-- {
			list[i] = list[i-1]
		}
		list[i] = r
	}
	s.next++
	s.slice, s.list = list, list
	return true
}

func (r *sortedRecord) before(o *sortedRecord) bool {
	return r.hash < o.hash || r.hash == o.hash && r.seq < o.seq
}

// advance makes h the next record; false at the end.
func (s *recordSorter) advance(h *mergeHead) (bool, error) {
	for len(s.list) == 0 {
		if !s.sortNext() {
			return false, nil
		}
	}
	r := &s.list[0]
	h.hash, h.seq = r.hash, r.seq
	h.value, _ = recordValue(s.buf[r.at:])
	s.list = s.list[1:]
	return true, nil
}

// close gives back scratch that is unusually large.
func (s *recordSorter) close() {
	if 4*cap(s.sizes) > maxKeptSort {
		s.sizes = nil
	}
	if cap(s.buf) > maxKeptSort {
		s.buf = nil
	}
	if cap(s.slice) > maxKeptSort/32 {
		s.slice = nil
	}
}

// countTables counts the records of each table in sealed segments.
func countTables(segments []*recentSegment) map[uint32]int {
	counts := make(map[uint32]int)
	last, n := uint32(0), 0
	for _, seg := range segments {
		for _, c := range seg.chunks {
			for len(c) > 0 {
				if table := binary.LittleEndian.Uint32(c); table != last {
					counts[last] += n
					last, n = table, 0
				}
				n++
				c = c[recordHeader+binary.LittleEndian.Uint32(c[4:]):]
			}
		}
	}
	counts[last] += n
	return counts
}
