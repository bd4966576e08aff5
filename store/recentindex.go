package store

import "math/bits"

// recentIndex finds records of a segment by their hashes. Of new ids only a
// false positive of the filter asks for a record, of which there are so few that
// looking through the heads is cheaper than entering every record here. So
// records are entered once heads have been looked through as often as costs about
// the same. Many at once enter with their cache misses overlapping.
type recentIndex struct {
	// places is an open-addressing table of location+1, 0 being empty, kept at
	// most half full.
	places  []uint32
	shift   uint8 // hash >> shift is the place
	count   int   // the first so many records are in it
	scanned int   // heads looked through since records were entered last
}

const (
	// scansPerIndex is how many heads are looked through in the time that one
	// takes to enter the index.
	scansPerIndex = 32
	// minIndexBits is the logarithm of the smallest index.
	minIndexBits = 6
	// overhang are the places behind the index's last one, so that probing
	// never wraps around.
	overhang = 64
)

// updateIfDue is called before the heads of the records that are not in the index
// are looked through. It enters them once that has become too dear.
func (x *recentIndex) updateIfDue(s *recentSegment) {
	pending := s.count - x.count
	if x.scanned += pending; x.scanned > scansPerIndex*pending {
		x.update(s)
	}
}

// update enters all records.
func (x *recentIndex) update(s *recentSegment) {
	if 2*s.count > len(x.places)-overhang {
		x.resize(max(minIndexBits, bits.Len(uint(2*s.count))))
	}
	for x.count < s.count {
		page, at := s.heads.page(x.count)
		for _, h := range s.heads.pages[page][at:] {
			if !x.place(h) { // the overhang is full
				x.resize(64 - int(x.shift) + 1)
				break
			}
			x.count++
		}
	}
	x.scanned = 0
}

// resize gives the index 1<<bits places, all empty.
func (x *recentIndex) resize(bits int) {
	recycleIndex(x.places)
	*x = recentIndex{places: newIndex(bits), shift: uint8(64 - bits)}
}

// place enters a record at its place, and moves what is there further; false if
// there is no room behind. So the newest of one hash comes first: an opid that is
// used again after its window has two records, of which the last one counts.
func (x *recentIndex) place(h recentHead) bool {
	loc := uint32(h.location()) + 1
	for i := uint64(h) >> x.shift; i < uint64(len(x.places)); i++ {
		if loc, x.places[i] = x.places[i], loc; loc == 0 {
			return true
		}
	}
	return false
}

// first returns what is at the place of a hash.
func (x *recentIndex) first(hash uint64) uint32 {
	if x.count == 0 {
		return 0
	}
	return x.places[hash>>x.shift]
}

// find returns the record of (key, id) if it is in the index.
func (x *recentIndex) find(s *recentSegment, hash uint64, key, id []byte) (record, bool) {
	if x.count == 0 {
		return record{}, false
	}
	for i := hash >> x.shift; i < uint64(len(x.places)) && x.places[i] != 0; i++ {
		if r, ok := s.recordAt(uint64(x.places[i]-1), hash, key, id); ok {
			return r, true
		}
	}
	return record{}, false
}

// recycle gives the index's memory back; it is empty then.
func (x *recentIndex) recycle() {
	recycleIndex(x.places)
	*x = recentIndex{}
}
