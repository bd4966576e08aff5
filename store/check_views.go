package store

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"maps"
	"math"
	"slices"

	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/store/seen"
)

// maxProblems is how many problems of one partition are told one by one.
const maxProblems = 10

// partitionCheck examines one partition. It makes the partition twice in memory, as
// recovery does: from the log alone, and as a server would start with it. The disk is
// compared with both. It takes memory for all that the log holds of the partition, and
// for its filters twice.
type partitionCheck struct {
	*checker
	id       uint16
	problems int
	unread   int // of these, keys that cannot be read

	state partitionState
	older *loadedSnapshot // until redone has come to it
	first uint64          // the sequence at which the log begins
	reach uint64          // the sequence of the newest view
	// redone is what the log leads to from its beginning, but for counters behind the state row.
	// Its filters and objects begin with the older snapshot, unless the log reaches back to
	// the beginning; without either it has none.
	redone *partition
	// opened is what a server makes of state row, newest snapshot and log. Its counters
	// are those changed after the state row. Without a snapshot it has no filters.
	opened *partition
	saved  hotTable      // the keys of redone as of the state row
	since  []*counter    // keys changed after the state row, as of the end of each section, by sequence
	exact  []exactRecord // what redone has put into its records, in order

	found int64 // keys that exist
	lost  bool  // nobody knows the objects
}

// exactRecord is a record that a run must hold, if one covers it.
type exactRecord struct {
	seq    uint64
	table  uint32
	digest uint64 // of its value
}

// problem reports a problem of the partition; of many, the first ones.
func (c *partitionCheck) problem(do, format string, args ...any) {
	c.problems++
	if c.problems <= maxProblems {
		c.checker.problem(fmt.Sprintf("partition %d", c.id), fmt.Sprintf(format, args...), do)
	}
}

func (c *partitionCheck) run() {
	meta := c.db.Meta()
	hashes := newHashes(meta.Seed)
	for _, p := range []**partition{&c.redone, &c.opened} {
		*p = newPartition(c.id, meta.Partitions, hashes, 0, new(memoryPool), c.db)
		defer (*p).release()
	}
	for _, step := range []func() error{c.load, c.redoLog, c.checkReadable, c.checkFilters, c.checkPages,
		c.checkRows, c.checkKeys, c.checkRuns} {
		if err := step(); errors.Is(err, errComes) {
			c.report.Notes = append(c.report.Notes, fmt.Sprintf("partition %d came from another shard, "+
				"and no checkpoint has followed: the server will make one of what came, which was not "+
				"examined", c.id))
			break
		} else if err != nil {
			c.problem(doRestore, "%v", err)
			break
		}
	}
	if c.older != nil {
		c.older.release()
	}
	if more := c.problems - maxProblems; more > 0 {
		do := doRestore
		if c.problems == c.unread {
			do = doDrop
		}
		c.checker.problem(fmt.Sprintf("partition %d", c.id), fmt.Sprintf("and %d more problems", more), do)
	}
}

// load loads the views, and holds the log to them: it must begin where the server would
// begin to redo it.
func (c *partitionCheck) load() error {
	views, err := c.opened.loadViews(c.db, c.db.Log())
	if err != nil {
		return err
	}
	if c.opened.marks.adopt > 0 {
		return errComes
	}
	c.state, c.lost, c.saved = views.state, views.filtersLost, newHotTable()
	c.checkSnapshots(views)
	c.checkOrphans()
	marks := &c.opened.marks
	c.reach = max(marks.counters, marks.records, marks.filters)
	from := min(marks.counters, marks.records)
	if !views.filtersLost {
		from = min(from, marks.filters)
	}
	var ok bool
	if c.first, _, ok = c.db.Log().Bounds(c.id); !ok {
		c.first = c.reach + 1
	}
	c.first = max(c.first, c.state.adopted+1) // what was here before does not count
	if c.first > from+1 {
		return fmt.Errorf("the op log begins at entry %d, but entries from %d on are needed", c.first, from+1)
	}
	if c.older != nil && c.first > c.older.seq+1 {
		c.problem("two new snapshots (SAVE) mend it", "the op log begins at entry %d and does not reach "+
			"back to the older snapshot at %d, "+
			"which could not stand in for the newest", c.first, c.older.seq)
	}
	if c.older != nil && (c.first > c.older.seq+1 || c.first == 1) {
		c.older.release()
		c.older = nil
	}
	c.opened.seq, c.redone.seq = from, c.first-1
	c.redone.logIsWhole = c.first == 1
	marks.records = math.MaxUint64 // those of redone serve
	if !c.opened.hasTables() {
		c.opened.forgoFilters()
		c.opened.seq = c.state.seq
	}
	if c.first > 1 {
		c.redone.forgoFilters()
		c.redone.adopted, c.redone.gone = c.state.adopted, c.state.gone
		c.redone.handed, c.redone.number = c.state.handed, c.state.number
		c.redone.regions = c.state.regions.clone()
	}
	c.sectionEnds()
	return nil
}

