package store

import "testing"

// TestOnBlock: OnBlock is called before a batch waits for a commit, which may take
// long under each policy; a batch that waits for nothing tells nobody.
func TestOnBlock(t *testing.T) {
	for _, policy := range []Fsync{Always, Everysec, No} {
		s := testStore(t, func(o *Options) { o.Fsync = policy })
		var told int
		b := Batch{OnBlock: func() { told++ }}
		op := b.Add(IncrBy)
		op.Key, op.Delta = []byte("k"), 1
		s.Execute(&b)
		if b.Reset(); told != 1 {
			t.Errorf("%v: told %d times before a commit", policy, told)
		}
		b.Add(Get).Key = []byte("k")
		if s.Execute(&b); told != 1 {
			t.Errorf("%v: told of a read that waits for nothing", policy)
		}
	}
}
