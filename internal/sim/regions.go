package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fbfkv/fbfkv/cluster"
	"github.com/fbfkv/fbfkv/server"
	"github.com/fbfkv/fbfkv/store"
)

// Of the scenarios of regions.
const (
	regionCount = 3
	regionKeys  = 20
	// twoClusters is how probable it is that another region is a cluster as well, of two shards.
	twoClusters = 0.2
	// maxRegions is how many there may be in the life of a world: numbers are never given again.
	maxRegions = 14
)

// regionsWorld is the scenario of regions: servers that stand alone replicate to each other, and
// one of the regions may be a cluster. Clients send each operation to any region, again after a
// timeout, and elsewhere. Everything goes the way it goes for users: regions are made and changed
// by REGION, as `fbfkv region` does it.
type regionsWorld struct {
	w       *World
	load    *Workload // only to interpret replies
	history *RegionHistory
	nemesis *Nemesis
	options Options
	changes atomic.Bool // an operator changes who is a region
	ended   atomic.Bool // clients send nothing new
	// drainTwins: operations on counters that are drained are sent to several regions.
	drainTwins atomic.Bool
	running    sync.WaitGroup // clients of all regions

	mu       sync.Mutex
	regions  []*region          // in which clients count
	made     int                // regions so far
	removed  int                // regions so far
	left     []*Workload        // of regions that were removed, and the others have all of it
	drainers map[string]*region // by key: which region drains it
	result   Result
}

// region is one region.
type region struct {
	name     string
	machines []*Machine
	cluster  *clusterWorld // nil: a server that stands alone
	// load is what a client does in this region only. So it knows exactly what its counters are,
	// and the others must show it.
	load     *Workload
	running  sync.WaitGroup // that client
	follower *follower      // of what the region shows
	leapt    atomic.Bool    // its clock has
}

func (r *region) String() string { return r.name }

// RunRegions runs the scenario of regions, in a bubble. With shards, the first region is a cluster.
func RunRegions(o Options) Result {
	w := o.world()
	s := &regionsWorld{w: w, history: NewRegionHistory(w), options: o, drainers: make(map[string]*region),
		load: &Workload{World: w, Keys: regionKeys, Refusal: "READONLY"}}
	s.nemesis = &Nemesis{World: w, Every: o.Every, Target: s.target,
		Faults: slices.Concat(MachineFaults, ServerFaults, s.faults())}
	s.nemesis.Only(o.Only)
	if o.Swarm {
		s.nemesis.Swarm()
	}
	w.Say("faults: %s", s.nemesis.Names())
	s.found()
	s.work()
	for s.nemesis.Struck < o.Faults && w.Failure() == "" {
		s.nemesis.Strike()
		if s.nemesis.Struck%sootheEvery == 0 || s.nemesis.Struck == o.Faults {
			s.soothe()
			if w.Failure() == "" && w.Chance(flushing) {
				s.flush()
			}
		}
	}
	if s.rest(); w.Failure() == "" {
		s.check()
	}
	s.result.World, s.result.Faults, s.result.Kinds = w, s.nemesis.Struck, s.nemesis.Names()
	return s.result
}

// work lets clients count.
func (s *regionsWorld) work() {
	s.ended.Store(false)
	for i := range clients {
		s.running.Go(func() { s.client(i) })
	}
	for _, r := range s.living() {
		s.result.Work = r.work()
	}
}

// work lets the client of a region count, and returns what it does.
func (r *region) work() string {
	r.running.Go(func() { r.load.Run(0) })
	return r.load.Names()
}

// rest returns when no client counts any more.
func (s *regionsWorld) rest() {
	s.ended.Store(true)
	s.running.Wait()
	add := func(answered, again, reads int) {
		s.result.Answered, s.result.AnsweredAgain = s.result.Answered+answered, s.result.AnsweredAgain+again
		s.result.Read = s.result.Read + reads
	}
	for _, r := range s.living() {
		r.rest()
		add(r.load.History.Counts())
	}
	add(s.history.Counts())
}

// rest returns when the client of a region counts no more.
func (r *region) rest() {
	r.load.End()
	r.running.Wait()
}

// boot starts a server that stands alone. Regions need not have the same number of partitions. One
// whose disk has failed refuses writes until somebody starts it again.
func (s *regionsWorld) boot(l *Life) (Process, error) {
	l.Failed = func() {
		time.AfterFunc(s.w.Mean(2*time.Second), func() {
			l.Machine.Stop(l)
			l.Machine.Start()
		})
	}
	return bootServer(l, func(c *server.Config) {
		c.Partitions, c.AppendFsync = l.Machine.partitions(), "always"
		if l.Machine.Powered {
			c.AppendFsync = []string{"everysec", "no"}[l.Machine.Index()%2]
		}
	}, s.tune)
}

