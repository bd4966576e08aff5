package persistence

import (
	"bytes"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"sort"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/fbfkv/fbfkv/internal/raced"
	"github.com/fbfkv/fbfkv/persistence/crashtest"
	"github.com/fbfkv/fbfkv/persistence/disk"
	"github.com/fbfkv/fbfkv/persistence/oplog"
)

func writeSnapshot(t testing.TB, db *DB, partition uint16, seq uint64, content []byte) {
	t.Helper()
	if err := trySnapshot(db, partition, seq, content); err != nil {
		t.Fatal(err)
	}
}

func trySnapshot(db *DB, partition uint16, seq uint64, content []byte) error {
	w, err := db.CreateSnapshot(partition, seq)
	if err != nil {
		return err
	}
	if _, err := w.Write(content); err != nil {
		w.Abort()
		return err
	}
	return w.Commit()
}

func readSnapshot(db *DB, s Snapshot) ([]byte, error) {
	r, err := db.OpenSnapshot(s)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(r)
	return b, errors.Join(err, r.Close())
}

func snapshotNames(t testing.TB, db *DB) string {
	t.Helper()
	names, err := db.fs.List(db.path(snapshotName))
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(names)
	return strings.Join(names, " ")
}

func randomBytes(n int) []byte { return crashtest.Noise[:n:n] }

func TestSnapshotRoundTrip(t *testing.T) {
	db := mustOpen(t, testOptions(vfs.NewMem()))
	defer mustClose(t, db)
	for i, n := range []int{0, 1, frameMaxSize - 1, frameMaxSize, frameMaxSize + 1, 3*frameMaxSize + 5} {
		content := randomBytes(n)
		writeSnapshot(t, db, 7, uint64(i), content)
		list, err := db.Snapshots(7)
		if err != nil {
			t.Fatal(err)
		}
		expect(t, "newest", list[0].Seq, uint64(i))
		expect(t, "kept", len(list), min(i+1, 2))
		got, err := readSnapshot(db, list[0])
		if err != nil || !bytes.Equal(got, content) {
			t.Fatal(n, len(got), err)
		}
	}
	writeSnapshot(t, db, 8, 1, nil)
	expect(t, "files", snapshotNames(t, db),
		"p0007-00000000000000000004.fbf p0007-00000000000000000005.fbf p0008-00000000000000000001.fbf")
}

// TestSnapshotDamage flips every bit and cuts at every byte of a small file:
// nothing of it is ever taken for a whole snapshot.
func TestSnapshotDamage(t *testing.T) {
	db := mustOpen(t, testOptions(vfs.NewMem()))
	defer mustClose(t, db)
	content := []byte("forty-two bytes of content, or nearly so..")
	writeSnapshot(t, db, 3, 9, content)
	list, err := db.Snapshots(3)
	if err != nil {
		t.Fatal(err)
	}
	file, err := disk.ReadFile(db.fs, list[0].Path, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "size", int64(len(file)), list[0].Bytes)
	refuses := func(what string, at int, file []byte) {
		t.Helper()
		r, err := newSnapshotReader(bytes.NewReader(file), 3, 9)
		if err == nil {
			_, err = io.ReadAll(r)
		}
		if !errors.Is(err, ErrCorrupt) {
			t.Fatalf("%s at %d: %v", what, at, err)
		}
	}
	for i := range file {
		for bit := range 8 {
			damaged := bytes.Clone(file)
			damaged[i] ^= 1 << bit
			refuses("flip", i, damaged)
		}
		refuses("cut", i, file[:i])
	}
	refuses("one byte more", len(file), append(bytes.Clone(file), 0))
	refuses("a second end", len(file), append(bytes.Clone(file), file[len(file)-16:]...))

	// Under another name it is another snapshot's.
	wrong := list[0]
	for _, s := range []Snapshot{{Partition: 4, Seq: 9}, {Partition: 3, Seq: 10}} {
		wrong.Partition, wrong.Seq = s.Partition, s.Seq
		if _, err := readSnapshot(db, wrong); !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
	}
}

