package persistence

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// chunk builds a chunk of a MANIFEST.
func chunk(position int, payload string) []byte {
	b := make([]byte, manifestHeader, manifestHeader+len(payload))
	binary.LittleEndian.PutUint16(b[4:], uint16(len(payload)))
	b[6] = byte(position)
	b = append(b, payload...)
	binary.LittleEndian.PutUint32(b, maskedCRC(b[6:]))
	return b
}

func TestScanManifest(t *testing.T) {
	full, first, middle, last := chunk(chunkFull, "full"), chunk(chunkFirst, "fir"), chunk(chunkMiddle, "mid"), chunk(chunkLast, "last")
	rotten := chunk(chunkFull, "rotten")
	rotten[len(rotten)-1]++
	padded := append(slices.Clone(full), make([]byte, walBlock-len(full))...) // zero pages: lost
	n, f := int64(len(full)), int64(len(first))
	for _, c := range []struct {
		name  string
		parts [][]byte
		want  walTail
	}{
		{"empty", nil, walTail{Bad: -1}},
		{"clean end", [][]byte{full, full}, walTail{Good: 2 * n, Bad: -1, Valid: 2 * n}},
		{"whole record", [][]byte{first, middle, last}, walTail{Good: 3*f + 1, Bad: -1, Valid: 3*f + 1}},
		{"torn record", [][]byte{full, first, middle}, walTail{Good: n, Bad: -1, Valid: n + 2*f}},
		{"bad in a record", [][]byte{full, first, rotten, full}, walTail{Good: n, Bad: n + f, Valid: n + f, Stray: n + f + int64(len(rotten)) + n}},
		{"a last part without a first", [][]byte{full, last, full}, walTail{Good: n, Bad: n, Valid: n, Stray: 3 * n}},
		{"a middle part without a first", [][]byte{middle, last, full}, walTail{Bad: 0, Stray: f + 2*n}},
		{"a record inside another", [][]byte{full, first, full, last}, walTail{Good: n, Bad: n + f, Valid: n + f, Stray: 3*n + f}},
		{"another kind", [][]byte{full, chunk(chunkEnd, "of a log"), full}, walTail{Good: n, Bad: n, Valid: n}},
		{"lost pages", [][]byte{padded, full}, walTail{Good: n, Bad: n, Valid: n, Stray: walBlock + n}},
	} {
		got, err := scanChunks(bytes.NewReader(bytes.Join(c.parts, nil)), 0, parseChunk, func(int, int64, []byte) {})
		if err != nil || got != c.want {
			t.Errorf("%s: got %+v %v, want %+v", c.name, got, err, c.want)
		}
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
