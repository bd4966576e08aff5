package store

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// rowRecord is a row in a run of the index of rows: a flag, value and expiry
// unless it was deleted, and the key. Its sequence is the entry's.
type rowRecord struct {
	key           []byte
	deleted       bool
	value, expire int64
}

func (r *rowRecord) appendTo(b []byte) []byte {
	if r.deleted {
		b = append(b, 1)
	} else {
		b = append(b, 0)
		b = binary.AppendVarint(b, r.value)
		b = binary.AppendVarint(b, r.expire)
	}
	return append(b, r.key...)
}

// decodeRowRecord is the inverse of appendTo; the key borrows b.
func decodeRowRecord(b []byte) (r rowRecord, err error) {
	rd := reader{rest: b}
	switch rd.byte() {
	case 0:
		r.value, r.expire = rd.varint(), rd.varint()
	case 1:
		r.deleted = true
	default:
		rd.fail()
	}
	r.key = rd.rest
	return r, rd.err
}

// rowRecords are rows for a run.
type rowRecords struct {
	places []rowPlace
	bytes  []byte
}

// rowPlace is where the record of a row lies in rowRecords.bytes.
type rowPlace struct {
	hash, seq uint64
	from, to  uint32
}

// maxKeptRecords is the largest memory of rowRecords that is kept, bytes.
const maxKeptRecords = 4 << 20

// trim drops all rows, and memory that is unusually large.
func (rs *rowRecords) trim() {
	rs.reset()
	if cap(rs.bytes) > maxKeptRecords {
		*rs = rowRecords{}
	}
}

func (rs *rowRecords) reset() { rs.places, rs.bytes = rs.places[:0], rs.bytes[:0] }

// add adds a row, whose key's hotHash and whose sequence are given.
func (rs *rowRecords) add(hash, seq uint64, r rowRecord) {
	from := len(rs.bytes)
	rs.bytes = r.appendTo(rs.bytes)
	rs.places = append(rs.places, rowPlace{hash: hash, seq: seq, from: uint32(from), to: uint32(len(rs.bytes))})
}

// sort puts the rows in the order of runs.
func (rs *rowRecords) sort() {
	slices.SortFunc(rs.places, func(a, b rowPlace) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.seq, b.seq))
	})
}

// rowMerger passes on the entries of merged runs of rows, of each key the last.
type rowMerger struct {
	add    func(hash, seq uint64, value []byte) error
	oldest bool       // nothing is older than what is merged: deletions may be forgotten
	hash   uint64     // of pending
	same   []rowEntry // keys with that hash: one, but for a collision of 64 bits
}

type rowEntry struct {
	seq   uint64
	value []byte
}

// next takes the next entry, ascending by (hash, seq).
func (m *rowMerger) next(hash, seq uint64, value []byte) error {
	if hash != m.hash {
		if err := m.flush(); err != nil {
			return err
		}
		m.hash = hash
	}
	e, err := m.entryOf(value)
	if err != nil {
		return err
	}
	e.seq, e.value = seq, append(e.value[:0], value...)
	return nil
}

// entryOf returns the pending entry that one of the same key takes the place of.
func (m *rowMerger) entryOf(value []byte) (*rowEntry, error) {
	if len(m.same) > 0 {
		r, err := decodeRowRecord(value)
		if err != nil {
			return nil, err
		}
		for i := range m.same {
			if o, err := decodeRowRecord(m.same[i].value); err != nil || string(o.key) == string(r.key) {
				return &m.same[i], err
			}
		}
	}
	if len(m.same) < cap(m.same) {
		m.same = m.same[:len(m.same)+1] // with the memory it had
	} else {
		m.same = append(m.same, rowEntry{})
	}
	return &m.same[len(m.same)-1], nil
}

// flush passes on what is pending.
func (m *rowMerger) flush() error {
	if len(m.same) > 1 {
		slices.SortFunc(m.same, func(a, b rowEntry) int { return cmp.Compare(a.seq, b.seq) })
	}
	for _, e := range m.same {
		r, err := decodeRowRecord(e.value)
		if err == nil && !(r.deleted && m.oldest) {
			err = m.add(m.hash, e.seq, e.value)
		}
		if err != nil {
			return err
		}
	}
	m.same = m.same[:0]
	return nil
}
