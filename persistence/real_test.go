package persistence

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fbfkv/fbfkv/persistence/disk"
	"github.com/fbfkv/fbfkv/persistence/oplog"
)

// TestOperatingSystem runs once on the real file system: nested creation,
// locks, every policy, live switches.
func TestOperatingSystem(t *testing.T) {
	o := Options{Dir: filepath.Join(t.TempDir(), "deep", "data"), MemTableSize: 1 << 20}
	seq := uint64(0)
	for _, policy := range []oplog.Fsync{oplog.Always, oplog.Everysec, oplog.No, oplog.Always} {
		o.Fsync = policy
		db := mustOpen(t, o)
		if _, err := Open(o); !errors.Is(err, ErrInUse) {
			t.Fatal(err)
		}
		if free, err := db.DiskFree(); err != nil || free == 0 {
			t.Fatal(free, err)
		}
		for _, next := range []oplog.Fsync{oplog.No, oplog.Always, oplog.Everysec, oplog.No, oplog.Everysec,
			oplog.Always, policy} {
			if err := db.log.SetFsync(next); err != nil {
				t.Fatal(err)
			}
			mark, ok, err := disk.ReadMark(db.fs, o.Dir, oplog.MarkName)
			if err != nil || !ok || mark.Lazy != (next != oplog.Always) {
				t.Fatalf("under %v: %+v %v %v", next, mark, ok, err)
			}
			mustCommit(t, db, func(b *oplog.Batch) {
				seq++
				b.AppendLog(0, seq, []byte(policy.String()[:1]))
			})
		}
		writeSnapshot(t, db, 0, uint64(policy), []byte("content"))
		writeRun(t, db, Run{ID: uint64(policy)}, [2]uint64{1, 1})
		mustClose(t, db)
		mark, ok, err := disk.ReadMark(db.fs, o.Dir, oplog.MarkName)
		if err != nil || !ok || mark.Lazy || mark.Offset == 0 {
			t.Fatalf("after an orderly close: %+v %v %v", mark, ok, err)
		}
	}
	db := mustOpen(t, o)
	defer mustClose(t, db)
	expect(t, "log", logOf(t, db, 0, 0), "1=a 2=a 3=a 4=a 5=a 6=a 7=a 8=e 9=e 10=e 11=e 12=e 13=e 14=e "+
		"15=n 16=n 17=n 18=n 19=n 20=n 21=n 22=a 23=a 24=a 25=a 26=a 27=a 28=a ")
	if m := db.Metrics(); m.LogFiles == 0 || m.LogSize == 0 || m.DiskSize == 0 {
		t.Fatalf("%+v", m)
	}
}

// TestInUseByAnotherProcess re-runs this test binary while the directory is
// open: a process cannot see its own fcntl lock.
func TestInUseByAnotherProcess(t *testing.T) {
	const variable = "FBFKV_TEST_OPEN"
	if dir := os.Getenv(variable); dir != "" {
		if _, err := Open(Options{Dir: dir}); err != nil {
			os.Stdout.WriteString(err.Error())
		}
		return
	}
	o := Options{Dir: t.TempDir(), MemTableSize: 1 << 20}
	db := mustOpen(t, o)
	defer mustClose(t, db)
	c := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	c.Env = append(os.Environ(), variable+"="+o.Dir)
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "stop that process or choose another directory") {
		t.Fatal(err, string(out))
	}
}
