package persistence

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"strconv"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/internal/longlock"
	"github.com/fbfkv/fbfkv/persistence/disk"
)

// The MANIFEST lists Pebble's sstables. Pebble takes damage in it
// for its end: it would open an older, even an empty database, and delete what
// that does not know. So the mark MANISYNC, of the same form as LOGSYNC, says
// which MANIFEST counts and up to where it was fsynced, and Open refuses a
// shorter one. Like LOGSYNC it is written after the fsync and may lag behind,
// but what it says stays true.
const (
	manifestMarkName = "MANISYNC"
	manifestPrefix   = "MANIFEST-"
	markerPrefix     = "marker.manifest."
	formatPrefix     = "marker.format-version."
)

// manifestNumber parses the name of a MANIFEST.
func manifestNumber(name string) (uint64, bool) {
	digits, ok := strings.CutPrefix(name, manifestPrefix)
	if !ok {
		return 0, false
	}
	num, err := strconv.ParseUint(digits, 10, 64)
	return num, err == nil
}

// manifestMark follows the MANIFEST that is being written. The mark is moved to
// a new one only after the marker file that names it is durable.
type manifestMark struct {
	mu     longlock.Mutex // held over the fsyncs of mark
	mark   disk.MarkFile
	num    uint64
	synced int64
	marker uint64 // the MANIFEST of a marker whose directory is not fsynced yet
	named  bool   // num's marker is durable
}

// begin notes that a MANIFEST was created.
func (m *manifestMark) begin(num uint64) {
	m.mu.Lock()
	m.num, m.synced, m.named = num, 0, false
	m.mu.Unlock()
}

// advance notes that a MANIFEST is durable up to an offset.
func (m *manifestMark) advance(num uint64, offset int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if num != m.num {
		return nil
	}
	m.synced = offset
	return m.write()
}

// moved notes that a marker file was created.
func (m *manifestMark) moved(name string) {
	if i := strings.Index(name, manifestPrefix); i >= 0 && strings.HasPrefix(name, markerPrefix) {
		m.mu.Lock()
		m.marker, _ = manifestNumber(name[i:])
		m.mu.Unlock()
	}
}

// settled notes that the directory was fsynced.
func (m *manifestMark) settled() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.marker == 0 || m.marker != m.num {
		return nil
	}
	m.named, m.marker = true, 0
	return m.write()
}

func (m *manifestMark) write() (err error) {
	switch {
	case !m.named:
		return nil
	case !m.mark.Created():
		err = m.mark.Create(m.num, m.synced)
	default:
		err = m.mark.Set(m.num, m.synced)
	}
	return wrap("write "+manifestMarkName, err)
}

// manifestFile is the MANIFEST that Pebble writes.
type manifestFile struct {
	vfs.File
	mark    *manifestMark
	num     uint64
	written int64
}

// Write implements vfs.File.
func (f *manifestFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	f.written += int64(n)
	return n, err
}

// Sync implements vfs.File.
func (f *manifestFile) Sync() error {
	if err := f.File.Sync(); err != nil {
		return err
	}
	return f.mark.advance(f.num, f.written)
}

// SyncData implements vfs.File.
func (f *manifestFile) SyncData() error { return f.Sync() }

// checkManifest refuses a directory whose MANIFEST is shorter than it was, or
// of which a marker file is missing.
func checkManifest(fsys vfs.FS, dir string) error {
	mark, marked, err := disk.ReadMark(fsys, dir, manifestMarkName)
	if err != nil {
		return wrap("read "+manifestMarkName, err)
	}
	names, err := fsys.List(fsys.PathJoin(dir, pebbleName))
	if err != nil {
		return wrap("list Pebble's files", err)
	}
	name, num := currentManifest(names)
	switch {
	case name == "" && marked:
		return disk.Corruptf("%s/%s* is missing, which names %s%06d", pebbleName, markerPrefix,
			manifestPrefix, mark.File)
	case name == "":
		return nil // a new database
	case marked && num < mark.File:
		return disk.Corruptf("%s/%s* that names %s%06d is missing", pebbleName, markerPrefix, manifestPrefix,
			mark.File)
	}
	path := fsys.PathJoin(dir, pebbleName, name)
	if _, err := fsys.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return disk.Corruptf("%s/%s is missing", pebbleName, name)
	}
	tail, err := scanManifest(fsys, path)
	if err != nil {
		return wrap("scan "+name, err)
	}
	same := marked && num == mark.File
	if same && tail.Valid < mark.Offset || !same && tail.Stray > 0 {
		return disk.Corruptf("%s/%s is damaged at byte %d", pebbleName, name, tail.Valid)
	}
	return nil
}

