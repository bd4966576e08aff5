package part

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// ride is one run of a world by chance, with what happened.
type ride struct {
	*world
	rng   *rand.Rand
	ranks [counters][ids][]int
	trace []string
	lost  int // a region that is lost; -1: none
}

func newRide(seed uint64, ru rules) *ride {
	if seed%2 == 1 && !ru.dropEarly && !ru.ackAtOnce { // whose counterexamples have room
		ru.room = 1
	}
	r := &ride{world: newWorld(ru), rng: rand.New(rand.NewPCG(seed, 1)), lost: -1}
	for k := range r.ranks {
		for x := range r.ranks[k] {
			r.ranks[k][x] = r.rng.Perm(regions)
		}
	}
	return r
}

func (r *ride) say(format string, args ...any) {
	r.trace = append(r.trace, fmt.Sprintf(format, args...))
}

func (r *ride) act(a act) {
	if a.kind == "inc" {
		a.rank = r.ranks[a.k][a.opid][a.at]
	}
	r.do(a)
	r.say("%v -> %+v", a, r.r[a.at].keys[a.k])
}

// deliver delivers the next message from f to t, sometimes as a whole part, or as both: what a
// region that exchanges states as well meets. It reports whether there was one.
func (r *ride) deliver(f, t int) bool {
	if f == t || f == r.lost || t == r.lost {
		return false
	}
	for mi := range r.r[f].log {
		m := &r.r[f].log[mi]
		if m.seq <= r.r[t].cur[f] {
			continue
		}
		mode := r.rng.IntN(8)
		if mode == 0 && m.whole != nil { // the state came before the message
			r.r[t].edit(m.key).Merge(m.whole)
		}
		r.r[t].cur[f] = m.seq
		r.apply(t, m, mode == 1)
		r.say("%c takes %c's message %d (%d) -> %+v", 'A'+t, 'A'+f, m.seq, mode, r.r[t].keys[m.key])
		return true
	}
	return false
}

// deliverAll delivers everything.
func (r *ride) deliverAll() {
	for more := true; more; {
		more = false
		for f := range regions {
			for t := range regions {
				more = r.deliver(f, t) || more
			}
		}
	}
}

// randomRun is a run with partitions, deletions, SETs, expiries and state exchange, in which
// dead counters and undo entries are dropped. At the end all regions agree on the right value.
func randomRun(seed uint64, ru rules) (bad string, trace []string) {
	r := newRide(seed, ru)
	r.rules.drops = r.rng.IntN(4) != 0
	expires, cut := r.rng.IntN(3) == 0, -1
	for acts := 4 + r.rng.IntN(12); acts > 0; acts-- {
		for range 1 + r.rng.IntN(4) {
			if f, t := r.rng.IntN(regions), r.rng.IntN(regions); f != cut && t != cut {
				r.deliver(f, t)
			}
		}
		if r.rng.IntN(8) == 0 {
			cut = r.rng.IntN(regions+1) - 1 // this region is alone
		}
		r.anything(expires, acts)
		if bad = r.always(false); bad == "" {
			bad = r.sameParts()
		}
		if bad != "" {
			return bad, r.trace
		}
	}
	for i := 0; expires && i < regions; i++ {
		r.tick(i)
		r.say("%c: clock passes", 'A'+i)
	}
	r.deliverAll()
	if bad = r.payAll(r.deliverAll); bad != "" {
		return bad, r.trace
	}
	if bad = r.end(); bad == "" && r.rules.drops {
		bad = r.dropAll()
	}
	return bad, r.trace
}

