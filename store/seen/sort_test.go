package seen

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/fbfkv/fbfkv/persistence"
)

// TestSorter sorts records of two tables in two bundles, more than are
// gathered at once, some with one hash, some larger than a chunk: each comes
// once, whole and in order, and only its table's.
func TestSorter(t *testing.T) {
	const n, same = 30_000, uint64(1) << 63
	rng := rand.New(rand.NewPCG(1, 2))
	var rs Records
	want := make(map[uint64]Record) // of table 1, by sequence
	for seq := range uint64(n) {
		r := Record{Table: 1 + uint32(seq%5/4), Hash: rng.Uint64(), Seq: seq,
			Key: fmt.Appendf(nil, "key%d", seq), ID: fmt.Appendf(nil, "%064d", seq)}
		if seq%100 == 0 {
			r.Hash = same
		}
		if seq%7001 == 0 {
			r.Key = make([]byte, chunkSize)
		}
		if seq == n/2 {
			rs.seal()
		}
		rs.Add(&r)
		if r.Table == 1 {
			want[seq] = r
		}
	}
	sealed := rs.seal()
	counts := countTables(sealed)
	if counts[1] != len(want) || counts[2] != n-len(want) {
		t.Fatal(counts)
	}
	scratch := new(Scratch)
	for range 2 { // the second time with the first's scratch
		s := newSorter(scratch, sealed, 1, counts[1])
		var last persistence.RunEntry
		n := 0
		for entries := nextEntries(t, s); len(entries) > 0; entries = nextEntries(t, s) {
			for _, e := range entries {
				if n > 0 && compareRecords(last.Hash, last.Seq, e.Hash, e.Seq) >= 0 {
					t.Fatalf("record %d out of order", n)
				}
				w := want[e.Seq]
				got, err := ReadRecord(e.Value)
				if err != nil || e.Hash != w.Hash || string(got.Key) != string(w.Key) ||
					string(got.ID) != string(w.ID) {
					t.Fatalf("sequence %d: %+v, %v", e.Seq, got, err)
				}
				last = e
				n++
			}
		}
		if n != counts[1] {
			t.Fatalf("%d records instead of %d", n, counts[1])
		}
		s.close()
	}
	if len(sealed) != 2 {
		t.Fatal(len(sealed), "bundles")
	}
}

// nextEntries are the entries that follow in a source.
func nextEntries(t *testing.T, s source) []persistence.RunEntry {
	t.Helper()
	entries, err := s.next()
	if err != nil {
		t.Fatal(err)
	}
	return entries
}
