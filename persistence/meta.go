package persistence

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

// Meta is what a data directory fixes at its creation.
type Meta struct {
	// Format is the version of the directory's layout, see FORMAT.md.
	Format int
	// Partitions is a power of two, 1..1024.
	Partitions int
	// Seed is the secret of the keyed hashes, so that clients cannot compute ids and keys that
	// collide.
	Seed [16]byte
	// ID is of the data: drawn when it began to exist, the same in all its copies.
	ID [16]byte
	// Incarnation tells copies apart: it is 0 where the data began to exist, and drawn
	// anew by each Backup and each Restore. Together with ID it names a directory. A copy
	// that was made by other means has its original's.
	Incarnation uint64
}

// format is the layout that this code reads and writes.
const format = 1

// META is text, so that a person can read it: one line for the magic, one
// "name value" line for each field in this order, and a checksum line, which
// is the CRC-32C of all bytes before it. Later formats keep the magic, the
// format line and the checksum line. Development versions had another magic.
const (
	metaName     = "META"
	metaMagic    = "fbfkv store"
	metaMagicOld = "fbfkv data directory"
	metaMaxSize  = 4096
)

// newMeta describes a directory that is about to be created. A seed of
// zeros is drawn.
func newMeta(partitions int, seed [16]byte) Meta {
	m := Meta{Format: format, Partitions: partitions, Seed: seed}
	rand.Read(m.ID[:]) // never fails
	if seed == [16]byte{} {
		rand.Read(m.Seed[:])
	}
	return m
}

// copied describes a copy of the directory.
func (m Meta) copied() Meta {
	for was := m.Incarnation; m.Incarnation == was || m.Incarnation == 0; {
		m.Incarnation = drawNumber()
	}
	return m
}

func drawNumber() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return binary.BigEndian.Uint64(b[:])
}

// encode returns the bytes of the META file.
func (m Meta) encode() []byte {
	b := fmt.Appendf(nil, "%s\nformat %d\npartitions %d\nseed %x\nid %x\nincarnation %016x\n", metaMagic,
		m.Format, m.Partitions, m.Seed, m.ID, m.Incarnation)
	return fmt.Appendf(b, "checksum %08x\n", crc32.Checksum(b, disk.Castagnoli))
}

// decodeMeta reads the bytes of a META file: ErrCorrupt, ErrNewerFormat or
// ErrOldFormat.
func decodeMeta(b []byte) (Meta, error) {
	if len(b) > metaMaxSize {
		return Meta{}, disk.Corruptf("%s is longer than a page", metaName)
	}
	end := bytes.LastIndex(b, []byte("checksum "))
	if end < 0 ||
		string(b[end:]) != fmt.Sprintf("checksum %08x\n", crc32.Checksum(b[:end], disk.Castagnoli)) {
		return Meta{}, disk.Corruptf("%s does not match its checksum", metaName)
	}
	magic, fields, _ := strings.Cut(string(b[:end]), "\n")
	var m Meta
	var seed, id []byte
	switch _, err := fmt.Sscanf(fields, "format %d\n", &m.Format); {
	case magic == metaMagicOld:
		return Meta{}, ErrOldFormat
	case magic != metaMagic || err != nil:
		return Meta{}, disk.Corruptf("%s has no magic line, or no format", metaName)
	case m.Format > format:
		return Meta{}, fmt.Errorf("%w: format %d, this release reads up to %d", ErrNewerFormat, m.Format,
			format)
	}
	_, err := fmt.Sscanf(fields, "format %d\npartitions %d\nseed %x\nid %x\nincarnation %x\n", &m.Format,
		&m.Partitions, &seed, &id, &m.Incarnation)
	copy(m.Seed[:], seed)
	copy(m.ID[:], id)
	switch {
	case err != nil || m.Format != format || !bytes.Equal(m.encode(), b):
		return Meta{}, disk.Corruptf("%s is not in its canonical form", metaName)
	case !validPartitions(m.Partitions):
		return Meta{}, disk.Corruptf("%s says %d partitions", metaName, m.Partitions)
	}
	return m, nil
}
