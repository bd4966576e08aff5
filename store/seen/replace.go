package seen

import (
	"cmp"
	"slices"
	"sync"

	"github.com/fbfkv/fbfkv/persistence"
)

// besideIDs is how many runs Records that were made Beside others may have.
const besideIDs = 1 << 20

// Beside returns records, none yet, that may take the place of these later (Replace). Their
// runs have other ids. mu is the lock that guards them until then. The lock is held.
func (rs *Records) Beside(mu sync.Locker) Records {
	o := New(rs.partition, mu, rs.db)
	o.nextRun = rs.nextRun
	rs.nextRun += besideIDs
	return o
}

// NewRun returns what identifies the next run of a table. The lock is held.
func (rs *Records) NewRun(table uint32) persistence.Run {
	r := persistence.Run{Partition: rs.partition, Table: table, ID: rs.nextRun}
	rs.nextRun++
	return r
}

// Take takes runs that were written, but not published, as Load does those on disk. Assign
// must follow. The lock is held, or nobody else knows of the Records.
func (rs *Records) Take(runs []persistence.Run) {
	rs.found = slices.Clone(runs)
	slices.SortFunc(rs.found, func(a, b persistence.Run) int {
		return cmp.Or(cmp.Compare(a.FirstSeq, b.FirstSeq), cmp.Compare(a.ID, b.ID))
	})
	for _, r := range runs {
		rs.unpublished[r.ID] = true
	}
}

// Replace makes these records what others are, which were made Beside them, and forgets what
// they were. Both locks are held, and no Build of either is under way.
func (rs *Records) Replace(o *Records) {
	rs.obsolete = append(rs.obsolete, rs.found...)
	rs.found = nil
	rs.Forget()
	rs.bundles, rs.runs = o.bundles, o.runs
	for id := range o.unpublished {
		rs.unpublished[id] = true
	}
	rs.obsolete = append(rs.obsolete, o.obsolete...)
	rs.nextRun = max(rs.nextRun, o.nextRun)
	*o = New(rs.partition, o.mu, rs.db)
}

// Discard forgets records that were made Beside others, and removes the files of their runs.
// The lock is held.
func (rs *Records) Discard() {
	runs := slices.Concat(rs.found, rs.obsolete)
	for _, of := range rs.runs {
		runs = append(runs, of...)
	}
	rs.db.RemoveRuns(runs)
	rs.release(len(rs.bundles))
	*rs = New(rs.partition, rs.mu, rs.db)
}
