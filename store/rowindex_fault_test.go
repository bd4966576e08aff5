package store

import (
	"errors"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// TestRowIndexFaults: an index whose files cannot be read, written or made is given
// up; operations do not notice.
func TestRowIndexFaults(t *testing.T) {
	const keys = 2000
	write := func(t *testing.T, s *Store) { setKeys(s, 0, keys); flushAllRows(t, s) }
	merge := func(_ *testing.T, s *Store) {
		for _, p := range s.partitions {
			s.mergeRowIndex(p)
		}
	}
	fill := func(_ *testing.T, s *Store) {
		for _, p := range s.partitions {
			p.index.drop(0, 0)
			s.fillRowIndex(p, p.size)
		}
	}
	for _, c := range []struct {
		name string
		op   errorfs.OpKind
		act  func(t *testing.T, s *Store) // what meets the fault, besides looking up
	}{
		{"reading", errorfs.OpFileReadAt, func(*testing.T, *Store) {}},
		{"writing", errorfs.OpFileWrite, write},
		{"creating", errorfs.OpCreate, write},
		{"merging", errorfs.OpFileWrite, merge},
		{"filling", errorfs.OpFileWrite, fill},
	} {
		t.Run(c.name, func(t *testing.T) {
			var broken atomic.Bool
			fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
				if broken.Load() && op.Kind == c.op && isRowFile(op.Path) {
					return syscall.ENOSPC
				}
				return nil
			}))
			s := indexedStore(t, keys, func(o *Options) { o.FS = fs })
			for range rowMergeFan {
				write(t, s)
			}
			broken.Store(true)
			c.act(t, s)
			wantKeys(t, s, 0, keys)
			must(t, s.Failure())
			for _, p := range s.partitions {
				if p.index.on() != 0 {
					t.Error("the index was not given up")
				}
				if p.index.loads.Store(keys); p.index.due(keys) {
					t.Error("the index is begun again at once")
				}
			}
		})
	}
}

// TestDamagedRowIndex: a block that does not match its checksum is not believed.
func TestDamagedRowIndex(t *testing.T) {
	const keys = 2000
	s := indexedStore(t, keys, nil)
	for _, name := range scratchRuns(t, s) {
		f, err := s.opts.FS.OpenReadWrite("data/runs/"+name, vfs.WriteCategoryUnspecified)
		must(t, err)
		_, err = f.WriteAt(make([]byte, rotBlock), 0)
		must(t, errors.Join(err, f.Close()))
	}
	wantKeys(t, s, 0, keys)
	for _, p := range s.partitions {
		if p.index.on() != 0 {
			t.Error("the index was not given up")
		}
	}
}

// smallDisk has so many bytes free.
type smallDisk struct {
	vfs.FS
	free *atomic.Uint64
}

func (d smallDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: d.free.Load(), TotalBytes: 1 << 40}, nil
}

// TestRowIndexNeedsRoom: there is no index on a disk that is nearly full, and none is
// begun.
func TestRowIndexNeedsRoom(t *testing.T) {
	const least = 1 << 20
	var free atomic.Uint64
	free.Store(1 << 30)
	s := indexedStore(t, 2000, func(o *Options) { o.FS, o.MinFreeDisk = smallDisk{vfs.NewMem(), &free}, least })
	p, q := s.partitions[0], s.partitions[1]
	fillNotNow := func() {
		t.Helper()
		p.index.drop(0, 0)
		if s.fillRowIndex(p, p.size); p.index.on() != 0 {
			t.Error("an index was filled")
		}
	}
	for range rowMergeFan {
		setKeys(s, 0, 2000)
		flushAllRows(t, s)
	}
	free.Store(least * 3 / 2) // writes go on, but there should be twice as much
	fillNotNow()
	if s.mergeRowIndex(q); q.index.on() != 0 {
		t.Error("runs were merged")
	}
	free.Store(1 << 30)
	fillNow(t, s, q)
	free.Store(least - 1)
	s.checkDisk()
	fillNotNow()
	if s.keepRowIndex(q); q.index.on() != 0 {
		t.Error("the index stays though the disk is full")
	}
	s.keepRowIndex(p)
	noScratchRuns(t, s)
	wantKeys(t, s, 0, 2000)
}
