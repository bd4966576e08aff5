package crashtest

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// pageSize is the unit in which what was written reaches the disk.
const pageSize = 4096

// Disk is a file system in memory behind a page cache. It goes through several lives of a server:
//
//   - Kill leaves what kill -9 leaves: all that was written can be read, and what was not fsynced
//     is still on no disk.
//   - Lose leaves what a power loss leaves.
//   - FailSyncs makes fsyncs fail as Linux's do: the pages can still be read, and are taken for
//     clean, so that no later fsync writes them.
//   - Evict makes room in the page cache: what is clean is read from the disk from then on.
//
// Each of the first two returns another Disk, so that what still runs on the old one changes
// nothing. Its methods, and those of its files, are safe for concurrent use.
type Disk struct {
	mu    *sync.Mutex
	root  *node
	locks map[string]bool
	fail  func(path string) error
}

// node is a file or a directory.
type node struct {
	// data is what is read of a file, disk what a power loss leaves of it, but for some of the dirty pages.
	data, disk []byte
	dirty      map[int]bool
	// names are a directory's, nil of a file; synced are those that a power loss leaves.
	names, synced map[string]*node
	changed       time.Time
}

func newDirectory() *node {
	return &node{names: make(map[string]*node), synced: make(map[string]*node)}
}

// NewDisk returns an empty disk.
func NewDisk() *Disk {
	return &Disk{mu: new(sync.Mutex), root: newDirectory(), locks: make(map[string]bool)}
}

// Kill returns the disk as a process finds it that starts after another one was killed.
func (d *Disk) Kill() *Disk { return d.copy(func(n *node) *node { return n }) }

// Lose returns the disk after a power loss, when percent of the unsynced pages and names have
// reached it: 100 is everything, and nothing that was removed.
func (d *Disk) Lose(percent int, rng *rand.Rand) *Disk {
	return d.copy(func(n *node) *node {
		return n.lost(func() bool { return percent > 0 && rng.IntN(100) < percent }, percent == 100)
	})
}

// copy returns a copy of the disk of which each node is first turned into another.
func (d *Disk) copy(turn func(*node) *node) *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := NewDisk()
	c.root = d.root.copy(turn, make(map[*node]*node))
	return c
}

func (n *node) copy(turn func(*node) *node, known map[*node]*node) *node {
	if c := known[n]; c != nil {
		return c
	}
	c := new(node)
	known[n] = c
	*c = *turn(n)
	c.data, c.disk, c.dirty = bytes.Clone(c.data), bytes.Clone(c.disk), maps.Clone(c.dirty)
	for _, names := range []*map[string]*node{&c.names, &c.synced} {
		*names = maps.Clone(*names)
		for _, name := range slices.Sorted(maps.Keys(*names)) {
			(*names)[name] = (*names)[name].copy(turn, known)
		}
	}
	return c
}

// lost returns what a power loss leaves of a node.
func (n *node) lost(reached func() bool, all bool) *node {
	if n.names == nil {
		c := &node{disk: bytes.Clone(n.disk), changed: n.changed}
		for _, page := range slices.Sorted(maps.Keys(n.dirty)) {
			if reached() {
				c.disk = n.write(c.disk, page)
			}
		}
		c.data = c.disk
		return c
	}
	names := maps.Clone(n.synced)
	for _, name := range slices.Sorted(maps.Keys(n.names)) {
		if reached() {
			names[name] = n.names[name]
		}
	}
	if all {
		names = n.names
	}
	return &node{names: names, synced: names}
}

// write returns the content of a disk to which a page was written.
func (n *node) write(to []byte, page int) []byte {
	from := page * pageSize
	end := min(from+pageSize, len(n.data))
	if len(to) < end {
		to = append(to, make([]byte, end-len(to))...)
	}
	copy(to[from:], n.data[from:end])
	return to
}

// FailSyncs makes each fsync of a file fail for which fail returns an error, until it is called
// again. nil: none.
func (d *Disk) FailSyncs(fail func(path string) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = fail
}

// Evict drops all clean pages of a file from the page cache.
func (d *Disk) Evict(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, err := d.find("evict", name)
	if err != nil {
		return err
	}
	data := make([]byte, len(n.data))
	copy(data, n.disk)
	for page := range n.dirty {
		data = n.write(data, page)
	}
	n.data = data
	return nil
}

// parts splits a path. The working directory is the root.
func parts(name string) []string {
	return strings.FieldsFunc(path.Clean(name), func(r rune) bool { return r == '/' })
}

// find returns what has a name. The lock is held.
func (d *Disk) find(op, name string) (*node, error) {
	n := d.root
	for _, part := range parts(name) {
		if part == "." {
			continue
		}
		if n.names == nil {
			return nil, &fs.PathError{Op: op, Path: name, Err: syscall.ENOTDIR}
		}
		if n = n.names[part]; n == nil {
			return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
		}
	}
	return n, nil
}

