package persistence

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
)

// Run describes a sorted, immutable run of EXACT records: what it covers is
// the caller's, Count and Bytes are filled when it is written.
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
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, fields)
}

// decodeRun reads a header row.
func decodeRun(key, value []byte) (Run, error) {
	if len(key) != runHeaderSize || key[0] != kindRun || key[runPrefixSize] != runHeader {
		return Run{}, corruptf("run header key of %d bytes", len(key))
	}
	if len(value) != runHeaderValueSize || value[0] != runHeaderVersion {
		return Run{}, corruptf("run header of %d bytes", len(value))
	}
	fields := value[:runHeaderValueSize-4]
	if binary.BigEndian.Uint32(value[len(fields):]) != runHeaderSum(key, fields) {
		return Run{}, corruptf("run header does not match its checksum")
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

// Runs returns the partition's runs, ascending by (Table, ID). It reads two
// keys for each run, not its entries.
func (db *DB) Runs(partition uint16) (runs []Run, err error) {
	const doing = "list runs"
	first := Run{Partition: partition}.prefix()
	it, err := db.iterate(first, successor([]byte{kindRun, byte(partition >> 8), byte(partition)}))
	if err != nil {
		return nil, wrap(doing, err)
	}
	defer func() { err = errors.Join(err, wrap(doing, it.Close())) }()
	for ok := it.SeekGE(first); ok; {
		if len(it.Key()) < runHeaderSize {
			return nil, wrap(doing, corruptf("run key of %d bytes", len(it.Key())))
		}
		header := append([]byte(nil), it.Key()[:runHeaderSize]...)
		header[runPrefixSize] = runHeader
		if !it.SeekGE(header) {
			if err := it.Error(); err != nil {
				return nil, wrap(doing, err)
			}
			return nil, wrap(doing, corruptf("a run has no header"))
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return nil, wrap(doing, err)
		}
		if string(it.Key()) != string(header) {
			return nil, wrap(doing, corruptf("a run has no header"))
		}
		r, err := decodeRun(header, value)
		if err != nil {
			return nil, wrap(doing, err)
		}
		runs = append(runs, r)
		ok = it.SeekGE(successor(header[:runPrefixSize]))
	}
	return runs, wrap(doing, it.Error())
}

// LookUp calls fn for the run's entries with that hash, ascending by sequence,
// until it returns false. fn borrows the value.
func (db *DB) LookUp(r Run, hash uint64, fn func(seq uint64, value []byte) bool) error {
	prefix := r.prefix()
	lower, upper := entryKey(nil, prefix, hash, 0), r.headerKey()
	if hash < math.MaxUint64 {
		upper = entryKey(nil, prefix, hash+1, 0)
	}
	return db.scan("look up in a run", lower, upper, func(key, value []byte) (bool, error) {
		_, seq, err := entryOf(key)
		if err != nil {
			return false, err
		}
		return fn(seq, value), nil
	})
}

// ScanRun calls fn for all entries of the run, ascending by (hash, seq), until
// it returns an error, which ScanRun returns. fn borrows the value. It fails
// with ErrCorrupt when the run does not hold as many entries as its header
// says.
func (db *DB) ScanRun(r Run, fn func(hash, seq uint64, value []byte) error) error {
	prefix := r.prefix()
	var count uint64
	err := db.scan("scan a run", append(prefix, runEntries), r.headerKey(), func(key, value []byte) (bool, error) {
		hash, seq, err := entryOf(key)
		if err != nil {
			return false, err
		}
		count++
		return true, fn(hash, seq, value)
	})
	if err == nil && count != r.Count {
		return wrap("scan a run", corruptf("%d entries instead of %d", count, r.Count))
	}
	return err
}
