package persistence

import (
	"encoding/binary"
	"errors"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

// SnapshotWriter writes a snapshot aside. Either Commit or Abort ends it. Not
// safe for concurrent use.
type SnapshotWriter struct {
	directWriter // released by Commit and Abort

	partition uint16
	path      string
	frame     int // where the frame that is being filled begins in buf
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
	path := db.path(snapshotName, snapshotFile(partition, seq))
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
	w.removeOlder()
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
	return disk.SyncDir(w.db.fs, w.db.path(snapshotName))
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
		w.db.logger.Warn("an unfinished snapshot could not be removed; the next start will", "path", w.path, "error", err)
	}
}
