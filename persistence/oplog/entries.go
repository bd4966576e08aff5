package oplog

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"github.com/fbfkv/fbfkv/internal/longlock"
	"github.com/fbfkv/fbfkv/persistence/disk"
)

const (
	// EntryPartition is the partition under which entries of a replicated log lie in the
	// op log, in Trim and Hold.Acknowledge too: their sequence is their index.
	EntryPartition = 0xFFFF
	// MaxEntry bounds the bytes of an entry: its data and extensions.
	MaxEntry = 64 << 20
	// entryCache is how many bytes of the newest entries are kept in memory.
	entryCache = 16 << 20
	// readAhead is how many bytes are read at once for a reader of one entry after the other, as
	// Raft is twice when it starts.
	readAhead = 256 << 10
)

var (
	// ErrNoEntry: the log has no entry with that index.
	ErrNoEntry = errors.New("no such entry in the op log")
	// ErrReplicated: the log has entries of a replicated log, but was opened without
	// Sections, or was to get a record of its own.
	ErrReplicated = errors.New("the op log is a shard's and not a node's own")
	// errEntryOrder: entries would leave a gap, or take back one that was applied.
	errEntryOrder = errors.New("entries out of order")
)

// Reign is the number of a reign: term and index of the entry with which a node began to decide. No two have
// the same. Zero: none has begun.
type Reign struct{ Term, Index uint64 }

// Entry is an entry of a replicated log. Nobody changes its bytes.
type Entry struct {
	// Index is its place in the log, from 1 on; Term that of the leader who made it.
	Index, Term uint64
	// Type says what Data is. Data and Extensions have at most MaxEntry bytes.
	Type             uint8
	Data, Extensions []byte
	// AppendedAt is when the leader appended it; zero: unknown.
	AppendedAt time.Time
	// Reign is the latest one that has begun up to this entry. AppendEntries sets it.
	Reign Reign
}

// bytes is about how much memory an entry takes.
func (e *Entry) bytes() int { return len(e.Data) + len(e.Extensions) + 128 }

// entryPlace is where an entry lies: the content of its section.
type entryPlace struct {
	file uint64
	at   int64
	size uint32
	sum  uint32 // its checksum: what is read later may be damaged, or another file's
}

// entries are the entries of a replicated log.
//
// The files are only appended to. A record `cut` says that the entries behind an index are void,
// `void` that all are. Each record notes up to which index its writer had applied: these entries
// are committed, and are never cut. So the sections in entries are seen by Read up to there, and no
// others are.
type entries struct {
	writing longlock.Mutex // held, before mu, by the goroutine that appends or deletes entries
	scratch []byte         // of the writer

	// The log's mu guards the rest.
	next    uint64       // the index that follows; 0: none is known, and none was ever written
	places  []entryPlace // of the last so many entries before next
	cached  []Entry      // the last so many of these
	bytes   int          // of cached
	ahead   []Entry      // that were read from a file together
	aheadAt []entryPlace // where each of them was
	read    uint64       // the index that was asked for last and is not cached
	applied uint64
	noted   uint64  // what the last record says of that
	reigns  []Reign // those that begin in entries, ascending; before them the latest that began earlier
}

// reign returns the latest reign that has begun up to an index.
func (s *entries) reign(upTo uint64) Reign {
	for i := len(s.reigns) - 1; i >= 0; i-- {
		if s.reigns[i].Index <= upTo {
			return s.reigns[i]
		}
	}
	return Reign{}
}

// begun notes the latest reign.
func (s *entries) begun(r Reign) {
	if n := len(s.reigns); r != (Reign{}) && (n == 0 || s.reigns[n-1] != r) {
		s.reigns = append(s.reigns, r)
	}
}

// first is the index of the first entry, if there is one.
func (s *entries) first() uint64 { return s.next - uint64(len(s.places)) }

// place returns where an entry lies.
func (s *entries) place(index uint64) (entryPlace, bool) {
	if index < s.first() || index >= s.next {
		return entryPlace{}, false
	}
	return s.places[index-s.first()], true
}

// cut makes an index the last one.
func (s *entries) cut(last uint64) {
	for n := len(s.reigns); n > 0 && s.reigns[n-1].Index > last; n-- {
		s.reigns = s.reigns[:n-1]
	}
	drop := min(s.next-min(s.next, last+1), uint64(len(s.places)))
	s.places = s.places[:len(s.places)-int(drop)]
	for ; drop > 0 && len(s.cached) > 0; drop-- {
		i := len(s.cached) - 1
		s.bytes -= s.cached[i].bytes()
		s.cached[i] = Entry{}
		s.cached = s.cached[:i]
	}
	s.next = last + 1
}