// forgoFilters makes redo leave out what is unknown without a snapshot.
func (p *machine) forgoFilters() { p.marks.filters, p.marks.catalog = math.MaxUint64, math.MaxUint64 }

// hasTables reports whether the partition has a catalogue: a state row or a snapshot was read.
func (p *machine) hasTables() bool { return p.catalog != nil }

// checkSnapshots reads all snapshots. The newest sound one is in c.opened; c.older becomes
// the one that a start would use in its place.
func (c *partitionCheck) checkSnapshots(views loadedViews) {
	var damaged []string
	c.report.Snapshots += len(views.snapshots)
	c.report.Filters += len(c.opened.tables) + len(c.opened.objects)
	for i, s := range views.snapshots {
		var loaded *loadedSnapshot
		var err error
		switch {
		case i < len(views.damage):
			err = views.damage[i]
		case i > len(views.damage):
			loaded, err = openSnapshot(c.db, s)
		}
		switch {
		case err != nil:
			damaged = append(damaged, fmt.Sprintf("filter snapshot %s is damaged (%v)", s.Path, err))
		case loaded != nil:
			c.report.Filters += len(loaded.tables) + len(loaded.keys)
			if i == 1 {
				c.older = loaded
			} else { // a power loss may bring back a third one, which nobody needs
				loaded.release()
			}
		}
	}
	do := doNothing
	if views.filtersLost {
		if do = doRebuild; views.forgets() {
			do = doForget
		}
		if len(damaged) == 0 {
			damaged = []string{"its filter snapshots are missing"}
		}
	}
	for _, text := range damaged {
		c.problem(do, "%s", text)
	}
}

// redoLog redoes the whole log.
func (c *partitionCheck) redoLog() error {
	redone, opened := newRedoGroup(&c.redone.machine, group), newRedoGroup(&c.opened.machine, group)
	err := c.db.Log().Read(c.id, c.first, func(seq uint64, content []byte) error {
		n, err := redone.addAll(seq, content)
		if err == nil && seq > c.opened.seq {
			_, err = opened.addAll(seq, content)
		}
		c.report.Sections++
		c.report.Entries += n
		switch {
		case errors.Is(err, ErrLogDamaged):
			return err
		case err != nil:
			return fmt.Errorf("the section of the op log at entry %d cannot be read: %w", seq, err)
		case n == 0:
			return fmt.Errorf("the section of the op log at entry %d is empty", seq)
		}
		c.sectionEnds()
		return nil
	})
	if err != nil {
		return err
	}
	if c.redone.seq < c.reach {
		return fmt.Errorf("the op log ends at entry %d, but entries up to %d were committed", c.redone.seq,
			c.reach)
	}
	if c.older != nil || c.redone.marks.counters != math.MaxUint64 {
		return errors.New("the last checkpoint, or the older snapshot, is as of an entry with which no " +
			"record of the op log ends")
	}
	c.drainRecords()
	return nil
}

// drainAt is how many bytes of records may come together.
const drainAt = 1 << 20

// sectionEnds takes note of what a section of the log has changed. Views are captured
// between sections only.
func (c *partitionCheck) sectionEnds() {
	p := c.redone
	if c.older != nil && p.seq == c.older.seq {
		p.adopt(c.older)
		c.older = nil
	}
	if p.seq == c.state.seq {
		c.checkState()
		c.saveKeys()
	}
	if p.seen.Bytes() >= drainAt {
		c.drainRecords()
	}
	changed := c.opened.hot.dirty
	slices.SortFunc(changed, func(a, b *counter) int { return cmp.Compare(a.seq, b.seq) })
	for _, k := range changed {
		if k.is &^= isListed; k.seq <= c.state.seq {
			continue
		}
		since := k.clone()
		since.setParts(slices.Clone(k.parts()))
		c.since = append(c.since, since)
		if k.kind == TypeCounter {
			continue
		}
		if old := c.saved.get(hotHash([]byte(k.key())), []byte(k.key())); old != nil {
			old.is |= isInRow // until its deletion was written back
		}
	}
	c.opened.hot.dirty = changed[:0]
}

