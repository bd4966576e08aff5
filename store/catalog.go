package store

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// catalog is the set of tables. It is immutable: a change makes a new one,
// which is logged whole in every partition, so that each partition's log can
// be redone by itself. The logged times in it are the partition's own.
type catalog struct {
	Next   uint32      // the id of the next table
	Tables []*tableDef // live and draining, longest prefix first
	// Version: the live tables agree with this version of the cluster's (SetTables); 0: with none.
	Version uint64 `json:",omitempty"`
	// Coming are the tables that the cluster is about to have if nothing is in the way: keys concerned are
	// not written until the cluster has them, or has given them up (tablechange.go).
	Coming TableSet `json:",omitempty"`

	bounded bool // a table has bounds
	scaled  bool // a table has a scale
}

// tableDef is a table as the catalogue has it.
type tableDef struct {
	ID uint32
	TableOptions
	// ForgottenBefore is a wall time, ms: operations made before it are STALE
	// (G7). ALTER to a longer window sets it, since what the shorter window
	// forgot must not be let in again.
	ForgottenBefore int64 `json:",omitempty"`
	// Until logged time KeepUntil, ids are kept for KeepWindow ms if that is
	// longer than the window: the promise made at their application outlives
	// an ALTER to a shorter window.
	KeepWindow, KeepUntil int64 `json:",omitempty"`
	// Links are tables that keys of this one belonged to: their memory is
	// asked too until it has drained, so that CREATE and DROP forget nothing.
	Links []link `json:",omitempty"`
	// DropUntil is the logged time until which a dropped table's memory is
	// still asked; 0 for a live table.
	DropUntil int64 `json:",omitempty"`
}

// link says that keys with Prefix were in table Table before, and that its
// memory matters until logged time Until. From then until logged time Keep,
// operations made before the wall time Before are STALE: the present table's
// window may reach further back than the drained memory did.
type link struct {
	Table        uint32
	Prefix       string
	Until        int64
	Before, Keep int64
}

// newCatalog is the catalogue of a new data directory: the table default.
func newCatalog() *catalog {
	return &catalog{Next: 2, Tables: []*tableDef{{ID: 1, TableOptions: NewTables()[0]}}}
}

func (c *catalog) encode() []byte {
	b, err := json.Marshal(c)
	if err != nil {
		panic(err) // no field of a catalogue can fail to marshal
	}
	return b
}

func decodeCatalog(b []byte) (*catalog, error) {
	c := new(catalog)
	if err := decodeJSON(b, c); err != nil {
		return nil, fmt.Errorf("%w: catalogue: %v", errCorruptEntry, err)
	}
	if len(c.Tables) > 2*MaxTables {
		return nil, fmt.Errorf("%w: catalogue of %d tables", errCorruptEntry, len(c.Tables))
	}
	for i, d := range c.Tables {
		if d == nil {
			return nil, fmt.Errorf("%w: catalogue: a table without settings", errCorruptEntry)
		}
		if d.ID == 0 || d.ID >= c.Next ||
			slices.ContainsFunc(c.Tables[:i], func(o *tableDef) bool { return o.ID == d.ID }) {
			return nil, fmt.Errorf("%w: catalogue: table %d appears twice or was never created",
				errCorruptEntry, d.ID)
		}
		if err := d.Validate(); err != nil {
			return nil, fmt.Errorf("%w: catalogue: %v", errCorruptEntry, err)
		}
		c.bounded, c.scaled = c.bounded || d.hasBounds(), c.scaled || d.Scale > 0
	}
	if c.Coming != nil {
		if err := c.Coming.Validate(); err != nil {
			return nil, fmt.Errorf("%w: catalogue: %v", errCorruptEntry, err)
		}
	}
	if d := c.byName(DefaultTable); d == nil || d.Prefix != "" {
		return nil, fmt.Errorf("%w: catalogue without table %s", errCorruptEntry, DefaultTable)
	}
	return c, nil
}

