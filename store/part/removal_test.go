package part

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// The removal of a lost region. Each survivor takes from each other one what that knows of it:
// whole parts, and which of its applications count. Then it says in its stream what the lost region
// still owes, and that it has levelled. When the heir has heard that of all, it jumps beyond all
// sequences of the lost region, says so, and is from then on the writer of the lost region's
// parts: what it does to them travels as whole parts in its own stream, with its own sequences.

// record is what is known of an opid: the application that counts.
type record struct {
	region Region
	app
}

// debt is an application that does not count, and of which it is not known that its region took
// it back.
type debt struct {
	k, x, rank int
	Owed
}

// lostTo is a record as a debt.
func (r record) lostTo(k, x int, b *record) debt {
	return debt{k, x, r.rank, Owed{Applied{r.region, r.dot, r.made}, Applied{b.region, b.dot, b.made}}}
}

// removal is what a region knows of the removal of another one.
type removal struct {
	best [counters][ids]record
	owed []debt
	lost int // the region that is removed; -1: none
	heir Region
	from [regions]bool // whose state of it was taken
	// when each survivor said that it has levelled; of the heir: that it inherits
	said              [regions]uint64
	silent, forgetful bool // mend.noTelling, mend.ignoreUndo
}

// mend is what is left out of a removal.
type mend struct {
	noHeir, noLevel, noJump bool
	noTelling               bool // what is owed is not told to the heir
	keepLosers              bool // a take-back does not change the others' records
	ackOld                  bool // the heir's sequences count before it has said that it inherits
	oneWay                  bool // only the heir takes a state
	noClose                 bool // nobody closes the lost region's parts
	ignoreUndo              bool // what the lost region took back itself is owed
	dueIsPaid               bool // what it had no room to take back is taken for taken back
	bad                     bool
}

// note takes note of an application of an opid.
func (w *world) note(r *region, k, x int, o record) {
	switch b := &r.best[k][x]; {
	case b.dot == 0:
		*b = o
	case b.region == o.region && b.dot == o.dot:
	case o.rank < b.rank:
		was := *b
		*b = o
		w.owe(r, was.lostTo(k, x, &o))
	default:
		w.owe(r, o.lostTo(k, x, b))
	}
}

// owe notes a debt. The own region's it settles itself.
func (w *world) owe(r *region, d debt) {
	if d.Region == r.id || r.settled(d) || slices.ContainsFunc(r.owed, func(o debt) bool {
		return o.k == d.k && o.Region == d.Region && o.Dot == d.Dot
	}) {
		return
	}
	r.owed = append(slices.Clip(r.owed), d)
	if int(d.Region) == r.lost && r.said[r.id] != 0 && r.heir != r.id && !r.silent {
		r.seq++
		r.emit(message{kind: 'o', debt: d})
	}
}

// settled reports whether a part shows that an application was taken back, or removed; also if
// the counter was dropped since. Before a region has levelled it may hear of a debt before the part.
func (r *region) settled(d debt) bool {
	p := r.parts(d.k)
	if r.forgetful {
		p = p.Clone()
		p.at(d.Region).Undo = nil
	}
	owes, here := p.Owes(d.Owed)
	return !owes && (here || int(d.Region) != r.lost || r.said[r.id] != 0)
}

// settle drops the debts of a counter that are settled, or by a message.
func (r *region) settle(k int, m *message) {
	r.owed = slices.DeleteFunc(slices.Clone(r.owed), func(d debt) bool {
		return d.k == k && (r.settled(d) || m.kind == 't' && d.Region == m.from && d.Dot == m.undone.Dot)
	})
}

// takeState gives region i what j knows of a lost region.
func (w *world) takeState(i, j, lost int) {
	to, from := &w.r[i], &w.r[j]
	for k := range counters {
		if p := from.parts(k); len(p) > 0 {
			to.edit(k).Merge(p)
			to.settle(k, new(message))
		}
		for x := 1; x < opids; x++ {
			if b := from.best[k][x]; b.dot != 0 && int(b.region) == lost {
				w.apply(i, &message{from: Region(lost), key: k, opid: x, rank: b.rank, made: b.made,
					dot: b.dot, idsOfState: true}, false)
			}
		}
	}
	to.cur[lost] = max(to.cur[lost], from.cur[lost])
	to.from[j] = true
}

