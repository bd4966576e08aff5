package persistence

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
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

// newMeta describes a directory that is about to be created.
func newMeta(partitions int) (Meta, error) {
	var seed [8]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return Meta{}, fmt.Errorf("draw a seed: %w", err)
	}
	return Meta{Format: format, Partitions: partitions, Seed: binary.BigEndian.Uint64(seed[:])}, nil
}

// encode returns the bytes of the META file.
func (m Meta) encode() []byte {
	b := fmt.Appendf(nil, "%s\nformat %d\npartitions %d\nseed %016x\n", metaMagic, m.Format, m.Partitions, m.Seed)
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
	if m.Format != format || len(lines) != 5 {
		return Meta{}, disk.Corruptf("%s has format %d with %d lines", metaName, m.Format, len(lines))
	}
	if m.Partitions, err = metaField(lines[2], "partitions", 10); err != nil {
		return Meta{}, err
	}
	if !validPartitions(m.Partitions) {
		return Meta{}, disk.Corruptf("%s says %d partitions", metaName, m.Partitions)
	}
	digits, ok := strings.CutPrefix(lines[3], "seed ")
	if m.Seed, err = strconv.ParseUint(digits, 16, 64); !ok || err != nil {
		return Meta{}, disk.Corruptf("%s has no seed", metaName)
	}
	if !bytes.Equal(m.encode(), b) {
		return Meta{}, disk.Corruptf("%s is not in its canonical form", metaName)
	}
	return m, nil
}

func metaField(line, name string, base int) (int, error) {
	digits, ok := strings.CutPrefix(line, name+" ")
	n, err := strconv.ParseInt(digits, base, 32)
	if !ok || err != nil {
		return 0, disk.Corruptf("%s has no %s", metaName, name)
	}
	return int(n), nil
}
