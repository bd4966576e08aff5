package store

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"sort"

	"github.com/fbfkv/fbfkv/persistence/oplog"
	"github.com/fbfkv/fbfkv/store/part"
)

// Telling a region the op log. All its pulls of one moment are read together, in the order of the
// log, from the place on up to which it was told before (peer.at). That place is only where reading
// begins: the sequences that the region asks for say what it has really taken. They follow one
// another in each partition, so it shows at once if something was told that has not arrived. Then
// the files that have it are read again.

// Pulled is what PullAll answers to one of the pulls.
type Pulled struct {
	Newest uint64 // last sequence of the partition that is committed
	UpTo   uint64 // who has taken Data asks behind it
	Data   []byte // for Store.Take; nil: nothing follows, or there was no room for it
	Err    error  // as of Pull
}

// PullAll answers pulls of one region, all at once, with about most bytes. So what is older comes
// first, and no partition waits for another one. Of the pulls Most and Wait are not used. The
// answers are packed, unless it is plain: then all of them should be packed together (Pack). If
// nothing is told, behind are places of which one must be passed (AwaitAny) before something can
// be.
func (s *Store) PullAll(qs []Pull, most int, plain bool) (all []Pulled, behind []Behind) {
	all = make([]Pulled, len(qs))
	differ := s.differing(qs)
	tellers, todo := make([]*teller, len(qs)), make([]*teller, 0, len(qs))
	for i := range qs {
		t, err := s.newTeller(&qs[i], differ)
		if all[i].Newest, all[i].Err = s.CommittedOf(qs[i].Partition), err; err != nil {
			continue
		}
		tellers[i], todo = t, append(todo, t)
	}
	var stuck *Behind
	var failed error
	if len(todo) > 0 {
		stuck, failed = s.tell(qs[0].By, todo, most)
	}
	told := false
	for i, t := range tellers {
		a := &all[i]
		if t != nil {
			a.Newest, a.UpTo, a.Err = t.committed, t.upTo, cmp.Or(failed, t.failure())
			if a.Err == nil && t.upTo > t.after {
				a.Data = t.finish()
				if s.noteTold(&qs[i], toldEnd{t.upTo, t.proof.Code}); !plain {
					a.Data = Pack(a.Data)
				}
			}
		}
		told = told || a.Err != nil || a.Data != nil
	}
	switch {
	case told:
		return all, nil
	case stuck != nil:
		return all, []Behind{*stuck}
	}
	for i := range qs {
		behind = append(behind, Behind{qs[i].Partition, qs[i].After})
	}
	return all, behind
}

// teller makes sections of a partition's log what others are told of some slots.
type teller struct {
	pulled
	s         *Store
	p         *partition
	catalog   *catalog
	committed uint64
	dead      uint64 // up to here nothing is told: it is of an older era
	w         sectionWriter
	end       logEnd   // the last section that was looked at
	tables    []uint32 // that are named, ascending
	begun     bool     // something of the section at hand was told
	missed    bool     // what follows was not where the reading began
	gap       bool     // … nor anywhere else
}

// failure is why nothing can be told; nil also of none.
func (t *teller) failure() error {
	if t != nil && t.gap {
		return ErrGap
	}
	return nil
}

// finish returns the answer.
func (t *teller) finish() []byte {
	t.sections = t.w.finish(t.sections)
	t.p.lock()
	t.wall = max(t.p.at.wall, t.w.next)
	for _, id := range t.tables {
		name := DefaultTable // it was dropped
		if known := t.p.tables[id]; known != nil {
			name = known.def.Name
		}
		t.pulled.tables = append(t.pulled.tables, pulledTable{id, []byte(name)})
	}
	t.p.mu.Unlock()
	if t.end.seq == t.upTo {
		t.proof = t.s.prove(t.RegionSource, t.incarnation, t.end)
	}
	return t.appendTo(make([]byte, 0, 128+len(t.sections)))
}

// tell reads the log for all that a region asks, with about most bytes in all; 0: all there is. If it
// stops at something that is not committed yet, stuck is what must be.
func (s *Store) tell(by part.Region, all []*teller, most int) (stuck *Behind, err error) {
	all = slices.DeleteFunc(slices.Clone(all), func(t *teller) bool { return t.committed == t.upTo })
	if len(all) == 0 {
		return nil, nil
	}
	if s.Fsync() != Always {
		if err := s.Sync(); err != nil { // a sequence that others know must not be given again
			return nil, err
		}
	}
	if most <= 0 {
		most = math.MaxInt
	}
	h := s.peer(by)
	h.reading.Lock()
	defer h.reading.Unlock()
	r := logTelling{left: most}
	at, err := r.follow(s.db.Log(), h.at, all)
	missed := all
	if !errors.Is(err, oplog.ErrBookmark) {
		missed = missing(all)
	}
	if len(missed) == 0 || err != nil && !errors.Is(err, oplog.ErrBookmark) {
		h.at = at
		return r.stuck, err
	}
	back := 2*len(missed) >= len(all)
	if back {
		missed = all
	}
	from := make(map[uint16]uint64, len(missed))
	for _, t := range missed {
		next := t.upTo + 1
		if t.upTo == t.dead { // the era may begin within a section
			next = t.after + 1
		}
		from[t.Partition] = min(next, cmp.Or(from[t.Partition], math.MaxUint64))
		t.missed = false
	}
	r.left = max(r.left, most/4)
	begin, err := r.follow(s.db.Log(), s.db.Log().BookmarkAt(from), missed)
	if h.at = at; back {
		h.at = begin
	}
	for _, t := range missing(missed) {
		t.gap = true
	}
	return r.stuck, err
}

