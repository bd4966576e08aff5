package store

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/fbfkv/fbfkv/store/coding"
)

// partitionState is the state row of a partition: what a checkpoint leaves for
// recovery beside the rows. All of it is exactly as of its sequence.
type partitionState struct {
	seq     uint64 // rows contain the log up to here
	floor   uint64 // of the last FLUSHALL in it: rows and runs up to here are gone
	records uint64 // runs contain the EXACT records of the log up to here
	// incarnation is the directory's (persistence.Meta) as of the sequence.
	incarnation uint64
	at          moment
	size        int64  // DBSIZE
	objects     uint64 // keys that hold one
	holds       uint64 // open ones
	holdSum     uint64 // holdings.sum
	catalog     *catalog
	// horizons are the tables'. They are in filter snapshots too; here they
	// serve when those are lost.
	horizons map[uint32]horizon
	// adopted, gone, handed and number are the partition's (views).
	adopted uint64
	gone    bool
	handed  uint64
	number  uint64
	regions *regions // of a member
}

// A state with open holds has holdsVersion.
const (
	stateVersion = 1
	holdsVersion = 2
)

// One of these takes the place of whether the partition is gone, in a member of regions: there it
// cannot move, but may have moved before.
const (
	stateOfRegion = 2
	stateOfMoved  = 3 // the highest number under which it ever was handed over follows
)

// encode lays the state out as: version, sequence, FLUSHALL's sequence, records' sequence,
// incarnation, logged time, wall time, DBSIZE, number of objects; if there are any, the number of holds
// and their sum; catalogue, number of tables, and
// for each its id and horizon. If the partition has ever moved: where it was adopted, whether it is
// gone, under which number it is handed over, and, if that is another one, the highest under which
// it ever was. If it is a member of regions: where it was adopted, that it is one, that highest
// number if there is one, and the regions.
func (s partitionState) encode() []byte {
	b := []byte{stateVersion}
	if s.holds > 0 {
		b[0] = holdsVersion
	}
	b = binary.AppendUvarint(b, s.seq)
	b = binary.AppendUvarint(b, s.floor)
	b = binary.AppendUvarint(b, s.records)
	b = binary.AppendUvarint(b, s.incarnation)
	b = binary.AppendVarint(b, s.at.logged)
	b = binary.AppendVarint(b, s.at.wall)
	b = binary.AppendVarint(b, s.size)
	b = binary.AppendUvarint(b, s.objects)
	if s.holds > 0 {
		b = binary.AppendUvarint(binary.AppendUvarint(b, s.holds), s.holdSum)
	}
	b = coding.AppendBytes(b, s.catalog.encode())
	b = binary.AppendUvarint(b, uint64(len(s.horizons)))
	for _, id := range slices.Sorted(maps.Keys(s.horizons)) {
		h := s.horizons[id]
		b = binary.AppendUvarint(b, uint64(id))
		b = h.appendTo(b)
	}
	if s.regions != nil {
		b = binary.AppendUvarint(b, s.adopted)
		if s.number == 0 {
			return s.regions.appendTo(append(b, stateOfRegion))
		}
		return s.regions.appendTo(binary.AppendUvarint(append(b, stateOfMoved), s.number))
	}
	if s.gone || s.adopted > 0 || s.number > 0 {
		gone := byte(0)
		if s.gone {
			gone = 1
		}
		b = binary.AppendUvarint(append(binary.AppendUvarint(b, s.adopted), gone), s.handed)
		if s.number != s.handed {
			b = binary.AppendUvarint(b, s.number)
		}
	}
	return b
}

