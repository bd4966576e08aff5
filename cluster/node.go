package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/cluster/raftgroup"
	"github.com/fbfkv/fbfkv/cluster/wire"
	"github.com/fbfkv/fbfkv/internal/longlock"
	"github.com/fbfkv/fbfkv/persistence/oplog"
	"github.com/fbfkv/fbfkv/store"
)

// Options configure Start. All but Timeout, Logger and Fatal are required.
type Options struct {
	// ID is the node's, drawn with its data directory: 40 hex digits.
	ID string
	// Open opens the store of the data directory, with this as its Options.Replicated.
	Open func(replicated func(*oplog.Log) store.Log) (*store.Store, error)
	// Stable keeps term, vote and the metadata of snapshots. Close closes it.
	Stable *raftgroup.Stable
	// Net reaches the other nodes; Address is the HOST:PORT at which they reach this one.
	Net     *Net
	Address string
	// FS and Dir are the data directory, which Open opens.
	FS  vfs.FS
	Dir string
	// First returns the id of the node that is meant to lead the shard, "" if there is none; nil: there
	// never is.
	First func() string
	// Restart is called when the node has fetched the files that it lacked: the caller must close
	// the node and start it again. From a goroutine that Close waits for. nil: it does not catch
	// up.
	Restart func()
	// Found: the node begins its shard, unless it has done so already.
	Found bool
	// Alone makes the node the only one of its shard, for ever (Recover).
	Alone bool
	// Timeout is cluster-node-timeout: how long a leader may be silent, about. Default 1 s.
	Timeout time.Duration
	// ComeBackAfter is how long the node that is meant to lead must have been well, and another
	// have led, until leadership returns to it. Default 30 s.
	ComeBackAfter time.Duration
	// SnapshotEvery is the number of entries after which Raft trims its log, and Trailing the
	// number of entries that stay for followers that are behind. Defaults 8192 and 65536.
	SnapshotEvery, Trailing uint64
	// Logger receives what an operator should know; default: discard.
	Logger *slog.Logger
	// Fatal is called when the process must end (G8).
	Fatal func(error)
	// DiskHangs is called a few times a second while the disk has not answered for so long that
	// another node is to lead. It waits for nothing. nil: there is nothing else to silence.
	DiskHangs func()
}

// Times in Raft, as parts of Timeout: a follower that has heard nothing for the first
// begins an election, and a leader that reached no majority for the second ends.
const (
	electionPart = 0.3
	leasePart    = 0.2
	// giveUpPart is how long those wait who cannot be told whether what they asked for was
	// committed (R7).
	giveUpPart = 2
	// minMessageTime is what a message and its answer may take at least: a large one takes
	// longer than elections do.
	minMessageTime = 2 * time.Second
	// defaults of Options.SnapshotEvery and Options.Trailing.
	snapshotEvery = 8 << 10
	trailing      = 64 << 10
)

// messageTime is what a message of Raft and its answer may take.
func messageTime(o Options) time.Duration { return max(o.Timeout, minMessageTime) }

// Node is one replica of a shard: a store, and the Raft group by which it agrees with the
// others on what was decided. Its methods are safe for concurrent use.
type Node struct {
	ending
	o         Options
	raft      *raft.Raft
	transport *raftgroup.Transport
	confirmer *raftgroup.Confirmer
	log       *Log
	st        *store.Store
	redone    uint64      // the index up to which Open has redone the log
	reign     oplog.Reign // the latest that has begun by the applied entries (R2); FSM's goroutine

	leading longlock.Mutex // held while it begins or ends
	leads   atomic.Bool
	toBegin chan struct{} // Raft may lead while this node does not
	handing chan struct{} // has one while Raft may be about to hand over
	// refusalLimit is for how long Raft may lead and refuse entries.
	refusalLimit time.Duration
	elected      chan bool             // Raft's notifications
	observed     chan raft.Observation // another node leads, or none
	changes      atomic.Pointer[chan struct{}]
	rebuilds     atomic.Uint64
	leaders      atomic.Uint64 // changes of leader that were seen

	takeovers atomic.Uint64 // how often this node began to lead
	takeover  atomic.Int64  // how long there was no leader before it did so last, ns
	started   time.Time

	skew    atomic.Int64     // this node's clock minus the last other leader's, ms
	yielded bool             // leadership was offered to others for that; FSM's goroutine
	hung    raftgroup.Moment // when the disk was last seen not to answer for long
	ends    atomic.Bool      // as it does not
	yieldAt time.Time        // when it was offered last, as this node's disk is full; under leading
	files   catchUp
	back    comeBack

	begun   chan struct{} // closed when what Apply uses is there
	stop    chan struct{}
	running sync.WaitGroup
}

