package persistence

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

// A run file holds records in blocks, then an index of the blocks, then a
// footer; FORMAT.md has the bytes. Everything is under a checksum, and nothing
// in it is ever changed.
const (
	runMagic       = "fbfkvrun"
	runFileVersion = 1
	// runBlockSize is how large blocks are on average. A look-up reads one:
	// copying it out of the page cache, its checksum and the search are what
	// grows with it, the index in memory, 2.25 bytes a block, what grows without.
	runBlockSize  = 512
	runBlockSum   = 4 // the block's CRC, behind its records
	runIndexEntry = 5 // in the file: where the block ends
	maxRunBytes   = 1<<(8*runIndexEntry) - 1
	minRunRecord  = 8 + 4 + 1 // hash, usual sequence, length of a small value
	runFooterSize = 8 + 2 + 2 + 4 + 8 + 4*8 + 4 + 4
)

// runFileName names a run's file.
func runFileName(r Run) string {
	return fmt.Sprintf("p%04d-t%010d-%020d.run", r.Partition, r.Table, r.ID)
}

// decodeRunIndex reads a file's index. size is the length of the part of the
// file that holds the blocks.
func decodeRunIndex(b []byte, size uint64) (runIndex, error) {
	x := newRunIndex(len(b) / runIndexEntry)
	var at uint64
	for i := range x.n {
		end := decodeRunIndexEntry(b[i*runIndexEntry:])
		if end > size || end < at+runBlockSum+1 && end != at {
			return runIndex{}, disk.Corruptf("the run's index is out of order")
		}
		x.setEnd(i, end)
		at = end
	}
	if at != size {
		return runIndex{}, disk.Corruptf("the run's blocks end at %d instead of %d", at, size)
	}
	return x, nil
}

// runFooter is the end of a run file.
type runFooter struct {
	run    Run    // Partition, Table, ID, Count and Bytes
	blocks uint64 // how many
	index  uint64 // where the index begins
	sum    uint32 // CRC of the index
}

func (f runFooter) appendTo(b []byte) []byte {
	at := len(b)
	b = append(b, runMagic...)
	b = binary.BigEndian.AppendUint16(b, runFileVersion)
	b = binary.BigEndian.AppendUint16(b, f.run.Partition)
	b = binary.BigEndian.AppendUint32(b, f.run.Table)
	for _, v := range [...]uint64{f.run.ID, f.run.Count, f.run.Bytes, f.blocks, f.index} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	b = binary.BigEndian.AppendUint32(b, f.sum)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[at:], disk.Castagnoli))
}

// decodeRunFooter is the inverse of appendTo; size is the file's.
func decodeRunFooter(b []byte, size int64) (f runFooter, err error) {
	if len(b) != runFooterSize || string(b[:8]) != runMagic {
		return f, disk.Corruptf("the run has no footer")
	}
	sum := len(b) - 4
	if crc32.Checksum(b[:sum], disk.Castagnoli) != binary.BigEndian.Uint32(b[sum:]) {
		return f, disk.Corruptf("the run's footer does not match its checksum")
	}
	if version := binary.BigEndian.Uint16(b[8:]); version != runFileVersion {
		return f, disk.Corruptf("a run of version %d", version)
	}
	u64 := func(i int) uint64 { return binary.BigEndian.Uint64(b[16+8*i:]) }
	f = runFooter{
		run: Run{
			Partition: binary.BigEndian.Uint16(b[10:]), Table: binary.BigEndian.Uint32(b[12:]),
			ID: u64(0), Count: u64(1), Bytes: u64(2),
		},
		blocks: u64(3), index: u64(4), sum: binary.BigEndian.Uint32(b[56:]),
	}
	rest := uint64(size) - runFooterSize
	if f.index > rest || f.blocks != (rest-f.index)/runIndexEntry || f.index+f.blocks*runIndexEntry != rest {
		return f, disk.Corruptf("the run's footer does not fit its size of %d bytes", size)
	}
	return f, nil
}

// readRunIndex reads footer and index of a run file and holds them to the
// header row.
func readRunIndex(f io.ReaderAt, size int64, want Run) (runIndex, error) {
	if size < runFooterSize {
		return runIndex{}, disk.Corruptf("a run of %d bytes", size)
	}
	b := make([]byte, runFooterSize)
	if err := readAt(f, b, uint64(size)-runFooterSize); err != nil {
		return runIndex{}, err
	}
	footer, err := decodeRunFooter(b, size)
	if err != nil {
		return runIndex{}, err
	}
	got := footer.run
	if got.Partition != want.Partition || got.Table != want.Table || got.ID != want.ID ||
		got.Count != want.Count || got.Bytes != want.Bytes {
		return runIndex{}, disk.Corruptf("the run is not the one that its header row names")
	}
	b = make([]byte, int(footer.blocks)*runIndexEntry)
	if err := readAt(f, b, footer.index); err != nil {
		return runIndex{}, err
	}
	if crc32.Checksum(b, disk.Castagnoli) != footer.sum {
		return runIndex{}, disk.Corruptf("the run's index does not match its checksum")
	}
	return decodeRunIndex(b, footer.index)
}

// readAt fills b; the end of the file is damage.
func readAt(f io.ReaderAt, b []byte, off uint64) error {
	n, err := f.ReadAt(b, int64(off))
	if n == len(b) {
		return nil
	}
	if err == io.EOF {
		return disk.Corruptf("the run is truncated")
	}
	return err
}

// checkRunBlock returns a block's records, which its checksum vouches for.
func checkRunBlock(b []byte) ([]byte, error) {
	n := len(b) - runBlockSum
	if n < 0 || crc32.Checksum(b[:n], disk.Castagnoli) != binary.BigEndian.Uint32(b[n:]) {
		return nil, disk.Corruptf("a block of the run does not match its checksum")
	}
	return b[:n], nil
}

// appendRunRecord appends one record of a block: hash u64, sequence and length
// of the value as varints, the value.
func appendRunRecord(b []byte, hash, seq uint64, value []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, hash)
	b = binary.AppendUvarint(b, seq)
	b = binary.AppendUvarint(b, uint64(len(value)))
	return append(b, value...)
}

// nextRunRecord is the inverse of appendRunRecord; value borrows b.
func nextRunRecord(b []byte) (hash, seq uint64, value, rest []byte, err error) {
	if len(b) < 10 {
		return 0, 0, nil, nil, disk.Corruptf("a record of a run is truncated")
	}
	hash, b = binary.BigEndian.Uint64(b), b[8:]
	seq, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, 0, nil, nil, disk.Corruptf("a record of a run has no sequence")
	}
	b = b[n:]
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) {
		return 0, 0, nil, nil, disk.Corruptf("a record of a run has no length")
	}
	b = b[n:]
	return hash, seq, b[:size:size], b[size:], nil
}
