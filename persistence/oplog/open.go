package oplog

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

// location is where ReadLog finds a record.
type location struct {
	seq  uint64
	file uint64
	at   int64 // offset of its first byte in the file
	size int
}

// scannedLog is what the files of the op log hold.
type scannedLog struct {
	files []scannedFile // ascending
	mark  disk.Mark
}

// Recovery says what Open found that a crash had left.
type Recovery struct {
	// File is the path of the op log's file that was cut; empty when none was.
	File string
	// CutAt is where, in bytes.
	CutAt int64
	// LostBytes is how much written but never fsynced log lay after the cut.
	// Only a power loss under Everysec or No causes it.
	LostBytes int64
}

type scannedFile struct {
	segment
	header header
	tail   disk.Tail
}

func (f *scannedFile) closed() bool { return f.tail.Valid == math.MaxInt64 }

// empty reports whether nothing was ever written to the file under its number.
func (f *scannedFile) empty() bool {
	return f.tail.Valid == headerSize && f.tail.Stray == 0
}

// scan reads all files of the log, indexes their records and says where the log ends; recovery gets
// the damage to cut. It changes nothing. It refuses a state that an orderly server, or a crash of
// it, cannot leave: a file that is missing, or one that ends before it was durable.
func (l *Log) scan() (scannedLog, error) {
	var s scannedLog
	nums, err := l.list()
	if err != nil {
		return s, err
	}
	mark, marked, err := disk.ReadMark(l.o.FS, l.sync.mark.Dir, MarkName)
	if err != nil {
		return s, disk.Wrap("read "+MarkName, err)
	}
	s.mark = mark
	es := entryScan{limit: math.MaxUint64}
	for _, num := range nums {
		var f scannedFile
		err := s.precedes(num)
		if err == nil {
			f, err = l.scanFile(num, nil, &es)
			err = disk.Wrap("scan the op log", err)
		}
		if n := len(s.files); err == nil && l.o.Salvage && n > 0 && !s.files[n-1].closed() && !f.empty() {
			err = s.files[n-1].ended()
		}
		if err != nil && l.o.Salvage && !errors.Is(err, ErrReplicated) {
			l.damage = err
			break
		}
		if err != nil {
			return s, err
		}
		s.files = append(s.files, f)
	}
	l.noteEntries(&es, s.files)
	// A crash may leave a next file that nothing was written to.
	for n := len(s.files); n > 0 && s.files[n-1].empty() && s.files[n-1].num > mark.File; n-- {
		s.files = s.files[:n-1]
	}
	err = s.judge(marked, l.o.FS.PathBase(l.o.Dir), &l.recovery)
	if l.o.Salvage {
		l.damage, err = cmp.Or(l.damage, err), nil
	}
	return s, err
}

// precedes refuses a file that does not follow the one before.
func (s *scannedLog) precedes(num uint64) error {
	if n := len(s.files); n > 0 && s.files[n-1].num+1 != num {
		return disk.Corruptf("%s of the op log is missing", fileName(s.files[n-1].num+1))
	}
	return nil
}

func (f *scannedFile) ended() error {
	return disk.Corruptf("%s of the op log ends at byte %d without having been closed", fileName(f.num),
		f.tail.Valid)
}