// void drops all entries; the next one is what follows an index.
func (s *entries) void(last uint64) {
	reign := s.reign(last)
	s.reigns = nil
	s.begun(reign)
	s.places, s.cached, s.bytes, s.next = nil, nil, 0, last+1
}

// add adds the next entry, to the cache too.
func (s *entries) add(p entryPlace, e Entry) {
	s.places = append(s.places, p)
	s.next = e.Index + 1
	s.begun(e.Reign)
	s.cached = append(s.cached, e)
	s.bytes += e.bytes()
	n := 0
	for ; s.bytes > entryCache && n < len(s.cached)-1; n++ {
		s.bytes -= s.cached[n].bytes()
		s.cached[n] = Entry{}
	}
	s.cached = s.cached[n:]
}

// forget drops the entries up to an index.
func (s *entries) forget(upTo uint64) {
	n := int(upTo + 1 - s.first())
	s.places = s.places[n:]
	for len(s.reigns) > 1 && s.reigns[1].Index <= upTo {
		s.reigns = s.reigns[1:]
	}
	for ; len(s.cached) > len(s.places); s.cached = s.cached[1:] {
		s.bytes -= s.cached[0].bytes()
		s.cached[0] = Entry{}
	}
}

// SetApplied says that the entries up to an index are committed and applied, before
// anybody else relies on it: a snapshot or a copy has no more than that. Records note it
// from then on. An index behind the last entry belongs to a state that came from elsewhere: the
// next entry must follow it, and makes all earlier ones void. Such a state is of the reign that the
// log knows last.
func (l *Log) SetApplied(index uint64) {
	l.mu.Lock()
	l.entries.applied = max(l.entries.applied, index)
	l.mu.Unlock()
}

// Applied returns the index up to which entries are known to be committed: at Open the
// highest that a record notes, later that of SetApplied.
func (l *Log) Applied() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.entries.applied
}

// Reign returns the latest reign that has begun up to the index that Applied returns.
func (l *Log) Reign() Reign {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.entries.reign(l.entries.applied)
}

// EntryBounds returns the indices of the first and the last entry, 0 and 0 if there is
// none.
func (l *Log) EntryBounds() (first, last uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.entries.places) == 0 {
		return 0, 0
	}
	return l.entries.first(), l.entries.next - 1
}