// directory returns the directory in which a name is. The lock is held.
func (d *Disk) directory(op, name string) (*node, error) {
	n, err := d.find(op, path.Dir(name))
	if err == nil && n.names == nil {
		err = &fs.PathError{Op: op, Path: name, Err: syscall.ENOTDIR}
	}
	return n, err
}

// Create implements vfs.FS.
func (d *Disk) Create(name string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	dir, err := d.directory("create", name)
	if err != nil {
		return nil, err
	}
	n := &node{dirty: make(map[int]bool), changed: time.Now()}
	dir.names[path.Base(name)] = n
	return &diskFile{d: d, n: n, name: name}, nil
}

// Open implements vfs.FS.
func (d *Disk) Open(name string, _ ...vfs.OpenOption) (vfs.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, err := d.find("open", name)
	if err != nil {
		return nil, err
	}
	return &diskFile{d: d, n: n, name: name}, nil
}

// OpenDir implements vfs.FS.
func (d *Disk) OpenDir(name string) (vfs.File, error) { return d.Open(name) }

// OpenReadWrite implements vfs.FS.
func (d *Disk) OpenReadWrite(name string, c vfs.DiskWriteCategory, _ ...vfs.OpenOption) (vfs.File, error) {
	f, err := d.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return d.Create(name, c)
	}
	return f, err
}

// ReuseForWrite implements vfs.FS.
func (d *Disk) ReuseForWrite(from, to string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	if err := d.Rename(from, to); err != nil {
		return nil, err
	}
	return d.Open(to)
}

// Link implements vfs.FS.
func (d *Disk) Link(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, err := d.find("link", from)
	if err != nil {
		return err
	}
	dir, err := d.directory("link", to)
	if err == nil && dir.names[path.Base(to)] != nil {
		err = &fs.PathError{Op: "link", Path: to, Err: fs.ErrExist}
	}
	if err == nil {
		dir.names[path.Base(to)] = n
	}
	return err
}

// Remove implements vfs.FS.
func (d *Disk) Remove(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, err := d.find("remove", name)
	if err != nil {
		return err
	}
	if len(n.names) > 0 {
		return &fs.PathError{Op: "remove", Path: name, Err: syscall.ENOTEMPTY}
	}
	return d.remove(name)
}

// RemoveAll implements vfs.FS.
func (d *Disk) RemoveAll(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (d *Disk) remove(name string) error {
	dir, err := d.directory("remove", name)
	if err == nil {
		delete(dir.names, path.Base(name))
	}
	return err
}

// Rename implements vfs.FS.
func (d *Disk) Rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, err := d.find("rename", from)
	if err != nil {
		return err
	}
	dir, err := d.directory("rename", to)
	if err != nil {
		return err
	}
	if err := d.remove(from); err != nil {
		return err
	}
	dir.names[path.Base(to)] = n
	return nil
}

// MkdirAll implements vfs.FS.
func (d *Disk) MkdirAll(dir string, _ os.FileMode) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.root
	for _, part := range parts(dir) {
		if part == "." {
			continue
		}
		next := n.names[part]
		if next == nil {
			next = newDirectory()
			n.names[part] = next
		}
		if n = next; n.names == nil {
			return &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
		}
	}
	return nil
}

// Lock implements vfs.FS.
func (d *Disk) Lock(name string) (io.Closer, error) {
	f, err := d.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.locks[name] {
		return nil, syscall.EAGAIN
	}
	d.locks[name] = true
	return diskLock{f.(*diskFile)}, nil
}

type diskLock struct{ f *diskFile }

// Close implements io.Closer.
func (l diskLock) Close() error {
	l.f.d.mu.Lock()
	defer l.f.d.mu.Unlock()
	delete(l.f.d.locks, l.f.name)
	return nil
}

// List implements vfs.FS.
func (d *Disk) List(dir string) ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, err := d.find("open", dir)
	if err == nil && n.names == nil {
		err = &fs.PathError{Op: "open", Path: dir, Err: syscall.ENOTDIR}
	}
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(n.names)), nil
}

// Stat implements vfs.FS.
func (d *Disk) Stat(name string) (vfs.FileInfo, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, err := d.find("stat", name)
	if err != nil {
		return nil, err
	}
	return n.stat(name), nil
}

// PathBase implements vfs.FS.
func (d *Disk) PathBase(p string) string { return path.Base(p) }

// PathJoin implements vfs.FS.
func (d *Disk) PathJoin(elem ...string) string { return path.Join(elem...) }

// PathDir implements vfs.FS.
func (d *Disk) PathDir(p string) string { return path.Dir(p) }

// GetDiskUsage implements vfs.FS.
func (d *Disk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{}, vfs.ErrUnsupported
}

// Unwrap implements vfs.FS.
func (d *Disk) Unwrap() vfs.FS { return nil }
