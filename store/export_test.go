package store

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestExport: a directory after a crash is read as a server would serve it, and one with a damaged
// log, which a server refuses, up to the damage: also if nothing can be read of the first file, and
// a partition has entries in later ones only. Nothing in it changes.
func TestExport(t *testing.T) {
	fs := vfs.NewCrashableMem()
	open := func(fs vfs.FS) (*Store, error) {
		return Open(Options{FS: fs, Dir: "d", Partitions: 4, LogFileSize: 256 << 10,
			SnapshotInterval: time.Hour, MinFreeDisk: -1})
	}
	s, err := open(fs)
	must(t, err)
	incr(s, "row", 7)
	do(s, Op{Kind: FBFReserve, Key: []byte("filter")})
	must(t, s.Snapshot())
	const n = 3000
	for i := 1; i <= n; i++ {
		wantOp(t, cincr(s, "k", longID(i), 1), int64(i), true)
	}
	last := "last"
	for of := s.shift; Slot([]byte(last))>>of == Slot([]byte("k"))>>of; {
		last += "+"
	}
	incr(s, last, 1)
	crashed := fs.CrashClone(vfs.CrashCloneCfg{})
	unreadable := fs.CrashClone(vfs.CrashCloneCfg{})
	must(t, s.Close())
	export := func() (found map[string]int64, damage []error) {
		t.Helper()
		found = map[string]int64{}
		damage, err := Export(ExportOptions{FS: crashed, Dir: "d"}, func(c Exported) error {
			if _, twice := found[string(c.Key)]; twice || c.Expire != 0 {
				t.Errorf("%s is there twice, or expires: %+v", c.Key, c)
			}
			found[string(c.Key)] = c.Value
			return nil
		})
		must(t, err)
		return found, damage
	}
	if found, damage := export(); len(damage) > 0 || len(found) != 3 || found["row"] != 7 ||
		found["k"] != n || found[last] != 1 {
		t.Fatalf("%v, %v", found, damage)
	}
	logs, err := crashed.List("d/log")
	must(t, err)
	logs = slices.DeleteFunc(logs, func(name string) bool { return !strings.HasSuffix(name, ".log") })
	if slices.Sort(logs); len(logs) < 3 {
		t.Fatalf("the log is in %q", logs)
	}
	middle := "d/log/" + logs[len(logs)/2]
	info, err := crashed.Stat(middle)
	must(t, err)
	for i := range int64(16) { // behind a record there may be bytes that say nothing
		flipByteAt(t, crashed, middle, info.Size()/2+i*311)
	}
	for range 2 { // it changes nothing
		// A record that looks like the end of its file leaves the other partitions whole.
		found, damage := export()
		if len(damage) == 0 || found["row"] != 7 || found["k"] < 1 || found["k"] >= n || found[last] > 1 {
			t.Fatalf("%v, %v", found, damage)
		}
	}
	if s, err := open(crashed); err == nil {
		s.Close()
		t.Fatal("a server starts with it")
	}
	crashed = unreadable
	flipByteAt(t, crashed, "d/log/"+logs[0], 0)
	if found, damage := export(); len(damage) == 0 || found["row"] != 7 || found["k"] != 0 ||
		found[last] != 0 {
		t.Errorf("with nothing of the first file: %v, %v", found, damage)
	}
}

// TestExportLaterRow: a counter that was saved after the end of what can be read of the log is given, with a
// warning, as its table may have got another SCALE.
func TestExportLaterRow(t *testing.T) {
	fs := vfs.NewMem()
	s := testStore(t, func(o *Options) { o.FS = fs })
	incr(s, "k", 7)
	must(t, s.Snapshot())
	c := s.db.NewChanges()
	changeRow("k", func(r *row) { r.seq += 5 })(t, s, c)
	must(t, c.Commit())
	must(t, s.CloseNow())
	n := 0
	damage, err := Export(ExportOptions{FS: fs, Dir: "data"}, func(c Exported) error {
		n += int(c.Value)
		return nil
	})
	if err != nil || n != 7 || len(damage) != 1 || !strings.Contains(damage[0].Error(), `such as "k" were saved`) {
		t.Errorf("%d, %v, %v", n, damage, err)
	}
}
