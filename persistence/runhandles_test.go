package persistence

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// TestRunHandles: more runs than files may stay open.
func TestRunHandles(t *testing.T) {
	o := testOptions(vfs.NewMem())
	db := mustOpen(t, o)
	var runs []Run
	for id := range uint64(MaxOpenRuns + 10) {
		w, err := db.NewRun(Run{ID: id})
		if err == nil {
			err = w.Add(id, id, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		r, err := w.Finish(Run{})
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, r)
	}
	if err := publishRuns(db, runs...); err != nil {
		t.Fatal(err)
	}
	mustClose(t, db)
	db = mustOpen(t, o)
	for id, r := range runs {
		expect(t, "look-up", lookUp(t, db, r, uint64(id)), fmt.Sprintf("%d= ", id))
	}
	mustClose(t, db)
}

// TestRunRemovedBeforeItIsOpened: a look-up whose run is removed at the moment
// in which it opens the file finds nothing, as one that comes later.
func TestRunRemovedBeforeItIsOpened(t *testing.T) {
	var db *DB
	var remove atomic.Pointer[Run]
	o := testOptions(errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if r := remove.Load(); r != nil && op.Kind == errorfs.OpOpen && strings.HasSuffix(op.Path, runSuffix) {
			remove.Store(nil)
			db.RemoveRuns([]Run{*r})
		}
		return nil
	})))
	db = mustOpen(t, o)
	defer func() { mustClose(t, db) }()
	r := writeRun(t, db, Run{Table: 1, ID: 1}, [2]uint64{7, 1})
	file := db.runs.acquire(r)
	if err := file.f.Close(); err != nil {
		t.Fatal(err)
	}
	file.f = nil // as beyond MaxOpenRuns
	expect(t, "found", lookUp(t, db, r, 7), "1=v1 ")
	remove.Store(&r)
	expect(t, "removed", lookUp(t, db, r, 7), "")
	if _, err := db.fs.Stat(db.path(runName, runFileName(r))); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal("the run is still there:", err)
	}
}
