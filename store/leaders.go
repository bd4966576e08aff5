package store

import (
	"slices"
	"strings"
)

// What CTOP lists of a table with TOP, a partition has in memory from its first use on: members, which are
// never evicted, and a floor, such that
//
//	each counter of the table that is ahead of the floor is a member
//
// A member may have fallen behind the floor, or be gone: its value is looked at only when someone asks. A
// counter outside joins as it passes the floor, and when there are twice as many members as wanted
// the floor rises. It never falls: when too few members are ahead of it, leaders are made anew (top.go).

// rank is a counter's place in a list: by value, and those of one value by key.
type rank struct {
	value int64
	key   string
}

// ahead reports whether a counter comes before another.
func (r rank) ahead(o rank) bool { return r.value > o.value || r.value == o.value && r.key < o.key }

// leaders are a partition's of one table.
type leaders struct {
	catalog *catalog
	table   *tableDef // of it
	want    int
	members []*counter // with isLeader
	floor   *rank      // nil: all counters of the table are members
	whole   bool       // false: those that have not changed since are still being looked for
}

// rank is the counter's.
func (c *counter) rank() rank { return rank{c.value, c.key()} }

// leads reports whether a counter that exists is ahead of the floor.
func (l *leaders) leads(c *counter) bool {
	return c.kind == TypeCounter && (l.floor == nil || c.value >= l.floor.value && c.rank().ahead(*l.floor))
}

// has reports whether a key is of the table.
func (l *leaders) has(key string) bool {
	return strings.HasPrefix(key, l.table.Prefix) && l.catalog.find([]byte(key)) == l.table
}

// leadersOf returns the leaders of a table; nil if there are none yet.
func (h *hotCounters) leadersOf(table *tableDef) *leaders {
	for _, l := range h.leaders {
		if l.table == table {
			return l
		}
	}
	return nil
}

// join makes a counter in memory, which is no member, one if it leads.
func (h *hotCounters) join(c *counter) {
	for _, l := range h.leaders {
		if !l.leads(c) || !l.has(c.key()) {
			continue
		}
		c.is |= isLeader
		if l.members = append(l.members, c); len(l.members) > 2*l.want {
			h.raise(l)
		}
	}
}

// raise raises the floor, so that only as many members stay as are wanted.
func (h *hotCounters) raise(l *leaders) {
	ranks := make([]ranked, 0, len(l.members))
	for _, c := range l.members {
		if l.leads(c) {
			ranks = append(ranks, ranked{c.rank(), c})
		}
	}
	sortRanked(ranks)
	if len(ranks) > l.want {
		floor := ranks[l.want].rank
		l.floor, ranks = &floor, ranks[:l.want]
	}
	h.dismiss(l)
	for _, r := range ranks {
		r.c.is |= isLeader
		l.members = append(l.members, r.c)
	}
}

// ranked is a counter with the place that it had.
type ranked struct {
	rank
	c *counter
}

func sortRanked(list []ranked) {
	slices.SortFunc(list, func(a, b ranked) int {
		switch {
		case a.c == b.c:
			return 0
		case a.ahead(b.rank):
			return -1
		}
		return 1
	})
}

// dismiss lets go of all members, which may be evicted then.
func (h *hotCounters) dismiss(l *leaders) {
	for _, c := range l.members {
		c.is &^= isLeader
		h.evictable(c)
	}
	clear(l.members)
	l.members = l.members[:0]
}

// lead makes leaders of a table, without members yet, in the place of those that it had.
func (h *hotCounters) lead(cat *catalog, table *tableDef, want int) *leaders {
	l := &leaders{catalog: cat, table: table, want: want}
	for i, old := range h.leaders {
		if old.table == table {
			h.dismiss(old)
			h.leaders[i] = l
			return l
		}
	}
	h.leaders = append(h.leaders, l)
	return l
}

// unlead gives up all leaders: keys may change their tables.
func (h *hotCounters) unlead() {
	for _, l := range h.leaders {
		h.dismiss(l)
	}
	h.leaders = nil
}
