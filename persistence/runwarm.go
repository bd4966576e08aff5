package persistence

import (
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// warmth decides which parts of a run's file are brought into the page cache. A
// look-up that misses there waits for the disk, for one page; a stream of
// duplicates would, one after the other, for every page of the file. So a part in
// which warmAt look-ups have found their record is read ahead, whole. The look-ups
// that a filter's false positives cause find nothing and do not count: they come
// seldom, to a page that nobody asks for again.
type warmth []atomic.Uint32 // found records, by part

const (
	// warmPart is the size of a part in bytes.
	warmPart = 128 << 10
	// warmAt: until then at most as many single pages of the part were read. A
	// few pages cost about as much as the whole part.
	warmAt = 2
)

// newWarmth returns the warmth of a file of so many bytes.
func newWarmth(size uint64) warmth { return make(warmth, (size+warmPart-1)/warmPart) }

// found notes that the record at an offset was asked for, and reports whether its
// part is to be read ahead now.
func (w warmth) found(off uint64) bool {
	i := off / warmPart
	return i < uint64(len(w)) && w[i].Load() < warmAt && w[i].Add(1) == warmAt
}

// asked reports whether half of the file has been read ahead, or more.
func (w warmth) asked() bool {
	n := 0
	for i := range w {
		if w[i].Load() >= warmAt {
			n++
		}
	}
	return n > 0 && 2*n >= len(w)
}

// anyAsked reports whether look-ups find much in one of the runs: then it is in the
// page cache, and what it is merged into belongs there too.
func (db *DB) anyAsked(runs []Run) bool {
	for _, r := range runs {
		if f := db.runs.acquire(r); f != nil {
			asked := f.warmth.asked()
			db.runs.release(f)
			if asked {
				return true
			}
		}
	}
	return false
}

// warm notes that a look-up found a record in the block at an offset, so that what
// is asked for often comes into the page cache. It does not wait for the disk.
func (r *runFile) warm(f vfs.File, off uint64) {
	if r.warmth.found(off) {
		_ = f.Prefetch(int64(off/warmPart*warmPart), warmPart) // a hint, no more
	}
}
