package crashtest

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// Fault fails file system operations that match, while it is armed, and counts
// those that match and come after the first failure.
type Fault struct {
	mu    sync.Mutex
	match func(errorfs.Op) bool
	err   error
	hits  int
	later int
}

// String implements errorfs.Injector.
func (f *Fault) String() string { return "fault" }

// MaybeError implements errorfs.Injector.
func (f *Fault) MaybeError(op errorfs.Op) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.match == nil || !f.match(op) {
		return nil
	}
	if f.err == nil {
		f.later++
		return nil
	}
	f.hits++
	return f.err
}

// Arm makes matching operations fail with err; nil lets them pass again.
func (f *Fault) Arm(err error, match func(errorfs.Op) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
	if match != nil {
		f.match = match
	}
}

// Count returns how many operations failed, and how many matched afterwards.
func (f *Fault) Count() (hits, later int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hits, f.later
}

// On matches operations of these kinds on paths that contain part.
func On(part string, kinds ...errorfs.OpKind) func(errorfs.Op) bool {
	return func(op errorfs.Op) bool {
		for _, k := range kinds {
			if op.Kind == k && strings.Contains(op.Path, part) {
				return true
			}
		}
		return false
	}
}

// AtOperation calls do before the file system's operation number at.
func AtOperation(at int, do func()) errorfs.InjectorFunc {
	var mu sync.Mutex
	n := 0
	return func(errorfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if n++; n == at {
			do()
		}
		return nil
	}
}

// Flip inverts one bit of a file, durably.
func Flip(fsys vfs.FS, path string, offset int64) error {
	f, err := fsys.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	var b [1]byte
	_, err = f.ReadAt(b[:], offset)
	if err == nil {
		b[0] ^= 1
		_, err = f.WriteAt(b[:], offset)
	}
	return errors.Join(err, f.Sync(), f.Close())
}

// Noise does not compress, and no part of it repeats.
var Noise = func() []byte {
	b := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b) // never fails
	return b
}()

// Record is the content of the log section with that sequence: up to 8 KiB, so that
// many cross the log's blocks.
func Record(seq uint64) []byte {
	r := rand.New(rand.NewPCG(seq, 7))
	return Noise[r.IntN(1<<19):][:r.IntN(8<<10)]
}
