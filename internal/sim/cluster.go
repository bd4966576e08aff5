package sim

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fbfkv/fbfkv/cluster"
	"github.com/fbfkv/fbfkv/server"
	"github.com/fbfkv/fbfkv/store"
)

// Options say how a scenario is run.
type Options struct {
	Seed   uint64
	Shards int           // of three nodes each
	Faults int           // how many strike
	Every  time.Duration // mean time between two; of a cluster: in each shard
	Only   string        // names of faults, separated by commas; "": all
	Work   string        // what clients do, separated by commas; "": all
	// Money moves among so many accounts. Faults strike until clients have sent so many deals.
	Accounts, Deals int
	Clients         int          // of a cluster; 0: a few
	Swarm           bool         // a third of the kinds of faults, and half of the clients' activities, only
	Log             io.Writer    // gets the log while it grows; nil: nothing does
	Begun           func(*World) // is called when the world has begun; nil: nothing is
}

// Result is what became of a world.
type Result struct {
	World                         *World
	Faults                        int
	Kinds, Work                   string
	Answered, AnsweredAgain, Read int
	// Deals are operations of money, stock and limits, and moves across slots; Holds were opened.
	Deals, Holds int
}

// Of the scenario of a cluster.
const (
	replicas   = 3 // of each shard
	clients    = 4
	accounts   = 4
	keys       = 30
	partitions = 8
	// sootheEvery is after how many faults for each shard all end, and every shard must answer
	// within a minute.
	sootheEvery = 25
	// flushing is how probable it is that everything is deleted when all faults have ended.
	flushing = 0.1
)

// clusterWorld is the scenario of a cluster: shards of three nodes, the clients of a workload, and
// a nemesis. Everything goes the way it goes for users: servers speak RESP, clients follow MOVED,
// and the cluster is made and changed by CLUSTER FBFKV.
type clusterWorld struct {
	w        *World
	shards   int
	id       string
	machines []*Machine           // all of the world, unless the cluster is one of several regions
	tune     func(*store.Options) // nil: nothing more than in each scenario
	load     *Workload
	follower *follower // nil: there is none
	nemesis  *Nemesis
	clients  int
	changes  atomic.Bool    // an administrator changes the cluster
	running  sync.WaitGroup // clients
	result   Result
}

// world begins a world.
func (o Options) world() *World {
	w := NewWorld(o.Seed, o.Log)
	if o.Begun != nil {
		o.Begun(w)
	}
	return w
}

// RunCluster runs the scenario of a cluster, in a bubble.
func RunCluster(o Options) Result {
	w := o.world()
	c := &clusterWorld{w: w, shards: max(o.Shards, 1), id: cluster.NewID()}
	c.load = &Workload{World: w, History: NewHistory(w), Keys: keys * c.shards,
		Connect:  func() Sender { return newRouter(w, c.machines) },
		Accounts: cmp.Or(o.Accounts, accounts), Deals: o.Deals}
	c.clients = cmp.Or(o.Clients, clients)
	c.nemesis = &Nemesis{World: w, Every: o.Every / time.Duration(c.shards), Target: c.target,
		Faults: slices.Concat(MachineFaults, ServerFaults, c.faults())}
	c.nemesis.Only(o.Only)
	share := 1.0
	if o.Swarm {
		c.nemesis.Swarm()
		share = 0.5
	}
	c.load.Choose(o.Work, share, "", w.Rand())
	w.Say("faults: %s; clients: %s", c.nemesis.Names(), c.load.Names())
	if c.found(); w.Failure() == "" {
		c.load.Prepare()
	}
	c.follower = w.follow(c.machines, partitions)
	c.work()
	for (c.nemesis.Struck < o.Faults || c.deals() < o.Deals) && w.Failure() == "" {
		c.nemesis.Strike()
		if c.nemesis.Struck%(sootheEvery*c.shards) == 0 {
			c.soothe()
			if w.Failure() == "" && w.Chance(flushing) {
				c.flush()
			}
		}
	}
	if w.Failure() == "" {
		c.soothe()
	}
	c.rest()
	c.result.World, c.result.Faults, c.result.Kinds, c.result.Work = w, c.nemesis.Struck, c.nemesis.Names(),
		c.load.Names()
	return c.result
}

// work lets the clients of the workload begin.
func (c *clusterWorld) work() {
	for i := range c.clients {
		c.running.Go(func() { c.load.Run(i) })
	}
}