// removed is a ride in which region C is lost, and removed with an heir.
type removed struct {
	*ride
	mend
	slow [2]int // from, to: a link on which nothing arrives before the end
}

// run makes a run.
func (r *removed) run() string {
	r.rules.drops = r.rng.IntN(3) > 0
	event := 3 + r.rng.IntN(20)
	for acts := 6 + r.rng.IntN(24); acts > 0; acts-- {
		for range 1 + r.rng.IntN(6) {
			if f, t := r.rng.IntN(regions), r.rng.IntN(regions); f != r.slow[0] || t != r.slow[1] {
				r.deliver(f, t)
			}
		}
		if r.rng.IntN(4) == 0 {
			r.slow = [2]int{r.rng.IntN(regions), r.rng.IntN(regions)}
		}
		if at := r.rng.IntN(regions); at != r.lost {
			r.client(at)
		}
		if event--; event == 0 {
			r.lose()
		}
		if r.lost >= 0 && r.rng.IntN(3) == 0 {
			r.progress(r.rng.IntN(2))
		}
		if bad := r.check(); bad != "" {
			return bad
		}
	}
	if r.lost < 0 {
		r.lose()
	}
	for range 4 {
		r.progress(0)
		r.progress(1)
		r.deliverAll()
	}
	if bad := r.payAll(r.deliverAll); bad != "" {
		return bad
	}
	if bad := r.check(); bad != "" {
		return bad
	}
	r.hist.forget(2, max(r.r[0].cur[2], r.r[1].cur[2]))
	r.r[2] = r.r[0]
	if bad := r.end(); bad != "" || !r.rules.drops {
		return bad
	}
	r.r[2] = *new(region) // so that nothing of it is looked at
	r.r[2].id = 2
	for range 4 {
		for i := range 2 {
			r.tidy(i)
			r.heartbeat(i)
		}
		r.deliverAll()
	}
	for i := range 2 {
		r.tidy(i)
		for k := range counters {
			r.r[i].settle(k, new(message))
			if p := r.r[i].parts(k); len(p) > 0 && !p.Alive() {
				return fmt.Sprintf("dead k%d stays at %c: %+v", k, 'A'+i, p)
			}
		}
		if len(r.r[i].owed) > 0 {
			return fmt.Sprintf("%c still waits for %+v", 'A'+i, r.r[i].owed)
		}
	}
	r.r[2] = r.r[0]
	return r.end()
}

// client does something at one region.
func (r *removed) client(at int) {
	k := r.rng.IntN(counters)
	switch n := r.rng.IntN(20); {
	case n < 8:
		r.act(inc(at, k, r.rng.IntN(opids), 1))
	case n < 10:
		r.act(act{kind: "del", at: at, k: k})
	case n == 10:
		r.act(act{kind: "set", at: at, k: k, value: int64(r.rng.IntN(5))})
	case n < 14:
		if r.dropUndo(at, k) {
			r.say("%c drops undo entries of k%d -> %+v", 'A'+at, k, r.r[at].keys[k])
		}
		r.pay(at, k)
	case n < 17:
		r.act(beat(at))
	default:
		r.tidy(at)
	}
}

func (r *removed) check() string {
	if bad := r.always(false); bad != "" {
		return bad
	}
	return r.sameParts()
}

// lose loses C.
func (r *removed) lose() {
	r.lost = 2
	heir := Region(r.rng.IntN(2))
	r.say("C is lost; %c is its heir", 'A'+heir)
	for i := range 2 {
		r.r[i].lost, r.r[i].heir, r.r[i].silent, r.r[i].forgetful = 2, heir, r.noTelling, r.ignoreUndo
	}
}

