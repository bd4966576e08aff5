package store

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/fbfkv/fbfkv/store/part"
)

// pages are the pages of a state, and what is in them.
type pages struct {
	raw   [][]byte
	keys  map[string]part.Parts
	ids   map[string]toldID // by key and opid
	taken []RegionTaken     // by the source
	seq   uint64
}

// toldID is what a page tells of an operation.
type toldID struct {
	Delta int64
	Dot   uint64
}

// pagesOf returns the state of the first slot range of one region for another one. between is called
// before each page but the first.
func (w *testRegions) pagesOf(to, from *testRegion, of part.Region, most int, between func()) pages {
	all := pages{keys: make(map[string]part.Parts), ids: make(map[string]toldID)}
	last, _, _ := pullRange(0, from.parts, to.parts, 0)
	q := StateQuery{Pull: Pull{
		By: part.Region(to.n), Group: 77, Incarnation: from.s.Meta().Incarnation, Last: last,
		Most: most,
	}, Of: of}
	for {
		b, err := from.s.State(q)
		must(w.t, err)
		d, err := decodePulled(b, new(pulledMemory))
		must(w.t, err)
		must(w.t, d.each(func(e *pulledEntry) error {
			switch e.kind {
			case entryHeard:
				all.ids[string(e.key)+" "+string(e.id)] = toldID{e.delta, e.r.heard.Dot}
			case entryMerge:
				all.keys[string(e.key)] = e.r.parts
			case entryCursor:
				all.taken = append(all.taken, e.r.cursor.RegionTaken)
			}
			return nil
		}))
		all.raw, all.seq = append(all.raw, b), d.upTo
		if q.Seq, q.At = d.upTo, bytes.Clone(d.page.next); len(q.At) == 0 {
			return all
		}
		if between != nil {
			between()
		}
	}
}

// TestStateHasAll: a state has counters in memory and in rows, changed and not, and keys that ended, but
// nothing that only others have done; of operations those of counters, applied up to its
// sequence by the region that was asked for.
func TestStateHasAll(t *testing.T) {
	w := newTestRegions(t, 1, 1, 1)
	a, b := w.r[0], w.r[1]
	key := func(s string) []byte { return []byte(s) }
	w.drain()
	for i := range 100 { // more than memory keeps
		w.do(a, Op{Kind: CIncrBy, Key: key(fmt.Sprint("row", i)), ID: key("op"), Delta: int64(i)})
	}
	w.do(a, Op{Kind: IncrBy, Key: key("ended"), Delta: 1})
	w.do(a, Op{Kind: IncrBy, Key: key("ended, no row"), Delta: 1})
	w.do(b, Op{Kind: IncrBy, Key: key("aside"), Delta: 4})
	w.do(a, Op{Kind: BFCAdd, Key: key("aside"), ID: key("items"), Keys: [][]byte{key("x")}})
	w.do(a, Op{Kind: BFCAdd, Key: key("object"), ID: key("items"), Keys: [][]byte{key("x")}})
	w.do(b, Op{Kind: CIncrBy, Key: key("others"), ID: key("theirs"), Delta: 2})
	w.drain()
	w.do(a, Op{Kind: Del, Keys: [][]byte{key("ended")}}) // b has not heard, or it might be forgotten
	must(t, a.s.Snapshot())
	w.do(a, Op{Kind: IncrBy, Key: key("row5"), Delta: 1000})
	w.do(a, Op{Kind: Set, Key: key("row6"), Delta: 1000})
	w.do(a, Op{Kind: CIncrBy, Key: key("new"), ID: key("op"), Delta: 7})
	w.do(a, Op{Kind: Del, Keys: [][]byte{key("ended, no row")}})
	for i := range 90 { // evicts others
		get(a.s, fmt.Sprint("row", i))
	}
	n, evicted := 0, 0
	p := a.s.partitions[0]
	all := w.pagesOf(b, a, 0, 1, func() {
		if n++; n == 50 {
			w.do(a, Op{Kind: CIncrBy, Key: key("row99"), ID: key("late"), Delta: 1})
			w.do(a, Op{Kind: CIncrBy, Key: key("row98"), ID: key("late"), Delta: 1})
			must(t, a.s.Snapshot())
		}
		p.lock()
		evicted = p.hot.len()
		p.mu.Unlock()
	})
	if evicted > 90 || len(all.raw) < 200 {
		t.Errorf("%d keys in memory, %d pages", evicted, len(all.raw))
	}
	values := make(map[string]int64)
	for k, parts := range all.keys {
		values[k], _ = parts.Value()
	}
	want := map[string]int64{"ended": 0, "ended, no row": 0, "new": 7}
	for i := range 100 {
		want[fmt.Sprint("row", i)] = int64(i)
	}
	want["row5"], want["row6"] = 1005, 1000
	for _, k := range []string{"row98", "row99"} { // they may have changed before their page came, or after
		if values[k] == want[k]+1 {
			values[k]--
		}
	}
	if !reflect.DeepEqual(values, want) {
		t.Errorf("the state has %v\nand should have %v", values, want)
	}
	for i := range 100 {
		if o, ok := all.ids[fmt.Sprint("row", i, " op")]; !ok || o.Delta != int64(i) || o.Dot == 0 {
			t.Errorf("row%d: %+v, %v", i, o, ok)
		}
	}
	if o := all.ids["new op"]; len(all.ids) != 101 || o.Delta != 7 || o.Dot > all.seq {
		t.Errorf("%d ids; %+v; %v", len(all.ids), o, all.ids)
	}
}

