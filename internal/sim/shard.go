package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fbfkv/fbfkv/cluster"
	"github.com/fbfkv/fbfkv/persistence/oplog"
	"github.com/fbfkv/fbfkv/store"
)

// Options say how a scenario is run.
type Options struct {
	Seed   uint64
	Faults int           // how many strike
	Every  time.Duration // mean time between two
	Only   string        // names of faults, separated by commas; "": all
	Swarm  bool          // a third of the kinds only
	Log    io.Writer     // gets the log while it grows; nil: nothing does
}

// Result is what became of a world.
type Result struct {
	World                         *World
	Faults                        int
	Kinds                         string
	Answered, AnsweredAgain, Read int
}

// Of the scenario of one shard.
const (
	shardNodes   = 3
	shardClients = 4
	shardKeys    = 30
	nodeTimeout  = time.Second
	clusterID    = "cccccccccccccccccccccccccccccccccccccccc"
	// sootheEvery is after how many faults all end, and the shard must answer within a minute.
	sootheEvery = 25
)

// shard is the scenario of one shard: three nodes, some clients that increment and read counters and send again what
// was not answered, and a nemesis.
type shard struct {
	w       *World
	history *History
	nemesis *Nemesis
	first   *Machine    // the one that is meant to lead
	founder string      // the id of the node that founds the shard
	swaps   atomic.Bool // a node is being replaced
	ended   atomic.Bool // clients send nothing new
}

// RunShard runs the scenario of one shard, in a bubble.
func RunShard(o Options) Result {
	w := NewWorld(o.Seed, o.Log)
	s := &shard{w: w, history: NewHistory(w)}
	s.nemesis = &Nemesis{World: w, Every: o.Every, Target: s.target, Faults: slices.Concat(MachineFaults, s.faults())}
	s.nemesis.Only(o.Only)
	if o.Swarm {
		s.nemesis.Swarm()
	}
	w.Say("faults: %s", s.nemesis.Names())
	s.found()
	var clients sync.WaitGroup
	for i := range shardClients {
		clients.Go(func() { s.client(i) })
	}
	for s.nemesis.Struck < o.Faults && w.Failure() == "" {
		s.nemesis.Strike()
		if s.nemesis.Struck%sootheEvery == 0 {
			s.soothe()
		}
	}
	if w.Failure() == "" {
		s.soothe()
	}
	s.ended.Store(true)
	clients.Wait()
	if w.Failure() == "" {
		s.check()
	}
	r := Result{World: w, Faults: s.nemesis.Struck, Kinds: s.nemesis.Names()}
	r.Answered, r.AnsweredAgain, r.Read = s.history.Counts()
	return r
}

// process is a node and its port.
type process struct {
	*cluster.Node
	net *cluster.Net
}

// Close implements Process.
func (p *process) Close() error { return errors.Join(p.Node.Close(), p.net.Close()) }

// lines writes the lines of a process to the log of the run.
type lines struct {
	w *World
	l *Life
}

func (s lines) Write(b []byte) (int, error) {
	s.w.Say("  [%d.%d] %s", s.l.Machine.Index(), s.l.Number, bytes.TrimSuffix(b, []byte("\n")))
	return len(b), nil
}

