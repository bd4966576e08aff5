package persistence

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

// Tables are sstables of all rows and expiries of a partition, made aside: Ingest puts them
// in the place of what Pebble has of it, all at once and without writing them again. They are
// lost with the process. Not safe for concurrent use.
type Tables struct {
	db        *DB
	partition uint16
	first     uint16 // slot
	last      uint16
	w         *sstable.Writer
	kind      byte // of the keys of w
	key       []byte
	paths     []string
	done      bool // ingested, or discarded
}

// NewTables begins the sstables of a partition, of which first and last are the slots.
func (db *DB) NewTables(partition, first, last uint16) *Tables {
	return &Tables{db: db, partition: partition, first: first, last: last}
}

// The kinds of keys that tables replace, in order.
var tableKinds = [...]byte{kindPage, kindRow, kindExpiry}

// PutRow adds a row; rows ascend by (position, key).
func (t *Tables) PutRow(k RowKey, value []byte) error {
	t.key = append(t.key[:0], make([]byte, k.size())...)
	k.put(t.key)
	return t.put(value)
}

// PutExpiry adds an expiry, behind all rows; expiries ascend by (time, position, key).
func (t *Tables) PutExpiry(at int64, k RowKey) error {
	t.key = append(t.key[:0], make([]byte, expiryPrefixSize+8+len(k.Key))...)
	putExpiryKey(t.key, t.partition, at, k)
	return t.put(nil)
}

func (t *Tables) put(value []byte) error {
	err := t.begin(t.key[0])
	if err == nil {
		err = t.w.Set(t.key, value)
	}
	return wrap("write an sstable", disk.NoSpace(err))
}

// begin begins the sstable of a kind, and those before it that have no keys. Each deletes
// what Pebble has of its kind.
func (t *Tables) begin(kind byte) error {
	for _, k := range tableKinds {
		if k <= t.kind || k > kind {
			continue
		}
		if err := t.end(); err != nil {
			return err
		}
		path := t.db.path(buildName, fmt.Sprintf("p%04d-%d-%c.table", t.partition, t.db.staged.Add(1), k))
		f, err := t.db.fs.Create(path, disk.WriteCategory)
		if err != nil {
			return err
		}
		t.kind, t.paths = k, append(t.paths, path)
		t.w = sstable.NewWriter(objstorageprovider.NewFileWritable(f),
			t.db.options.MakeWriterOptions(0, t.db.pebble.TableFormat()))
		lower, upper := t.span(k)
		if err := t.w.DeleteRange(lower, upper); err != nil {
			return err
		}
	}
	return nil
}

// span is where the partition's keys of a kind lie.
func (t *Tables) span(kind byte) (lower, upper []byte) {
	if kind != kindRow {
		lower = binary.BigEndian.AppendUint16([]byte{kind}, t.partition)
		return lower, successor(append([]byte(nil), lower...))
	}
	lower, upper = make([]byte, rowPrefixSize), make([]byte, rowPrefixSize)
	putPosition(lower, uint64(t.first)<<48)
	putPosition(upper, uint64(t.last)<<48|hashMask)
	return lower, successor(upper)
}

// end ends the present sstable, which is then durable.
func (t *Tables) end() error {
	if t.w == nil {
		return nil
	}
	w := t.w
	t.w = nil
	return w.Close()
}

// Finish ends the sstables.
func (t *Tables) Finish() error {
	err := t.begin(kindExpiry)
	if err == nil {
		err = t.end()
	}
	return wrap("write an sstable", disk.NoSpace(err))
}

// Ingest makes the rows and expiries those of the partition; earlier ones, and its pages,
// go. As with a Commit all of it is visible afterwards, durable with the next Flush, and what
// it shows is made durable in the op log first (G4). It can be called once. Errors are those
// of Commit.
func (t *Tables) Ingest() error {
	db := t.db
	if t.done {
		return fmt.Errorf("%w: tables are ingested twice", ErrBadOptions)
	}
	if err := db.beforeChange(); err != nil {
		return err
	}
	KillPoint("before-ingest")
	defer db.stopOnPanic()
	if err := disk.NoSpace(db.pebble.Ingest(context.Background(), t.paths)); err != nil {
		if errors.Is(err, ErrNoSpace) {
			return wrap("ingest", err)
		}
		return db.fail(wrap("ingest", err))
	}
	KillPoint("after-ingest")
	t.done = true
	return nil
}

// Discard removes the sstables, unless they were ingested.
func (t *Tables) Discard() {
	if t.done {
		return
	}
	t.done = true
	_ = t.end() // it is of no use any more
	for _, path := range t.paths {
		_ = disk.RemoveIfExists(t.db.fs, path) // the next start removes it
	}
}