// TestStateOfAnother: what a region knows of a third one that is lost, and of no other; but for
// what it does as an heir. It is taken only if the source knows of the newest removal.
func TestStateOfAnother(t *testing.T) {
	w := newTestRegions(t, 1, 1, 1, 1)
	a, b, c := w.r[0], w.r[1], w.r[2]
	cincr(c.s, "k", "lost", 3)
	cincr(a.s, "k", "own", 4)
	cincr(a.s, "other", "own", 4)
	w.drain()
	set, _ := a.s.Regions()
	set, err := set.Remove(0, 2)
	must(t, err)
	must(t, a.s.SetRegions(set))
	all := w.pagesOf(b, a, 2, 1<<20, nil)
	if len(all.keys) != 1 || len(all.keys["k"]) != 1 || all.keys["k"][0].Region != 2 || len(all.ids) != 1 ||
		all.ids["k lost"].Delta != 3 {
		t.Errorf("the state of the third region: %v, %v", all.keys, all.ids)
	}
	before, _, err := b.s.TakenOf(0, RegionSource{0, 0})
	must(t, err)
	for _, page := range all.raw {
		_, err = b.s.Take(page)
		must(t, err)
	}
	if own := w.pagesOf(b, a, 0, 1<<20, nil).keys; len(own["k"]) != 2 || len(own["other"]) != 1 {
		t.Errorf("the heir's state: %v", own)
	}
	after, _, _ := b.s.TakenOf(0, RegionSource{0, 0})
	taken, _, _ := a.s.TakenOf(0, RegionSource{2, 0})
	if after != before || !slices.ContainsFunc(all.taken,
		func(v RegionTaken) bool { return v.Region == 2 && v.Seq <= taken }) {
		t.Errorf("the log of the source counts as taken from %d up to %d; %+v", before, after, all.taken)
	}
	set.Self, set.Version, set.Members = 1, 7, slices.Clone(set.Members)
	set.Members[2].Since = 7
	must(t, b.s.SetRegions(set))
	if _, err = b.s.Take(all.raw[0]); !errors.Is(err, ErrStream) {
		t.Errorf("of a source that does not know what was removed: %v", err)
	}
}

