package part

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"slices"
)

// The world of the checks: three regions with two counters and two opids each, and the
// messages between them. It changes counters by the functions of this package alone; ids,
// streams and cursors are models of the store and the exchange.
const (
	regions  = 3
	counters = 2
	opids    = 3         // of increments; 0: no opid
	ids      = opids + 3 // the others are of drains (Parts.Drain)
)

var everyone = []Region{0, 1, 2}

// plain is a counter that only its own region has incremented: it has no parts.
type plain struct {
	value int64
	seq   uint64 // 0: no such counter
}

// app is an application of an opid.
type app struct {
	dot   uint64 // 0: none
	made  int64
	rank  int // the smallest stays
	taken bool
}

// message is an entry of a region's stream.
type message struct {
	kind       byte // of changes; 0: nothing of its own part; 'n': a take-back for which there is no room
	from       Region
	seq        uint64
	key, opid  int
	rank       int
	made       int64
	dot        uint64 // Of the application that it tells of.
	undone     Owed   // the application that is taken back
	value      int64
	expire     Expiry
	bases      []RegionBase
	spent      Settlement
	whole      Parts // what the sender knows after it; nil: it is not about a counter
	carried    Part  // a whole part that goes with it: the winner's
	back       int   // of a take-back: the opid, and which application of it counts
	best       record
	debt       debt // that it tells of
	cur        [regions]uint64
	idsOfState bool // tells of an application, and of nothing else
}

// region is one of the world's.
type region struct {
	id    Region
	seq   uint64
	hlc   uint64
	keys  [counters]Parts // never changed in place: edit
	plain [counters]plain
	own   [counters][ids]app
	heard [counters][ids][regions]app
	known [counters][ids]int // the lowest known rank, + 1
	cur   [regions]uint64
	acked [regions][regions]uint64 // what each has taken, as it said in its stream
	removal
	due    []debt        // its own: what it took back but for the sums, as there was no room
	full   bool          // there is never room
	ticked bool          // its clock has passed all expiries
	passed [regions]bool // … and those of others have, as far as it knows
	log    []message
	digest uint64 // of the log
}

// history is what happened, for the oracle.
type history struct {
	apps   []applied
	dels   []deleted
	sets   []assigned
	times  []timed
	digest uint64
}

type applied struct {
	owner     Region
	dot       uint64
	key, opid int
	made      int64
	rank      int
	under     bool // made under an expiry
}

type deleted struct {
	key   int
	owner Region
	seq   uint64
	seen  [regions]uint64
	early bool // of a counter that did not expire yet
}

type assigned struct {
	owner    Region
	dot, hlc uint64
	key      int
	value    int64
}

// timed is an expiry that was set.
type timed struct {
	owner Region
	key   int
	hlc   uint64
}

// rules are what a world leaves out: each is a mistake that the checks must notice.
type rules struct {
	drops     bool // dead counters are dropped
	wholes    bool // messages carry whole parts, in any order
	noCarry   bool // a take-back does not carry the winner's part
	noClosing bool // a region drops without a look whether parts are closed
	ackAtOnce bool // a region is told what another took, though not what that one did before
	ownAcks   bool // a region that drops looks only at the acknowledgements of its own changes

	noAssert  bool // increments do not assert their expiry again
	ownClock  bool // a region judges every expiry by its own clock
	anyOwner  bool // … Deletes what has expired, whoever has set that.
	dropEarly bool // undo entries go at once
	noDebts   bool // … also if debts name them

	room      int  // for take-backs; 0: MaxUndo
	noDue     bool // what there is no room for is not taken back
	staysDue  bool // … is owed, also once the counter is forgotten
	dueIsPaid bool // … and a region that hears of the debt takes it for taken back

	noCover    bool // a deletion removes the applications that it has seen, not the operations
	drainsOwed bool // a drain hands out what is owed

	drainDeletes bool // a drain with an opid is a deletion
	closesEarly  bool // what drains have emptied is deleted before all have acknowledged them
	remember     bool // a take-back does not ask whether it was removed, nor marks the record
}