// find returns the table of key: the live one with the longest matching
// prefix. Table default matches every key.
func (c *catalog) find(key []byte) *tableDef {
	for _, d := range c.Tables {
		if d.DropUntil == 0 && len(d.Prefix) <= len(key) && string(key[:len(d.Prefix)]) == d.Prefix {
			return d
		}
	}
	panic("store: catalogue without a default table")
}

func (c *catalog) byName(name string) *tableDef {
	for _, d := range c.Tables {
		if d.DropUntil == 0 && d.Name == name {
			return d
		}
	}
	return nil
}

// byPrefix returns the live table with just that prefix; nil if there is none.
func (c *catalog) byPrefix(prefix string) *tableDef {
	if c != nil { // else a replica does not know its tables yet
		for _, d := range c.Tables {
			if d.DropUntil == 0 && d.Prefix == prefix {
				return d
			}
		}
	}
	return nil
}

func (c *catalog) byID(id uint32) *tableDef {
	for _, d := range c.Tables {
		if d.ID == id {
			return d
		}
	}
	return nil
}

// live returns the tables that are not dropped.
func (c *catalog) live() []*tableDef {
	var out []*tableDef
	for _, d := range c.Tables {
		if d.DropUntil == 0 {
			out = append(out, d)
		}
	}
	return out
}

// set returns the live tables.
func (c *catalog) set() TableSet {
	live := c.live()
	set := make(TableSet, len(live))
	for i, d := range live {
		set[i] = d.TableOptions
	}
	return set.sorted()
}

// clone copies the catalogue deeply enough to be changed.
func (c *catalog) clone() *catalog {
	n := &catalog{Next: c.Next, Version: c.Version, Coming: c.Coming}
	for _, d := range c.Tables {
		e := *d
		e.Links = slices.Clone(d.Links)
		n.Tables = append(n.Tables, &e)
	}
	return n
}

func (c *catalog) add(d *tableDef) {
	c.Tables = append(c.Tables, d)
	slices.SortStableFunc(c.Tables, func(a, b *tableDef) int {
		if n := len(b.Prefix) - len(a.Prefix); n != 0 {
			return n
		}
		return strings.Compare(a.Prefix, b.Prefix)
	})
}

// keep is how long the table's ids are remembered, ms of logged time: window
// and skew, or longer while an ALTER's old promise lasts.
func (d *tableDef) keep(logged int64) int64 {
	k := (d.Window + d.Skew).Milliseconds()
	if logged < d.KeepUntil {
		k = max(k, d.KeepWindow)
	}
	return k
}

// follow is match for tables that have a version, and those that are coming; c itself if it has a newer one.
func (c *catalog) follow(want, coming TableSet, version uint64, at moment) (*catalog, error) {
	if c.Version > version {
		return c, nil
	}
	next, err := c.match(want, at)
	if err != nil || next == c && c.Version == version {
		return next, err
	}
	if next == c {
		next = c.clone()
	}
	next.Version, next.Coming = version, coming
	return next, nil
}

// match returns the catalogue that has a valid set's tables as its live ones, from a moment on; c
// itself if it has them already. Nothing that the tables before remember is forgotten.
func (c *catalog) match(want TableSet, at moment) (*catalog, error) {
	n := c
	change := func() {
		if n == c {
			n = c.clone().prune(at.logged)
		}
	}
	for _, d := range c.live() {
		if w := want.find(d.Name); w == nil || w.Prefix != d.Prefix {
			change()
			n.drop(d.Name, at)
		}
	}
	for _, o := range want {
		d := n.byName(o.Name)
		if d != nil && d.TableOptions == o {
			continue
		}
		change()
		switch {
		case d != nil:
			n.byName(o.Name).alter(o, at)
		case len(n.Tables) >= 2*MaxTables:
			return nil, ErrTooManyTables
		default:
			n.create(o, at)
		}
	}
	return n, nil
}

// The three below change the catalogue, which must be a clone, as of a moment.

