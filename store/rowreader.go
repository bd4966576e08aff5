package store

import "github.com/fbfkv/fbfkv/persistence"

// readGroup is how many rows are looked up together.
const readGroup = 64

// rowReader reads rows outside of locks: from a partition's index of rows if it has
// one, else from Pebble.
type rowReader struct {
	s             *Store
	found         persistence.Entries
	buf           []byte
	hashes, masks [readGroup]uint64
}

// read reads the rows of up to readGroup refs, all of one partition.
func (in *rowReader) read(refs []ref, some []int) {
	p := refs[some[0]].p
	set := p.index.acquire()
	if set == nil {
		p.index.loads.Add(in.readPebble(refs, some))
		return
	}
	defer set.release()
	p.index.asked.Add(int64(len(some)))
	for k, i := range some {
		in.hashes[k] = refs[i].keyHash
	}
	set.screen(in.hashes[:len(some)], in.masks[:])
	for k, i := range some {
		r := &refs[i]
		l := &r.disk.load
		if l.row, l.exists, l.err = set.find(r.keyHash, in.masks[k], r.key, &in.found); l.err != nil {
			in.s.giveUp(p, set.number, l.err)
			in.readPebble(refs, some[k:])
			return
		}
		l.done = true
	}
}

// readPebble reads the rows of refs from Pebble, and returns how many there are.
func (in *rowReader) readPebble(refs []ref, some []int) (rows int64) {
	for _, i := range some {
		r := &refs[i]
		l := &r.disk.load
		k := rowKey(l.pos, r.key)
		in.buf, l.exists, l.err = in.s.db.Row(in.buf, k)
		if l.err == nil && l.exists {
			l.row, l.err = decodeRow(in.buf)
			rows++
		}
		l.done = true
	}
	return rows
}
