package oplog

import (
	"bytes"
	"errors"
	"hash/crc32"
	"math"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

// entryScan puts the entries together that a scan finds in the files. A section in an
// entry is shown to Read once a record notes that the entry was applied, so never one of
// an entry that was cut.
type entryScan struct {
	entries
	limit   uint64    // sections of entries up to here are shown
	pending []pending // of entries that no record notes as applied so far, ascending
	// copy, if it is not nil, is given what is shown instead: records, with all sections of
	// an entry.
	copy func(record []byte) error
	// shown is the index of the entry whose sections were shown or copied last; 0: of none.
	shown uint64
}

// pending is a section that is perhaps not committed, or in a scan that copies, an entry.
type pending struct {
	index     uint64
	partition uint16
	location
	record []byte
}

// section takes a section of EntryPartition; begin is where its record's first byte lies.
func (s *entryScan) section(ix *indexer, sec section) error {
	if ix.l.o.Sections == nil {
		return ErrReplicated
	}
	e, err := parseEntry(sec.seq, sec.content)
	if err != nil {
		return err
	}
	if e.applied < s.applied {
		return disk.Corruptf("entry %d of the op log notes that %d was applied, after %d", sec.seq, e.applied,
			s.applied)
	}
	if err := s.order(ix.l, sec.seq, e); err != nil {
		return err
	}
	s.applied = e.applied
	if e.kind == kindVoid {
		s.pending = nil
		s.void(sec.seq)
		s.reigns = nil
		s.begun(e.reign)
		return nil
	}
	if err := s.show(ix.l, e.applied); err != nil {
		return err
	}
	if e.kind == kindCut {
		for n := len(s.pending); n > 0 && s.pending[n-1].index > sec.seq; n-- {
			s.pending = s.pending[:n-1]
		}
		s.cut(sec.seq)
		s.begun(e.reign)
		return nil
	}
	s.begun(e.reign)
	s.next = sec.seq + 1
	s.places = append(s.places, entryPlace{
		file: ix.file.num, at: payloadOffset(ix.begin, sec.at),
		size: uint32(len(sec.content)), sum: crc32.Checksum(sec.content, disk.Castagnoli),
	})
	if s.copy != nil {
		from, to, _, err := ix.l.o.Sections(&e.entry)
		if err == nil && from < to {
			s.pending = append(s.pending, pending{index: sec.seq, record: bytes.Clone(e.entry.Data[from:to])})
		}
		return err
	}
	return ix.l.sectionsOf(&e.entry, func(in section) error {
		if !ix.wants(in.partition) {
			return nil
		}
		in.at += sec.at + e.data
		s.pending = append(s.pending,
			pending{index: sec.seq, partition: in.partition, location: ix.found(in)})
		return nil
	})
}

// order checks that a record of a replicated log follows those before it.
func (s *entryScan) order(l *Log, index uint64, e entrySection) error {
	ok, reign := false, s.reign(index)
	if s.next == 0 {
		reign = e.reign // it began before the scanned records
	}
	switch e.kind {
	case kindEntry:
		_, _, begins, err := l.o.Sections(&e.entry)
		if err != nil {
			return err
		}
		if begins {
			reign = Reign{Term: e.entry.Term, Index: index}
		}
		ok = (s.next == 0 || index == s.next) && e.applied < index && e.reign == reign &&
			begins == (reign.Index == index)
	case kindCut:
		ok = (s.next == 0 || index < s.next) && e.applied <= index && e.reign == reign
	case kindVoid:
		ok = e.applied == index
	}
	if !ok || index == math.MaxUint64 {
		return disk.Corruptf("entry %d of the op log, of kind %d, where %d comes next; it notes that %d "+
			"was applied", index, e.kind, s.next, e.applied)
	}
	return nil
}

// show shows the sections of entries up to an index to Read, or copies them.
func (s *entryScan) show(l *Log, applied uint64) error {
	n := 0
	for ; n < len(s.pending) && s.pending[n].index <= min(applied, s.limit); n++ {
		p := s.pending[n]
		if s.shown = p.index; s.copy == nil {
			if err := l.found(p.partition, p.location); err != nil {
				return err
			}
		} else if err := s.copy(p.record); err != nil {
			return err
		}
	}
	s.pending = s.pending[n:]
	return nil
}

// noteEntries takes what a scan of all files has found.
func (l *Log) noteEntries(s *entryScan, files []scannedFile) {
	l.entries.noted = s.applied
	if len(s.places) > 0 {
		s.applied = max(s.applied, s.first()-1) // only files of applied entries are given up
	}
	l.entries.next, l.entries.places = s.next, s.places
	l.entries.applied, l.entries.reigns = s.applied, s.reigns
	i := 0
	for n, p := range s.places {
		for files[i].num != p.file {
			i++
		}
		files[i].note(EntryPartition, s.first()+uint64(n))
	}
}

// CopyCommitted is CopyTo for the committed sections only: the copy of a replicated log has the
// applied ones, as records of a node's own, and no entries.
func (l *Log) CopyCommitted(dir, markDir string) (err error) {
	if _, last := l.EntryBounds(); last == 0 && l.Applied() == 0 {
		return l.CopyTo(dir, markDir)
	}
	if err := disk.MakeDir(l.o.FS, dir); err != nil {
		return err
	}
	hold := l.Hold("copy to "+dir, math.MaxUint64)
	defer hold.Release()
	es := entryScan{limit: l.Applied()}
	o := l.o
	o.Dir, o.MarkDir, o.Fsync, o.Ticks = dir, markDir, No, nil
	o.Failed, o.Full, o.Sections = nil, nil, nil
	to, err := Open(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	es.copy = func(record []byte) error {
		place, _, err := to.Append(record)
		if err == nil {
			err = to.Wait(place)
		}
		return err
	}
	for _, num := range l.live() {
		if _, err := l.scanFile(num, nil, &es); err != nil {
			return err
		}
	}
	return es.show(l, es.limit)
}
