package seen

import "math/bits"

// index finds records of a bundle by their hashes. Of new ids only a
// false positive of the filter asks for a record, of which there are so few that
// looking through the heads is cheaper than entering every record here. So
// records are entered once heads have been looked through as often as costs about
// the same. Many at once enter with their cache misses overlapping.
type index struct {
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
func (x *index) updateIfDue(s *bundle) {
	pending := s.count - x.count
	if x.scanned += pending; x.scanned > scansPerIndex*pending {
		x.update(s)
	}
}

// update enters all records.
func (x *index) update(s *bundle) {
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
func (x *index) resize(bits int) {
	recycleIndex(x.places)
	*x = index{places: newIndex(bits), shift: uint8(64 - bits)}
}

// place enters a record at its place, and moves what is there further; false if
// there is no room behind. So the newest of one hash comes first: an opid that is
// used again after its window has two records, of which the last one counts.
func (x *index) place(h head) bool {
	loc := uint32(h.location()) + 1
	for i := uint64(h) >> x.shift; i < uint64(len(x.places)); i++ {
		if loc, x.places[i] = x.places[i], loc; loc == 0 {
			return true
		}
	}
	return false
}

// first returns what is at the place of a hash.
func (x *index) first(hash uint64) uint32 {
	if x.count == 0 {
		return 0
	}
	return x.places[hash>>x.shift]
}

// find returns the record of (key, id), followed by others; nil if it is not in the
// index.
func (x *index) find(s *bundle, hash uint64, key, id []byte, others *int) []byte {
	if x.count == 0 {
		return nil
	}
	for i := hash >> x.shift; i < uint64(len(x.places)) && x.places[i] != 0; i++ {
		if b := s.recordAt(uint64(x.places[i]-1), hash, key, id, others); b != nil {
			return b
		}
	}
	return nil
}

// recycle gives the index's memory back; it is empty then.
func (x *index) recycle() {
	recycleIndex(x.places)
	*x = index{}
}

// head is what is kept of a record in memory beside the record itself:
// a few bits of its hash, and where it is. Heads are scanned for a hash, entered
// into an index, and put in order for a run, and all of that without a look at the
// records, each of which would be a cache miss.
//
//	the hash's first 28 bits | chunk, 18 bits | offset in the chunk, 18 bits
type head uint64

const (
	// headPlaceBits are the bits of a head that say where the record is, of
	// which chunkBits say where in its chunk.
	headPlaceBits = 36
	// headPage is how many heads a headList's pages have, but for the first: an
	// idle partition has few.
	headPage, firstHeadPage = 4096, 64
)

// headOf makes the head of a record.
func headOf(hash uint64, chunk, offset int) head {
	return head(hash&^(1<<headPlaceBits-1) | uint64(chunk)<<chunkBits | uint64(offset))
}

// location is where the record is.
func (h head) location() uint64 { return uint64(h) & (1<<headPlaceBits - 1) }

// headList is a list of heads that grows at its end.
type headList struct {
	// pages are full but for the last.
	pages [][]head
}

func (l *headList) add(h head) {
	n := len(l.pages) - 1
	if n < 0 || len(l.pages[n]) == cap(l.pages[n]) {
		l.grow()
		n++
	}
	l.pages[n] = append(l.pages[n], h)
}

func (l *headList) grow() {
	if len(l.pages) == 0 {
		l.pages = append(l.pages, make([]head, 0, firstHeadPage))
		return
	}
	l.pages = append(l.pages, newHeadPage())
}

// page returns where head i is.
func (l *headList) page(i int) (page, at int) {
	if i < firstHeadPage {
		return 0, i
	}
	i -= firstHeadPage
	return 1 + i/headPage, i % headPage
}

func (l *headList) at(i int) head {
	page, at := l.page(i)
	return l.pages[page][at]
}

// findLast returns how many of the heads up to the last one from..to-1 that may
// have that hash there are; from if none may.
func (l *headList) findLast(hash uint64, from, to int) int {
	for to > from {
		n, last := l.page(to - 1)
		begin := max(to-1-last, from)
		heads := l.pages[n][last+1-(to-begin) : last+1]
		// Four at a time: what differs least has the hash's bits, if any does.
		for len(heads) >= 4 {
			h := (*[4]head)(heads[len(heads)-4:])
			a, b, c, d := uint64(h[0])^hash, uint64(h[1])^hash, uint64(h[2])^hash, uint64(h[3])^hash
			if min(a, b, c, d)>>headPlaceBits == 0 {
				break
			}
			heads = heads[:len(heads)-4]
		}
		for i := len(heads) - 1; i >= 0; i-- {
			if (uint64(heads[i])^hash)>>headPlaceBits == 0 {
				return begin + i + 1
			}
		}
		to = begin
	}
	return from
}

// recycle gives the pages back; the list is empty then.
func (l *headList) recycle() {
	for _, p := range l.pages {
		recycleHeadPage(p)
	}
	l.pages = nil
}
