package persistence

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence/crashtest"
	"github.com/fbfkv/fbfkv/persistence/oplog"
)

// TestStartOnFullDisk: a disk that a neighbour has filled does not keep a server from
// starting, again and again: it serves what is there, and refuses what would be new
// until there is space.
func TestStartOnFullDisk(t *testing.T) {
	disk := crashtest.NewFullDisk(vfs.NewMem())
	o := testOptions(disk)
	o.MemTableSize = 32 << 20
	db := mustOpen(t, o)
	key := func(n uint64) RowKey { return RowKey{Hash: n, Key: []byte("key")} }
	const rows = 10
	for n := range uint64(rows) {
		mustCommit(t, db, func(b *oplog.Batch) { b.AppendLog(0, n+1, []byte("x")) })
		mustChange(t, db, func(b *Changes) { b.PutRow(key(n), make([]byte, 1<<20)) })
	}
	mustFlush(t, db)
	for range 3 {
		disk.Fill(0)
		if err := db.CheckSpace(); !errors.Is(err, ErrNoSpace) && db.spare.size == 0 {
			t.Fatal("the disk is full, and nothing was kept:", err)
		}
		_ = db.Close()
		db = mustOpen(t, o)
		for n := range uint64(rows) {
			if v, ok, err := db.Row(nil, key(n)); err != nil || !ok || len(v) != 1<<20 {
				t.Fatal("row", n, len(v), ok, err)
			}
		}
		expect(t, "log", logOf(t, db, 0, rows), "10=x ")
		disk.Fill(0) // what Pebble has given back since
		if err := db.log.Reserve(8 << 20); !errors.Is(err, ErrNoSpace) {
			t.Fatal("megabytes on a full disk:", err)
		}
		if err := change(db, func(b *Changes) { b.PutRow(key(0), make([]byte, 4<<20)) }); !errors.Is(err,
			ErrNoSpace) {
			t.Fatal("rows on a full disk:", err)
		}
	}
	disk.Fill(-1)
	if err := db.CheckSpace(); err != nil {
		t.Fatal("there is space again:", err)
	}
	if err := db.log.Reserve(1 << 20); err != nil {
		t.Fatal("there is space again:", err)
	}
	mustChange(t, db, func(b *Changes) { b.PutRow(key(0), make([]byte, 4<<20)) })
	mustClose(t, db)
}

// TestFullStartEnds: a server that found the disk full, and so wrote nothing, ends in
// order, and the next one finds what there was.
func TestFullStartEnds(t *testing.T) {
	disk := crashtest.NewFullDisk(vfs.NewMem())
	o := testOptions(disk)
	db := mustOpen(t, o)
	mustCommit(t, db, func(b *oplog.Batch) { b.AppendLog(0, 1, []byte("x")) })
	mustClose(t, db)
	disk.Fill(0)
	db = mustOpen(t, o)
	disk.Fill(0) // what is left of the spare
	mustClose(t, db)
	disk.Fill(-1)
	db = mustOpen(t, o)
	expect(t, "log", logOf(t, db, 0, 1), "1=x ")
	mustClose(t, db)
}
