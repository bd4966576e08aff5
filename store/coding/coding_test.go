package coding

import (
	"encoding/binary"
	"math"
	"testing"
)

// TestReader: fields come back as they were appended, nothing is left, and no shorter input
// passes.
func TestReader(t *testing.T) {
	b := binary.AppendUvarint([]byte{7}, math.MaxUint64)
	b = binary.AppendVarint(b, math.MinInt64)
	b = AppendBytes(b, []byte("name"))
	b = binary.AppendUvarint(b, math.MaxUint32)
	read := func(b []byte) (same bool, r Reader) {
		r = Reader{Rest: b}
		same = r.Byte() == 7 && r.Uvarint() == math.MaxUint64 && r.Varint() == math.MinInt64 &&
			string(r.Bytes()) == "name" && r.Uint32() == math.MaxUint32
		r.End()
		return same, r
	}
	if same, r := read(b); !same || r.Bad {
		t.Error("the fields have changed")
	}
	for i := range b {
		if same, r := read(b[:i]); same || !r.Bad {
			t.Errorf("%d bytes of %d pass", i, len(b))
		}
	}
	if _, r := read(append(b, 0)); !r.Bad {
		t.Error("what follows the fields passes")
	}
	r := Reader{Rest: binary.AppendUvarint(nil, 1<<32)}
	if n := r.Uint32(); n != 0 || !r.Bad {
		t.Error(n, r)
	}
	r = Reader{Rest: AppendBytes(nil, b)[:3]}
	if s := r.Bytes(); s != nil || !r.Bad || len(r.Rest) > 0 {
		t.Error(s, r)
	}
}
