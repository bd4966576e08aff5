package persistence

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

// A partition that moves to another shard is a file that holds all that a directory has of
// it on disk: a file of frames, as a snapshot is one, whose content are items:
//
//	kind u8 | length, varint | key | length, varint | value
//
// They come in the order of movedKinds. Keys are Pebble's own, and ascend within a kind. The
// file has the suffix .moved. Behind it, in a file of its own, is what the partition
// has done since: the tail. FORMAT.md draws both.
//
//	DB.Image         what a directory has, as of one instant: Write makes the file
//	DB.TakeMoved     puts the file into another directory, beside its snapshots
//	DB.OpenMoved     reads it. Nothing of it is believed before it was checked
//	DB.NewTables     sstables of its rows, which Ingest makes part of Pebble all at once

// MovedKind is the kind of an item.
type MovedKind byte

// The kinds of items.
const (
	MovedHeader  MovedKind = 'h' // what package store says of the file; the first item
	MovedState   MovedKind = kindState
	MovedFilters MovedKind = 'f' // a piece of the content of the newest snapshot
	MovedPage    MovedKind = kindPage
	MovedHold    MovedKind = kindHold
	MovedRow     MovedKind = kindRow
	MovedExpiry  MovedKind = kindExpiry
	MovedRun     MovedKind = kindRun // the header of a run; its records follow
	MovedRecord  MovedKind = 'v'
)

// movedKinds is the order of the items. A run and its records come in turn. There is one of
// each of the first movedFixed; more of the third are allowed, and any number of the others.
const (
	movedKinds = "hsfporxe"
	movedFixed = 3
)

// What bounds an item. Its bytes may come from anywhere.
const (
	maxMovedKey   = 128 << 10
	maxMovedValue = 16 << 20
	movedRecord   = 8 + 8 // the key of a record: hash, sequence
	movedSuffix   = ".moved"
	tailSuffix    = ".tail"
)

// MovedFile is the name of the file of a partition that goes on with a sequence.
func MovedFile(partition uint16, seq uint64) string {
	return fmt.Sprintf("p%04d-%020d%s", partition, seq, movedSuffix)
}

// ParseMovedFile is the inverse of MovedFile.
func ParseMovedFile(name string) (partition uint16, seq uint64, ok bool) {
	_, err := fmt.Sscanf(name, "p%d-%d", &partition, &seq)
	return partition, seq, err == nil && MovedFile(partition, seq) == name
}

// Base is the last element of a path.
func (db *DB) Base(path string) string { return db.fs.PathBase(path) }

// ReadOnly reports whether nothing can be written.
func (db *DB) ReadOnly() bool { return db.readOnly }

// Image is what a directory has of a partition on disk, as of one instant: state, newest
// snapshot, pages, rows, expiries and runs. Not safe for concurrent use.
type Image struct {
	// State is the state row.
	State []byte
	// Snapshot is the newest one.
	Snapshot Snapshot

	db        *DB
	partition uint16
	hold      *Hold
	view      *pebble.Snapshot
	filters   *SnapshotReader
}

// Image returns what the directory has of a partition now. The caller makes sure that no
// snapshot is committed and no run published or dropped meanwhile. Until Close the image
// keeps files, and up to limit bytes of them.
func (db *DB) Image(partition uint16, limit uint64) (im *Image, err error) {
	if db.closed.Load() {
		return nil, ErrClosed
	}
	im = &Image{db: db, partition: partition,
		hold: db.Hold(fmt.Sprint("image of partition ", partition), limit)}
	defer func() {
		if err != nil {
			err = wrap("read a partition", errors.Join(err, im.Close()))
		}
	}()
	list, err := db.Snapshots(partition)
	if err != nil {
		return im, err
	}
	if len(list) == 0 {
		return im, fmt.Errorf("partition %d has no snapshot: %w", partition, fs.ErrNotExist)
	}
	im.Snapshot = list[0]
	if im.filters, err = db.OpenSnapshot(list[0]); err != nil {
		return im, err
	}
	var ok bool
	if im.State, ok, err = db.State(partition); err == nil && !ok {
		err = fmt.Errorf("partition %d has no state: %w", partition, fs.ErrNotExist)
	}
	im.view = db.pebble.NewSnapshot()
	return im, err
}

// Close lets go of the files.
func (im *Image) Close() (err error) {
	if im.filters != nil {
		err = im.filters.Close()
	}
	if im.view != nil {
		err = errors.Join(err, im.view.Close())
	}
	im.hold.Release()
	return err
}

