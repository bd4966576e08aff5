package persistence

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A mark says up to where a file of a log is really on the disk, and whether its
// Syncs were lazy (Everysec and No): LOGSYNC of the op log, MANISYNC of Pebble's
// MANIFEST, which is never lazy. What lies before the mark may not be
// damaged. What lies after it may be lost in a power loss, and under a lazy
// policy, since pages reach the disk in any order, have holes with valid records
// behind them.
//
// The mark is written after each real fsync and not itself fsynced: a mark
// that lags behind is still true. Only a change of the policy is fsynced.
//
// The file has two slots on different pages, written in turns and in place,
// so that a torn write leaves the other one.
const (
	logMarkName     = "LOGSYNC"
	walMarkMagic    = "fbfkvwal"
	walMarkSlot     = 40
	walMarkPage     = 4096
	walMarkFileSize = walMarkPage + walMarkSlot
)

// walPosition says that file number File is durable up to Offset, and all
// files with lower numbers wholly.
type walPosition struct {
	generation uint64
	File       uint64
	Offset     int64
	// Lazy is true while a Sync may return before the fsync.
	Lazy bool
}

// encode returns one slot.
func (p walPosition) encode() (b [walMarkSlot]byte) {
	p.put(&b)
	return b
}

// put writes one slot to memory that is on the heap already: the checksum's
// function takes it there.
func (p walPosition) put(b *[walMarkSlot]byte) {
	*b = [walMarkSlot]byte{}
	copy(b[:], walMarkMagic)
	binary.BigEndian.PutUint64(b[8:], p.generation)
	binary.BigEndian.PutUint64(b[16:], p.File)
	binary.BigEndian.PutUint64(b[24:], uint64(p.Offset))
	if p.Lazy {
		binary.BigEndian.PutUint32(b[32:], 1)
	}
	binary.BigEndian.PutUint32(b[36:], crc32.Checksum(b[:36], castagnoli))
}

func decodeWALPosition(b []byte) (walPosition, bool) {
	if len(b) < walMarkSlot || string(b[:8]) != walMarkMagic ||
		binary.BigEndian.Uint32(b[36:]) != crc32.Checksum(b[:36], castagnoli) {
		return walPosition{}, false
	}
	p := walPosition{
		generation: binary.BigEndian.Uint64(b[8:]),
		File:       binary.BigEndian.Uint64(b[16:]),
		Offset:     int64(binary.BigEndian.Uint64(b[24:])),
		Lazy:       binary.BigEndian.Uint32(b[32:]) == 1,
	}
	return p, p.Offset >= 0 && binary.BigEndian.Uint32(b[32:]) <= 1
}

// decodeWALMark returns the newer valid slot.
func decodeWALMark(b []byte) (walPosition, error) {
	if len(b) != walMarkFileSize {
		return walPosition{}, corruptf("size %d", len(b))
	}
	p, ok := decodeWALPosition(b)
	q, ok2 := decodeWALPosition(b[walMarkPage:])
	switch {
	case !ok && !ok2:
		return walPosition{}, corruptf("two bad checksums")
	case !ok || ok2 && q.generation > p.generation:
		return q, nil
	}
	return p, nil
}

// readMark reads LOGSYNC or MANISYNC; ok is false when there is none.
func readMark(fsys vfs.FS, dir, name string) (p walPosition, ok bool, err error) {
	b, err := readFile(fsys, fsys.PathJoin(dir, name), walMarkFileSize)
	if errors.Is(err, fs.ErrNotExist) {
		return walPosition{}, false, nil
	}
	if err != nil {
		return walPosition{}, false, err
	}
	if p, err = decodeWALMark(b); err != nil {
		err = fmt.Errorf("%s has no valid slot: %w", name, err)
	}
	return p, err == nil, err
}

// walMark writes the mark. Safe for concurrent use.
type walMark struct {
	fs   vfs.FS
	dir  string
	name string // of the file: LOGSYNC or MANISYNC

	mu   sync.Mutex
	file vfs.File // nil before the first setPolicy
	last walPosition
	slot [walMarkSlot]byte // being written; a field to spare an allocation
}

// setPolicy durably says whether Syncs are lazy from now on, and where the log
// stands.
func (m *walMark) setPolicy(lazy bool, file uint64, offset int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last.Lazy = lazy
	if m.file == nil {
		return m.create(file, offset)
	}
	if err := m.write(file, offset); err != nil {
		return err
	}
	return m.file.SyncData()
}

// create replaces the mark of an earlier run.
func (m *walMark) create(file uint64, offset int64) error {
	m.last.generation, m.last.File, m.last.Offset = 1, file, max(offset, 0)
	content := make([]byte, walMarkFileSize)
	slot := m.last.encode()
	copy(content, slot[:])
	copy(content[walMarkPage:], slot[:])
	if err := writeFile(m.fs, m.dir, m.name, content); err != nil {
		return err
	}
	f, err := m.fs.OpenReadWrite(m.fs.PathJoin(m.dir, m.name), writeCategory)
	if err == nil {
		m.file = f
	}
	return err
}

// set moves the mark, once there is one.
func (m *walMark) set(file uint64, offset int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.file == nil {
		return nil
	}
	return m.write(file, offset)
}

func (m *walMark) write(file uint64, offset int64) error {
	m.last.generation++
	m.last.File, m.last.Offset = file, max(offset, 0)
	m.last.put(&m.slot)
	_, err := m.file.WriteAt(m.slot[:], int64(m.last.generation%2)*walMarkPage)
	return err
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
