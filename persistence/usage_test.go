//go:build unix

package persistence

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence/oplog"
)

// TestDiskSize: the size of the directory is what du says, with files that are preallocated, wait
// for reuse, are left over or under construction.
func TestDiskSize(t *testing.T) {
	o := Options{Dir: t.TempDir(), MemTableSize: 1 << 20, LogFileSize: 256 << 10}
	db := mustOpen(t, manualTicks(o))
	for seq := uint64(1); seq <= 20; seq++ {
		mustCommit(t, db, func(b *oplog.Batch) { b.AppendLog(0, seq, make([]byte, 100<<10)) })
	}
	if err := db.log.Trim(0, 20); err != nil {
		t.Fatal(err)
	}
	writeSnapshot(t, db, 0, 7, make([]byte, 100<<10))
	writeRun(t, db, Run{ID: 7}, [2]uint64{1, 1})
	mustClose(t, db) // now nothing moves, but what the system has yet to write may need other blocks then
	measure := func() (du, recycled uint64) {
		t.Helper()
		du, recycled, err := diskUsage(o.Dir)
		if err != nil {
			t.Fatal(err)
		}
		return du, recycled
	}
	du, recycled := measure()
	if recycled == 0 {
		t.Error("no log file was kept to be used again")
	}
	for {
		db.usage.at = time.Time{}
		got, before := db.diskSize(), du
		if du, _ = measure(); du != before {
			continue
		}
		if got != du {
			t.Errorf("%d bytes, and du says %d", got, du)
		}
		break
	}
	db.usage.at = time.Now().Add(time.Hour) // a look that is not over, however slow this machine is
	if err := os.WriteFile(filepath.Join(o.Dir, "new"), make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := db.diskSize(); got != du {
		t.Errorf("looked at again at once: %d bytes, after %d", got, du)
	}
}

// diskUsage returns what du says of a directory, and of its log files that wait for reuse.
func diskUsage(dir string) (du, recycled uint64, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		blocks := uint64(info.Sys().(*syscall.Stat_t).Blocks) * 512
		du += blocks
		if filepath.Ext(path) == oplog.RecycledSuffix {
			recycled += blocks
		}
		return nil
	})
	return du, recycled, err
}

// TestLastBackup: when the last successful backup was is known, also after a restart.
func TestLastBackup(t *testing.T) {
	o := testOptions(vfs.NewMem())
	db := mustOpen(t, o)
	if at := db.LastBackup(); !at.IsZero() {
		t.Fatal("there was none:", at)
	}
	before := time.Now().Add(-time.Second)
	if err := db.Backup("data", func() {}, func() error { return nil }); err == nil {
		t.Fatal("a backup to itself")
	}
	if at := db.LastBackup(); !at.IsZero() {
		t.Fatal("it failed:", at)
	}
	if err := db.Backup("backup", func() {}, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	at := db.LastBackup()
	if at.Before(before) || at.After(time.Now()) {
		t.Fatal(at)
	}
	mustClose(t, db)
	db = mustOpen(t, o)
	if again := db.LastBackup(); !again.Equal(at) {
		t.Fatal("after a restart:", again)
	}
	mustClose(t, db)
	o.Dir = "backup"
	db = mustOpen(t, o)
	defer mustClose(t, db)
	if at := db.LastBackup(); !at.IsZero() {
		t.Fatal("of the copy there is none:", at)
	}
}
