package oplog

import (
	"encoding/binary"
	"errors"

	"github.com/fbfkv/fbfkv/persistence/disk"
)

// A record is what one batch commits: a sequence of sections.
//
//	01 | partition u16 | sequence u64 | length u32 | what store decided
//
// Others are refused.
const (
	sectionKind   = 1
	sectionHeader = 1 + 2 + 8 + 4
)

// SectionOverhead bounds what a section takes in the log beside its content.
const SectionOverhead = sectionHeader + 3*chunkHeader

// errBatchState is a misuse of Batch by its caller.
var errBatchState = errors.New("batch: Wait without Apply")

// ErrCut means that a record was taken out of the log, where it was not committed, and never
// will be. Nothing has failed.
var ErrCut = errors.New("the record was cut off the log before it was committed")

// Committer is what a batch is committed to: a Log, or one that is replicated.
type Committer interface {
	// Append fixes a record's place in the order, and Wait returns once what is at a
	// place is committed, as [Log.Append] and [Log.Wait] say, or ErrCut. Place 0 is that
	// of nothing.
	Append(record []byte) (place uint64, size int, err error)
	Wait(place uint64) error
}

// Batch is a record that is being made, one atomic commit: all of it survives a crash,
// or nothing (G4). It is reused: fill, Apply, Wait, fill again, without allocation.
// Not safe for concurrent use.
type Batch struct {
	to      Committer
	record  []byte
	applied bool   // between Apply and Wait
	place   uint64 // of the last record since Wait; 0: there was none
	used    int64  // bytes of the log that they have taken
}

// NewBatch returns an empty batch for a log.
func NewBatch(to Committer) *Batch { return &Batch{to: to} }

// NewBatch returns an empty batch.
func (l *Log) NewBatch() *Batch { return NewBatch(l) }

// AppendLog adds a section: what a partition did. It is copied. Sequences are the
// caller's, and ascend within a partition.
func (b *Batch) AppendLog(partition uint16, seq uint64, content []byte) {
	b.record = AppendSection(b.record, partition, seq, content)
}

// Empty reports whether nothing was added since the last Apply.
func (b *Batch) Empty() bool { return len(b.record) == 0 }

// Reset drops what was added and not yet applied.
func (b *Batch) Reset() { b.record = b.record[:0] }

// Apply fixes the batch's place in the order of commits; Wait then tells when it
// is committed. The caller holds the locks of the partitions it touches. An error means
// that the log has failed, and the outcome is unknown (G8). An empty batch may be
// applied; it costs nothing.
//
// Before Wait a batch may be filled and applied again: each time is a commit of its
// own, and Wait waits for all.
func (b *Batch) Apply() error {
	b.applied = true
	if len(b.record) == 0 {
		return b.to.Wait(0)
	}
	place, size, err := b.to.Append(b.record)
	if err != nil {
		return err
	}
	b.place = place
	b.used += int64(size)
	b.record = b.record[:0]
	if cap(b.record) > retain {
		b.record = nil
	}
	return nil
}

// TakeUsed returns how many bytes of the log the batch has taken since the last call.
func (b *Batch) TakeUsed() (used int64) {
	used, b.used = b.used, 0
	return used
}

// Wait returns once the applied batch is committed (G2); the batch is then empty and
// reusable. After an error the outcome is unknown: the batch may or may not survive,
// and the log accepts no more (G8).
func (b *Batch) Wait() error {
	if !b.applied {
		return errBatchState
	}
	place := b.place
	b.applied, b.place = false, 0
	return b.to.Wait(place)
}

// AppendSection appends a section to a record.
func AppendSection(dst []byte, partition uint16, seq uint64, content []byte) []byte {
	dst = append(dst, sectionKind)
	dst = binary.BigEndian.AppendUint16(dst, partition)
	dst = binary.BigEndian.AppendUint64(dst, seq)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(content)))
	return append(dst, content...)
}

// section is one section of a record.
type section struct {
	partition uint16
	seq       uint64
	at        int // offset of content in the record
	content   []byte
}

// parseSections calls fn for the sections of a record.
func parseSections(record []byte, fn func(section) error) error {
	for at := 0; at < len(record); {
		rest := record[at:]
		if rest[0] != sectionKind || len(rest) < sectionHeader {
			return disk.Corruptf("a record of the op log has an unknown section %d", rest[0])
		}
		n := int(binary.BigEndian.Uint32(rest[sectionHeader-4:]))
		if n > len(rest)-sectionHeader {
			return disk.Corruptf("a section of the op log is longer than its record")
		}
		s := section{
			partition: binary.BigEndian.Uint16(rest[1:]), seq: binary.BigEndian.Uint64(rest[3:]),
			at: at + sectionHeader, content: rest[sectionHeader : sectionHeader+n],
		}
		at += sectionHeader + n
		if err := fn(s); err != nil {
			return err
		}
	}
	return nil
}

// Sections calls fn for the sections of a record, which must be whole.
func Sections(record []byte, fn func(partition uint16, seq uint64, content []byte) error) error {
	return parseSections(record, func(s section) error { return fn(s.partition, s.seq, s.content) })
}

// noteAll notes the sections of a record, which was made here and so parses.
func (s *segment) noteAll(record []byte) {
	for len(record) > 0 {
		s.note(binary.BigEndian.Uint16(record[1:]), binary.BigEndian.Uint64(record[3:]))
		record = record[sectionHeader+int(binary.BigEndian.Uint32(record[sectionHeader-4:])):]
	}
}
