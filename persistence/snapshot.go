package persistence

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sort"
	"strconv"
	"strings"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

// A snapshot file is a header, data frames and an end frame; nothing follows.
//
//	header     magic "fbfkvsnp", version u16, partition u16, seq u64, CRC u32
//	data frame length u32 (1..256 KiB), CRC u32, payload
//	end frame  length u32 = 0, CRC u32, total u64: bytes in all payloads
//
// Integers are big endian. Each CRC is a CRC-32C that continues from the one
// before it (header, then frame by frame) over everything else in its header or
// frame, so frames that are swapped, repeated or taken from another file do not
// pass.
const (
	snapshotMagic      = "fbfkvsnp"
	snapshotVersion    = 1
	snapshotHeaderSize = 8 + 2 + 2 + 8 + 4
	frameHeaderSize    = 4 + 4
	frameMaxSize       = 256 << 10
	snapshotsKept      = 2
	snapshotSuffix     = ".fbf"
)

// Snapshot is a published snapshot file.
type Snapshot struct {
	// Partition and Seq name it: the state is that of Partition at Seq.
	Partition uint16
	Seq       uint64
	// Path is where it is.
	Path string
	// Bytes is its size on disk.
	Bytes int64
}

func snapshotFile(partition uint16, seq uint64) string {
	return fmt.Sprintf("p%04d-%020d%s", partition, seq, snapshotSuffix)
}

// parseSnapshotFile is the inverse of snapshotFile.
func parseSnapshotFile(name string) (partition uint16, seq uint64, ok bool) {
	rest, ok := strings.CutPrefix(name, "p")
	if !ok {
		return 0, 0, false
	}
	rest, ok = strings.CutSuffix(rest, snapshotSuffix)
	if !ok {
		return 0, 0, false
	}
	p, s, ok := strings.Cut(rest, "-")
	if !ok {
		return 0, 0, false
	}
	p64, err := strconv.ParseUint(p, 10, 16)
	if err != nil {
		return 0, 0, false
	}
	if seq, err = strconv.ParseUint(s, 10, 64); err != nil {
		return 0, 0, false
	}
	return uint16(p64), seq, snapshotFile(uint16(p64), seq) == name
}

// encodeSnapshotHeader returns the header and its CRC, on which the frames' go on.
func encodeSnapshotHeader(partition uint16, seq uint64) ([]byte, uint32) {
	b := make([]byte, 0, snapshotHeaderSize)
	b = append(b, snapshotMagic...)
	b = binary.BigEndian.AppendUint16(b, snapshotVersion)
	b = binary.BigEndian.AppendUint16(b, partition)
	b = binary.BigEndian.AppendUint64(b, seq)
	sum := crc32.Checksum(b, disk.Castagnoli)
	return binary.BigEndian.AppendUint32(b, sum), sum
}

// frameSum continues the chain of checksums.
func frameSum(sum uint32, length [4]byte, payload []byte) uint32 {
	return crc32.Update(crc32.Update(sum, disk.Castagnoli, length[:]), disk.Castagnoli, payload)
}

// Snapshots lists the partition's published snapshots, newest first. It does
// not look inside: OpenSnapshot and reading to the end do.
func (db *DB) Snapshots(partition uint16) ([]Snapshot, error) {
	const doing = "list snapshots"
	names, err := db.fs.List(db.path(snapshotName))
	if err != nil {
		return nil, wrap(doing, err)
	}
	var list []Snapshot
	for _, name := range names {
		p, seq, ok := parseSnapshotFile(name)
		if !ok || p != partition {
			continue
		}
		path := db.path(snapshotName, name)
		info, err := db.fs.Stat(path)
		if err != nil {
			return nil, wrap(doing, err)
		}
		list = append(list, Snapshot{Partition: p, Seq: seq, Path: path, Bytes: info.Size()})
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Seq > list[j].Seq })
	return list, nil
}

// damagedSuffix marks a snapshot that was found damaged. It counts no longer.
const damagedSuffix = ".damaged"

// SetAside renames a snapshot that cannot be used, so that it is not kept in
// the place of a good one. The file stays for whoever wants to look at it.
func (db *DB) SetAside(s Snapshot) error {
	err := db.fs.Rename(s.Path, s.Path+damagedSuffix)
	if err == nil {
		err = disk.SyncDir(db.fs, db.path(snapshotName))
	}
	return wrap("set a damaged snapshot aside", err)
}
