package seen

import (
	"math/bits"
	"slices"

	"github.com/fbfkv/fbfkv/persistence"
)

// sorter puts the records of sealed bundles in the order of runs. Only
// their heads are sorted, a few bytes each. The hashes, which are uniform, are
// divided into parts, the heads of a part into slices of a few, all in the cache;
// each slice is put in order when its turn comes. The records are then fetched
// from where they lie, a cache miss or two each, which are requested for many
// together, so that they overlap.
type sorter struct {
	bundles []*bundle
	table   uint32
	mixed   bool // there are records of other tables
	*Scratch

	chunks    [][]byte // of all bundles; heads refer to them
	partBits  int
	sliceBits int                    // of the hash; partBits of them are the part's
	part      int                    // the next one
	slice     int                    // the next one of the part before, which is gathered
	entries   []persistence.RunEntry // what next returned last
	requested uint32                 // keeps the loads made ahead from being dropped
}

// Scratch is memory that a Build uses and leaves to the next one, of one Records or
// another. Its zero value is ready for use.
type Scratch struct {
	gathered []head   // of the part, as they lie in the bundles
	sorted   []head   // the same, slice by slice
	ends     []uint32 // in sorted: where each slice ends
}

const (
	// sliceRecords is how many records a slice has at most, on average: so few
	// that an insertion sort is the best.
	sliceRecords = 8
	// partRecords is about how many heads are gathered at once: what the
	// second-level cache takes twice.
	partRecords = 32 << 10
	// 1<<maxPartBits bounds how often all heads are looked through.
	maxPartBits = 4
	// cacheLine is how far apart loads must be to request the next one.
	cacheLine = 64
	// requestRecords is about how many records are requested together.
	requestRecords = 64
	// maxKeptSort is how much of each kind of scratch is kept.
	maxKeptSort = 4 << 20
)

// newSorter prepares to sort one table's n records.
func newSorter(scratch *Scratch, bundles []*bundle, table uint32, n int) *sorter {
	s := &sorter{
		bundles: bundles, table: table, Scratch: scratch,
		partBits:  min(bits.Len(uint(n/partRecords)), maxPartBits),
		sliceBits: bits.Len(uint(n / sliceRecords)),
	}
	all := 0
	for _, seg := range bundles {
		s.chunks = append(s.chunks, seg.chunks...)
		all += seg.count
	}
	s.mixed = n < all
	s.ends, s.slice = s.ends[:0], 0
	return s
}

// gather makes slices of the next part's heads.
func (s *sorter) gather() {
	s.collect(uint64(s.part)<<(64-s.partBits), 1<<(64-s.partBits)-1)
	s.part++
	shift, mask := 64-s.sliceBits, uint64(1)<<(s.sliceBits-s.partBits)-1
	s.ends = slices.Grow(s.ends[:0], int(mask)+1)[:mask+1]
	clear(s.ends)
	for _, h := range s.gathered {
		s.ends[uint64(h)>>shift&mask]++
	}
	begin := uint32(0)
	for i, n := range s.ends {
		s.ends[i] = begin // where it begins, until it is filled
		begin += n
	}
	s.sorted = slices.Grow(s.sorted[:0], len(s.gathered))[:len(s.gathered)]
	for _, h := range s.gathered {
		end := &s.ends[uint64(h)>>shift&mask]
		s.sorted[*end] = h
		*end++
	}
	s.slice = 0
}

// collect gathers the heads from least to least+span, as they lie in the bundles.
func (s *sorter) collect(least, span uint64) {
	s.gathered = s.gathered[:0]
	chunk := 0 // the bundle's first
	for _, seg := range s.bundles {
		base := head(chunk) << chunkBits
		chunk += len(seg.chunks)
		for _, page := range seg.heads.pages {
			for _, h := range page {
				if uint64(h)-least <= span && (!s.mixed || recordTable(s.record(h+base)) == s.table) {
					s.gathered = append(s.gathered, h+base)
				}
			}
		}
	}
}

// sortNext returns the heads of the next slices, sorted; none at the end.
func (s *sorter) sortNext() (list []head) {
	for len(list) == 0 {
		if s.slice == len(s.ends) {
			if s.part == 1<<s.partBits {
				return nil
			}
			s.gather()
		}
		begin := uint32(0)
		if s.slice > 0 {
			begin = s.ends[s.slice-1]
		}
		from := begin
		for ; s.slice < len(s.ends) && from-begin < requestRecords; s.slice++ {
			s.sortSlice(s.sorted[from:s.ends[s.slice]])
			from = s.ends[s.slice]
		}
		list = s.sorted[begin:from]
	}
	for _, h := range list {
		b := s.record(h)
		s.requested += uint32(b[0]) + uint32(b[min(cacheLine, len(b)-1)])
	}
	return list
}

// sortSlice sorts a few heads.
func (s *sorter) sortSlice(list []head) {
	for i := 1; i < len(list); i++ {
		h, at := list[i], i
		for ; at > 0 && s.before(h, list[at-1]); at-- {
			list[at] = list[at-1]
		}
		list[at] = h
	}
}

// before orders records; where their heads do not tell, by all of hash and sequence.
func (s *sorter) before(a, b head) bool {
	if (a^b)>>headPlaceBits != 0 {
		return a < b
	}
	x, y := s.record(a), s.record(b)
	return compareRecords(recordHash(x), recordSeq(x), recordHash(y), recordSeq(y)) < 0
}

// record returns a record, followed by others.
func (s *sorter) record(h head) []byte {
	loc := h.location()
	return s.chunks[loc>>chunkBits][loc&(1<<chunkBits-1):]
}

// next returns the next records; none at the end.
func (s *sorter) next() ([]persistence.RunEntry, error) {
	list := s.sortNext()
	s.entries = s.entries[:0]
	for _, h := range list {
		b := s.record(h)
		s.entries = append(s.entries,
			persistence.RunEntry{Hash: recordHash(b), Seq: recordSeq(b), Value: recordValue(b)})
	}
	return s.entries, nil
}

// close gives back scratch that is unusually large.
func (s *sorter) close() {
	if 8*cap(s.gathered) > maxKeptSort {
		s.gathered, s.sorted = nil, nil
	}
	if 4*cap(s.ends) > maxKeptSort {
		s.ends = nil
	}
}

// countTables counts the records of each table in sealed bundles.
func countTables(bundles []*bundle) map[uint32]int {
	counts := make(map[uint32]int)
	for _, s := range bundles {
		for _, t := range s.tables {
			counts[t.table] += t.n
		}
	}
	return counts
}
