package part

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
)

var (
	runs = flag.Int("part.runs", 3000, "random runs of each kind")
	wide = flag.Bool("part.wide", false, "all orders of ranks in the exhaustive checks; takes minutes")
)

// act is something that a client, an operator or the clock does at a region.
type act struct {
	kind  string
	at, k int
	opid  int
	value int64
	rank  int
}

func (a act) String() string {
	s := fmt.Sprintf("%c: %s k%d", 'A'+a.at, a.kind, a.k)
	if a.kind == "inc" {
		s += fmt.Sprintf(" x%d (rank %d)", a.opid, a.rank)
	}
	return s + fmt.Sprintf(" %d", a.value)
}

func inc(at, k, opid int, v int64) act { return act{kind: "inc", at: at, k: k, opid: opid, value: v} }
func del(at int) act                   { return act{kind: "del", at: at} }
func set(at int, v int64) act          { return act{kind: "set", at: at, value: v} }
func expire(at int) act                { return act{kind: "expire", at: at, value: 1} }
func tick(at int) act                  { return act{kind: "tick", at: at} }
func passes(at, of int) act            { return act{kind: "passes", at: at, value: int64(of)} }
func beat(at int) act                  { return act{kind: "beat", at: at} }
func level(from, to int) act           { return act{kind: "state", at: from, value: int64(to)} }

func (w *world) do(a act) {
	switch a.kind {
	case "inc":
		w.increment(a.at, a.k, a.opid, a.value, a.rank)
	case "del":
		w.del(a.at, a.k, false)
	case "set":
		w.set(a.at, a.k, a.value)
	case "expire":
		w.expire(a.at, a.k, a.value)
	case "tick":
		w.tick(a.at)
	case "passes":
		w.passes(a.at, int(a.value))
	case "beat":
		w.heartbeat(a.at)
	case "state": // the receiver has lost its place in the stream: from now on it goes on behind the state
		to := int(a.value)
		w.sync(a.at, to, true)
		w.r[to].cur[a.at] = max(w.r[to].cur[a.at], w.r[a.at].seq)
	}
}

// twoTwins are two opids that A and B have applied both.
var twoTwins = []act{inc(0, 0, 1, 1), inc(0, 0, 2, 1), inc(1, 0, 1, 1), inc(1, 0, 2, 1)}

// ahead is a region whose clock is ahead, and which does nothing.
var ahead = []act{inc(0, 0, 0, 1), expire(0), inc(0, 0, 0, 1), tick(2)}

// prolonged is a counter that does not expire any more, of which another region does not know.
var prolonged = []act{inc(0, 0, 0, 1), expire(0), {kind: "expire"}, tick(0), passes(1, 0), inc(1, 0, 0, 1)}

// scripts are what regions do; the checks try all interleavings of it with the messages.
var scripts = map[string]struct {
	rules rules
	floor bool // no region may show less than the operations it knows of
	acts  []act
}{
	"twins": {floor: true, acts: []act{inc(0, 0, 1, 1), inc(1, 0, 1, 1), inc(2, 0, 1, 1)}},
	"two ids": {floor: true,
		acts: []act{inc(0, 0, 1, 1), inc(1, 0, 1, 1), inc(1, 0, 2, 1), inc(2, 0, 2, 1)}},
	"two keys": {floor: true,
		acts: []act{inc(0, 0, 1, 1), inc(0, 1, 1, 1), inc(1, 0, 1, 1), inc(1, 1, 1, 1)}},
	"retry":       {floor: true, acts: []act{inc(0, 0, 1, 1), inc(1, 0, 1, 1), inc(1, 0, 1, 1)}},
	"mismatch":    {acts: []act{inc(0, 0, 1, 1), inc(1, 0, 1, 5)}},
	"del":         {acts: []act{inc(0, 0, 1, 1), inc(1, 0, 1, 1), del(2)}},
	"del3":        {acts: []act{inc(0, 0, 1, 1), inc(1, 0, 1, 1), inc(2, 0, 1, 1), del(2)}},
	"del reuse":   {acts: []act{inc(0, 0, 1, 1), inc(1, 0, 1, 1), del(2), inc(1, 0, 0, 1)}},
	"del del":     {acts: []act{inc(0, 0, 1, 1), inc(1, 0, 1, 1), del(2), del(1)}},
	"set":         {acts: []act{inc(0, 0, 1, 1), inc(1, 0, 1, 1), set(2, 9)}},
	"set set":     {acts: []act{inc(0, 0, 1, 1), set(1, 9), set(2, 7)}},
	"set reuse":   {acts: []act{inc(1, 0, 0, 3), del(0), set(1, 9), inc(1, 0, 0, 1)}},
	"expire":      {acts: []act{inc(0, 0, 0, 1), expire(0), inc(1, 0, 0, 1), tick(0), tick(1), tick(2)}},
	"expire del":  {acts: []act{inc(0, 0, 0, 1), expire(1), del(2)}},
	"ahead":       {acts: ahead},
	"ahead inc":   {acts: []act{inc(0, 0, 0, 1), expire(0), tick(2), inc(2, 0, 0, 1), tick(0), passes(2, 0)}},
	"ahead set":   {acts: []act{inc(0, 0, 0, 1), expire(0), tick(2), set(2, 9), tick(0), passes(2, 0)}},
	"prolonged":   {acts: prolonged},
	"any order":   {rules: rules{wholes: true}, acts: []act{inc(0, 0, 1, 1), inc(1, 0, 1, 1), del(2)}},
	"any order 2": {rules: rules{wholes: true}, acts: []act{inc(0, 0, 1, 1), inc(1, 0, 1, 1), set(2, 9)}},
	"any order 3": {rules: rules{wholes: true}, acts: []act{inc(0, 0, 1, 1), del(1), inc(0, 0, 2, 1)}},
	"drop": {rules: rules{drops: true},
		acts: []act{inc(0, 0, 0, 3), del(0), beat(1), beat(2), inc(0, 0, 0, 1)}},
	"drop 2": {rules: rules{drops: true},
		acts: []act{inc(1, 0, 0, 3), del(0), beat(2), inc(1, 0, 0, 1)}},
	"drop twins": {rules: rules{drops: true},
		acts: []act{inc(0, 0, 1, 1), inc(1, 0, 1, 1), del(1), beat(2)}},
	"drop state": {rules: rules{drops: true},
		acts: []act{inc(0, 0, 0, 3), del(0), beat(1), beat(2), inc(0, 0, 0, 1), level(0, 1)}},
	"room":     {rules: rules{room: 1}, floor: true, acts: twoTwins},
	"room del": {rules: rules{room: 1}, acts: append(slices.Clone(twoTwins), del(2))},
	"room drop": {rules: rules{room: 1, drops: true},
		acts: append(slices.Clone(twoTwins), del(1), beat(2), inc(1, 0, 0, 1))},
	"drop state 2": {rules: rules{drops: true},
		acts: []act{inc(0, 0, 0, 3), del(1), beat(2), inc(0, 0, 0, 1), level(1, 0)}},
}

