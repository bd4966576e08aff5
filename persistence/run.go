package persistence

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

// Run describes a sorted, immutable run of entries, EXACT's records, a file of
// its own (runfile.go): what it covers is the caller's, Count and Bytes are filled
// when it is written. The run belongs to the data directory once its header row is
// committed; a file without one is removed at Open.
type Run struct {
	// Partition, Table and ID identify the run. An ID is never used again.
	Partition uint16
	Table     uint32
	ID        uint64
	// FirstSeq and LastSeq are the op-log sequences that the run covers.
	FirstSeq, LastSeq uint64
	// FirstTime and LastTime bound the logged times of its records.
	FirstTime, LastTime int64
	// Count is the number of entries, Bytes the sum of their values' sizes.
	Count, Bytes uint64
}

// The value of a run's header row: a version byte, six 64-bit fields, and a
// CRC-32C over the row's key and what precedes.
const (
	runHeaderVersion   = 1
	runHeaderValueSize = 1 + 6*8 + 4
)

func (r Run) encodeHeader() []byte {
	b := make([]byte, 0, runHeaderValueSize)
	b = append(b, runHeaderVersion)
	for _, x := range [...]uint64{r.FirstSeq, r.LastSeq, uint64(r.FirstTime), uint64(r.LastTime), r.Count, r.Bytes} {
		b = binary.BigEndian.AppendUint64(b, x)
	}
	return binary.BigEndian.AppendUint32(b, runHeaderSum(r.headerKey(), b))
}

func runHeaderSum(key, fields []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, disk.Castagnoli), disk.Castagnoli, fields)
}

// decodeRun reads a header row.
func decodeRun(key, value []byte) (Run, error) {
	if len(key) != runHeaderSize || key[0] != kindRun || key[runPrefixSize] != runHeader {
		return Run{}, disk.Corruptf("run header key of %d bytes", len(key))
	}
	if len(value) != runHeaderValueSize || value[0] != runHeaderVersion {
		return Run{}, disk.Corruptf("run header of %d bytes", len(value))
	}
	fields := value[:runHeaderValueSize-4]
	if binary.BigEndian.Uint32(value[len(fields):]) != runHeaderSum(key, fields) {
		return Run{}, disk.Corruptf("run header does not match its checksum")
	}
	u64 := func(i int) uint64 { return binary.BigEndian.Uint64(fields[1+8*i:]) }
	return Run{
		Partition: binary.BigEndian.Uint16(key[1:]),
		Table:     binary.BigEndian.Uint32(key[3:]),
		ID:        binary.BigEndian.Uint64(key[7:]),
		FirstSeq:  u64(0), LastSeq: u64(1),
		FirstTime: int64(u64(2)), LastTime: int64(u64(3)),
		Count: u64(4), Bytes: u64(5),
	}, nil
}

// Runs returns the partition's published runs, ascending by (Table, ID).
func (db *DB) Runs(partition uint16) (runs []Run, err error) {
	lower := Run{Partition: partition}.prefix()[:runPartitionSize]
	return db.listRuns(lower, successor(append([]byte(nil), lower...)))
}

// allRuns returns the published runs of all partitions.
func (db *DB) allRuns() ([]Run, error) { return db.listRuns([]byte{kindRun}, []byte{kindRun + 1}) }

func (db *DB) listRuns(lower, upper []byte) (runs []Run, err error) {
	err = db.scan("list runs", lower, upper, func(key, value []byte) (bool, error) {
		r, err := decodeRun(key, value)
		runs = append(runs, r)
		return true, wrap("list runs", err)
	})
	return runs, err
}
