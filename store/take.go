package store

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/fbfkv/fbfkv/internal/longlock"
	"github.com/fbfkv/fbfkv/store/part"
)

// Taking the answer to a pull. All changes of one key are one operation, each opid is one more, and
// the position in the log that was read is the last one of an atomic batch. So an answer is one log
// record: after a crash it is there or it is not. Taking something again changes nothing.
//
// An answer with nothing but positions is not logged, else two idle regions would tell each other
// for ever how far they are: memory knows the positions, and the next record has them.
//
// A page of state is taken in the same way, in several records if it is long, but only its last record of
// all has the position, with what the source had taken when the state began: from there on its log is
// taken. Between two pages memory has the place where the next one begins. After a crash the state begins
// again, and a page that was taken changes nothing the second time.

// taking is what a partition has taken and not logged. Its lock is held while something is
// taken, and is taken before the partition's.
type taking struct {
	mu    longlock.Mutex
	ahead map[RegionSource]uint64 // how far each source has been taken, if that is more than its cursor
	// proved has the positions of these that their sources have proved.
	proved map[RegionSource]Position
	heard  map[RegionSource]map[RegionSource]uint64 // what sources said since the last cursor that has it
	// states are those that are being taken.
	states map[stateOf]*takingState
	life   uint64 // of the partition (commitMark), in which all of this is so
}

// heldTaking returns what the partition has taken and not logged: nothing, if what it rests on was
// taken back. The partition is locked, and its taking.
func (p *partition) heldTaking() *taking {
	if life := p.committed.life.Load(); life != p.taking.life {
		t := &p.taking
		t.ahead, t.proved, t.heard, t.states, t.life = nil, nil, nil, nil, life
	}
	return &p.taking
}

// sameLife fails if what a cursor would follow was taken back meanwhile. The partition is locked.
func (p *partition) sameLife(life uint64) error {
	if p.committed.life.Load() != life {
		return ErrNotLeader
	}
	return nil
}

// TakenOf returns how far a partition here has taken a source's log. Its next pull asks for the log
// behind after, and acknowledges it up to acked, which it will not ask for again.
func (s *Store) TakenOf(partition uint16, from RegionSource) (after, acked uint64, err error) {
	p, err := s.ownPartition(partition)
	if err != nil {
		return 0, 0, err
	}
	p.taking.mu.Lock()
	defer p.taking.mu.Unlock()
	p.lock()
	defer p.mu.Unlock()
	if p.regions == nil {
		return 0, 0, ErrNoRegions
	}
	acked = p.regions.cursors[from]
	return max(acked, p.heldTaking().ahead[from]), acked, nil
}

// CodeOf returns the code of the proof of a position up to which a partition here has taken a source's
// log; 0: there is none.
func (s *Store) CodeOf(partition uint16, from RegionSource, at uint64) uint64 {
	p, err := s.ownPartition(partition)
	if err != nil {
		return 0
	}
	p.taking.mu.Lock()
	defer p.taking.mu.Unlock()
	p.lock()
	defer p.mu.Unlock()
	if p.regions == nil {
		return 0
	}
	for _, known := range []Position{p.heldTaking().proved[from], p.regions.proved[from]} {
		if known.Seq == at {
			return known.Code
		}
	}
	return 0
}

// stateOf says from where a state comes, and of which region: that of a region that is gone may be
// taken at the same time.
type stateOf struct {
	from RegionSource
	of   part.Region
}

// takingState is a state of which some pages have been taken.
type takingState struct {
	seq   uint64
	next  []byte // place of the next page
	proof Proof  // of seq
	// what the source had taken and had levelled at seq
	said     []RegionTaken
	levelled []levelled
}

// StateTaken is how far a state has been taken.
type StateTaken struct {
	Seq  uint64      // of the source when the state began
	Of   part.Region // whose operations are told
	Next []byte      // where the next page begins; nil: there is none
	Done string      // that in words, "" if there is none
}

// Taken is how far Take has taken a source's log.
type Taken struct {
	RegionTaken
	State *StateTaken // of a page of a state; else nil
	// Wall is the time of the newest entry that the answer told, unix ms; 0: it told none. Clock is
	// the source's clock when it answered, which is not less than the clock of any entry it knows.
	Wall, Clock int64
}