// judge compares what was found with what the mark says was durable.
func (s *scannedLog) judge(marked bool, dir string, r *Recovery) error {
	for i := range max(len(s.files)-1, 0) {
		if f := &s.files[i]; !f.closed() {
			return f.ended()
		}
	}
	if len(s.files) == 0 {
		if marked && s.mark.Offset > 0 {
			return disk.Corruptf("%s of the op log is missing", fileName(s.mark.File))
		}
		return nil
	}
	newest := &s.files[len(s.files)-1]
	if !marked && !newest.empty() {
		return disk.Corruptf("%s is missing", MarkName)
	}
	durable := int64(0)
	switch {
	case marked && s.mark.File > newest.num && s.mark.Offset > 0:
		return disk.Corruptf("%s of the op log is missing", fileName(s.mark.File))
	case marked && s.mark.File == newest.num:
		durable = s.mark.Offset
	}
	if !s.mark.Lazy {
		durable = max(durable, newest.tail.Synced) // true, since every Sync was real
	}
	if newest.tail.Valid < durable {
		return disk.Corruptf("%s of the op log is damaged at byte %d, but was durable up to %d",
			fileName(newest.num), newest.tail.Valid, durable)
	}
	if newest.tail.Stray > 0 && !newest.closed() {
		r.File, r.CutAt = dir+"/"+fileName(newest.num), newest.tail.Good
		r.LostBytes = newest.tail.Stray - r.CutAt
	}
	return nil
}

// logNumber parses the name of a file of the log.
func logNumber(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, ".log")
	if !ok {
		return 0, false
	}
	num, err := strconv.ParseUint(digits, 10, 64)
	return num, err == nil
}

// list returns the numbers of the log's files, ascending.
func (l *Log) list() (nums []uint64, err error) {
	names, err := l.o.FS.List(l.o.Dir)
	if err != nil {
		return nil, disk.Wrap("list the op log", err)
	}
	for _, name := range names {
		if num, ok := logNumber(name); ok {
			nums = append(nums, num)
		}
	}
	slices.Sort(nums)
	return nums, nil
}

// scanFile scans one file and indexes the sections of some partitions; nil: of all.
func (l *Log) scanFile(num uint64, partitions []uint16, es *entryScan) (scannedFile, error) {
	out := scannedFile{segment: newSegment(num, l.o.Partitions)}
	f, err := l.o.FS.Open(l.path(fileName(num)), vfs.SequentialReadsOption)
	if err != nil {
		return out, err
	}
	ix := indexer{l: l, file: &out, only: partitions, entries: es}
	out.header, out.tail, err = scanFile(f, num, ix.chunk)
	out.size = out.tail.Good
	if err == nil {
		err = ix.err
	}
	return out, errors.Join(err, f.Close())
}

// indexer puts the chunks of a file together to records and indexes these.
type indexer struct {
	l       *Log
	file    *scannedFile
	only    []uint16 // partitions; nil: all
	entries *entryScan
	own     bool // the record has sections outside of entries
	payload []byte
	begin   int64 // offset of the payload's first byte in the file
	err     error
}

// chunk takes one valid chunk.
func (ix *indexer) chunk(part disk.Part, at int64, payload []byte) {
	if part.Begins() {
		ix.payload, ix.begin = ix.payload[:0], at
	}
	ix.payload = append(ix.payload, payload...)
	if !part.Ends() || ix.err != nil {
		return
	}
	if ix.err = parseSections(ix.payload, ix.section); ix.err == nil && ix.own && ix.entries.copy != nil {
		ix.err = ix.entries.copy(ix.payload)
	}
	ix.own = false
}

// section takes one section of a record.
func (ix *indexer) section(sec section) error {
	if sec.partition == EntryPartition {
		return ix.entries.section(ix, sec)
	}
	if int(sec.partition) >= ix.l.o.Partitions {
		return disk.Corruptf("the op log has a record of partition %d", sec.partition)
	}
	if ix.entries.next > 0 {
		return disk.Corruptf("the op log has a section of its own behind entry %d", ix.entries.next-1)
	}
	ix.own = true
	if ix.wants(sec.partition) && ix.entries.copy == nil {
		return ix.l.found(sec.partition, ix.found(sec))
	}
	return nil
}

// found adds a section to what Read sees. The sequences of a partition ascend: Read begins with
// one, and would leave out a later section with a lower sequence (R4).
func (l *Log) found(partition uint16, at location) error {
	list := l.index[partition]
	if n := len(list); n > 0 && at.seq <= list[n-1].seq {
		return disk.Corruptf("the op log has entry %d of partition %d behind entry %d", at.seq, partition,
			list[n-1].seq)
	}
	l.index[partition] = append(list, at)
	return nil
}