// create adds a table. Keys that move into it go on being checked against the memory of the
// table they were in, and of those linked from it.
func (c *catalog) create(o TableOptions, at moment) {
	parent := c.find([]byte(o.Prefix))
	d := &tableDef{ID: c.Next, TableOptions: o, ForgottenBefore: parent.ForgottenBefore}
	d.inherit(parent, o.Prefix, at.logged+parent.keep(at.logged), at)
	c.Next++
	c.add(d)
}

// drop removes a table, not the table default: its keys fall to the table with the
// next shorter prefix, which asks the dropped one's memory until that has drained.
func (c *catalog) drop(name string, at moment) {
	d := c.byName(name)
	d.DropUntil = at.logged + d.keep(at.logged)
	heir := c.find([]byte(d.Prefix))
	heir.inherit(d, d.Prefix, d.DropUntil, at)
	// The heir must refuse as stale all that the dropped table refuses.
	heir.ForgottenBefore = max(heir.ForgottenBefore, d.ForgottenBefore)
	d.Links = nil // they are the heir's now
}

// inherit lets the table use another table's memory of the keys with a prefix.
// From now on these keys are its own.
func (d *tableDef) inherit(from *tableDef, prefix string, until int64, at moment) {
	before := at.wall + max(d.Skew, from.Skew).Milliseconds() + 1
	d.link(link{Table: from.ID, Prefix: prefix, Until: until, Before: before})
	d.link(from.Links...)
	d.keepLinks(at.logged)
}

// keepLinks keeps the links for as long as the table's window reaches back
// behind them.
func (d *tableDef) keepLinks(logged int64) {
	for i := range d.Links {
		l := &d.Links[i]
		l.Keep = max(l.Keep, max(l.Until, logged)+d.keep(logged))
	}
}

// link adds links that matter for the table's keys, each table and prefix once.
func (d *tableDef) link(links ...link) {
	for _, l := range links {
		if l.Table == d.ID || !strings.HasPrefix(l.Prefix, d.Prefix) &&
			!strings.HasPrefix(d.Prefix, l.Prefix) {
			continue
		}
		i := slices.IndexFunc(d.Links, func(o link) bool {
			return o.Table == l.Table && o.Prefix == l.Prefix
		})
		if i < 0 {
			d.Links = append(d.Links, l)
			continue
		}
		o := &d.Links[i]
		o.Until, o.Before, o.Keep = max(o.Until, l.Until), max(o.Before, l.Before), max(o.Keep, l.Keep)
	}
}

// alter changes the options of a table of the catalogue.
func (d *tableDef) alter(o TableOptions, at moment) {
	was, old := d.keep(at.logged), d.Window
	d.TableOptions = o
	if now := (o.Window + o.Skew).Milliseconds(); now < was {
		d.KeepUntil, d.KeepWindow = max(d.KeepUntil, at.logged+was), was
	}
	if o.Window > old {
		d.ForgottenBefore = max(d.ForgottenBefore, at.wall-old.Milliseconds())
		d.keepLinks(at.logged)
	}
}

// prune removes links and dropped tables whose memory has drained. It changes
// the receiver, which must be a clone.
func (c *catalog) prune(logged int64) *catalog {
	for _, d := range c.Tables {
		d.Links = slices.DeleteFunc(d.Links, func(l link) bool { return max(l.Until, l.Keep) <= logged })
	}
	c.Tables = slices.DeleteFunc(c.Tables, func(d *tableDef) bool {
		return d.DropUntil != 0 && d.DropUntil <= logged
	})
	return c
}

// drained reports whether prune would remove anything.
func (c *catalog) drained(logged int64) bool {
	for _, d := range c.Tables {
		if d.DropUntil != 0 && d.DropUntil <= logged {
			return true
		}
		for _, l := range d.Links {
			if max(l.Until, l.Keep) <= logged {
				return true
			}
		}
	}
	return false
}

// covers reports whether the link is about key.
func (l link) covers(key []byte) bool {
	return len(l.Prefix) <= len(key) && string(key[:len(l.Prefix)]) == l.Prefix
}
