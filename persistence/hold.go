package persistence

import (
	"sync"

	"github.com/fbfkv/fbfkv/persistence/oplog"
)

// Hold keeps the op log from now on, as an oplog.Hold does, and all run files and
// snapshots that exist now: for a backup, or a follower who fetches them. Who needs the
// log alone holds that alone. It ends with the process.
type Hold struct {
	*oplog.Hold
	db    *DB
	limit uint64
	from  uint64 // holds.bytes when it began
}

// holds are the present ones, and what they keep.
type holds struct {
	mu    sync.Mutex
	all   map[*Hold]bool
	runs  []Run  // removed, but for their files
	bytes uint64 // of all that were ever kept
}

// Hold begins a hold. It is lost when the op log, or the runs, that are kept for it alone
// are more than limit bytes.
func (db *DB) Hold(name string, limit uint64) *Hold {
	h := &Hold{Hold: db.log.Hold(name, limit), db: db, limit: limit}
	db.holds.mu.Lock()
	defer db.holds.mu.Unlock()
	if db.holds.all == nil {
		db.holds.all = make(map[*Hold]bool)
	}
	h.from = db.holds.bytes
	db.holds.all[h] = true
	return h
}

// Release ends the hold. Files that it alone has kept go, those of the op log with the next
// checkpoint.
func (h *Hold) Release() {
	h.Hold.Release()
	h.db.RemoveRuns(nil)
}

// held reports whether there is a hold.
func (db *DB) held() bool {
	db.holds.mu.Lock()
	defer db.holds.mu.Unlock()
	return db.holds.live()
}

// live forgets holds that were lost, and reports whether there are others. The lock is
// held.
func (hs *holds) live() bool {
	for h := range hs.all {
		if hs.bytes-h.from > h.limit {
			h.Hold.Release()
		}
		if h.Lost() {
			delete(hs.all, h)
		}
	}
	return len(hs.all) > 0
}

// RemoveRuns deletes the files of runs that are not published, or whose header
// rows are durably gone, those in use or held when that ends. What cannot be removed the
// next Open removes.
func (db *DB) RemoveRuns(runs []Run) {
	hs := &db.holds
	hs.mu.Lock()
	hs.runs = append(hs.runs, runs...)
	for _, r := range runs {
		hs.bytes += r.Bytes
	}
	if hs.live() {
		runs = nil
	} else {
		runs, hs.runs = hs.runs, nil
	}
	hs.mu.Unlock()
	for _, r := range runs {
		if f := db.runs.forget(r.key()); f != nil {
			f.removed.Store(true)
			db.runs.release(f)
		} else {
			db.runs.remove(db.path(runName, runFileName(r)))
		}
	}
}
