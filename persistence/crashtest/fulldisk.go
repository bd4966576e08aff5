package crashtest

import (
	"fmt"
	"io/fs"
	"math"
	"os"
	"sync"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// FullDisk is a file system of limited size, which a neighbour may fill: what does
// not fit meets ENOSPC. Files keep their blocks when they are overwritten, as on a
// file system that does not write elsewhere what is overwritten. Names and
// directories take no space.
type FullDisk struct {
	vfs.FS
	mu     sync.Mutex
	limit  int64
	blocks map[string]*blocks // by path
	used   int64
}

// blocks are a file's.
type blocks struct {
	end   int64
	names int // that it has
	open  int // handles
}

// NewFullDisk returns a disk that is not full yet.
func NewFullDisk(under vfs.FS) *FullDisk {
	return &FullDisk{FS: under, limit: math.MaxInt64, blocks: make(map[string]*blocks)}
}

// Fill makes a neighbour take all but free bytes. A negative number gives all back.
func (d *FullDisk) Fill(free int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.limit = math.MaxInt64; free >= 0 {
		d.limit = d.used + free
	}
}

// GetDiskUsage implements vfs.FS.
func (d *FullDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	free := uint64(max(d.limit-d.used, 0))
	return vfs.DiskUsage{AvailBytes: free, TotalBytes: uint64(d.limit), UsedBytes: uint64(d.limit) - free},
		nil
}

// extend gives a file blocks up to an offset, as far as there are any, and returns how
// many bytes from at on it may hold.
func (d *FullDisk) extend(b *blocks, at, n int64) (int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	more := max(at+n-b.end, 0)
	if can := max(d.limit-d.used, 0); more > can {
		b.end, d.used = b.end+can, d.used+can
		return max(b.end-at, 0), fmt.Errorf("%w (injected)", syscall.ENOSPC)
	}
	b.end, d.used = b.end+more, d.used+more
	return n, nil
}

// free gives a file's blocks back if nobody needs it any more. The lock is held.
func (d *FullDisk) free(b *blocks) {
	if b.names == 0 && b.open == 0 {
		d.used -= b.end
		b.end = 0
	}
}

func (d *FullDisk) drop(name string) {
	if b := d.blocks[name]; b != nil {
		b.names--
		delete(d.blocks, name)
		d.free(b)
	}
}

func (d *FullDisk) opened(name string, fresh bool, at int64, f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if fresh {
		d.drop(name)
	}
	b := d.blocks[name]
	if b == nil {
		b = &blocks{names: 1}
		if info, err := d.FS.Stat(name); err == nil && !fresh {
			b.end = info.Size()
			d.used += b.end
		}
		d.blocks[name] = b
	}
	b.open++
	return &fullDiskFile{File: f, d: d, b: b, at: at}, nil
}

// Create implements vfs.FS.
func (d *FullDisk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.Create(name, c)
	return d.opened(name, true, 0, f, err)
}

// OpenReadWrite implements vfs.FS.
func (d *FullDisk) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File,
	error) {
	f, err := d.FS.OpenReadWrite(name, c, opts...)
	return d.opened(name, false, 0, f, err)
}

// ReuseForWrite implements vfs.FS.
func (d *FullDisk) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.ReuseForWrite(from, to, c)
	if err == nil {
		d.renamed(from, to)
	}
	return d.opened(to, false, 0, f, err)
}

// Rename implements vfs.FS.
func (d *FullDisk) Rename(from, to string) error {
	err := d.FS.Rename(from, to)
	if err == nil {
		d.renamed(from, to)
	}
	return err
}

func (d *FullDisk) renamed(from, to string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.blocks[from]
	delete(d.blocks, from)
	d.drop(to)
	if b != nil {
		d.blocks[to] = b
	}
}

// Link implements vfs.FS.
func (d *FullDisk) Link(from, to string) error {
	err := d.FS.Link(from, to)
	d.mu.Lock()
	defer d.mu.Unlock()
	if b := d.blocks[from]; err == nil && b != nil {
		b.names++
		d.blocks[to] = b
	}
	return err
}

// Remove implements vfs.FS.
func (d *FullDisk) Remove(name string) error {
	err := d.FS.Remove(name)
	if err == nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.drop(name)
	}
	return err
}

// MkdirAll implements vfs.FS.
func (d *FullDisk) MkdirAll(dir string, perm os.FileMode) error {
	if info, err := d.FS.Stat(dir); err == nil && info.IsDir() {
		return nil
	} else if err != nil && !os.IsNotExist(err) && err != fs.ErrNotExist {
		return err
	}
	return d.FS.MkdirAll(dir, perm)
}

// Unwrap implements vfs.FS.
func (d *FullDisk) Unwrap() vfs.FS { return d.FS }

type fullDiskFile struct {
	vfs.File
	d  *FullDisk
	b  *blocks
	at int64
}

// Write implements vfs.File.
func (f *fullDiskFile) Write(p []byte) (int, error) {
	can, full := f.d.extend(f.b, f.at, int64(len(p)))
	n, err := f.File.Write(p[:can])
	f.at += int64(n)
	if err == nil {
		err = full
	}
	return n, err
}

// WriteAt implements vfs.File.
func (f *fullDiskFile) WriteAt(p []byte, at int64) (int, error) {
	can, full := f.d.extend(f.b, at, int64(len(p)))
	n, err := f.File.WriteAt(p[:can], at)
	if err == nil {
		err = full
	}
	return n, err
}

// Preallocate implements vfs.File.
func (f *fullDiskFile) Preallocate(at, n int64) error {
	_, err := f.d.extend(f.b, at, n)
	return err
}

// Close implements vfs.File.
func (f *fullDiskFile) Close() error {
	f.d.mu.Lock()
	if f.b.open--; f.b.open == 0 {
		f.d.free(f.b)
	}
	f.d.mu.Unlock()
	return f.File.Close()
}