// Start opens the store and joins the Raft group that the node is a member of, or will be.
func Start(o Options) (*Node, error) {
	if o.Timeout == 0 {
		o.Timeout = time.Second
	}
	if o.ComeBackAfter == 0 {
		o.ComeBackAfter = comeBackAfter
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.FS == nil {
		o.FS = vfs.Default
	}
	var origin [8]byte
	if _, err := rand.Read(origin[:]); err != nil {
		return nil, err
	}
	n := &Node{ending: ending{logger: o.Logger, fatal: o.Fatal}, o: o, started: time.Now(),
		begun: make(chan struct{}), stop: make(chan struct{}), toBegin: make(chan struct{}, 1),
		handing: make(chan struct{}, 1), elected: make(chan bool, 16),
		observed: make(chan raft.Observation, 1)}
	n.refusalLimit = refusalLimit(o)
	n.back.wishes = make(chan string, 1)
	n.skew.Store(unknownSkew)
	changed := make(chan struct{})
	n.changes.Store(&changed)
	counts, err := finishSwap(o.FS, o.Dir, o.Stable, o.Logger)
	if err != nil {
		return nil, fmt.Errorf("take over the files that were fetched: %w", err)
	}
	n.st, err = o.Open(func(local *oplog.Log) store.Log {
		n.log = newLog(local, binary.BigEndian.Uint64(origin[:]), giveUpPart*o.Timeout)
		n.log.last = func(partition uint16) uint64 { return n.st.Last(partition) }
		n.log.confirm = n.confirm
		n.watchDisk()
		return n.log
	})
	if err != nil {
		return nil, err
	}
	entries := &raftgroup.LogStore{Log: n.log.Log, Reserved: n.log.reserved, Settle: o.Stable.Settle,
		Failed: n.fail, Lost: n.lost}
	err = n.beginLog(entries)
	if err == nil && o.Alone {
		err = n.standAlone(entries)
	}
	if err != nil {
		return nil, errors.Join(err, n.st.CloseNow())
	}
	n.redone, n.reign = n.log.Applied(), n.log.Reign()
	n.initCatchUp(counts)
	if err := n.startRaft(entries); err != nil {
		return nil, errors.Join(err, n.st.CloseNow())
	}
	n.running.Go(func() { n.watch() })
	if w := n.witness(); w != nil {
		n.running.Go(n.keepTelling)
		n.running.Go(func() {
			if err := w.keep(n.stop); err != nil {
				n.fail(err)
			}
		})
	}
	n.running.Go(n.beginWhenElected)
	n.running.Go(func() { n.log.propose(n.raft, n.stop, n.refused) })
	return n, nil
}

func (n *Node) startRaft(entries *raftgroup.LogStore) error {
	c := raftgroup.Config(n.o.ID, n.o.Timeout, electionPart, leasePart, leasePart/4, n.elected, n.o.Logger)
	c.SnapshotThreshold, c.TrailingLogs = cmp.Or(n.o.SnapshotEvery, snapshotEvery),
		cmp.Or(n.o.Trailing, trailing)
	c.SnapshotInterval = 10 * time.Second
	c.NoSnapshotRestoreOnStart = true // the store is what the data directory holds
	c.MaxAppendEntries = 64
	end, err := n.end()
	if err != nil {
		return err
	}
	n.o.Net.SetEnd(end)
	n.transport = n.o.Net.Transport(KindRaft, n.o.Address, messageTime(n.o))
	n.transport.BeforeSending(n.settling(n.o.Stable))
	if n.o.Found {
		err = raftgroup.Begin(c, entries, n.o.Stable, n.transport)
	}
	if err == nil {
		n.raft, err = raft.NewRaft(c, machine{n}, entries, n.o.Stable.ForRaft(n.fail), n.o.Stable,
			n.transport)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("start Raft: %w", err), n.transport.Close())
	}
	n.transport.OnSnapshot(n.onSnapshot)
	n.files.server.answers(n.o.Net.Answer, true)
	n.o.Net.Answer(verbLead, wire.Answer(0, n.onWish))
	n.confirmer = raftgroup.NewConfirmer(n.raft, n.transport, raft.ServerID(n.o.ID))
	n.raft.RegisterObserver(raft.NewObserver(n.observed, false, func(o *raft.Observation) bool {
		_, leader := o.Data.(raft.LeaderObservation)
		return leader
	}))
	close(n.begun)
	if w := n.witness(); w != nil {
		w.refreshBy(n.noteProgress)
	}
	n.o.Net.TakesPart(n.takesPart)
	n.o.Net.CatchesUp(n.catchesUp)
	n.o.Net.Voters(func() int { return len(raftgroup.Voters(n.raft)) })
	n.o.Net.OnAside(func() { n.stopLeading("it stands aside") })
	raftgroup.LeadAlone(n.raft, n.o.ID)
	return nil
}