// logger returns the logger of a process, without times: the log of the run has virtual ones.
func (l *Life) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(lines{l.Machine.World, l}, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// boot starts a node on what its disk holds.
func (s *shard) boot(l *Life) (Process, error) {
	m, started, log := l.Machine, time.Now(), l.logger()
	stable, err := cluster.OpenStable(l.FS, "d")
	if err != nil {
		return nil, err
	}
	starts, err := stable.CountStart()
	if err != nil {
		return nil, errors.Join(err, stable.Close())
	}
	witness, err := cluster.OpenWitness(stable, log)
	if err != nil {
		return nil, errors.Join(err, stable.Close())
	}
	way, err := cluster.Listen(l.Listen(), cluster.NetOptions{
		Self: cluster.Identity{Cluster: clusterID, Node: l.Node, Format: cluster.FormatLevel, Starts: starts}, Witness: witness, Dial: l.Dial, Log: log})
	if err != nil {
		return nil, errors.Join(err, stable.Close())
	}
	n, err := cluster.Start(cluster.Options{
		ID: l.Node, Stable: stable, Net: way, Address: m.Address, Timeout: nodeTimeout, ComeBackAfter: 5 * time.Second, FS: l.FS, Dir: "d",
		SnapshotEvery: 100, Trailing: 150,
		Restart: func() {
			go func() {
				m.Stop(l)
				m.Start()
			}()
		},
		Found:  l.Node == s.founder,
		First:  s.first.Node,
		Logger: log, Fatal: l.Exit,
		Open: func(replicated func(*oplog.Log) store.Log) (*store.Store, error) {
			return store.Open(store.Options{
				Dir: "d", FS: l.FS, Partitions: 4, Seed: [16]byte{7}, Replicated: replicated, Sections: cluster.Sections,
				SnapshotInterval: 500 * time.Millisecond, LogFileSize: 256 << 10, MaxLogBytes: 2 << 20, MinFreeDisk: 4 << 20,
				RecordMemory: 64 << 10, HotCounters: 16, BlockCache: 1 << 20, Logger: log, Fatal: l.Exit,
				Clock: func() (wall, mono int64) { return m.Clock(), time.Since(started).Milliseconds() },
			})
		},
	})
	if err != nil {
		return nil, errors.Join(err, stable.Close(), way.Close())
	}
	return &process{n, way}, nil
}

// nodeID returns a new node's id.
func (s *shard) nodeID() string { return fmt.Sprintf("%040x", s.w.Rand().Uint64()|1) }

// found makes the shard.
func (s *shard) found() {
	for i := range shardNodes {
		m := s.w.Add(s.nodeID(), fmt.Sprintf("127.0.0.1:%d", 17001+i), s.boot)
		if i == 0 {
			s.first, s.founder = m, m.Node()
		}
	}
	for _, m := range s.w.Machines() {
		m.Start()
		<-m.Life().Up
	}
	for _, m := range s.w.Machines()[1:] {
		s.onLeader("set-up: vote", nil, func(n *cluster.Node) error { return n.Promote(m.Node(), m.Address) })
	}
	window := 24 * time.Hour // everything is sent again at the end
	s.onLeader("set-up: window", nil, func(n *cluster.Node) error {
		return n.Store().AlterTable(store.DefaultTable, store.TableChange{Window: &window})
	})
}

// node returns a machine's node; nil: it does not run.
func node(m *Machine) (*cluster.Node, *Life) {
	p, l := m.Running()
	if p == nil {
		return nil, nil
	}
	return p.(*process).Node, l
}

// leader returns the machine that leads; nil: none does.
func (s *shard) leader() *Machine {
	for _, m := range s.w.Machines() {
		if n, _ := node(m); n != nil && n.Leads() {
			return m
		}
	}
	return nil
}

// target returns the machine that leads, more often than not.
func (s *shard) target() *Machine {
	if m := s.leader(); m != nil && s.w.Chance(0.5) {
		return m
	}
	return s.w.Machines()[s.w.Intn(shardNodes)]
}

// onLeader does something that may be done twice at the leader, unless that is one machine, until it is done.
func (s *shard) onLeader(what string, except *Machine, do func(n *cluster.Node) error) {
	for end := time.Now().Add(5 * time.Minute); s.w.Failure() == ""; time.Sleep(s.w.Between(5*time.Millisecond, 50*time.Millisecond)) {
		if m := s.leader(); m != nil && m != except {
			if n, l := node(m); n != nil && l.Begin() {
				err := do(n)
				l.End()
				if err == nil {
					s.w.Say("done: %s", what)
					return
				}
			}
		}
		if time.Now().After(end) {
			s.w.Fail("stuck for five minutes: %s", what)
		}
	}
}

// retried reports whether a client sends an operation again after an error.
func retried(err error) bool {
	return errors.Is(err, store.ErrNotLeader) || errors.Is(err, store.ErrUndecided) || errors.Is(err, store.ErrUnknownOutcome) || errors.Is(err, store.ErrDiskFull)
}

// send sends an operation to a machine, and waits for a while. It reports whether there was an answer.
func (s *shard) send(o *Op, m *Machine, patience time.Duration) bool {
	n, l := node(m)
	if n == nil || !l.Begin() {
		return false
	}
	done := make(chan bool, 1)
	go func() {
		defer l.End()
		var b store.Batch
		op := b.Add(store.CIncrBy)
		op.Key, op.ID, op.Delta = []byte(o.Key), []byte(o.ID), 1
		n.Store().Execute(&b)
		op = &b.Ops[0]
		answered := op.Err == nil && !l.Dead()
		switch {
		case answered:
			s.history.Answer(o, op.Value, op.Applied, fmt.Sprintf("machine %d, life %d", m.Index(), l.Number))
		case !l.Dead() && !retried(op.Err):
			s.w.Fail("%s %s at machine %d: %v", o.Key, o.ID, m.Index(), op.Err)
		}
		done <- answered
	}()
	select {
	case answered := <-done:
		return answered
	case <-l.Gone:
	case <-time.After(patience): // it may still be applied, while it is sent again
	}
	return false
}

// read reads a counter at a machine.
func (s *shard) read(key string, m *Machine) {
	n, l := node(m)
	if n == nil || !l.Begin() {
		return
	}
	defer l.End()
	answer := s.history.Read(key)
	var b store.Batch
	b.Add(store.Get).Key = []byte(key)
	n.Store().Execute(&b)
	switch op := &b.Ops[0]; {
	case l.Dead():
	case op.Err == nil:
		answer(op.Value, fmt.Sprintf("machine %d, life %d", m.Index(), l.Number))
	case !retried(op.Err):
		s.w.Fail("read %s at machine %d: %v", key, m.Index(), op.Err)
	}
}

// client increments and reads counters until the scenario ends.
func (s *shard) client(number int) {
	r, machines := s.w.Rand(), s.w.Machines()
	at := 0
	over := func() bool { return s.ended.Load() || s.w.Failure() != "" }
	for i := 0; !over(); i++ {
		key := fmt.Sprint("k", r.IntN(shardKeys))
		if r.IntN(3) == 0 {
			s.read(key, machines[at])
		}
		o := s.history.Send(key, fmt.Sprint(number, "-", i))
		for !over() {
			patience := 3 * time.Second
			if r.IntN(4) == 0 {
				patience = time.Duration(r.IntN(300)) * time.Millisecond
			}
			if s.send(o, machines[at], patience) {
				break
			}
			at = r.IntN(len(machines))
			time.Sleep(time.Duration(r.IntN(20_000)) * time.Microsecond)
		}
		time.Sleep(time.Duration(r.IntN(20_000)) * time.Microsecond)
	}
}

// soothe ends all faults. Within a minute the shard must answer; and then without any one of its machines.
func (s *shard) soothe() {
	s.w.Soothe()
	s.awaitAnswers("all faults ended")
	if s.w.Failure() == "" && s.w.Chance(0.5) {
		m := s.target()
		s.w.Say("machine %d is off", m.Index())
		m.Off(true)
		m.PowerOff(m.Life(), 0)
		s.awaitAnswers("one machine of three was lost")
		m.Off(false)
		m.Start()
	}
}

// awaitAnswers waits until something that is sent from now on is answered, for a minute.
func (s *shard) awaitAnswers(since string) {
	time.Sleep(time.Second) // what is under way is answered
	before := s.history.Answered()
	for end := time.Now().Add(time.Minute); s.history.Answered() == before && s.w.Failure() == ""; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			s.w.Fail("stuck: nothing is answered a minute after %s", since)
		}
		for _, m := range s.w.Machines() {
			m.Start()
		}
	}
}

