package store

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
)

// Rows and records that a batch needs and memory lacks are read from disk with no lock held.
// They are put into memory with the lock, if they are still true.

// fetch reads rows and records from disk. No lock is held. What cannot be read
// fails its operation, which then changes nothing.
func (x *execution) fetch() {
	x.fetchRows()
	for _, i := range x.cold {
		r := &x.refs[i]
		x.fail(r, r.disk.load.err)
	}
	for _, i := range x.confirm {
		r := &x.refs[i]
		x.fail(r, r.disk.search.Run(r.hash, r.key, x.ops[r.op].ID, &x.judging.entries))
	}
}

// minFetch is how many rows are worth a goroutine of their own.
const minFetch = 32

// fetchRows reads the rows of x.cold, on several processors if they are many: the
// clients of the batch all wait for them, and nothing else may be left to do.
func (x *execution) fetchRows() {
	// In the order of rows, neighbours share most of the way to theirs.
	slices.SortFunc(x.cold, func(a, b int) int {
		return cmp.Compare(x.refs[a].disk.load.pos, x.refs[b].disk.load.pos)
	})
	parts := max(1, min(x.s.procs, len(x.cold)/minFetch))
	var work sync.WaitGroup
	for n := 1; n < parts; n++ {
		part := x.cold[len(x.cold)*n/parts : len(x.cold)*(n+1)/parts]
		work.Go(func() { x.readRows(part, nil) })
	}
	x.value = x.readRows(x.cold[:len(x.cold)/parts], x.value)
	work.Wait()
}

// readRows reads the rows of some refs. It returns value, memory for any row's, to be
// used again.
func (x *execution) readRows(refs []int, value []byte) []byte {
	for _, i := range refs {
		r := &x.refs[i]
		l := &r.disk.load
		if value, l.exists, l.err = x.s.db.Row(value, rowKey(l.pos, r.key)); l.exists && l.err == nil {
			l.row, l.err = decodeRow(value)
		}
		l.done = true
	}
	return value
}

// install puts a row that was read outside the lock into memory, unless its
// key may have been changed and evicted since, or the knowledge that there is
// no row to read. Of a partition whose rows are not ingested yet nothing is read: what
// is asked of it is refused.
func (x *execution) install(r *ref) bool {
	pos := x.s.hashes.positionIn(r.slot, r.key)
	if r.p.rows.lacks(pos) {
		r.c = r.p.hot.install(r.keyHash, r.key, pos)
		return true
	}
	if x.partition(r).movedRows != nil {
		r.c = newCounter(r.key, pos) // of a row that is not there yet memory must know nothing
		return true
	}
	stamp := *r.p.hot.stamp(pos)
	l := &x.fromDisk(r).load
	if !l.done || l.stamp != stamp {
		*l = load{pos: pos, stamp: stamp}
		return false
	}
	c := r.p.hot.install(r.keyHash, r.key, pos)
	// A row that FLUSHALL has not deleted yet does not count.
	if l.exists && l.row.seq > r.p.floor {
		row := l.row
		c.showRow(&row)
	} else {
		r.p.rows.missed()
	}
	r.c = c
	return true
}

func (x *execution) fail(r *ref, err error) {
	if err != nil {
		x.s.log.Error("read failed", "key", string(r.key), "error", err)
		op := &x.ops[r.op]
		op.Err = fmt.Errorf("%w: %v", ErrRead, err)
		for i := range x.of(op) {
			x.of(op)[i].failed = true
		}
	}
}

// Data in memory is asked for ahead of its use.

// request asks for the cache lines that refs are about to need, in loops so
// short that many misses are under way at once.
func (x *execution) request(refs []ref) {
	for i := range refs {
		r := &refs[i]
		r.c = r.p.hot.table.guess(r.keyHash)
	}
	x.lines += touch(refs)
	for i := range refs {
		if r := &refs[i]; r.asks {
			r.t = r.p.tableOf(r.key)
			r.t.filter.Touch(r.hash)
		}
	}
}
