package store

import (
	"cmp"
	"slices"

	"github.com/fbfkv/fbfkv/persistence"
)

const (
	// writeBackPiece is how many rows are captured under one acquisition of the
	// partition's lock.
	writeBackPiece = 128
	// writeBackRows is how many are written with one commit.
	writeBackRows = 16 << 10
)

// flushRows does the part of a checkpoint that lets changed keys leave memory: it
// writes their rows. The log is neither trimmed nor needed less for it, so that
// this must be followed by a checkpoint before long (maxRowsAhead).
func (s *Store) flushRows(p *partition) error {
	s.snapshots.mu.Lock()
	defer s.snapshots.mu.Unlock()
	began := s.eventBegins()
	c := checkpoint{s: s, p: p}
	if !p.lockNow() {
		return nil
	}
	if p.incoming != nil {
		p.mu.Unlock()
		return nil
	}
	c.at = p.here()
	c.dirty, p.hot.dirty = p.hot.dirty, nil
	p.saving.rowsAhead += len(c.dirty)
	p.mu.Unlock()
	err := c.writeBack()
	if err == nil {
		c.forgetExpiries()
	}
	c.giveBack()
	s.eventEnds(EventCheckpoint, began)
	return err
}

// savedRow is the row of a key as it was captured.
type savedRow struct {
	c       *counter
	seq     uint64
	deleted bool
}

// writeBack writes the dirty counters to their rows. A row may be newer than
// the checkpoint's sequence: it carries its own, and redo goes on past it. Until
// its row is written a counter is not clean, and so stays in memory; nothing
// else writes rows meanwhile, for the snapshotter's lock is held.
func (c *checkpoint) writeBack() error {
	b := c.s.db.NewChanges()
	var rows []savedRow
	sortByPosition(c.dirty)
	for len(c.dirty) > 0 {
		n := min(len(c.dirty), writeBackRows)
		flushed := c.deleteFlushed(b)
		rows = c.captureRows(b, c.dirty[:n], rows[:0])
		if err := c.commit(b); err != nil {
			return err
		}
		flushed()
		c.rowsWritten(rows)
		c.dirty = c.dirty[n:]
	}
	return nil
}

// deleteFlushed begins a commit of rows with the deletion of all that FLUSHALL has
// forgotten, if that is due: later it would delete newer rows. The caller calls done
// once that is committed. The snapshotter's lock is held, as FLUSHALL does.
func (c *checkpoint) deleteFlushed(b *persistence.Changes) (done func()) {
	p := c.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.flushDue {
		return func() {}
	}
	c.need = max(c.need, p.floor)
	first, last := slotRange(int(p.id), p.count)
	b.DeleteRows(first, last)
	b.DropExpiries(p.id)
	b.DropPages(p.id, 0, p.floor)
	return func() {
		p.mu.Lock()
		p.flushDue = false
		p.mu.Unlock()
	}
}

// sortByPosition puts keys in the order of their rows. Each row then finds its
// place in Pebble's memtable near the one before, and so do look-ups in it.
func sortByPosition(keys []*counter) {
	places := make([]unsavedKey, len(keys))
	for i, k := range keys {
		places[i] = unsavedKey{k.pos, k}
	}
	slices.SortFunc(places, func(a, b unsavedKey) int { return cmp.Compare(a.pos, b.pos) })
	for i := range places {
		keys[i] = places[i].c
	}
}

// captureRows puts the present rows of keys into a batch, whose commit waits for that of
// the newest of them (R1).
func (c *checkpoint) captureRows(b *persistence.Changes, keys []*counter, rows []savedRow) []savedRow {
	var value []byte
	for len(keys) > 0 {
		n := min(len(keys), writeBackPiece)
		c.p.mu.Lock()
		for _, k := range keys[:n] {
			k.is &^= isListed
			key := []byte(k.key())
			if c.p.hot.table.get(hotHash(key), key) != k {
				continue // forgotten by FLUSHALL
			}
			value = c.p.putRow(b, k, value)
			c.need = max(c.need, k.seq) // which also put the row's expiry into the index
			rows = append(rows, savedRow{k, k.seq, !k.hasRow()})
		}
		c.p.mu.Unlock()
		keys = keys[n:]
		c.giveWay()
	}
	return rows
}

// putRow puts the row of a key into a batch. SCAN must find a key that is
// created anew before its old row is gone, so that counts as gone from now on.
func (p *partition) putRow(b *persistence.Changes, k *counter, value []byte) []byte {
	if !k.hasRow() {
		b.DeleteRow(k.rowKey())
		k.is &^= isInRow
		p.hot.track(k)
		return value
	}
	if k.is&isInRow == 0 {
		p.rows.add(k.pos) // before the row can be seen on disk alone
	}
	value = k.appendRow(value[:0])
	b.PutRow(k.rowKey(), value)
	if k.expire != 0 && k.kind == TypeCounter && p.sets(k) {
		b.PutExpiry(p.id, k.expire, k.rowKey())
	}
	return value
}

// rowsWritten notes that rows are visible on disk: keys that did not change
// since are clean.
func (c *checkpoint) rowsWritten(rows []savedRow) {
	p := c.p
	for len(rows) > 0 {
		n := min(len(rows), writeBackPiece)
		p.mu.Lock()
		for _, r := range rows[:n] {
			if r.c.seq == r.seq {
				r.c.is &^= isChanged
				p.hot.evictable(r.c)
			}
			if !r.deleted {
				r.c.is |= isInRow
				p.hot.track(r.c)
			}
		}
		p.mu.Unlock()
		rows = rows[n:]
		c.giveWay()
	}
}