// missing returns those that something is missing of.
func missing(all []*teller) (missed []*teller) {
	for _, t := range all {
		if t.missed {
			missed = append(missed, t)
		}
	}
	return missed
}

// logTelling is one reading of the log.
type logTelling struct {
	left  int     // bytes to be told, about
	stuck *Behind // what the log has next is not committed
	of    map[uint16][]*teller

	reader sectionReader // of the section at hand
	entry  pulledEntry   // of it
}

// follow tells what follows a bookmark, and returns one behind that. It marks those that
// something is missing of.
func (r *logTelling) follow(l *oplog.Log, at oplog.Bookmark, all []*teller) (oplog.Bookmark, error) {
	r.stuck, r.of = nil, make(map[uint16][]*teller)
	for _, t := range all {
		r.of[t.Partition] = append(r.of[t.Partition], t)
	}
	for _, of := range r.of {
		slices.SortFunc(of, func(a, b *teller) int { return cmp.Compare(a.first, b.first) })
	}
	at, err := l.Follow(at, r.record)
	if errors.Is(err, errEnough) {
		return at, nil
	}
	for _, t := range all { // here the log ends
		t.missed = t.missed || t.upTo < t.committed
	}
	return at, err
}

// record tells of a record of the log, if all of it may be told.
func (r *logTelling) record(record []byte) error {
	if r.left <= 0 {
		return errEnough
	}
	err := oplog.Sections(record, func(partition uint16, seq uint64, _ []byte) error {
		for _, t := range r.of[partition] {
			if seq > t.committed {
				r.stuck = &Behind{partition, seq - 1}
				return errEnough
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return oplog.Sections(record, func(partition uint16, seq uint64, content []byte) error {
		of := r.of[partition]
		if len(of) == 0 {
			return nil
		}
		return r.section(of, seq, content)
	})
}

// section tells of a section that begins with a sequence: each entry who asks for its slot.
func (r *logTelling) section(of []*teller, seq uint64, content []byte) error {
	rd, err := newSectionReader(content)
	if err != nil {
		return err
	}
	r.reader = rd
	for _, t := range of {
		t.begun, t.missed = false, t.missed || seq > t.upTo+1
	}
	e := &r.entry
	*e = pulledEntry{seq: seq - 1, wall: rd.at.wall}
	for r.reader.next(&e.entry) {
		e.seq = e.endsAt(e.seq + 1)
		switch {
		case len(of) == 0 || !e.told(of[0].Region):
		case e.kind.row().key == noKey:
			e.r.cursor.Vector, e.r.cursor.Proof = nil, Proof{}
			for _, t := range of {
				r.tell(t, e)
			}
		default:
			slot := Slot(e.key)
			i := sort.Search(len(of), func(i int) bool { return of[i].last >= slot })
			if i < len(of) && slot >= of[i].first && of[i].catalog.find(e.key).Told() {
				r.tell(of[i], e)
			}
		}
	}
	for _, t := range of {
		if t.missed {
			continue
		}
		if t.begun {
			t.w.nextEnd = e.seq
		}
		if t.upTo = max(t.upTo, e.seq); t.upTo == e.seq {
			t.end = logEnd{e.seq, fingerprint(content)}
		}
	}
	return r.reader.err()
}

// tell tells one entry, unless that was done.
func (r *logTelling) tell(t *teller, e *pulledEntry) {
	if t.missed || e.seq <= t.upTo {
		return
	}
	before := t.size()
	t.add(e)
	r.left -= t.size() - before
}

// size is how many bytes the answer has until now, about.
func (t *teller) size() int { return len(t.sections) + len(t.w.entries) }

// add adds an entry to the section at hand, and notes which table it names.
func (t *teller) add(e *pulledEntry) {
	if e.kind.is(hasOpid) {
		if i, ok := slices.BinarySearch(t.tables, e.table); !ok {
			t.tables = slices.Insert(t.tables, i, e.table)
		}
	}
	e.first = !t.begun
	t.sections, t.begun = t.w.add(t.sections, e), true
}
