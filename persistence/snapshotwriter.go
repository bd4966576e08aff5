package persistence

import (
	"encoding/binary"
	"errors"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// SnapshotWriter writes a snapshot aside. Either Commit or Abort ends it. Not
// safe for concurrent use.
type SnapshotWriter struct {
	db        *DB
	partition uint16
	path      string
	f         vfs.File // nil after Commit or Abort
	frame     []byte   // header and payload of the frame being filled
	sum       uint32
	total     uint64
	err       error // sticky
}

// CreateSnapshot begins a snapshot of the partition at seq. One partition's
// snapshots are written one at a time.
func (db *DB) CreateSnapshot(partition uint16, seq uint64) (*SnapshotWriter, error) {
	const doing = "create a snapshot"
	if db.closed.Load() {
		return nil, ErrClosed
	}
	w := &SnapshotWriter{db: db, partition: partition, path: db.path(snapshotName, snapshotFile(partition, seq))}
	f, err := db.fs.Create(w.path+tmpSuffix, writeCategory)
	if err != nil {
		return nil, wrap(doing, err)
	}
	w.f = f
	var header []byte
	header, w.sum = encodeSnapshotHeader(partition, seq)
	if _, err := f.Write(header); err != nil {
		w.Abort()
		return nil, wrap(doing, err)
	}
	w.frame = make([]byte, frameHeaderSize, frameHeaderSize+frameMaxSize)
	return w, nil
}

// Write implements io.Writer. It buffers; an error is final.
func (w *SnapshotWriter) Write(p []byte) (int, error) {
	if w.err == nil && w.f == nil {
		w.err = ErrClosed
	}
	n := 0
	for n < len(p) && w.err == nil {
		k := min(len(p)-n, cap(w.frame)-len(w.frame))
		w.frame = append(w.frame, p[n:n+k]...)
		n += k
		if len(w.frame) == cap(w.frame) {
			w.err = wrap("write a snapshot", w.flush())
		}
	}
	return n, w.err
}

// flush writes the frame, if it holds anything.
func (w *SnapshotWriter) flush() error {
	payload := w.frame[frameHeaderSize:]
	if len(payload) == 0 {
		return nil
	}
	w.total += uint64(len(payload))
	w.sum = sealFrame(w.frame, w.sum, uint32(len(payload)))
	_, err := w.f.Write(w.frame)
	w.frame = w.frame[:frameHeaderSize]
	return err
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
	w.removeOlder()
	return nil
}

func (w *SnapshotWriter) commit() error {
	if w.err != nil {
		return w.err
	}
	if err := w.flush(); err != nil {
		return err
	}
	KillPoint("snapshot") // all but its end is written
	end := binary.BigEndian.AppendUint64(w.frame[:frameHeaderSize], w.total)
	sealFrame(end, w.sum, 0)
	if _, err := w.f.Write(end); err != nil {
		return err
	}
	err := w.f.Sync()
	err = errors.Join(err, w.f.Close())
	w.f = nil
	if err != nil {
		return err
	}
	if err := w.db.Sync(); err != nil {
		return err
	}
	KillPoint("before-rename")
	if err := w.db.fs.Rename(w.path+tmpSuffix, w.path); err != nil {
		return err
	}
	KillPoint("after-rename")
	return syncDir(w.db.fs, w.db.path(snapshotName))
}

// removeOlder removes all but the newest snapshots. What it cannot remove now
// the next Commit tries again: it costs space, nothing else.
func (w *SnapshotWriter) removeOlder() {
	list, err := w.db.Snapshots(w.partition)
	for i := snapshotsKept; i < len(list); i++ {
		err = errors.Join(err, removeIfExists(w.db.fs, list[i].Path))
	}
	if err != nil {
		w.db.logger.Warn("an old snapshot could not be removed; the next one will retry", "error", err)
	}
}

// Abort drops an uncommitted snapshot. After Commit it does nothing.
func (w *SnapshotWriter) Abort() {
	if w.f != nil {
		// The error is of no interest: the file is dropped.
		_ = w.f.Close()
		w.f = nil
	}
	if err := removeIfExists(w.db.fs, w.path+tmpSuffix); err != nil {
		w.db.logger.Warn("an unfinished snapshot could not be removed; the next start will", "path", w.path, "error", err)
	}
}
