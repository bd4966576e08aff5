package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/internal/longlock"
)

// The file of a mark has two slots on different pages, written in turns and in place,
// so that a torn write leaves the other one.
const (
	markMagic = "fbfkvsyn"
	markSlot  = 40
	// MarkPage is where the second slot begins, MarkFileSize the size of the file.
	MarkPage     = 4096
	MarkFileSize = MarkPage + markSlot
)

// Mark says up to where a file that grows is really on the disk, file number File up
// to Offset, and that all files with lower numbers are, wholly: LOGSYNC of the op log,
// MANISYNC of Pebble's MANIFEST. Bytes before the mark may not be damaged. Bytes after it may be
// lost in a power loss, and if fsyncs are lazy, since pages reach the disk in any order, have holes
// with whole records behind them.
//
// The mark is written after each real fsync and not itself fsynced: a mark
// that lags behind is still true. Only a change of Lazy is fsynced.
type Mark struct {
	generation uint64
	File       uint64
	Offset     int64
	// Lazy is true while a Sync may return before the fsync: under everysec and no.
	Lazy bool
}

// Durable returns how many bytes of a file are known to be on the disk.
func (p Mark) Durable(file uint64) int64 {
	switch {
	case file < p.File:
		return math.MaxInt64
	case file == p.File:
		return p.Offset
	}
	return 0
}

// put writes a slot, to memory that is on the heap already: the checksum's function
// takes it there.
func (p Mark) put(b *[markSlot]byte) {
	*b = [markSlot]byte{}
	copy(b[:], markMagic)
	binary.BigEndian.PutUint64(b[8:], p.generation)
	binary.BigEndian.PutUint64(b[16:], p.File)
	binary.BigEndian.PutUint64(b[24:], uint64(p.Offset))
	if p.Lazy {
		binary.BigEndian.PutUint32(b[32:], 1)
	}
	binary.BigEndian.PutUint32(b[36:], crc32.Checksum(b[:36], Castagnoli))
}

func decodeSlot(b []byte) (Mark, bool) {
	if len(b) < markSlot || string(b[:8]) != markMagic ||
		binary.BigEndian.Uint32(b[36:]) != crc32.Checksum(b[:36], Castagnoli) {
		return Mark{}, false
	}
	p := Mark{
		generation: binary.BigEndian.Uint64(b[8:]),
		File:       binary.BigEndian.Uint64(b[16:]),
		Offset:     int64(binary.BigEndian.Uint64(b[24:])),
		Lazy:       binary.BigEndian.Uint32(b[32:]) == 1,
	}
	return p, p.Offset >= 0 && binary.BigEndian.Uint32(b[32:]) <= 1
}

// decodeMark returns the newer valid slot.
func decodeMark(b []byte) (Mark, error) {
	if len(b) != MarkFileSize {
		return Mark{}, Corruptf("size %d", len(b))
	}
	p, ok := decodeSlot(b)
	q, ok2 := decodeSlot(b[MarkPage:])
	switch {
	case !ok && !ok2:
		return Mark{}, Corruptf("two bad checksums")
	case !ok || ok2 && q.generation > p.generation:
		return q, nil
	}
	return p, nil
}

// ReadMark reads a mark; ok is false when there is none.
func ReadMark(fsys vfs.FS, dir, name string) (p Mark, ok bool, err error) {
	b, err := ReadFile(fsys, fsys.PathJoin(dir, name), MarkFileSize)
	if errors.Is(err, fs.ErrNotExist) {
		return Mark{}, false, nil
	}
	if err != nil {
		return Mark{}, false, err
	}
	if p, err = decodeMark(b); err != nil {
		err = fmt.Errorf("%s has no valid slot: %w", name, err)
	}
	return p, err == nil, err
}

// MarkFile writes a mark. Only FS, Dir and Name, of the file, are given. Safe for
// concurrent use.
type MarkFile struct {
	FS   vfs.FS
	Dir  string
	Name string

	mu   longlock.Mutex // held over fsyncs
	file vfs.File       // nil before it is created
	last Mark
	slot [markSlot]byte // being written; a field to spare an allocation
}

// SetLazy durably says whether Syncs are lazy from now on, and up to where which file
// is durable.
func (m *MarkFile) SetLazy(lazy bool, file uint64, offset int64) error {
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

// Create durably replaces the mark of an earlier run.
func (m *MarkFile) Create(file uint64, offset int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.create(file, offset)
}

func (m *MarkFile) create(file uint64, offset int64) error {
	m.last.generation, m.last.File, m.last.Offset = 1, file, max(offset, 0)
	content := make([]byte, MarkFileSize)
	m.last.put(&m.slot)
	copy(content, m.slot[:])
	copy(content[MarkPage:], m.slot[:])
	if err := WriteFile(m.FS, m.Dir, m.Name, content); err != nil {
		return err
	}
	f, err := m.FS.OpenReadWrite(m.FS.PathJoin(m.Dir, m.Name), WriteCategory)
	if err == nil {
		m.file = f
	}
	return err
}

// Set moves the mark, once there is one.
func (m *MarkFile) Set(file uint64, offset int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.file == nil {
		return nil
	}
	return m.write(file, offset)
}

// Created reports whether the mark was created.
func (m *MarkFile) Created() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.file != nil
}

func (m *MarkFile) write(file uint64, offset int64) error {
	m.last.generation++
	m.last.File, m.last.Offset = file, max(offset, 0)
	m.last.put(&m.slot)
	_, err := m.file.WriteAt(m.slot[:], int64(m.last.generation%2)*MarkPage)
	return err
}

// Close closes the file.
func (m *MarkFile) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.file == nil {
		return nil
	}
	err := m.file.Close()
	m.file = nil
	return err
}