// AppendEntries appends entries with consecutive indices, durably, whatever the policy:
// with one write(2) and one fsync. It keeps their bytes, which nobody may change.
//
// The first must follow the last entry. Or it follows what was applied, further on
// (SetApplied): then the log begins anew with it. Entries behind that place must be deleted first.
//
// reserved are bytes of the op log that the caller has reserved for them; they are taken,
// whatever comes out. If they are too few, the rest is reserved here. ErrNoSpace: nothing was
// appended, and it may be tried again. An ErrFailed is final (G8). Any other error means that the
// entries are not what they should be, and that nothing was appended.
func (l *Log) AppendEntries(es []Entry, reserved int64) error {
	s := &l.entries
	s.writing.Lock()
	defer s.writing.Unlock()
	err := l.checkEntries(es)
	if err == nil && len(es) > 0 {
		err = l.beginEntries(es[0].Index)
	}
	if err != nil || len(es) == 0 {
		l.room.Add(reserved)
		return err
	}
	need := int64(0)
	for i := range es {
		need += Framed(int64(entryMost+len(es[i].Data)+len(es[i].Extensions))) + SectionOverhead
	}
	if err := l.reserveEntries(need-reserved, cutSlack); err != nil {
		l.room.Add(reserved)
		return err
	}
	places := make([]entryPlace, len(es))
	l.mu.Lock()
	start := l.appended
	for i := range es {
		places[i] = l.appendEntry(&es[i])
	}
	used := int64(l.appended - start)
	l.mu.Unlock()
	l.room.Add(max(need, reserved) - used)
	if err := l.syncAppended(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range es {
		s.add(places[i], es[i])
	}
	return nil
}

// checkEntries checks entries before they are appended, and returns their reign.
func (l *Log) checkEntries(es []Entry) error {
	if l.o.Sections == nil {
		return fmt.Errorf("%w: a log without Sections has no entries", disk.ErrBadOptions)
	}
	reign := Reign{}
	if len(es) > 0 {
		l.mu.Lock()
		reign = l.entries.reign(es[0].Index - 1)
		l.mu.Unlock()
	}
	for i := range es {
		e := &es[i]
		if e.Index != es[0].Index+uint64(i) || e.Index == 0 || len(e.Data)+len(e.Extensions) > MaxEntry {
			return fmt.Errorf("%w: entry %d behind %d, with %d bytes", errEntryOrder, e.Index, es[0].Index,
				len(e.Data)+len(e.Extensions))
		}
		_, _, begins, err := l.o.Sections(e)
		if begins {
			reign = Reign{Term: e.Term, Index: e.Index}
		}
		e.Reign = reign
		if err == nil {
			err = l.sectionsOf(e, func(section) error { return nil })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// beginEntries lets the entry with an index follow, or says that it cannot.
func (l *Log) beginEntries(index uint64) error {
	l.mu.Lock()
	next, applied := l.entries.next, l.entries.applied
	l.mu.Unlock()
	switch {
	case index <= applied || index != next && index != applied+1 || index < next:
		return fmt.Errorf("%w: entry %d, where %d comes next, and %d was applied", errEntryOrder, index, next,
			applied)
	case index == next || next == 0:
		return nil
	}
	return l.cutEntries(kindVoid, applied)
}

// sectionsOf calls fn for the partitions' sections in an entry, whose offsets are those
// in its data.
func (l *Log) sectionsOf(e *Entry, fn func(section) error) error {
	from, to, _, err := l.o.Sections(e)
	if err != nil {
		return err
	}
	return parseSections(e.Data[from:to], func(s section) error {
		if int(s.partition) >= l.o.Partitions {
			return disk.Corruptf("entry %d of the op log has a section of partition %d", e.Index, s.partition)
		}
		s.at += from
		return fn(s)
	})
}

// appendEntry frames an entry, notes its sections, and returns its place. The lock is
// held.
func (l *Log) appendEntry(e *Entry) entryPlace {
	record := AppendSection(l.entries.scratch[:0], EntryPartition, e.Index, nil)
	record = appendEntry(record, e, l.entries.applied)
	l.entries.noted = l.entries.applied
	l.entries.scratch = record
	content := record[sectionHeader:]
	binary.BigEndian.PutUint32(record[sectionHeader-4:], uint32(len(content)))
	_, at := padBlock(nil, l.pos)
	p := entryPlace{
		file: l.header.num, at: payloadOffset(at+chunkHeader, sectionHeader),
		size: uint32(len(content)), sum: crc32.Checksum(content, disk.Castagnoli),
	}
	l.append(record)
	l.current.note(EntryPartition, e.Index)
	_ = l.sectionsOf(e, func(s section) error { // checked before
		l.current.note(s.partition, s.seq)
		return nil
	})
	if cap(l.entries.scratch) > retain {
		l.entries.scratch = nil
	}
	return p
}

const (
	// markRecord bounds what a cut or a void takes in the log.
	markRecord = entryMark + SectionOverhead
	// cutSlack is the space that entries leave to cuts, voids and notes of the applied index,
	// without which a full disk could not be relieved.
	cutSlack = 4 << 10
)

// reserveEntries reserves room, but for the rest, of the slack too: what is appended here
// was decided elsewhere, and is not refused while there is space for it.
func (l *Log) reserveEntries(n, rest int64) error {
	if n <= 0 || l.take(n, rest) {
		return nil
	}
	err := l.makeRoom(n)
	if errors.Is(err, disk.ErrNoSpace) && l.take(n, rest) {
		return nil
	}
	return err
}

// DeleteEntries deletes the entries with indices from lo to hi, which are the first ones,
// the last ones, or all; those that do not exist count for nothing.
//
// The first ones: the log may give up their files, once no partition needs these either
// (Trim). It is not written down. The last ones are durably void when it returns; none of
// them was applied. All, if some were applied: the same; their sections need not be read
// again, since the state that was applied came from elsewhere.
//
// ErrNoSpace: nothing was deleted. An ErrFailed is final (G8).
func (l *Log) DeleteEntries(lo, hi uint64) error {
	below, err := l.deleteEntries(lo, hi)
	if err != nil || below == 0 {
		return err
	}
	return l.Trim(EntryPartition, below)
}

// deleteEntries returns the index below which the log may give up entries, 0 if it may not.
func (l *Log) deleteEntries(lo, hi uint64) (below uint64, err error) {
	s := &l.entries
	s.writing.Lock()
	defer s.writing.Unlock()
	first, last := l.EntryBounds()
	applied := l.Applied()
	lo, hi = max(lo, first), min(hi, last)
	switch {
	case last == 0 || lo > hi:
		return 0, nil
	case hi == last && lo > applied:
		return 0, l.cutEntries(kindCut, lo-1)
	case hi == last && lo == first:
		return 0, l.cutEntries(kindVoid, applied) // what is behind it came from elsewhere
	case lo == first && hi <= applied:
		l.mu.Lock()
		s.forget(hi)
		l.mu.Unlock()
		return hi + 1, nil
	}
	return 0, fmt.Errorf("%w: %d to %d of %d to %d cannot be deleted, %d was applied", errEntryOrder, lo, hi,
		first, last, applied)
}

// cutEntries makes the entries void that are behind an index, or all, durably.
func (l *Log) cutEntries(kind byte, index uint64) error {
	if err := l.reserveEntries(markRecord, 0); err != nil {
		return err
	}
	l.mu.Lock()
	start := l.appended
	applied := l.entries.applied
	if kind == kindVoid {
		applied = index
	}
	l.append(AppendSection(nil, EntryPartition, index,
		appendMark(nil, kind, applied, l.entries.reign(index))))
	l.entries.noted = applied
	used := int64(l.appended - start)
	l.mu.Unlock()
	l.room.Add(markRecord - used)
	if err := l.syncAppended(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if kind == kindVoid {
		l.entries.void(index)
		index = 0
	} else {
		l.entries.cut(index)
	}
	l.keepEntries(index)
	return nil
}

// noteApplied makes it durable up to where entries are applied: what is made of them is about
// to be published, and the next start must redo as much.
func (l *Log) noteApplied() error {
	s := &l.entries
	s.writing.Lock()
	defer s.writing.Unlock()
	l.mu.Lock()
	behind, last := s.noted < s.applied && s.applied < s.next, s.next-1
	l.mu.Unlock()
	if !behind {
		return nil
	}
	return l.cutEntries(kindCut, last)
}

// keepEntries notes that no file has valid entries behind an index. The lock is held.
func (l *Log) keepEntries(last uint64) {
	l.current.keepEntries(last)
	for i := range l.closed {
		l.closed[i].keepEntries(last)
	}
}

// get sets e to an entry that is in memory; or it returns where the entry is, and some that
// follow it if it is read next after the one before. false: there is no such entry.
func (s *entries) get(index uint64, e *Entry) (run []entryPlace, ok bool) {
	first, ok := s.place(index)
	if !ok {
		return nil, false
	}
	if fromEnd := s.next - index; fromEnd <= uint64(len(s.cached)) {
		*e = s.cached[uint64(len(s.cached))-fromEnd]
		return nil, true
	}
	follows := index == s.read+1
	s.read = index
	if len(s.ahead) > 0 {
		if at := index - s.ahead[0].Index; at < uint64(len(s.ahead)) && s.aheadAt[at] == first {
			*e = s.ahead[at]
			return nil, true
		}
	}
	for n, p := range s.places[index-s.first():] {
		if n > 0 && (!follows || p.file != first.file || p.at+int64(p.size)-first.at > readAhead) {
			break
		}
		run = append(run, p)
	}
	return run, true
}

// Entry reads the entry with an index into e: from memory if it is among the newest.
// ErrNoEntry: there is none. It may run beside all else.
func (l *Log) Entry(index uint64, e *Entry) error {
	for {
		l.mu.Lock()
		run, ok := l.entries.get(index, e)
		l.mu.Unlock()
		if !ok {
			return fmt.Errorf("%w: %d", ErrNoEntry, index)
		}
		if run == nil {
			return nil
		}
		read, err := l.readEntries(index, run)
		l.mu.Lock()
		now, ok := l.entries.place(index)
		if len(read) > 1 {
			l.entries.ahead, l.entries.aheadAt = read, run
		}
		l.mu.Unlock()
		if len(read) > 0 {
			*e = read[0]
			return nil
		}
		if ok && now == run[0] {
			return disk.Wrap("read the op log", err)
		}
		// It was deleted meanwhile, and its file perhaps used again.
	}
}

// readEntries reads entries that follow one another in a file, up to the first one that it
// cannot read, and returns why.
func (l *Log) readEntries(index uint64, run []entryPlace) (read []Entry, err error) {
	f, err := l.o.FS.Open(l.path(fileName(run[0].file)))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	from := run[0].at
	raw := make([]byte, run[len(run)-1].end()-from)
	n, err := f.ReadAt(raw, from)
	for _, p := range run {
		at, end := p.at-from, p.end()-from
		if end > int64(n) {
			return read, cmp.Or(err, io.ErrUnexpectedEOF)
		}
		content := unframe(raw[at:end:end], p.at)
		if crc32.Checksum(content, disk.Castagnoli) != p.sum {
			return read, disk.Corruptf("entry %d of the op log has a bad checksum", index)
		}
		s, err := parseEntry(index, content)
		if err != nil {
			return read, err
		}
		read, index = append(read, s.entry), index+1
	}
	return read, nil
}

// end is where the file goes on behind an entry.
func (p entryPlace) end() int64 {
	at := location{at: p.at, size: int(p.size)}
	return at.end()
}
