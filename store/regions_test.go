package store

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/internal/raced"
	"github.com/fbfkv/fbfkv/store/part"
)

var regionRuns = flag.Int("regions.runs", max(1, 12/raced.Slowdown), "how many runs TestRegions makes, "+
	"each with another seed")
var regionSeed = flag.Uint64("regions.seed", 1, "the first seed")

// testRegions are regions, each a real store, whose links can be cut, and a model of them that knows
// nothing of parts: a list of operations, and for each deletion the operations that it had seen.
type testRegions struct {
	t   *testing.T
	rnd *rand.Rand
	r   []*testRegion
	cut map[[2]int]bool // no pull of the first one from the second arrives

	keys int // how many there are
	// unsure are keys of which some deletion is lost, perhaps not all of it: all that is known is that
	// regions agree.
	unsure map[string]bool
	stated bool // a state was told
	gaps   bool // logs are trimmed although somebody has not taken them
	room   int  // for take-backs; 0: as many as ever

	history []done
	opids   int
	flushes int            // how many of a thousand steps begin a new era
	version uint64         // of the regions
	steps   map[string]int // how often each kind of step was made

	// onDelete is told of a deletion when it was made, and what of history it had seen; onReopen of a
	// region that was opened again. Nil: nobody is.
	onDelete func(r *testRegion, key string, of []int)
	onReopen func(r *testRegion)
	// reaches reports whether a region can read another one; nil: it can, but for cut links.
	reaches func(r, from *testRegion) bool
}

// testRegion is one of them.
type testRegion struct {
	n        int
	s        *Store
	fs       vfs.FS
	clock    *fakeClock
	parts    int
	underway [][]byte // answers to its pulls
	states   []*stateRead
	joins    bool // the others counted before it was one
	ask      time.Duration
}

// done is something that a region did to a key.
type done struct {
	key    string
	era    uint64
	region int
	from   RegionSource
	seq    uint64 // of the last entry
	opid   string
	delta  int64
	result int64
	wall   int64
	set    bool
	hlc    uint64
	gone   bool // a deletion, or a SET, has seen it
	// lost: its region is lost, and nobody else knows of it; known: somebody did when it was lost.
	lost, known bool
}

func newTestRegions(t *testing.T, seed uint64, partitions ...int) *testRegions {
	w := newTestRegionsWith(t, seed, false, partitions...)
	for i, r := range w.r {
		must(t, r.s.SetRegions(w.set(i)))
	}
	return w
}

// newTestRegionsWith returns stores that are no members yet.
func newTestRegionsWith(t *testing.T, seed uint64, gaps bool, partitions ...int) *testRegions {
	w := &testRegions{
		t: t, rnd: rand.New(rand.NewPCG(seed, 1)), cut: make(map[[2]int]bool), steps: make(map[string]int),
		keys: 12, gaps: gaps,
		room:   int(seed % 2), // every other time for one
		unsure: make(map[string]bool),
	}
	for i, n := range partitions {
		r := &testRegion{n: i, fs: vfs.NewMem(), clock: newFakeClock(), parts: n}
		r.clock.step(time.Duration(w.rnd.Int64N(int64(10*time.Minute))) - 5*time.Minute)
		w.r = append(w.r, r)
		w.open(r)
	}
	mode, window := Exact, time.Hour // clocks are off by less
	for _, r := range w.r {
		must(t, r.s.AlterTable(DefaultTable, TableChange{Mode: &mode, Window: &window}))
	}
	return w
}

// set is which regions there are, as one of them knows it.
func (w *testRegions) set(self int) RegionSet {
	set := RegionSet{Group: 77, Self: part.Region(self)}
	for i, r := range w.r {
		set.Members = append(set.Members, RegionMember{Region: part.Region(i), Name: fmt.Sprint("region", i),
			Partitions: r.parts, Incarnation: r.s.Meta().Incarnation})
	}
	return set
}

func (w *testRegions) open(r *testRegion) {
	r.s = testStore(w.t, func(o *Options) {
		o.FS, o.Clock, o.Partitions = r.fs, r.clock.now, r.parts
		o.HotCounters, o.Seed = 16, [16]byte{byte(r.n + 1)}
		o.RegionUndo, o.RegionAsk = w.room, r.ask
		if w.gaps {
			o.RegionBacklog, o.LogFileSize = 1, 512
		}
	})
}

// seq is the sequence of the last entry of the partition that holds a slot.
func (r *testRegion) seq(slot uint16) uint64 {
	return r.s.partitions[slot>>r.s.shift].last()
}

