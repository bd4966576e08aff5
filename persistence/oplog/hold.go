package oplog

import "maps"

// Hold keeps the part of the log that somebody still needs, such as a follower who has
// not acknowledged it, or a backup. It ends with the process. Safe for concurrent use.
type Hold struct {
	l     *Log
	name  string
	limit uint64   // bytes
	lows  []uint64 // as the log's own; l.mu guards it
	// slides: it keeps the newest files of at most limit bytes, and is lost when the file goes in which its
	// reader is.
	slides bool
	at     Bookmark // of the reader
}

// Hold keeps all that the log holds now, and what will be appended, until it is
// acknowledged. It takes the place of an earlier hold of that name. When it alone keeps
// files of more than limit bytes in all, it is lost.
func (l *Log) Hold(name string, limit uint64) *Hold {
	return l.hold(&Hold{l: l, name: name, limit: limit, lows: make([]uint64, len(l.lows))})
}

// HoldNewest is Hold for a reader that may come back to what it has read before: the hold keeps the newest
// files that together have at most limit bytes, whatever was acknowledged. It is lost when a file
// goes that the reader has not read whole.
func (l *Log) HoldNewest(name string, limit uint64) *Hold {
	return l.hold(&Hold{l: l, name: name, limit: limit, lows: make([]uint64, len(l.lows)), slides: true})
}

func (l *Log) hold(h *Hold) *Hold {
	l.trimming.Lock() // what is being trimmed is gone, what is not stays
	defer l.trimming.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holds == nil {
		l.holds = make(map[string]*Hold)
	}
	if l.holds[h.name] = h; len(l.closed) > 0 {
		h.at.file = l.closed[0].num
	} else {
		h.at.file = l.current.num
	}
	return h
}

// ReadTo says that the reader goes on at a bookmark.
func (h *Hold) ReadTo(m Bookmark) {
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	h.at = m
}

// Lag returns about how many bytes of the log its reader has not read.
func (h *Hold) Lag() uint64 {
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	lag := h.l.pos - max(h.at.at, headerSize)
	for _, s := range h.l.closed {
		if s.num >= h.at.file {
			lag += s.size
		}
	}
	return uint64(max(lag, 0))
}

// Acknowledge gives up the sections of a partition below a sequence.
func (h *Hold) Acknowledge(partition uint16, below uint64) {
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	low := slot(h.lows, partition)
	*low = max(*low, below)
}

// Lost reports whether the hold keeps nothing any more: it was released, exceeded its
// limit, or another one took its place.
func (h *Hold) Lost() bool {
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	return h.l.holds[h.name] != h
}

// Kept returns how many bytes of files it alone keeps.
func (h *Hold) Kept() (bytes uint64) {
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	own := h.l.closedBelow(h.l.lows)
	for i := h.l.closedBelow(h.lows); i < own; i++ {
		bytes += uint64(h.l.closed[i].size)
	}
	return bytes
}

// closedBelow counts the oldest files whose entries all are below lows. The lock is held.
func (l *Log) closedBelow(lows []uint64) (n int) {
	for n < len(l.closed) && l.closed[n].obsolete(lows) {
		n++
	}
	return n
}

// Release ends the hold. The next Trim gives up what it kept.
func (h *Hold) Release() {
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	if h.l.holds[h.name] == h {
		delete(h.l.holds, h.name)
	}
}

// obsolete returns how many of the oldest files nobody needs: the log itself, or a hold.
// The lock is held.
func (l *Log) obsolete() int {
	own := l.closedBelow(l.lows)
	n := own
	maps.DeleteFunc(l.holds, func(_ string, h *Hold) bool {
		from, kept := l.closedBelow(h.lows), uint64(0)
		for i := from; i < own; i++ {
			kept += uint64(l.closed[i].size)
		}
		for h.slides && kept > h.limit {
			kept -= uint64(l.closed[from].size)
			from++
		}
		lost := kept > h.limit || h.slides && from > 0 && h.at.file <= l.closed[from-1].num
		if !lost {
			n = min(n, from)
		}
		return lost
	})
	return n
}