// TestSnapshotSplice: frames are checked in their place, not only by themselves.
func TestSnapshotSplice(t *testing.T) {
	db := mustOpen(t, testOptions(vfs.NewMem()))
	defer mustClose(t, db)
	writeSnapshot(t, db, 1, 1, randomBytes(3*frameMaxSize))
	list, err := db.Snapshots(1)
	if err != nil {
		t.Fatal(err)
	}
	file, err := disk.ReadFile(db.fs, list[0].Path, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	const frame = frameHeaderSize + frameMaxSize
	at := func(i int) []byte { return file[snapshotHeaderSize+i*frame:][:frame] }
	head, end := file[:snapshotHeaderSize], file[snapshotHeaderSize+3*frame:]
	for name, parts := range map[string][][]byte{
		"swapped": {head, at(1), at(0), at(2), end}, "left out": {head, at(0), at(2), end},
		"repeated": {head, at(0), at(0), at(1), at(2), end}, "ended early": {head, at(0), end},
	} {
		r, err := newSnapshotReader(bytes.NewReader(bytes.Join(parts, nil)), 1, 1)
		if err == nil {
			_, err = io.ReadAll(r)
		}
		if !errors.Is(err, ErrCorrupt) {
			t.Fatalf("%s: %v", name, err)
		}
	}
}

// TestSnapshotFaults fails each operation of writing a snapshot in turn. The
// earlier snapshot stays, the failed one leaves nothing half done, and the next
// attempt works.
func TestSnapshotFaults(t *testing.T) {
	content := randomBytes(3*frameMaxSize + 9) // more than one write
	for at, failed := int64(1), true; failed; at++ {
		mem := vfs.NewCrashableMem()
		var n atomic.Int64
		n.Store(math.MinInt64)
		o := testOptions(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if strings.Contains(op.Path, snapshotName) && n.Add(1) == at {
				return syscall.ENOSPC
			}
			return nil
		})))
		db := mustOpen(t, o)
		writeSnapshot(t, db, 0, 1, content)
		n.Store(0)
		err := trySnapshot(db, 0, 2, content)
		failed = n.Load() >= at
		n.Store(math.MinInt64)
		newest := uint64(1)
		if err == nil {
			newest = 2 // at most the listing of older ones failed
		} else if !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("operation %d: %v", at, err)
		}
		if names := snapshotNames(t, db); strings.Contains(names, disk.TmpSuffix) {
			t.Fatalf("operation %d leaves %s", at, names)
		}
		verifySnapshots(t, db, content, newest)
		writeSnapshot(t, db, 0, 3, content)
		verifySnapshots(t, db, content, 3)
		mustClose(t, db)
	}
}

// verifySnapshots checks that each listed snapshot of partition 0 is whole and
// that one is at least that new.
func verifySnapshots(t testing.TB, db *DB, content []byte, newest uint64) {
	t.Helper()
	list, err := db.Snapshots(0)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 && newest > 0 || len(list) > 0 && list[0].Seq < newest {
		t.Fatalf("%v does not reach %d", list, newest)
	}
	for _, s := range list {
		got, err := readSnapshot(db, s)
		if err != nil || !bytes.Equal(got, content) {
			t.Fatal(s, len(got), err)
		}
	}
}

// TestSnapshotCrash crashes at each operation of writing a snapshot: what is
// listed afterwards is whole (G4: and its log is there), the previous one stays
// until the new one is durable, and leftovers are gone.
func TestSnapshotCrash(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	content := randomBytes(3*frameMaxSize + 9) // more than one write
	for at := 1; ; at += raced.Step {
		var crashed []*vfs.MemFS
		mem := vfs.NewCrashableMem()
		armed := new(atomic.Bool)
		hook := crashtest.AtOperation(at, func() {
			crashed = append(crashed, crashtest.Left(mem, 0, nil), crashtest.Left(mem, 50, rng))
		})
		o := testOptions(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if armed.Load() {
				return hook(op)
			}
			return nil
		})))
		o.Fsync = oplog.Everysec
		db := mustOpen(t, manualTicks(o))
		for seq := uint64(1); seq <= 3; seq++ {
			writeSnapshot(t, db, 0, seq, content)
		}
		mustCommit(t, db, func(b *oplog.Batch) { b.AppendLog(0, 1, crashtest.Record(1)) })
		armed.Store(true)
		writeSnapshot(t, db, 0, 4, content)
		armed.Store(false)
		done := crashed == nil
		if done {
			crashed = append(crashed, crashtest.Left(mem, 0, nil))
		}
		mustClose(t, db)
		for _, c := range crashed {
			db := mustOpen(t, testOptions(c))
			newest := uint64(3)
			if done {
				newest = 4
			}
			verifySnapshots(t, db, content, newest)
			if list, _ := db.Snapshots(0); list[0].Seq == 4 && logPrefix(t, db) != 1 {
				t.Fatal("the snapshot is ahead of the log")
			}
			if names := snapshotNames(t, db); strings.Contains(names, disk.TmpSuffix) {
				t.Fatal(names)
			}
			mustClose(t, db)
		}
		if done {
			return
		}
	}
}

func TestSnapshotNames(t *testing.T) {
	for name, want := range map[string]bool{
		"p0007-00000000000000000004.fbf": true, "p1023-18446744073709551615.fbf": true,
		"p12345-00000000000000000004.fbf": true,
		"":                                false, "p": false, "p0007.fbf": false, "p7-4.fbf": false,
		"p0007-00000000000000000004.fbf.tmp": false, "q0007-00000000000000000004.fbf": false,
		"p0007-99999999999999999999.fbf": false, "p+007-00000000000000000004.fbf": false,
		"p99999-00000000000000000004.fbf": false,
	} {
		if _, _, ok := parseSnapshotFile(name); ok != want {
			t.Errorf("%q: %v", name, ok)
		}
	}
}

func TestSnapshotAbort(t *testing.T) {
	db := mustOpen(t, testOptions(vfs.NewMem()))
	defer mustClose(t, db)
	w, err := db.CreateSnapshot(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	w.Abort()
	w.Abort()
	if _, err := w.Write([]byte("late")); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	if err := w.Commit(); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	expect(t, "files", snapshotNames(t, db), "")
}