// pull lets a region ask another one for all that it has not taken, most bytes at a time, and
// returns what was answered. A link that is cut in one direction carries pulls of one side only.
func (w *testRegions) pull(to, from *testRegion, n uint16, first uint16, most int) ([]byte, error) {
	last, _, ok := pullRange(int(n), from.parts, to.parts, first)
	if !ok {
		w.t.Fatalf("no range of partition %d of %d begins at slot %d for one of %d", n, from.parts, first,
			to.parts)
	}
	after, acked, err := to.s.TakenOf(first>>to.s.shift, RegionSource{part.Region(from.n), n})
	must(w.t, err)
	b, err := from.s.Pull(Pull{
		By: part.Region(to.n), Group: 77, Incarnation: from.s.Meta().Incarnation, Partition: n,
		First: first, Last: last, After: after, Acked: acked, Most: most,
	})
	if errors.Is(err, ErrGap) && after == 0 && !w.gaps { // of operations older than the regions
		there, _ := from.s.Regions()
		here, _ := to.s.Regions()
		for _, r := range []*testRegion{from, to} { // all have been flushed since
			if set, _ := r.s.Regions(); set.Era < max(here.Era, there.Era) {
				w.adopt(r, max(here.Era, there.Era))
			}
		}
		w.exchange(to, &stateRead{from: from, n: n, first: first})
		return w.pull(to, from, n, first, most)
	}
	return b, err
}

// ranges calls fn for each log that one region reads of another.
func (w *testRegions) ranges(to, from *testRegion, fn func(n, first uint16)) {
	for i := range max(to.parts, from.parts) {
		first, _ := slotRange(i, max(to.parts, from.parts))
		fn(first>>from.s.shift, first)
	}
}

// do executes an operation in a region.
func (w *testRegions) do(r *testRegion, op Op) Op {
	op = do(r.s, op)
	if op.Err != nil && !(r.joins && errors.Is(op.Err, ErrNotCaughtUp)) {
		w.t.Fatalf("region %d: %v", r.n, op.Err)
	}
	return op
}

// note adds to history what a region has just done to a key.
func (w *testRegions) note(r *testRegion, d done) {
	p := r.s.partitions[Slot([]byte(d.key))>>r.s.shift]
	p.lock()
	defer p.mu.Unlock()
	d.region, d.from, d.seq, d.wall = r.n, RegionSource{part.Region(r.n), p.id}, p.seq, p.at.wall
	if p.regions != nil {
		d.era = p.regions.Era
	}
	w.history = append(w.history, d)
}

// sees makes gone what a region knows of a key: what it has taken, and what came with another
// region's take-back, which brings the part that won before the log has it.
func (w *testRegions) sees(r *testRegion, key string) (of []int) {
	get(r.s, key) // into memory
	p := r.s.partitions[Slot([]byte(key))>>r.s.shift]
	clocks := make(map[int]uint64)
	for _, q := range p.partsOf(key) {
		clocks[int(q.Region)] = q.Clock
	}
	for i := range w.history {
		d := &w.history[i]
		if d.key != key || d.era != p.regions.Era {
			continue
		}
		taken, _, err := r.s.TakenOf(p.id, d.from)
		must(w.t, err)
		if d.region == r.n || max(taken, clocks[d.region]) >= d.seq {
			d.gone = true
			of = append(of, i)
		}
	}
	return of
}

// deleted tells of a deletion that had seen some of history.
func (w *testRegions) deleted(r *testRegion, key string, of []int) {
	if w.onDelete != nil {
		w.onDelete(r, key, of)
	}
}

