package persistence

import (
	"fmt"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

// markerFS makes Pebble's marker files durable in order. Pebble says which
// MANIFEST counts by the name of a marker file: it writes and fsyncs the
// MANIFEST, creates the new marker, removes the old one and fsyncs the
// directory once for all of these names. Journalling file systems keep names in
// order, but nothing obliges them: a power loss in between could leave the
// marker without the MANIFEST that it names, or no marker at all, which is a
// database that does not open, or an empty one. So the directory is fsynced
// before a marker is created, and before one is removed. That is rare: at Open
// and when a MANIFEST has grown to 128 MiB.
//
// And where Pebble cannot fsync a directory, it panics in one of its own
// goroutines; here the process ends before, with the cause in plain words.
type markerFS struct {
	vfs.FS
	dir      string // Pebble's; a backup elsewhere that fails ends nothing
	die      func(error)
	manifest *manifestMark
}

func (m markerFS) isMarker(name string) bool {
	return strings.HasPrefix(m.FS.PathBase(name), "marker.")
}

// Create implements vfs.FS.
func (m markerFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if m.isMarker(name) {
		if err := disk.SyncDir(m.FS, m.FS.PathDir(name)); err != nil {
			return nil, err
		}
	}
	f, err := m.FS.Create(name, category)
	if err != nil {
		return nil, err
	}
	if m.FS.PathDir(name) != m.dir {
		return f, nil // a backup's
	}
	if num, ok := manifestNumber(m.FS.PathBase(name)); ok {
		m.manifest.begin(num)
		return &manifestFile{File: f, mark: m.manifest, num: num}, nil
	}
	m.manifest.moved(m.FS.PathBase(name))
	return f, nil
}

// Remove implements vfs.FS.
func (m markerFS) Remove(name string) error {
	if m.isMarker(name) {
		if err := disk.SyncDir(m.FS, m.FS.PathDir(name)); err != nil {
			return err
		}
	}
	return m.FS.Remove(name)
}

// OpenDir implements vfs.FS.
func (m markerFS) OpenDir(name string) (vfs.File, error) {
	f, err := m.FS.OpenDir(name)
	if err != nil || name != m.dir {
		return f, err
	}
	return dirFile{File: f, die: m.die, manifest: m.manifest}, nil
}

// dirFile is an open directory.
type dirFile struct {
	vfs.File
	die      func(error)
	manifest *manifestMark
}

// Sync implements vfs.File.
func (d dirFile) Sync() error {
	err := d.File.Sync()
	if err == nil {
		err = d.manifest.settled()
	}
	if err != nil {
		d.die(fmt.Errorf("%w: fsync a directory: %w", ErrFailed, err))
	}
	return err
}

// Unwrap implements vfs.FS.
func (m markerFS) Unwrap() vfs.FS { return m.FS }
