package persistence

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"path/filepath"
	"regexp"
	"strconv"
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

// A backup as a stream of bytes is a tar archive: a manifest, the files of the backup, and their
// checksums. FORMAT.md draws it. The manifest says which files come in which order, so a reader knows
// every byte that is not a file's, compares it, and needs no parser of archives that came from anywhere.

// Limits and names of a stream.
const (
	streamDir       = "fbfkv-backup/" // before every name, so that tar makes one directory
	streamManifest  = "MANIFEST.json"
	streamSums      = "SUMS"
	streamBlock     = 512
	streamPiece     = 256 << 10
	maxStreamFiles  = 1 << 18
	maxStreamPath   = 80
	maxStreamHead   = 32 << 20 // bytes of a manifest
	maxOctalSize    = 1<<33 - 1
	tarSizeAt       = 124
	tarSumAt        = 148
	maxStreamMillis = 1 << 42
)

// Counts are what a store has counted at some time.
type Counts struct {
	Keys    int64  `json:"keys"`    // as DBSIZE
	Entries uint64 `json:"entries"` // outcomes logged
}

// StreamInfo is what a stream says of itself.
type StreamInfo struct {
	ID    [16]byte  // of the data, as in Meta
	At    time.Time // when the copy was made, to the millisecond
	Bytes int64     // in all files
	// Before and After were counted before and after the copy was made.
	Before, After Counts
}

// manifestText is the manifest: JSON.
type manifestText struct {
	ID     string       `json:"id"`
	At     int64        `json:"at"`
	Before Counts       `json:"before"`
	After  Counts       `json:"after"`
	Files  []stagedFile `json:"files"`
}

// Staged is a copy of the data directory inside it, to be sent as a stream.
type Staged struct {
	db    *DB
	dir   string
	at    time.Time
	bytes int64
	files []stagedFile
}

type stagedFile struct {
	Path string `json:"path"` // with slashes
	Size int64  `json:"size"`
}

// stagedName is the directory of a Staged in that of files under construction, which Open
// empties.
const stagedName = "backup"

