package store

import (
	"math"
	"math/rand/v2"
	"slices"
)

// A cursor has 53 bits, since some clients keep it in a double: the slot, the first 25 bits of a
// hash, and a rest. Keys that differ in the other bits of their hashes only are neighbours, which
// the cursor's position does not tell apart.
//
// Few keys have neighbours, and a page visits them together: the rest is 0. More than
// maxNeighbours are a crowd, which is visited in several pages: the rest says how many of
// them are left. It counts from the end of the crowd, so that deleting keys makes SCAN pass
// over none. A key that is created within a crowd meanwhile may do so. But a crowd takes a
// client that knows the seed of the hash: with a billion keys in one slot, of which about 30
// share a cursor, there is one with a probability below 10^-100.
const (
	restBits      = 14
	neighbourBits = 9 + restBits
	maxNeighbours = 256
	maxRest       = 1<<restBits - 1
)

// MaxCursor is the largest cursor of Scan.
const MaxCursor = slots<<(48-neighbourBits+restBits) - 1

// firstNeighbour returns the first position of the neighbours of another, pastNeighbours the
// first one behind them.
func firstNeighbour(pos uint64) uint64 { return pos >> neighbourBits << neighbourBits }
func pastNeighbours(pos uint64) uint64 { return firstNeighbour(pos) + 1<<neighbourBits }

// cursorAt is the cursor of the neighbours of a position.
func cursorAt(pos uint64) uint64 { return pos >> neighbourBits << restBits }

// Scan visits keys from a cursor on, in the order of slot and key hash, and
// returns the cursor to go on from, 0 at the end. It visits at least count
// keys unless the end comes first, and at most twice as many and a few hundred. A key that
// exists throughout a whole iteration is visited at least once. fn may keep key.
func (s *Store) Scan(cursor uint64, count int, fn func(key []byte, t Type)) (next uint64, err error) {
	for count = max(count, 1); cursor <= MaxCursor; {
		slot := cursor >> (restBits + 48 - neighbourBits)
		n, next, err := s.scanPartition(s.partitions[slot>>s.shift], cursor, count, fn)
		if err != nil {
			return 0, err
		}
		if n >= count && next <= MaxCursor {
			return next, nil
		}
		cursor, count = next, max(count-n, 1)
	}
	return 0, nil
}

// scanPartition visits keys of one partition from a cursor on, and returns the cursor to go
// on from: at its end the first one of the next partition.
func (s *Store) scanPartition(p *partition, cursor uint64, count int, fn func(key []byte, t Type)) (n int,
	next uint64, err error) {
	for {
		p.lock()
		life := p.committed.life.Load()
		p.mu.Unlock()
		found, next, err := s.page(p, cursor, count)
		if err != nil {
			return 0, 0, err
		}
		n := len(found)
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
		return n, next, nil
	}
}

// page finds keys of a partition from a cursor on, and the cursor to go on from.
func (s *Store) page(p *partition, cursor uint64, count int) (found []walked, next uint64, err error) {
	from, rest := cursor>>restBits<<neighbourBits, int(cursor&maxRest)
	if rest == 0 {
		_, end := p.rowRange()
		found, to, err := s.collect(p, from, end, count, p.lock)
		if err != nil || to > from {
			return found, cursorAt(to), err
		}
	}
	all, to, err := s.collect(p, from, pastNeighbours(from), math.MaxInt, p.lock)
	begin := 0
	if rest > 0 {
		begin = max(0, len(all)-rest*maxNeighbours)
	}
	end := min(len(all), max(begin+maxNeighbours, len(all)-maxRest*maxNeighbours))
	if left := len(all) - end; left > 0 {
		next = cursor&^maxRest + uint64((left+maxNeighbours-1)/maxNeighbours)
	} else {
		next = cursorAt(to)
	}
	return all[begin:end], next, err
}

// stillLive keeps those of the keys found that exist. It returns false if the life in
// which they were found is over: they may have been taken back.
func (s *Store) stillLive(p *partition, life uint64, found []walked) (live []walked, ok bool, err error) {
	p.lock()
	at := p.moment(s.look())
	here := p.here()
	if here.life != life {
		p.mu.Unlock()
		return nil, false, nil
	}
	live = found[:0]
	for _, f := range found {
		c := p.hot.peek(f.key)
		if c == nil {
			c = &counter{kind: f.kind, expire: f.expire, pos: f.pos}
			if f.row != nil {
				c.setParts(f.row.parts)
			}
		}
		if f.kind = c.kind; p.alive(c, at) {
			live = append(live, f)
		}
	}
	p.mu.Unlock()
	return live, true, here.wait() // which keys exist is an answer like any other (G3)
}

// collect returns keys in the order of rows, from one position to another: count keys that are in
// memory, as many that have rows, and the neighbours of the last one. If these are a crowd, it takes
// none of them, and next is their first position. lock is the partition's.
func (s *Store) collect(p *partition, from, to uint64, count int, lock func()) (found []walked, next uint64,
	err error) {
	next = to
	w := walk{p: p, lock: lock, from: from, to: to, more: func(n int, last, pos uint64) bool {
		switch {
		case n < count:
		case pos >= pastNeighbours(last):
			next = pastNeighbours(last)
		case n-count >= maxNeighbours:
			next = firstNeighbour(pos)
		}
		return pos < next
	}}
	if found, _, err = w.keys(); err != nil {
		return nil, 0, err
	}
	return slices.DeleteFunc(found, func(f walked) bool { return f.pos >= next }), next, nil
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
	start := cursorAt(position(uint16(rand.IntN(slots)), 0))
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
