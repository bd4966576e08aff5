package store

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/fbfkv/fbfkv/persistence"
)

// Scan visits keys from a cursor on, in the order of slot and key hash, and
// returns the cursor to go on from, 0 at the end. It visits at least count
// keys unless the end comes first; keys that share a position are visited
// together, so that the stateless cursor skips none. A key that exists
// throughout a whole iteration is visited at least once. fn may keep key.
func (s *Store) Scan(cursor uint64, count int, fn func(key []byte, t Type)) (next uint64, err error) {
	count = max(count, 1)
	slot := cursor >> 48
	if slot >= slots {
		return 0, nil
	}
	for i := int(slot >> s.shift); i < len(s.partitions); i++ {
		n, next, err := s.scanPartition(s.partitions[i], cursor, count, fn)
		if err != nil {
			return 0, err
		}
		if next != 0 {
			return next, nil
		}
		count -= n
		if i+1 == len(s.partitions) {
			break
		}
		first, _ := slotRange(i+1, len(s.partitions))
		cursor = uint64(first) << 48
		if count <= 0 {
			return cursor, nil
		}
	}
	return 0, nil
}

// scanPartition visits keys of one partition; next is 0 at its end.
func (s *Store) scanPartition(p *partition, cursor uint64, count int, fn func(key []byte, t Type)) (n int, next uint64, err error) {
	found, next, err := s.collect(p, cursor, count)
	if err != nil {
		return 0, 0, err
	}
	p.mu.Lock()
	wall, seq := s.clock.now().wall, p.seq
	live := found[:0]
	for _, f := range found {
		if c := p.hot.peek(f.key); c != nil {
			f.kind, f.expire = c.kind, c.expire
		}
		if f.kind != TypeNone && (f.expire == 0 || wall < f.expire) {
			live = append(live, f)
		}
	}
	p.mu.Unlock()
	// Which keys exist is an answer like any other (G3).
	if err := p.waitDurable(seq); err != nil {
		return 0, 0, err
	}
	for _, f := range live {
		fn([]byte(f.key), f.kind)
	}
	return len(found), next, nil
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
// has a row keeps it as long as it exists.
func (s *Store) collect(p *partition, cursor uint64, count int) (found []scanned, next uint64, err error) {
	_, last := slotRange(int(p.id), p.count)
	end := uint64(last)<<48 | (1<<48 - 1)
	limit := end // inclusive
	p.lockOrdered()
	n := 0
	p.hot.unsaved.ordered.Ascend(unsavedKey{cursor, &counter{pos: cursor}}, func(k unsavedKey) bool {
		c := k.c
		if n >= count && c.pos != found[n-1].pos {
			limit = found[n-1].pos
			return false
		}
		found = append(found, scanned{key: c.key(), pos: c.pos, kind: c.kind, expire: c.expire})
		n++
		return true
	})
	p.mu.Unlock()
	inMemory := make(map[string]bool, len(found))
	for _, f := range found {
		inMemory[f.key] = true
	}
	var bad error
	var rows int
	var lastRow uint64
	err = s.db.Rows(cursor, limit+1, func(k persistence.RowKey, value []byte) bool {
		pos := k.Position()
		if rows >= count && pos != lastRow {
			limit = lastRow
			return false
		}
		var r row
		if r, bad = decodeRow(value); bad != nil {
			return false
		}
		if !inMemory[string(k.Key)] {
			found = append(found, scanned{key: string(k.Key), pos: pos, kind: TypeCounter, expire: r.expire})
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
	found = slices.DeleteFunc(found, func(f scanned) bool { return f.pos > limit })
	slices.SortFunc(found, func(a, b scanned) int { return cmp.Compare(a.pos, b.pos) })
	if limit < end {
		next = limit + 1
	}
	return found, next, nil
}

// DBSize returns the number of keys, those included that have expired and are
// not yet removed.
func (s *Store) DBSize() (n int64, err error) {
	for _, p := range s.partitions {
		p.mu.Lock()
		size, seq := p.size, p.seq
		p.mu.Unlock()
		if err := p.waitDurable(seq); err != nil {
			return 0, err
		}
		n += size
	}
	return n, nil
}

// RandomKey returns some key; false if there is none. Keys are not equally
// likely: one that follows a gap in the key space is more likely.
func (s *Store) RandomKey() (key []byte, ok bool, err error) {
	start := uint64(rand.Int64N(slots)) << 48
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
