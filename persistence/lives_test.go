package persistence

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/fbfkv/fbfkv/internal/raced"
	"github.com/fbfkv/fbfkv/persistence/crashtest"
	"github.com/fbfkv/fbfkv/persistence/oplog"
)

// seenState is what a start finds: each only grows in TestLives.
type seenState struct {
	records, snapshot, tail uint64
	row, runs               string
}

func observe(t testing.TB, db *DB) (s seenState) {
	t.Helper()
	s.records = logPrefix(t, db)
	row, _, err := db.Row(nil, RowKey{Key: []byte("k")})
	if err != nil {
		t.Fatal(err)
	}
	s.row, s.runs = string(row), verifyRuns(t, db)
	list, err := db.Snapshots(0)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) > 0 {
		s.snapshot = list[0].Seq
		if _, err := readSnapshot(db, list[0]); err != nil {
			t.Fatal(err)
		}
	}
	tail, err := db.OpenTail(3, 5, func([]byte) error { s.tail++; return nil })
	if err := errors.Join(err, tail.Close()); err != nil {
		t.Fatal(err)
	}
	return s
}

// lacks reports whether something is gone since an earlier state.
func (s seenState) lacks(was seenState) bool {
	return s.records < was.records || s.snapshot < was.snapshot || s.tail < was.tail || s.row < was.row ||
		s.runs < was.runs
}

