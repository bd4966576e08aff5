package store

import (
	"bytes"
	"cmp"
	"errors"
	"slices"

	"github.com/fbfkv/fbfkv/persistence/oplog"
)

// A follower without a cursor, or one that has lost changes, can begin with a snapshot: all counters of each
// partition, then the changes behind them. No copy is kept for it, and no write waits. The partitions follow
// one after the other, and each is told page by page, in the order of its rows. A page is as of the
// sequence S at which it was read, and before it the log is told up to S. So the follower knows, at each of
// its cursors,
//
//	the keys up to a place   exactly as of the cursor's sequence: of them it was told all changes
//	those behind the place   not at all: their changes are left out
//
// and the place is in the cursor. Only one thing is between: a key that is created while its page is
// read, which the page may lack. The log tells it, from the sequence on at which the reading began.

// The indexes of what a snapshot has at a sequence are above those of the changes there.
const (
	indexOfSnapshot = 2 // its beginning
	indexOfValues   = 3 // its first counter; each has the next one
)

// snapshotPage is how many keys are read for a page.
const snapshotPage = 1024

// followedPlace is how far a snapshot was told: all partitions below one, and some keys of that one.
type followedPlace struct {
	partition int
	key       []byte // up to this one; nil: none
	told      uint64 // how many counters of the partition
}

// followedPage is a page that is read for a snapshot.
type followedPage struct {
	p       *partition
	from    uint64 // the reading began at this sequence
	at      uint64 // what it has is as of this one
	wall    int64
	catalog *catalog
	keys    []pagedKey
	has     map[string]bool // whether a key is among keys
	last    bool            // of its partition
	away    bool            // the rows of the partition are not there yet
}

// pagedKey is a key of a page.
type pagedKey struct {
	key   string
	pos   uint64
	row   *row   // what it is; nil: that must be read
	stamp uint32 // of hotCounters, when it was that
}

// beginSnapshot tells that in each partition all is told anew.
func (r *following) beginSnapshot() {
	wall, _ := r.s.look()
	for p := range r.at {
		seq := r.at[p].committed
		if !r.at[p].here { // where it is, it may be behind that
			seq = 0
		}
		r.q.Tell(&Followed{Partition: uint16(p), Seq: seq, Index: indexOfSnapshot, Kind: FollowedSnapshot,
			Wall: wall})
	}
}

// knows reports whether the follower is told what has happened to a key at a sequence.
func (r *following) knows(p uint16, seq uint64, key []byte) bool {
	if r.place == nil || int(p) != r.place.partition {
		return true
	}
	if !r.isBehind(key, r.place.key) {
		return true
	}
	g := r.page
	if g == nil || seq <= g.from || g.has[string(key)] {
		return false
	}
	return g.last || !r.isBehind(key, []byte(g.keys[len(g.keys)-1].key))
}

// isBehind reports whether a key is behind another one in the order of rows; nil is before all.
func (r *following) isBehind(key, other []byte) bool {
	h := r.s.hashes
	return other == nil ||
		cmp.Or(cmp.Compare(h.position(key), h.position(other)), bytes.Compare(key, other)) > 0
}

// nextPage returns the partition whose next page can be told here; nil: there is none, or not now.
func (r *following) nextPage() *partition {
	here := func(at followedTo) bool { return at.begins == FollowSnapshot && at.here }
	next := slices.IndexFunc(r.at, here)
	if r.place != nil {
		if next = r.place.partition; r.waits(next) {
			next = -1 // the shard that has it goes on with it
		}
	}
	if next < 0 || r.stalled {
		return nil
	}
	return r.s.partitions[next]
}

// goOn goes on with the snapshot.
func (r *following) goOn(at oplog.Bookmark) (oplog.Bookmark, error) {
	var after []byte
	if r.place != nil {
		after = r.place.key
	}
	g, err := r.s.readPage(r.nextPage(), after)
	if err != nil {
		return at, err
	}
	return r.tellPage(at, g)
}