// rest ends the workload, and checks it.
func (c *clusterWorld) rest() {
	c.load.End()
	c.running.Wait()
	if c.w.Failure() == "" {
		c.check()
	}
	answered, again, read := c.load.History.Counts()
	c.result.Answered, c.result.AnsweredAgain = c.result.Answered+answered, c.result.AnsweredAgain+again
	c.result.Read = c.result.Read + read
	deals, holds := c.load.ledger.counts()
	c.result.Deals, c.result.Holds = c.result.Deals+deals, c.result.Holds+holds
}

// deals returns how many operations of money, stock and limits there have been.
func (c *clusterWorld) deals() int {
	deals, _ := c.load.ledger.counts()
	return c.result.Deals + deals
}

func (c *clusterWorld) boot(l *Life) (Process, error) {
	return bootServer(l, func(config *server.Config) {
		config.Cluster.Enabled, config.Cluster.NodeTimeout = true, time.Second
	}, c.tune)
}

// administrator changes the cluster, as `fbfkv cluster` does.
type administrator struct {
	c      *clusterWorld
	client *Client
}

func (c *clusterWorld) administrator() administrator { return administrator{c, NewClient(c.w)} }

// ask sends a verb to one machine.
func (a administrator) ask(m *Machine, verb string, request, answer any) error {
	b, err := json.Marshal(request)
	if err != nil {
		return err
	}
	reply, err := a.client.Do(m.Address(clientPort), 10*time.Second, "CLUSTER", "FBFKV", verb, string(b))
	if err != nil || answer == nil {
		return err
	}
	text, _ := reply.(string)
	return json.Unmarshal([]byte(text), answer)
}

// insist is the world's.
func (a administrator) insist(what string, do func() error) bool {
	return a.c.w.insist(what, do, a.describe)
}

// describe writes to the log of the run what each machine says of itself.
func (a administrator) describe() {
	for _, m := range a.c.machines {
		reply, err := a.client.Do(m.Address(clientPort), time.Second, "CLUSTER", "FBFKV", cluster.VerbInfo)
		a.c.w.Say("machine %d: %v %v", m.Index(), reply, err)
	}
}

// anywhere sends a verb to one member after the other, until one has done it.
func (a administrator) anywhere(verb string, request, answer any) error {
	var all []error
	for _, m := range a.c.machines {
		err := a.ask(m, verb, request, answer)
		if err == nil {
			return nil
		}
		all = append(all, fmt.Errorf("machine %d: %w", m.Index(), err))
	}
	return errors.Join(all...)
}

// configuration returns the newest configuration that any machine knows.
func (a administrator) configuration() (newest cluster.Configuration, err error) {
	for _, m := range a.c.machines {
		var info cluster.Info
		if a.ask(m, cluster.VerbInfo, struct{}{}, &info) == nil && info.Configuration != nil &&
			info.Configuration.Version > newest.Version {
			newest = *info.Configuration
		}
	}
	if newest.Version == 0 {
		return newest, errors.New("no machine says which configuration there is")
	}
	return newest, nil
}

// add makes the server on a machine a voter of a shard.
func (a administrator) add(m *Machine, shard string) bool {
	var info cluster.Info
	return a.insist(fmt.Sprintf("machine %d is admitted", m.Index()), func() error {
		if err := a.ask(m, cluster.VerbInfo, struct{}{}, &info); err != nil {
			return err
		}
		member := info.Self
		member.Shard, member.Voter = shard, false
		return a.anywhere(cluster.VerbAdmit, member, nil)
	}) && a.insist(fmt.Sprintf("machine %d joins", m.Index()), func() error {
		var now cluster.Info
		if err := a.ask(m, cluster.VerbInfo, struct{}{}, &now); err != nil {
			return err
		}
		if now.Cluster == a.c.id {
			return nil
		}
		var via []string
		for _, o := range a.c.machines {
			if o != m {
				via = append(via, o.Address(clusterPort))
			}
		}
		if err := a.ask(m, cluster.VerbJoin, cluster.JoinRequest{Cluster: a.c.id, Via: via},
			nil); err != nil {
			return err
		}
		return errors.New("it is about to")
	}) && a.insist(fmt.Sprintf("machine %d votes", m.Index()), func() error {
		var p cluster.Progress
		if err := a.anywhere(cluster.VerbPromote, cluster.PromoteRequest{ID: info.Self.ID, Vote: true},
			&p); err != nil || p.Voter {
			return err
		}
		return errors.New("it has not caught up")
	}) && a.insist("the meta group is settled", func() error {
		// else the next node to be replaced may be its majority
		newest, err := a.configuration()
		if err != nil {
			return err
		}
		for _, o := range a.c.machines {
			var info cluster.Info
			if err := a.ask(o, cluster.VerbInfo, struct{}{}, &info); err == nil && info.Meta.Settled &&
				info.Configuration.Version >= newest.Version {
				return nil
			}
		}
		return errors.New("no machine says so")
	})
}