// progress lets a survivor do what it can.
func (r *removed) progress(i int) {
	me, other := &r.r[i], 1-i
	isHeir := me.heir == me.id
	switch {
	case !me.from[other]:
		if r.noLevel || r.oneWay && !isHeir {
			me.from[other] = true
			return
		}
		r.takeState(i, other, 2)
		r.say("%c takes %c's state of C: %+v, owed %+v", 'A'+i, 'A'+other, me.keys, me.owed)
	case me.said[i] != 0 || isHeir && me.said[other] == 0 || isHeir && r.noHeir:
		return
	default:
		if isHeir && !r.noJump {
			me.seq = 100 // beyond all that is known of C
		}
		for _, d := range me.owed {
			if !isHeir && int(d.Region) == 2 && !me.silent {
				me.seq++
				me.emit(message{kind: 'o', debt: d})
			}
		}
		me.seq++
		me.said[i] = me.seq
		me.emit(message{kind: 'l'})
		r.say("%c has levelled at %d", 'A'+i, me.seq)
		r.inherit(i)
	}
}

// inherit takes back what a lost region owes.
func (w *world) inherit(i int) {
	r := &w.r[i]
	if r.lost < 0 || r.heir != r.id || r.said[i] == 0 {
		return
	}
	for _, d := range r.owed {
		if int(d.Region) != r.lost || r.settled(d) {
			continue
		}
		if held, _ := r.parts(d.k).CanTakeBack(d.Owed, MaxUndo); held {
			r.seq++
			r.edit(d.k).TakeBack(r.seq, d.Owed)
			r.change(d.k, message{kind: 'w'})
		}
	}
	r.owed = slices.DeleteFunc(slices.Clone(r.owed), func(d debt) bool { return int(d.Region) == r.lost })
}

// closeLost closes the part of a lost region of a counter that does not exist any more.
func (w *world) closeLost(i, k int) bool {
	r := &w.r[i]
	if r.lost < 0 || r.heir != r.id || r.said[i] == 0 || w.mend.noClose ||
		!r.parts(k).Unclosed(Region(r.lost)) {
		return false
	}
	r.seq++
	r.edit(k).Delete(Region(r.lost), r.seq, nil)
	r.change(k, message{kind: 'w'})
	return true
}

// ackedLost is acked for a lost region: what its heir did to its parts is in the heir's stream.
func (w *world) ackedLost(r *region, by Region) uint64 {
	since := r.said[r.heir]
	if w.mend.ackOld {
		since = 1
	}
	switch {
	case since == 0:
		return 0
	case by == r.heir && by == r.id:
		return 1 << 60
	case by == r.heir || by == r.id:
		return r.cur[r.heir]
	case r.acked[by][r.heir] < since:
		return 0
	}
	return r.acked[by][r.heir]
}

// TestRemoval: a region that is lost at any moment, and removed with an heir, leaves sums that
// are right, and nothing that could not be forgotten; and each thing left out is noticed.
func TestRemoval(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]mend{
		"whole":                       {},
		"no heir":                     {noHeir: true, bad: true},
		"not levelled":                {noLevel: true, bad: true},
		"only the heir levels":        {oneWay: true, bad: true},
		"no jump":                     {noJump: true, bad: true},
		"debts are not told":          {noTelling: true, bad: true},
		"take-backs leave records":    {keepLosers: true, bad: true},
		"old acknowledgements":        {ackOld: true, bad: true},
		"parts stay open":             {noClose: true, bad: true},
		"what was taken back is owed": {ignoreUndo: true, bad: true},
		"what is due is paid":         {dueIsPaid: true, bad: true},
	} {
		t.Run(name, func(t *testing.T) {
			most := *runs
			if m.bad {
				most = 200_000
			}
			for seed := range uint64(most) {
				r := &removed{ride: newRide(seed, rules{dueIsPaid: m.dueIsPaid}), mend: m}
				r.world.mend, r.r[2].full = m, seed%2 == 0
				switch bad := r.run(); {
				case bad != "" && m.bad:
					t.Logf("seed %d: %s", seed, bad)
					return
				case bad != "":
					t.Fatalf("seed %d: %s\n\t%s", seed, bad, strings.Join(r.trace, "\n\t"))
				}
			}
			if m.bad {
				t.Error("nobody noticed")
			}
		})
	}
}