// step does something by chance.
func (w *testRegions) step() {
	r := w.r[w.rnd.IntN(len(w.r))]
	key := fmt.Sprint("k", w.rnd.IntN(w.keys))
	kind := ""
	if w.rnd.IntN(1000) < w.flushes {
		w.version++
		w.adopt(w.r[0], w.version)
		w.steps["flush"]++
		return
	}
	if w.rnd.IntN(4) == 0 {
		w.passing(r)
		return
	}
	switch n := w.rnd.IntN(100); {
	case n < 20:
		kind = "incr"
		delta := w.rnd.Int64N(9) - 2
		op := w.do(r, Op{Kind: IncrBy, Key: []byte(key), Delta: delta})
		w.note(r, done{key: key, delta: delta, result: op.Value})
	case n < 45:
		kind = w.once(r)
	case n < 50:
		kind = "del"
		of := w.sees(r, key)
		w.do(r, Op{Kind: Del, Keys: [][]byte{[]byte(key)}})
		w.deleted(r, key, of)
	case n < 54:
		kind = "set"
		v := w.rnd.Int64N(100)
		of := w.sees(r, key)
		w.do(r, Op{Kind: Set, Key: []byte(key), Delta: v})
		w.deleted(r, key, of)
		hlc := uint64(0)
		for _, q := range r.s.partitions[Slot([]byte(key))>>r.s.shift].partsOf(key) {
			if int(q.Region) == r.n {
				hlc = q.Set.HLC
			}
		}
		w.note(r, done{key: key, set: true, delta: v, hlc: hlc})
	case n < 55:
		if kind = "too early to drain"; w.acquainted() {
			kind = "drain"
			w.drain()
		}
	case n < 58:
		kind = "clock"
		r.clock.advance(time.Duration(w.rnd.IntN(3000)) * time.Millisecond)
		if w.gaps {
			must(w.t, r.s.Snapshot())
		}
	case n < 61:
		kind = "cut"
		link := [2]int{w.r[w.rnd.IntN(len(w.r))].n, w.r[w.rnd.IntN(len(w.r))].n}
		w.cut[link] = !w.cut[link]
	case n < 62:
		kind = w.reopen(r)
	case n < 65:
		kind = "drop"
		for _, p := range r.s.partitions {
			r.s.dropEnded(p, new(Batch))
		}
	case n < 82:
		kind = w.ask(r)
	default:
		kind = w.take(r)
	}
	w.steps[kind]++
}

// once applies an operation with an opid: a new one, or a retry of another region's operation, of
// which this region may have been told.
func (w *testRegions) once(r *testRegion) string {
	if w.opids == 0 || w.rnd.IntN(2) == 0 {
		w.opids++
	}
	n := w.opids - w.rnd.IntN(min(w.opids, 10))
	key, id, delta := fmt.Sprint("k", n%12), fmt.Sprint("op", n), int64(n%5+1)
	early := w.early(r, Slot([]byte(key)))
	op := w.do(r, Op{Kind: CIncrBy, Key: []byte(key), ID: []byte(id), Delta: delta})
	switch {
	case op.Err != nil:
		return "too early to retry"
	case op.Applied && early:
		w.t.Fatalf("region %d has applied what others may know", r.n)
	case !op.Applied:
		return "retry"
	}
	w.note(r, done{key: key, opid: id, delta: delta, result: op.Value})
	return "once"
}

// early reports whether a region has joined the others and not caught up, in a slot, with those
// before it. They may know an operation that it applies now, and have forgotten it with its key.
func (w *testRegions) early(r *testRegion, slot uint16) (early bool) {
	for _, from := range w.r {
		if r.joins && from.n < r.n {
			n := uint16(int(slot) * from.parts / slots)
			taken, _, err := r.s.TakenOf(slot>>r.s.shift, RegionSource{part.Region(from.n), n})
			must(w.t, err)
			early = early || taken == 0
		}
	}
	return early
}

// reopen ends a region's process, with a checkpoint or without, and starts it again.
func (w *testRegions) reopen(r *testRegion) string {
	if w.rnd.IntN(2) == 0 {
		must(w.t, r.s.Snapshot())
	}
	must(w.t, r.s.CloseNow())
	if w.open(r); w.onReopen != nil {
		w.onReopen(r)
	}
	return "reopen"
}

// ask pulls something; the answer is under way.
func (w *testRegions) ask(r *testRegion) string {
	from := w.r[w.rnd.IntN(len(w.r))]
	if from == r || w.cut[[2]int{r.n, from.n}] || w.reaches != nil && !w.reaches(r, from) {
		return "unreachable"
	}
	one := w.rnd.IntN(max(r.parts, from.parts))
	w.ranges(r, from, func(n, first uint16) {
		if i := int(first) / (slots / max(r.parts, from.parts)); i != one && w.rnd.IntN(4) > 0 {
			return
		}
		b, err := w.pull(r, from, n, first, 1+w.rnd.IntN(500))
		if w.gaps && errors.Is(err, ErrGap) {
			w.gap(r, from, n, first)
			return
		}
		must(w.t, err)
		r.underway = append(r.underway, b)
	})
	return "ask"
}

// takeFrom lets a region of one partition take what another one has done.
func (w *testRegions) takeFrom(to, from *testRegion) {
	w.t.Helper()
	b, err := w.pull(to, from, 0, 0, 0)
	must(w.t, err)
	_, err = to.s.Take(b)
	must(w.t, err)
}