// Write writes the image to a file in dir, which it creates, durably; first and last are the
// partition's slots. It calls giveWay between items.
func (im *Image) Write(dir string, seq uint64, first, last uint16, header []byte, giveWay func()) error {
	if err := disk.MakeDir(im.db.fs, dir); err != nil {
		return wrap("write a partition that moves", err)
	}
	w, err := im.db.createFrames(im.db.fs.PathJoin(dir, MovedFile(im.partition, seq)), im.partition, seq)
	if err != nil {
		return err
	}
	defer w.Abort()
	w.moves = true
	out := &movedWriter{w: w, giveWay: giveWay}
	out.item(MovedHeader, nil, header)
	out.item(MovedState, nil, im.State)
	out.filters(im.filters)
	prefix := func(kind byte) []byte { return binary.BigEndian.AppendUint16([]byte{kind}, im.partition) }
	rows, end := make([]byte, rowPrefixSize), make([]byte, rowPrefixSize)
	putPosition(rows, uint64(first)<<48)
	putPosition(end, uint64(last)<<48|hashMask)
	for _, lower := range [][]byte{prefix(kindPage), prefix(kindHold), rows, prefix(kindExpiry)} {
		upper := bytes.Clone(lower)
		if lower[0] == kindRow {
			upper = end
		}
		im.scan(lower, successor(upper), func(key, value []byte) error {
			return out.item(MovedKind(lower[0]), key, value)
		}, out)
	}
	lower := prefix(kindRun)
	im.scan(lower, successor(bytes.Clone(lower)), func(key, value []byte) error {
		return out.run(im.db, key, value)
	}, out)
	if out.err == nil {
		out.err = w.Commit()
	}
	return wrap("write a partition that moves", out.err)
}

// scan calls fn for the keys of Pebble in [lower, upper).
func (im *Image) scan(lower, upper []byte, fn func(key, value []byte) error, out *movedWriter) {
	if out.err != nil {
		return
	}
	it, err := im.view.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		out.err = err
		return
	}
	for ok := it.First(); ok && out.err == nil; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err == nil {
			err = fn(it.Key(), value)
		}
		out.err = err
	}
	out.err = errors.Join(out.err, it.Error(), it.Close())
}

// movedWriter writes items. Its first error stays.
type movedWriter struct {
	w       *SnapshotWriter
	giveWay func()
	buf     []byte
	err     error
}

func (m *movedWriter) item(kind MovedKind, key, value []byte) error {
	if m.err != nil {
		return m.err
	}
	m.giveWay()
	m.buf = append(m.buf[:0], byte(kind))
	for _, b := range [][]byte{key, value} {
		m.buf = binary.AppendUvarint(m.buf, uint64(len(b)))
		m.buf = append(m.buf, b...)
	}
	_, m.err = m.w.Write(m.buf)
	return m.err
}

// filters writes the content of a snapshot in pieces.
func (m *movedWriter) filters(r *SnapshotReader) {
	piece := make([]byte, frameMaxSize)
	for m.err == nil {
		n, err := r.Read(piece)
		if n > 0 {
			m.item(MovedFilters, nil, piece[:n])
		}
		if errors.Is(err, io.EOF) {
			return
		}
		m.err = cmp.Or(m.err, err)
	}
}

// run writes a run with its records.
func (m *movedWriter) run(db *DB, key, value []byte) error {
	r, err := decodeRun(key, value)
	if err != nil {
		return err
	}
	if err := m.item(MovedRun, key, value); err != nil {
		return err
	}
	return db.ScanRun(r, func(hash, seq uint64, value []byte) error {
		var key [movedRecord]byte
		binary.BigEndian.PutUint64(key[:], hash)
		binary.BigEndian.PutUint64(key[8:], seq)
		return m.item(MovedRecord, key[:], value)
	})
}

// TakeMoved puts the file of a partition that moves into the directory, durably, in the
// place of an earlier one of that name. The tail of the earlier one goes.
func (db *DB) TakeMoved(path string) error {
	name := db.fs.PathBase(path)
	partition, seq, ok := ParseMovedFile(name)
	if !ok {
		return fmt.Errorf("%s: %w", name, fs.ErrInvalid)
	}
	to := db.path(snapshotName, name)
	err := db.RemoveMoved(partition, seq)
	if err == nil {
		err = linkOrCopy(db.fs, path, to)
	}
	var f vfs.File
	if err == nil {
		f, err = db.fs.Open(to)
	}
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	if err == nil {
		err = disk.SyncDir(db.fs, db.path(snapshotName))
	}
	return wrap("take a partition in", err)
}

