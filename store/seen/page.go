package seen

import (
	"slices"

	"maps"
)

// InRuns reports whether no record up to a sequence is in memory alone. The lock is held.
func (rs *Records) InRuns(seq uint64) bool {
	return !slices.ContainsFunc(rs.bundles, func(b *bundle) bool { return b.count > 0 && b.firstSeq <= seq })
}

// RunTables returns the tables that have runs, ascending. The lock is held.
func (rs *Records) RunTables() []uint32 { return slices.Sorted(maps.Keys(rs.runs)) }

// ScanRuns calls fn for the records that are in runs of a table, ascending by hash and sequence, from a
// hash on, until it returns an error, which ScanRuns returns. fn borrows the value. It fails with
// fs.ErrNotExist if runs are merged when it begins. The lock is not held.
func (rs *Records) ScanRuns(table uint32, from uint64, fn func(hash, seq uint64, value []byte) error) error {
	rs.mu.Lock()
	runs := slices.Clone(rs.runs[table])
	rs.mu.Unlock()
	var sources []source
	defer func() { closeSources(sources) }()
	for _, r := range runs {
		it, err := rs.db.IterateRunFrom(r, from)
		if err != nil {
			return err
		}
		sources = append(sources, &runSource{it: it})
	}
	return mergeSources(sources, nil, func(hash, seq uint64, value []byte) error {
		if hash < from {
			return nil
		}
		return fn(hash, seq, value)
	})
}