type world struct {
	r     [regions]region
	done  uint32
	hist  history
	rules rules
	mend  mend
}

func newWorld(ru rules) *world {
	w := &world{rules: ru}
	for i := range w.r {
		w.r[i].id, w.r[i].lost = Region(i), -1
	}
	return w
}

// edit returns the parts of a counter to be changed, and gives it parts if it has none yet.
func (r *region) edit(k int) *Parts {
	r.keys[k] = r.parts(k).Clone()
	r.plain[k] = plain{}
	return &r.keys[k]
}

// parts are what the region tells of a counter.
func (r *region) parts(k int) Parts {
	if c := r.plain[k]; c.seq != 0 {
		return Parts{FromCounter(r.id, c.value, c.seq)}
	}
	return r.keys[k]
}

func (r *region) value(k int) int64 {
	v, _ := r.parts(k).Value()
	return v
}

// emit sends a message.
func (r *region) emit(m message) {
	m.seq, m.from, m.cur = r.seq, r.id, r.cur
	m.cur[r.id] = r.seq
	r.log = append(r.log[:len(r.log):len(r.log)], m)
	var h maphash.Hash
	h.SetSeed(seed)
	m.hash(&h)
	r.digest = r.digest*31 + h.Sum64()
}

// change emits a change of counter k, with its parts as they are now.
func (r *region) change(k int, m message) {
	m.key, m.whole = k, r.parts(k)
	r.emit(m)
}

func (w *world) increment(i, k, opid int, made int64, rank int) {
	r := &w.r[i]
	if opid != 0 && (r.own[k][opid].dot != 0 || r.known[k][opid] != 0) {
		return // a duplicate
	}
	if r.expired(k) {
		w.delExpired(i, k, true)
	}
	r.seq++
	r.hlc++
	under := r.parts(k).Expiry()
	expires := under.At != 0
	if w.rules.noAssert {
		under = Expiry{}
	}
	if len(r.keys[k]) == 0 {
		r.plain[k] = plain{r.plain[k].value + made, r.seq}
	} else {
		r.edit(k).Increment(r.id, r.seq, made, under)
	}
	if opid != 0 {
		r.own[k][opid] = app{dot: r.seq, made: made, rank: rank}
		w.note(r, k, opid, record{r.id, r.own[k][opid]})
	}
	w.hist.add(&w.hist.apps, applied{r.id, r.seq, k, opid, made, rank, expires})
	r.change(k, message{kind: 'i', opid: opid, rank: rank, made: made, dot: r.seq, expire: under})
	w.due(i, k)
}

// remove notes what a deletion sees.
func (w *world) remove(r *region, k int, early bool) {
	d := deleted{key: k, owner: r.id, seq: r.seq, early: early}
	for _, q := range r.parts(k) {
		d.seen[q.Region] = q.Clock
	}
	addTo(&w.hist, &w.hist.dels, d)
}

// del deletes a counter; or closes the own part of one that does not exist any more.
func (w *world) del(i, k int, closes bool) {
	r := &w.r[i]
	if closes || r.parts(k).Alive() {
		w.delAs(r, k, false)
	}
}

func (w *world) delAs(r *region, k int, early bool) {
	r.seq++
	r.hlc++
	w.remove(r, k, early)
	p := r.edit(k)
	bases := p.Seen(r.id)
	p.Delete(r.id, r.seq, bases)
	r.change(k, message{kind: 'd', bases: bases})
}

func (w *world) set(i, k int, v int64) {
	r := &w.r[i]
	r.seq++
	r.hlc++
	w.remove(r, k, false)
	p := r.edit(k)
	bases := p.Seen(r.id)
	p.Assign(r.id, r.seq, r.hlc, v, bases, Expiry{})
	addTo(&w.hist, &w.hist.sets, assigned{r.id, r.seq, r.hlc, k, v})
	r.change(k, message{kind: 's', bases: bases, expire: Expiry{HLC: r.hlc}, value: v})
}

