package persistence

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence/disk"
	"github.com/fbfkv/fbfkv/persistence/oplog"
)

// ErrStream: the stream of a backup is cut, damaged, or none.
var ErrStream = errors.New("the stream of the backup is damaged")

func badStream(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrStream, fmt.Sprintf(format, args...))
}

// A backup as a stream of bytes: the files of a backup one after the other, as records.
// FORMAT.md draws them. A record's checksum covers its number, too, so that records cannot
// change places, and the last one says that the stream is whole.

// What bounds a stream. Its bytes may come from anywhere.
const (
	streamMagic     = "fbfkv-b1"
	maxStreamRecord = 256 << 10 // bytes of a record's content
	maxStreamFiles  = 1 << 20
	maxStreamPath   = 128
	streamHead      = 4 + 4 + 1 // checksum, length, kind
	streamBeginSize = 16 + 8 + 4 + 8 + 4*8
)

// The kinds of records.
const (
	streamBegin = iota + 1 // a StreamInfo
	streamFile             // the size and the path of a file; its bytes follow
	streamData             // a piece of the file
	streamEnd              // nothing follows
)

// Counts are what a store has counted at some time.
type Counts struct {
	Keys    int64  // as DBSIZE
	Entries uint64 // outcomes logged
}

// StreamInfo is what a stream says of itself.
type StreamInfo struct {
	ID    [16]byte  // of the data, as in Meta
	At    time.Time // when the copy was made, to the millisecond
	Files int
	Bytes int64 // in all files
	// Before and After were counted before and after the copy was made.
	Before, After Counts
}

// Staged is a copy of the data directory inside it, to be sent as a stream.
type Staged struct {
	db    *DB
	dir   string
	info  StreamInfo
	files []stagedFile
}

type stagedFile struct {
	path string // with slashes
	size int64
}

// stagedName is the directory of a Staged in that of files under construction, which Open
// empties.
const stagedName = "backup"

// Stage makes a copy as Backup does, but in the data directory, where most of it consists
// of links, whatever the directory lies on. There is one at a time. linked and committed
// are Backup's.
func (db *DB) Stage(linked func(), committed func() error) (*Staged, error) {
	if db.closed.Load() {
		return nil, ErrClosed
	}
	if err := db.failure(); err != nil {
		return nil, err
	}
	hold, end := db.Hold("backup", math.MaxUint64), db.beginCopy()
	defer hold.Release()
	s := &Staged{db: db, dir: db.path(buildName, stagedName)}
	err := db.fs.RemoveAll(s.dir)
	if err == nil {
		err = disk.MakeDir(db.fs, s.dir)
	}
	if err == nil {
		err = db.copyTo(s.dir, linked, db.log.CopyCommitted, committed)
	}
	if err == nil {
		err = end(s.dir)
	}
	if err == nil {
		err = s.list()
	}
	if err != nil {
		return nil, wrap("back up", errors.Join(err, s.Remove()))
	}
	return s, nil
}

// list finds the files, META first.
func (s *Staged) list() error {
	s.info = StreamInfo{ID: s.db.Meta().ID, At: time.Now()}
	add := func(path string, info vfs.FileInfo) error {
		if path != metaName && passing(path) {
			return nil
		}
		s.files = append(s.files, stagedFile{filepath.ToSlash(path), info.Size()})
		s.info.Files++
		s.info.Bytes += info.Size()
		return nil
	}
	info, err := s.db.fs.Stat(s.db.fs.PathJoin(s.dir, metaName))
	if err != nil {
		return err
	}
	if err := add(metaName, info); err != nil {
		return err
	}
	return walk(s.db.fs, s.dir, "", func(path string, info vfs.FileInfo) error {
		if path == metaName {
			return nil
		}
		return add(path, info)
	})
}

// Size is how many bytes the files have.
func (s *Staged) Size() int64 { return s.info.Bytes }

// Remove removes the copy.
func (s *Staged) Remove() error { return s.db.fs.RemoveAll(s.dir) }

// Send writes the copy as a stream, with what was counted before and after it was made.
func (s *Staged) Send(w io.Writer, before, after Counts) error {
	s.info.Before, s.info.After = before, after
	out := &streamWriter{w: w}
	if _, err := io.WriteString(w, streamMagic); err != nil {
		return err
	}
	if err := out.record(streamBegin, s.info.encode()); err != nil {
		return err
	}
	buf := make([]byte, maxStreamRecord)
	for _, f := range s.files {
		if err := s.sendFile(out, f, buf); err != nil {
			return err
		}
	}
	return out.record(streamEnd, nil)
}