// check sends every operation again, and compares the replicas.
func (s *shard) check() {
	machines, at := s.w.Machines(), 0
	for _, o := range s.history.Ops() {
		for end := time.Now().Add(3 * time.Minute); !s.send(o, machines[at], time.Second); time.Sleep(5 * time.Millisecond) {
			at = s.w.Intn(len(machines))
			if time.Now().After(end) {
				s.w.Fail("stuck: %s %s is not answered although all is well", o.Key, o.ID)
			}
			if s.w.Failure() != "" {
				return
			}
		}
	}
	s.history.Complete()
	for _, m := range machines {
		s.compare(m)
	}
}

// compare waits until a replica has applied everything, and fails the world unless its counters are right.
func (s *shard) compare(m *Machine) {
	var want uint64
	for _, o := range s.w.Machines() {
		if n, _ := node(o); n != nil {
			want = max(want, n.Status().Applied)
		}
	}
	for end := time.Now().Add(3 * time.Minute); s.w.Failure() == ""; time.Sleep(5 * time.Millisecond) {
		n, l := node(m)
		if n == nil || n.Status().Applied < want || !l.Begin() {
			if time.Now().After(end) {
				s.w.Fail("stuck: machine %d has not applied entry %d", m.Index(), want)
			}
			continue
		}
		defer l.End()
		totals := s.history.Totals()
		for _, key := range slices.Sorted(maps.Keys(totals)) {
			var b store.Batch
			b.Replica = true
			b.Add(store.Get).Key = []byte(key)
			n.Store().Execute(&b)
			if op := &b.Ops[0]; op.Err != nil || op.Value != totals[key] {
				s.w.Fail("machine %d: %s is %d (%v), and %d operations were answered", m.Index(), key, op.Value, op.Err, totals[key])
			}
		}
		return
	}
}