// found makes the cluster.
func (c *clusterWorld) found() {
	for range replicas * c.shards {
		c.machines = append(c.machines, c.w.Add(c.boot))
	}
	machines, a := c.machines, c.administrator()
	for _, m := range machines {
		m.Start()
		<-m.Life().Up
	}
	if !a.insist("the first node begins the cluster", func() error {
		return a.ask(machines[0], cluster.VerbInit,
			cluster.InitRequest{Cluster: c.id, Shards: c.shards, Partitions: partitions}, nil)
	}) {
		return
	}
	var config cluster.Configuration
	a.insist("the first node is a member", func() (err error) {
		config, err = a.configuration()
		return err
	})
	for i, m := range machines[1:] {
		if c.w.Failure() != "" || !a.add(m, config.Shards[(i+1)/replicas].ID) {
			return
		}
	}
}

// target returns a machine that leads a shard, more often than not.
func (c *clusterWorld) target() *Machine {
	machines := c.machines
	m := machines[c.w.Intn(len(machines))]
	if leaders := c.leaders(); len(leaders) > 0 && c.w.Chance(0.5) {
		m = leaders[c.w.Intn(len(leaders))]
	}
	return m
}

// leaders returns the machines that lead a shard.
func (c *clusterWorld) leaders() (leaders []*Machine) {
	for _, m := range c.machines {
		if p, _ := m.Running(); p != nil {
			if n := p.(*serverProcess).Shard(); n != nil && n.Leads() {
				leaders = append(leaders, m)
			}
		}
	}
	return leaders
}

// soothe ends all faults. Within a minute every shard must answer; and then without any one machine.
func (c *clusterWorld) soothe() {
	c.w.Soothe()
	c.awaitAnswers("all faults ended")
	if c.w.Failure() == "" && c.w.Chance(0.5) {
		m := c.target()
		c.w.Say("machine %d is off", m.Index())
		m.Off(true)
		m.PowerOff(m.Life(), 0)
		c.awaitAnswers("one machine was lost")
		m.Off(false)
		m.Start()
	}
}

// awaitAnswers waits until operations of all shards are answered, for a minute.
func (c *clusterWorld) awaitAnswers(since string) {
	r := newRouter(c.w, c.machines)
	end := time.Now().Add(time.Minute)
	for i := range 4 * c.shards { // of many slots, since partitions move
		o, send := c.load.Count(i, fmt.Sprint("after-", c.w.Now(), "-", i))
		for !send(r, time.Second) && c.w.Failure() == "" {
			time.Sleep(10 * time.Millisecond)
			if time.Now().After(end) {
				replies, from, err := r.Send(o.Key, time.Second, o.command())
				c.w.Fail("stuck: %s is not answered a minute after %s, but %v by %s, %v", o.Key, since,
					replies, from, err)
				c.administrator().describe()
			}
			for _, m := range c.machines {
				m.Start()
			}
		}
	}
}

// check sends every operation again, and compares the replicas.
func (c *clusterWorld) check() {
	c.settle()
	c.load.Again()
	facts := c.load.Facts()
	for _, m := range c.machines {
		c.w.compare(m, facts)
	}
	if c.follower != nil {
		c.follower.check(func() []Fact { return facts })
	}
}

// compare fails the world unless what a server has is right, once it has applied what it is to have.
func (w *World) compare(m *Machine, facts []Fact) {
	client, to := NewClient(w), m.Address(clientPort)
	open := slices.Clone(facts)
	for end := time.Now().Add(3 * time.Minute); len(open) > 0 &&
		w.Failure() == ""; time.Sleep(50 * time.Millisecond) {
		commands := [][]string{{"READONLY"}}
		for _, f := range open {
			commands = append(commands, f.Query)
		}
		replies, err := client.Send(to, 10*time.Second, commands...)
		var wrong []Fact
		for i, f := range open {
			var reply any = err
			if i+1 < len(replies) {
				reply = replies[i+1]
			}
			answer := fmt.Sprint(reply)
			_, refused := reply.(replyError)
			if refused && strings.HasPrefix(answer, "MOVED") || answer == f.Answer {
				continue
			}
			wrong = append(wrong, f)
			if time.Now().After(end) {
				w.Fail("machine %d answers %q with %s, and must with %s", m.Index(), f.Query, answer,
					f.Answer)
			}
		}
		open = wrong
	}
}

