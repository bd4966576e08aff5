package persistence

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

// A snapshot file is a header, data frames and an end frame; nothing follows.
//
//	header     magic "fbfkvsnp", version u16, partition u16, seq u64, CRC u32
//	data frame length u32 (1..256 KiB), CRC u32, payload
//	end frame  length u32 = 0, CRC u32, total u64: bytes in all payloads
//
// Integers are big endian. Each CRC is a CRC-32C that continues from the one
// before it (header, then frame by frame) over everything else in its header or
// frame, so frames that are swapped, repeated or taken from another file do not
// pass.
const (
	snapshotMagic      = "fbfkvsnp"
	snapshotVersion    = 1
	snapshotHeaderSize = 8 + 2 + 2 + 8 + 4
	frameHeaderSize    = 4 + 4
	frameMaxSize       = 256 << 10
	snapshotsKept      = 2
	snapshotSuffix     = ".fbf"
)

// Snapshot is a published snapshot file.
type Snapshot struct {
	// Partition and Seq name it: it holds the state of Partition at Seq.
	Partition uint16
	Seq       uint64
	// Path is where it is.
	Path string
	// Bytes is its size on disk.
	Bytes int64
}

func snapshotFile(partition uint16, seq uint64) string {
	return fmt.Sprintf("p%04d-%020d%s", partition, seq, snapshotSuffix)
}

// parseSnapshotFile is the inverse of snapshotFile.
func parseSnapshotFile(name string) (partition uint16, seq uint64, ok bool) {
	_, err := fmt.Sscanf(name, "p%d-%d", &partition, &seq)
	return partition, seq, err == nil && snapshotFile(partition, seq) == name
}

// encodeSnapshotHeader returns the header and its CRC, on which the frames' go on.
func encodeSnapshotHeader(partition uint16, seq uint64) ([]byte, uint32) {
	b := make([]byte, 0, snapshotHeaderSize)
	b = append(b, snapshotMagic...)
	b = binary.BigEndian.AppendUint16(b, snapshotVersion)
	b = binary.BigEndian.AppendUint16(b, partition)
	b = binary.BigEndian.AppendUint64(b, seq)
	sum := crc32.Checksum(b, disk.Castagnoli)
	return binary.BigEndian.AppendUint32(b, sum), sum
}

// frameSum continues the chain of checksums.
func frameSum(sum uint32, length [4]byte, payload []byte) uint32 {
	return crc32.Update(crc32.Update(sum, disk.Castagnoli, length[:]), disk.Castagnoli, payload)
}

// Snapshots lists the partition's published snapshots, newest first. It does
// not look inside: OpenSnapshot and reading to the end do.
func (db *DB) Snapshots(partition uint16) ([]Snapshot, error) {
	const doing = "list snapshots"
	names, err := db.fs.List(db.path(snapshotName))
	if err != nil {
		return nil, wrap(doing, err)
	}
	var list []Snapshot
	for _, name := range names {
		p, seq, ok := parseSnapshotFile(name)
		if !ok || p != partition {
			continue
		}
		path := db.path(snapshotName, name)
		info, err := db.fs.Stat(path)
		if err != nil {
			return nil, wrap(doing, err)
		}
		list = append(list, Snapshot{Partition: p, Seq: seq, Path: path, Bytes: info.Size()})
	}
	slices.SortFunc(list, func(a, b Snapshot) int { return cmp.Compare(b.Seq, a.Seq) })
	return list, nil
}

// damagedSuffix marks a snapshot that was found damaged. It counts no longer.
const damagedSuffix = ".damaged"

// SetAside renames a snapshot that cannot be used, so that it is not kept in
// the place of a good one. The file stays for an operator to look at.
func (db *DB) SetAside(s Snapshot) error {
	err := db.fs.Rename(s.Path, s.Path+damagedSuffix)
	if err == nil {
		err = disk.SyncDir(db.fs, db.path(snapshotName))
	}
	return wrap("set a damaged snapshot aside", err)
}

// SnapshotWriter writes a snapshot aside. Either Commit or Abort ends it. Not
// safe for concurrent use.
type SnapshotWriter struct {
	directWriter // released by Commit and Abort

	partition uint16
	path      string
	moves     bool // it is no snapshot but a partition that moves (moved.go)
	frame     int  // where the frame that is being filled begins in buf
	sum       uint32
	total     uint64
	err       error // sticky
}