func decodeState(b []byte) (s partitionState, err error) {
	r := reader{coding.Reader{Rest: b}}
	v := r.Byte()
	if v != stateVersion && v != holdsVersion {
		return s, fmt.Errorf("%w: state version %d", errCorruptEntry, v)
	}
	s = partitionState{seq: r.Uvarint(), floor: r.Uvarint(), records: r.Uvarint(), incarnation: r.Uvarint(),
		at: moment{logged: r.Varint(), wall: r.Varint()}, size: r.Varint(), objects: r.Uvarint()}
	if v == holdsVersion {
		if s.holds, s.holdSum = r.Uvarint(), r.Uvarint(); s.holds == 0 {
			r.Fail()
		}
	}
	if s.floor > s.seq {
		r.Fail()
	}
	tables := r.Bytes()
	s.horizons = make(map[uint32]horizon)
	for n := r.Uvarint(); n > 0 && r.err() == nil; n-- {
		id := r.Uint32()
		if _, twice := s.horizons[id]; twice {
			r.Fail()
		}
		s.horizons[id] = r.horizon()
	}
	if len(r.Rest) > 0 {
		s.adopted = r.Uvarint()
		switch gone := r.Byte(); gone {
		case stateOfRegion, stateOfMoved:
			if gone == stateOfMoved {
				s.number = r.Uvarint()
			}
			if s.regions = r.regions(); s.adopted > s.seq || (gone == stateOfMoved) != (s.number > 0) {
				r.Fail()
			}
		default:
			s.gone, s.handed = gone == 1, r.Uvarint()
			s.number = s.handed
			if len(r.Rest) > 0 {
				if s.number = r.Uvarint(); s.number <= s.handed {
					r.Fail()
				}
			}
			if gone > 1 || s.adopted > s.seq || s.adopted == 0 && !s.gone && s.number == 0 || s.gone &&
				s.handed > 0 {
				r.Fail()
			}
		}
	}
	r.End()
	if r.err() != nil {
		return s, r.err()
	}
	s.catalog, err = decodeCatalog(tables)
	return s, err
}

// setState takes what a checkpoint has left.
func (p *machine) setState(b []byte) (state partitionState, err error) {
	if state, err = decodeState(b); err != nil {
		return state, fmt.Errorf("the state of the last checkpoint cannot be read: %w", err)
	}
	p.size, p.at = state.size, state.at
	p.seq, p.floor, p.incarnation = state.seq, state.floor, state.incarnation
	p.marks.counters, p.marks.records, p.marks.floor = state.seq, state.records, state.floor
	p.savedSeq = int64(state.seq)
	p.adopted, p.gone, p.handed, p.number = state.adopted, state.gone, state.handed, state.number
	p.regions = state.regions.clone()
	return state, nil
}

// rebuildFilters makes the filters of a partition whose snapshots are lost, and puts the
// ids of all runs into them. redoLog adds those that the log has.
func (p *machine) rebuildFilters(state partitionState, wall int64) error {
	p.marks.rebuilt, p.marks.filters, p.marks.catalog = true, 0, state.seq
	// Their logged time begins at zero: what is inserted now is older than the
	// state, and a generation must cover the times of its records (judge.go).
	if err := p.setCatalog(state.catalog, moment{}); err != nil {
		return err
	}
	for id, t := range p.tables {
		t.horizon = state.horizons[id]
		if t.def.Mode == Approx {
			// Operations made before now may have been applied and forgotten (G7).
			t.horizon.forget(wall + t.def.Skew.Milliseconds() + 1)
		}
	}
	return p.seen.Scan(p.hasTable, p.reinsert)
}

// hasTable reports whether the partition has a table.
func (p *machine) hasTable(id uint32) bool { return p.tables[id] != nil }

// reinsert puts an id into a table's filter that is being rebuilt. The filter's events on the
// way are not logged: the snapshot that follows holds their outcome.
func (p *machine) reinsert(table uint32, hash uint64, logged int64) error {
	t := p.tables[table]
	if logged+t.def.keep(p.at.logged) < p.at.logged {
		return nil // of a run that is kept for other regions only
	}
	for n := 0; n < maxEvents && t.filter.Due(logged); n++ {
		ev, ok := t.filter.Plan(logged, func(uint64) bool { return true })
		if !ok {
			break
		}
		if err := p.applyEvent(t.filter, ev); err != nil {
			return err
		}
	}
	t.filter.Insert(hash, logged)
	return nil
}
