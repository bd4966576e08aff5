package persistence

// How many files may be open. The system grants a process so many descriptors
// (RLIMIT_NOFILE); cmd gives the clients theirs first and the rest to the directory,
// as Options.OpenFiles. They are divided here:
//
//	otherFiles   the lock, the marks, the op log, Pebble's manifest and empty WAL, what
//	             flushes, compactions, snapshots and backups write, directories that
//	             are fsynced, and tables that are in use beyond Pebble's cache
//	tables       Pebble's cache of open tables
//	runs         runFiles: run files that are read or written
const (
	otherFiles  = 64
	leastTables = 128
	mostTables  = 1000
	leastRuns   = 64
	mostRuns    = 1024

	// MinOpenFiles is the least Options.OpenFiles, MaxOpenFiles the most that is
	// used, and the default.
	MinOpenFiles = otherFiles + leastTables + leastRuns
	MaxOpenFiles = otherFiles + mostTables + mostRuns
)

// pebblesOthers is how many files beside tables Pebble takes MaxOpenFiles to include.
const pebblesOthers = 10

// openTables is how many tables Pebble may keep open, openRuns how many run files
// may be open. What is more than the least they share.
func (o Options) openTables() int {
	return min(leastTables+(o.OpenFiles-MinOpenFiles)/2, mostTables)
}

func (o Options) openRuns() int { return min(o.OpenFiles-otherFiles-o.openTables(), mostRuns) }
