package persistence

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math/bits"

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

// runIndex tells where the blocks of a run are. A block holds the records of an
// equal share of all hashes, so that its number follows from the hash: hashes are
// uniform, and what is not only makes some blocks larger than others.
type runIndex struct {
	n int
	// A block's end, the offset behind its checksum, is as far behind its group's
	// base as low says. A block without records has no bytes.
	bases []uint64
	low   []uint16
	// wide has the ends themselves, should a group be too long for low.
	wide []uint64
}

// indexGroup is how many blocks have a base of their own: 16 KB of a usual run, so
// that nearly no run is in need of wide.
const indexGroup = 32

func newRunIndex(blocks int) runIndex {
	return runIndex{n: blocks, bases: make([]uint64, (blocks+indexGroup-1)/indexGroup),
		low: make([]uint16, blocks)}
}

// setEnd tells where block i ends. Blocks come one after another.
func (x *runIndex) setEnd(i int, end uint64) {
	if x.wide == nil {
		if i%indexGroup == 0 {
			x.bases[i/indexGroup] = end
		}
		low := end - x.bases[i/indexGroup]
		if low < 1<<16 {
			x.low[i] = uint16(low)
			return
		}
		x.widen(i)
	}
	x.wide[i] = end
}

// widen goes over to wide; blocks before n have their ends.
func (x *runIndex) widen(n int) {
	wide := make([]uint64, x.n)
	for i := range n {
		wide[i] = x.end(i)
	}
	x.wide, x.bases, x.low = wide, nil, nil
}

// end is where block i ends.
func (x *runIndex) end(i int) uint64 {
	if x.wide != nil {
		return x.wide[i]
	}
	return x.bases[i/indexGroup] + uint64(x.low[i])
}

// size is where the last block ends.
func (x *runIndex) size() uint64 {
	if x.n == 0 {
		return 0
	}
	return x.end(x.n - 1)
}

// span returns where block i lies in the file.
func (x *runIndex) span(i int) (from, to uint64) {
	if i > 0 {
		from = x.end(i - 1)
	}
	return from, x.end(i)
}

// appendTo appends the form that the index has in a file.
func (x *runIndex) appendTo(b []byte) []byte {
	for i := range x.n {
		end := x.end(i)
		b = append(b, byte(end>>32))
		b = binary.BigEndian.AppendUint32(b, uint32(end))
	}
	return b
}

// decodeRunIndexEntry reads a block's end as appendTo writes it.
func decodeRunIndexEntry(b []byte) uint64 {
	return uint64(b[0])<<32 | uint64(binary.BigEndian.Uint32(b[1:]))
}

// block is the number of the block that holds a hash.
func (x *runIndex) block(hash uint64) int {
	hi, _ := bits.Mul64(hash, uint64(x.n))
	return int(hi)
}

// find returns the blocks from..to-1 that can hold records with that hash: one, or
// none.
func (x *runIndex) find(hash uint64) (from, to int) {
	if from = x.block(hash); from == x.n {
		return 0, 0 // an empty run
	}
	if begin, end := x.span(from); begin == end {
		return from, from
	}
	return from, from + 1
}

// runFilter is a Bloom filter of a run's hashes, in memory only: a look-up that has to
// ask several runs reads the one or two that have the hash, and what a table's filter
// takes for known by mistake is rarely looked for on disk. What a process finds at its
// start has none, and is asked.
//
// Its cells are of an equal share of all hashes each, as the run's blocks are, so
// that a writer fills one after another; three bits of a cell tell of a hash.
type runFilter [][2]uint64

// How many records a cell has on average. Of a small run, of which there are many, one
// in 60 of absent hashes is not told from present ones, for 1.3 bytes a record; of a
// large one, one in 6, for half a byte.
const (
	smallRun         = 1 << 17 // records
	smallCellRecords = 12
	largeCellRecords = 32
)

// newRunFilter makes a filter for about n records.
func newRunFilter(n uint64) runFilter {
	switch {
	case n == 0:
		return nil
	case n <= smallRun:
		return make(runFilter, n/smallCellRecords+1)
	}
	return make(runFilter, n/largeCellRecords+1)
}

// cell returns the cell of a hash and its bits there.
func (f runFilter) cell(hash uint64) (c *[2]uint64, lo, hi uint64) {
	i, _ := bits.Mul64(hash, uint64(len(f)))
	for _, at := range [...]uint64{hash, hash >> 7, hash >> 14} {
		// Not a branch: it would be mispredicted every other time.
		bit, high := uint64(1)<<(at&63), -(at >> 6 & 1)
		lo |= bit &^ high
		hi |= bit & high
	}
	return &f[i], lo, hi
}

func (f runFilter) add(hash uint64) {
	if len(f) > 0 {
		c, lo, hi := f.cell(hash)
		c[0] |= lo
		c[1] |= hi
	}
}

// mayHave reports whether the run may have a record with that hash; it always
// does if there is no filter.
func (f runFilter) mayHave(hash uint64) bool {
	if len(f) == 0 {
		return true
	}
	c, lo, hi := f.cell(hash)
	return c[0]&lo == lo && c[1]&hi == hi
}
