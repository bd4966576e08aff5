package store

import (
	"slices"

	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/store/part"
)

// A key that does not exist keeps its parts until all regions have said, in their logs, that they
// took its end; and take-backs are kept until all have said the same of them. The cycle looks for
// what can go: in memory are the keys that ended since the views were loaded, and rows are read
// for the others, a few at a time.

// candidates returns keys to look at now: those that memory knows, else some from rows, read with
// the partition unlocked.
func (s *Store) candidates(p *partition) (keys []string, swept bool, err error) {
	if !p.lockNow() {
		return nil, false, nil
	}
	e := &p.ended
	if p.regions == nil || p.frozen.Load() != nil || p.movedRows != nil || p.flushDue {
		p.mu.Unlock()
		return nil, false, nil
	}
	if e.next >= len(e.keys) && e.news != p.regions.news {
		e.keys, e.next, e.kept, e.news = e.keys[:e.kept], 0, 0, p.regions.news
	}
	p.endedOwed()
	if n := min(len(e.keys)-e.next, dropBatch); n > 0 {
		keys = append(keys, e.keys[e.next:e.next+n]...)
		p.mu.Unlock()
		return keys, false, nil
	}
	if e.swept && !e.again {
		p.mu.Unlock()
		return nil, false, nil
	}
	if e.swept {
		e.swept, e.again = false, false
	}
	var inherited [part.MaxRegions]bool
	for _, m := range p.regions.Members {
		inherited[m.Region] = p.inherited(m.Region)
	}
	first, last := slotRange(int(p.id), p.count)
	from, to := max(e.from, position(first, 0)), position(last+1, 0)
	p.mu.Unlock()
	next := to
	var bad error
	n, seen := 0, from
	err = s.db.Rows(from, to, func(k persistence.RowKey, value []byte) bool {
		pos := k.Position()
		if n++; n > dropBatch && pos > seen {
			next = pos
			return false
		}
		seen = pos
		if len(value) > 0 && value[0] == partsRowVersion {
			var r row
			if r, bad = decodeRow(value); bad != nil {
				return false
			}
			if e := r.parts.Expiry(); r.hasEnded() || e.At != 0 && inherited[e.By] {
				keys = append(keys, string(k.Key))
			}
		}
		return true
	})
	if err == nil {
		err = bad
	}
	if err != nil {
		return nil, false, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.from = next; next >= to {
		e.from, e.swept, e.again = 0, !e.again, false
	}
	return keys, true, nil
}

// hasEnded reports whether there is something to drop of a key with this row, sooner or later.
func (w *row) hasEnded() bool {
	if w.kind == TypeNone {
		return !w.aside
	}
	return slices.ContainsFunc(w.parts, func(q part.Part) bool {
		return len(q.Undo) > 0 || w.parts.Waiting(q.Region)
	})
}

// dropEnded drops what can go of some keys of a partition.
func (s *Store) dropEnded(p *partition, b *Batch) {
	keys, swept, err := s.candidates(p)
	if err != nil {
		s.log.Error("cannot delete expired keys", "error", err)
	}
	if len(keys) == 0 {
		return
	}
	b.Reset()
	op := b.Add(regionDrop)
	for _, k := range keys {
		op.Keys = append(op.Keys, []byte(k))
	}
	s.Execute(b)
	if op.Err != nil || !p.lockNow() {
		return
	}
	defer p.mu.Unlock()
	e := &p.ended
	if swept {
		for i, stays := range op.Founds {
			if stays && len(e.keys) < maxEnded {
				e.keys = append(e.keys, keys[i])
			} else if stays {
				e.again = true
			}
		}
		return
	}
	for i, stays := range op.Founds {
		if e.next >= len(e.keys) || e.keys[e.next] != keys[i] {
			return // the views were made anew
		}
		if stays {
			e.keys[e.kept] = e.keys[e.next]
			e.kept++
		}
		e.next++
	}
}