// wants reports whether sections of a partition are indexed.
func (ix *indexer) wants(partition uint16) bool {
	return ix.only == nil || slices.Contains(ix.only, partition)
}

// found notes that the file has a section, and returns where.
func (ix *indexer) found(sec section) location {
	ix.file.note(sec.partition, sec.seq)
	return location{seq: sec.seq, file: ix.file.num, at: payloadOffset(ix.begin, sec.at),
		size: len(sec.content)}
}

// open makes the log ready to be written, behind what scan found, which it makes durable first: the
// file that was written last is ended where its last whole record ends, and a new one follows it.
// The names are made durable before that is created, whose mark says that all older files are
// durable.
func (l *Log) open(s scannedLog) error {
	num := uint64(1)
	for i := range s.files {
		f := &s.files[i]
		if err := l.settle(f, s.mark.Durable(f.num)); err != nil {
			return disk.Wrap("make "+fileName(f.num)+" of the op log durable", err)
		}
		l.closed = append(l.closed, f.segment)
		num = f.num + 1
	}
	if num == 1 && s.mark.File > 0 {
		num = s.mark.File // numbers never come back
	}
	if err := l.removeSpare(num); err != nil {
		return disk.Wrap("remove a spare file of the op log", err)
	}
	n, err := l.create(num, "")
	if err != nil {
		return disk.Wrap("create a file of the op log", err)
	}
	l.begin(&n)
	l.room.Store(-roomMargin) // the first reservation finds out whether there is space
	l.sync.activate(l.file)
	return nil
}

// settle makes a file durable as scan found it, of which so many bytes are known to be, and ends
// it. Records that were written and not fsynced, or in vain, are as good as any from now on:
// operations are decided by them, and in a cluster they count as this node's.
func (l *Log) settle(f *scannedFile, durable int64) error {
	path := l.path(fileName(f.num))
	if end := f.end(); durable < end {
		if err := disk.Renew(l.o.FS, path, l.path(recycledName(f.num)), durable, end); err != nil {
			return err
		}
		in, err := l.o.FS.Open(path, vfs.SequentialReadsOption)
		if err != nil {
			return err
		}
		_, is, err := scanFile(in, f.num, func(disk.Part, int64, []byte) {})
		if err := errors.Join(err, in.Close()); err != nil {
			return err
		}
		if is.Good != f.tail.Good || is.Valid == math.MaxInt64 != f.closed() {
			return disk.ErrChanged
		}
	}
	if f.closed() {
		return nil
	}
	return l.endFile(f)
}

// end is where a file ends: behind its trailer, if it has one.
func (f *scannedFile) end() int64 {
	if !f.closed() {
		return f.tail.Good
	}
	_, at := padBlock(nil, f.tail.Good)
	return at + chunkHeader
}

// endFile writes the trailer that a crash did not let the server write.
func (l *Log) endFile(f *scannedFile) error {
	out, err := l.o.FS.OpenReadWrite(l.path(fileName(f.num)), disk.WriteCategory)
	if err != nil {
		return err
	}
	_, err = out.WriteAt(f.header.appendTrailer(nil, f.tail.Good, 0), f.tail.Good)
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}

// removeSpare removes what an earlier server had prepared: recycled files, and
// empty ones from a number on. They are not used again, since a crash may have
// left one file under two names, the old and the new one of a rename: it would
// then be written under both.
func (l *Log) removeSpare(from uint64) error {
	names, err := l.o.FS.List(l.o.Dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		num, isLog := logNumber(name)
		if isLog && num >= from || strings.HasSuffix(name, RecycledSuffix) {
			if err := l.o.FS.Remove(l.path(name)); err != nil {
				return err
			}
		}
	}
	return disk.SyncDir(l.o.FS, l.o.Dir)
}
