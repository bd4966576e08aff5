package store

import "fmt"

// A sequence says in its high bits how often the data was copied, and in the others
// which entry it is since. A directory that Backup or Restore made is another
// incarnation of its original (persistence.Meta), and what it does must not get a
// sequence that the original gives to something else. So before anything else each of its
// partitions logs a jump, and its sequences go on behind that. Two copies of one original
// may have the same sequences; their incarnations differ.
const incarnationBits = 48

// jump logs the jump of partitions whose entries are another incarnation's.
func (s *Store) jump(partitions []*partition) error {
	if len(partitions) == 0 {
		return nil
	}
	x := s.internal(partitions...)
	x.lock()
	var err error
	if x.room, err = s.reserve(int64(len(partitions) * entryRoom)); err != nil {
		x.unlock()
		return err
	}
	for _, p := range partitions {
		x.logJump(p)
	}
	return x.finish()
}

func (x *decider) logJump(p *partition) {
	to := (p.seq>>incarnationBits + 1) << incarnationBits
	x.log(p, &entry{kind: entryJump, delta: int64(x.s.db.Meta().Incarnation), value: int64(to)})
}

// redoJump makes an entry's successor the one behind its value. Any other gap in the
// sequences is damage.
func (p *partition) redoJump(e *entry, seq uint64) error {
	if e.value < int64(seq) {
		return fmt.Errorf("%w: a jump from %d back to %d", errCorruptEntry, seq, e.value)
	}
	if seq > p.marks.counters {
		p.saving.savedSeq += e.value - int64(seq) // nobody has changed anything
	}
	p.seq, p.incarnation = uint64(e.value), uint64(e.delta)
	return nil
}