// saveKeys keeps the keys that the log has led to, as of the state row. What it leads to behind
// that is compared with the rows in since; redone goes on with the objects, which may come to lie
// under the keys of counters.
func (c *partitionCheck) saveKeys() {
	p := c.redone
	c.saved = p.hot.table
	p.marks.counters = math.MaxUint64
	p.hot.clear()
	for _, k := range p.objects {
		hash, was := hotHash([]byte(k.key())), k.clone()
		was.setParts(slices.Clone(k.parts()))
		c.saved.remove(hash, k)
		c.saved.put(hash, was)
		k.is = 0
		p.hot.table.put(hash, k)
		p.hot.changed(k)
	}
}

func (c *partitionCheck) drainRecords() {
	c.redone.seen.Drain(func(table uint32, seq uint64, value []byte) {
		c.exact = append(c.exact, exactRecord{seq: seq, table: table, digest: hotHash(value)})
	})
}

// checkState compares the state row with the state that the log leads to. Values to which the
// log does not reach back are taken from the row. DBSIZE is checked by checkKeys.
func (c *partitionCheck) checkState() {
	p, is := c.redone, c.state
	if is.seq == 0 || !p.hasTables() {
		return
	}
	want := p.stateRow()
	want.size = is.size
	if c.first > 1 {
		want.floor, want.incarnation = cmp.Or(want.floor, is.floor), cmp.Or(want.incarnation, is.incarnation)
		want.holds, want.holdSum = is.holds, is.holdSum // checkHolds has compared these with their rows
	}
	if want.regions != nil && is.regions != nil { // idle regions do not log what they hear
		for from, taken := range is.regions.heard {
			want.regions.hear(from, sortTaken(taken))
		}
		want.regions.tells = is.regions.tells // by tables that may be others now
	}
	if bytes.Equal(want.encode(), is.encode()) {
		return
	}
	c.problem(doRestore, "the state of the checkpoint at entry %d is not what the log leads to: last "+
		"FLUSHALL at %d and not %d, %d keys that are no counters and not %d, "+
		"logged time %d and not %d, or other tables", is.seq, is.floor, want.floor, is.objects, want.objects,
		is.at.logged, want.at.logged)
}

// checkFilters redoes the log on the newest snapshot, and on the older one or on nothing, and
// compares the results (G1): at its end, filters and objects must be the same, byte by byte.
// Earlier, a snapshot may have bits of later ids, and lack those of generations
// that were dropped while it was taken.
func (c *partitionCheck) checkFilters() error {
	if !c.redone.hasTables() || !c.opened.hasTables() {
		return nil
	}
	want, is := c.redone.beginSnapshot(), c.opened.beginSnapshot()
	if !bytes.Equal(want.header, is.header) {
		c.problem(doRestore, "the newest snapshot and the log before it contradict each other about what "+
			"tables there are, or what keys that are no counters")
		return nil
	}
	var names []string
	for _, id := range slices.Sorted(maps.Keys(c.opened.tables)) {
		names = append(names, fmt.Sprintf("the filter of table %q: retries might count again, or new "+
			"operations might not count", c.opened.tables[id].def.Name))
	}
	for _, key := range slices.Sorted(maps.Keys(c.opened.objects)) {
		names = append(names, fmt.Sprintf("key %q", key))
	}
	for i, name := range names {
		if digestOf(want.encoders[i]) != digestOf(is.encoders[i]) {
			c.problem(doRestore, "the newest snapshot and the log before it contradict each other about %s",
				name)
		}
	}
	return nil
}

// checkReadable names the objects that cannot be read, and makes them unreadable in both
// partitions, so that the comparisons leave them out.
func (c *partitionCheck) checkReadable() error {
	c.opened.spoilUnloaded()
	named := make(map[string]bool)
	for _, pair := range [][2]*partition{{c.opened, c.redone}, {c.redone, c.opened}} {
		for _, u := range pair[0].listUnreadable() {
			k := pair[1].objects[u.Key]
			if k != nil {
				pair[1].retire(k.object().release)
				k.setObject(pair[0].objects[u.Key].object())
			}
			if named[u.Key] || k == nil && pair[1].hasTables() { // it was dropped, or replaced
				continue
			}
			named[u.Key] = true
			c.unread++
			c.report.Unreadable = append(c.report.Unreadable, u)
			c.problem(doDrop, "%v", u)
		}
	}
	return nil
}