// TestStateRefused: who may not ask, what does not follow, and what contradicts what is known here.
func TestStateRefused(t *testing.T) {
	w := newTestRegions(t, 1, 1, 1, 2)
	a, b := w.r[0], w.r[1]
	for i := range 10 {
		cincr(a.s, fmt.Sprint("k", i), "op", 1)
	}
	good := StateQuery{Pull: Pull{
		By: 1, Group: 77, Incarnation: a.s.Meta().Incarnation, Last: slots - 1, Most: 1,
	}, Of: 0}
	for name, change := range map[string]func(q *StateQuery){
		"group":       func(q *StateQuery) { q.Group++ },
		"stranger":    func(q *StateQuery) { q.By = 7 },
		"self":        func(q *StateQuery) { q.By = 0 },
		"incarnation": func(q *StateQuery) { q.Incarnation++ },
		"partition":   func(q *StateQuery) { q.Partition = 1 },
		"range":       func(q *StateQuery) { q.Last-- },
		"own ids":     func(q *StateQuery) { q.Of = 1 },
		"no region":   func(q *StateQuery) { q.Of = 9 },
		"place":       func(q *StateQuery) { q.Seq, q.At = 1, []byte{3} },
		"no sequence": func(q *StateQuery) { q.At = []byte("\x01k") },
		"the future":  func(q *StateQuery) { q.Seq, q.At = 1<<40, []byte("\x01k") },
	} {
		q := good
		change(&q)
		if _, err := a.s.State(q); !errors.Is(err, ErrStream) {
			t.Errorf("%s: %v", name, err)
		}
	}
	all := w.pagesOf(b, a, 0, 1, nil)
	if _, err := b.s.Take(all.raw[1]); !errors.Is(err, ErrStream) {
		t.Errorf("the second page first: %v", err)
	}
	take := func(i int) error { _, err := b.s.Take(all.raw[i]); return err }
	must(t, take(0))
	if err := take(2); !errors.Is(err, ErrStream) {
		t.Errorf("the third page behind the first: %v", err)
	}
	if _, ok := get(b.s, "k1"); ok {
		t.Error("a page that was refused has come")
	}
	more := changed(t, all.raw[0], says(RegionSource{1, 0}, func() uint64 { return 1 << 40 }))
	if _, err := b.s.Take(more); !errors.Is(err, ErrStream) {
		t.Errorf("more of this region than it has done: %v", err)
	}
	for i := range all.raw {
		must(t, take(i))
	}
	if v, _ := get(b.s, "k1"); v != 1 {
		t.Errorf("k1 is %d", v)
	}
}

// TestStateKeepsLog: once a state has begun, the log is there from its sequence on, also for a region for
// which nothing was kept any more.
func TestStateKeepsLog(t *testing.T) {
	w := newTestRegionsWith(t, 1, false, 1, 1)
	for i, r := range w.r {
		must(t, r.s.SetRegions(w.set(i)))
	}
	a, b := w.r[0], w.r[1]
	a.s.peers.of[1].hold.Release()
	last, _, _ := pullRange(0, 1, 1, 0)
	q := StateQuery{Pull: Pull{
		By: 1, Group: 77, Incarnation: a.s.Meta().Incarnation, Last: last, Most: 1 << 20,
	}, Of: 0}
	first, err := a.s.State(q)
	must(t, err)
	taken, err := b.s.Take(first)
	must(t, err)
	for range 4 {
		for i := range 300 {
			cincr(a.s, fmt.Sprint("k", i%7), fmt.Sprint(a.seq(0)), 1)
		}
		must(t, a.s.Snapshot())
	}
	q.Seq, q.At = taken.State.Seq, taken.State.Next
	second, err := a.s.State(q)
	must(t, err)
	_, err = b.s.Take(second)
	must(t, err)
	answer, err := w.pull(b, a, 0, 0, 1<<20)
	must(t, err)
	_, err = b.s.Take(answer)
	must(t, err)
	for i := range 7 {
		va, _ := get(a.s, fmt.Sprint("k", i))
		if vb, _ := get(b.s, fmt.Sprint("k", i)); va != vb || va < 100 {
			t.Errorf("k%d is %d and %d", i, va, vb)
		}
	}
}

// TestLostHoldOfIdleReader: a region that had taken all when what is kept for it was lost, has all kept for
// it again once it asks, although it acknowledges nothing new; and what it had taken is not kept.
func TestLostHoldOfIdleReader(t *testing.T) {
	w := newTestRegionsWith(t, 1, false, 1, 1)
	for i, r := range w.r {
		must(t, r.s.SetRegions(w.set(i)))
	}
	a, b := w.r[0], w.r[1]
	count := func() {
		for range 4 {
			for i := range 300 {
				cincr(a.s, fmt.Sprint("k", i%7), fmt.Sprint(a.seq(0)), 1)
			}
			must(t, a.s.Snapshot())
		}
	}
	take := func() {
		answer, err := w.pull(b, a, 0, 0, 1<<20)
		must(t, err)
		_, err = b.s.Take(answer)
		must(t, err)
	}
	count()
	take()
	take() // which acknowledges that
	a.s.peers.of[1].hold.Release()
	take()
	must(t, a.s.Snapshot())
	if kept := a.s.peers.of[1].hold.Kept(); kept > 0 || a.s.peers.of[1].hold.Lost() {
		t.Errorf("%d bytes are kept for a region that has all", kept)
	}
	count()
	take()
	for i := range 7 {
		va, _ := get(a.s, fmt.Sprint("k", i))
		if vb, _ := get(b.s, fmt.Sprint("k", i)); va != vb || va < 200 {
			t.Errorf("k%d is %d and %d", i, va, vb)
		}
	}
}

