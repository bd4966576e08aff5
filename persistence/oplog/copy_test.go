package oplog

import (
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence/crashtest"
)

// racedFS lets commits go on between any two reads of a log file, as they do
// while a backup copies it.
type racedFS struct {
	vfs.FS
	between func(name string, read int64)
}

func (fs racedFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := fs.FS.Open(name, opts...)
	if err != nil || !strings.HasSuffix(name, ".log") || !strings.HasPrefix(name, "data/") {
		return f, err
	}
	return &racedFile{File: f, name: fs.FS.PathBase(name), between: fs.between}, nil
}

type racedFile struct {
	vfs.File
	name    string
	read    int64
	between func(name string, read int64)
}

func (f *racedFile) Read(p []byte) (int, error) {
	n, err := f.File.Read(p[:min(len(p), 4<<10)])
	f.read += int64(n)
	f.between(f.name, f.read)
	return n, err
}

// TestCopyOfMovingLog: the newest file grows under the copy, which
// therefore has old bytes where new ones are by now, and later records behind
// them. The copy must open nevertheless, with all that was committed before the
// backup and no gap in what came later.
func TestCopyOfMovingLog(t *testing.T) {
	for _, policy := range []Fsync{Always, Everysec, No} {
		t.Run(policy.String(), func(t *testing.T) {
			mem := vfs.NewMem()
			var db *Log
			seq := uint64(0)
			write := func() {
				seq++
				mustCommit(t, db, func(b *Batch) { b.AppendLog(0, seq, crashtest.Record(seq)) })
			}
			racing := false
			o := testOptions(racedFS{FS: mem, between: func(name string, read int64) {
				// The copy has just passed the end of the written records: now the writer overtakes
				// it.
				if !racing {
					return
				}
				f := db.sync.current()
				if num, _ := logNumber(name); num != f.num || read < f.written.Load() {
					return
				}
				for f.written.Load() < read+100<<10 {
					write()
				}
				if err := db.Trim(0, seq); err != nil {
					t.Error(err)
				}
				racing = false
			}})
			o.Fsync = policy
			db = mustOpen(t, manualTicks(o))
			for range 600 { // several files
				write()
			}
			before := seq
			racing = true
			if err := db.CopyTo("backup/log", "backup"); err != nil {
				t.Fatal(err)
			}
			if seq == before {
				t.Fatal("nothing was committed during the backup")
			}
			mustClose(t, db)
			for _, open := range []func(Options) (*Log, error){OpenReadOnly, Open} {
				o := testOptions(mem)
				o.Dir, o.MarkDir = "backup/log", "backup"
				copied, err := open(o)
				if err != nil {
					t.Fatal(err)
				}
				if n := prefix(t, copied); n < before {
					t.Errorf("the copy ends at %d, want at least %d", n, before)
				}
				mustClose(t, copied)
			}
		})
	}
}