// anything does one thing at one region.
func (r *ride) anything(expires bool, left int) {
	at, k := r.rng.IntN(regions), r.rng.IntN(counters)
	switch n := r.rng.IntN(24); {
	case n < 8:
		r.act(inc(at, k, r.rng.IntN(opids), int64(1+r.rng.IntN(3))))
	case n < 11:
		r.act(act{kind: "del", at: at, k: k})
	case n == 11:
		r.act(act{kind: "set", at: at, k: k, value: int64(r.rng.IntN(5))})
	case n < 14 && expires:
		r.act(act{kind: "expire", at: at, k: k, value: int64(r.rng.IntN(3) / 2)})
	case n == 14 && expires && left < 4:
		r.act(act{kind: "tick", at: at})
	case n < 17:
		if r.dropUndo(at, k) {
			r.say("%c drops undo entries of k%d -> %+v", 'A'+at, k, r.r[at].keys[k])
		}
		if r.pay(at, k) {
			r.say("%c pays what is due of k%d -> %+v", 'A'+at, k, r.r[at].keys[k])
		}
	case n < 19:
		r.act(beat(at))
	case n < 22:
		r.tidy(at)
	case n == 22:
		if to := r.rng.IntN(regions); to != at {
			r.act(level(at, to))
		}
	case expires:
		r.act(passes(at, r.rng.IntN(regions)))
	}
}

// tidy closes and drops what is dead at a region.
func (r *ride) tidy(at int) {
	for k := 0; r.rules.drops && k < counters; k++ {
		if r.close(at, k) {
			r.say("%c closes k%d -> %+v", 'A'+at, k, r.r[at].keys[k])
		}
		if r.drop(at, k) {
			r.say("%c drops k%d", 'A'+at, k)
		}
	}
}

// dropAll shows that what is dead goes everywhere, when everybody has said so.
func (r *ride) dropAll() string {
	for range 3 {
		for i := range regions {
			r.tidy(i)
			r.heartbeat(i)
		}
		r.deliverAll()
	}
	for i := range regions {
		r.tidy(i)
		for k := range counters {
			if p := r.r[i].parts(k); len(p) > 0 && !p.Alive() {
				return fmt.Sprintf("dead k%d stays at %c: %+v", k, 'A'+i, p)
			}
		}
	}
	return r.end()
}

// TestRandomRuns makes runs by chance.
func TestRandomRuns(t *testing.T) {
	t.Parallel()
	for seed := range uint64(*runs) {
		if bad, trace := randomRun(seed, rules{}); bad != "" {
			t.Fatalf("seed %d: %s\n\t%s", seed, bad, strings.Join(trace, "\n\t"))
		}
	}
	t.Logf("seeds 0 to %d", *runs-1)
}

// TestDroppedEarly: it takes longer runs to see that something is dropped too early.
func TestDroppedEarly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rules rules
		from  uint64 // saves time: a smaller seed shows nothing today
	}{
		"undo entries that not all have acknowledged":       {rules{dropEarly: true}, 4900},
		"counters, by acknowledgements outside the streams": {rules{ackAtOnce: true}, 12_700},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := c.from; seed < 1_000_000; seed++ {
				if bad, _ := randomRun(seed, c.rules); bad != "" {
					t.Logf("seed %d: %s", seed, bad)
					return
				}
			}
			t.Error("nobody noticed")
		})
	}
}

// TestMergeLaws: the merge is commutative, associative and idempotent, on parts that runs reach.
func TestMergeLaws(t *testing.T) {
	t.Parallel()
	join := func(a, b Parts) Parts {
		c := append(Parts(nil), a...)
		c.Merge(b)
		return c
	}
	same := func(a, b Parts) bool { return string(a.AppendTo(nil)) == string(b.AppendTo(nil)) }
	checked := 0
	for seed := range uint64(*runs / 3) {
		r := newRide(seed, rules{drops: seed%2 == 0})
		var pool []Parts
		for range 30 {
			r.deliver(r.rng.IntN(regions), r.rng.IntN(regions))
			r.anything(true, 10)
			pool = append(pool, r.r[r.rng.IntN(regions)].parts(0))
		}
		for range 30 {
			a, b, c := pool[r.rng.IntN(len(pool))], pool[r.rng.IntN(len(pool))], pool[r.rng.IntN(len(pool))]
			if !same(join(a, b), join(b, a)) || !same(join(join(a, b), c), join(a, join(b, c))) ||
				!same(join(a, a), a) {
				t.Fatalf("seed %d: the laws do not hold for\n%+v\n%+v\n%+v", seed, a, b, c)
			}
			checked++
		}
	}
	t.Logf("%d triples", checked)
}