func (s *Staged) sendFile(out *streamWriter, f stagedFile, buf []byte) error {
	if err := out.record(streamFile,
		append(binary.BigEndian.AppendUint64(nil, uint64(f.size)), f.path...)); err != nil {
		return err
	}
	in, err := s.db.fs.Open(s.db.fs.PathJoin(s.dir, filepath.FromSlash(f.path)), vfs.SequentialReadsOption)
	if err != nil {
		return err
	}
	for left := f.size; left > 0 && err == nil; {
		piece := buf[:min(left, int64(len(buf)))]
		if _, err = io.ReadFull(in, piece); err == nil {
			err = out.record(streamData, piece)
		}
		left -= int64(len(piece))
	}
	return errors.Join(err, in.Close())
}

// streamWriter writes records.
type streamWriter struct {
	w io.Writer
	n uint64 // records so far
}

func (s *streamWriter) record(kind byte, content []byte) error {
	head := make([]byte, streamHead, streamHead+len(content))
	binary.BigEndian.PutUint32(head[4:], uint32(len(content)))
	head[8] = kind
	b := append(head, content...)
	binary.BigEndian.PutUint32(b, streamSum(s.n, b[4:]))
	s.n++
	_, err := s.w.Write(b)
	return err
}

// streamSum is the checksum of a record without its own four bytes.
func streamSum(n uint64, b []byte) uint32 {
	sum := crc32.Checksum(binary.BigEndian.AppendUint64(nil, n), disk.Castagnoli)
	return crc32.Update(sum, disk.Castagnoli, b)
}

func (i *StreamInfo) encode() []byte {
	b := append([]byte(nil), i.ID[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(i.At.UnixMilli()))
	b = binary.BigEndian.AppendUint32(b, uint32(i.Files))
	b = binary.BigEndian.AppendUint64(b, uint64(i.Bytes))
	for _, c := range []Counts{i.Before, i.After} {
		b = binary.BigEndian.AppendUint64(b, uint64(c.Keys))
		b = binary.BigEndian.AppendUint64(b, c.Entries)
	}
	return b
}

// decodeStreamInfo reads what encode has written.
func decodeStreamInfo(b []byte) (i StreamInfo, err error) {
	if len(b) != streamBeginSize {
		return i, badStream("its first record has %d bytes", len(b))
	}
	number := func() uint64 {
		n := binary.BigEndian.Uint64(b)
		b = b[8:]
		return n
	}
	b = b[copy(i.ID[:], b):]
	i.At = time.UnixMilli(int64(number()))
	i.Files = int(binary.BigEndian.Uint32(b))
	b = b[4:]
	size := number()
	i.Bytes = int64(size)
	for _, c := range []*Counts{&i.Before, &i.After} {
		c.Keys = int64(number())
		c.Entries = number()
	}
	if i.Files > maxStreamFiles || size > math.MaxInt64 || i.Before.Keys < 0 || i.After.Keys < 0 {
		return i, badStream("it says that it has %d files with %d bytes", i.Files, size)
	}
	return i, nil
}

// RestoreStream makes a data directory dir of a stream, after sound has found nothing
// wrong with it; sound is called with where the files are by then. dir appears only when
// it is whole and durable. progress is told the bytes received so far and in all. A stream
// that is cut, damaged or of another kind is ErrStream; ErrCorrupt, ErrNewerFormat and
// ErrOldFormat are its META's.
func RestoreStream(fsys vfs.FS, r io.Reader, dir string, sound func(dir string) error,
	progress func(done, total int64)) (StreamInfo, error) {
	if err := CheckTarget(fsys, "", dir); err != nil {
		return StreamInfo{}, err
	}
	in := &streamReader{r: bufio.NewReaderSize(r, maxStreamRecord), fs: fsys, progress: progress,
		seen: map[string]bool{}}
	err := publish(fsys, dir, func(aside string) error {
		in.dir = aside
		if err := in.receive(); err != nil {
			return err
		}
		return sound(aside)
	})
	return in.info, wrap("restore", err)
}

// streamReader makes files of a stream.
type streamReader struct {
	r        *bufio.Reader
	n        uint64 // records so far
	buf      []byte
	fs       vfs.FS
	dir      string
	progress func(done, total int64)
	info     StreamInfo
	done     int64
	seen     map[string]bool // files, and directories
	meta     Meta
}

// receive reads the whole stream.
func (s *streamReader) receive() error {
	magic := make([]byte, len(streamMagic))
	if _, err := io.ReadFull(s.r, magic); err != nil {
		return s.cut(err)
	}
	if string(magic) != streamMagic {
		return badStream("it is none of fbfkv backup -, or of a later release")
	}
	kind, content, err := s.record()
	if err != nil {
		return err
	}
	if kind != streamBegin {
		return badStream("it begins with a record of kind %d", kind)
	}
	if s.info, err = decodeStreamInfo(content); err != nil {
		return err
	}
	if u, err := s.fs.GetDiskUsage(s.fs.PathDir(s.dir)); err == nil && u.AvailBytes < uint64(s.info.Bytes) {
		return fmt.Errorf("%w: the backup has %d bytes, and %d are free", ErrNoSpace, s.info.Bytes,
			u.AvailBytes)
	}
	for n := 0; ; n++ {
		kind, content, err := s.record()
		switch {
		case err != nil:
			return err
		case kind == streamEnd && n == s.info.Files && s.done == s.info.Bytes && len(content) == 0 &&
			s.seen[metaName]:
			return s.finish()
		case kind != streamFile || n == s.info.Files:
			return badStream("it has a record of kind %d after %d of %d files", kind, n, s.info.Files)
		}
		if err := s.file(content); err != nil {
			return err
		}
	}
}

// record reads a record. Its content is good until the next.
func (s *streamReader) record() (kind byte, content []byte, err error) {
	var head [streamHead]byte
	if _, err := io.ReadFull(s.r, head[:]); err != nil {
		return 0, nil, s.cut(err)
	}
	size := binary.BigEndian.Uint32(head[4:])
	if size > maxStreamRecord {
		return 0, nil, badStream("a record has %d bytes", size)
	}
	s.buf = append(s.buf[:0], head[4:]...)
	s.buf = append(s.buf, make([]byte, size)...)
	if _, err := io.ReadFull(s.r, s.buf[streamHead-4:]); err != nil {
		return 0, nil, s.cut(err)
	}
	if streamSum(s.n, s.buf) != binary.BigEndian.Uint32(head[:]) {
		return 0, nil, badStream("record %d does not match its checksum", s.n)
	}
	s.n++
	return head[8], s.buf[streamHead-4:], nil
}

// cut says of an end that came early what it is.
func (s *streamReader) cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return badStream("it ends early, after %d of %d bytes", s.done, s.info.Bytes)
	}
	return fmt.Errorf("read the stream: %w", err)
}

