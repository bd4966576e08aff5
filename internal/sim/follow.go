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

// follower follows the counters of a cluster, or of a server that is a region, with one cursor, which it
// shows to all machines as it likes, and sometimes goes back to an older one. Its changes must add up: none
// is missing, none comes twice.
type follower struct {
	w        *World
	machines []*Machine
	client   *Client
	rng      *rand.Rand
	now      followed
	earlier  followed
	anew     int            // how often it had to begin with a snapshot
	told     map[string]int // changes, by their names
	ended    atomic.Bool
	running  sync.WaitGroup
}

// followed is what a follower knows at its cursor.
type followed struct {
	cursor string
	values map[string]string
	last   map[int64][2]int64 // sequence and index, by partition
	count  int                // of partitions
}

func (f followed) clone() followed {
	return followed{f.cursor, maps.Clone(f.values), maps.Clone(f.last), f.count}
}

// follow begins to follow the counters of machines with so many partitions.
func (w *World) follow(machines []*Machine, count int) *follower {
	f := &follower{w: w, machines: machines, client: NewClient(w), rng: w.Rand(), told: make(map[string]int)}
	f.begin(count)
	f.run()
	return f
}

// run asks until the follower is checked.
func (f *follower) run() {
	f.ended.Store(false)
	f.running.Go(func() {
		for !f.ended.Load() && f.w.Failure() == "" {
			f.ask(f.machines[f.rng.IntN(len(f.machines))])
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
func (f *follower) begin(count int) {
	f.now = followed{"SNAPSHOT", map[string]string{}, map[int64][2]int64{}, count}
	f.earlier = f.now.clone()
}

// ask asks a machine once.
func (f *follower) ask(m *Machine) {
	reply, err := f.client.Do(m.Address(clientPort), time.Second, "CFOLLOW", "sim", f.now.cursor, "COUNT",
		strconv.Itoa(1+f.rng.IntN(200)), "BLOCK", strconv.Itoa(f.rng.IntN(2)*50))
	var refused replyError
	switch {
	case f.ended.Load() && err != nil: // the region was removed, or goes back in time
		return
	case errors.As(err, &refused) && strings.HasPrefix(string(refused), "LOST "):
		// Another replica may have it, but in a shard none of whose replicas is old, none has. A server whose
		// disk is nearly full keeps no log for followers.
		if len(f.machines) == 1 || f.rng.IntN(20) == 0 {
			f.w.Say("the follower begins anew: %v", refused)
			f.anew++
			f.begin(f.now.count)
		}
		return
	case errors.As(err, &refused) && (strings.HasPrefix(string(refused), "ERR the cursor") ||
		strings.Contains(string(refused), "damaged")):
		f.w.Fail("machine %d answers a follower %v", m.Index(), refused)
	}
	list, _ := reply.([]any)
	if err != nil || len(list) != 2 {
		return
	}
	changes, _ := list[1].([]any)
	for _, c := range changes {
		if wrong := f.take(c.([]any)); wrong != "" {
			f.w.Fail("machine %d tells a follower %q: %s", m.Index(), c, wrong)
			return
		}
	}
	f.now.cursor = list[0].(string)
}

// take takes in a change, and returns what is wrong with it.
func (f *follower) take(c []any) string {
	p, at, what := c[0].(int64), [2]int64{c[1].(int64), c[2].(int64)}, c[3].(string)
	last, told := f.now.last[p], slices.Clone(at[:])
	f.told[what]++
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
	case "add", "merged", "takeback":
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
		return int64(store.Slot([]byte(key)))*int64(f.count)>>14 == p
	})
}

// end lets it ask no more.
func (f *follower) end() {
	f.ended.Store(true)
	f.running.Wait()
}

// check fails the world unless the follower gets to know what facts say about counters.
func (f *follower) check(facts func() []Fact) {
	f.end()
	f.ended.Store(false)
	f.w.insist("the follower knows what all counters are", func() error {
		for range 3 {
			for _, m := range f.machines {
				f.ask(m)
			}
		}
		for _, fact := range facts() {
			is, exists := f.now.values[fact.Query[1]]
			if !exists {
				is = fmt.Sprint(nil)
			}
			if fact.Query[0] == "CGET" && is != fact.Answer {
				return fmt.Errorf("%s is %s, and the follower has %s", fact.Query[1], fact.Answer, is)
			}
		}
		return nil
	}, func() { f.w.Say("the follower has %v", f.now) })
	f.w.Say("the follower has %d counters, and began %d times anew; told %v", len(f.now.values), f.anew, f.told)
}
