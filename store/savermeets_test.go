package store

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestRebuildMeetsLock: whatever holds the snapshotter's locks, and then meets a partition that is
// away, keeps neither itself nor the rebuild from going on.
func TestRebuildMeetsLock(t *testing.T) {
	for name, do := range map[string]func(s *Store) error{
		"FLUSHALL":  func(s *Store) error { return do(s, Op{Kind: FlushAll}).Err },
		"Vacate":    func(s *Store) error { return s.Vacate(2, 0) },
		"a new era": func(s *Store) error { return s.SetRegions(eraOf(s, 1)) },
		"what is to come": func(s *Store) error {
			in, err := s.expect(s.partitions[2], 1<<20)
			if err == nil {
				in.Close()
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := testStore(t, nil)
			if name == "a new era" {
				must(t, s.SetRegions(eraOf(s, 0)))
			}
			p := s.partitions[2]
			p.mu.Lock()
			ended, rebuilt := make(chan error, 1), make(chan error, 1)
			go func() { ended <- do(s) }()
			eventually(t, "it waits for the partition", func() bool {
				free := s.snapshots.building.TryLock()
				if free {
					s.snapshots.building.Unlock()
				}
				return !free
			})
			p.rebuilding = true // as rebuild does first
			p.mu.Unlock()
			go func() { rebuilt <- s.rebuild(all(p)...) }()
			eventually(t, "both have ended", func() bool { return len(ended) > 0 && len(rebuilt) > 0 })
			must(t, <-ended)
			must(t, <-rebuilt)
		})
	}
}

// eraOf is a store as one of two regions, in an era.
func eraOf(s *Store, era uint64) RegionSet {
	set := twoRegions(0, era, len(s.partitions))
	set.Members[0].Incarnation = s.Meta().Incarnation
	return set
}

// TestRebuildMeetsSaving: a node that was deposed saves what it has decided in one partition, and
// waits for the commit. Entries of other nodes arrive in another partition, or delete
// everything: they are not kept waiting, although the commit may be behind them.
func TestRebuildMeetsSaving(t *testing.T) {
	saves := map[string]func(s *Store, p *partition) error{
		"a checkpoint":    func(s *Store, p *partition) error { return s.checkpoint(p, true) },
		"rows":            func(s *Store, p *partition) error { return s.flushRows(p) },
		"a build of runs": func(s *Store, p *partition) error { return s.flushRecords(p, true) },
	}
	arrives := map[string]func(a *Store, key string) error{
		"a conflict": func(a *Store, key string) error { return cincr(a, key, "2", 1).Err },
		"FLUSHALL":   func(a *Store, _ string) error { return do(a, Op{Kind: FlushAll}).Err },
	}
	for saver, save := range saves {
		for what, decide := range arrives {
			t.Run(saver+" meets "+what, func(t *testing.T) {
				clock := newFakeClock()
				a, la := testReplica(t, vfs.NewMem(), clock.now)
				b, lb := testReplica(t, vfs.NewMem(), clock.now)
				must(t, a.Lead())
				keys := keysIn(a)
				for _, k := range keys {
					must(t, cincr(a, k, "1", 1).Err)
				}
				first, n := la.records(0)
				receive(t, b, lb, first)

				must(t, b.Lead())
				_, before := lb.records(0)
				lb.holdBack()
				counted := make(chan error, 2)
				for _, k := range keys[:2] {
					go func() { counted <- cincr(b, k, "lost", 100).Err }()
				}
				eventually(t, "both are decided", func() bool {
					_, now := lb.records(0)
					return now == before+2
				})
				b.StopLeading(func() {})
				p, saved := b.partitions[1], make(chan error, 1)
				go func() { saved <- save(b, p) }()
				eventually(t, "it waits for the commit", func() bool {
					p.committed.mu.Lock()
					defer p.committed.mu.Unlock()
					return p.committed.waiting > 0
				})

				lb.cut()
				must(t, decide(a, keys[0]))
				more, _ := la.records(n)
				followed := make(chan error, len(more))
				for _, r := range more {
					place, _, err := lb.Log.Append(r)
					must(t, err)
					must(t, lb.Log.Wait(place))
				}
				go func() {
					for _, r := range more {
						followed <- b.Follow(r, nil)
					}
				}()
				eventually(t, "it is redone", func() bool { return len(followed) == len(more) })
				for range more {
					must(t, <-followed)
				}
				eventually(t, "the saver gives up", func() bool { return len(saved) > 0 })
				b.GiveUp()
				for range 2 {
					if err := <-counted; err == nil {
						t.Error("what was not committed is acknowledged")
					}
				}
			})
		}
	}
}
