package store

import (
	"bytes"
	"testing"
)

// TestPackedIsTheRecord: what is logged of an operation is, byte for byte, what
// its record is made of, whether it was just logged or read from the log.
func TestPackedIsTheRecord(t *testing.T) {
	for _, e := range []entry{
		{kind: entryApply, key: []byte("k"), id: []byte("id"), delta: 1, value: 1},
		{kind: entryApply, flags: flagHasExpire | flagHasTime | flagClipped | flagExact, table: 1 << 20, key: bytes.Repeat([]byte("k"), 300),
			id: bytes.Repeat([]byte("i"), 512), delta: -1 << 63, value: 1<<63 - 1, expire: 1e13, time: 1e13, clip: -5},
	} {
		want := (&record{key: e.key, id: e.id, seen: Seen{Delta: e.delta, Result: e.value, UnixMs: 1e12, Clip: e.clip}}).appendTo(nil)
		b := e.appendTo(beginRecord(nil, moment{logged: 1, wall: 2}))
		r, err := newRecordReader(b)
		var read entry
		if err != nil || !r.next(&read) {
			t.Fatal(err, r.err)
		}
		for _, e := range []entry{e, read} {
			rec := record{key: e.key, id: e.id, packed: e.packed, seen: Seen{Delta: e.delta, Result: e.value, UnixMs: 1e12, Clip: e.clip}}
			if got := rec.appendTo(nil); e.packed == nil || !bytes.Equal(got, want) {
				t.Errorf("%x instead of %x", got, want)
			}
		}
	}
}