// CreateSnapshot begins a snapshot of the partition at seq. One partition's
// snapshots are written one at a time.
func (db *DB) CreateSnapshot(partition uint16, seq uint64) (*SnapshotWriter, error) {
	if db.closed.Load() {
		return nil, ErrClosed
	}
	return db.createFrames(db.path(snapshotName, snapshotFile(partition, seq)), partition, seq)
}

// createFrames begins a file of frames.
func (db *DB) createFrames(path string, partition uint16, seq uint64) (*SnapshotWriter, error) {
	out, err := db.newDirectWriter(path + disk.TmpSuffix)
	if err != nil {
		return nil, wrap("create a snapshot", err)
	}
	header, sum := encodeSnapshotHeader(partition, seq)
	out.buf = append(out.buf, header...)
	w := &SnapshotWriter{directWriter: out, partition: partition, path: path, sum: sum}
	w.beginFrame()
	return w, nil
}

// Write implements io.Writer. It buffers; an error is final.
func (w *SnapshotWriter) Write(p []byte) (int, error) {
	if w.err == nil && w.f == nil {
		w.err = ErrClosed
	}
	n := 0
	for n < len(p) && w.err == nil {
		k := min(len(p)-n, frameMaxSize-w.payload())
		w.buf = append(w.buf, p[n:n+k]...)
		n += k
		if w.payload() == frameMaxSize {
			w.seal()
			w.err = wrap("write a snapshot", w.makeRoom(frameHeaderSize+frameMaxSize))
			w.beginFrame()
		}
	}
	return n, w.err
}

// beginFrame leaves room for the header of a frame.
func (w *SnapshotWriter) beginFrame() {
	w.frame = len(w.buf)
	w.buf = append(w.buf, make([]byte, frameHeaderSize)...)
}

// payload is how much the frame holds.
func (w *SnapshotWriter) payload() int { return len(w.buf) - w.frame - frameHeaderSize }

// seal ends the frame.
func (w *SnapshotWriter) seal() {
	length := w.payload()
	w.total += uint64(length)
	w.sum = sealFrame(w.buf[w.frame:], w.sum, uint32(length))
}

// sealFrame fills in the header of a frame and returns its checksum.
func sealFrame(frame []byte, sum, length uint32) uint32 {
	binary.BigEndian.PutUint32(frame, length)
	sum = frameSum(sum, [4]byte(frame), frame[frameHeaderSize:])
	binary.BigEndian.PutUint32(frame[4:], sum)
	return sum
}

// Commit publishes the snapshot, then removes all but the partition's newest
// two. The order makes it safe against a crash at any point: everything that
// the snapshot may contain is made durable first, whatever the policy (G4);
// then its own bytes; then its name. After an error it is not published, or,
// if only the directory's fsync failed, complete but perhaps not durable.
func (w *SnapshotWriter) Commit() error {
	if w.err == nil && w.f == nil {
		return ErrClosed
	}
	if err := w.commit(); err != nil {
		w.Abort()
		return wrap("commit a snapshot", err)
	}
	if !w.moves {
		w.removeOlder()
	}
	return nil
}

func (w *SnapshotWriter) commit() error {
	if w.err != nil {
		return w.err
	}
	if w.payload() > 0 {
		w.seal()
		w.beginFrame()
	}
	w.buf = binary.BigEndian.AppendUint64(w.buf, w.total)
	sealFrame(w.buf[w.frame:], w.sum, 0)
	KillPoint("snapshot") // its end is not yet written
	if err := w.flush(); err != nil {
		return err
	}
	f := w.release()
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := w.db.Sync(); err != nil {
		return err
	}
	KillPoint("before-rename")
	if err := w.db.fs.Rename(w.path+disk.TmpSuffix, w.path); err != nil {
		return err
	}
	KillPoint("after-rename")
	return disk.SyncDir(w.db.fs, w.db.fs.PathDir(w.path))
}

// removeOlder removes all but the newest snapshots. What it cannot remove now
// the next Commit tries again: it costs space, nothing else.
func (w *SnapshotWriter) removeOlder() {
	if w.db.held() {
		return
	}
	list, err := w.db.Snapshots(w.partition)
	for i := snapshotsKept; i < len(list); i++ {
		err = errors.Join(err, disk.RemoveIfExists(w.db.fs, list[i].Path))
	}
	if err != nil {
		w.db.logger.Warn("an old snapshot could not be removed; the next one will retry", "error", err)
	}
}