// backupPath matches the files of a backup: in it, or in one of its directories.
var backupPath = regexp.MustCompile(`^(?:` + metaName + `|` + originName + `|` + oplog.MarkName + `|` +
	manifestMarkName +
	`|(?:` + pebbleName + `|` + logName + `|` + snapshotName + `|` + runName +
	`)/[A-Za-z0-9_][A-Za-z0-9_.-]*)$`)

// file receives a file, of which content is the first record.
func (s *streamReader) file(content []byte) error {
	if len(content) < 8 {
		return badStream("a file has no size")
	}
	size, path := binary.BigEndian.Uint64(content), string(content[8:])
	if len(path) > maxStreamPath || !backupPath.MatchString(path) || path != metaName && passing(path) ||
		s.seen[path] {
		return badStream("it has a file %.150q, which no backup has, or twice", path)
	}
	if size > uint64(s.info.Bytes-s.done) {
		return badStream("its %s has %d bytes, more than there are in all", path, size)
	}
	if s.seen[path] = true; path == metaName {
		return s.readMeta(size)
	}
	target := s.fs.PathJoin(s.dir, filepath.FromSlash(path))
	if dir, _, below := strings.Cut(path, "/"); below && !s.seen[dir+"/"] {
		s.seen[dir+"/"] = true
		if err := disk.MakeDir(s.fs, s.fs.PathDir(target)); err != nil {
			return err
		}
	}
	out, err := s.fs.Create(target, disk.WriteCategory)
	if err != nil {
		return err
	}
	err = s.copy(out, size)
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}

// copy receives a file's bytes.
func (s *streamReader) copy(out io.Writer, size uint64) error {
	for size > 0 {
		kind, piece, err := s.record()
		if err != nil {
			return err
		}
		if kind != streamData || len(piece) == 0 || uint64(len(piece)) > size {
			return badStream("it has a record of kind %d with %d bytes where %d of a file are to come", kind,
				len(piece), size)
		}
		if _, err := out.Write(piece); err != nil {
			return disk.NoSpace(err)
		}
		size -= uint64(len(piece))
		s.done += int64(len(piece))
		s.progress(s.done, s.info.Bytes)
	}
	return nil
}

// readMeta receives META, which is written anew.
func (s *streamReader) readMeta(size uint64) error {
	if size > metaMaxSize {
		return badStream("%s is longer than a page", metaName)
	}
	var b bytes.Buffer
	err := s.copy(&b, size)
	if err == nil {
		s.meta, err = decodeMeta(b.Bytes())
	}
	if err == nil && s.meta.ID != s.info.ID {
		err = badStream("its %s is another backup's", metaName)
	}
	return err
}

// finish makes the directory whole.
func (s *streamReader) finish() error {
	if _, err := s.r.ReadByte(); !errors.Is(err, io.EOF) {
		return badStream("it goes on after its end")
	}
	for _, name := range []string{pebbleName, logName, snapshotName, runName} {
		if s.seen[name+"/"] {
			if err := disk.SyncDir(s.fs, s.fs.PathJoin(s.dir, name)); err != nil {
				return err
			}
		}
	}
	return writeCopyOf(s.meta, s.fs, s.dir)
}
