package oplog

import (
	"errors"
	"slices"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

// Follow in a replicated log. Recent commits are read entry by entry, most of it from memory, and a
// bookmark is the index of an entry. Older records, and those before the entries of a directory
// that is a copy, are read from the files, up to where the entries go on.

// followEntries is Follow for the committed part of a replicated log, by entries and by files.
func (l *Log) followEntries(m Bookmark, fn func(record []byte) error) (Bookmark, error) {
	if m.entry > 0 {
		return l.followByIndex(m, fn)
	}
	nums := l.live()
	if !slices.Contains(nums, m.file) {
		return m, ErrBookmark
	}
	es := entryScan{limit: l.Applied()}
	es.copy = func(record []byte) error {
		err := fn(record)
		if first, _ := l.EntryBounds(); err != nil && first > 0 && es.shown >= first {
			m = Bookmark{entry: es.shown - 1} // else the file is read once more
		}
		return err
	}
	for _, num := range nums[slices.Index(nums, m.file):] {
		if _, err := l.scanFile(num, nil, &es); err != nil {
			if m.entry == 0 && !slices.Contains(l.live(), num) {
				err = ErrBookmark // it was given up meanwhile
			}
			return m, disk.Wrap("read the op log", err)
		}
	}
	if err := es.show(l, es.limit); err != nil {
		return m, err
	}
	if es.limit > 0 {
		m = Bookmark{entry: es.limit}
	}
	return m, nil
}

// followByIndex is followEntries from an entry on.
func (l *Log) followByIndex(m Bookmark, fn func(record []byte) error) (Bookmark, error) {
	for applied := l.Applied(); m.entry < applied; m.entry++ {
		var e Entry
		if err := l.Entry(m.entry+1, &e); err != nil {
			if errors.Is(err, ErrNoEntry) {
				err = ErrBookmark // files may have it
			}
			return m, err
		}
		from, to, _, err := l.o.Sections(&e)
		if err == nil && from < to {
			err = fn(e.Data[from:to])
		}
		if err != nil {
			return m, err
		}
	}
	return m, nil
}
