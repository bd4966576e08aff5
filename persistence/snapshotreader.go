package persistence

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

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
func (r *SnapshotReader) Close() error {
	return r.f.Close()
}