// digestOf hashes an encoding, which is read from memory without an error.
func digestOf(encoding io.Reader) uint64 {
	var h maphash.Hash
	h.SetSeed(hotSeed)
	_, _ = io.Copy(&h, encoding)
	return h.Sum64()
}

// checkRows holds each row to its place, to the log, and to the index of expiries.
func (c *partitionCheck) checkRows() error {
	var failed error
	from, to := c.opened.rowRange()
	err := c.db.Rows(from, to, func(k persistence.RowKey, value []byte) bool {
		c.report.Rows++
		r, err := decodeRow(value)
		if err != nil {
			c.problem(doRestore, "the row of key %q cannot be read: %v", k.Key, err)
			return true
		}
		if k.Position() != c.opened.hashes.position(k.Key) {
			c.problem(doRestore, "the row of key %q lies where that key does not belong", k.Key)
			return true
		}
		if r.seq > c.state.floor && r.seq <= c.opened.floor {
			return true // its deletion is due
		}
		hash := hotHash(k.Key)
		old, last := c.saved.get(hash, k.Key), c.opened.hot.get(hash, k.Key)
		if old != nil {
			old.is |= isInRow
		} else if last == nil && r.kind == TypeCounter {
			c.found++ // checkKeys counts the keys of the log
		}
		if r.aside {
			return true // of a key that holds an object
		}
		if what := c.judgeRow(k.Key, r, old); what != "" {
			c.problem(doRestore, "key %q: %s", k.Key, what)
		}
		key := counter{kind: r.kind}
		key.setParts(r.parts)
		if r.expire == 0 || last != nil && last.seq > r.seq || !c.opened.sets(&key) {
			return true // the entry of a key that has changed may be gone, and others have none
		}
		ok := false
		if ok, failed = c.db.HasExpiry(c.id, r.expire, k); !ok && failed == nil {
			c.problem("set its expiry again (PEXPIREAT), or it stays until it is read",
				"key %q expires at %d, but the index of expiries does not know it", k.Key, r.expire)
		}
		return failed == nil
	})
	return cmp.Or(err, failed)
}

// judgeRow says what is wrong with a row; "" if nothing. old is its key as of the state
// row.
func (c *partitionCheck) judgeRow(key []byte, r row, old *counter) string {
	want := old
	switch last := c.redone.seq; {
	case r.seq <= c.state.floor:
		return fmt.Sprintf("its row is of entry %d, before the FLUSHALL at %d", r.seq, c.state.floor)
	case r.seq > last:
		return fmt.Sprintf("its row is of entry %d, but the log ends at %d", r.seq, last)
	case r.seq > c.state.seq:
		i, ok := slices.BinarySearchFunc(c.since, r.seq, func(k *counter, seq uint64) int {
			return cmp.Compare(k.seq, seq)
		})
		if want = nil; ok && c.since[i].key() == string(key) {
			want = c.since[i]
		}
	case old == nil && r.seq < c.first:
		return "" // the log does not reach back to it
	case old != nil && r.seq < old.seq:
		return fmt.Sprintf("its row is of entry %d, but the checkpoint contains entry %d", r.seq, old.seq)
	}
	switch {
	case want == nil:
		return fmt.Sprintf("its row is of entry %d, which is about something else", r.seq)
	case want.seq != r.seq || want.kind != r.kind:
		return fmt.Sprintf("its row is of entry %d, which does not set it", r.seq)
	case want.value != r.value:
		return fmt.Sprintf("its row says %d, but the log says %d as of entry %d", r.value, want.value, r.seq)
	case !bytes.Equal(want.parts().AppendTo(nil), r.parts.AppendTo(nil)):
		return fmt.Sprintf("its row and the log say different things of its parts in the regions, as of "+
			"entry %d", r.seq)
	case want.expire != r.expire:
		return fmt.Sprintf("its row says that it expires at %d, but the log says %d as of entry %d", r.expire,
			want.expire, r.seq)
	}
	return ""
}

