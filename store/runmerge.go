package store

import (
	"time"

	"github.com/fbfkv/fbfkv/persistence"
)

// runSource yields entries of a run to be, ascending by (hash, sequence).
type runSource interface {
	// advance makes h the next entry, whose value is valid until the next call;
	// false at the end.
	advance(h *mergeHead) (bool, error)
	close()
}

// iteratorSource yields the entries of a run on disk.
type iteratorSource struct {
	it     *persistence.RunIterator
	closed bool
}

func (s *iteratorSource) advance(h *mergeHead) (bool, error) {
	if s.it.Next() {
		h.hash, h.seq, h.value = s.it.Hash, s.it.Seq, s.it.Value
		return true, nil
	}
	s.closed = true
	return false, s.it.Close()
}

func (s *iteratorSource) close() {
	if !s.closed {
		s.closed = true
		_ = s.it.Close() // the merge has failed for another reason
	}
}

// mergeHead is the present entry of a source.
type mergeHead struct {
	hash, seq uint64
	value     []byte
	source    runSource
}

// A merge is work for a whole core. It pauses often, so that whoever waits for
// a client in the meantime never waits for a scheduler's time slice.
const (
	paceRecords = 2048 // a fraction of a millisecond
	pacePause   = 50 * time.Microsecond
)

// mergeSources calls add for the entries of all sources in order. An entry that
// several sources have is added once: after a crash records are redone into
// memory although an earlier release's run holds them.
func mergeSources(sources []runSource, pace bool, add func(hash, seq uint64, value []byte) error) error {
	heads := make([]mergeHead, 0, len(sources))
	for _, s := range sources {
		h := mergeHead{source: s}
		ok, err := s.advance(&h)
		if err != nil {
			return err
		}
		if ok {
			heads = append(heads, h)
		}
	}
	first, hash, seq := true, uint64(0), uint64(0)
	for n := 1; len(heads) > 0; n++ {
		if pace && n%paceRecords == 0 {
			time.Sleep(pacePause)
		}
		// A dozen sources at most: looking at each beats a heap.
		least := 0
		for i := 1; i < len(heads); i++ {
			if compareRecords(heads[i].hash, heads[i].seq, heads[least].hash, heads[least].seq) < 0 {
				least = i
			}
		}
		h := &heads[least]
		if first || h.hash != hash || h.seq != seq {
			if err := add(h.hash, h.seq, h.value); err != nil {
				return err
			}
		}
		first, hash, seq = false, h.hash, h.seq
		ok, err := h.source.advance(h)
		if err != nil {
			return err
		}
		if !ok {
			heads = append(heads[:least], heads[least+1:]...)
		}
	}
	return nil
}