// faults returns the faults that a shard can meet, and a lone machine cannot.
func (s *shard) faults() []Fault {
	return []Fault{
		{"stop", 1, func(w *World, m *Machine) {
			if l := m.Life(); l != nil {
				w.Go(func() {
					if w.Chance(0.7) {
						s.handOver(m, "")
					}
					m.Stop(l)
					m.StartAfter(w.Mean(500 * time.Millisecond))
				})
			}
		}},
		{"crash-while-stopping", 2, func(w *World, m *Machine) {
			if l := m.Life(); l != nil {
				w.Go(func() {
					if w.Chance(0.5) {
						s.handOver(m, "")
					}
					m.Disk.CrashAfter(1 + w.Intn(100))
					m.Stop(l)
					m.StartAfter(w.Mean(500 * time.Millisecond))
				})
			}
		}},
		{"hand-over", 4, func(w *World, _ *Machine) {
			m := s.leader()
			if m == nil {
				return
			}
			to := ""
			if w.Chance(0.5) {
				to = m.Other().Node()
			}
			w.Go(func() { s.handOver(m, to) })
			if w.Chance(0.4) { // a machine crashes meanwhile
				time.Sleep(w.Between(0, 10*time.Millisecond))
				if w.Chance(0.5) {
					m = m.Other()
				}
				crash(m, w.Mean(500*time.Millisecond))
			}
		}},
		{"replace", 1, func(_ *World, m *Machine) { s.replace(m) }},
	}
}

// handOver hands leadership over, if the machine leads.
func (s *shard) handOver(m *Machine, to string) {
	n, l := node(m)
	if n == nil || !l.Begin() {
		return
	}
	defer l.End()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = n.HandOver(ctx, to) // it may not
}

// replace takes a node with its disk out of the shard, and puts an empty one in its place.
func (s *shard) replace(m *Machine) {
	if s.swaps.Swap(true) {
		return
	}
	s.w.Go(func() {
		defer s.swaps.Store(false)
		was, id := m.Node(), s.nodeID()
		m.Off(true)
		m.PowerOff(m.Life(), 0)
		s.onLeader("remove", m, func(n *cluster.Node) error { return n.Remove(was) })
		m.SetNode(id)
		m.Disk.Replace()
		m.Off(false)
		m.Start()
		s.onLeader("follow", m, func(n *cluster.Node) error { return n.AddNonvoter(id, m.Address) })
		s.onLeader("promote", m, func(n *cluster.Node) error {
			if p := n.Status(); p.Peers[id].Index == 0 || p.Peers[id].Index+1000 < p.Last {
				return errors.New("it is not near enough")
			}
			return n.Promote(id, m.Address)
		})
	})
}
