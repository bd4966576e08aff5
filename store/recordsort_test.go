package store

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestRecordSorter sorts records of two tables in two segments, more than are
// gathered at once, some with one hash, some larger than a chunk: each comes
// once, whole and in order, and only its table's.
func TestRecordSorter(t *testing.T) {
	const n, same = 30_000, uint64(1) << 63
	rng := rand.New(rand.NewPCG(1, 2))
	var rs recents
	want := make(map[uint64]record) // of table 1, by sequence
	for seq := range uint64(n) {
		r := record{table: 1 + uint32(seq%5/4), hash: rng.Uint64(), seq: seq, key: fmt.Appendf(nil, "key%d", seq), id: fmt.Appendf(nil, "%064d", seq)}
		if seq%100 == 0 {
			r.hash = same
		}
		if seq%7001 == 0 {
			r.key = make([]byte, recentChunk)
		}
		if seq == n/2 {
			rs.seal()
		}
		rs.add(&r)
		if r.table == 1 {
			want[seq] = r
		}
	}
	sealed := rs.seal()
	counts := countTables(sealed)
	if counts[1] != len(want) || counts[2] != n-len(want) {
		t.Fatal(counts)
	}
	scratch := new(sortScratch)
	for range 2 { // the second time with the first's scratch
		s := newRecordSorter(scratch, sealed, 1, counts[1])
		var last, h mergeHead
		for i := range counts[1] {
			if ok, err := s.advance(&h); !ok || err != nil {
				t.Fatal(i, ok, err)
			}
			if i > 0 && compareRecords(last.hash, last.seq, h.hash, h.seq) >= 0 {
				t.Fatalf("record %d out of order", i)
			}
			w := want[h.seq]
			got, err := decodeRunValue(h.value)
			if err != nil || h.hash != w.hash || string(got.key) != string(w.key) || string(got.id) != string(w.id) {
				t.Fatalf("sequence %d: %+v, %v", h.seq, got, err)
			}
			last = h
		}
		if ok, _ := s.advance(&h); ok {
			t.Fatal("more records than there are")
		}
		s.close()
	}
	if len(sealed) != 2 {
		t.Fatal(len(sealed), "segments")
	}
}