// faults returns the faults that a cluster can meet, and a lone machine cannot.
func (c *clusterWorld) faults() []Fault {
	return []Fault{
		{"hand-over", 4, func(_ *World, m *Machine) { c.strikeHandOver(m) }},
		{"replace", 1, func(_ *World, m *Machine) { c.change(func(a administrator) { c.replace(a, m) }) }},
		{"put-back", 1, func(_ *World, m *Machine) { c.change(func(a administrator) { c.putBack(a, m) }) }},
		{"move", 2, func(*World, *Machine) {
			if c.shards > 1 {
				c.change(c.move)
			}
		}},
		{"drain", 1, func(*World, *Machine) {
			if c.shards > 1 {
				c.change(c.drain)
			}
		}},
	}
}

// strikeHandOver makes another node lead, and a machine may crash meanwhile.
func (c *clusterWorld) strikeHandOver(m *Machine) {
	w := c.w
	w.Go(func() { c.handOver(m) })
	if w.Chance(0.4) {
		time.Sleep(w.Between(0, 10*time.Millisecond))
		if w.Chance(0.5) {
			m = m.Other()
		}
		crash(m, w.Mean(500*time.Millisecond))
	}
}

// handOver makes another node lead the shard of a machine.
func (c *clusterWorld) handOver(m *Machine) {
	_ = c.administrator().ask(m, cluster.VerbHandOver, cluster.NodeRequest{}, nil) // it may not
}

// change lets an administrator change the cluster, one change at a time.
func (c *clusterWorld) change(do func(a administrator)) {
	if c.changes.Swap(true) {
		return
	}
	c.w.Go(func() {
		defer c.changes.Store(false)
		do(c.administrator())
	})
}

// replace takes a node with its disk out of the cluster, and puts an empty one in its place.
func (c *clusterWorld) replace(a administrator, m *Machine) {
	var was *cluster.Member
	if !a.insist("who is replaced", func() error {
		config, err := a.configuration()
		if err == nil {
			was = config.At(m.Address(clientPort))
		}
		return err
	}) || was == nil {
		return
	}
	m.Off(true)
	m.PowerOff(m.Life(), 0)
	m.Disk.Replace()
	gone := a.insist(fmt.Sprintf("machine %d is removed", m.Index()), func() error {
		if err := a.anywhere(cluster.VerbRemove, cluster.NodeRequest{ID: was.ID}, nil); err != nil {
			return err
		}
		config, err := a.configuration() // what was known before may be old
		if err != nil {
			return err
		}
		if now := config.At(m.Address(clientPort)); now != nil {
			was = now
			return errors.New("another node is there")
		}
		return nil
	})
	m.Off(false)
	m.Start()
	if gone {
		a.add(m, was.Shard)
	}
}

// putBack puts a node's directory back in time. The others must take it for no voter until the
// administrator has replaced it.
func (c *clusterWorld) putBack(a administrator, m *Machine) {
	was := m.Disk.Copy(c.w.Intn(3)*50, c.w)
	time.Sleep(c.w.Between(0, 10*time.Second))
	// If another node lags, the two are a majority that lacks what was acknowledged, and none of
	// them can know: nothing helps against that.
	for end := time.Now().Add(10 * time.Second); !c.levelWith(m); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return
		}
	}
	m.Off(true)
	m.PowerOff(m.Life(), 0)
	m.Disk.PutBack(was)
	c.w.Say("the directory of machine %d goes back in time", m.Index())
	m.Off(false)
	m.Start()
	time.Sleep(c.w.Mean(5 * time.Second))
	c.replace(a, m)
}

// levelWith reports whether all nodes of a machine's shard run, and have everything that any of
// them has applied.
func (c *clusterWorld) levelWith(m *Machine) bool {
	first := slices.Index(c.machines, m) / replicas * replicas
	var least, most uint64
	for i, o := range c.machines[first : first+replicas] {
		p, _ := o.Running()
		if p == nil || p.(*serverProcess).Shard() == nil {
			return false
		}
		applied := p.(*serverProcess).Shard().Status().Applied
		if least, most = min(least, applied), max(most, applied); i == 0 {
			least = applied
		}
	}
	return least == most
}

// move moves a partition to another shard.
func (c *clusterWorld) move(a administrator) {
	config, err := a.configuration()
	if err != nil {
		return
	}
	to, p := config.Shards[c.w.Intn(len(config.Shards))].ID, c.w.Intn(config.Partitions)
	a.insist(fmt.Sprintf("partition %d is to move", p), func() error {
		return a.anywhere(cluster.VerbMove, cluster.MoveRequest{Partitions: []int{p}, To: to}, nil)
	})
}