// confirm proves that this node has led, in this term, after the call began.
func (n *Node) confirm(term uint64) error {
	ctx, cancel := context.WithTimeout(context.Background(), n.log.giveUp)
	defer cancel()
	return n.confirmer.Confirm(ctx, term)
}

// beginLog gives the log of a founder that brings data its first entry, which is the last one
// of the snapshot that stands for these (Directory.found). Raft asks a follower for the entry
// at which a snapshot ends.
func (n *Node) beginLog(entries *raftgroup.LogStore) error {
	meta, err := n.o.Stable.Last()
	if _, last := n.log.EntryBounds(); err != nil || meta == nil || last != 0 || meta.Index != foundedAt {
		return err
	}
	n.log.SetApplied(foundedAt - 1)
	err = entries.StoreLog(&raft.Log{Index: meta.Index, Term: meta.Term, Type: raft.LogConfiguration,
		Data: raft.EncodeConfiguration(meta.Configuration)})
	n.log.SetApplied(foundedAt)
	return err
}

// watch has a first command proposed whenever Raft says that this node leads, until it does not. It
// hands over what it cannot do any more.
func (n *Node) watch() {
	look := time.NewTicker(spacePeriod)
	defer look.Stop()
	for {
		select {
		case <-n.stop:
			return
		case <-look.C:
			if err := n.st.Failure(); err != nil {
				n.fail(err) // it would lead on, and refuse every write (G8)
				return
			}
			if n.Leads() && n.lacksSpace() {
				n.running.Go(n.yieldForSpace)
			}
			n.wishToLead()
		case id := <-n.back.wishes:
			if n.grants(id) {
				n.running.Go(func() { n.giveBack(id) })
			}
		case leads := <-n.elected:
			n.transport.Silence(false)
			if leads {
				n.begins()
				continue
			}
			n.stopLeading(n.whyDeposed())
			n.log.dropQueue()
		case o := <-n.observed:
			if leader := o.Data.(raft.LeaderObservation); leader.LeaderID == "" {
				n.o.Logger.Info("the shard has no leader, as far as this node knows", "reason",
					n.whyLeaderless())
			}
			n.changed()
		}
	}
}

// giveUpLater tells those who wait that the outcome is unknown, unless it is known in time.
func (n *Node) giveUpLater() {
	time.AfterFunc(n.log.giveUp, func() {
		if n.log.givenUp() {
			n.st.GiveUp()
		}
	})
}

// Store returns the store.
func (n *Node) Store() *store.Store { return n.st }

// Leads reports whether this node decides.
func (n *Node) Leads() bool { return n.leads.Load() }

// Changed is closed when the leader or this node's role changes.
func (n *Node) Changed() <-chan struct{} { return *n.changes.Load() }

func (n *Node) changed() {
	next := make(chan struct{})
	close(*n.changes.Swap(&next))
}