// take lets one of the answers arrive, in any order, and perhaps once more later.
func (w *testRegions) take(r *testRegion) string {
	if len(r.states) > 0 && w.rnd.IntN(2) == 0 {
		return w.page(r, r.states[w.rnd.IntN(len(r.states))], 1+w.rnd.IntN(200))
	}
	if len(r.underway) == 0 {
		return "nothing under way"
	}
	i := w.rnd.IntN(len(r.underway))
	b := r.underway[i]
	if w.rnd.IntN(4) > 0 {
		r.underway = append(r.underway[:i], r.underway[i+1:]...)
	}
	switch _, err := r.s.Take(b); {
	case errors.Is(err, ErrEra):
		if w.rnd.IntN(4) == 0 {
			w.follow(r, b)
			return "follow"
		}
		return "another era"
	case errors.Is(err, ErrStream):
		return "too early"
	case err != nil:
		w.t.Fatalf("region %d: %v", r.n, err)
	}
	return "take"
}

// adopt makes a region follow a flush.
func (w *testRegions) adopt(r *testRegion, era uint64) {
	set := w.set(r.n)
	set.Version, set.Era = era, era
	must(w.t, r.s.SetRegions(set))
}

// follow makes a region follow the one whose answer it could not take.
func (w *testRegions) follow(r *testRegion, answer []byte) {
	d, err := decodePulled(answer, new(pulledMemory))
	must(w.t, err)
	set, _ := w.r[d.Region].s.Regions()
	if own, _ := r.s.Regions(); set.Era > own.Era {
		w.adopt(r, set.Era)
	}
}

// acquainted reports whether all regions know the same members, none of which is lost, and no heir waits.
// Else nobody may acknowledge a take-back, and an owed one has no room.
func (w *testRegions) acquainted() bool {
	first, _ := w.r[0].s.Regions()
	return !slices.ContainsFunc(w.r, func(r *testRegion) bool {
		set, _ := r.s.Regions()
		return set.Version != first.Version ||
			slices.ContainsFunc(r.s.Removals(), func(m Removal) bool { return !m.Done })
	}) && !slices.ContainsFunc(first.Members, func(m RegionMember) bool {
		return !m.Gone && !slices.ContainsFunc(w.r, func(r *testRegion) bool { return r.n == int(m.Region) })
	})
}

// committed returns when all that a region has applied so far is committed.
func (w *testRegions) committed(r *testRegion) {
	for _, p := range r.s.partitions {
		p.lock()
		seq := p.seq
		p.mu.Unlock()
		must(w.t, p.committed.wait(p.committed.life.Load(), seq))
	}
}

// drainLogs heals all links until everybody has taken everything.
func (w *testRegions) drainLogs() {
	for busy, rounds := true, 0; busy; rounds++ {
		if busy = false; rounds > 20 {
			w.t.Fatal("regions tell each other something for ever")
		}
		for _, from := range w.r {
			w.committed(from) // a cycle may have applied what nobody can pull yet
		}
		for _, to := range w.r {
			for _, from := range w.r {
				if from == to {
					continue
				}
				w.ranges(to, from, func(n, first uint16) {
					before := to.seq(first)
					b, err := w.pull(to, from, n, first, 0)
					for w.gaps && errors.Is(err, ErrGap) { // also that of a state that began long ago
						for w.gap(to, from, n, first); len(to.states) > 0; {
							w.page(to, to.states[0], 1+w.rnd.IntN(1000))
						}
						b, err = w.pull(to, from, n, first, 0)
					}
					must(w.t, err)
					if _, err = to.s.Take(b); errors.Is(err, ErrEra) {
						w.follow(to, b)
						err = nil
					}
					must(w.t, err)
					busy = busy || to.seq(first) != before
				})
			}
		}
	}
}

// want is what a key must be worth, by region: each opid counts once, as the application that was first,
// unless one of its applications is gone.
func (w *testRegions) want(key string) (by [part.MaxRegions]int64, exists bool) {
	first := make(map[string]*done)
	gone := make(map[string]bool)
	var last *done
	for i := range w.history {
		d := &w.history[i]
		if d.key != key || d.era != w.version || d.lost {
			continue
		}
		exists = exists || !d.gone
		gone[d.opid] = gone[d.opid] || d.gone
		switch f := first[d.opid]; {
		case d.set:
			if !d.gone && (last == nil || d.hlc > last.hlc || d.hlc == last.hlc && d.region > last.region) {
				last = d
			}
		case d.opid == "":
			if !d.gone {
				by[d.region] += d.delta
			}
		case f == nil || d.before(f):
			first[d.opid] = d
		}
	}
	for _, d := range first {
		if gone[d.opid] && !d.gone && w.stated { // "Drained twins" of docs/design/regions.md
			w.unsure[key] = true
		}
		if !gone[d.opid] {
			by[d.region] += d.delta
		}
	}
	if last != nil {
		by[last.region] += last.delta
	}
	return by, exists
}

