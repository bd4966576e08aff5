package disk

import (
	"errors"
	"testing"
)

func FuzzMark(f *testing.F) {
	b, slot := make([]byte, MarkFileSize), new([markSlot]byte)
	Mark{generation: 1, File: 2, Offset: 3}.put(slot)
	copy(b[MarkPage:], slot[:])
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := decodeMark(b)
		if err != nil && !errors.Is(err, ErrCorrupt) || err == nil && p.Offset < 0 {
			t.Fatal(p, err)
		}
	})
}
