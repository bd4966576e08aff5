package store

import (
	"fmt"

	"github.com/fbfkv/fbfkv/fbf"
)

// keyLog is what the log says of one key since the last FLUSHALL.
type keyLog struct {
	before image   // the last post-image that the checkpoint contains; seq 0: none
	after  []image // later ones
	row    bool    // a row was found
}

// image is a post-image.
type image struct {
	seq    uint64
	kind   Type
	value  int64
	expire int64
}

// last returns the key as of the end of the log.
func (k *keyLog) last() image {
	if n := len(k.after); n > 0 {
		return k.after[n-1]
	}
	return k.before
}

// find returns the post-image with that sequence.
func (k *keyLog) find(seq uint64) (image, bool) {
	for _, i := range k.after {
		if i.seq == seq {
			return i, true
		}
	}
	return k.before, k.before.seq == seq
}

// exactEntry is an operation that a run must hold, if one covers it.
type exactEntry struct {
	seq    uint64
	table  uint32
	digest uint64
}

// memoryEntry is an opid that the snapshot's filter must contain.
type memoryEntry struct {
	table  uint32
	hash   uint64
	logged int64
}

// readLog decodes the whole op log and gathers what it says.
func (p *partitionCheck) readLog() error {
	err := p.db.Log().Read(p.id, 0, func(seq uint64, record []byte) error {
		if p.first == 0 {
			p.first, p.wantedSeq = seq, seq
		}
		if seq != p.wantedSeq {
			return fmt.Errorf("the op log has a gap: entry %d follows %d", seq, p.wantedSeq-1)
		}
		p.report.Records++
		return p.readRecord(record)
	})
	p.last = max(p.wantedSeq, 1) - 1
	return err
}

func (p *partitionCheck) readRecord(record []byte) error {
	r, err := newRecordReader(record)
	if err != nil {
		return fmt.Errorf("the op-log record at entry %d cannot be read: %w", p.wantedSeq, err)
	}
	p.ended = r.at.logged
	var e entry
	n := 0
	for r.next(&e) {
		p.note(&e, p.wantedSeq, r.at)
		p.wantedSeq++
		if e.kind == entryJump {
			p.wantedSeq = max(p.wantedSeq, uint64(e.value)+1)
		}
		n++
	}
	p.report.Entries += uint64(n)
	switch {
	case r.err != nil:
		return fmt.Errorf("the op-log record with entry %d cannot be read: %w", p.wantedSeq, r.err)
	case n == 0:
		return fmt.Errorf("the op-log record at entry %d is empty", p.wantedSeq)
	}
	return nil
}

// note takes in one outcome.
func (p *partitionCheck) note(e *entry, seq uint64, at moment) {
	p.noteSize(e, seq)
	p.noteObject(e, seq)
	switch e.kind {
	case entryApply:
		p.noteKey(e, image{seq: seq, kind: TypeCounter, value: e.value, expire: e.expire})
		p.noteApply(e, seq, at)
	case entrySet, entryIncr:
		p.noteKey(e, image{seq: seq, kind: TypeCounter, value: e.value, expire: e.expire})
	case entryExpire:
		if !e.typ.isObject() {
			p.noteKey(e, image{seq: seq, kind: TypeCounter, value: e.value, expire: e.expire})
		}
	case entryDelete:
		p.noteKey(e, image{seq: seq, kind: TypeNone})
	case entryCreate:
		p.noteKey(e, image{seq: seq, kind: e.typ})
	case entryCatalog:
		// An id is remembered for the window in force when it was applied,
		// which for those before this entry may have been another one.
		if p.snapshot != nil && seq <= p.snapshot.seq {
			p.memory = p.memory[:0]
		}
	case entryFlush:
		clear(p.keys)
		p.flushed, p.exact = max(p.flushed, seq), p.exact[:0]
		if p.snapshot != nil && seq <= p.snapshot.seq {
			p.memory = p.memory[:0]
		}
	}
}

func (p *partitionCheck) noteSize(e *entry, seq uint64) {
	if seq <= p.state.seq {
		return
	}
	if e.flags&flagCreated != 0 {
		p.size++
	}
	switch e.kind {
	case entryDelete:
		p.size--
	case entryFlush:
		p.size = 0
	}
}

func (p *partitionCheck) noteObject(e *entry, seq uint64) {
	if p.snapshot != nil && seq <= p.snapshot.seq {
		return
	}
	switch {
	case e.kind == entryCreate:
		p.objects[string(e.key)] = true
	case e.kind == entryFlush:
		clear(p.objects)
	case e.flags&flagWasObject != 0:
		delete(p.objects, string(e.key))
	}
}

func (p *partitionCheck) noteKey(e *entry, i image) {
	k := p.keys[string(e.key)]
	if k == nil {
		k = new(keyLog)
		p.keys[string(e.key)] = k
	}
	if i.seq <= p.state.seq {
		k.before = i
	} else {
		k.after = append(k.after, i)
	}
	if first, last := slotRange(int(p.id), p.count); Slot(e.key) < first || Slot(e.key) > last {
		p.problem(fmt.Sprintf("the op log holds key %q, which belongs to another partition", e.key), doRestore)
	}
}

func (p *partitionCheck) noteApply(e *entry, seq uint64, at moment) {
	if e.flags&flagExact != 0 {
		p.exact = append(p.exact, exactEntry{seq: seq, table: e.table, digest: digestOf(e.key, e.id, Seen{Delta: e.delta, Result: e.value, Clip: e.clip})})
	}
	if p.snapshot != nil && seq <= p.snapshot.seq {
		p.memory = append(p.memory, memoryEntry{table: e.table, hash: fbf.Hash(p.seed, e.key, e.id), logged: at.logged})
	}
}

// digestOf tells an operation and its result from another.
func digestOf(key, id []byte, s Seen) uint64 {
	return fbf.Hash((uint64(s.Delta)*0x9e3779b97f4a7c15^uint64(s.Result))*0x9e3779b97f4a7c15^uint64(s.Clip), key, id)
}
