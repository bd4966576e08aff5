package store

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fbfkv/fbfkv/fbf"
	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/store/seen"
)

// checkReach holds the log to what was made from it: it must begin where the
// server would begin to redo it, and end no earlier than the latest of them.
func (p *partitionCheck) checkReach() error {
	from, reach := min(p.state.seq, p.state.records), max(p.state.seq, p.state.records)
	if p.snapshot != nil {
		from, reach = min(from, p.snapshot.seq), max(reach, p.snapshot.seq)
	} else if !p.unusable {
		from = 0
	}
	if p.first == 0 {
		p.first, p.last = reach+1, reach
	}
	if p.first > from+1 {
		return fmt.Errorf("the op log begins at entry %d, but entries from %d on are needed", p.first, from+1)
	}
	if p.last < reach {
		return fmt.Errorf("the op log ends at entry %d, but entries up to %d were committed", p.last, reach)
	}
	for _, seq := range p.older {
		if p.first > seq+1 {
			p.problem(fmt.Sprintf("the op log begins at entry %d and does not reach back to the older snapshot at %d, "+
				"which could not stand in for the newest", p.first, seq), "two new snapshots (SAVE) mend it")
		}
	}
	return nil
}

// checkMemory expects the snapshot's filters to contain every opid that the
// log says was applied before it and within the window (G1). A generation that
// the log drops after the snapshot's sequence may have lost its bits while they
// were copied, so the window is the one at the end of the log, which is no earlier
// than the snapshot (checkReach).
func (p *partitionCheck) checkMemory() error {
	missing := 0
	for _, m := range p.memory {
		t := p.snapshot.tables[m.table]
		if t == nil || m.logged+(t.def.Window+t.def.Skew).Milliseconds() <= p.ended {
			continue // of a dropped table, or old
		}
		if !t.filter.Contains(m.hash) {
			missing++
		}
	}
	if missing > 0 {
		p.problem(fmt.Sprintf("the filters of the snapshot at entry %d lack %d opids that were applied before it: their retries would count again",
			p.snapshot.seq, missing), doRestore)
	}
	return nil
}

// checkRows holds each row to its place and to the log.
func (p *partitionCheck) checkRows() error {
	first, last := slotRange(int(p.id), p.count)
	var failed error
	err := p.db.Rows(uint64(first)<<48, uint64(last+1)<<48, func(k persistence.RowKey, value []byte) bool {
		p.report.Rows++
		r, err := decodeRow(value)
		if err != nil {
			p.problem(fmt.Sprintf("the row of key %q cannot be read: %v", k.Key, err), doRestore)
			return true
		}
		if Slot(k.Key) != k.Slot || keyHash(k.Key) != k.Hash {
			p.problem(fmt.Sprintf("the row of key %q lies where that key does not belong", k.Key), doRestore)
			return true
		}
		if what := p.judgeRow(k, r); what != "" {
			p.problem(fmt.Sprintf("key %q: %s", k.Key, what), doRestore)
		}
		if r.seq > p.flushed {
			failed = p.checkExpiry(k, r)
		}
		return failed == nil
	})
	if err = cmp.Or(err, failed); err != nil {
		return err
	}
	for key, k := range p.keys {
		// What the checkpoint contains has a row, unless a later deletion was
		// written back already.
		if !k.row && k.before.kind == TypeCounter && !slices.ContainsFunc(k.after, func(i image) bool { return i.kind != TypeCounter }) {
			p.problem(fmt.Sprintf("key %q: the log says that it is %d as of entry %d, but its row is missing", key, k.before.value, k.before.seq), doRestore)
		}
	}
	return nil
}

// judgeRow says what is wrong with a row; "" if nothing.
func (p *partitionCheck) judgeRow(rk persistence.RowKey, r row) string {
	if r.seq > p.state.floor && r.seq <= p.flushed {
		return "" // its deletion is due
	}
	k := p.keys[string(rk.Key)]
	if k != nil {
		k.row = true
	} else {
		p.found++ // a key in the log is counted by checkSize
	}
	switch {
	case r.seq <= p.state.floor:
		return fmt.Sprintf("its row is of entry %d, before the FLUSHALL at %d", r.seq, p.state.floor)
	case r.seq > p.last:
		return fmt.Sprintf("its row is of entry %d, but the log ends at %d", r.seq, p.last)
	case k == nil && r.seq < p.first:
		return "" // the log does not reach back to it
	case k == nil:
		return fmt.Sprintf("its row is of entry %d, which is about something else", r.seq)
	case r.seq < k.before.seq:
		return fmt.Sprintf("its row is of entry %d, but the checkpoint contains entry %d", r.seq, k.before.seq)
	case r.seq < p.first:
		return ""
	}
	i, ok := k.find(r.seq)
	switch {
	case !ok || i.kind != TypeCounter:
		return fmt.Sprintf("its row is of entry %d, which does not set it", r.seq)
	case i.value != r.value:
		return fmt.Sprintf("its row says %d, but the log says %d as of entry %d", r.value, i.value, r.seq)
	case i.expire != r.expire:
		return fmt.Sprintf("its row says that it expires at %d, but the log says %d as of entry %d", r.expire, i.expire, r.seq)
	}
	return ""
}

