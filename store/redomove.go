package store

import (
	"encoding/binary"
	"fmt"

	"github.com/fbfkv/fbfkv/store/coding"
)

// A sequence says in its high bits how often the data was copied, and in the others
// which entry it is since. A directory that Backup or Restore made is another
// incarnation of its original (persistence.Meta), and what it does must not get a
// sequence that the original gives to something else. So before anything else each of its
// partitions logs a jump, and its sequences go on behind that. Two copies of one original
// may have the same sequences; their incarnations differ.
const incarnationBits = 48

// EntriesBetween is how many entries of a log are between two of its sequences, as far as these
// tell: of those before a jump nobody knows how many there were.
func EntriesBetween(taken, newest uint64) uint64 {
	switch {
	case newest <= taken:
		return 0
	case newest>>incarnationBits == taken>>incarnationBits:
		return newest - taken
	}
	return max(newest&(1<<incarnationBits-1), 1)
}

func (x *turn) logJump(p *machine) { x.logJumpBeyond(p, 0) }

// logJumpBeyond logs a jump that is also beyond a sequence of others.
func (x *turn) logJumpBeyond(p *machine, seq uint64) {
	to := (max(p.seq, seq)>>incarnationBits + 1) << incarnationBits
	x.log(p, &entry{kind: entryJump, delta: int64(x.world.incarnation()), value: int64(to)})
}

// redoJump makes an entry's successor the one behind its value. Any other gap in the
// sequences is damage.
func (p *machine) redoJump(e *entry, seq uint64, _ moment) error {
	if e.value < int64(seq) {
		return fmt.Errorf("%w: a jump from %d back to %d", errCorruptEntry, seq, e.value)
	}
	if seq > p.marks.counters {
		p.savedSeq += e.value - int64(seq) // nobody has changed anything
		p.number = p.handed                // a copy's moves may be numbered anew
	}
	p.seq, p.incarnation = uint64(e.value), uint64(e.delta)
	return nil
}

func (p *machine) redoHandOver(e *entry, seq uint64, _ moment) error {
	if e.value < 0 {
		return fmt.Errorf("%w: a hand-over under the number %d", errCorruptEntry, e.value)
	}
	if seq > p.marks.counters {
		p.handed = uint64(e.value)
		p.number = max(p.number, p.handed)
	}
	return nil
}

// redoVacate forgets everything, as a FLUSHALL does, and that the partition is this shard's.
func (p *machine) redoVacate(e *entry, seq uint64, at moment) error {
	if err := p.redoFlush(e, seq, at); err != nil {
		return err
	}
	if seq > p.marks.counters {
		p.gone, p.handed = true, 0
	}
	return nil
}

// redoAdopt makes the machine the one that another shard has handed over.
func (p *machine) redoAdopt(e *entry, seq uint64, at moment) error {
	a, err := decodeAdoption(e.id)
	to := uint64(e.value)
	if err == nil && (e.value <= int64(seq) || a.last >= to) {
		err = fmt.Errorf("%w: entry %d of another shard goes on with %d, behind %d", errCorruptEntry, a.last,
			to, seq)
	}
	if err != nil {
		return err
	}
	return p.outside.takeOver(a, seq, to, at)
}

// adoption is what the entry of an adoption says beside the sequence to go on with.
type adoption struct {
	last   uint64 // S
	digest uint64 // of the state at S
	number uint64 // under which the partition is held until Release
}

func (a adoption) encode() []byte { return appendUvarints(nil, a.last, a.digest, a.number) }

func appendUvarints(b []byte, numbers ...uint64) []byte {
	for _, n := range numbers {
		b = binary.AppendUvarint(b, n)
	}
	return b
}

func decodeAdoption(b []byte) (a adoption, err error) {
	r := reader{coding.Reader{Rest: b}}
	a = adoption{last: r.Uvarint(), digest: r.Uvarint(), number: r.Uvarint()}
	if a.number == 0 {
		r.Fail()
	}
	r.End()
	return a, r.err()
}

// tooLow refuses a number below one under which the partition was held here before. Whoever asks
// for that move does not know of the later one, and neither may the leader that would end it: right
// behind a start, both may know an old configuration only. By that the partition may be deleted
// here, although it has come back since.
func (p *machine) tooLow(number uint64) error {
	return moveError("partition %d was held under the number %d, which is higher than %d", p.id, p.number,
		number)
}

// mayBecome refuses what the partition cannot be replaced by: it is locked.
func (p *machine) mayBecome(to uint64) error {
	switch {
	case p.seq >= to:
		return moveError("partition %d is at entry %d, and was to go on with %d", p.id, p.seq, to)
	case !p.empty():
		return moveError("partition %d is not empty", p.id)
	}
	return nil
}

// empty reports whether nothing is lost when another partition takes its place.
func (p *machine) empty() bool {
	f := p.seen.Figures()
	return p.gone || p.size == 0 && len(p.objects) == 0 && len(p.holds.due) == 0 &&
		f.Recent == 0 && f.RunRecords == 0
}

// adopts reports whether a section of the log is the adoption that goes on with a sequence.
func adopts(content []byte, to uint64) bool {
	rd, err := newSectionReader(content)
	e := entry{}
	return err == nil && rd.next(&e) && e.kind == entryAdopt && uint64(e.value) == to
}