// TestStateOfForgottenTwin: a state has the id of an operation whose counter was deleted and forgotten
// before anyone else knew of it. A region that has also applied it takes it back all the same.
func TestStateOfForgottenTwin(t *testing.T) {
	w := newTestRegionsWith(t, 1, false, 1, 1)
	a, b := w.r[0], w.r[1]
	cincr(a.s, "k", "op", 3)
	w.do(a, Op{Kind: Del, Keys: [][]byte{[]byte("k")}})
	for i, r := range w.r {
		must(t, r.s.SetRegions(w.set(i)))
	}
	b.clock.advance(1e12) // its application is the later one
	cincr(b.s, "k", "op", 3)
	w.drain()
	for _, r := range w.r {
		if v, _ := get(r.s, "k"); v != 0 {
			t.Errorf("region %d: k is %d", r.n, v)
		}
	}
}

// TestStateLeavesPlain: a counter that only this region changes has no parts, although others tell of it.
func TestStateLeavesPlain(t *testing.T) {
	w := newTestRegions(t, 1, 1, 1)
	a, b := w.r[0], w.r[1]
	cincr(a.s, "k", "op", 3)
	w.drain()
	before := a.seq(0)
	p := a.s.partitions[0]
	p.lock()
	delete(p.regions.heard, RegionSource{1, 0})
	p.taking.heard = nil
	parts := p.hot.peek("k").asParts(0)
	p.mu.Unlock()
	pages := w.pagesOf(a, b, 1, 1<<20, nil).raw
	pages[0] = pageWith(t, pages[0], entry{kind: entryMerge, key: []byte("k"), r: &regional{parts: parts}})
	for _, page := range pages {
		_, err := a.s.Take(page)
		must(t, err)
	}
	if parts := p.hot.peek("k").parts(); parts != nil || a.seq(0) > before+1 {
		t.Errorf("it has %v; %d entries", parts, a.seq(0)-before)
	}
	if taken, _, _ := b.s.TakenOf(0, RegionSource{0, 0}); p.regions.heard[RegionSource{1, 0}][RegionSource{0,
		0}] == 0 || taken == 0 {
		t.Error("what the other one had taken was not heard")
	}
}

// TestStateReadsAgain: a key that is changed, written back and evicted while its row is being read is told
// as it is now.
func TestStateReadsAgain(t *testing.T) {
	w := newTestRegions(t, 1, 1, 1)
	a := w.r[0]
	key := []byte("k")
	w.do(a, Op{Kind: IncrBy, Key: key, Delta: 1})
	must(t, a.s.Snapshot())
	p := a.s.partitions[0]
	evict := func() {
		for i := 0; ; i++ {
			get(a.s, fmt.Sprint("other", i))
			p.lock()
			there := p.hot.peek("k") != nil
			p.mu.Unlock()
			if !there {
				return
			}
		}
	}
	evict()
	way := walk{p: p, lock: p.lock, to: position(slots, 0),
		more: func(int, uint64, uint64) bool { return true }}
	found, at, err := way.keys()
	must(t, err)
	var keys []foundKey
	for _, f := range found {
		keys = append(keys, foundKey{key: []byte(f.key), pos: f.pos, row: f.row})
	}
	w.do(a, Op{Kind: IncrBy, Key: key, Delta: 2})
	must(t, a.s.Snapshot())
	evict()
	_, err = a.s.showKeys(p, keys, &at.evicted)
	must(t, err)
	if v, _ := keys[0].parts.Value(); len(keys) != 1 || v != 3 {
		t.Errorf("%d keys, and the value is %d", len(keys), v)
	}
}

// TestLogFromBeforeRegions: what a store did before there were other regions is told as a state,
// also after it was opened again.
func TestLogFromBeforeRegions(t *testing.T) {
	w := newTestRegionsWith(t, 1, true, 1, 1)
	a, b := w.r[0], w.r[1]
	w.do(a, Op{Kind: Set, Key: []byte("k"), Delta: 5})
	for i, r := range w.r {
		must(t, r.s.SetRegions(w.set(i)))
	}
	for range 2 {
		if _, err := w.pull(b, a, 0, 0, 1<<20); !errors.Is(err, ErrGap) {
			t.Errorf("the log of a SET from before: %v", err)
		}
		must(t, a.s.Snapshot())
		must(t, a.s.CloseNow())
		w.open(a)
	}
	w.drain()
	w.do(a, Op{Kind: IncrBy, Key: []byte("k"), Delta: 1})
	w.do(b, Op{Kind: Del, Keys: [][]byte{[]byte("k")}})
	w.drain()
	w.do(a, Op{Kind: IncrBy, Key: []byte("k"), Delta: 2})
	w.agree()
	for _, r := range w.r {
		if v, _ := get(r.s, "k"); v != 3 { // the first increment was not seen by the deletion
			t.Errorf("region %d: k is %d", r.n, v)
		}
	}
}