// Take takes what a source has answered to a pull of this region, or a page of state that this region has
// asked for, and returns how far the source's log has been taken now: behind the last page of a state with
// its own ids up to where the state began. It returns when that is committed. Changes taken before are
// skipped. Errors: ErrPulled; ErrNoRegions; ErrStream, if it does not follow what was taken, or is of a log
// that this region does not read; ErrEra; of a write. Changes taken before it fails stay, but after an
// error a state is asked for from its beginning. An answer of an older era is not taken, but passed. Safe
// for concurrent use.
func (s *Store) Take(b []byte) (Taken, error) {
	t := s.newTaker()
	defer s.takers.Put(t)
	d, err := decodePulled(b, &t.memory)
	if err != nil {
		return Taken{}, err
	}
	p := s.partitions[d.first>>s.shift]
	p.taking.mu.Lock()
	defer p.taking.mu.Unlock()
	p.lock()
	at, err := d.position(p)
	dead := false
	if err == nil {
		dead, err = p.regions.dead(d.era)
	}
	if t.begin(p, &d, at); err == nil && d.page != nil {
		err = t.beginPage(dead)
	}
	p.mu.Unlock()
	if err == nil && !dead {
		err = d.each(t.entry)
	}
	var state *StateTaken
	switch {
	case t.state != nil:
		state, err = t.finishPage(err)
	case err == nil:
		err = t.finish()
	}
	return Taken{RegionTaken{d.RegionSource, t.at}, state, t.told, d.wall}, err
}

// beginPage refuses a page that must not be taken, and notes of which state it is. The partition is locked,
// and its taking.
func (t *taker) beginPage(dead bool) error {
	p, d, page := t.p, t.d, t.d.page
	m := p.regions.member(page.of)
	switch {
	case m == nil || page.of == p.regions.Self:
		return streamError("a state with the ids of region %d", page.of)
	case page.of != d.Region && page.version < m.Since: // it may learn more of that one
		return streamError("region %d does not know yet what was removed", d.Region)
	case dead:
		return streamError("the state of region %d of before the last flush", d.Region)
	}
	of := stateOf{d.RegionSource, page.of}
	if len(page.at) == 0 {
		if p.taking.states == nil {
			p.taking.states = make(map[stateOf]*takingState)
		}
		p.taking.states[of] = &takingState{seq: d.upTo, proof: d.proof}
	}
	state := p.taking.states[of]
	if state == nil || state.seq != d.upTo || !bytes.Equal(state.next, page.at) {
		return streamError("a page of a state that does not follow the one before")
	}
	t.state, d.proof = state, state.proof
	t.said, t.levelled = append(t.said, state.said...), append(t.levelled, state.levelled...)
	return nil
}

// position returns how far the source has been taken. It refuses what must not be taken. The
// partition is locked, and its taking.
func (d *pulled) position(p *partition) (at uint64, err error) {
	g := p.regions
	if g == nil {
		return 0, ErrNoRegions
	}
	at = max(g.cursors[d.RegionSource], p.heldTaking().ahead[d.RegionSource])
	m := g.member(d.Region)
	switch {
	case d.group != g.Group:
		return at, streamError("group %x, and not %x", d.group, g.Group)
	case m != nil && m.Gone:
		return at, streamError("region %d was removed", d.Region)
	case m == nil || d.Region == g.Self || int(d.Partition) >= m.Partitions:
		return at, streamError("partition %d of region %d", d.Partition, d.Region)
	case d.incarnation != m.Incarnation:
		return at, streamError("incarnation %x of region %d, and not %x", d.incarnation, d.Region,
			m.Incarnation)
	}
	if last, _, ok := pullRange(int(d.Partition), m.Partitions, p.count, d.first); !ok || last != d.last {
		return at, streamError("slots %d to %d of partition %d of region %d", d.first, d.last, d.Partition,
			d.Region)
	}
	if d.after > at {
		return at, streamError("entries behind %d, and what is taken ends at %d", d.after, at)
	}
	if EntriesBetween(at, d.upTo) > MaxAhead {
		return at, streamError("entries up to %d, and what is taken ends at %d", d.upTo, at)
	}
	return at, nil
}

