package seen

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/fbfkv/fbfkv/store/coding"
)

const someUUID = "01a1fdcc-4bbc-70ea-a1d6-03cc3a62b435"

// TestStoredID: every opid comes back as it was, is found by itself alone, and
// only a UUID in its canonical text is stored in another form.
func TestStoredID(t *testing.T) {
	ids := [][]byte{[]byte(someUUID), []byte("1"), []byte("00000000-0000-0000-0000-000000000000"),
		[]byte("ffffffff-ffff-ffff-ffff-ffffffffffff"),
		make([]byte, UUIDSize), make([]byte, UUIDText), make([]byte, 512),
		[]byte("01A1FDCC-4BBC-70EA-A1D6-03CC3A62B435")}
	// What differs from a UUID in one byte, at every place.
	for i := range UUIDText {
		for c := range 256 {
			id := []byte(someUUID)
			id[i] = byte(c)
			ids = append(ids, id)
		}
	}
	for range 1000 {
		r := func() uint64 { return rand.Uint64() }
		ids = append(ids, fmt.Appendf(nil, "%08x-%04x-%04x-%04x-%012x", uint32(r()), uint16(r()), uint16(r()),
			uint16(r()), r()&(1<<48-1)))
	}
	var before, coded []byte
	for _, id := range ids {
		coded = append(appendID(coded[:0], id), "rest"...)
		r := decoder{coding.Reader{Rest: coded}}
		if got := r.id(new([UUIDText]byte)); !bytes.Equal(got, id) || string(r.Rest) != "rest" || r.Bad {
			t.Fatalf("%q came back as %q, %q behind it, %v", id, got, r.Rest, r.Bad)
		}
		if r = (decoder{coding.Reader{Rest: coded}}); true {
			r.skipID()
		}
		if string(r.Rest) != "rest" || !isID(coded, id) ||
			!isID(append(coding.AppendBytes(nil, id), "rest"...), id) {
			t.Fatalf("%q is not found as %x", id, coded)
		}
		if short, canonical := len(coded)-len("rest") == codedUUID && coded[0] == 0,
			isCanonical(id); short != canonical {
			t.Fatalf("%q is stored as %x", id, coded)
		}
		if before != nil && !bytes.Equal(before, id) &&
			(isID(coded, before) || isID(coding.AppendBytes(nil, id), before)) {
			t.Fatalf("%q is taken for %q", before, id)
		}
		before = id
	}
	for _, b := range [][]byte{nil, {0}, make([]byte, UUIDSize), {0x80, 0}, {2, 'a'}} {
		r := decoder{coding.Reader{Rest: b}}
		if r.skipID(); !r.Bad || isID(b, []byte(someUUID)) || isID(b, nil) && len(b) == 0 {
			t.Errorf("%x passes for an opid", b)
		}
	}
}

// isCanonical is what PackUUID accepts, said the slow way.
func isCanonical(id []byte) bool {
	if len(id) != UUIDText {
		return false
	}
	for i, c := range id {
		switch dash := i == 8 || i == 13 || i == 18 || i == 23; {
		case dash && c != '-', !dash && !bytes.ContainsRune([]byte("0123456789abcdef"), rune(c)):
			return false
		}
	}
	return true
}

// BenchmarkPackUUID is what each operation pays for the shorter form.
func BenchmarkPackUUID(b *testing.B) {
	var dst []byte
	id := []byte(someUUID)
	for b.Loop() {
		dst = appendID(dst[:0], id)
	}
}
