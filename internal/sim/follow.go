package sim

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fbfkv/fbfkv/store"
)

// follower follows the counters of a cluster with one cursor, which it shows to all machines as it likes, and
// sometimes goes back to an older one. Its changes must add up: none is missing, none comes twice.
type follower struct {
	c       *clusterWorld
	client  *Client
	rng     *rand.Rand
	now     followed
	earlier followed
	anew    int // how often it had to begin with a snapshot
	ended   atomic.Bool
	running sync.WaitGroup
}

// followed is what a follower knows at its cursor.
type followed struct {
	cursor string
	values map[string]string
	last   map[int64][2]int64 // sequence and index, by partition
}

func (f followed) clone() followed {
	return followed{f.cursor, maps.Clone(f.values), maps.Clone(f.last)}
}

// follow begins to follow the counters.
func (c *clusterWorld) follow() *follower {
	f := &follower{c: c, client: NewClient(c.w), rng: c.w.Rand()}
	f.begin()
	f.run()
	return f
}

// run asks until the follower is checked.
func (f *follower) run() {
	f.ended.Store(false)
	f.running.Go(func() {
		for !f.ended.Load() && f.c.w.Failure() == "" {
			f.ask(f.c.machines[f.rng.IntN(len(f.c.machines))])
			time.Sleep(time.Duration(f.rng.IntN(200)) * time.Millisecond)
			switch f.rng.IntN(100) {
			case 0:
				f.now = f.earlier.clone()
			case 1:
				f.earlier = f.now.clone()
			}
		}
	})
}

// begin begins with a snapshot.
func (f *follower) begin() {
	f.now = followed{"SNAPSHOT", map[string]string{}, map[int64][2]int64{}}
	f.earlier = f.now.clone()
}

// ask asks a machine once.
func (f *follower) ask(m *Machine) {
	reply, err := f.client.Do(m.Address(clientPort), time.Second, "CFOLLOW", "sim", f.now.cursor, "COUNT",
		strconv.Itoa(1+f.rng.IntN(200)), "BLOCK", strconv.Itoa(f.rng.IntN(2)*50))
	var refused replyError
	switch {
	case errors.As(err, &refused) && strings.HasPrefix(string(refused), "LOST "):
		// Another replica may have it, but in a shard none of whose replicas is old, none has.
		if f.rng.IntN(20) == 0 {
			f.c.w.Say("the follower begins anew: %v", refused)
			f.anew++
			f.begin()
		}
		return
	case errors.As(err, &refused) && (strings.HasPrefix(string(refused), "ERR the cursor") ||
		strings.Contains(string(refused), "damaged")):
		f.c.w.Fail("machine %d answers a follower %v", m.Index(), refused)
	}
	list, _ := reply.([]any)
	if err != nil || len(list) != 2 {
		return
	}
	changes, _ := list[1].([]any)
	for _, c := range changes {
		if wrong := f.take(c.([]any)); wrong != "" {
			f.c.w.Fail("machine %d tells a follower %q: %s", m.Index(), c, wrong)
			return
		}
	}
	f.now.cursor = list[0].(string)
}

// take takes in a change, and returns what is wrong with it.
func (f *follower) take(c []any) string {
	p, at, what := c[0].(int64), [2]int64{c[1].(int64), c[2].(int64)}, c[3].(string)
	last, told := f.now.last[p], slices.Clone(at[:])
	if f.now.last[p] = at; what == "snapshot" {
		f.now.end(p)
		return ""
	}
	if slices.Compare(told, last[:]) <= 0 {
		return fmt.Sprintf("behind %d", last)
	}
	if what == "flushed" {
		f.now.end(p)
		return ""
	}
	key, value := c[4].(string), fmt.Sprint(c[7])
	before, known := f.now.values[key]
	switch what {
	case "value":
		if known {
			return "it was told before: " + before
		}
	case "add":
		is, err1 := strconv.ParseInt(value, 10, 64)
		by, err2 := strconv.ParseInt(fmt.Sprint(c[6]), 10, 64)
		was, err3 := int64(0), error(nil)
		if known {
			was, err3 = strconv.ParseInt(before, 10, 64)
		}
		if err1 == nil && err2 == nil && err3 == nil && was+by != is { // else it has decimals
			return fmt.Sprintf("it was %d", was)
		}
	case "drained", "deleted", "expired":
		if !known {
			return "it did not exist"
		}
		delete(f.now.values, key)
		return ""
	}
	f.now.values[key] = value
	return ""
}

// end forgets all keys of a partition.
func (f *followed) end(p int64) {
	maps.DeleteFunc(f.values, func(key string, _ string) bool {
		return int64(store.Slot([]byte(key)))*partitions>>14 == p
	})
}

// check fails the world unless the follower gets to know some facts about counters.
func (f *follower) check(facts []Fact) {
	f.ended.Store(true)
	f.running.Wait()
	f.c.w.insist("the follower knows what all counters are", func() error {
		for range 3 {
			for _, m := range f.c.machines {
				f.ask(m)
			}
		}
		for _, fact := range facts {
			is, exists := f.now.values[fact.Query[1]]
			if !exists {
				is = fmt.Sprint(nil)
			}
			if fact.Query[0] == "CGET" && is != fact.Answer {
				return fmt.Errorf("%s is %s, and the follower has %s", fact.Query[1], fact.Answer, is)
			}
		}
		return nil
	}, func() { f.c.w.Say("the follower has %v", f.now) })
	f.c.w.Say("the follower has %d counters, and began %d times anew", len(f.now.values), f.anew)
}
