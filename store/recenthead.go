package store

// recentHead is what is kept of a record in memory beside the record itself:
// a few bits of its hash, and where it is. Heads are scanned for a hash, entered
// into an index, and put in order for a run, and all of that without a look at the
// records, each of which would be a cache miss.
//
//	the hash's first 28 bits | chunk, 18 bits | offset in the chunk, 18 bits
type recentHead uint64

const (
	// headPlaceBits are the bits of a head that say where the record is, of
	// which recentBits say where in its chunk.
	headPlaceBits = 36
	// headPage is how many heads a headList's pages have, but for the first: an
	// idle partition has few.
	headPage, firstHeadPage = 4096, 64
)

// headOf makes the head of a record.
func headOf(hash uint64, chunk, offset int) recentHead {
	return recentHead(hash&^(1<<headPlaceBits-1) | uint64(chunk)<<recentBits | uint64(offset))
}

// location is where the record is.
func (h recentHead) location() uint64 { return uint64(h) & (1<<headPlaceBits - 1) }

// headList is a list of heads that grows at its end.
type headList struct {
	// pages are full but for the last.
	pages [][]recentHead
}

func (l *headList) add(h recentHead) {
	n := len(l.pages) - 1
	if n < 0 || len(l.pages[n]) == cap(l.pages[n]) {
		l.grow()
		n++
	}
	l.pages[n] = append(l.pages[n], h)
}

func (l *headList) grow() {
	if len(l.pages) == 0 {
		l.pages = append(l.pages, make([]recentHead, 0, firstHeadPage))
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

func (l *headList) at(i int) recentHead {
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
			h := (*[4]recentHead)(heads[len(heads)-4:])
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