func (w *world) expire(i, k int, at int64) {
	r := &w.r[i]
	if !r.parts(k).Alive() || r.expired(k) {
		return
	}
	r.seq++
	r.hlc++
	r.edit(k).SetExpiry(r.id, r.seq, r.hlc, at)
	addTo(&w.hist, &w.hist.times, timed{r.id, k, r.hlc})
	r.change(k, message{kind: 'e', expire: Expiry{HLC: r.hlc, At: at}})
	w.due(i, k)
}

// expired reports whether a counter has expired, as far as the region knows: by the clock of the region that
// has set the expiry.
func (r *region) expired(k int) bool {
	p := r.parts(k)
	e := p.Expiry()
	return p.Alive() && e.At != 0 && r.passed[e.By]
}

// due deletes a counter that has expired, though nobody writes: only the region that has set the expiry knows
// that no later one was set there meanwhile.
func (w *world) due(i, k int) {
	r := &w.r[i]
	p := r.parts(k)
	e := p.Expiry()
	switch {
	case w.rules.ownClock && r.ticked && p.Alive() && e.At != 0,
		r.expired(k) && (e.By == r.id || w.rules.anyOwner):
		w.delExpired(i, k, false)
	}
}

// delExpired deletes a counter as it has expired.
func (w *world) delExpired(i, k int, write bool) {
	hlc := w.r[i].parts(k).Expiry().HLC
	w.delAs(&w.r[i], k, !slices.ContainsFunc(w.hist.times, func(t timed) bool {
		by := &w.r[t.owner]
		return t.key == k && t.hlc == hlc && by.ticked && (write || by.parts(k).Expiry().HLC <= hlc)
	}))
}

func (w *world) tick(i int) {
	w.r[i].ticked = true
	w.passes(i, i)
}

// passes lets region i know that another one's clock has passed all expiries, if that is so. It need not have
// heard from that one since: it knows how far that clock was, and how long ago that is.
func (w *world) passes(i, of int) {
	w.r[i].passed[of] = w.r[of].ticked
	for k := range counters {
		w.due(i, k)
	}
}

func (w *world) heartbeat(i int) {
	w.r[i].seq++
	w.r[i].emit(message{})
}

// apply takes a message, as a change or, if whole, all that its sender knew.
func (w *world) apply(i int, m *message, whole bool) {
	r := &w.r[i]
	for o := range m.cur {
		r.acked[m.from][o] = max(r.acked[m.from][o], m.cur[o])
	}
	if w.rules.ackAtOnce {
		w.r[m.from].acked[i] = r.cur
	}
	switch m.kind {
	case 'o':
		if r.heir == r.id {
			w.owe(r, m.debt)
			w.inherit(i)
		}
	case 'l':
		r.said[m.from] = m.seq
	}
	if m.whole != nil || m.idsOfState {
		r.hlc = max(r.hlc, m.expire.HLC)
		if !m.idsOfState {
			p := r.edit(m.key)
			if whole {
				p.Merge(m.whole)
			} else {
				p.redo(m)
			}
			r.settle(m.key, m)
		}
		w.hear(i, m)
		if m.kind == 'n' && !w.rules.dueIsPaid {
			// its region knows the winner
			r.owed = slices.DeleteFunc(slices.Clone(r.owed), func(d debt) bool {
				return d.k == m.key && d.Applied == m.undone.Applied
			})
			w.owe(r, debt{m.key, m.back, m.rank, m.undone})
		}
		w.inherit(i)
		w.due(i, m.key)
	}
}

// redo does to a copy of a part what its region did.
func (p *Parts) redo(m *message) {
	switch m.kind {
	case 'i':
		p.Increment(m.from, m.seq, m.made, m.expire)
	case 'd':
		p.Delete(m.from, m.seq, m.bases)
	case 'h':
		p.Drain(m.from, m.seq, -m.made, m.expire)
	case 's':
		p.Assign(m.from, m.seq, m.expire.HLC, m.value, m.bases, Expiry{})
	case 'e':
		p.SetExpiry(m.from, m.seq, m.expire.HLC, m.expire.At)
	case 't':
		p.TakeBack(m.seq, m.undone)
	case 'u':
		p.Settle(m.from, m.seq, m.spent)
	case 'w':
		p.Merge(m.whole)
	}
	p.MergePart(m.carried)
}

