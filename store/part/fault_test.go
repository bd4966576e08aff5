package part

import (
	"strings"
	"testing"
)

// fault is what happens to a run, and what is left out of its repair.
type fault struct {
	restore, gap, forget                bool
	noLevel, noJump, noIDs, forgetEarly bool
	converge                            bool // the sums are equal, but may be wrong
	bad                                 bool // some run must fail
}

var faults = map[string]fault{
	"gap, state with ids":                    {gap: true},
	"gap, state without ids":                 {gap: true, noIDs: true, bad: true},
	"restore, levelled, jump":                {restore: true},
	"restore, no jump":                       {restore: true, noJump: true, bad: true},
	"restore, not levelled":                  {restore: true, noLevel: true, bad: true},
	"restore, without ids":                   {restore: true, noIDs: true, bad: true},
	"forgetting when all have said":          {forget: true},
	"forgetting early":                       {forget: true, forgetEarly: true, bad: true},
	"forgetting early, but regions converge": {forget: true, forgetEarly: true, converge: true},
}

// TestFaults: what regions do about gaps, restored regions and forgotten ids makes the
// sums right; and each thing left out is noticed.
func TestFaults(t *testing.T) {
	t.Parallel()
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			most := *runs / 3
			if f.bad {
				most = 100_000
			}
			for seed := range uint64(most) {
				r := &broken{ride: newRide(seed, rules{}), fault: f}
				if f.restore { // it has forgotten what it owes
					r.rules.room = 0
				}
				switch bad := r.run(); {
				case bad != "" && f.bad:
					t.Logf("seed %d: %s", seed, bad)
					return
				case bad != "":
					t.Fatalf("seed %d: %s\n\t%s", seed, bad, strings.Join(r.trace, "\n\t"))
				}
			}
			if f.bad {
				t.Error("nobody noticed")
			}
		})
	}
}

// broken is a ride with a fault.
type broken struct {
	*ride
	fault
	over   [counters][ids]bool // ids that no client uses any more
	backup *region
}

func (r *broken) run() string {
	event := 5 + r.rng.IntN(40)
	for acts := 4 + r.rng.IntN(10); acts > 0; {
		at, k := r.rng.IntN(regions), r.rng.IntN(counters)
		if r.one(at, k) {
			acts--
		}
		if event--; event <= 0 && r.restore && r.backup != nil && r.rng.IntN(4) == 0 {
			r.restoreB()
		}
	}
	r.deliverAll()
	if bad := r.payAll(r.deliverAll); bad != "" {
		return bad
	}
	if !r.converge {
		return r.end()
	}
	for i := range regions {
		for k := range counters {
			if r.r[i].value(k) != r.r[0].value(k) {
				return "DIVERGED"
			}
		}
	}
	return ""
}

// one does one thing; it reports whether it was a client's.
func (r *broken) one(at, k int) bool {
	switch n := r.rng.IntN(16); {
	case n < 4:
		x := r.rng.IntN(opids)
		if r.over[k][x] {
			return false
		}
		r.act(inc(at, k, x, 1))
		return true
	case n == 4:
		r.act(act{kind: "del", at: at, k: k})
		return true
	case n == 5:
		r.act(act{kind: "set", at: at, k: k, value: int64(r.rng.IntN(5))})
		return true
	case n < 8 && r.restore && r.backup == nil && at == 1:
		backup := r.r[1]
		backup.log = nil
		r.backup = &backup
		r.say("B: backup at %d", backup.seq)
	case n == 7 && r.gap:
		if to := r.rng.IntN(regions); to != at && r.r[to].cur[at] < r.r[at].seq {
			r.say("%c's log was trimmed; %c takes its state", 'A'+at, 'A'+to)
			r.sync(at, to, !r.noIDs)
			r.r[to].cur[at] = r.r[at].seq
		}
	case n == 8 && r.forget:
		r.forgetID(at, k, 1+r.rng.IntN(opids-1))
	case n == 9 && r.forget:
		r.heartbeat(at)
	default:
		r.deliver(at, r.rng.IntN(regions))
	}
	return false
}

// forgetID forgets a record, if all regions have said that they took it.
func (r *broken) forgetID(at, k, x int) {
	a := &r.r[at].own[k][x]
	ok := a.dot != 0 && !a.taken
	for j := range regions {
		ok = ok && (j == at || r.forgetEarly || r.r[at].acked[j][at] >= a.dot)
	}
	if ok {
		a.dot = 0
		r.r[at].known[k][x] = 1 // a duplicate for ever: no client retries any more
		r.over[k][x] = true
		r.say("%c forgets its k%d x%d", 'A'+at, k, x)
	}
}

// levelOut gives two survivors what the other has of a region.
func (r *broken) levelOut(a, b, lost int) {
	if r.noLevel {
		return
	}
	r.sync(a, b, !r.noIDs)
	r.sync(b, a, !r.noIDs)
	both := max(r.r[a].cur[lost], r.r[b].cur[lost])
	r.r[a].cur[lost], r.r[b].cur[lost] = both, both
}

// restoreB goes back to B's backup; the others have more of its stream.
func (r *broken) restoreB() {
	old := *r.backup
	r.backup, r.restore = nil, false
	told := max(r.r[0].cur[1], r.r[2].cur[1])
	b := &r.r[1]
	*b = old
	if !r.noJump {
		b.seq = max(told, old.seq)
	}
	r.say("B is restored as of %d; others have it up to %d", old.seq, told)
	if !r.noLevel {
		r.levelOut(0, 2, 1)
		for _, j := range []int{0, 2} {
			r.sync(j, 1, !r.noIDs)
			b.cur[j] = r.r[j].seq
		}
	}
	r.hist.forget(1, max(told, old.seq))
	for i := range b.log { // the others may lack what a change would be added to: they take states
		b.log[i].kind = 'w'
	}
	for k := range counters { // whatever the others lack of it is its state now
		b.seq++
		b.change(k, message{kind: 'w'})
		for x := 1; x < opids; x++ {
			if a := b.own[k][x]; a.dot != 0 {
				b.seq++
				b.change(k, message{kind: 'w', opid: x, rank: a.rank, made: a.made, dot: a.dot})
			}
		}
	}
	if !r.noJump {
		r.r[0].cur[1], r.r[2].cur[1] = told, told
	}
}

// forget drops what a region did after upTo: it has told nobody, and its backup lacks it.
func (h *history) forget(owner Region, upTo uint64) {
	var apps []applied
	for _, a := range h.apps {
		if a.owner != owner || a.dot <= upTo {
			apps = append(apps, a)
		}
	}
	var dels []deleted
	for _, d := range h.dels {
		if d.owner != owner || d.seq <= upTo {
			dels = append(dels, d)
		}
	}
	var sets []assigned
	for _, s := range h.sets {
		if s.owner != owner || s.dot <= upTo {
			sets = append(sets, s)
		}
	}
	h.apps, h.dels, h.sets = apps, dels, sets
}