// Stage makes a copy as Backup does, but in the data directory, where most of it consists
// of links, whatever the directory lies on. There is one at a time. linked and committed
// are Backup's.
func (db *DB) Stage(linked func(), committed func() error) (*Staged, error) {
	if err := db.usable(); err != nil {
		return nil, err
	}
	s := &Staged{db: db, dir: db.path(buildName, stagedName), at: time.Now()}
	err := db.fs.RemoveAll(s.dir)
	if err == nil {
		err = db.copyAs(s.dir, linked, db.log.CopyCommitted, committed, db.beginCopy())
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
	add := func(path string, info vfs.FileInfo) error {
		if path == metaName || !passing(path) {
			s.files = append(s.files, stagedFile{filepath.ToSlash(path), info.Size()})
			s.bytes += info.Size()
		}
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
func (s *Staged) Size() int64 { return s.bytes }

// Remove removes the copy.
func (s *Staged) Remove() error { return s.db.fs.RemoveAll(s.dir) }

// Send writes the copy as a stream, with the counts from before and after it was made.
func (s *Staged) Send(w io.Writer, before, after Counts) error {
	id := s.db.Meta().ID
	text, err := json.Marshal(manifestText{ID: hex.EncodeToString(id[:]), At: s.at.UnixMilli(),
		Before: before, After: after, Files: s.files})
	if err != nil {
		return err
	}
	head := sealed(text)
	if len(s.files) > maxStreamFiles || len(head) > maxStreamHead {
		return fmt.Errorf("a stream cannot have %d files", len(s.files))
	}
	out := tarWriter{w: w, at: s.at}
	if err := out.file(streamManifest, head); err != nil {
		return err
	}
	var sums []byte
	for _, f := range s.files {
		sum, err := s.sendFile(&out, f)
		if err != nil {
			return err
		}
		sums = appendSum(sums, sum, f.Path)
	}
	if err := out.file(streamSums, sums); err != nil {
		return err
	}
	_, err = w.Write(make([]byte, 2*streamBlock))
	return err
}

func (s *Staged) sendFile(out *tarWriter, f stagedFile) (sum uint32, err error) {
	if err := out.begin(f.Path, f.Size); err != nil {
		return 0, err
	}
	in, err := s.db.fs.Open(s.db.fs.PathJoin(s.dir, filepath.FromSlash(f.Path)), vfs.SequentialReadsOption)
	if err != nil {
		return 0, err
	}
	sum, err = copySummed(out.w, in, f.Size, func(int) {})
	if err == nil {
		err = out.end(f.Size)
	}
	return sum, errors.Join(err, in.Close())
}

// copySummed copies so many bytes, tells of each piece, and returns the checksum of all.
func copySummed(to io.Writer, from io.Reader, size int64, progress func(n int)) (sum uint32, err error) {
	buf := make([]byte, min(size, streamPiece))
	for size > 0 {
		buf = buf[:min(size, int64(len(buf)))]
		if _, err := io.ReadFull(from, buf); err != nil {
			return 0, err
		}
		sum = crc32.Update(sum, disk.Castagnoli, buf)
		if _, err := to.Write(buf); err != nil {
			return 0, disk.NoSpace(err)
		}
		size -= int64(len(buf))
		progress(len(buf))
	}
	return sum, nil
}

// appendSum appends a line of the checksums.
func appendSum(b []byte, sum uint32, path string) []byte {
	return fmt.Appendf(b, "%08x %s\n", sum, path)
}

// tarWriter writes the files of an archive.
type tarWriter struct {
	w  io.Writer
	at time.Time
}

func (t *tarWriter) begin(path string, size int64) error {
	_, err := t.w.Write(tarHeader(path, size, t.at))
	return err
}

func (t *tarWriter) end(size int64) error {
	_, err := t.w.Write(make([]byte, tarPadding(size)))
	return err
}

func (t *tarWriter) file(path string, content []byte) error {
	err := t.begin(path, int64(len(content)))
	if err == nil {
		_, err = t.w.Write(content)
	}
	if err == nil {
		err = t.end(int64(len(content)))
	}
	return err
}

// tarPadding is how many zeros are behind a file.
func tarPadding(size int64) int64 { return -size & (streamBlock - 1) }

// tarHeader is what is before a file: POSIX ustar, with GNU's binary form of sizes from 8 GiB on.
func tarHeader(path string, size int64, at time.Time) []byte {
	b := make([]byte, streamBlock)
	copy(b, streamDir+path)
	copy(b[100:], "0000600\x000000000\x000000000\x00")
	if size <= maxOctalSize {
		copy(b[tarSizeAt:], fmt.Sprintf("%011o", size))
	} else {
		b[tarSizeAt] = 0x80
		binary.BigEndian.PutUint64(b[tarSizeAt+4:], uint64(size))
	}
	copy(b[136:], fmt.Sprintf("%011o", at.Unix()))
	copy(b[tarSumAt:], "        0") // spaces for the sum; a regular file
	copy(b[257:], "ustar\x0000fbfkv")
	copy(b[297:], "fbfkv")
	sum := 0
	for _, c := range b {
		sum += int(c)
	}
	copy(b[tarSumAt:], fmt.Sprintf("%06o\x00 ", sum))
	return b
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
	in := &streamReader{r: bufio.NewReaderSize(r, streamPiece), fs: fsys, progress: progress,
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
	fs       vfs.FS
	dir      string
	progress func(done, total int64)
	info     StreamInfo
	done     int64
	seen     map[string]bool // files, and directories
	meta     bytes.Buffer
}

// receive reads the whole stream.
func (s *streamReader) receive() error {
	files, err := s.manifest()
	if err != nil {
		return err
	}
	if u, err := s.fs.GetDiskUsage(s.fs.PathDir(s.dir)); err == nil && u.AvailBytes < uint64(s.info.Bytes) {
		return fmt.Errorf("%w: the backup has %d bytes, and %d are free", ErrNoSpace, s.info.Bytes,
			u.AvailBytes)
	}
	var sums []byte
	for _, f := range files {
		sum, err := s.file(f)
		if err != nil {
			return err
		}
		sums = appendSum(sums, sum, f.Path)
	}
	var rest bytes.Buffer
	out := tarWriter{w: &rest, at: s.info.At}
	_ = out.file(streamSums, sums) // memory takes it
	rest.Write(make([]byte, 2*streamBlock))
	if err := s.expect(rest.Bytes(), "its checksums or its end"); err != nil {
		return err
	}
	if _, err := s.r.ReadByte(); !errors.Is(err, io.EOF) {
		return badStream("it goes on after its end")
	}
	return s.finish()
}

// expect reads bytes that are known.
func (s *streamReader) expect(want []byte, what string) error {
	b := make([]byte, len(want))
	if _, err := io.ReadFull(s.r, b); err != nil {
		return s.cut(err)
	}
	if !bytes.Equal(b, want) {
		return badStream("%s do not match, after %d of %d bytes", what, s.done, s.info.Bytes)
	}
	return nil
}

// manifest reads the manifest and its header, of which only the size is not known before.
func (s *streamReader) manifest() ([]stagedFile, error) {
	head := make([]byte, streamBlock)
	if _, err := io.ReadFull(s.r, head); err != nil {
		return nil, s.cut(err)
	}
	name := streamDir + streamManifest + "\x00"
	size, err := strconv.ParseInt(string(head[tarSizeAt:tarSizeAt+11]), 8, 64)
	if string(head[:len(name)]) != name || err != nil || size < 0 || size > maxStreamHead {
		return nil, badStream("it is none of fbfkv backup -, or of another release")
	}
	text, err := io.ReadAll(io.LimitReader(s.r, size)) // believed as it comes
	if err == nil && int64(len(text)) < size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, s.cut(err)
	}
	files, err := s.readManifest(text)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(head, tarHeader(streamManifest, size, s.info.At)) {
		return nil, badStream("the header of its manifest does not match")
	}
	return files, s.expect(make([]byte, tarPadding(size)), "the zeros behind its manifest")
}

// readManifest reads a manifest, and trusts none of it.
func (s *streamReader) readManifest(text []byte) ([]stagedFile, error) {
	end := bytes.LastIndex(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
	if end < 0 || !bytes.Equal(sealed(text[:end]), text) {
		return nil, badStream("its manifest does not match its checksum")
	}
	var m manifestText
	d := json.NewDecoder(bytes.NewReader(text[:end]))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return nil, badStream("its manifest: %v", err)
	}
	id, err := hex.DecodeString(m.ID)
	if err != nil || len(id) != len(s.info.ID) || m.At < 0 || m.At > maxStreamMillis || m.Before.Keys < 0 ||
		m.After.Keys < 0 || len(m.Files) > maxStreamFiles {
		return nil, badStream("its manifest says what no backup is")
	}
	copy(s.info.ID[:], id)
	s.info.At, s.info.Before, s.info.After = time.UnixMilli(m.At), m.Before, m.After
	for _, f := range m.Files {
		if len(f.Path) > maxStreamPath || !backupPath.MatchString(f.Path) ||
			f.Path != metaName && passing(f.Path) || s.seen[f.Path] {
			return nil, badStream("it has a file %.150q, which no backup has, or twice", f.Path)
		}
		if f.Size < 0 || f.Size > math.MaxInt64-s.info.Bytes || f.Path == metaName && f.Size > metaMaxSize {
			return nil, badStream("its %s has %d bytes", f.Path, f.Size)
		}
		s.seen[f.Path] = true
		s.info.Bytes += f.Size
	}
	if !s.seen[metaName] {
		return nil, badStream("it has no %s", metaName)
	}
	return m.Files, nil
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

// file receives a file, and returns its checksum.
func (s *streamReader) file(f stagedFile) (sum uint32, err error) {
	if err := s.expect(tarHeader(f.Path, f.Size, s.info.At), "the header of "+f.Path); err != nil {
		return 0, err
	}
	if f.Path == metaName {
		sum, err = s.copy(&s.meta, f.Size)
		return sum, err
	}
	target := s.fs.PathJoin(s.dir, filepath.FromSlash(f.Path))
	if dir, _, below := strings.Cut(f.Path, "/"); below && !s.seen[dir+"/"] {
		s.seen[dir+"/"] = true
		if err := disk.MakeDir(s.fs, s.fs.PathDir(target)); err != nil {
			return 0, err
		}
	}
	out, err := s.fs.Create(target, disk.WriteCategory)
	if err != nil {
		return 0, err
	}
	sum, err = s.copy(out, f.Size)
	if err == nil {
		err = out.Sync()
	}
	return sum, errors.Join(err, out.Close())
}

// copy receives a file's bytes, and the zeros behind them.
func (s *streamReader) copy(out io.Writer, size int64) (sum uint32, err error) {
	sum, err = copySummed(out, s.r, size, func(n int) {
		s.done += int64(n)
		s.progress(s.done, s.info.Bytes)
	})
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = s.cut(err)
	}
	if err == nil {
		err = s.expect(make([]byte, tarPadding(size)), "the zeros behind a file")
	}
	return sum, err
}

// finish makes the directory whole. META is written anew.
func (s *streamReader) finish() error {
	meta, err := decodeMeta(s.meta.Bytes())
	if err != nil {
		return err
	}
	if meta.ID != s.info.ID {
		return badStream("its %s is another backup's", metaName)
	}
	for _, name := range []string{pebbleName, logName, snapshotName, runName} {
		if s.seen[name+"/"] {
			if err := disk.SyncDir(s.fs, s.fs.PathJoin(s.dir, name)); err != nil {
				return err
			}
		}
	}
	return writeCopyOf(meta, s.fs, s.dir)
}