// checker explores all interleavings of a script, shortest first.
type checker struct {
	acts  []act
	rules rules
	floor bool
	limit int
	nodes []node
	got   map[uint64]struct{}
	ends  int
	bad   string
}

type node struct {
	w      *world
	parent int
	what   string
	seen   [regions][regions]uint32 // in any order: which messages were taken
}

// step adds the world that an action makes of node at; false if something is wrong with it.
func (c *checker) step(at int, change func(w *world, seen *[regions][regions]uint32) string) bool {
	w := *c.nodes[at].w
	seen := c.nodes[at].seen
	what := change(&w, &seen)
	h := w.hash()
	if c.rules.wholes {
		for _, row := range seen {
			for _, s := range row {
				h = h*1099511628211 + uint64(s)
			}
		}
	}
	if _, ok := c.got[h]; ok {
		return true
	}
	c.got[h] = struct{}{}
	c.nodes = append(c.nodes, node{&w, at, what, seen})
	if c.bad == "" {
		c.bad = w.always(c.floor)
	}
	if c.bad == "" && !c.rules.noClosing && !c.rules.ownAcks {
		c.bad = w.sameParts()
	}
	if c.bad != "" {
		c.bad += c.trace(len(c.nodes) - 1)
	}
	return c.bad == ""
}

// trace is how node at came about.
func (c *checker) trace(at int) string {
	var steps []string
	for ; at > 0; at = c.nodes[at].parent {
		steps = append(steps, c.nodes[at].what)
	}
	slices.Reverse(steps)
	return "\n\t" + strings.Join(steps, "\n\t")
}

// run returns what is wrong, with the shortest way there.
func (c *checker) run() string {
	c.got = make(map[uint64]struct{})
	c.nodes = []node{{w: newWorld(c.rules), parent: -1}}
	for at := 0; at < len(c.nodes) && len(c.nodes) < c.limit && c.bad == ""; at++ {
		last := c.act(at) && c.bad == ""
		last = c.deliver(at) && last
		if c.rules.drops && c.bad == "" {
			last = c.tidy(at) && last
		}
		if last && c.bad == "" {
			c.ends++
			w := *c.nodes[at].w
			if c.rules.room > 0 {
				c.bad = w.payAll(w.deliverAll)
			}
			if c.bad == "" {
				c.bad = w.end()
			}
			if c.bad != "" {
				c.bad += c.trace(at)
			}
		}
		c.nodes[at].w = nil
	}
	return c.bad
}

// act does what the script has not done yet; it reports whether there is nothing.
func (c *checker) act(at int) bool {
	done := c.nodes[at].w.done
	for j, a := range c.acts {
		if done&(1<<j) == 0 && !c.step(at, func(w *world, _ *[regions][regions]uint32) string {
			w.done |= 1 << j
			w.do(a)
			return a.String()
		}) {
			return false
		}
	}
	return done == 1<<len(c.acts)-1
}

