package sim

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Counters of all regions that are not only counted. Their names begin with this and a colon.
const (
	// drainedKey: one region hands out what the counter has, and deletes it (GETDEL). An operation
	// is sent to one region only until that answers, since a twin that was drained counts twice:
	// "Drained twins" of docs/design/regions.md.
	drainedKey = "drained"
	// handedKey: any region hands out what the counter has (CGETDEL), and clients send that again elsewhere.
	handedKey = "handed"
	// expiringKey: each increment of the counter has an expiry, so that all regions have deleted it
	// in the end.
	expiringKey = "expiring"
	// briefKey: regions forget operations after briefWindow, and what two of them have applied
	// still counts once.
	briefKey = "brief"
	// looseKey: clients do to the counter what they like in any region, and all regions show the
	// same in the end.
	looseKey = "loose"

	// boundedKey: no region ever answers with a value of the counter beyond the bounds of its table, whatever
	// clients do, and all show the same in the end.
	boundedKey = "bounded"
	minBounded = -5
	maxBounded = 40

	looseCounters = 6
	briefWindow   = 15 * time.Second
	// briefly is for how long an operation on such a counter is sent again.
	briefly = 5 * time.Second
)

// kindOf returns which kind of counter has a name.
func kindOf(key string) string {
	kind, _, _ := strings.Cut(key, ":")
	return kind
}

// drain increments a counter that is drained, or drains it. After a region is gone there are others.
func (c *regionClient) drain(other *regionClient, id string) {
	c.mu.Lock()
	key := fmt.Sprint(drainedKey, ":", c.removed, "-", c.rng.IntN(2))
	if c.drainers[key] == nil {
		c.drainers[key] = c.regions[c.rng.IntN(len(c.regions))]
	}
	at := c.drainers[key]
	c.mu.Unlock()
	if c.rng.IntN(6) > 0 {
		at = c.pick()
		o := c.history.New(key, id)
		if c.drainTwins.Load() {
			c.twice(other, o, func() { c.until(o) })
			return
		}
		for !c.over() {
			if _, ok := c.count(o, at, c.patience()); ok {
				return
			}
			c.rest()
			if c.gone(at) {
				break
			}
		}
		c.history.Doubt(key)
		return
	}
	reply, ok, refused := c.do(at, key, c.patience(), "GETDEL", key)
	if text, _ := reply.(string); ok {
		n, _ := strconv.ParseInt(text, 10, 64)
		c.history.Drained(key, n)
	} else if !refused {
		c.history.Doubt(key)
	}
}

// handOut increments a counter that is handed out, or hands it out, in one region after the other until one
// has answered.
func (c *regionClient) handOut(other *regionClient, id string) {
	key := fmt.Sprint(handedKey, ":", c.rng.IntN(2))
	if c.rng.IntN(3) > 0 {
		o := c.history.New(key, id)
		c.twice(other, o, func() { c.until(o) })
		return
	}
	o := c.history.Drain(key, id)
	for !c.over() {
		if _, ok := c.drained(o, c.pick(), c.patience()); ok {
			return
		}
		c.rest()
	}
}

// drained drains a counter in a region, and reports whether that was answered, and with what.
func (c *regionClient) drained(o *RegionOp, at *region, patience time.Duration) (value int64, ok bool) {
	reply, ok, _ := c.do(at, o.Key, patience, "CGETDEL", o.Key, o.ID)
	text, _ := reply.(string) // nil: there was nothing
	value, _ = strconv.ParseInt(text, 10, 64)
	c.history.mu.Lock()
	defer c.history.mu.Unlock()
	c.history.note(o, "%s says %v (%v)", at, reply, ok)
	return value, ok
}

