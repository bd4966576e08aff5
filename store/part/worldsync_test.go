package part

import (
	"bytes"
	"fmt"
	"hash/maphash"
)

// sync gives region j all that region i has (state exchange).
func (w *world) sync(i, j int, ids bool) {
	for k := range counters {
		from, to := &w.r[i], &w.r[j]
		if p := from.parts(k); len(p) > 0 {
			to.edit(k).Merge(p)
		}
		for x := 1; ids && x < opids; x++ {
			w.syncID(from, j, k, x)
		}
	}
}

// syncID tells region j what region from knows of an opid.
func (w *world) syncID(from *region, j, k, x int) {
	to := &w.r[j]
	undone := func(dot uint64) bool { // what its part says it has taken back since its backup
		for _, u := range to.parts(k).get(to.id).Undo {
			if u.Dot == dot {
				return true
			}
		}
		return false
	}
	if a := &to.own[k][x]; a.dot != 0 && undone(a.dot) {
		a.taken = true
	}
	told := func(o Region, a app) {
		w.apply(j, &message{from: o, key: k, opid: x, rank: a.rank, made: a.made, dot: a.dot,
			idsOfState: true}, false)
	}
	for o, h := range from.heard[k][x] {
		switch {
		case h.dot == 0:
		case Region(o) != to.id:
			told(Region(o), h)
		case to.own[k][x].dot == 0: // its own, which it has lost
			h.taken = h.taken || undone(h.dot)
			to.own[k][x] = h
		}
	}
	if a := from.own[k][x]; a.dot != 0 {
		told(from.id, a)
	}
}

// expected is what history says a counter is worth: each opid once, unless a deletion had seen an
// application of it, whichever.
func (w *world) expected(k int) (v int64, alive bool) {
	gone := func(o Region, dot uint64) bool {
		for _, d := range w.hist.dels {
			if d.key == k && d.seen[o] >= dot && !d.early {
				return true
			}
		}
		return false
	}
	var stays [opids]*applied
	var removed [opids]bool
	for i := range w.hist.apps {
		a := &w.hist.apps[i]
		if a.key != k {
			continue
		}
		alive = alive || !gone(a.owner, a.dot)
		removed[a.opid] = removed[a.opid] || gone(a.owner, a.dot) && !w.rules.noCover
		if s := stays[a.opid]; a.opid != 0 && (s == nil || a.rank < s.rank) {
			stays[a.opid] = a
		} else if a.opid == 0 && !gone(a.owner, a.dot) {
			v += a.made
		}
	}
	for x, a := range stays {
		if a != nil && !removed[x] && !gone(a.owner, a.dot) {
			v += a.made
		}
	}
	var last assigned
	for _, s := range w.hist.sets {
		if s.key == k && !gone(s.owner, s.dot) {
			alive = true
			if s.hlc > last.hlc || s.hlc == last.hlc && s.owner > last.owner {
				last = s
			}
		}
	}
	return v + last.value, alive
}

// always is what must hold at any time: no value is below zero, as no delta is, and if
// floor, none is less than the operations that the region knows of; and what does not exist has
// no value.
func (w *world) always(floor bool) string {
	for i := range w.r {
		r := &w.r[i]
		for k := range counters {
			v, n := r.value(k), int64(0)
			for x := 1; floor && x < opids; x++ {
				if r.own[k][x].dot != 0 || r.known[k][x] != 0 {
					n++
				}
			}
			p := r.parts(k)
			if v < n {
				return fmt.Sprintf("%c shows k%d = %d, but at least %d is known there: %+v", 'A'+i, k, v, n,
					p)
			}
			if v != 0 && !p.Alive() {
				return fmt.Sprintf("%c has no k%d, but its value %d", 'A'+i, k, v)
			}
		}
	}
	return ""
}

// sameParts is what the merge relies on: copies of a part as of one change are equal.
func (w *world) sameParts() string {
	for k := range counters {
		for o := range everyone {
			for i := range w.r {
				x, y := w.r[i].parts(k).get(Region(o)), w.r[(i+1)%regions].parts(k).get(Region(o))
				if x.Clock == y.Clock && x.Clock != 0 && !equalButBase(x, y) {
					return fmt.Sprintf("two copies of %c's part of k%d differ: %+v, %+v", 'A'+o, k, x, y)
				}
			}
		}
	}
	return ""
}

// equalButBase compares copies of a part without their bases: a region that has forgotten the counter does
// not have one.
func equalButBase(x, y Part) bool {
	x.Base, y.Base = Base{}, Base{}
	return bytes.Equal(x.appendTo(nil), y.appendTo(nil))
}

// end checks what must hold when every region has taken everything.
func (w *world) end() string {
	for k := range counters {
		want, alive := w.expected(k)
		for i := range w.r {
			p, first := w.r[i].parts(k), w.r[0].parts(k)
			if w.r[i].value(k) != w.r[0].value(k) || p.Alive() != first.Alive() {
				return fmt.Sprintf("DIVERGED: k%d must be %d, is\nA: %+v\n%c: %+v", k, want, first, 'A'+i, p)
			}
		}
		p := w.r[0].parts(k)
		if got := w.r[0].value(k); got != want {
			return fmt.Sprintf("k%d is %d everywhere, must be %d: %+v", k, got, want, p)
		}
		if !alive && p.Alive() {
			return fmt.Sprintf("k%d was deleted by one that had seen everything, but exists: %+v", k, p)
		}
		e := p.Expiry()
		passed := w.r[0].ticked || w.r[1].ticked || w.r[2].ticked
		if e.HLC != 0 {
			passed = e.At != 0 && w.r[e.By].ticked
		}
		for _, a := range w.hist.apps {
			if passed && p.Alive() && a.key == k && a.under &&
				a.dot > p.get(a.owner).Base.Clock {
				return fmt.Sprintf("k%d lives for ever: an increment made under an expiry that has "+
					"passed: %+v", k, p)
			}
		}
	}
	return ""
}

// hash tells worlds apart.
func (w *world) hash() uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	b := make([]byte, 0, 1024)
	for i := range w.r {
		r := &w.r[i]
		for k := range counters {
			b = append(r.keys[k].AppendTo(b), byte(r.plain[k].value), byte(r.plain[k].seq))
			for x := 1; x < opids; x++ {
				b = r.own[k][x].append(b)
				for _, a := range r.heard[k][x] {
					b = a.append(b)
				}
				b = append(b, byte(r.known[k][x]))
			}
		}
		for o := range r.cur {
			b = append(b, byte(r.cur[o]))
			for _, s := range r.acked[o] {
				b = append(b, byte(s))
			}
		}
		for _, d := range r.due {
			b = append(b, byte(d.k), byte(d.Dot), byte(d.Made), byte(d.rank))
		}
		b = append(b, byte(r.seq), byte(r.hlc), byte(len(r.due)))
		for _, d := range []uint64{r.digest, w.hist.digest, uint64(w.done)} {
			b = append(b, byte(d), byte(d>>8), byte(d>>16), byte(d>>24), byte(d>>32), byte(d>>40),
				byte(d>>48), byte(d>>56))
		}
		for _, passed := range append(r.passed[:], r.ticked) {
			if passed {
				b = append(b, 1)
			} else {
				b = append(b, 0)
			}
		}
	}
	h.Write(b)
	return h.Sum64()
}

func (a app) append(b []byte) []byte {
	if a.taken {
		b = append(b, 'x')
	}
	return append(b, byte(a.dot), byte(a.made), byte(a.rank))
}