// awaitLeading returns when this node decides.
func (n *Node) awaitLeading(ctx context.Context) error {
	for {
		changed := n.Changed()
		if n.Leads() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// server returns what Raft's newest configuration, committed or not, says of a node.
func (n *Node) server(id string) (s raft.Server, known bool) {
	for _, s := range n.raft.GetConfiguration().Configuration().Servers {
		if s.ID == raft.ServerID(id) {
			return s, true
		}
	}
	return s, false
}

// Status is what a node knows of itself and its shard.
type Status struct {
	Leads     bool
	State     string // as Raft calls it: Leader, Follower, Candidate, Shutdown
	Term      uint64
	Leader    string // the leader's id; "": unknown
	Last      uint64 // index of the last entry of the log
	Committed uint64
	Applied   uint64
	Heard     raftgroup.Heard // what the leader has said of the log last
	Contact   time.Time       // when the leader was last heard; zero: never, or this is the leader
	Changes   uint64          // of leader, seen since the start
	Peers     map[string]raftgroup.PeerProgress
	Rebuilds  uint64
	Fenced    uint64
	// Fetching: the node is behind the log and fetches the leader's files.
	Fetching bool
	// Takeovers are how often this node began to lead since the start; LastTakeover is for how
	// long it had heard no leader when it did so last.
	Takeovers    uint64
	LastTakeover time.Duration
	Aside        error         // why it stands aside; nil: it does not
	Skew         time.Duration // this node's clock minus that of the last other leader, when it began
}

// Status returns the node's status.
func (n *Node) Status() Status {
	_, leader := n.raft.LeaderWithID()
	return Status{
		Leads: n.Leads(), State: n.raft.State().String(), Term: n.raft.CurrentTerm(), Leader: string(leader),
		Last: n.raft.LastIndex(), Committed: n.raft.CommitIndex(), Applied: n.applied(),
		Heard: n.transport.Heard(), Contact: n.raft.LastContact(),
		Changes: n.leaders.Load(), Peers: n.peers(),
		Rebuilds: n.rebuilds.Load(), Fenced: n.log.fenced.Load(), Skew: n.clockSkew(),
		Fetching: n.files.running.Load(), Takeovers: n.takeovers.Load(),
		LastTakeover: time.Duration(n.takeover.Load()), Aside: n.o.Net.Doubts(),
	}
}

// applied returns up to which entry this node has applied the log. Some entries concern only Raft
// itself, which does not hand them on: with nothing else behind the last one that was, they count
// as applied.
func (n *Node) applied() uint64 {
	at, end := n.log.Applied(), n.raft.AppliedIndex()
	if end > at+maxBetween {
		return at
	}
	for i := at + 1; i <= end; i++ {
		var e oplog.Entry
		if n.log.Entry(i, &e) != nil || raft.LogType(e.Type) == raft.LogCommand {
			return at
		}
	}
	return max(at, end)
}

// maxBetween is how many entries applied reads at most.
const maxBetween = 16

// peers returns how far the other nodes are, which only a leader knows.
func (n *Node) peers() map[string]raftgroup.PeerProgress {
	if !n.Leads() {
		return nil
	}
	peers := make(map[string]raftgroup.PeerProgress)
	for id, p := range n.transport.Progress() {
		peers[string(id)] = p
	}
	return peers
}

// Replicas returns how many other voters have the log on disk up to an index.
func (n *Node) Replicas(index uint64) (count int) {
	progress := n.transport.Progress()
	for _, s := range n.raft.GetConfiguration().Configuration().Servers {
		if p := progress[s.ID]; s.Suffrage == raft.Voter && string(s.ID) != n.o.ID && p.Index >= index {
			count++
		}
	}
	return count
}

// ending ends the process for a part of it that cannot go on, unless that is being closed.
type ending struct {
	stopped atomic.Bool
	logger  *slog.Logger
	fatal   func(error)
}

// fail ends the process.
func (e *ending) fail(err error) {
	if e.stopped.Load() {
		return
	}
	said := make(chan struct{})
	go func() {
		defer close(said)
		e.logger.Error("the process stops", "error", err)
	}()
	select {
	case <-said:
	case <-time.After(time.Second): // the log file may be on a disk that does not answer
	}
	if e.fatal != nil {
		e.fatal(err)
	}
}

// settling makes durable what Raft has set. Without that nothing is sent, and nothing may go on.
func (e *ending) settling(s *raftgroup.Stable) func() error {
	return func() error {
		err := s.Settle()
		if err != nil {
			e.fail(err)
		}
		return err
	}
}

// Close stops the node and closes the store. If it leads, it should hand over before.
func (n *Node) Close() error {
	if n.stopped.Swap(true) {
		return nil
	}
	if w := n.witness(); w != nil {
		w.refreshBy(nil)
		n.noteProgress()
		_ = w.save() // it was kept until a moment ago
	}
	n.stopLeading("it stops")
	close(n.stop)
	err := n.raft.Shutdown().Error()
	undecided := n.log.undecided()
	n.log.close(store.ErrUndecided)
	n.st.GiveUp()
	n.running.Wait()
	n.files.server.answers(n.o.Net.Answer, false)
	n.o.Net.Answer(verbLead, wire.Verb{})
	n.files.server.close()
	swaps, noted := n.noteSwap()
	err = errors.Join(err, noted)
	if undecided || swaps || n.files.lacks.Load() {
		err = errors.Join(err, n.st.CloseNow()) // no view can be saved, or will be needed
	} else {
		err = errors.Join(err, n.st.Close())
	}
	if w := n.witness(); w != nil {
		err = errors.Join(err, w.Close())
	}
	return errors.Join(err, n.o.Stable.Close())
}
