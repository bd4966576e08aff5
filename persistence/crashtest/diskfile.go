package crashtest

import (
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// diskFile is an open file of a Disk, or an open directory.
type diskFile struct {
	d    *Disk
	n    *node
	name string
	pos  int64
}

// Read implements vfs.File.
func (f *diskFile) Read(p []byte) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	n, err := f.readAt(p, f.pos)
	f.pos += int64(n)
	if n > 0 {
		err = nil
	}
	return n, err
}

// ReadAt implements vfs.File.
func (f *diskFile) ReadAt(p []byte, off int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	return f.readAt(p, off)
}

func (f *diskFile) readAt(p []byte, off int64) (n int, err error) {
	if off < int64(len(f.n.data)) {
		n = copy(p, f.n.data[off:])
	}
	if n < len(p) {
		err = io.EOF
	}
	return n, err
}

// Write implements vfs.File.
func (f *diskFile) Write(p []byte) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	f.writeAt(p, f.pos)
	f.pos += int64(len(p))
	return len(p), nil
}

// WriteAt implements vfs.File.
func (f *diskFile) WriteAt(p []byte, off int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	f.writeAt(p, off)
	return len(p), nil
}

func (f *diskFile) writeAt(p []byte, off int64) {
	n, end := f.n, int(off)+len(p)
	if len(n.data) < end {
		n.data = append(n.data, make([]byte, end-len(n.data))...)
	}
	copy(n.data[off:], p)
	if n.dirty == nil {
		n.dirty = make(map[int]bool)
	}
	for page := int(off) / pageSize; page*pageSize < end; page++ {
		n.dirty[page] = true
	}
	n.changed = time.Now()
}

// Sync implements vfs.File.
func (f *diskFile) Sync() error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if f.n.names != nil {
		f.n.synced = maps.Clone(f.n.names)
		return nil
	}
	var err error
	if f.d.fail != nil {
		err = f.d.fail(f.name)
	}
	for page := range f.n.dirty {
		if err == nil {
			f.n.disk = f.n.write(f.n.disk, page)
		}
	}
	clear(f.n.dirty) // of a failed fsync, too
	return err
}

// SyncData implements vfs.File.
func (f *diskFile) SyncData() error { return f.Sync() }

// SyncTo implements vfs.File. It promises nothing.
func (f *diskFile) SyncTo(int64) (fullSync bool, err error) { return false, nil }

// Preallocate implements vfs.File.
func (f *diskFile) Preallocate(int64, int64) error { return nil }

// Prefetch implements vfs.File.
func (f *diskFile) Prefetch(int64, int64) error { return nil }

// Fd implements vfs.File.
func (f *diskFile) Fd() uintptr { return vfs.InvalidFd }

// Close implements vfs.File.
func (f *diskFile) Close() error { return nil }

// Stat implements vfs.File.
func (f *diskFile) Stat() (vfs.FileInfo, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	return f.n.stat(f.name), nil
}

func (n *node) stat(name string) vfs.FileInfo {
	return diskInfo{name: path.Base(name), size: int64(len(n.data)), dir: n.names != nil, changed: n.changed}
}

// diskInfo is a vfs.FileInfo.
type diskInfo struct {
	name    string
	size    int64
	dir     bool
	changed time.Time
}

// Name implements fs.FileInfo.
func (i diskInfo) Name() string { return i.name }

// Size implements fs.FileInfo.
func (i diskInfo) Size() int64 { return i.size }

// ModTime implements fs.FileInfo.
func (i diskInfo) ModTime() time.Time { return i.changed }

// IsDir implements fs.FileInfo.
func (i diskInfo) IsDir() bool { return i.dir }

// Sys implements fs.FileInfo.
func (i diskInfo) Sys() any { return nil }

// DeviceID implements vfs.FileInfo.
func (i diskInfo) DeviceID() vfs.DeviceID { return vfs.DeviceID{} }

// Mode implements fs.FileInfo.
func (i diskInfo) Mode() os.FileMode {
	if i.dir {
		return fs.ModeDir | 0o755
	}
	return 0o644
}
