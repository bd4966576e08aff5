// Package crashtest makes what crashes leave of a file system in memory.
package crashtest

import (
	"math/rand/v2"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Clone returns what may be left of a crashable file system after a power loss,
// when percent (0 to 100) of the unsynced pages and names have reached the disk.
// 100 is what kill -9 leaves: everything, and nothing that was removed, which
// CrashClone alone brings back until its directory is synced.
func Clone(mem *vfs.MemFS, percent int, rng *rand.Rand) *vfs.MemFS {
	cfg := vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng}
	if percent < 100 {
		return mem.CrashClone(cfg)
	}
	// A name that is there neither before nor after the clone was removed before
	// it; one that comes or goes meanwhile may be in it or not.
	there := make(map[string]bool)
	walk(mem, "", func(path string) { there[path] = true })
	clone := mem.CrashClone(cfg)
	walk(mem, "", func(path string) { there[path] = true })
	var gone []string
	walk(clone, "", func(path string) {
		if !there[path] {
			gone = append(gone, path)
		}
	})
	for _, path := range gone {
		_ = clone.RemoveAll(path) // never fails in memory
	}
	return clone
}

// Left is Clone for those who need not choose the random numbers: nil stands for some.
func Left(mem *vfs.MemFS, percent int, rng *rand.Rand) *vfs.MemFS {
	if rng == nil {
		rng = rand.New(rand.NewPCG(0, 0))
	}
	return Clone(mem, percent, rng)
}

// walk visits every path below dir, parents first.
func walk(mem *vfs.MemFS, dir string, visit func(path string)) {
	names, _ := mem.List(dir) // of a file: an error
	for _, name := range names {
		path := mem.PathJoin(dir, name)
		visit(path)
		walk(mem, path, visit)
	}
}