// checkExpiry expects the index to know when a row expires. The entry of a key
// that changed since may be gone.
func (p *partitionCheck) checkExpiry(rk persistence.RowKey, r row) error {
	k := p.keys[string(rk.Key)]
	if r.expire == 0 || k != nil && k.last().seq > r.seq {
		return nil
	}
	ok, err := p.db.HasExpiry(p.id, r.expire, rk)
	if err == nil && !ok {
		p.problem(fmt.Sprintf("key %q expires at %d, but the index of expiries does not know it", rk.Key, r.expire),
			"set its expiry again (PEXPIREAT), or it stays until it is read")
	}
	return err
}

// checkSize compares the logged number of keys with the keys that exist.
func (p *partitionCheck) checkSize() error {
	p.report.Keys += p.size
	if p.unusable {
		return nil // nobody knows the objects
	}
	p.found += int64(len(p.objects))
	for _, k := range p.keys {
		if k.last().kind == TypeCounter {
			p.found++
		}
	}
	if p.found != p.size {
		p.problem(fmt.Sprintf("DBSIZE is %d, but there are %d keys", p.size, p.found), doRestore)
	}
	return nil
}

// checkRuns holds the runs to their headers and to the log.
func (p *partitionCheck) checkRuns() error {
	runs, err := p.db.Runs(p.id)
	if err != nil {
		return err
	}
	for _, r := range runs {
		if r.LastSeq <= p.flushed && r.LastSeq > p.state.floor {
			continue // it belongs to nobody
		}
		p.report.Runs++
		c := runCheck{p: p, run: r}
		if err := p.db.ScanRun(r, c.record); err != nil {
			return fmt.Errorf("run %d of table %d: %w", r.ID, r.Table, err)
		}
		c.finish()
	}
	return nil
}

// runCheck goes through one run.
type runCheck struct {
	p          *partitionCheck
	run        persistence.Run
	hash, seq  uint64
	bytes      uint64
	inLog      int // records that the log has too
	wrong      int
	wrongAbout string
}

func (c *runCheck) record(hash, seq uint64, value []byte) error {
	c.p.report.RunRecords++
	c.bytes += uint64(len(value))
	if what := c.judge(hash, seq, value); what != "" {
		c.wrong++
		c.wrongAbout = what
	}
	c.hash, c.seq = hash, seq
	return nil
}

// judge says what is wrong with a record; "" if nothing.
func (c *runCheck) judge(hash, seq uint64, value []byte) string {
	rec, err := seen.ReadRecord(value)
	first, last := slotRange(int(c.p.id), c.p.count)
	switch slot := Slot(rec.Key); {
	case err != nil:
		return "cannot be read"
	case hash < c.hash || hash == c.hash && seq <= c.seq && c.seq > 0:
		return "is out of order"
	case seq < c.run.FirstSeq || seq > c.run.LastSeq:
		return fmt.Sprintf("is of entry %d, outside the run's %d to %d", seq, c.run.FirstSeq, c.run.LastSeq)
	case fbf.Hash(c.p.seed, rec.Key, rec.ID) != hash:
		return fmt.Sprintf("of key %q lies under a hash that is not its own", rec.Key)
	case slot < first || slot > last:
		return fmt.Sprintf("is of key %q, which belongs to another partition", rec.Key)
	case seq <= c.p.flushed:
		return fmt.Sprintf("of key %q survived the FLUSHALL at entry %d", rec.Key, c.p.flushed)
	case seq > c.p.last:
		return fmt.Sprintf("is of entry %d, but the log ends at %d", seq, c.p.last)
	case seq < c.p.first:
		return "" // the log does not reach back to it
	}
	i, ok := c.p.findExact(seq)
	if !ok || c.p.exact[i].table != c.run.Table || c.p.exact[i].digest != digestOf(rec.Key, rec.ID, rec.Original) {
		return fmt.Sprintf("of key %q is not the operation that the log has as entry %d", rec.Key, seq)
	}
	c.inLog++
	return ""
}

func (p *partitionCheck) findExact(seq uint64) (int, bool) {
	return slices.BinarySearchFunc(p.exact, seq, func(e exactEntry, seq uint64) int { return cmp.Compare(e.seq, seq) })
}

// finish compares the run as a whole with its header and with the log: it must
// hold every operation of its table in its range.
func (c *runCheck) finish() {
	name := fmt.Sprintf("run %d of table %d", c.run.ID, c.run.Table)
	if c.wrong > 0 {
		c.p.problem(fmt.Sprintf("%s has %d wrong records; the last one %s", name, c.wrong, c.wrongAbout), doRestore)
		return
	}
	if c.bytes != c.run.Bytes {
		c.p.problem(fmt.Sprintf("%s has %d bytes of records, its header says %d", name, c.bytes, c.run.Bytes), doRestore)
	}
	i, _ := c.p.findExact(c.run.FirstSeq)
	want := 0
	for ; i < len(c.p.exact) && c.p.exact[i].seq <= c.run.LastSeq; i++ {
		if c.p.exact[i].table == c.run.Table {
			want++
		}
	}
	if c.inLog != want {
		c.p.problem(fmt.Sprintf("%s has %d of the %d operations that the log has in its range: retries of the others might be taken for new ones",
			name, c.inLog, want), doRestore)
	}
}