// taker makes batches of what a source has answered. It is used again, with its memory.
type taker struct {
	s     *Store
	p     *partition
	d     *pulled
	at    uint64 // what is taken
	end   uint64 // of the section at hand, and its wall time
	wall  int64
	told  int64          // wall of the newest entry that was told
	index map[string]int // of keys
	keys  []changedKey
	// changes in the order of the log, of which keys they are, and by key.
	changes, byKey []Change
	of             []int
	ids            []heardID
	text           []byte // of ids
	owed           []keyOwed
	// said and levelled count when all that the source did before is taken.
	said     []RegionTaken
	levelled []levelled
	state    *takingState // of the page that is taken; of an answer of the log nil
	ops      int          // since the last batch
	bytes    int
	b        Batch
	memory   pulledMemory
}

// changedKey is a key that the source changed a number of times.
type changedKey struct {
	key []byte
	n   int
}

// heardID is an opid that the source has applied, or has taken back.
type heardID struct {
	key, id []byte
	Heard
	lost *Lost
}

// newTaker returns a taker, to be given back to takers.
func (s *Store) newTaker() *taker {
	if t, ok := s.takers.Get().(*taker); ok {
		return t
	}
	return &taker{s: s, index: make(map[string]int)}
}

// begin makes it take what a source has answered.
func (t *taker) begin(p *partition, d *pulled, at uint64) {
	t.p, t.d, t.at, t.end, t.wall, t.told, t.state = p, d, at, 0, 0, 0, nil
	t.said, t.levelled = t.said[:0], t.levelled[:0]
	t.empty()
}

// empty drops what was noted but for positions.
func (t *taker) empty() {
	clear(t.index)
	t.keys, t.changes, t.of, t.ids, t.text = t.keys[:0], t.changes[:0], t.of[:0], t.ids[:0], t.text[:0]
	t.owed, t.ops, t.bytes = t.owed[:0], 0, 0
}

// entry notes what an entry says, and takes what came before if that is enough.
func (t *taker) entry(e *pulledEntry) error {
	if t.ops >= takeOps || t.bytes >= takeBytes {
		// Within a section, or a state, there is no position to go on from: it is taken again if the rest
		// of it is not.
		if err := t.flush(e.first && t.state == nil); err != nil {
			return err
		}
	}
	if t.end, t.wall, t.told = e.end, e.wall, e.wall; e.seq <= t.at && t.state == nil {
		return nil
	}
	row := e.kind.row()
	if row.key != noKey {
		t.ops, t.bytes = t.ops+1, t.bytes+e.size
	}
	if ch, ok := e.change(t.d.Region, e.seq); ok {
		i, known := t.index[string(e.key)]
		if !known {
			i = len(t.keys)
			t.index[string(e.key)] = i
			t.keys = append(t.keys, changedKey{key: e.key})
		}
		t.keys[i].n++
		t.changes, t.of = append(t.changes, ch), append(t.of, i)
	}
	if row.take == nil {
		return nil
	}
	return row.take(t, e)
}

// takeCursor takes what a region says that it has taken.
func (t *taker) takeCursor(e *pulledEntry) error {
	t.p.lock()
	defer t.p.mu.Unlock()
	if err := t.s.checkSaid(t.p, t.d.Region, e.r.cursor.RegionTaken); err != nil {
		return err
	}
	t.said = append(t.said, e.r.cursor.RegionTaken)
	return nil
}

// takeApplied takes the id of an operation.
func (t *taker) takeApplied(e *pulledEntry) error {
	t.applied(e, Heard{Origin: t.d.Region, Dot: e.seq, Wall: e.wall, Use: e.use})
	return nil
}

// takeHeard takes the id of an operation that a state tells.
func (t *taker) takeHeard(e *pulledEntry) error {
	h := e.r.heard
	h.Stated = true
	t.applied(e, h)
	return nil
}

// applied takes an operation.
func (t *taker) applied(e *pulledEntry, h Heard) {
	if h.Delta, h.Clip, h.Result = e.delta, e.clip, e.value; h.Origin == t.d.Region {
		h.Told = t.d.wall // else nobody knows that region's clock: its operations are not too old
	}
	from := len(t.text)
	t.text = append(t.text, e.id...)
	t.ids = append(t.ids, heardID{e.key, t.text[from:], h, nil})
}

