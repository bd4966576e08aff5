package store

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/fbfkv/fbfkv/persistence"
)

// walk is the one way over the keys of a partition, in the order of rows: SCAN, what regions tell
// of their state, and digests go along it. Memory has the keys without a row, and rows the others.
type walk struct {
	p        *partition
	lock     func() // the partition's
	from, to uint64 // positions, the latter excluded
	after    []byte // keys at from begin behind this one
	// more reports whether the walk goes on with a key at a position: behind n others that are in
	// memory, or behind n others that have rows, of which the last one is at last.
	more func(n int, last, pos uint64) bool
}

// walked is a key that a walk has found.
type walked struct {
	key    string
	pos    uint64
	kind   Type
	expire int64
	row    *row // nil: it had none
}

// stamp is what a partition was as a walk began: what it has found may have changed since.
type stamp struct {
	life    uint64
	seq     uint64
	evicted [256]uint32 // of hotCounters
}

// keys returns the keys, each once, and the partition's stamp. Memory comes first: a key that gets
// its row meanwhile was found there, and one that has a row keeps it as long as it exists.
func (w *walk) keys() (found []walked, at stamp, err error) {
	p := w.p
	p.lockOrdered(w.lock)
	at = stamp{p.committed.life.Load(), p.seq, p.hot.evicted}
	last := uint64(0)
	p.hot.unsaved.ordered.Ascend(unsavedKey{w.from, newCounter(w.after, w.from)}, func(k unsavedKey) bool {
		c := k.c
		if c.pos >= w.to || !w.more(len(found), last, c.pos) {
			return false
		}
		if key := c.key(); key != string(w.after) {
			found, last = append(found, walked{key: key, pos: c.pos, kind: c.kind, expire: c.expire}), c.pos
		}
		return true
	})
	flushDue := p.flushDue
	p.mu.Unlock()
	if flushDue {
		return found, at, nil // no row counts
	}
	n := 0
	err = eachRow(p.db, w.from, w.to, func(k persistence.RowKey, r *row) bool {
		pos := k.Position()
		if pos == w.from && bytes.Compare(k.Key, w.after) <= 0 {
			return true
		}
		if !w.more(n, last, pos) {
			return false
		}
		row := *r
		found = append(found, walked{key: string(k.Key), pos: pos, kind: r.kind, expire: r.expire, row: &row})
		n, last = n+1, pos
		return true
	})
	slices.SortStableFunc(found, func(a, b walked) int {
		return cmp.Or(cmp.Compare(a.pos, b.pos), cmp.Compare(a.key, b.key))
	})
	found = slices.CompactFunc(found, func(a, b walked) bool { return a.pos == b.pos && a.key == b.key })
	return found, at, err
}

// eachRow calls fn with rows, in order, until it returns false. fn borrows the row and its key. A row
// that cannot be read ends it.
func eachRow(db *persistence.DB, from, to uint64, fn func(k persistence.RowKey, r *row) bool) error {
	var bad error
	var r row
	err := db.Rows(from, to, func(k persistence.RowKey, value []byte) bool {
		if r, bad = decodeRow(value); bad != nil {
			return false
		}
		return fn(k, &r)
	})
	return cmp.Or(bad, err)
}