// lostTwin reports whether a key may exist with a sum of 0, because of an operation of a lost region: that
// its heir took it back does not end the key.
func (w *testRegions) lostTwin(key string) bool {
	return slices.ContainsFunc(w.history, func(d done) bool {
		return d.key == key && d.era == w.version && d.opid != "" && d.lost && !d.gone
	})
}

// of returns the history of a key.
func (w *testRegions) of(key string) (all []done) {
	for _, d := range w.history {
		if d.key == key {
			all = append(all, d)
		}
	}
	return all
}

// before orders applications of one opid.
func (d *done) before(o *done) bool {
	if d.wall != o.wall {
		return d.wall < o.wall
	}
	if d.region != o.region {
		return d.region < o.region
	}
	return d.seq < o.seq
}

// check compares all regions with the model.
func (w *testRegions) check() {
	for n := range w.keys {
		key := fmt.Sprint("k", n)
		by, exists := w.want(key)
		want := int64(0)
		for _, v := range by {
			want += v
		}
		if w.unsure[key] {
			want, exists = get(w.r[0].s, key)
		} else if !exists && w.lostTwin(key) {
			_, exists = get(w.r[0].s, key)
		}
		for _, r := range w.r {
			op := do(r.s, Op{Kind: ByRegion, Key: []byte(key)})
			shares, _ := op.Object.([]RegionShare)
			shown := by
			for _, s := range shares {
				var n int
				if _, err := fmt.Sscanf(s.Region, "region%d", &n); err != nil {
					w.t.Fatal(s.Region)
				}
				shown[n] -= s.Value
			}
			if op.Err != nil || op.Found != exists || exists && !w.unsure[key] &&
				shown != [part.MaxRegions]int64{} {
				w.t.Errorf("region %d: %s by region: %v, %v; want %v; %+v", r.n, key, shares, op.Err, by,
					w.of(key))
			}
			if v, ok := get(r.s, key); v != want || ok != exists {
				w.t.Errorf("region %d: %s = %d, %v; want %d, %v; %+v", r.n, key, v, ok, want, exists,
					w.of(key))
			}
		}
	}
	// Every retry gets the result of the application that counts.
	first := make(map[string]*done)
	for i := range w.history {
		d := &w.history[i]
		if f := first[d.opid]; d.opid != "" && d.era == w.version && !d.lost && (f == nil || d.before(f)) {
			first[d.opid] = d
		}
	}
	for id, d := range first {
		for _, r := range w.r {
			if op := do(r.s, Op{Kind: CSeen, Key: []byte(d.key), ID: []byte(id)}); !isRegion(op.Object,
				d.region) || op.Seen.UnixMs != d.wall {
				w.t.Errorf("region %d: CSEEN of %s: %v of %v, want region %d", r.n, id, op.Seen, op.Object,
					d.region)
			}
			if op := cincr(r.s, d.key, id, d.delta); op.Err != nil || op.Applied || op.Value != d.result {
				w.t.Errorf("region %d: retry of %s: %d, applied %v, %v; want %d", r.n, id, op.Value,
					op.Applied, op.Err, d.result)
			}
		}
	}
}

// TestRegions: regions whose links are cut, also in one direction, whose messages repeat, are
// late and in any order, whose clocks are off by minutes and who crash, show the same in the end:
// each opid once, without what a deletion had seen. They have different numbers of partitions. In every
// third run they are flushed now and then.
func TestRegions(t *testing.T) {
	total := make(map[string]int)
	for seed := *regionSeed; seed < *regionSeed+uint64(*regionRuns); seed++ {
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newTestRegions(t, seed, 4, 1<<(seed%4), 2)
			if seed%3 == 0 {
				w.flushes = 10
			}
			for range 600 {
				w.step()
			}
			w.agree()
			w.check()
			for _, r := range w.r {
				must(t, r.s.Close())
			}
			for kind, n := range w.steps {
				total[kind] += n
			}
		})
		if !ok {
			return
		}
	}
	if *regionRuns < 8 {
		return
	}
	for _, kind := range []string{"incr", "once", "retry", "del", "set", "passing", "drain", "reopen", "take",
		"too early", "flush", "follow", "another era"} {
		if total[kind] == 0 {
			t.Errorf("there was no %q: %v", kind, total)
		}
	}
	t.Log(total)
}
