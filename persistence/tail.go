package persistence

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

// A Tail is what a partition that moves has done since its file was made: records of
// sections, as frames, each with a checksum that goes on from the one before it, so that a
// frame that a crash has left half written ends it. Behind the last frame are eight zero bytes:
// a longer one that was left half written there has bytes that clients chose.
//
//	length u32 | CRC u32 | content
type Tail struct {
	f   vfs.File
	at  int64 // behind the last frame
	sum uint32
}

// maxTailFrame bounds a frame's content.
const maxTailFrame = 256 << 20

// OpenTail opens the tail of a partition that moves, and calls fn for each content in it. fn
// borrows the content. Nothing is written to a directory that is only read, where a tail that does
// not exist is nil.
func (db *DB) OpenTail(partition uint16, seq uint64, fn func(content []byte) error) (*Tail, error) {
	path := db.path(snapshotName, MovedFile(partition, seq)+tailSuffix)
	f, err := db.fs.Open(path, vfs.SequentialReadsOption)
	t := new(Tail)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, wrap("open a tail", err)
	default:
		if err := errors.Join(t.read(bufio.NewReaderSize(f, 64<<10), fn), f.Close()); err != nil {
			return nil, wrap("read a tail", err)
		}
	}
	if db.readOnly {
		return nil, nil
	}
	if err == nil {
		err = db.settleTail(t, path)
	} else if t.f, err = db.fs.Create(path, disk.WriteCategory); err == nil {
		err = disk.SyncDir(db.fs, db.path(snapshotName))
	}
	return t, wrap("open a tail", err)
}

// settleTail makes durable what was read of a tail, before the node says that it has it, and opens
// it. Nothing notes how much of it is durable already.
func (db *DB) settleTail(t *Tail, path string) (err error) {
	if err := disk.Renew(db.fs, path, path+disk.TmpSuffix, 0, t.at); err != nil {
		return err
	}
	if err := disk.SyncDir(db.fs, db.path(snapshotName)); err != nil { // an empty one was not renewed
		return err
	}
	if t.f, err = db.fs.OpenReadWrite(path, disk.WriteCategory); err != nil {
		return err
	}
	is := new(Tail)
	err = is.read(bufio.NewReaderSize(t.f, 64<<10), func([]byte) error { return nil })
	if err == nil && (is.at != t.at || is.sum != t.sum) {
		err = disk.ErrChanged
	}
	return err
}

// read reads frames to the first that is not whole.
func (t *Tail) read(in io.Reader, fn func(content []byte) error) error {
	var head [8]byte
	var content bytes.Buffer
	for {
		_, err := io.ReadFull(in, head[:])
		n := binary.BigEndian.Uint32(head[:])
		if err == nil && n > 0 && n <= maxTailFrame {
			content.Reset()
			_, err = io.CopyN(&content, in, int64(n))
		}
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		sum := frameSum(t.sum, [4]byte(head[:]), content.Bytes())
		if err != nil || n == 0 || n > maxTailFrame || sum != binary.BigEndian.Uint32(head[4:]) {
			return nil
		}
		if err := fn(content.Bytes()); err != nil {
			return err
		}
		t.sum, t.at = sum, t.at+int64(len(head))+int64(n)
	}
}

// Append appends a frame, durably.
func (t *Tail) Append(content []byte) error {
	if len(content) == 0 || len(content) > maxTailFrame {
		return fmt.Errorf("%w: a tail of %d bytes", ErrBadOptions, len(content))
	}
	frame := append(make([]byte, frameHeaderSize, 2*frameHeaderSize+len(content)), content...)
	sum := sealFrame(frame, t.sum, uint32(len(content)))
	_, err := t.f.WriteAt(append(frame, make([]byte, frameHeaderSize)...), t.at)
	if err == nil {
		err = t.f.Sync()
	}
	if err == nil {
		t.sum, t.at = sum, t.at+int64(len(frame))
	}
	return wrap("write a tail", disk.NoSpace(err))
}

// Close closes the file.
func (t *Tail) Close() error {
	if t == nil || t.f == nil {
		return nil
	}
	return t.f.Close()
}

// AppendSum appends to a piece of a tail, on its way to another node, its checksum.
func AppendSum(piece []byte) []byte {
	return binary.BigEndian.AppendUint32(piece, crc32.Checksum(piece, disk.Castagnoli))
}

// CutSum is the inverse of AppendSum: ErrCorrupt if the piece does not match.
func CutSum(b []byte) (piece []byte, err error) {
	n := len(b) - 4
	if n < 0 || crc32.Checksum(b[:n], disk.Castagnoli) != binary.BigEndian.Uint32(b[n:]) {
		return nil, disk.Corruptf("a piece of a tail does not match its checksum")
	}
	return b[:n], nil
}