// deliver delivers what is on its way; it reports whether there is nothing.
func (c *checker) deliver(at int) bool {
	last := true
	now := c.nodes[at].w
	for f := range now.r {
		for t := range now.r {
			for mi := range now.r[f].log {
				m := &now.r[f].log[mi]
				if f == t || c.rules.wholes && c.nodes[at].seen[t][f]&(1<<mi) != 0 || !c.rules.wholes &&
					m.seq <= now.r[t].cur[f] {
					continue
				}
				last = false
				if !c.step(at, func(w *world, seen *[regions][regions]uint32) string {
					if c.rules.wholes {
						seen[t][f] |= 1 << mi
					} else {
						w.r[t].cur[f] = m.seq
					}
					w.apply(t, m, c.rules.wholes)
					if *wide || len(c.nodes)%8 == 0 {
						c.twice(w, t, m)
					}
					return fmt.Sprintf("%c takes %c's message %d", 'A'+t, 'A'+f, m.seq)
				}) {
					return false
				}
				if !c.rules.wholes {
					break
				}
			}
		}
	}
	return last
}

// twice takes a message again, which must change nothing.
func (c *checker) twice(w *world, t int, m *message) {
	again := *w
	again.apply(t, m, c.rules.wholes)
	if again.hash() != w.hash() {
		c.bad = fmt.Sprintf("message %d of %c changes something when it is taken twice: %+v", m.seq,
			'A'+m.from, w.r[t].keys)
	}
}

// tidy closes and drops what does not exist any more. Dropping may wait for ever, closing not;
// it reports whether there is nothing to close.
func (c *checker) tidy(at int) bool {
	last := true
	for i := range regions {
		for _, f := range []func(w *world, i, k int) bool{(*world).close, (*world).drop} {
			did := false
			probe := *c.nodes[at].w
			if did = f(&probe, i, 0); !did {
				continue
			}
			if len(probe.r[i].log) != len(c.nodes[at].w.r[i].log) {
				last = false
			}
			if !c.step(at, func(w *world, _ *[regions][regions]uint32) string {
				*w = probe
				return fmt.Sprintf("%c closes or drops k0", 'A'+i)
			}) {
				return false
			}
		}
	}
	return last
}

// ranked gives the applications of opids their ranks.
func ranked(acts []act, order []int) []act {
	acts = slices.Clone(acts)
	for i := range acts {
		acts[i].rank = order[(acts[i].at+max(acts[i].opid, 1)-1)%regions]
	}
	return acts
}

var orders = [][]int{{1, 0, 2}, {2, 1, 0}, {0, 1, 2}, {0, 2, 1}, {1, 2, 0}, {2, 0, 1}}

// TestScripts tries interleavings of each script and of its consequences, the shortest first: all of
// them with -part.wide.
func TestScripts(t *testing.T) {
	t.Parallel()
	for name, s := range scripts {
		t.Run(name, func(t *testing.T) {
			states, ends := 0, 0
			tried, limit := orders[:2], 5_000
			if *wide {
				tried, limit = orders, 1_500_000
			}
			if !slices.ContainsFunc(s.acts, func(a act) bool { return a.opid != 0 }) {
				tried = orders[:1] // there are no ranks
			}
			for _, order := range tried {
				c := checker{acts: ranked(s.acts, order), rules: s.rules, floor: s.floor, limit: limit}
				if bad := c.run(); bad != "" {
					t.Fatalf("ranks %v: %s", order, bad)
				}
				if *wide && len(c.nodes) >= c.limit {
					t.Errorf("more than %d states", c.limit)
				}
				states, ends = states+len(c.nodes), ends+c.ends
			}
			t.Logf("%d states, %d ends", states, ends)
		})
	}
}

// TestMistakes makes the mistakes that are not in this package but in its use: the checks
// notice each.
func TestMistakes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]checker{
		"a take-back does not carry the winner's part": {rules: rules{noCarry: true}, floor: true,
			acts: scripts["twins"].acts},
		"an expiry is not asserted again": {rules: rules{noAssert: true},
			acts: scripts["expire"].acts},
		"a region whose clock is ahead deletes": {rules: rules{ownClock: true}, acts: ahead},
		"a region that does not know of a later expiry deletes": {rules: rules{anyOwner: true},
			acts: prolonged},
		"dropped although parts are not closed": {rules: rules{drops: true, noClosing: true},
			acts: []act{inc(1, 0, 0, 3), del(0), beat(2), inc(1, 0, 0, 1), level(1, 2)}},
		"what has no room is not taken back": {rules: rules{room: 1, noDue: true},
			acts: twoTwins},
		"dropped when all have acknowledged my own stream": {rules: rules{drops: true, ownAcks: true},
			acts: scripts["drop 2"].acts},
	} {
		t.Run(name, func(t *testing.T) {
			c.limit = 1_000_000
			for _, order := range orders {
				d := c
				d.acts = ranked(c.acts, order)
				if bad := d.run(); bad != "" {
					t.Logf("after %d states: %s", len(d.nodes), bad)
					return
				}
			}
			t.Error("nobody noticed")
		})
	}
}
