package store

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/fbfkv/fbfkv/fbf"
	"github.com/fbfkv/fbfkv/store/seen"
)

// sameHash is an opid of many with one hash: the secrets of the hash are known, as
// crowdKey's are.
func sameHash(i int) []byte { return binary.BigEndian.AppendUint64(make([]byte, 8), uint64(i)) }

// TestSameHash: of operations with one hash 64 are remembered, wherever their records are, and
// each is recognised. One more is refused, and changes nothing.
func TestSameHash(t *testing.T) {
	for _, atOnce := range []bool{false, true} { // in one transaction
		s := testStore(t, func(o *Options) { o.Partitions = 1 })
		s.hashes.ids = new(fbf.Hasher)
		key := []byte("k")
		if s.hashes.ids.Hash(key, sameHash(1)) != s.hashes.ids.Hash(key, sameHash(2)) {
			t.Fatal("the hashes differ")
		}
		apply := func(from, to int) (refused int) {
			b := Batch{Atomic: atOnce}
			for i := from; i < to; i++ {
				b.Ops = append(b.Ops, Op{Kind: CIncrBy, Key: key, ID: sameHash(i), Delta: 1})
				if !atOnce {
					s.Execute(&b)
					if err := b.Ops[0].Err; errors.Is(err, ErrSameHash) {
						refused++
					} else {
						must(t, err)
					}
					b.Ops = b.Ops[:0]
				}
			}
			if atOnce {
				s.Execute(&b)
				for i := range b.Ops {
					if err := b.Ops[i].Err; errors.Is(err, ErrSameHash) {
						refused++
					} else {
						must(t, err)
					}
				}
			}
			return refused
		}
		full := func(where string) {
			t.Helper()
			const beyond = 10
			if refused := apply(seen.MaxOthers, seen.MaxOthers+beyond); refused != beyond {
				t.Errorf("%s: %d of %d are refused", where, refused, beyond)
			}
			if refused := apply(0, seen.MaxOthers); refused != 0 {
				t.Errorf("%s: %d retries are refused", where, refused)
			}
			if v, _ := get(s, "k"); v != seen.MaxOthers {
				t.Errorf("%s: the counter is %d", where, v)
			}
			for i := range seen.MaxOthers {
				if op := do(s, Op{Kind: CSeen, Key: key, ID: sameHash(i)}); !op.Found ||
					op.Seen.Result != int64(i+1) {
					t.Errorf("%s: operation %d is %v, %+v", where, i, op.Found, op.Seen)
				}
			}
			if op := do(s, Op{Kind: CSeen, Key: key, ID: sameHash(seen.MaxOthers)}); op.Found ||
				op.Err != nil {
				t.Errorf("%s: what was refused is known: %v", where, op.Err)
			}
		}
		if refused := apply(0, seen.MaxOthers/2); refused != 0 {
			t.Errorf("%d of the first ones are refused", refused)
		}
		must(t, s.flushRecords(s.partitions[0], true))
		if refused := apply(seen.MaxOthers/2, seen.MaxOthers); refused != 0 {
			t.Errorf("%d of the others are refused", refused)
		}
		full("in a run and in memory")
		must(t, s.flushRecords(s.partitions[0], true))
		full("in runs")

		s = testStore(t, func(o *Options) { o.Partitions = 1 })
		s.hashes.ids = new(fbf.Hasher)
		if refused := apply(0, 300); refused != 300-seen.MaxOthers {
			t.Errorf("of 300 at once %d are refused", refused)
		}
		full("in memory")
	}
}
