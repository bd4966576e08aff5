package part

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// handedOut is a deletion that handed out what its region saw of a counter.
type handedOut struct {
	deleted
	amount int64
	heard  [regions]uint64 // how far the region had read the others
}

// drains are a ride in which only operations with opids are counted, each with a digit of its own, and every
// deletion is a drain.
type drains struct {
	*ride
	out []handedOut
}

// digit is what an operation adds.
func digit(x int) int64 { return 1 << (4 * x) }

// has reports whether an amount has an operation, and whether more than once.
func has(amount int64, x int) (once, twice bool) {
	n := amount >> (4 * x) & 15
	return n > 0, n > 1
}

// drain drains a counter: what is owed is not handed out.
func (d *drains) drain(at, k int) {
	r := &d.r[at]
	p := r.parts(k)
	if !p.Alive() || slices.ContainsFunc(p, func(q Part) bool {
		return q.Region != r.id && q.Clock > r.cur[q.Region]
	}) { // a take-back brought a winner's part ahead of the ids in it
		return
	}
	var owed []Owed
	for _, o := range append(r.owed[:len(r.owed):len(r.owed)], r.due...) {
		if o.k == k && !d.rules.drainsOwed {
			owed = append(owed, o.Owed)
		}
	}
	amount, _ := p.AsPaid(owed).Value()
	d.del(at, k, false)
	out := handedOut{amount: amount, heard: r.cur, deleted: d.hist.dels[len(d.hist.dels)-1]}
	out.heard[at] = r.seq
	d.out = append(d.out, out)
	d.say("%c drains %x of k%d; owed %+v", 'A'+at, amount, k, owed)
}

// run makes a run on one counter, in which changes come with the streams alone.
func (d *drains) run() string {
	for acts := 6 + d.rng.IntN(40); acts > 0; acts-- {
		for range 1 + d.rng.IntN(4) {
			if f, t := d.rng.IntN(regions), d.rng.IntN(regions); d.deliverOne(f, t) {
				d.say("%c takes from %c -> %+v", 'A'+t, 'A'+f, d.r[t].keys[0])
			}
		}
		switch at, n := d.rng.IntN(regions), d.rng.IntN(8); {
		case n < 4:
			x := 1 + d.rng.IntN(opids-1)
			d.act(inc(at, 0, x, digit(x)))
		case n < 6:
			d.drain(at, 0)
		case n == 6:
			d.heartbeat(at)
		default:
			d.pay(at, 0)
			if d.dropUndo(at, 0) {
				d.say("%c settles -> %+v", 'A'+at, d.r[at].keys[0])
			}
		}
	}
	d.deliverAll()
	if bad := d.payAll(d.deliverAll); bad != "" {
		return bad
	}
	if bad := d.settleAll(); bad != "" {
		return bad
	}
	if bad := d.end(); bad != "" {
		return bad
	}
	return d.once()
}

// settleAll lets regions forget take-backs until there is none.
func (d *drains) settleAll() string {
	for range 8 {
		left := 0
		for i := range d.r {
			d.heartbeat(i)
			d.deliverAll()
			if d.dropUndo(i, 0) {
				d.say("%c settles in the end -> %+v", 'A'+i, d.r[i].keys[0])
			}
			for _, q := range d.r[i].parts(0) {
				left += len(q.Undo)
			}
		}
		if bad := d.end(); bad != "" || left == 0 {
			return bad
		}
	}
	return fmt.Sprintf("take-backs stay for ever: %+v, debts %+v, %+v, %+v", d.r[0].parts(0), d.r[0].owed,
		d.r[1].owed, d.r[2].owed)
}

// once checks that each operation is in a drain or in the value; in no drain twice; and in two drains only if
// the later region did not know the earlier drain, or none of the applications of which that had one.
func (d *drains) once() string {
	value := d.r[0].value(0)
	for x := 1; x < opids; x++ {
		in, _ := has(value, x)
		counted, applied := in, false
		for _, a := range d.hist.apps {
			applied = applied || a.opid == x
		}
		for i, o := range d.out {
			once, twice := has(o.amount, x)
			if twice || once && in {
				return fmt.Sprintf("x%d is in drain %d, %x, twice, or also in the value %x", x, i, o.amount, value)
			}
			counted = counted || once
			for j, before := range d.out[:i] {
				if was, _ := has(before.amount, x); was && once && d.knew(o, before, x) {
					return fmt.Sprintf("x%d is in drain %d, and in drain %d, which knew that", x, j, i)
				}
			}
		}
		if applied != counted {
			return fmt.Sprintf("x%d is in no drain, nor in the value %x", x, value)
		}
	}
	return ""
}

// knew reports whether the region that drained last knew that the drain before had an operation.
func (d *drains) knew(o, before handedOut, x int) bool {
	if o.heard[before.owner] < before.seq {
		return false
	}
	for _, a := range d.hist.apps {
		if a.opid == x && a.dot <= before.heard[a.owner] && a.dot <= o.heard[a.owner] {
			return true
		}
	}
	return false
}

// TestDrains: of what regions hand out as they delete it, each operation is handed out once, unless two
// regions did it before one of them could know.
func TestDrains(t *testing.T) {
	t.Parallel()
	for _, ru := range []rules{{}, {drainsOwed: true}} {
		t.Run(fmt.Sprint("with what is owed ", ru.drainsOwed), func(t *testing.T) {
			for seed := range uint64(*runs) {
				d := &drains{ride: newRide(seed, ru)}
				switch bad := d.run(); {
				case bad != "" && ru.drainsOwed:
					t.Logf("seed %d: %s", seed, bad)
					return
				case bad != "":
					t.Fatalf("seed %d: %s\n\t%s", seed, bad, strings.Join(d.trace, "\n\t"))
				}
			}
			if ru.drainsOwed {
				t.Error("nobody noticed")
			}
		})
	}
}

// TestChainIsOwed: of an operation that three regions have applied the last one drains its own, and owes the
// second one's region a take-back. That region keeps its own take-back until the debt is paid: else nobody
// knows any more that the first application counts in the place of the second.
func TestChainIsOwed(t *testing.T) {
	t.Parallel()
	for _, ru := range []rules{{}, {noDebts: true}} {
		w := newWorld(ru)
		for i, made := range []int64{100, 20, 3} {
			w.increment(i, 0, 1, made, i)
		}
		w.del(2, 0, false)
		w.r[2].full = true
		w.deliverOne(1, 2) // it owes that
		w.r[2].full = false
		w.deliverAll()
		for i := range w.r {
			w.heartbeat(i)
		}
		w.deliverAll()
		w.dropUndo(1, 0)
		w.pay(2, 0)
		w.deliverAll()
		if bad := w.end(); (bad != "") != ru.noDebts {
			t.Errorf("without a look at debts %v: %q", ru.noDebts, bad)
		}
	}
}
