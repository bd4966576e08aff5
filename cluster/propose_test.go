package cluster

import (
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/persistence/oplog"
)

// TestPacking: records become entries in their order; one that is less than the entry in flight
// waits for it, unless there is more than an entry holds.
func TestPacking(t *testing.T) {
	l := newLog(nil, 1, time.Second)
	l.reign, l.last = oplog.Reign{Term: 3, Index: 8}, func(uint16) uint64 { return 1 }
	number, records := uint64(0), 0
	add := func(bytes int) {
		b := l.NewBatch()
		b.AppendLog(0, 1, make([]byte, bytes))
		must(t, b.Apply())
	}
	next := func(want int) { // of so many records; 0: nothing is proposed
		t.Helper()
		data, _ := l.next()
		if (data != nil) != (want > 0) {
			t.Fatalf("an entry of %d bytes is proposed, of %d records", len(data), want)
		}
		if data == nil {
			return
		}
		number++
		records += want
		if c, err := decodeCommand(data); err != nil || c.kind != commandSections || c.reign != l.reign ||
			c.origin != 1 || c.number != number {
			t.Fatalf("%+v, %v, number %d was to be proposed", c, err, number)
		}
		if upTo := l.flying[len(l.flying)-1].upTo; upTo != uint64(records) {
			t.Fatalf("the entry ends with record %d, not %d", upTo, records)
		}
	}
	committed := func() { l.committed(func(uint16, uint64) {}) }
	next(0)
	add(1000)
	next(1)
	add(500)
	next(0)
	add(500)
	next(2)
	add(5000)
	next(0) // two are in flight
	committed()
	add(maxEntry)
	next(1)
	committed()
	next(1)
	committed()
	add(maxEntry - 100)
	add(200)
	next(1) // more than an entry holds
	committed()
	next(0)
	committed()
	next(1)
	committed()
	if l.undecided() {
		t.Error("something is left")
	}
}