// takeLost takes that a region takes an operation of its own back.
func (t *taker) takeLost(e *pulledEntry) error {
	winner := e.r.heard
	winner.Delta, winner.Clip = e.delta, e.clip
	t.ids = append(t.ids, heardID{e.key, append([]byte(nil), e.id...), Heard{},
		&Lost{t.d.Region, e.r.back.Dot, e.r.back.Made, e.r.back.Owed, winner}})
	return nil
}

// checkSaid refuses what a region says that it has taken if that cannot be. The partition is locked.
func (s *Store) checkSaid(p *partition, by part.Region, said RegionTaken) error {
	switch {
	case said.Region != p.self():
	case int(said.Partition) >= len(s.partitions):
		return streamError("region %d names partition %d of this one, which has %d", by, said.Partition,
			len(s.partitions))
	case said.Partition != p.id:
		// one partition there reads several here; nothing was told but what is committed
		err := s.checkAhead(by, said.Seq, s.partitions[said.Partition].committed.upTo())
		if s.replica != nil && errors.Is(err, ErrAhead) { // another shard's, or another replica knew first
			return nil
		}
		return err
	default:
		return s.checkAhead(by, said.Seq, p.seq)
	}
	if known := p.regions.cursors[said.RegionSource]; EntriesBetween(known, said.Seq) > MaxAhead {
		return streamError("region %d names entry %d of region %d, and what is taken ends at %d", by,
			said.Seq, said.Region, known)
	}
	return nil
}

// finish takes the rest.
func (t *taker) finish() error {
	t.end, t.wall = max(t.d.upTo, t.at), t.d.wall
	p, from := t.p, t.d.RegionSource
	p.lock()
	err := p.sameLife(p.taking.life)
	acked := uint64(0)
	if err == nil {
		acked = p.regions.cursors[from]
	}
	p.mu.Unlock()
	if err != nil {
		return err
	}
	if len(t.keys)+len(t.ids)+len(t.owed)+len(t.levelled) > 0 || t.end >= acked+bareEntries {
		return t.flush(true)
	}
	t.hear()
	if t.end > acked {
		if p.taking.ahead == nil {
			p.taking.ahead = make(map[RegionSource]uint64)
		}
		p.taking.ahead[from] = t.end
		if t.d.proof != (Proof{}) && t.end == t.d.upTo {
			if p.taking.proved == nil {
				p.taking.proved = make(map[RegionSource]Position)
			}
			p.taking.proved[from] = Position{RegionTaken{from, t.end}, t.d.proof}
		}
	}
	t.at = t.end
	return nil
}

// finishPage takes the rest of a page, unless it has failed: with the position, if it is the last one of a
// state with the source's own ids.
func (t *taker) finishPage(err error) (*StateTaken, error) {
	d, page := t.d, t.d.page
	taken := &StateTaken{Seq: d.upTo, Of: page.of}
	ends := len(page.next) == 0
	if err == nil {
		t.end, t.wall = max(d.upTo, t.at), d.wall
		err = t.flush(ends && page.of == d.Region)
	}
	if ends || err != nil { // or it begins again
		delete(t.p.taking.states, stateOf{d.RegionSource, page.of})
		return taken, err
	}
	t.state.next, t.state.said, t.state.levelled = bytes.Clone(page.next), slices.Clone(t.said),
		slices.Clone(t.levelled)
	taken.Next, taken.Done = t.state.next, d.progress()
	return taken, nil
}

// progress says how much of a state has been taken.
func (d *pulled) progress() string {
	place, _ := decodePlace(d.page.next)
	if place.ids {
		return fmt.Sprintf("ids %d%%", place.hash>>32*100>>32)
	}
	return fmt.Sprintf("keys %d%%", (int(Slot(place.key))-int(d.first))*100/(int(d.last)-int(d.first)+1))
}