// checkKeys expects the keys of the log in this partition and, if the checkpoint
// contains them, in rows; and compares the logged number of keys with those that exist.
func (c *partitionCheck) checkKeys() error {
	flushed := c.opened.floor > c.state.seq
	for k := range c.saved.all {
		if c.checkPlace(k); flushed || !k.hasRow() || k.kind.isObject() {
			continue
		}
		if k.is&isInRow == 0 {
			c.problem(doRestore, "key %q: the log says that it is %d as of entry %d, but its row is missing",
				k.key(), k.value, k.seq)
		}
		if k.kind == TypeCounter && c.opened.hot.peek(k.key()) == nil {
			c.found++
		}
	}
	for k := range c.opened.hot.table.all {
		if c.checkPlace(k); k.kind == TypeCounter {
			c.found++
		}
	}
	objects := c.opened.objects
	if !c.opened.hasTables() {
		objects = c.redone.objects
	}
	c.found += int64(len(objects))
	c.report.Keys += c.opened.size
	if c.found != c.opened.size && !c.lost {
		c.problem(doRestore, "DBSIZE is %d, but there are %d keys", c.opened.size, c.found)
	}
	return nil
}

// checkPlace expects a key of the log to belong to the partition.
func (c *partitionCheck) checkPlace(k *counter) {
	if !c.opened.owns(uint16(k.pos >> 48)) {
		c.problem(doRestore, "the op log holds key %q, which belongs to another partition", k.key())
	}
}

// checkRuns holds the runs to their headers and to the log.
func (c *partitionCheck) checkRuns() error {
	runs, err := c.db.Runs(c.id)
	if err != nil {
		return err
	}
	for _, r := range runs {
		if r.LastSeq <= c.opened.floor && r.LastSeq > c.state.floor {
			continue // it belongs to nobody
		}
		c.report.Runs++
		if err := c.checkRun(r); err != nil {
			return fmt.Errorf("run %d of table %d: %w", r.ID, r.Table, err)
		}
	}
	return nil
}

// checkRun goes through one run. It must hold every operation of its table in its range.
func (c *partitionCheck) checkRun(r persistence.Run) error {
	bytes, inLog, wrong, about := uint64(0), 0, 0, ""
	err := c.db.ScanRun(r, func(hash, seq uint64, value []byte) error {
		c.report.RunRecords++
		bytes += uint64(len(value))
		switch what := c.judgeRecord(r, hash, seq, value); {
		case what != "":
			wrong, about = wrong+1, what
		case seq >= c.first:
			inLog++
		}
		return nil
	})
	if err != nil {
		return err
	}
	name := fmt.Sprintf("run %d of table %d", r.ID, r.Table)
	if wrong > 0 {
		c.problem(doRestore, "%s has %d wrong records; the last one %s", name, wrong, about)
		return nil
	}
	if bytes != r.Bytes {
		c.problem(doRestore, "%s has %d bytes of records, its header says %d", name, bytes, r.Bytes)
	}
	want := 0
	i, _ := c.findExact(max(r.FirstSeq, c.opened.floor+1))
	for ; i < len(c.exact) && c.exact[i].seq <= r.LastSeq; i++ {
		if c.exact[i].table == r.Table {
			want++
		}
	}
	if inLog != want {
		c.problem(doRestore, "%s has %d of the %d operations that the log has in its range: retries of "+
			"the others might be taken for new ones",
			name, inLog, want)
	}
	return nil
}

// judgeRecord says what is wrong with a run's record; "" if nothing.
func (c *partitionCheck) judgeRecord(r persistence.Run, hash, seq uint64, value []byte) string {
	rec, err := seen.ReadRecord(value)
	switch {
	case err != nil:
		return "cannot be read"
	case seq < r.FirstSeq || seq > r.LastSeq:
		return fmt.Sprintf("is of entry %d, outside the run's %d to %d", seq, r.FirstSeq, r.LastSeq)
	case c.opened.hashes.ids.Hash(rec.Key, rec.ID) != hash:
		return fmt.Sprintf("of key %q lies under a hash that is not its own", rec.Key)
	case !c.opened.owns(Slot(rec.Key)):
		return fmt.Sprintf("is of key %q, which belongs to another partition", rec.Key)
	case seq <= c.opened.floor:
		return fmt.Sprintf("of key %q survived the FLUSHALL at entry %d", rec.Key, c.opened.floor)
	case seq > c.redone.seq:
		return fmt.Sprintf("is of entry %d, but the log ends at %d", seq, c.redone.seq)
	case seq < c.first:
		return "" // the log does not reach back to it
	}
	i, ok := c.findExact(seq)
	if !ok || c.exact[i].table != r.Table || c.exact[i].digest != hotHash(value) {
		return fmt.Sprintf("of key %q is not the operation that the log has as entry %d", rec.Key, seq)
	}
	return ""
}

func (c *partitionCheck) findExact(seq uint64) (int, bool) {
	return slices.BinarySearchFunc(c.exact, seq, func(e exactRecord, seq uint64) int {
		return cmp.Compare(e.seq, seq)
	})
}