// hear takes what a message tells of an opid.
func (w *world) hear(i int, m *message) {
	r, k, x := &w.r[i], m.key, m.opid
	if b := &r.best[k][m.back]; m.back != 0 && b.region == m.from && b.dot == m.undone.Dot &&
		!w.mend.keepLosers {
		*b = m.best
	}
	if x == 0 {
		return
	}
	if h := &r.heard[k][x][m.from]; m.dot != 0 && h.dot == 0 {
		*h = app{dot: m.dot, made: m.made, rank: m.rank}
	}
	if r.known[k][x] == 0 || m.rank+1 < r.known[k][x] {
		r.known[k][x] = m.rank + 1
	}
	if m.dot != 0 {
		w.note(r, k, x, record{m.from, app{dot: m.dot, made: m.made, rank: m.rank}})
	}
	if a := &r.own[k][x]; a.dot != 0 && !a.taken && m.rank < a.rank {
		a.taken = true
		w.takeBack(r, k, x, a, Applied{m.from, m.dot, m.made})
	}
}

// room is how many take-backs a part may remember.
func (ru rules) roomForUndo() int {
	if ru.room == 0 {
		return MaxUndo
	}
	return ru.room
}

func (w *world) takeBack(r *region, k, x int, a *app, winner Applied) {
	p := r.edit(k)
	owed := Owed{Applied{r.id, a.dot, a.made}, winner}
	held, full := p.CanTakeBack(owed, w.rules.roomForUndo())
	if full = full || r.full; !held || full && w.rules.noDue {
		return
	}
	r.seq++
	m := message{kind: 't', undone: owed, rank: a.rank, back: x, best: r.best[k][x]}
	if full {
		m.kind = 'n'
		r.due = append(slices.Clip(r.due), debt{k, x, a.rank, owed})
	} else {
		p.TakeBack(r.seq, owed)
	}
	if !w.rules.noCarry {
		m.carried = p.get(winner.Region)
	}
	r.change(k, m)
}

// pay takes back what is due of a counter, as far as there is room; what a deletion has removed is
// due no more.
func (w *world) pay(i, k int) (did bool) {
	r := &w.r[i]
	var due []debt
	for _, d := range r.due {
		held, full := r.parts(k).CanTakeBack(d.Owed, w.rules.roomForUndo())
		if d.k != k || held && (full || r.full) || !held && w.rules.staysDue {
			due = append(due, d)
			continue
		}
		if did = true; held {
			r.seq++
			r.edit(k).TakeBack(r.seq, d.Owed)
			r.change(k, message{kind: 't', undone: d.Owed})
		}
	}
	r.due = due
	return did
}

// payAll lets regions drop and pay until nothing is due; deliver delivers everything. Debts are paid late.
func (w *world) payAll(deliver func()) (bad string) {
	for round := 0; ; round++ {
		due := 0
		for i := range w.r {
			if w.isLost(i) {
				continue
			}
			for k := range counters {
				w.dropUndo(i, k)
				w.pay(i, k)
			}
			due += len(w.r[i].due)
		}
		if due == 0 || w.rules.staysDue {
			deliver()
			return ""
		}
		if round > 100 {
			return fmt.Sprintf("%d take-backs stay due", due)
		}
		deliver()
		for i := range w.r {
			if !w.isLost(i) {
				w.heartbeat(i)
			}
		}
		deliver()
	}
}

// isLost reports whether a region was removed.
func (w *world) isLost(i int) bool {
	return slices.ContainsFunc(w.r[:], func(r region) bool { return r.lost == i })
}

// deliverOne delivers the next message from f to t; it reports whether there was one.
func (w *world) deliverOne(f, t int) bool {
	for mi := range w.r[f].log {
		if m := &w.r[f].log[mi]; f != t && m.seq > w.r[t].cur[f] {
			w.r[t].cur[f] = m.seq
			w.apply(t, m, false)
			return true
		}
	}
	return false
}