// work does of everything a little that a start reads.
func work(t testing.TB, db *DB, s seenState) {
	t.Helper()
	tail, err := db.OpenTail(3, 5, func([]byte) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	for i := s.records + 1; i <= s.records+4; i++ {
		mustCommit(t, db, func(b *oplog.Batch) { b.AppendLog(0, i, crashtest.Record(i)) })
		mustChange(t, db, func(c *Changes) {
			c.PutRow(RowKey{Key: []byte("k")}, fmt.Appendf(nil, "%06d", i))
			c.PutRow(RowKey{Key: fmt.Append(nil, "other", i)}, crashtest.Noise[:5000])
		})
		mustFlush(t, db)
		if err := errors.Join(tail.Append(fmt.Append(nil, i)), tryRun(db, i)); err != nil {
			t.Fatal(err)
		}
		writeSnapshot(t, db, 0, i, crashtest.Noise[:9000])
		if err := db.pebble.Compact(context.Background(), []byte{0}, []byte{255}, false); err != nil {
			t.Fatal(err)
		}
	}
	if err := tail.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestLives kills a process at every kind of moment, and takes the power from the next one: what
// that has found when it started stays.
func TestLives(t *testing.T) {
	rng := rand.New(rand.NewPCG(36, 1))
	for at := 1; ; at += (1 + rng.IntN(12)) * raced.Step {
		disk := crashtest.NewDisk()
		var killed *crashtest.Disk
		db := mustOpen(t, testOptions(errorfs.Wrap(disk, crashtest.AtOperation(at, func() {
			killed = disk.Kill()
		}))))
		work(t, db, seenState{})
		mustClose(t, db)
		if killed == nil {
			return
		}
		var mu sync.Mutex
		var lost *crashtest.Disk
		var seen, promised seenState
		percent := 50 * rng.IntN(2)
		db = mustOpen(t, testOptions(errorfs.Wrap(killed, crashtest.AtOperation(1+rng.IntN(300), func() {
			mu.Lock()
			defer mu.Unlock()
			lost, promised = killed.Lose(percent, rng), seen
		}))))
		started := killed.Lose(percent, rng) // nothing was asked yet
		now := observe(t, db)
		mu.Lock()
		seen = now
		mu.Unlock()
		work(t, db, now)
		mustClose(t, db)
		if lost == nil || rng.IntN(2) == 0 {
			lost, promised = started, now
			promised.tail = 0 // it was not read yet
		}
		db, err := Open(testOptions(lost))
		if err != nil {
			t.Fatalf("killed at operation %d: %v", at, err)
		}
		if is := observe(t, db); is.lacks(promised) {
			t.Fatalf("killed at operation %d: %+v was found, and then %+v", at, promised, is)
		}
		mustClose(t, db)
	}
}

// TestManifestOnNoDisk: the fsync of a MANIFEST fails. The next start finds there what no disk has.
func TestManifestOnNoDisk(t *testing.T) {
	disk := crashtest.NewDisk()
	o := testOptions(disk)
	var db *DB
	if err := untilFatal(&o, func() {
		db = mustOpen(t, o)
		mustChange(t, db, func(c *Changes) { c.PutRow(RowKey{Key: []byte("k")}, []byte("1")) })
		mustFlush(t, db) // a MANIFEST is begun
		disk.FailSyncs(func(path string) error {
			if strings.Contains(path, manifestPrefix) {
				return syscall.EIO
			}
			return nil
		})
		mustChange(t, db, func(c *Changes) { c.PutRow(RowKey{Key: []byte("k")}, []byte("2")) })
		_ = db.Flush()
	}); !errors.Is(err, ErrFailed) {
		t.Fatal(err)
	}
	killed := disk.Kill()
	next := mustOpen(t, testOptions(killed))
	expect(t, "row", rows(t, next, 0, 1<<63), "0/0/k=2 ")
	lost := mustOpen(t, testOptions(killed.Lose(0, nil)))
	expect(t, "row after a power loss", rows(t, lost, 0, 1<<63), "0/0/k=2 ")
	mustClose(t, lost)
	mustClose(t, next)
}

// TestNamesStay: a directory that is opened stays, though the process was killed that has made it
// or has put it there.
func TestNamesStay(t *testing.T) {
	base := crashtest.NewDisk()
	db := mustOpen(t, testOptions(base))
	if err := db.Backup("backup", func() {}, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	mustClose(t, db)
	base = base.Lose(0, nil)
	for name, do := range map[string]func(fsys vfs.FS) error{
		"created": func(fsys vfs.FS) error {
			o := testOptions(fsys)
			o.Dir = "a/b/c"
			db, err := Open(o)
			if err == nil {
				err = db.Close()
			}
			return err
		},
		"restored": func(fsys vfs.FS) error { return Restore(fsys, "backup", "a/b/c", func(_, _ int64) {}) },
	} {
		for at := 1; ; at += raced.Step {
			disk, killed := base.Kill(), (*crashtest.Disk)(nil)
			if err := do(errorfs.Wrap(disk,
				crashtest.AtOperation(at, func() { killed = disk.Kill() }))); err != nil {
				t.Fatal(err)
			}
			if killed == nil || name == "created" && at > 50 { // the directories are there
				break
			}
			o := testOptions(killed)
			o.Dir = "a/b/c"
			if _, err := killed.Stat("a/b/c/META"); err != nil && name == "restored" {
				continue
			}
			db := mustOpen(t, o)
			mustCommit(t, db, func(b *oplog.Batch) { b.AppendLog(0, 1, crashtest.Record(1)) })
			o.FS = killed.Lose(0, nil)
			again, err := Open(o)
			if err != nil || logPrefix(t, again) != 1 {
				t.Fatalf("%s, killed at operation %d: it is gone; %v", name, at, err)
			}
			mustClose(t, again)
			mustClose(t, db)
		}
	}
}

// TestSnapshotStays: a snapshot that a start finds stays, though the process was killed that has
// published it.
func TestSnapshotStays(t *testing.T) {
	base := crashtest.NewDisk()
	db := mustOpen(t, testOptions(base))
	writeSnapshot(t, db, 0, 1, crashtest.Noise[:9000])
	mustClose(t, db)
	for at := 1; ; at++ {
		disk, killed := base.Kill(), (*crashtest.Disk)(nil)
		atSnapshot := crashtest.AtOperation(at, func() { killed = disk.Kill() })
		db := mustOpen(t, testOptions(errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if strings.Contains(op.Path, snapshotName) {
				return atSnapshot(op)
			}
			return nil
		}))))
		writeSnapshot(t, db, 0, 2, crashtest.Noise[:9000])
		mustClose(t, db)
		if killed == nil {
			return
		}
		db = mustOpen(t, testOptions(killed))
		lost := mustOpen(t, testOptions(killed.Lose(0, nil)))
		expect(t, "snapshots", snapshotNames(t, lost), snapshotNames(t, db))
		verifySnapshots(t, lost, crashtest.Noise[:9000], 1)
		mustClose(t, lost)
		mustClose(t, db)
	}
}

// TestTailOnNoDisk: the fsync of a frame fails. The next start finds it, and it stays.
func TestTailOnNoDisk(t *testing.T) {
	disk := crashtest.NewDisk()
	read := func(fsys vfs.FS) (tail *Tail, n int) {
		tail, err := mustOpen(t, testOptions(fsys)).OpenTail(3, 5, func([]byte) error { n++; return nil })
		if err != nil {
			t.Fatal(err)
		}
		return tail, n
	}
	tail, _ := read(disk)
	disk.FailSyncs(func(string) error { return syscall.EIO })
	if err := tail.Append([]byte("frame")); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	disk = disk.Kill()
	if _, n := read(disk); n != 1 {
		t.Fatalf("%d frames are found", n)
	}
	if _, n := read(disk.Lose(0, nil)); n != 1 {
		t.Fatalf("%d frames are left", n)
	}
}
