package store

import (
	"reflect"
	"testing"

	"github.com/fbfkv/fbfkv/store/part"
)

// TestMergeIsRedoneOnce: a merge is logged as what it adds to take-backs. Redo of it changes
// nothing if the key is as of that entry already, as a row that was written ahead of its checkpoint
// is.
func TestMergeIsRedoneOnce(t *testing.T) {
	w := newTestRegions(t, 1, 1, 1)
	s := w.r[0].s
	must(t, do(s, Op{Kind: IncrBy, Key: []byte("k"), Delta: 1}).Err)
	p := s.partitions[0]
	before := part.Parts{{Region: 1, Clock: 10, Live: 9, Cum: 7,
		Undo: []part.Undo{{Dot: 3, Clock: 4, Delta: 1}}}}
	after := part.Parts{{Region: 1, Clock: 12, Live: 9, Cum: 2,
		Undo: []part.Undo{{Dot: 3, Clock: 4, Delta: 1}, {Dot: 9, Clock: 12, Delta: 5}}}}
	d, err := part.DecodeDelta(part.AppendDelta(nil, before, after))
	must(t, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.hot.peek("k")
	for _, has := range []struct {
		seq   uint64
		parts part.Parts
	}{{p.seq, before}, {p.seq + 1, after}} {
		c.seq = has.seq
		c.setParts(has.parts.Clone())
		must(t, p.redoMerge(&entry{kind: entryMerge, key: []byte("k"), c: c,
			r: &regional{parts: d.Heads(), delta: d}}, p.seq+1, moment{}))
		if got := c.parts(); !reflect.DeepEqual(got, after) {
			t.Errorf("as of entry %d of %d: %+v, want %+v", has.seq, p.seq+1, got, after)
		}
	}
}