// Moved returns with which sequences there are files of a partition that moves.
func (db *DB) Moved(partition uint16) (seqs []uint64, err error) {
	names, err := db.fs.List(db.path(snapshotName))
	for _, name := range names {
		if p, seq, ok := ParseMovedFile(name); ok && p == partition {
			seqs = append(seqs, seq)
		}
	}
	return seqs, wrap("list partitions that move", err)
}

// DropMoved is RemoveMoved of what the log was in need of: while there is a hold it stays, and
// the next call removes it.
func (db *DB) DropMoved(partition uint16, seq uint64) error {
	if db.held() {
		return nil
	}
	return db.RemoveMoved(partition, seq)
}

// RemoveMoved removes the files of a partition that moves, which need not exist, durably.
func (db *DB) RemoveMoved(partition uint16, seq uint64) error {
	path := db.MovedPath(partition, seq)
	err := errors.Join(disk.RemoveIfExists(db.fs, path), disk.RemoveIfExists(db.fs, path+tailSuffix))
	if err == nil {
		err = disk.SyncDir(db.fs, db.path(snapshotName))
	}
	return wrap("remove a partition that has moved", err)
}

// linkMoved links the files of partitions that move, for a copy of the directory: its log
// may need them. Those that are removed meanwhile it does not need.
func (db *DB) linkMoved(dir string) error {
	names, err := db.fs.List(db.path(snapshotName))
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, _, ok := ParseMovedFile(name); !ok {
			continue
		}
		path := db.path(snapshotName, name)
		err := linkOrCopy(db.fs, path, db.fs.PathJoin(dir, name))
		if err == nil { // it grows
			err = disk.CopyFile(db.fs, path+tailSuffix, db.fs.PathJoin(dir, name+tailSuffix), func(int) {})
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return disk.SyncDir(db.fs, dir)
}

// MovedReader reads the file of a partition that moves. It checks that items have their
// form and order, and belong to the partition. Not safe for concurrent use.
type MovedReader struct {
	in          *bufio.Reader
	close       func() error
	size        uint64
	partition   uint16
	first, last uint16 // slots
	rank        int    // in movedKinds, from 1 on, of the last item
	key, value  []byte // of the item
	before      []byte // the key before it
	run         Run    // its records are being read
	left        uint64 // … so many more
}

// MovedItem is an item. Its content is borrowed until the next item.
type MovedItem struct {
	Kind  MovedKind
	Value []byte // of all but pages and runs
	Hold  HoldKey
	Row   RowKey // of a row, and of an expiry
	At    int64  // of an expiry: unix ms
	Page  Page
	Run   Run

	Hash, Seq uint64 // of a record
}

// MovedPath is the path of a file that TakeMoved has put into the directory.
func (db *DB) MovedPath(partition uint16, seq uint64) string {
	return db.path(snapshotName, MovedFile(partition, seq))
}

// OpenMoved opens the file of a partition that moves, of which first and last are the slots.
func (db *DB) OpenMoved(path string, first, last uint16) (*MovedReader, error) {
	partition, seq, ok := ParseMovedFile(db.fs.PathBase(path))
	if !ok {
		return nil, wrap("open a partition that moves", fs.ErrInvalid)
	}
	f, err := db.fs.Open(path, vfs.SequentialReadsOption)
	if err != nil {
		return nil, wrap("open a partition that moves", err)
	}
	info, err := f.Stat()
	var r *SnapshotReader
	if err == nil {
		r, err = newSnapshotReader(f, partition, seq)
	}
	if err != nil {
		return nil, errors.Join(wrap("open a partition that moves", err), f.Close())
	}
	r.name = db.fs.PathBase(path)
	m := ReadMoved(r, uint64(info.Size()), partition, first, last)
	m.close = f.Close
	return m, nil
}

// ReadMoved reads what the frames of such a file hold, at most size bytes.
func ReadMoved(in io.Reader, size uint64, partition, first, last uint16) *MovedReader {
	return &MovedReader{in: bufio.NewReaderSize(in, 64<<10), close: func() error { return nil }, size: size,
		partition: partition, first: first, last: last}
}

// Close closes the file.
func (m *MovedReader) Close() error { return m.close() }

// Next reads the next item; io.EOF at the end, which comes only behind a whole file. Other
// errors wrap ErrCorrupt, or are the file system's.
func (m *MovedReader) Next(item *MovedItem) error {
	kind, err := m.in.ReadByte()
	if errors.Is(err, io.EOF) {
		if m.rank < movedFixed || m.left > 0 {
			return disk.Corruptf("a partition that moves is cut off")
		}
		return io.EOF
	}
	if err != nil {
		return err
	}
	m.before, m.key = m.key, m.before
	if m.key, err = m.bytes(m.key, maxMovedKey); err == nil {
		m.value, err = m.bytes(m.value, maxMovedValue)
	}
	if err != nil {
		return err
	}
	*item = MovedItem{Kind: MovedKind(kind), Value: m.value}
	if item.Kind == MovedRecord {
		return m.record(item)
	}
	rank := 1 + bytes.IndexByte([]byte(movedKinds), kind)
	before := m.before
	if item.Kind == MovedRun {
		before = m.run.headerKey()
	}
	switch {
	case m.left > 0, rank != m.rank+1 && m.rank < movedFixed, rank < m.rank:
		return disk.Corruptf("an item of kind %q is out of place in a partition that moves", kind)
	case rank == m.rank && rank > movedFixed && bytes.Compare(before, m.key) >= 0:
		return disk.Corruptf("the keys of kind %q are out of order in a partition that moves", kind)
	}
	m.rank = rank
	return m.parse(item)
}

// bytes reads a length and so many bytes, and does not trust the length.
func (m *MovedReader) bytes(b []byte, most uint64) ([]byte, error) {
	n, err := m.uvarint()
	if err == nil && n > most {
		return b, disk.Corruptf("%d bytes in an item of a partition that moves", n)
	}
	for b = b[:0]; err == nil && uint64(len(b)) < n; {
		from := len(b)
		b = append(b, make([]byte, min(n-uint64(from), 64<<10))...)
		_, err = io.ReadFull(m.in, b[from:])
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = disk.Corruptf("a partition that moves is cut off")
	}
	return b, err
}

// uvarint reads a number.
func (m *MovedReader) uvarint() (uint64, error) {
	var b [binary.MaxVarintLen64]byte
	for i := range b {
		c, err := m.in.ReadByte()
		if err != nil {
			return 0, err
		}
		if b[i] = c; c < 0x80 {
			if n, size := binary.Uvarint(b[:i+1]); size > 0 {
				return n, nil
			}
			break
		}
	}
	return 0, disk.Corruptf("a number is too long in a partition that moves")
}

// parse takes the key of an item apart.
func (m *MovedReader) parse(item *MovedItem) (err error) {
	key, belongs := m.key, true
	switch item.Kind {
	case MovedHeader, MovedState, MovedFilters:
		belongs = len(key) == 0
	case MovedPage:
		item.Page, err = pageOf(key, m.value)
		belongs = err == nil && binary.BigEndian.Uint16(key[1:]) == m.partition
	case MovedHold:
		item.Hold, err = holdKeyOf(key)
		belongs = err == nil && binary.BigEndian.Uint16(key[1:]) == m.partition
	case MovedRow:
		item.Row, err = rowKeyOf(key)
		belongs = m.owns(item.Row.Slot)
	case MovedExpiry:
		if belongs = len(key) >= expiryPrefixSize+8 && len(m.value) == 0 &&
			binary.BigEndian.Uint16(key[1:]) == m.partition; belongs {
			item.At, item.Row = expiryOf(key)
			belongs = m.owns(item.Row.Slot) && item.At >= 0
		}
	case MovedRun:
		item.Run, err = decodeRun(key, m.value)
		m.run, m.left = item.Run, item.Run.Count
		belongs = item.Run.Partition == m.partition && item.Run.Count <= m.size/movedRecord &&
			item.Run.Bytes <= m.size
	}
	if err == nil && (!belongs || len(key) > 0 && key[0] != byte(item.Kind)) {
		err = disk.Corruptf("an item of kind %q does not belong to partition %d", byte(item.Kind),
			m.partition)
	}
	return err
}

func (m *MovedReader) owns(slot uint16) bool { return slot >= m.first && slot <= m.last }

// record takes a record of the present run.
func (m *MovedReader) record(item *MovedItem) error {
	if m.left == 0 || len(m.key) != movedRecord || m.left < m.run.Count &&
		bytes.Compare(m.before, m.key) >= 0 {
		return disk.Corruptf("a record is out of place in a partition that moves")
	}
	m.left--
	item.Run, item.Hash, item.Seq = m.run, binary.BigEndian.Uint64(m.key), binary.BigEndian.Uint64(m.key[8:])
	return nil
}