// partitions is how many a server has that stands alone.
func (m *Machine) partitions() int { return 4 << (m.Index() % 3) }

// tune keeps so little of the log that a region which is cut off for a while needs the state.
func (s *regionsWorld) tune(o *store.Options) { o.LogFileSize, o.RegionBacklog = 32<<10, 64<<10 }

// found makes the regions. Their clocks may be minutes apart.
func (s *regionsWorld) found() {
	two := s.w.Chance(twoClusters)
	for i := range regionCount {
		shards := 0
		switch {
		case i == 0:
			shards = s.options.Shards
		case i == 1 && s.options.Shards > 0 && two:
			shards = 2
		}
		if !s.operator().add(s.build(shards), true) {
			return
		}
	}
	for _, a := range s.living() { // they are far from each other
		for _, b := range s.living() {
			if s.w.Chance(0.5) {
				each(a, b, func(from, to *Machine) {
					s.w.Network.Slow(from, to, s.w.Mean(40*time.Millisecond))
				})
			}
		}
	}
}

// build makes servers that may be the next region: a cluster, or without shards one that stands alone.
func (s *regionsWorld) build(shards int) *region {
	s.mu.Lock()
	r := &region{name: fmt.Sprint("r", s.made)}
	// The seed alone decides what this draws; what the world draws depends on the order of goroutines.
	rng := rand.New(rand.NewPCG(s.w.Seed, uint64(3+s.made)))
	s.made++
	s.mu.Unlock()
	if shards > 0 {
		r.cluster = &clusterWorld{w: s.w, shards: shards, id: cluster.NewID(), tune: s.tune}
		r.cluster.found()
		r.machines = r.cluster.machines
	} else {
		m := s.w.Add(s.boot)
		m.Powered = rand.New(rand.NewPCG(s.w.Seed, uint64(1<<32+m.index))).IntN(2) == 0
		r.machines = []*Machine{m}
	}
	ahead := s.w.Between(-2*time.Minute, 2*time.Minute)
	for _, m := range r.machines {
		m.TurnClock(ahead)
		m.Start()
	}
	r.load = &Workload{World: s.w, History: NewHistory(s.w), Keys: regionKeys, Connect: func() Sender {
		return newRouter(s.w, r.machines)
	},
		Refusal: s.load.Refusal, Suffix: "@" + r.name, Leaps: rng.IntN(2) == 0}
	share := 1.0
	if s.options.Swarm {
		share = 0.5
	}
	// Tables must be alike in all regions; the others need what regions do not share.
	r.load.Choose(s.options.Work, share, "tables,transfer,across,hold,drain,throttle,cents", rng)
	return r
}

// each calls fn for all links from one region to another.
func each(a, b *region, fn func(from, to *Machine)) {
	for _, from := range a.machines {
		for _, to := range b.machines {
			if a != b {
				fn(from, to)
			}
		}
	}
}

// living returns the regions in which clients count.
func (s *regionsWorld) living() []*region {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.regions)
}

// but returns the others of them, in any order.
func (s *regionsWorld) but(r *region) []*region {
	others := slices.DeleteFunc(s.living(), func(o *region) bool { return o == r })
	s.w.Rand().Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	return others
}

// target returns a machine of a region, each region as often as the others.
func (s *regionsWorld) target() *Machine {
	all := s.living()
	machines := all[s.w.Intn(len(all))].machines
	return machines[s.w.Intn(len(machines))]
}

// regionClient is one client of all regions.
type regionClient struct {
	*regionsWorld
	rng     *rand.Rand
	senders map[*region]Sender
}

func (s *regionsWorld) connect() *regionClient {
	return &regionClient{s, s.w.Rand(), make(map[*region]Sender)}
}

// pick returns a region at random.
func (c *regionClient) pick() *region {
	all := c.living()
	return all[c.rng.IntN(len(all))]
}

// do sends a command to a region, and reports whether it was answered; refused: it was certainly
// not carried out.
func (c *regionClient) do(at *region, key string, patience time.Duration, words ...string) (reply any, ok,
	refused bool) {
	if c.senders[at] == nil {
		c.senders[at] = newRouter(c.w, at.machines)
	}
	replies, from, _ := c.senders[at].Send(key, patience, words)
	if len(replies) == 0 {
		return nil, false, false
	}
	if !c.load.settled(words, replies[0], from) {
		return nil, false, notDone(replies[0])
	}
	return replies[0], true, false
}

