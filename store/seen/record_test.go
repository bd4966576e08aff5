package seen

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/fbfkv/fbfkv/store/coding"
)

// TestPacked: a record that takes what is logged of its operation has the same value as
// one that encodes it anew.
func TestPacked(t *testing.T) {
	for _, r := range []Record{
		{Key: []byte("k"), ID: []byte("id"), Original: Original{Delta: 1, Result: 1, UnixMs: 1e12}},
		{Key: bytes.Repeat([]byte("k"), 300), ID: []byte(someUUID),
			Original: Original{Delta: -1 << 63, Result: 1<<63 - 1, UnixMs: 1e12, Clip: -5}},
	} {
		want := r.AppendTo(nil)
		packed := AppendOp(nil, r.Key, r.ID, r.Original.Delta, r.Original.Result)
		if got := (&Record{Packed: packed, Original: r.Original}).AppendTo(nil); !bytes.Equal(got, want) {
			t.Errorf("%x instead of %x", got, want)
		}
		key, id, delta, result, rest, ok := CutOp(want, new([UUIDText]byte))
		if !ok || !bytes.Equal(key, r.Key) || !bytes.Equal(id, r.ID) || delta != r.Original.Delta ||
			result != r.Original.Result || !bytes.Equal(rest, want[len(packed):]) {
			t.Errorf("%x: cut into %q, %q, %d, %d, %x, %v", want, key, id, delta, result, rest, ok)
		}
	}
}

// TestUnknownFields: fields that a later release may add to a record are skipped, and
// what is known is read before them and behind; anything else at the end is refused.
func TestUnknownFields(t *testing.T) {
	r := Record{Key: []byte("k"), ID: []byte("i"), Original: Original{Delta: 1, Result: 2, UnixMs: 3}}
	plain := r.AppendTo(nil)
	r.Original.Clip = 5
	clipped := r.AppendTo(nil)
	field := func(tag uint64, value string) []byte {
		return coding.AppendBytes(binary.AppendUvarint(nil, tag), []byte(value))
	}
	for _, tc := range []struct {
		what string
		b    []byte
		clip int64
		ok   bool
	}{
		{"no field", plain, 0, true},
		{"the clip", clipped, 5, true},
		{"an unknown field", slices.Concat(plain, field(7, "later")), 0, true},
		{"an empty one, of the largest tag", slices.Concat(plain, field(1<<64-1, "")), 0, true},
		{"unknown fields behind the clip", slices.Concat(clipped, field(7, "later"), field(9, "still later")),
			5, true},
		{"tag 0", slices.Concat(plain, field(0, "")), 0, false},
		{"the clip twice", slices.Concat(clipped, clipped[len(plain):]), 0, false},
		{"fields in another order", slices.Concat(plain, field(7, ""), clipped[len(plain):]), 0, false},
		{"a clip that goes on", slices.Concat(plain, field(fieldClip, "\x0a\x00")), 0, false},
		{"a clip of nothing", slices.Concat(plain, field(fieldClip, "\x00")), 0, false},
		{"an empty clip", slices.Concat(plain, field(fieldClip, "")), 0, false},
		{"a tag alone", append(slices.Clone(plain), 4), 0, false},
		{"a field that is cut off", slices.Concat(plain, field(7, "later"))[:len(plain)+3], 0, false},
		{"a field longer than memory", slices.Concat(plain, binary.AppendUvarint([]byte{4}, 1<<63)), 0,
			false},
	} {
		got, err := ReadRecord(tc.b)
		o, err2 := originalOf(tc.b)
		if (err == nil) != tc.ok || (err2 == nil) != tc.ok || o != got.Original {
			t.Errorf("%s: %+v, %v; %+v, %v", tc.what, got, err, o, err2)
		}
		if want := (Original{Delta: 1, Result: 2, UnixMs: 3, Clip: tc.clip}); tc.ok && o != want {
			t.Errorf("%s: %+v", tc.what, o)
		}
	}
}

// FuzzRecord reads a record's value: any bytes neither panic nor are allocated for beyond
// their size, fail only with ErrCorrupt, and what is accepted says the same when it is
// written and read again, and when unknown fields follow it.
func FuzzRecord(f *testing.F) {
	for _, id := range []string{"id", someUUID} {
		r := &Record{Key: []byte("key"), ID: []byte(id),
			Original: Original{Delta: -1, Result: 5, UnixMs: 1e12}}
		f.Add(r.AppendTo(nil))
		r.Original.Clip = -7
		f.Add(append(r.AppendTo(nil), 4, 1, 'x'))
		r.Original.Other, r.Original.Region, r.Original.Dot, r.Original.Taken = true, 15, 1<<40, 7
		f.Add(r.AppendTo(nil))
	}
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := ReadRecord(b)
		if o, err2 := originalOf(b); o != got.Original || err2 != err {
			t.Fatalf("%+v, %v and %+v, %v", got, err, o, err2)
		}
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		again := got.AppendTo(nil)
		for _, more := range [][]byte{nil, append(binary.AppendUvarint(nil, 1<<64-1), 0)} {
			if read, err := ReadRecord(append(again, more...)); err != nil || !reflect.DeepEqual(read, got) {
				t.Fatalf("%x: %+v, again %+v %v", b, got, read, err)
			}
		}
		if !isOf(b, got.Key, got.ID) {
			t.Fatalf("%x is not of %q, %q", b, got.Key, got.ID)
		}
	})
}
