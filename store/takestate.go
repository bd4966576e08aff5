package store

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/fbfkv/fbfkv/store/part"
)

// Taking the state of another region, page by page (regionstate.go). Each page is taken as an answer to a
// pull is (take.go): what it says of a key is one merge, each id is one more operation, in batches. The
// cursor is in the last record of all, with what the source had taken then: from there on its log is
// taken. Between two pages memory has the place where the next one begins. After a crash the exchange
// begins again, and a page that was taken changes nothing the second time.

// stateOf says from where a state comes, and of which region: that of a region that is gone may be
// taken at the same time.
type stateOf struct {
	from RegionSource
	of   part.Region
}

// takingState is a state that is being taken.
type takingState struct {
	seq    uint64
	next   []byte // place of the next page
	vector []RegionTaken
	other  []levelled
	proof  Proof // of seq
}

// StateTaken is how far TakeState has taken the state of a source.
type StateTaken struct {
	RegionTaken             // Seq: of the source when the state began
	Next        []byte      // where the next page begins; nil: there is none
	State       string      // that in words, "" if there is none
	Clock       int64       // of the source at Seq, unix ms
	Of          part.Region // whose ids it has
	// Vector is how far the source had taken others' logs at Seq; behind the last page only.
	Vector []RegionTaken
}

// TakeState takes a page of the state of a source that this region has asked for. It returns when that is
// committed. With the last page of a state that has the source's own ids, its log counts as taken up to
// where the state began. Errors: as Take; ErrStream also of a page that does not follow the one before, upon
// which the state is asked for from its beginning. Safe for concurrent use.
func (s *Store) TakeState(b []byte) (StateTaken, error) {
	d, err := decodeStatePage(b)
	if err != nil {
		return StateTaken{}, err
	}
	p := s.partitions[d.first>>s.shift]
	p.taking.mu.Lock()
	defer p.taking.mu.Unlock()
	p.lock()
	state, at, err := s.follows(p, &d)
	p.mu.Unlock()
	if err != nil {
		return StateTaken{}, err
	}
	s.heed(d.wall)
	t := s.newTaker()
	defer s.takers.Put(t)
	t.begin(p, &pulled{RegionSource: d.RegionSource, upTo: d.seq, proof: state.proof}, at)
	t.wall = d.wall
	if place, _ := decodePlace(d.at); place.ids {
		err = d.eachID(t.stateID(d.of))
	} else {
		err = d.eachKey(t.stateKey)
	}
	taken := StateTaken{RegionTaken: RegionTaken{d.RegionSource, d.seq}, Clock: d.wall, Of: d.of}
	last := len(d.next) == 0
	if err == nil && last && d.of == d.Region {
		t.end, t.said = max(d.seq, at), state.vector
		for i := range state.other {
			t.other = append(t.other, removalOp{regionLevel, nil, &state.other[i]})
		}
	}
	if err == nil {
		err = t.flush(last && d.of == d.Region)
	}
	switch {
	case err != nil:
		delete(p.taking.states, stateOf{d.RegionSource, d.of}) // it begins again
	case last:
		delete(p.taking.states, stateOf{d.RegionSource, d.of})
		taken.Vector = state.vector
	default:
		state.next = bytes.Clone(d.next)
		taken.Next, taken.State = state.next, d.progress()
	}
	return taken, err
}

// follows refuses a page that must not be taken, and returns the state that it is of. The partition is
// locked, and its taking.
func (s *Store) follows(p *partition, d *statePage) (*takingState, uint64, error) {
	head := pulled{RegionSource: d.RegionSource, group: d.group, incarnation: d.incarnation, first: d.first,
		last: d.last, upTo: d.seq}
	at, err := head.position(p)
	if err != nil {
		return nil, 0, err
	}
	m := p.regions.member(d.of)
	switch {
	case m == nil || d.of == p.regions.Self:
		return nil, 0, streamError("a state with the ids of region %d", d.of)
	case d.of != d.Region && d.version < m.Since: // it may learn more of that one
		return nil, 0, streamError("region %d does not know yet what was removed", d.Region)
	}
	if len(d.at) == 0 {
		for _, said := range d.vector {
			if err := s.checkSaid(p, d.Region, said); err != nil {
				return nil, 0, err
			}
		}
		if p.taking.states == nil {
			p.taking.states = make(map[stateOf]*takingState)
		}
		p.taking.states[stateOf{d.RegionSource, d.of}] = &takingState{seq: d.seq, vector: d.vector,
			other: d.levelled, proof: d.proof}
	}
	if dead, err := p.regions.dead(d.era); err != nil {
		return nil, 0, err
	} else if dead {
		return nil, 0, streamError("the state of region %d of before the last flush", d.Region)
	}
	state := p.taking.states[stateOf{d.RegionSource, d.of}]
	if state == nil || state.seq != d.seq || !bytes.Equal(state.next, d.at) {
		return nil, 0, streamError("a page of a state that does not follow the one before")
	}
	return state, at, nil
}

// progress says how much of the state has been taken.
func (d *statePage) progress() string {
	place, _ := decodePlace(d.next)
	if place.ids {
		return fmt.Sprintf("ids %d%%", place.hash>>32*100>>32)
	}
	return fmt.Sprintf("keys %d%%", (int(Slot(place.key))-int(d.first))*100/(int(d.last)-int(d.first)+1))
}

// stateKey takes what a page says of a key.
func (t *taker) stateKey(k *stateKey) error {
	t.of = append(t.of, len(t.keys))
	t.keys = append(t.keys, changedKey{key: k.key, n: 1})
	t.changes = append(t.changes, Change{Kind: ChangeParts, Region: t.d.Region, Parts: k.parts})
	for i := range k.owed { // behind the parts
		t.other = append(t.other, removalOp{regionOwe, k.key, &k.owed[i]})
		if err := t.enough(len(k.key)); err != nil {
			return err
		}
	}
	return t.enough(len(k.key) + int(partsBytes(k.parts)))
}

// stateID takes what a page says of an operation.
func (t *taker) stateID(of part.Region) func(o *stateID) error {
	told := t.wall
	if of != t.d.Region {
		told = 0 // nobody knows what that region's clock is: its operations are not too old
	}
	return func(o *stateID) error {
		t.ids = append(t.ids, heardID{o.key, o.id, Heard{
			Origin: of, Dot: o.Dot, Wall: o.UnixMs, Told: told, Delta: o.Delta, Clip: o.Clip,
			Result: o.Result, Stated: true,
		}, nil})
		return t.enough(len(o.key) + len(o.id))
	}
}

// enough takes what was noted, once that is enough for a record.
func (t *taker) enough(bytes int) error {
	if t.ops, t.bytes = t.ops+1, t.bytes+bytes; t.ops >= takeOps || t.bytes >= takeBytes {
		return t.flush(false)
	}
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
