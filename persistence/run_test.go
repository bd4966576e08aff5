package persistence

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// writeRun writes a run with the entries (hash, seq) of pairs.
func writeRun(t testing.TB, db *DB, r Run, pairs ...[2]uint64) Run {
	t.Helper()
	w, err := db.NewRun(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pairs {
		if err := w.Add(p[0], p[1], fmt.Appendf(nil, "v%d", p[1])); err != nil {
			t.Fatal(err)
		}
	}
	r, err = w.Commit(r)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func lookUp(t testing.TB, db *DB, r Run, hash uint64) string {
	t.Helper()
	s := ""
	err := db.LookUp(r, hash, func(seq uint64, value []byte) bool {
		s += fmt.Sprintf("%d=%s ", seq, value)
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func runsOf(t testing.TB, db *DB, partition uint16) string {
	t.Helper()
	runs, err := db.Runs(partition)
	if err != nil {
		t.Fatal(err)
	}
	s := ""
	for _, r := range runs {
		s += fmt.Sprintf("%d/%d:%d ", r.Table, r.ID, r.Count)
	}
	return s
}

func TestRuns(t *testing.T) {
	o := testOptions(vfs.NewMem())
	db := mustOpen(t, o)
	a := writeRun(t, db, Run{Partition: 1, Table: 2, ID: 1, FirstSeq: 3, LastSeq: 9, FirstTime: -5, LastTime: 1 << 60},
		[2]uint64{0, 0}, [2]uint64{7, 3}, [2]uint64{7, 4}, [2]uint64{8, 1}, [2]uint64{math.MaxUint64, math.MaxUint64})
	expect(t, "count", a.Count, 5)
	expect(t, "bytes", a.Bytes, uint64(2+2+2+2+21))
	empty := writeRun(t, db, Run{Partition: 1, Table: 2, ID: 256})
	writeRun(t, db, Run{Partition: 1, Table: 1, ID: math.MaxUint64}, [2]uint64{1, 1})
	writeRun(t, db, Run{Partition: 2, Table: 1, ID: 1}, [2]uint64{1, 1})
	writeRun(t, db, Run{Partition: 0, Table: math.MaxUint32, ID: math.MaxUint64}, [2]uint64{1, 1})

	check := func() {
		t.Helper()
		expect(t, "runs", runsOf(t, db, 1), "1/18446744073709551615:1 2/1:5 2/256:0 ")
		expect(t, "runs of 0", runsOf(t, db, 0), "4294967295/18446744073709551615:1 ")
		runs, err := db.Runs(1)
		if err != nil {
			t.Fatal(err)
		}
		expect(t, "header", runs[1], a)
		expect(t, "two of one hash", lookUp(t, db, a, 7), "3=v3 4=v4 ")
		expect(t, "lowest", lookUp(t, db, a, 0), "0=v0 ")
		expect(t, "highest", lookUp(t, db, a, math.MaxUint64), "18446744073709551615=v18446744073709551615 ")
		expect(t, "absent", lookUp(t, db, a, 9), "")
		expect(t, "empty run", lookUp(t, db, empty, 7), "")
	}
	check()
	mustClose(t, db)
	db = mustOpen(t, o)
	defer func() { mustClose(t, db) }()
	check()

	n := 0
	if err := db.ScanRun(a, func(hash, seq uint64, value []byte) error { n++; return nil }); err != nil {
		t.Fatal(err)
	}
	expect(t, "scanned", n, 5)
	a.Count++
	if err := db.ScanRun(a, func(uint64, uint64, []byte) error { return nil }); !errors.Is(err, ErrCorrupt) {
		t.Fatal("a missing entry:", err)
	}

	mustCommit(t, db, func(b *Batch) { b.DropRun(1, 2, 1); b.DropRun(1, 9, 9) })
	expect(t, "dropped", runsOf(t, db, 1), "1/18446744073709551615:1 2/256:0 ")
	mustCommit(t, db, func(b *Batch) { b.DropRuns(1) })
	expect(t, "all dropped", runsOf(t, db, 1), "")
	expect(t, "others stay", runsOf(t, db, 2), "1/1:1 ")
	// Over a range deletion that may still be in the memtable.
	writeRun(t, db, Run{Partition: 1, Table: 2, ID: 300}, [2]uint64{1, 1})
	expect(t, "new after drop", runsOf(t, db, 1), "2/300:1 ")
}
