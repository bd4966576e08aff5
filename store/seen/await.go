package seen

import (
	"github.com/fbfkv/fbfkv/persistence"
)

// Records that other regions may still ask for (Awaited) are kept beyond the remembering
// time, with their runs: late ones. No filter of a table knows them any more, only who asks
// all runs finds them.

func (o *Options) awaited(table uint32) Awaited {
	if o.Awaited == nil {
		return Awaited{}
	}
	return o.Awaited(table)
}

// late counts those of a table's runs, the oldest, that are beyond the remembering time.
func (o *Options) late(runs []persistence.Run, keep int64) (n int) {
	for n < len(runs) && runs[n].LastTime+keep < o.Now {
		n++
	}
	return n
}

// divide divides a table's runs into those that stay, of which the first late ones are
// only awaited, and those that go.
func (b *Build) divide(runs []persistence.Run, keep int64, await Awaited) (stay []persistence.Run, late int,
	gone []persistence.Run) {
	bytes := uint64(0)
	for _, r := range runs {
		bytes += r.Bytes
	}
	end := b.late(runs, keep)
	for i, r := range runs {
		isAwaited := r.LastSeq > await.Acked && r.LastTime+await.For >= b.Now &&
			(await.Bytes == 0 || bytes <= await.Bytes)
		if r.LastTime+keep < b.Now && !(b.Awaited != nil && isAwaited) {
			gone, bytes = append(gone, r), bytes-r.Bytes
			continue
		}
		if stay = append(stay, r); i < end {
			late++
		}
	}
	return stay, late, gone
}

// countOwn counts what was applied here, and counts, of the records behind a sequence in
// runs.
func (b *Build) countOwn(runs []persistence.Run, acked uint64) (n uint64, err error) {
	for _, r := range runs {
		if r.LastSeq <= acked {
			continue
		}
		paced := 0
		err := b.rs.db.ScanRun(r, func(_, seq uint64, value []byte) error {
			if paced++; b.GiveWay != nil && paced%paceRecords == 0 {
				b.GiveWay()
			}
			o, err := originalOf(value)
			if err == nil && o.Own() && seq > acked {
				n++
			}
			return err
		})
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// Unchecked returns how many operations that were applied here Run has forgotten before all
// other regions have said that they have them. One that has applied the same (key, opid)
// earlier will not be noticed: both count.
func (b *Build) Unchecked() uint64 { return b.unchecked }
