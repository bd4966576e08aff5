package persistence

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/fbfkv/fbfkv/internal/raced"
	"github.com/fbfkv/fbfkv/persistence/crashtest"
	"github.com/fbfkv/fbfkv/persistence/oplog"
)

// TestReplaceDirectory empties a directory and moves another into it, and is stopped at
// each file operation. Repeated afterwards, it completes: the directory is the other one, and what
// others keep in it is there.
func TestReplaceDirectory(t *testing.T) {
	for n, stopped := 0, true; stopped; n += raced.Step {
		mem := vfs.NewMem()
		for i, dir := range []string{"data", "data/aside"} {
			o := testOptions(mem)
			o.Dir = dir
			db := mustOpen(t, o)
			for seq := uint64(1); seq <= uint64(3+4*i); seq++ {
				mustCommit(t, db, func(b *oplog.Batch) { b.AppendLog(0, seq, crashtest.Record(seq)) })
			}
			if err := db.Backup(fmt.Sprint("backup", i), func() {}, func() error { return nil }); err != nil {
				t.Fatal(err)
			}
			mustClose(t, db)
		}
		f, err := mem.Create("data/letter", vfs.WriteCategoryUnspecified)
		if err != nil || f.Close() != nil {
			t.Fatal(err)
		}
		boom, count := errors.New("stopped"), 0
		faulty := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if count++; count > n {
				return boom
			}
			return nil
		}))
		err = Erase(faulty, "data")
		if err == nil {
			err = Adopt(faulty, "data/aside", "data")
		} else if err := Erase(mem, "data"); err != nil {
			t.Fatal(err)
		}
		if stopped = err != nil; stopped {
			if err := Adopt(mem, "data/aside", "data"); err != nil {
				t.Fatalf("again after operation %d: %v", n, err)
			}
		}
		names, _ := mem.List("data")
		if slices.Contains(names, "aside") || !slices.Contains(names, "letter") {
			t.Errorf("operation %d leaves %v", n, names)
		}
		db := mustOpen(t, testOptions(mem))
		checkCopiedLog(t, db, 7)
		mustClose(t, db)
	}
}

// TestEraseKnowsEveryName: all that a directory holds after a life in it is erased.
func TestEraseKnowsEveryName(t *testing.T) {
	mem := vfs.NewMem()
	db := mustOpen(t, testOptions(mem))
	mustCommit(t, db, func(b *oplog.Batch) { b.AppendLog(0, 1, crashtest.Record(1)) })
	if err := db.Backup("backup", func() {}, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := Erase(mem, "data"); !errors.Is(err, ErrInUse) {
		t.Errorf("a directory in use: %v", err)
	}
	mustClose(t, db)
	for range 2 {
		if err := Erase(mem, "data"); err != nil {
			t.Fatal(err)
		}
		if names, _ := mem.List("data"); !slices.Equal(names, []string{lockName}) {
			t.Errorf("what is left: %v", names)
		}
	}
	if err := Erase(mem, "nothing"); err != nil {
		t.Error(err)
	}
}