// deliverAll delivers everything.
func (w *world) deliverAll() {
	for more := true; more; {
		more = false
		for f := range w.r {
			for t := range w.r {
				more = w.deliverOne(f, t) || more
			}
		}
	}
}

// dropUndo drops what nobody needs any more of a counter's take-backs.
func (w *world) dropUndo(i, k int) bool {
	r := &w.r[i]
	acked := func(by, of Region) uint64 { return r.acked[by][of] }
	others := slices.DeleteFunc(r.living(), func(o Region) bool { return o == r.id || w.rules.dropEarly })
	var owed []Owed
	r.settle(k, new(message))
	for _, d := range r.owed {
		if d.k == k && !w.rules.noDebts {
			owed = append(owed, d.Owed)
		}
	}
	spent, some := r.parts(k).Spent(r.id, acked, others, owed)
	if !some {
		return false
	}
	r.seq++
	r.edit(k).Settle(r.id, r.seq, spent)
	r.change(k, message{kind: 'u', spent: spent})
	return true
}

// close closes the own part of a counter that does not exist any more.
func (w *world) close(i, k int) bool {
	if w.closeLost(i, k) {
		return true
	}
	r := &w.r[i]
	ofKey := func(d debt) bool { return d.k == k }
	emptied := r.parts(k).Emptied(w.acked(r), r.living()) && !slices.ContainsFunc(r.owed, ofKey) &&
		!slices.ContainsFunc(r.due, ofKey)
	if !emptied && !r.parts(k).Unclosed(r.id) {
		return false
	}
	w.del(i, k, true)
	return true
}

// acked returns what a region knows of how far others have taken the streams.
func (w *world) acked(r *region) func(by, of Region) uint64 {
	return func(by, of Region) uint64 {
		switch {
		case int(of) == r.lost:
			return w.ackedLost(r, by)
		case by == r.id:
			return r.cur[of]
		case w.rules.ownAcks && of != r.id, w.rules.closesEarly:
			return 1 << 60
		}
		return r.acked[by][of]
	}
}

// drop forgets a counter that does not exist any more.
func (w *world) drop(i, k int) bool {
	r := &w.r[i]
	p := r.keys[k]
	if len(p) == 0 || p.Alive() {
		return false
	}
	w.pay(i, k)
	if w.rules.noClosing {
		p = slices.Clone(p)
		for j := range p {
			p[j] = Part{Region: p[j].Region, Base: Base{Clock: max(p[j].Base.Clock, p[j].Clock)}}
		}
	}
	if !p.Droppable(w.acked(r), r.living()) {
		return false
	}
	r.keys[k] = nil
	return true
}

// living are the regions that are not removed.
func (r *region) living() []Region {
	return slices.DeleteFunc(slices.Clone(everyone), func(o Region) bool { return int(o) == r.lost })
}

// addTo appends to a part of the history.
func addTo[T any](h *history, list *[]T, one T) {
	*list = append((*list)[:len(*list):len(*list)], one)
	h.digest += maphash.String(seed, fmt.Sprint(one)) // in any order
}

func (h *history) add(list *[]applied, one applied) { addTo(h, list, one) }

var seed = maphash.MakeSeed()

// hash feeds everything of a message that matters.
func (m *message) hash(h *maphash.Hash) {
	var b [256]byte
	out := append(b[:0], m.kind, byte(m.key), byte(m.opid), byte(m.rank), byte(m.made), byte(m.seq),
		byte(m.dot), byte(m.undone.Dot), byte(m.value), byte(m.undone.Winner.Region),
		byte(m.undone.Winner.Dot), byte(m.undone.Made))
	for _, c := range m.cur {
		out = append(out, byte(c))
	}
	out = binary.AppendUvarint(out, m.expire.HLC)
	out = binary.AppendVarint(out, m.expire.At)
	for _, s := range m.bases {
		out = append(out, byte(s.Region), byte(s.Clock), byte(s.Cum))
	}
	out = m.spent.AppendTo(Parts{m.carried}.AppendTo(out))
	h.Write(m.whole.AppendTo(out))
}