// currentManifest finds the MANIFEST that the newest marker file names.
func currentManifest(names []string) (name string, num uint64) {
	newest := -1
	for _, n := range names {
		rest, ok := strings.CutPrefix(n, markerPrefix)
		if !ok {
			continue
		}
		iteration, target, _ := strings.Cut(rest, ".")
		i, err := strconv.Atoi(iteration)
		if no, ok := manifestNumber(target); ok && err == nil && i > newest {
			newest, name, num = i, target, no
		}
	}
	return name, num
}

// blame names the damaged file where Pebble's error does not, and calls damage
// what Pebble does not: a file that is missing or of another size. An error of
// the disk itself, in contrast, may go away.
func blame(fsys vfs.FS, dir string, err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) && errno != syscall.ENOENT || errors.Is(err, errPanic) {
		return err
	}
	err = fmt.Errorf("%w: %w", ErrCorrupt, err)
	if errors.Is(err, pebble.ErrDBNotPristine) {
		return fmt.Errorf("%s/%s* is missing: %w", pebbleName, formatPrefix, err)
	}
	names, listErr := fsys.List(fsys.PathJoin(dir, pebbleName))
	if listErr != nil {
		return err
	}
	for _, name := range names {
		path := fsys.PathJoin(dir, pebbleName, name)
		if strings.HasPrefix(name, "OPTIONS-") {
			if b, readErr := disk.ReadFile(fsys, path, 1<<20); readErr == nil && !readableOptions(string(b)) {
				err = fmt.Errorf("%s/%s: %w", pebbleName, name, err)
			}
		}
	}
	return err
}

func readableOptions(text string) bool {
	o := new(pebble.Options)
	o.EnsureDefaults()
	return o.CheckCompatibility("", text) == nil
}

// manifestHeader is the size of a chunk's header: checksum, length and type, as
// Pebble's package record describes it.
const manifestHeader = 4 + 2 + 1

// parseChunk judges the chunk of a MANIFEST at the start of b, the rest of a block.
func parseChunk(b []byte, _ int64) disk.Chunk {
	bad := disk.Chunk{Kind: disk.Bad}
	if len(b) < manifestHeader {
		return disk.Chunk{Kind: disk.Padding}
	}
	sum, part := binary.LittleEndian.Uint32(b), disk.Part(b[6])
	size := manifestHeader + int(binary.LittleEndian.Uint16(b[4:]))
	if part < disk.Full || part > disk.Last || size > len(b) {
		return bad
	}
	if sum != maskedCRC(b[6:size]) {
		bad.Size = size // its header looks right, so the next one can be found
		return bad
	}
	return disk.Chunk{Kind: disk.Valid, Part: part, Header: manifestHeader, Size: size}
}

// maskedCRC is the checksum of LevelDB's log format: CRC-32C, rotated and
// offset so that a checksum over data that holds checksums stays strong.
func maskedCRC(b []byte) uint32 {
	c := crc32.Checksum(b, disk.Castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}

func scanManifest(fsys vfs.FS, path string) (disk.Tail, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return disk.Tail{}, err
	}
	t, err := disk.Scan(f, 0, parseChunk, func(disk.Part, int64, []byte) {})
	return t, errors.Join(err, f.Close())
}

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
