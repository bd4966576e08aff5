package store

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/fbfkv/fbfkv/persistence"
)

// Positions are too long for the doubles in which some clients keep a cursor. So
// the cursor is the position without its last bits: the slot and the first 39
// bits of the hash. Keys whose positions differ in those bits only are neighbours.
const neighbourBits = 9

// MaxCursor is the largest cursor of Scan.
const MaxCursor = slots<<(48-neighbourBits) - 1

// pastNeighbours returns the first position behind all neighbours of another.
func pastNeighbours(pos uint64) uint64 { return (pos>>neighbourBits + 1) << neighbourBits }

// Scan visits keys from a cursor on, in the order of slot and key hash, and
// returns the cursor to go on from, 0 at the end. It visits at least count
// keys unless the end comes first; neighbours are visited together, so that the
// stateless cursor skips none. A key that exists throughout a whole iteration is
// visited at least once. fn may keep key.
func (s *Store) Scan(cursor uint64, count int, fn func(key []byte, t Type)) (next uint64, err error) {
	if cursor > MaxCursor {
		return 0, nil
	}
	count = max(count, 1)
	for from := cursor << neighbourBits; ; {
		n, next, err := s.scanPartition(s.partitions[from>>48>>s.shift], from, count, fn)
		switch {
		case err != nil || next > MaxCursor<<neighbourBits:
			return 0, err
		case n >= count:
			return next >> neighbourBits, nil
		}
		from, count = next, count-n
	}
}

// scanPartition visits keys of one partition from a position on, and returns the
// position to go on from: at its end the first one of the next partition.
func (s *Store) scanPartition(p *partition, from uint64, count int, fn func(key []byte, t Type)) (n int, next uint64, err error) {
	for {
		p.lock()
		life := p.committed.life.Load()
		p.mu.Unlock()
		found, next, err := s.collect(p, from, count, p.lock)
		if err != nil {
			return 0, 0, err
		}
		live, ok, err := s.stillLive(p, life, found)
		if err != nil {
			return 0, 0, err
		}
		if !ok {
			continue
		}
		for _, f := range live {
			fn([]byte(f.key), f.kind)
		}
		return len(found), next, nil
	}
}

// stillLive keeps those of the keys found that exist. It returns false if the life in
// which they were found is over: they may have been taken back.
func (s *Store) stillLive(p *partition, life uint64, found []scanned) (live []scanned, ok bool, err error) {
	p.lock()
	wall, _ := s.look()
	here := p.here()
	if here.life != life {
		p.mu.Unlock()
		return nil, false, nil
	}
	live = found[:0]
	for _, f := range found {
		if c := p.hot.peek(f.key); c != nil {
			f.kind, f.expire = c.kind, c.expire
		}
		if f.kind != TypeNone && (f.expire == 0 || wall < f.expire) {
			live = append(live, f)
		}
	}
	p.mu.Unlock()
	return live, true, here.wait() // which keys exist is an answer like any other (G3)
}

// scanned is a key found by collect.
type scanned struct {
	key    string
	pos    uint64
	kind   Type
	expire int64
}

// collect merges keys without a row and rows, in order of position. Memory
// comes first: a key that gets its row meanwhile was found there, and one that
// has a row keeps it as long as it exists. lock is the partition's.
func (s *Store) collect(p *partition, from uint64, count int, lock func()) (found []scanned, next uint64, err error) {
	_, last := slotRange(int(p.id), p.count)
	next = position(last+1, 0)
	p.lockOrdered(lock)
	n := 0
	p.hot.unsaved.ordered.Ascend(unsavedKey{from, &counter{pos: from}}, func(k unsavedKey) bool {
		c := k.c
		if n >= count && c.pos >= pastNeighbours(found[n-1].pos) {
			next = pastNeighbours(found[n-1].pos)
			return false
		}
		found = append(found, scanned{key: c.key(), pos: c.pos, kind: c.kind, expire: c.expire})
		n++
		return true
	})
	flushDue := p.flushDue
	p.mu.Unlock()
	if flushDue {
		return found, next, nil // no row counts
	}
	inMemory := make(map[string]bool, len(found))
	for _, f := range found {
		inMemory[f.key] = true
	}
	var bad error
	var rows int
	var lastRow uint64
	err = s.db.Rows(from, next, func(k persistence.RowKey, value []byte) bool {
		pos := k.Position()
		if rows >= count && pos >= pastNeighbours(lastRow) {
			next = pastNeighbours(lastRow)
			return false
		}
		var r row
		if r, bad = decodeRow(value); bad != nil {
			return false
		}
		if !inMemory[string(k.Key)] {
			found = append(found, scanned{key: string(k.Key), pos: pos, kind: r.kind, expire: r.expire})
		}
		rows, lastRow = rows+1, pos
		return true
	})
	if err == nil {
		err = bad
	}
	if err != nil {
		return nil, 0, err
	}
	found = slices.DeleteFunc(found, func(f scanned) bool { return f.pos >= next })
	slices.SortFunc(found, func(a, b scanned) int { return cmp.Compare(a.pos, b.pos) })
	return found, next, nil
}

// DBSize returns the number of keys, including those that have expired and are not
// yet removed.
func (s *Store) DBSize() (n int64, err error) {
	for _, p := range s.partitions {
		p.lock()
		size, here := p.size, p.here()
		p.mu.Unlock()
		if err := here.wait(); err != nil {
			return 0, err
		}
		n += size
	}
	return n, nil
}

// RandomKey returns some key; false if there is none. Keys are not equally
// likely: one that follows a gap in the key space is more likely.
func (s *Store) RandomKey() (key []byte, ok bool, err error) {
	start := position(uint16(rand.IntN(slots)), 0) >> neighbourBits
	for _, cursor := range []uint64{start, 0} {
		for {
			next, err := s.Scan(cursor, 1, func(k []byte, _ Type) { key, ok = k, true })
			if err != nil || ok {
				return key, ok, err
			}
			if next == 0 {
				break
			}
			cursor = next
		}
	}
	return nil, false, nil
}