// Abort drops an uncommitted snapshot. After Commit it does nothing.
func (w *SnapshotWriter) Abort() {
	if w.f != nil {
		// The error is of no interest: the file is dropped.
		_ = w.release().Close()
	}
	if err := disk.RemoveIfExists(w.db.fs, w.path+disk.TmpSuffix); err != nil {
		w.db.logger.Warn("an unfinished snapshot could not be removed; the next start will", "path", w.path,
			"error", err)
	}
}

// SnapshotReader reads a snapshot's content. Each frame is verified before any
// of it is handed out; io.EOF comes only after the end frame has been verified
// too, so a reader that got io.EOF has the whole content. Not safe for
// concurrent use.
type SnapshotReader struct {
	name  string
	f     vfs.File
	in    *bufio.Reader
	frame []byte // payload of the present frame, not yet handed out
	buf   []byte
	sum   uint32
	total uint64
	err   error // sticky
}

// OpenSnapshot opens a snapshot for reading. ErrCorrupt: its header is damaged
// or is not that of s.
func (db *DB) OpenSnapshot(s Snapshot) (*SnapshotReader, error) {
	f, err := db.fs.Open(s.Path, vfs.SequentialReadsOption)
	if err != nil {
		return nil, wrap("open a snapshot", err)
	}
	r, err := newSnapshotReader(f, s.Partition, s.Seq)
	if err != nil {
		return nil, errors.Join(wrap("open a snapshot", err), f.Close())
	}
	r.name, r.f = db.fs.PathBase(s.Path), f
	return r, nil
}

// newSnapshotReader reads the header from in; it is the one decoder of
// snapshot files.
func newSnapshotReader(in io.Reader, partition uint16, seq uint64) (*SnapshotReader, error) {
	want, sum := encodeSnapshotHeader(partition, seq)
	r := &SnapshotReader{in: bufio.NewReaderSize(in, 64<<10), sum: sum}
	got := make([]byte, snapshotHeaderSize)
	if err := r.fill(got); err != nil {
		return nil, err
	}
	if string(got) != string(want) {
		return nil, disk.Corruptf("the snapshot's header is not that of partition %d at %d", partition, seq)
	}
	return r, nil
}

// Read implements io.Reader. An error is final.
func (r *SnapshotReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if len(r.frame) == 0 && r.err == nil {
		if r.err = r.next(); r.err != nil && !errors.Is(r.err, io.EOF) {
			r.err = wrap("read snapshot "+r.name, r.err)
		}
	}
	if r.err != nil {
		return 0, r.err
	}
	n := copy(p, r.frame)
	r.frame = r.frame[n:]
	return n, nil
}

// next reads and verifies a frame; io.EOF after a good end frame.
func (r *SnapshotReader) next() error {
	var head [frameHeaderSize]byte
	if err := r.fill(head[:]); err != nil {
		return err
	}
	length := binary.BigEndian.Uint32(head[:])
	if length > frameMaxSize {
		return disk.Corruptf("a frame of %d bytes", length)
	}
	size := int(length)
	if length == 0 {
		size = 8 // the end frame's total
	}
	if r.buf == nil {
		r.buf = make([]byte, frameMaxSize)
	}
	payload := r.buf[:size]
	if err := r.fill(payload); err != nil {
		return err
	}
	r.sum = frameSum(r.sum, [4]byte(head[:]), payload)
	if r.sum != binary.BigEndian.Uint32(head[4:]) {
		return disk.Corruptf("a frame does not match its checksum")
	}
	if length == 0 {
		return r.finish(binary.BigEndian.Uint64(payload))
	}
	r.total += uint64(size)
	r.frame = payload
	return nil
}

// finish checks that the file ends here and is whole.
func (r *SnapshotReader) finish(total uint64) error {
	if total != r.total {
		return disk.Corruptf("%d bytes of content instead of %d", r.total, total)
	}
	switch _, err := r.in.ReadByte(); {
	case err == nil:
		return disk.Corruptf("bytes after the end")
	case !errors.Is(err, io.EOF):
		return err
	}
	return io.EOF
}

// fill reads len(p) bytes; the end of the file is damage.
func (r *SnapshotReader) fill(p []byte) error {
	_, err := io.ReadFull(r.in, p)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return disk.Corruptf("the snapshot is truncated")
	}
	return err
}

// Close implements io.Closer.
func (r *SnapshotReader) Close() error { return r.f.Close() }
