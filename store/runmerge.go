package store

import (
	"time"

	"github.com/fbfkv/fbfkv/persistence"
)

// runSource yields entries of a run to be, ascending by (hash, sequence).
type runSource interface {
	// next goes to the next entry; false at the end.
	next() (bool, error)
	// entry is the present one; value is valid until next is called.
	entry() (hash, seq uint64, value []byte)
	close()
}

// segmentSource yields one table's records of a sealed segment.
type segmentSource struct {
	seg   *recentSegment
	list  []sortedRecord // what is still to come
	table uint32
	hash  uint64
	at    []byte
	ahead byte // keeps the compiler from dropping loads made ahead
}

// readAhead is how many records ahead a source asks for the next one's memory:
// in the order of hashes they lie anywhere.
const readAhead = 8

func (s *segmentSource) next() (bool, error) {
	for len(s.list) > 0 {
		r := s.list[0]
		s.list = s.list[1:]
		if len(s.list) >= readAhead {
			s.ahead += s.seg.at(s.list[readAhead-1].loc)[recordHeader]
		}
		if r.table == s.table {
			s.hash, s.at = r.hash, s.seg.at(r.loc)
			return true, nil
		}
	}
	return false, nil
}

func (s *segmentSource) entry() (hash, seq uint64, value []byte) {
	value, _ = recordValue(s.at)
	return s.hash, recordSeq(s.at), value
}

func (s *segmentSource) close() {}

// iteratorSource yields the entries of a run on disk.
type iteratorSource struct {
	it     *persistence.RunIterator
	closed bool
}

func (s *iteratorSource) next() (bool, error) {
	if s.it.Next() {
		return true, nil
	}
	s.closed = true
	return false, s.it.Close()
}

func (s *iteratorSource) entry() (hash, seq uint64, value []byte) {
	return s.it.Hash, s.it.Seq, s.it.Value
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
		ok, err := s.next()
		if err != nil {
			return err
		}
		if ok {
			heads = append(heads, headOf(s))
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
		ok, err := h.source.next()
		if err != nil {
			return err
		}
		if ok {
			*h = headOf(h.source)
		} else {
			heads = append(heads[:least], heads[least+1:]...)
		}
	}
	return nil
}

func headOf(s runSource) mergeHead {
	h := mergeHead{source: s}
	h.hash, h.seq, h.value = s.entry()
	return h
}