// pageWith returns a page with one entry more.
func pageWith(t *testing.T, page []byte, e entry) []byte {
	return changed(t, page, func(p *pulled, w *sectionWriter) {
		w.nextEnd++
		w.add(nil, &pulledEntry{entry: e, seq: w.last + 1})
	})
}

// TestPageRefused: a page has no entries that only a log has, and none that only another page may have.
func TestPageRefused(t *testing.T) {
	pages := takePages(t)
	parts := part.Parts{{Region: 0, Clock: 9, Live: 9, Cum: 3,
		Undo: []part.Undo{{Clock: 5, Dot: 4, Delta: 1}}}}
	kept, err := part.DecodeDelta(part.AppendDelta(nil, parts, parts))
	must(t, err)
	heard := func(of part.Region) entry {
		return entry{kind: entryHeard, table: 1, key: []byte("k0"), id: []byte("x"), delta: 1, value: 1,
			r: &regional{heard: Heard{Origin: of, Dot: 2, Wall: 1e12}}}
	}
	for _, c := range []struct {
		name string
		page int
		e    entry
		good bool
	}{
		{"a key", 0, entry{kind: entryMerge, key: []byte("k0"), r: &regional{parts: parts}}, true},
		{"a key that keeps take-backs", 0, entry{kind: entryMerge, key: []byte("k0"),
			r: &regional{parts: parts, delta: kept}}, false},
		{"an id", 1, heard(0), true},
		{"an id ahead of keys", 0, heard(0), false},
		{"another region's id", 1, heard(2), false},
		{"an operation", 1, entry{kind: entryApply, table: 1, key: []byte("k0"), id: []byte("x"), delta: 1}, false},
		{"a deletion", 0, entry{kind: entryDelete, key: []byte("k0")}, false},
		{"what is owed no longer", 0, entry{kind: entryOwed, key: []byte("k0"),
			r: &regional{owed: []part.Owed{owedOp(0, 2, 3)}, what: owedSettled}}, false},
		{"levelled at no sequence", 0, entry{kind: entryLevelled,
			r: &regional{levelled: levelled{Gone: 2, Since: 1}}}, false},
	} {
		d, err := decodePulled(pages[c.page], new(pulledMemory))
		must(t, err)
		d.tables = []pulledTable{{1, []byte(DefaultTable)}}
		_, err = decodePulled(pageWith(t, d.appendTo(nil), c.e), new(pulledMemory))
		if c.good != (err == nil) || !c.good && !errors.Is(err, ErrPulled) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestPageHasNoPosition: what is taken of a state before its end moves no position, whatever its sections.
func TestPageHasNoPosition(t *testing.T) {
	w := newTestRegionsWith(t, 1, false, 1, 1)
	for i, r := range w.r {
		must(t, r.s.SetRegions(w.set(i)))
	}
	a, b := w.r[0], w.r[1]
	p, err := decodePulled(w.pagesOf(b, a, 0, 1<<20, nil).raw[0], new(pulledMemory))
	must(t, err)
	var sections sectionWriter
	p.sections = nil
	for i := range takeOps + 2 {
		e := pulledEntry{entry: entry{kind: entryMerge, key: fmt.Append(nil, "k", i),
			r: &regional{parts: part.Parts{part.FromCounter(0, 1, 1)}}}, seq: uint64(i) + 1}
		e.first = i == 0 || i == takeOps
		p.sections = sections.add(p.sections, &e)
		sections.nextEnd = e.seq
	}
	p.sections = sections.finish(p.sections)
	_, err = b.s.Take(p.appendTo(nil))
	must(t, err)
	if after, acked, _ := b.s.TakenOf(0, RegionSource{0, 0}); after != 0 || acked != 0 {
		t.Errorf("the log counts as taken up to %d, and %d", after, acked)
	}
	if v, _ := get(b.s, "k1"); v != 1 {
		t.Errorf("k1 is %d", v)
	}
}
