package persistence

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// writeScratchRun writes a scratch run whose entries have even hashes, spread as
// hashes are.
func writeScratchRun(t *testing.T, db *DB, id, entries uint64, filtered bool) Run {
	t.Helper()
	w, err := db.NewScratchRun(Run{Partition: 1, ID: id, Count: entries, Bytes: 8 * entries}, filtered)
	if err != nil {
		t.Fatal(err)
	}
	for i := range entries {
		if err := w.Add(scratchHash(i, entries), i+1, fmt.Appendf(nil, "v%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	r, err := w.Finish(Run{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func scratchHash(i, entries uint64) uint64 { return i * (1<<63/entries*2 - 2) &^ 1 }

// TestScratchRun: a scratch run of any size has a filter if it is to have one, is read
// also after it was removed by who has it in use, and by nobody else, and is gone after
// the next Open.
func TestScratchRun(t *testing.T) {
	const entries = smallRun + 1000
	o := testOptions(vfs.NewMem())
	db := mustOpen(t, o)
	var readers []*RunReader
	for i, filtered := range []bool{true, false} {
		r := writeScratchRun(t, db, uint64(i+1), entries, filtered)
		reader, err := db.ReadRun(r)
		if err != nil {
			t.Fatal(err)
		}
		readers = append(readers, reader)
		passed := 0
		for i := range uint64(entries) {
			if !reader.MayHave(scratchHash(i, entries)) {
				t.Fatalf("filtered %v: the filter lacks entry %d", filtered, i)
			}
			if reader.MayHave(scratchHash(i, entries) + 1 + i%1000*1e9&^1) {
				passed++
			}
		}
		if all := passed == entries; all == filtered || filtered && passed > entries/20 {
			t.Errorf("filtered %v: %d of %d absent hashes pass", filtered, passed, entries)
		}
		if memory := reader.Memory(); memory > 3*entries || filtered && memory < entries {
			t.Errorf("filtered %v: %d bytes of memory", filtered, memory)
		}
	}
	open := db.OpenRuns()
	db.RemoveRuns([]Run{readers[0].Run, readers[1].Run})
	var found Entries
	for _, r := range readers {
		for i := uint64(0); i < entries; i += 997 {
			if err := r.LookUp(scratchHash(i, entries), &found); err != nil || !found.Next() || string(found.Value) != fmt.Sprintf("v%d", i) || found.Seq != i+1 {
				t.Fatalf("entry %d: %d, %q, %v", i, found.Seq, found.Value, err)
			}
		}
		if _, err := db.ReadRun(r.Run); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a removed run: %v", err)
		}
		r.Close()
	}
	if got := db.OpenRuns(); got != open-2 {
		t.Errorf("%d files of runs are open, of %d", got, open)
	}
	left := writeScratchRun(t, db, 3, 10, true)
	mustClose(t, db)
	db = mustOpen(t, o)
	defer func() { mustClose(t, db) }()
	if _, err := db.ReadRun(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a run of the process before: %v", err)
	}
	if names := filesOf(t, o.FS, db.path(runName)); len(names) > 0 {
		t.Errorf("left: %v", names)
	}
}

func filesOf(t *testing.T, fs vfs.FS, dir string) []string {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestScratchRunsStayBehind: neither a backup nor a restore copies scratch runs, or
// counts them, and those that a killed process left do not disturb an examination.
func TestScratchRunsStayBehind(t *testing.T) {
	mem := vfs.NewMem()
	o := testOptions(mem)
	db := mustOpen(t, o)
	kept := writeRun(t, db, Run{Partition: 1, Table: 1, ID: 1}, [2]uint64{7, 1})
	_, before := db.BackupSize("backup")
	scratch := writeScratchRun(t, db, 1, 10_000, true)
	if _, total := db.BackupSize("backup"); total != before {
		t.Errorf("a backup has %d bytes more", total-before)
	}
	if err := db.Backup("backup"); err != nil {
		t.Fatal(err)
	}
	mustClose(t, db)
	if _, err := mem.Stat(mem.PathJoin(o.Dir, runName, runFileName(scratch))); err != nil {
		t.Fatal(err)
	}
	if err := Restore(mem, o.Dir, "restored", func(done, total int64) {
		if done > total {
			t.Errorf("%d of %d bytes were copied", done, total)
		}
	}); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"backup", "restored"} {
		names := filesOf(t, mem, mem.PathJoin(dir, runName))
		if len(names) != 1 || names[0] != runFileName(kept) {
			t.Errorf("%s: %v", dir, names)
		}
	}
	ro, err := OpenReadOnly(o)
	if err != nil {
		t.Fatal(err)
	}
	if s := runsOf(t, ro, 1); strings.Count(s, " ") > 1 || lookUp(t, ro, kept, 7) == "" {
		t.Errorf("runs: %s", s)
	}
	mustClose(t, ro)
}
