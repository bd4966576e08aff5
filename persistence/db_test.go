package persistence

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence/oplog"
)

// testOptions are small enough for many databases per test.
func testOptions(fsys vfs.FS) Options {
	return Options{FS: fsys, Dir: "data", MemTableSize: 1 << 20, CacheSize: 1 << 20}
}

// manualTicks leaves the background fsync of the op log to the test.
func manualTicks(o Options) Options {
	o.ticks = make(chan time.Time)
	return o
}

func mustOpen(t testing.TB, o Options) *DB {
	t.Helper()
	db, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func mustClose(t testing.TB, db *DB) {
	t.Helper()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// commit applies what fill adds and waits for it.
func commit(db *DB, fill func(b *oplog.Batch)) error {
	b := db.log.NewBatch()
	fill(b)
	if err := b.Apply(); err != nil {
		return err
	}
	return b.Wait()
}

// change commits changes of Pebble.
func change(db *DB, fill func(c *Changes)) error {
	c := db.NewChanges()
	fill(c)
	return c.Commit()
}

func mustChange(t testing.TB, db *DB, fill func(c *Changes)) {
	t.Helper()
	if err := change(db, fill); err != nil {
		t.Fatal(err)
	}
}

func mustFlush(t testing.TB, db *DB) {
	t.Helper()
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
}

func mustCommit(t testing.TB, db *DB, fill func(b *oplog.Batch)) {
	t.Helper()
	if err := commit(db, fill); err != nil {
		t.Fatal(err)
	}
}

// rows renders the rows with positions in [from, to).
func rows(t testing.TB, db *DB, from, to uint64) string {
	t.Helper()
	var b bytes.Buffer
	err := db.Rows(from, to, func(k RowKey, value []byte) bool {
		fmt.Fprintf(&b, "%d/%x/%s=%s ", k.Slot, k.Hash, k.Key, value)
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// logOf renders a partition's op log from a sequence on.
func logOf(t testing.TB, db *DB, partition uint16, from uint64) string {
	t.Helper()
	var b bytes.Buffer
	err := db.log.Read(partition, from, func(seq uint64, record []byte) error {
		fmt.Fprintf(&b, "%d=%s ", seq, record)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func expect[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func TestRows(t *testing.T) {
	db := mustOpen(t, testOptions(vfs.NewMem()))
	defer mustClose(t, db)
	put := func(slot uint16, hash uint64, key, value string) {
		mustChange(t, db, func(b *Changes) { b.PutRow(RowKey{slot, hash, []byte(key)}, []byte(value)) })
	}
	put(2, 1, "c", "3")
	put(1, 0xffff_0000_0000_0007, "b", "2") // only 48 bits count
	put(1, 7, "a", "1")
	put(16383, hashMask, "z", "9")
	put(1, 7, "", "0") // any key
	all := "1/7/=0 1/7/a=1 1/7/b=2 2/1/c=3 16383/ffffffffffff/z=9 "
	expect(t, "all rows", rows(t, db, 0, math.MaxUint64), all)
	expect(t, "from a position", rows(t, db, 1<<48|7, 2<<48), "1/7/=0 1/7/a=1 1/7/b=2 ")
	expect(t, "after it", rows(t, db, 1<<48|8, 2<<48), "")

	buffer := []byte("previous")
	value, ok, err := db.Row(buffer, RowKey{1, 7, []byte("b")})
	if err != nil || !ok || string(value) != "2" {
		t.Fatal(string(value), ok, err)
	}
	if _, ok, err := db.Row(nil, RowKey{1, 7, []byte("nope")}); ok || err != nil {
		t.Fatal(ok, err)
	}

	stopped := 0
	if err := db.Rows(0, math.MaxUint64,
		func(RowKey, []byte) bool { stopped++; return stopped < 2 }); err != nil {
		t.Fatal(err)
	}
	expect(t, "rows before the stop", stopped, 2)

	mustChange(t, db, func(b *Changes) { b.DeleteRow(RowKey{1, 7, []byte("a")}); b.DeleteRows(2, 16383) })
	expect(t, "after deletes", rows(t, db, 0, math.MaxUint64), "1/7/=0 1/7/b=2 ")
	mustChange(t, db, func(b *Changes) { b.DeleteRows(0, 0); b.DeleteRows(2, 1) })
	expect(t, "deletes of nothing", rows(t, db, 0, math.MaxUint64), "1/7/=0 1/7/b=2 ")
}

func TestLogAndState(t *testing.T) {
	o := testOptions(vfs.NewMem())
	db := mustOpen(t, o)
	record := []byte("x")
	mustCommit(t, db, func(b *oplog.Batch) {
		for _, seq := range []uint64{0, 5, 256, math.MaxUint64} {
			record[0] = 'a' + byte(seq%26)
			b.AppendLog(3, seq, record) // copied: record is reused
		}
		b.AppendLog(2, 9, []byte("other"))
	})
	mustClose(t, db)
	db = mustOpen(t, o)
	defer mustClose(t, db)
	expect(t, "log", logOf(t, db, 3, 0), "0=a 5=f 256=w 18446744073709551615=p ")
	expect(t, "from", logOf(t, db, 3, 6), "256=w 18446744073709551615=p ")
	first, last, ok := db.log.Bounds(3)
	if !ok || first != 0 || last != math.MaxUint64 {
		t.Fatal(first, last, ok)
	}
	if _, _, ok := db.log.Bounds(4); ok {
		t.Fatal(ok)
	}
	expect(t, "other partition", logOf(t, db, 2, 0), "9=other ")
	mustChange(t, db, func(c *Changes) { c.PutState(3, []byte("state")) })
	state, ok, err := db.State(3)
	if err != nil || !ok || string(state) != "state" {
		t.Fatal(string(state), ok, err)
	}
	if _, ok, err := db.State(2); ok || err != nil {
		t.Fatal(ok, err)
	}
	stop := errors.New("stop")
	if err := db.log.Read(3, 0, func(uint64, []byte) error { return stop }); !errors.Is(err, stop) {
		t.Fatal(err)
	}
}

func TestReopen(t *testing.T) {
	for _, policy := range []oplog.Fsync{oplog.Always, oplog.Everysec, oplog.No} {
		t.Run(policy.String(), func(t *testing.T) {
			o := testOptions(vfs.NewMem())
			o.Fsync, o.Partitions = policy, 4
			db := mustOpen(t, o)
			meta := db.Meta()
			expect(t, "partitions", meta.Partitions, 4)
			mustCommit(t, db, func(b *oplog.Batch) { b.AppendLog(1, 1, []byte("kept")) })
			mustClose(t, db)
			if err := db.Close(); !errors.Is(err, ErrClosed) {
				t.Fatal(err)
			}
			o.Partitions = 8 // only used at creation
			db = mustOpen(t, o)
			defer mustClose(t, db)
			expect(t, "meta", db.Meta(), meta)
			expect(t, "log", logOf(t, db, 1, 0), "1=kept ")
			expect(t, "recovery", db.log.Recovery(), oplog.Recovery{})
		})
	}
}