// hear notes how far the source says that it has taken other logs. All that it did before is
// committed here.
func (t *taker) hear() {
	p, from := t.p, t.d.RegionSource
	if len(t.said) == 0 {
		return
	}
	if p.taking.heard == nil {
		p.taking.heard = make(map[RegionSource]map[RegionSource]uint64)
	}
	if p.taking.heard[from] == nil {
		p.taking.heard[from] = make(map[RegionSource]uint64)
	}
	for _, taken := range t.said {
		p.taking.heard[from][taken.RegionSource] = max(p.taking.heard[from][taken.RegionSource], taken.Seq)
	}
	p.lock()
	if p.sameLife(p.taking.life) == nil {
		p.regions.hear(from, t.said)
	}
	p.mu.Unlock()
	t.said = t.said[:0]
}

// flush takes what was noted, in one record; with the position if that is the end of a section.
func (t *taker) flush(whole bool) error {
	p, from := t.p, t.d.RegionSource
	b := &t.b
	b.Reset()
	b.Atomic = true
	// The position must not be noted without the operations before it.
	add := func(k Kind) *Op {
		op := b.Add(k)
		op.Flags = IfPrevious
		return op
	}
	changes := t.sorted()
	for _, k := range t.keys {
		op := add(regionMerge)
		op.Key, op.Object = k.key, changes[:k.n:k.n]
		changes = changes[k.n:]
	}
	for i := range t.ids { // behind the parts: an id must not arrive before its part
		id := &t.ids[i]
		op := add(regionHear)
		if op.Key, op.ID, op.Object = id.key, id.id, &id.Heard; id.lost != nil {
			op.Kind, op.Object = regionLost, id.lost
		}
	}
	for i := range t.owed {
		op := add(regionOwe)
		op.Key, op.Object = t.owed[i].key, &t.owed[i].Owed
	}
	if whole {
		for i := range t.levelled {
			op := add(regionLevel)
			op.Delta, op.Object = int64(p.id), &t.levelled[i]
		}
		vector := maps.Clone(p.taking.heard[from])
		if vector == nil {
			vector = make(map[RegionSource]uint64)
		}
		for _, taken := range t.said {
			vector[taken.RegionSource] = max(vector[taken.RegionSource], taken.Seq)
		}
		op := add(regionCursor)
		op.Delta = int64(p.id)
		c := &RegionCursor{RegionTaken: RegionTaken{from, t.end}, Wall: t.wall, Vector: sortTaken(vector),
			life: p.taking.life}
		if op.Object = c; t.end == t.d.upTo {
			c.Proof = t.d.proof
		}
	}
	if len(b.Ops) == 0 {
		return nil
	}
	t.s.Execute(b)
	for i := range b.Ops {
		if err := b.Ops[i].Err; err != nil {
			return err
		}
	}
	if whole {
		delete(p.taking.heard, from)
		delete(p.taking.ahead, from)
		delete(p.taking.proved, from)
		t.at, t.said, t.levelled = t.end, t.said[:0], t.levelled[:0]
	}
	t.empty()
	return nil
}

// sorted returns the changes by key.
func (t *taker) sorted() []Change {
	t.byKey = slices.Grow(t.byKey[:0], len(t.changes))[:len(t.changes)]
	n := 0
	for i := range t.keys {
		t.keys[i].n, n = n, n+t.keys[i].n
	}
	for i, ch := range t.changes {
		k := &t.keys[t.of[i]]
		t.byKey[k.n] = ch
		k.n++
	}
	for i := len(t.keys) - 1; i > 0; i-- {
		t.keys[i].n -= t.keys[i-1].n
	}
	return t.byKey
}

// keyOwed is an operation of a key that a region owes.
type keyOwed struct {
	key []byte
	part.Owed
}

// takeOwed takes what is owed.
func (t *taker) takeOwed(e *pulledEntry) error {
	for _, o := range e.r.owed {
		t.owed = append(t.owed, keyOwed{e.key, o})
	}
	t.ops += len(e.r.owed)
	return nil
}

// takeLevelled takes that a region has levelled.
func (t *taker) takeLevelled(e *pulledEntry) error {
	l := e.r.levelled
	if l.By = t.d.RegionSource; t.state == nil {
		l.Seq = e.seq
	}
	t.levelled = append(t.levelled, l)
	return nil
}

// Newcomer reports whether this region has taken nothing yet of any other one.
func (s *Store) Newcomer() bool {
	return !slices.ContainsFunc(s.partitions, func(p *partition) bool {
		p.lock()
		defer p.mu.Unlock()
		return p.regions != nil && len(p.regions.cursors) > 0
	})
}
