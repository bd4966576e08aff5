package part

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// handOut drains a counter, with an opid: what is owed is not handed out.
func (w *world) handOut(i, k, x, rank int) (did bool) {
	r := &w.r[i]
	if r.own[k][x].dot != 0 || r.known[k][x] != 0 {
		return false // a duplicate
	}
	var owed []Owed
	for _, o := range append(r.owed[:len(r.owed):len(r.owed)], r.due...) {
		if o.k == k {
			owed = append(owed, o.Owed)
		}
	}
	exists, amount, under := r.parts(k).Alive(), int64(0), r.parts(k).Expiry()
	if exists {
		amount, _ = r.parts(k).AsPaid(owed).Value()
	}
	r.seq++
	r.own[k][x] = app{dot: r.seq, made: -amount, rank: rank}
	w.note(r, k, x, record{r.id, r.own[k][x]})
	w.hist.add(&w.hist.apps, applied{r.id, r.seq, k, x, -amount, rank, false})
	m := message{kind: 'h', key: k, opid: x, rank: rank, made: -amount, dot: r.seq, expire: under}
	switch {
	case !exists: // the id is used up, and the counter has not changed
		m.kind, m.idsOfState = 0, true
		r.emit(m)
	case w.rules.drainDeletes:
		p := r.edit(k)
		m.kind, m.bases = 'd', p.Seen(r.id)
		p.Delete(r.id, r.seq, m.bases)
		r.change(k, m)
	default:
		r.edit(k).Drain(r.id, r.seq, amount, under)
		r.change(k, m)
	}
	return true
}

// handOuts are a ride in which increments are counted, and handed out by drains with opids.
type handOuts struct{ *ride }

// run makes a run.
func (d *handOuts) run() string {
	d.rules.drops = true
	for acts := 6 + d.rng.IntN(40); acts > 0; acts-- {
		for range d.rng.IntN(4) {
			d.deliver(d.rng.IntN(regions), d.rng.IntN(regions))
		}
		switch at, n := d.rng.IntN(regions), d.rng.IntN(10); {
		case n < 4:
			d.act(inc(at, 0, d.rng.IntN(opids), 1+d.rng.Int64N(9)))
		case n < 6:
			if x := opids + d.rng.IntN(ids-opids-1); d.handOut(at, 0, x, d.ranks[0][x][at]) {
				d.say("%c hands out %d as x%d -> %+v", 'A'+at, -d.r[at].own[0][x].made, x, d.r[at].keys[0])
			}
		case n == 6:
			d.heartbeat(at)
		case n == 7:
			d.tidy(at)
		default:
			d.pay(at, 0)
			if d.dropUndo(at, 0) {
				d.say("%c settles -> %+v", 'A'+at, d.r[at].keys[0])
			}
		}
		if bad := d.sameParts(); bad != "" {
			return bad
		}
	}
	d.deliverAll()
	if bad := d.payAll(d.deliverAll); bad != "" {
		return bad
	}
	if bad := d.balance(); bad != "" {
		return bad
	}
	d.handOut(0, 0, ids-1, 0) // what is left
	d.deliverAll()
	if bad := d.balance(); bad != "" || d.r[0].value(0) != 0 {
		return fmt.Sprintf("the last drain leaves %d: %s", d.r[0].value(0), bad)
	}
	for i := range regions {
		if p := d.r[i].parts(0); p.Alive() {
			return fmt.Sprintf("nothing is left, and %c has a counter: %+v", 'A'+i, p)
		}
	}
	return d.dropAllDrained()
}

// dropAllDrained shows that a counter that drains have emptied is forgotten.
func (d *handOuts) dropAllDrained() string {
	for range 8 {
		for i := range regions {
			d.dropUndo(i, 0)
			d.tidy(i)
			d.heartbeat(i)
		}
		d.deliverAll()
	}
	for i := range regions {
		if d.tidy(i); len(d.r[i].keys[0]) > 0 {
			return fmt.Sprintf("%c does not forget %+v", 'A'+i, d.r[i].keys[0])
		}
	}
	return ""
}

// balance checks that of all regions the value, and what the drains that count have handed out, are the sum
// of the increments that count; and that all know the answer of each drain that counts.
func (d *handOuts) balance() string {
	want, first := int64(0), [ids]*applied{}
	for i := range d.hist.apps {
		if a := &d.hist.apps[i]; a.opid == 0 {
			want += a.made
		} else if f := first[a.opid]; f == nil || a.rank < f.rank {
			first[a.opid] = a
		}
	}
	for x, a := range first {
		if a == nil {
			continue
		}
		want += a.made
		for i := range d.r {
			b := d.r[i].best[0][x]
			if x >= opids && (b.region != a.owner || b.dot != a.dot || b.made != a.made) {
				return fmt.Sprintf("%c knows %+v of x%d, and not %+v", 'A'+i, b, x, *a)
			}
		}
	}
	for i := range d.r {
		if got := d.r[i].value(0); got != want {
			return fmt.Sprintf("%c shows %d, must be %d: %+v", 'A'+i, got, want, d.r[i].parts(0))
		}
	}
	return ""
}

// TestHandOuts: with drains that have opids each increment is handed out once, whatever regions drain at
// once, under one opid or several, and a counter with nothing left is forgotten.
func TestHandOuts(t *testing.T) {
	t.Parallel()
	for _, ru := range []rules{{}, {drainDeletes: true}, {closesEarly: true}} {
		t.Run(fmt.Sprintf("deletes %v, early %v", ru.drainDeletes, ru.closesEarly), func(t *testing.T) {
			most := *runs
			if ru.drainDeletes || ru.closesEarly {
				most = 100_000
			}
			for seed := range uint64(most) {
				d := &handOuts{newRide(seed, ru)}
				d.ranks[0][ids-1] = slices.Repeat([]int{0}, regions)
				switch bad := d.run(); {
				case bad != "" && ru != rules{}:
					t.Logf("seed %d: %s", seed, bad)
					return
				case bad != "":
					t.Fatalf("seed %d: %s\n\t%s", seed, bad, strings.Join(d.trace, "\n\t"))
				}
			}
			if ru != (rules{}) {
				t.Error("nobody noticed")
			}
		})
	}
}