// tellPage tells the log up to a page, and the page.
func (r *following) tellPage(at oplog.Bookmark, g *followedPage) (oplog.Bookmark, error) {
	if r.stalled = g.away; g.away {
		return at, nil
	}
	to := &r.at[g.p.id]
	if r.place == nil {
		r.place = &followedPlace{partition: int(g.p.id)}
		to.begins, to.log, to.seq = FollowCursor, r.shard.Log, g.from
	}
	r.page, r.stuck = g, nil
	at, err := r.read(at)
	if r.page = nil; errors.Is(err, oplog.ErrBookmark) || to.seq != g.at {
		return at, err // the page is read again
	}
	for i := range g.keys {
		k := &g.keys[i]
		if key := []byte(k.key); k.row.kind == TypeCounter && r.q.Wants(key) {
			r.q.Tell(&Followed{Partition: g.p.id, Seq: g.at, Index: indexOfValues + r.place.told,
				Kind: FollowedValue, Key: key, Value: k.row.value, Scale: g.catalog.find(key).Scale,
				Wall: g.wall})
			r.place.told++
		}
	}
	if r.place.key = nil; g.last {
		r.place = nil
	} else {
		r.place.key = []byte(g.keys[len(g.keys)-1].key)
	}
	return at, err
}

// readPage reads the keys behind one, as of one sequence, once that is committed.
func (s *Store) readPage(p *partition, after []byte) (*followedPage, error) {
	for {
		g, life, err := s.findPage(p, after)
		if err != nil {
			return nil, err
		}
		here, err := g.show(func() {})
		if err != nil {
			return nil, err
		}
		if here.life == life {
			return g, here.wait()
		}
	}
}

// findPage finds the keys behind one, and the life in which it does.
func (s *Store) findPage(p *partition, after []byte) (*followedPage, uint64, error) {
	from, to := p.rowRange()
	w := walk{p: p, lock: p.lock, from: max(from, s.positionOfNext(after)), to: to, after: after,
		more: func(n int, _, _ uint64) bool { return n <= snapshotPage }}
	found, began, err := w.keys()
	g := &followedPage{p: p, from: began.seq, last: len(found) <= snapshotPage, has: make(map[string]bool)}
	for _, f := range found[:min(len(found), snapshotPage)] {
		g.keys = append(g.keys, pagedKey{f.key, f.pos, f.row, began.evicted[byte(f.pos)]})
		g.has[f.key] = true
	}
	return g, began.life, err
}

// show finds out what the keys are, all of them at the same time: what memory has, else the row, if nothing
// of its position was evicted since that was read. Others are read again. then is called at that time, with
// the partition locked.
func (g *followedPage) show(then func()) (point, error) {
	p := g.p
	for {
		var again []*pagedKey
		p.lock()
		for i := range g.keys {
			k := &g.keys[i]
			stamp := *p.hot.stamp(k.pos)
			if c := p.hot.peek(k.key); c != nil {
				k.row = &row{kind: c.kind, seq: c.seq, value: c.value}
			} else if k.row == nil || k.stamp != stamp {
				again = append(again, k)
			}
			k.stamp = stamp
		}
		if len(again) == 0 {
			here := p.here()
			g.at, g.catalog, g.wall = here.seq, p.catalog, p.at.wall
			g.away = p.movedRows != nil
			for i := range g.keys {
				if w := g.keys[i].row; w.seq <= p.floor {
					w.kind = TypeNone
				}
			}
			then()
			p.mu.Unlock()
			return here, nil
		}
		p.mu.Unlock()
		for _, k := range again {
			value, ok, err := p.db.Row(nil, rowKey(k.pos, []byte(k.key)))
			if err != nil {
				return point{}, err
			}
			k.row = &row{}
			if ok {
				if *k.row, err = decodeRow(value); err != nil {
					return point{}, err
				}
			}
		}
	}
}
