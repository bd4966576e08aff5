package persistence

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The WAL mark, file WALSYNC, exists while Syncs of the WAL are lazy (Everysec
// and No). It says up to where a WAL file is really on the disk: what lies
// before may not be damaged, what lies after may be lost or, since pages reach
// the disk in any order, have holes after a power loss. Pebble cannot know: it
// stamps later WAL chunks with the offset that it believes is synced, and
// would refuse to open because of a hole although nothing promised was lost.
//
// The file has two slots on different pages, written in turns and in place,
// so that a torn write leaves the other one.
const (
	walMarkName     = "WALSYNC"
	walMarkMagic    = "fbfkvwal"
	walMarkSlot     = 36
	walMarkPage     = 4096
	walMarkFileSize = walMarkPage + walMarkSlot
)

// walPosition says that WAL file number File is durable up to Offset, and all
// files with lower numbers wholly.
type walPosition struct {
	generation uint64
	File       uint64
	Offset     int64
}

// encode returns one slot.
func (p walPosition) encode() [walMarkSlot]byte {
	var b [walMarkSlot]byte
	copy(b[:], walMarkMagic)
	binary.BigEndian.PutUint64(b[8:], p.generation)
	binary.BigEndian.PutUint64(b[16:], p.File)
	binary.BigEndian.PutUint64(b[24:], uint64(p.Offset))
	binary.BigEndian.PutUint32(b[32:], crc32.Checksum(b[:32], castagnoli))
	return b
}

func decodeWALPosition(b []byte) (walPosition, bool) {
	if len(b) < walMarkSlot || string(b[:8]) != walMarkMagic ||
		binary.BigEndian.Uint32(b[32:]) != crc32.Checksum(b[:32], castagnoli) {
		return walPosition{}, false
	}
	p := walPosition{
		generation: binary.BigEndian.Uint64(b[8:]),
		File:       binary.BigEndian.Uint64(b[16:]),
		Offset:     int64(binary.BigEndian.Uint64(b[24:])),
	}
	return p, p.Offset >= 0
}

// decodeWALMark returns the newer valid slot.
func decodeWALMark(b []byte) (walPosition, error) {
	if len(b) != walMarkFileSize {
		return walPosition{}, corruptf("%s has %d bytes", walMarkName, len(b))
	}
	p, ok := decodeWALPosition(b)
	q, ok2 := decodeWALPosition(b[walMarkPage:])
	switch {
	case !ok && !ok2:
		return walPosition{}, corruptf("%s has no valid slot", walMarkName)
	case !ok || ok2 && q.generation > p.generation:
		return q, nil
	}
	return p, nil
}

// readWALMark reads the mark; ok is false when there is none.
func readWALMark(fsys vfs.FS, dir string) (p walPosition, ok bool, err error) {
	b, err := readFile(fsys, fsys.PathJoin(dir, walMarkName), walMarkFileSize)
	if errors.Is(err, fs.ErrNotExist) {
		return walPosition{}, false, nil
	}
	if err != nil {
		return walPosition{}, false, err
	}
	p, err = decodeWALMark(b)
	return p, err == nil, err
}

// walMark writes the mark. Safe for concurrent use.
type walMark struct {
	fs  vfs.FS
	dir string

	mu   sync.Mutex
	file vfs.File // nil while there is no mark
	last walPosition
}

// create writes the mark, unless it exists already.
func (m *walMark) create(file uint64, offset int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.file != nil {
		return nil
	}
	m.last = walPosition{generation: 1, File: file, Offset: max(offset, 0)}
	content := make([]byte, walMarkFileSize)
	slot := m.last.encode()
	copy(content, slot[:])
	copy(content[walMarkPage:], slot[:])
	if err := writeFile(m.fs, m.dir, walMarkName, content); err != nil {
		return err
	}
	f, err := m.fs.OpenReadWrite(m.fs.PathJoin(m.dir, walMarkName), writeCategory)
	m.file = f
	return err
}

// set durably moves the mark, if there is one.
func (m *walMark) set(file uint64, offset int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.file == nil {
		return nil
	}
	m.last = walPosition{generation: m.last.generation + 1, File: file, Offset: offset}
	slot := m.last.encode()
	if _, err := m.file.WriteAt(slot[:], int64(m.last.generation%2)*walMarkPage); err != nil {
		return err
	}
	return m.file.SyncData()
}

// remove durably deletes the mark, also one left by an earlier run.
func (m *walMark) remove() error {
	err := m.close()
	err = errors.Join(err, removeIfExists(m.fs, m.fs.PathJoin(m.dir, walMarkName)))
	if err != nil {
		return err
	}
	return syncDir(m.fs, m.dir)
}

func (m *walMark) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.file == nil {
		return nil
	}
	err := m.file.Close()
	m.file = nil
	return err
}
