package store

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// ErrNoTop: see Store.Top.
var ErrNoTop = errors.New("no table with TOP has exactly this prefix: CTABLE CREATE one, or CTABLE ALTER it")

// Leader is a counter of a list that Top returns.
type Leader struct {
	Key   string
	Value int64 // in steps of the table's scale
}

// Top returns the first n counters of the table with a prefix, from the highest value on, those of one value
// by key, as they were all at one time, once that is committed; and the table's scale. It waits for a walk
// over the keys if what the partitions know is too little. Errors: ErrNoTop, ErrOption if n is beyond the
// table's TOP, or that of the commit.
func (s *Store) Top(prefix string, n int) (list []Leader, scale uint8, err error) {
	for tries := 0; ; tries++ {
		t, err := s.lookAtTop(prefix, n)
		if err != nil {
			return nil, 0, err
		}
		if len(t.short) == 0 {
			for _, c := range t.list {
				list = append(list, Leader{c.key, c.value})
			}
			return list, t.scale, t.wait()
		}
		for _, k := range t.short {
			if err := s.findLeaders(k, t.wanted(tries, len(s.partitions))); err != nil {
				return nil, 0, err
			}
		}
	}
}

// topView is what all partitions knew of a table's leaders at one time.
type topView struct {
	top   int // the table's
	scale uint8
	list  []ranked
	short []shortLeaders // of what may be missing in list
	at    []point
}

// shortLeaders are too few leaders of a table in a partition, or none.
type shortLeaders struct {
	p     *partition
	hot   *hotCounters
	table *tableDef
	has   *leaders
}

// wanted is how many leaders a partition is to find. Most keys are spread evenly; where they are not, or
// members have fallen behind meanwhile, each try finds more.
func (t *topView) wanted(tries, partitions int) int {
	if want := 2*t.top/partitions + 16; tries == 0 && want < t.top {
		return want
	}
	return t.top << min(tries, 20)
}

// wait waits until all that was seen is committed.
func (t *topView) wait() (err error) {
	for _, at := range t.at {
		err = cmp.Or(err, at.wait())
	}
	return err
}

// lookAtTop takes a view.
func (s *Store) lookAtTop(prefix string, n int) (*topView, error) {
	t := new(topView)
	var all []shortLeaders
	x := s.internal(s.partitions...)
	x.lock()
	var err error
	for _, p := range s.partitions {
		d := p.catalog.byPrefix(prefix)
		switch {
		case p.moved() && !p.gone: // nobody can say now what it has
			err = errMoved
		case d == nil || d.Top == 0:
			err = ErrNoTop
		case n < 1 || n > d.Top:
			err = fmt.Errorf("%w: n must be 1 to %d, the table's TOP", ErrOption, d.Top)
		}
		if err != nil {
			break
		}
		t.top, t.scale, t.at = d.Top, d.Scale, append(t.at, p.here())
		l := p.hot.leadersOf(d)
		all = append(all, shortLeaders{p, p.hot, d, l})
		if l == nil || !l.whole {
			t.short = append(t.short, all[len(all)-1])
			continue
		}
		at := x.at(&p.machine)
		for _, c := range l.members {
			if l.leads(c) && p.alive(c, at) {
				t.list = append(t.list, ranked{c.rank(), c})
			}
		}
	}
	x.unlock()
	if err != nil || len(t.short) > 0 {
		return t, err
	}
	sortRanked(t.list)
	t.list = t.list[:min(n, len(t.list))]
	for _, k := range all {
		// A counter that the list may lack is not ahead of the floor.
		if floor := k.has.floor; floor != nil && (len(t.list) < n || floor.ahead(t.list[n-1].rank)) {
			t.short = append(t.short, k)
		}
	}
	return t, nil
}

// findLeaders finds leaders of a table anew, by a walk over the partition's keys, unless someone else has.
func (s *Store) findLeaders(k shortLeaders, want int) error {
	s.topMu.Lock()
	defer s.topMu.Unlock()
	p, h := k.p, k.hot
	p.lock()
	if p.hot != h || h.leadersOf(k.table) != k.has || p.catalog.byID(k.table.ID) != k.table {
		p.mu.Unlock()
		return nil
	}
	l := h.lead(p.catalog, k.table, want)
	p.mu.Unlock()
	var after []byte
	for more := true; more; {
		g, _, err := s.findPage(p, after)
		if err != nil {
			return err
		}
		if _, err = g.show(func() {
			if more = p.hot == h && slices.Contains(h.leaders, l); !more {
				return // they are gone
			}
			for i := range g.keys {
				h.meet(l, &g.keys[i])
			}
			l.whole, more = g.last, !g.last
		}); err != nil {
			return err
		}
		if more {
			after = []byte(g.keys[len(g.keys)-1].key)
		}
	}
	return nil
}

// meet makes a key that a walk has found a member if it leads. The partition is locked.
func (h *hotCounters) meet(l *leaders, k *pagedKey) {
	c := h.peek(k.key)
	if c != nil {
		if c.is&isLeader == 0 {
			h.join(c)
		}
		return
	}
	c = newCounter([]byte(k.key), k.pos)
	if c.showRow(k.row); l.leads(c) && l.has(k.key) {
		c = h.install(hotHash([]byte(k.key)), []byte(k.key), k.pos)
		c.showRow(k.row)
		h.join(c)
	}
}