// drainsAgain sends all drains again, and notes what they have handed out: what all regions answer.
func (s *regionsWorld) drainsAgain() {
	c := s.connect()
	for _, o := range s.history.Drains() {
		value := int64(0)
		s.await(time.Minute, fmt.Sprintf("all answer the drain %s of %s alike", o.ID, o.Key), func() error {
			for i, at := range s.living() {
				n, ok := c.drained(o, at, time.Second)
				if !ok || i > 0 && n != value {
					return fmt.Errorf("%s answers %d (%v), and another one %d", at, n, ok, value)
				}
				value = n
			}
			return nil
		})
		s.history.Drained(o.Key, value)
	}
}

// brief increments a counter in two regions at once, or in one after the other, for a while.
func (c *regionClient) brief(other *regionClient, id string) {
	c.mu.Lock()
	key := fmt.Sprint(briefKey, ":", c.removed, "-", int(c.w.Now().Minutes()))
	c.mu.Unlock()
	o := c.history.New(key, id)
	began, done := time.Now(), false
	c.twice(other, o, func() {
		for !done && time.Since(began) < briefly {
			if _, done = c.count(o, c.pick(), time.Second); !done {
				c.rest()
			}
		}
	})
	if !done {
		c.history.Doubt(o.Key)
	}
}

// loosely does something to a counter, whatever others do to it elsewhere.
func (c *regionClient) loosely(id string) {
	key := fmt.Sprint(looseKey, ":", c.rng.IntN(looseCounters))
	n := strconv.Itoa(1 + c.rng.IntN(3000))
	all := [][]string{{"SET", key, n}, {"DEL", key}, {"GETDEL", key}, {"PEXPIRE", key, n}, {"PEXPIRE", key,
		"86400000"}, {"PERSIST", key},
		{"INCRBY", key, n}, {"SET", key, n, "PX", n}, {"CINCRBY", key, id, n},
		{"CINCRBY", key, id, n, "PX", n}}
	words := all[c.rng.IntN(len(all))]
	for range 1 + c.rng.IntN(2) {
		c.do(c.pick(), key, time.Second, words...)
	}
}

// within changes a counter that has bounds, in one region or in several, and fails the world if an answer is
// beyond the bounds.
func (c *regionClient) within(id string) {
	key := fmt.Sprint(boundedKey, ":", c.rng.IntN(looseCounters))
	n := strconv.Itoa(c.rng.IntN(16) - 5)
	// no GET: a region that has just joined shows a part of the sum, and changes nothing yet
	all := [][]string{{"CINCRBY", key, id, n}, {"CINCRBY", key, id, n}, {"INCRBY", key, n}, {"CGETDEL", key, id}}
	words := all[c.rng.IntN(len(all))]
	for range 1 + c.rng.IntN(3) {
		at := c.pick()
		reply, ok, _ := c.do(at, key, time.Second, words...)
		if text, is := reply.(string); is {
			reply, _ = strconv.ParseInt(text, 10, 64)
		}
		if v, is := reply.(int64); ok && is && (v < minBounded || v > maxBounded) {
			c.w.Fail("%s answers %q with %d, beyond %d to %d", at, words, v, minBounded, maxBounded)
		}
	}
}

// looseFacts returns what all regions must show alike, whatever that is.
func (s *regionsWorld) looseFacts() (all []Fact) {
	for i := range looseCounters {
		all = append(all, Fact{Query: []string{"CGET", fmt.Sprint(boundedKey, ":", i)}})
		key := fmt.Sprint(looseKey, ":", i)
		all = append(all, Fact{Query: []string{"CGET", key}}, Fact{Query: []string{"PEXPIRETIME", key}})
	}
	return all
}

// alike returns an error unless all regions give the same answers.
func (c *regionClient) alike(all []Fact) error {
	for _, f := range all {
		for i, at := range c.living() {
			reply, ok, _ := c.do(at, f.Query[1], time.Second, f.Query...)
			if i == 0 {
				f.Answer = fmt.Sprint(reply)
			}
			if !ok || fmt.Sprint(reply) != f.Answer {
				return fmt.Errorf("%s answers %q with %v, and another one with %s", at, f.Query, reply,
					f.Answer)
			}
		}
	}
	return nil
}