// count sends an operation to a region once, and reports whether it was answered, and with which value.
func (c *regionClient) count(o *RegionOp, at *region, patience time.Duration) (value int64, ok bool) {
	answer := c.history.Send(o, at)
	words := []string{"CINCRBY", o.Key, o.ID, "1", "WITHSTATUS"}
	if kindOf(o.Key) == expiringKey {
		words = append(words, "PX", "300")
	}
	reply, ok, refused := c.do(at, o.Key, patience, words...)
	if refused {
		answer(0, false)
	}
	if !ok {
		return 0, false
	}
	list, _ := reply.([]any)
	if len(list) != 2 {
		c.w.Fail("CINCRBY is answered %v by %s", reply, at)
		return 0, false
	}
	value, _ = list[0].(int64)
	answer(value, list[1] == int64(1))
	return value, true
}

// read reads a counter in a region once. It returns -1 unless that is answered.
func (c *regionClient) read(key string, at *region) int64 {
	answer := c.history.Read(key, at)
	reply, ok, _ := c.do(at, key, time.Second, "CGET", key)
	if !ok {
		return -1
	}
	value, _ := reply.(int64)
	answer(value)
	return value
}

func (c *regionClient) over() bool { return c.ended.Load() || c.w.Failure() != "" }

func (c *regionClient) rest() { time.Sleep(time.Duration(c.rng.IntN(20_000)) * time.Microsecond) }

// gone reports whether a region was removed.
func (c *regionClient) gone(at *region) bool { return !slices.Contains(c.living(), at) }

// patience returns how long the client waits for an answer.
func (c *regionClient) patience() time.Duration {
	if c.rng.IntN(4) == 0 {
		return time.Duration(c.rng.IntN(300)) * time.Millisecond
	}
	return 3 * time.Second
}

// twice does something with an operation, and another client may send it to some region meanwhile.
func (c *regionClient) twice(other *regionClient, o *RegionOp, do func()) {
	var twin sync.WaitGroup
	if c.rng.IntN(4) == 0 {
		to := c.pick()
		twin.Go(func() { other.count(o, to, 3*time.Second) })
	}
	do()
	twin.Wait()
}

// until sends an operation again, to one region or another, until it is answered.
func (c *regionClient) until(o *RegionOp) {
	for at := c.pick(); !c.over(); {
		if _, ok := c.count(o, at, c.patience()); ok {
			return
		}
		if c.rest(); c.rng.IntN(2) == 0 || c.gone(at) {
			at = c.pick()
		}
	}
}

// client increments and reads counters until the scenario ends.
func (s *regionsWorld) client(number int) {
	c, other := s.connect(), s.connect()
	var ops []*RegionOp
	for i := 0; !c.over(); i++ {
		if c.rng.IntN(3) == 0 {
			c.read(s.load.key(c.rng.IntN(regionKeys)), c.pick())
		}
		id, key := fmt.Sprint(number, "-", i), s.load.key(c.rng.IntN(regionKeys))
		switch c.rng.IntN(10) {
		case 0:
			if c.rng.IntN(2) == 0 {
				c.handOut(other, id)
			} else {
				c.drain(other, id)
			}
			continue
		case 1:
			c.brief(other, id)
			continue
		case 2:
			c.loosely(id)
			continue
		case 4:
			c.within(id)
			continue
		case 3:
			key = fmt.Sprint(expiringKey, ":", number, "-", i/10)
		}
		o := s.history.New(key, id)
		ops = append(ops, o)
		c.twice(other, o, func() { c.until(o) })
		if c.rng.IntN(3) == 0 {
			c.count(ops[max(0, len(ops)-1-c.rng.IntN(50))], c.pick(), time.Second)
		}
		c.rest()
	}
}

// await does something again until it is done, for a while.
func (s *regionsWorld) await(limit time.Duration, what string, do func() error) {
	for end := time.Now().Add(limit); s.w.Failure() == ""; time.Sleep(100 * time.Millisecond) {
		err := do()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			s.w.Fail("stuck for %v: %s: %v", limit, what, err)
			s.operator().describe()
		}
		for _, m := range s.w.Machines() {
			m.Start()
		}
	}
}

// soothe ends all faults. Within a minute every region must answer, and show what the others have done.
func (s *regionsWorld) soothe() {
	s.w.Soothe()
	c := s.connect()
	marks := make(map[*region]*RegionOp)
	for _, at := range s.living() {
		o := s.history.New(fmt.Sprint("mark-", at, "-", s.w.Now()), "x")
		marks[at] = o
		s.await(time.Minute, fmt.Sprint(at, " answers after all faults ended"), func() error {
			if _, ok := c.count(o, at, time.Second); !ok {
				return errors.New("it does not")
			}
			return nil
		})
	}
	for from, o := range marks {
		for _, at := range s.living() {
			s.await(time.Minute, fmt.Sprint(at, " shows what ", from, " did after all faults ended"),
				func() error {
					if n := c.read(o.Key, at); n != 1 {
						return fmt.Errorf("it shows %d", n)
					}
					return nil
				})
		}
	}
}
