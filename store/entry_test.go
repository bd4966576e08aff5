package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/fbf"
	"github.com/fbfkv/fbfkv/store/coding"
	"github.com/fbfkv/fbfkv/store/seen"
)

// TestPackedIsTheRecord: what is logged of an operation is, byte for byte, what
// its record begins with, whether it was just logged or read from the log.
func TestPackedIsTheRecord(t *testing.T) {
	for _, e := range []entry{
		{kind: entryApply, key: []byte("k"), id: []byte("id"), delta: 1, value: 1},
		{kind: entryApply, flags: flagHasExpire | flagHasTime | flagClipped | flagExact, table: 1 << 20,
			key: bytes.Repeat([]byte("k"), 300),
			id:  bytes.Repeat([]byte("i"), 512), delta: -1 << 63, value: 1<<63 - 1, expire: 1e13, time: 1e13,
			clip: -5},
	} {
		want := seen.AppendOp(nil, e.key, e.id, e.delta, e.value)
		b := e.appendTo(beginSection(nil, moment{logged: 1, wall: 2}))
		r, err := newSectionReader(b)
		var read entry
		if err != nil || !r.next(&read) {
			t.Fatal(err, r.err())
		}
		if !bytes.Equal(e.packed, want) || !bytes.Equal(read.packed, want) {
			t.Errorf("%x and %x instead of %x", e.packed, read.packed, want)
		}
	}
}

// TestUnknownIsRefused: what a later release, or damage, may add to an entry, to a
// state or to a snapshot is refused, and nothing of it is seen.
func TestUnknownIsRefused(t *testing.T) {
	known := entry{kind: entrySet, key: []byte("k"), value: 5}
	begin := beginSection(nil, moment{logged: 1, wall: 2})
	for what, more := range map[string][]byte{
		"a flag, and its field":   append([]byte{byte(entrySet), 0x80, 1, 'k', 10}, 0x02, 0x00, 0x03),
		"a flag beside known":     {byte(entryDelete), 0x80 | byte(flagWasObject), 1, 'k'},
		"a kind":                  {byte(entryRemember) + 1, 0, 1, 'k'},
		"no type":                 {byte(entryCreate), 0, 1, 'k', 0, 0},
		"a counter as an object":  {byte(entryChange), 0, 1, 'k', byte(TypeCounter), 0},
		"a type":                  {byte(entryCreate), 0, 1, 'k', maxTypes - 2, 0},
		"a type beyond all":       {byte(entrySetExpiry), 0, 1, 'k', 255, 0},
		"no kind":                 {0, 0},
		"a table beyond 32 bits":  append(binary.AppendUvarint([]byte{byte(entryTighten), 0}, 1<<32), 2),
		"a field that is missing": {byte(entryApply), 0, 1, 1, 'k', 1, 'i', 2},
	} {
		record := append(known.appendTo(slices.Clone(begin)), more...)
		r, err := newSectionReader(record)
		var e entry
		if err != nil || !r.next(&e) || e.value != 5 {
			t.Fatal(what, err, r.err(), e)
		}
		if r.next(&e) || !errors.Is(r.err(), errCorruptEntry) || !reflect.DeepEqual(e, entry{}) {
			t.Errorf("%s: %+v, %v", what, e, r.err())
		}
		if r.next(&e) || !reflect.DeepEqual(e, entry{}) {
			t.Errorf("%s: %+v after an error", what, e)
		}
	}
	_, err := newSectionReader(binary.AppendUvarint([]byte{sectionVersion, 1}, 1<<63))
	mustBeDamage(t, err)

	cat := newCatalog()
	encoded := string(cat.encode())
	for _, text := range []string{
		`{"Later":1,` + encoded[1:], strings.Replace(encoded, `"ID":`, `"Later":1,"ID":`, 1), encoded + "{}",
		encoded + " x",
		strings.Replace(encoded, `"Next":2`, `"Next":1`, 1), strings.Replace(encoded, `"ID":1`, `"ID":0`, 1),
		strings.Replace(encoded, `"Tables":[`,
			`"Tables":[`+encoded[strings.Index(encoded, `{"ID"`):strings.LastIndex(encoded, "]")]+",", 1),
	} {
		if text == encoded {
			t.Fatal("nothing is changed in", text)
		}
		_, err := decodeCatalog([]byte(text))
		mustBeDamage(t, err)
	}
	options := FilterOptions{Window: time.Minute, Error: 0.01}.encode()
	_, err = decodeFilterOptions(append([]byte(`{"Later":1,`), options[1:]...))
	mustBeDamage(t, err)

	state := partitionState{catalog: cat, horizons: map[uint32]horizon{1: {}}}.encode()
	for _, b := range [][]byte{append(slices.Clone(state), 0),
		append(append(slices.Clone(state[:len(state)-4]), 2), 1, 0, 0, 1, 0, 0)} {
		_, err := decodeState(b)
		mustBeDamage(t, err)
	}
	if _, err := decodeState(append(append(slices.Clone(state[:len(state)-4]), 2), 1, 0, 0, 2, 0,
		0)); err != nil {
		t.Fatal("the state of two tables:", err)
	}

	_, err = decodeEvent(append(fbf.Event{Kind: fbf.Expire, Time: 1}.AppendTo(nil), 0))
	mustBeDamage(t, err)

	snap := aSnapshot(t)
	size, n := binary.Uvarint(snap)
	header, body := snap[n:n+int(size)], snap[n+int(size):]
	for _, h := range [][]byte{header, append(slices.Clone(header), 0)} {
		l, err := readSnapshot(bytes.NewReader(append(coding.AppendBytes(nil, h), body...)), 1<<20, false)
		if len(h) > len(header) {
			mustBeDamage(t, err)
			continue
		}
		must(t, err)
		l.release()
	}
}
