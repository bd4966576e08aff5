package persistence

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

// Meta is what a data directory fixes at its creation.
type Meta struct {
	// Format is the version of the directory's layout, see FORMAT.md.
	Format int
	// Partitions is a power of two, 1..1024.
	Partitions int
	// Seed keys the hashes, so that clients cannot choose colliding keys.
	Seed uint64
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

// newMeta describes a directory that is about to be created. A seed of 0 is drawn.
func newMeta(partitions int, seed uint64) (Meta, error) {
	m := Meta{Format: format, Partitions: partitions, Seed: seed}
	_, err := rand.Read(m.ID[:])
	if err == nil && seed == 0 {
		m.Seed, err = drawNumber()
	}
	return m, wrap("draw a seed", err)
}

// copied describes a copy of the directory.
func (m Meta) copied() (Meta, error) {
	was := m.Incarnation
	for err := error(nil); m.Incarnation == was || m.Incarnation == 0; {
		if m.Incarnation, err = drawNumber(); err != nil {
			return m, fmt.Errorf("draw an incarnation: %w", err)
		}
	}
	return m, nil
}

func drawNumber() (uint64, error) {
	var b [8]byte
	_, err := rand.Read(b[:])
	return binary.BigEndian.Uint64(b[:]), err
}

// encode returns the bytes of the META file.
func (m Meta) encode() []byte {
	b := fmt.Appendf(nil, "%s\nformat %d\npartitions %d\nseed %016x\nid %x\nincarnation %016x\n", metaMagic, m.Format, m.Partitions, m.Seed, m.ID, m.Incarnation)
	return fmt.Appendf(b, "checksum %08x\n", crc32.Checksum(b, disk.Castagnoli))
}

// decodeMeta reads the bytes of a META file: ErrCorrupt, ErrNewerFormat or
// ErrOldFormat.
func decodeMeta(b []byte) (Meta, error) {
	if len(b) > metaMaxSize {
		return Meta{}, disk.Corruptf("%s is longer than a page", metaName)
	}
	end := bytes.LastIndex(b, []byte("checksum "))
	if end < 0 || string(b[end:]) != fmt.Sprintf("checksum %08x\n", crc32.Checksum(b[:end], disk.Castagnoli)) {
		return Meta{}, disk.Corruptf("%s does not match its checksum", metaName)
	}
	lines := strings.Split(string(b[:end]), "\n")
	if lines[0] == metaMagicOld {
		return Meta{}, ErrOldFormat
	}
	if len(lines) < 2 || lines[0] != metaMagic {
		return Meta{}, disk.Corruptf("%s has no magic line", metaName)
	}
	var m Meta
	var err error
	if m.Format, err = metaField(lines[1], "format", 10); err != nil {
		return Meta{}, err
	}
	if m.Format > format {
		return Meta{}, fmt.Errorf("%w: format %d, this release reads up to %d", ErrNewerFormat, m.Format, format)
	}
	if m.Format != format || len(lines) != 7 {
		return Meta{}, disk.Corruptf("%s has format %d with %d lines", metaName, m.Format, len(lines))
	}
	if m.Partitions, err = metaField(lines[2], "partitions", 10); err != nil {
		return Meta{}, err
	}
	if !validPartitions(m.Partitions) {
		return Meta{}, disk.Corruptf("%s says %d partitions", metaName, m.Partitions)
	}
	if m.Seed, err = metaHex(lines[3], "seed"); err != nil {
		return Meta{}, err
	}
	digits, _ := strings.CutPrefix(lines[4], "id ")
	if n, err := hex.Decode(m.ID[:], []byte(digits[:min(len(digits), 2*len(m.ID))])); n != len(m.ID) || err != nil {
		return Meta{}, disk.Corruptf("%s has no id", metaName)
	}
	if m.Incarnation, err = metaHex(lines[5], "incarnation"); err != nil {
		return Meta{}, err
	}
	if !bytes.Equal(m.encode(), b) {
		return Meta{}, disk.Corruptf("%s is not in its canonical form", metaName)
	}
	return m, nil
}

func metaHex(line, name string) (uint64, error) {
	digits, ok := strings.CutPrefix(line, name+" ")
	n, err := strconv.ParseUint(digits, 16, 64)
	if !ok || err != nil {
		return 0, disk.Corruptf("%s has no %s", metaName, name)
	}
	return n, nil
}

func metaField(line, name string, base int) (int, error) {
	digits, ok := strings.CutPrefix(line, name+" ")
	n, err := strconv.ParseInt(digits, base, 32)
	if !ok || err != nil {
		return 0, disk.Corruptf("%s has no %s", metaName, name)
	}
	return int(n), nil
}
