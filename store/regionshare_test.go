package store

import (
	"errors"
	"fmt"
	"testing"
)

// TestUnheard: what another region does not take is given up beyond the backlog, and who asks then
// needs the state; or nothing is, writes are refused meanwhile, and taken again once it has.
func TestUnheard(t *testing.T) {
	for _, refuse := range []bool{false, true} {
		t.Run(fmt.Sprint(refuse), func(t *testing.T) {
			s := testStore(t, func(o *Options) { o.RegionBacklog, o.RegionRefuse = 64<<10, refuse })
			must(t, s.SetRegions(RegionSet{Group: 77, Members: []RegionMember{
				{Region: 0, Name: "here", Partitions: 4, Incarnation: s.Meta().Incarnation},
				{Region: 1, Name: "there", Partitions: 4, Incarnation: 5},
			}}))
			pull := func(p uint16, after uint64) error {
				first, last := slotRange(int(p), 4)
				_, err := s.Pull(Pull{By: 1, Group: 77, Incarnation: s.Meta().Incarnation, Partition: p, First: first, Last: last, After: after, Acked: after, Most: 1})
				return err
			}
			refused := error(nil)
			for i := 0; i < 6000 && refused == nil; i++ {
				op := do(s, Op{Kind: IncrBy, Key: fmt.Appendf(nil, "a key of some length that is number %d", i), Delta: 1})
				if refused = op.Err; i%1000 == 999 {
					must(t, s.Snapshot())
					s.checkUnheard()
				}
			}
			if !refuse {
				if err := pull(0, 0); refused != nil || !errors.Is(err, ErrGap) {
					t.Errorf("writes are refused: %v; the beginning of the log: %v", refused, err)
				}
				return
			}
			if !errors.Is(refused, ErrUnheard) {
				t.Fatalf("writes beyond the backlog: %v", refused)
			}
			if op := do(s, Op{Kind: Get, Key: []byte("a key of some length that is number 1")}); op.Err != nil || op.Value != 1 {
				t.Errorf("a read: %d, %v", op.Value, op.Err)
			}
			var b Batch
			b.Atomic = true
			op := b.Add(regionMerge)
			op.Key, op.Object = []byte("k"), []Change{{Kind: ChangeAdd, Region: 1, Seq: 1, Delta: 5}}
			if s.Execute(&b); b.Ops[0].Err != nil {
				t.Errorf("what another region did is refused: %v", b.Ops[0].Err)
			}
			for p := range uint16(4) {
				must(t, pull(p, 0)) // all of the log is there
				must(t, pull(p, s.CommittedOf(p)))
			}
			must(t, s.Snapshot())
			s.checkUnheard()
			if op := do(s, Op{Kind: IncrBy, Key: []byte("k"), Delta: 1}); op.Err != nil {
				t.Errorf("after it was taken: %v", op.Err)
			}
		})
	}
}
