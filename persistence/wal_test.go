package persistence

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// chunk builds a WAL chunk of log 7 with a synced offset of 99.
func chunk(position int, payload string) []byte {
	b := make([]byte, walSyncHeader, walSyncHeader+len(payload))
	binary.LittleEndian.PutUint16(b[4:], uint16(len(payload)))
	b[6] = byte(8 + position)
	binary.LittleEndian.PutUint32(b[7:], 7)
	binary.LittleEndian.PutUint64(b[11:], 99)
	b = append(b, payload...)
	binary.LittleEndian.PutUint32(b, maskedCRC(b[6:]))
	return b
}

func TestScanWAL(t *testing.T) {
	full, first, middle, last := chunk(chunkFull, "full"), chunk(chunkFirst, "fir"), chunk(chunkMiddle, "mid"), chunk(chunkLast, "last")
	rotten := chunk(chunkFull, "rotten")
	rotten[len(rotten)-1]++
	other := chunk(chunkFull, "of another log")
	other[7] = 3
	trailer := []byte{0, 0, 0, 0, 0, 0, 5, 8, 0, 0, 0}
	padded := append(slices.Clone(full), make([]byte, walBlock-len(full))...) // zero pages: lost
	n, f := int64(len(full)), int64(len(first))
	for _, c := range []struct {
		name  string
		parts [][]byte
		want  walTail
	}{
		{"empty", nil, walTail{Bad: -1}},
		{"clean end", [][]byte{full, full}, walTail{Good: 2 * n, Bad: -1, Valid: 2 * n}},
		{"closed", [][]byte{full, trailer, rotten}, walTail{Good: n, Bad: -1, Valid: math.MaxInt64}},
		{"closed inside a record", [][]byte{full, first, trailer}, walTail{Good: n, Bad: n + f, Valid: n + f}},
		{"whole record", [][]byte{first, middle, last}, walTail{Good: 3*f + 1, Bad: -1, Valid: 3*f + 1}},
		{"torn record", [][]byte{full, first, middle}, walTail{Good: n, Bad: -1, Valid: n + 2*f}},
		{"bad in a record", [][]byte{full, first, rotten, full},
			walTail{Good: n, Bad: n + f, Valid: n + f, Stray: n + f + int64(len(rotten)) + n, Synced: 99}},
		{"a last part without a first", [][]byte{full, last, full}, walTail{Good: n, Bad: n, Valid: n, Stray: 3 * n, Synced: 99}},
		{"a middle part without a first", [][]byte{middle, last, full}, walTail{Bad: 0, Stray: f + 2*n, Synced: 99}},
		{"a record inside another", [][]byte{full, first, full, last},
			walTail{Good: n, Bad: n + f, Valid: n + f, Stray: 3*n + f, Synced: 99}},
		{"recycled file", [][]byte{full, other, full}, walTail{Good: n, Bad: n, Valid: n}},
		{"lost pages", [][]byte{padded, full}, walTail{Good: n, Bad: n, Valid: n, Stray: walBlock + n, Synced: 99}},
	} {
		got, err := scanWAL(bytes.NewReader(bytes.Join(c.parts, nil)), 7)
		if err != nil || got != c.want {
			t.Errorf("%s: got %+v %v, want %+v", c.name, got, err, c.want)
		}
	}
}

// TestNewestWALFormat: also the first WAL file of a new directory has the
// format in which Pebble notices damage.
func TestNewestWALFormat(t *testing.T) {
	mem := vfs.NewMem()
	db := mustOpen(t, testOptions(mem))
	defer mustClose(t, db)
	mustCommit(t, db, func(b *Batch) { b.PutState(0, nil) })
	wal, err := readFile(mem, fmt.Sprintf("data/db/%06d.log", db.wal.current().num), 1<<20)
	if err != nil || len(wal) < walSyncHeader || wal[6] != 8+chunkFull {
		t.Fatal(len(wal), err)
	}
}

// TestMarkIsDurable: a change of the policy is on the disk before it is in
// force.
func TestMarkIsDurable(t *testing.T) {
	mem := vfs.NewCrashableMem()
	db := mustOpen(t, testOptions(mem))
	defer mustClose(t, db)
	for _, policy := range []Fsync{Everysec, Always, No, Always} {
		if err := db.SetFsync(policy); err != nil {
			t.Fatal(err)
		}
		mark, ok, err := readMark(crash(mem, 0, nil), "data", logMarkName)
		if err != nil || !ok || mark.Lazy != (policy != Always) {
			t.Fatal(policy, mark, ok, err)
		}
	}
}

// TestBackgroundFaultReachesWait: a batch that was applied, and written, before
// the background fsync failed is not acknowledged after it (G2, G8).
func TestBackgroundFaultReachesWait(t *testing.T) {
	f := &fault{}
	o := testOptions(errorfs.Wrap(vfs.NewMem(), f))
	o.Fsync = Everysec
	db := manualTicks(mustOpen(t, o))
	b := db.NewBatch()
	b.AppendLog(0, 1, nil)
	if err := b.Apply(); err != nil {
		t.Fatal(err)
	}
	mustCommit(t, db, func(b *Batch) { b.AppendLog(0, 2, nil) }) // now both are written
	f.arm(syscall.EIO, on(".log", errorfs.OpFileSyncData))
	db.log.sync.tick()
	if err := b.Wait(); !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
}

// TestMarkerOrder: when a marker's name may be on the disk, so are the names
// before it; and the new marker when the old one may be gone.
func TestMarkerOrder(t *testing.T) {
	mem := vfs.NewCrashableMem()
	if err := makeDir(mem, "d"); err != nil {
		t.Fatal(err)
	}
	m := markerFS{FS: mem}
	create := func(name string) {
		f, err := m.Create("d/"+name, writeCategory)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	has := func(name string) bool {
		_, err := crash(mem, 0, nil).Stat("d/" + name)
		return err == nil
	}
	create("MANIFEST-1")
	create("marker.new")
	if !has("MANIFEST-1") || has("marker.new") {
		t.Fatal("the marker may precede what it names")
	}
	if err := m.Remove("d/marker.old"); err == nil || !has("marker.new") {
		t.Fatal("the old marker may go before the new one", err)
	}
}

// TestPebbleWALIsNew: Pebble's WAL goes on in new files only. What an old one
// holds, clients chose, and the numbers by which Pebble tells its own chunks are
// easily guessed.
func TestPebbleWALIsNew(t *testing.T) {
	mem := vfs.NewMem()
	var reused, created atomic.Int64
	o := testOptions(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if _, ok := walNumber(mem.PathBase(op.Path)); !ok || mem.PathDir(op.Path) != "data/db" {
			return nil
		}
		switch op.Kind {
		case errorfs.OpCreate:
			created.Add(1)
		case errorfs.OpReuseForWrite:
			reused.Add(1)
		}
		return nil
	})))
	o.MemTableSize = 64 << 10
	db := mustOpen(t, o)
	for i := range uint64(20) {
		mustCommit(t, db, func(b *Batch) { b.PutRow(RowKey{Hash: i, Key: []byte("k")}, noise[:40<<10]) })
		if err := db.pebble.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, db)
	if reused.Load() > 0 || created.Load() < 10 {
		t.Fatalf("%d WAL files were used again, %d are new", reused.Load(), created.Load())
	}
	if names, err := mem.List("data/db"); err != nil || len(slices.DeleteFunc(names, func(name string) bool { _, ok := walNumber(name); return !ok })) > 8 {
		t.Fatal("old WAL files stay:", names, err)
	}
}
