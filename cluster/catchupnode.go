package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"

	"github.com/fbfkv/fbfkv/cluster/raftgroup"
	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/persistence/oplog"
)

// catchUp is what a node knows of catching up: as the one that is behind, and as the one that
// gives its files.
type catchUp struct {
	fetcher *fetcher
	server  *fileServer
	holding atomic.Bool // Raft keeps its log
	running atomic.Bool // files are being fetched
	lacks   atomic.Bool // this node cannot go on without
	fetched atomic.Pointer[fetched]
}

// fetched is what a node has fetched: the files of a manifest, and where their log is.
type fetched struct {
	manifest *manifest
	at       cutPosition
	lastTerm uint64
}

// errHeld keeps Raft from taking a snapshot, and so from trimming its log.
var errHeld = errors.New("the log is kept for a node that is fetching files")

// minFreeForFiles is how much of the disk is left free by files that are fetched, bytes.
const minFreeForFiles = 256 << 20

// heldLog is how many bytes the log may grow by while it is kept for a node that fetches
// files, unless these are more: then they are too old to be worth it.
const heldLog = 1 << 30

// fetchPause is how long a node waits that could not fetch files before it tries again.
const fetchPause = 2 * time.Second

// lackPause is how often a node that cannot go on by itself looks who leads.
const lackPause = 50 * time.Millisecond

func (n *Node) initCatchUp(fetched TransferCounts) {
	n.files.fetcher = newFetcher(fetcherOptions{
		fs: n.o.FS, dir: n.o.FS.PathJoin(n.o.Dir, persistence.IncomingName),
		dial: n.dialLeader, last: n.lastEntry, examine: n.examine, minFree: minFreeForFiles, log: n.o.Logger,
	})
	n.files.fetcher.counts.add(fetched)
	n.files.server = newFileServer(fileServerOptions{
		fs: n.o.FS, dir: n.st.CutDir(), remove: n.st.RemoveCut,
		begin: n.beginCut, release: func() { n.files.holding.Store(false) }, cut: n.st.Cut,
		rate: transferRate, log: n.o.Logger,
	})
}

// beginCut has Raft keep its log from now on, and says where it is.
func (n *Node) beginCut() (at cutPosition, err error) {
	// Also before it decides: to begin it may need the vote of the node that asks.
	if n.raft.State() != raft.Leader {
		return at, errors.New("it does not lead")
	}
	n.files.holding.Store(true)
	// A snapshot that Raft is taking would trim the log still. They are taken one after the
	// other, and this one is refused.
	_ = n.raft.Snapshot().Error()
	if at.snapshot, err = n.o.Stable.Last(); err != nil {
		return at, err
	}
	_, at.logBytes = n.log.Sizes()
	at.applied = n.log.Applied()
	if err = n.log.Sync(); err == nil { // so that the copy says that much is applied, though nothing follows
		at.appliedTerm, err = n.termOf(at.applied)
	}
	return at, err
}

// keepsLog reports whether a node that fetches files still needs the log.
func (n *Node) keepsLog() bool {
	_, bytes := n.log.Sizes()
	return n.files.server.keepsLog(bytes)
}

// termOf returns the term of an entry of the log.
func (n *Node) termOf(index uint64) (uint64, error) {
	var e oplog.Entry
	err := n.log.Entry(index, &e)
	return e.Term, err
}

// lastEntry returns the index and the term of the log's last entry, or of the one before its
// first.
func (n *Node) lastEntry() (index, term uint64) {
	if _, index = n.log.EntryBounds(); index > 0 {
		if term, err := n.termOf(index); err == nil {
			return index, term
		}
	}
	if meta, err := n.o.Stable.Last(); err == nil && meta != nil {
		return meta.Index, meta.Term
	}
	return index, 0
}

// onSnapshot answers the leader's wish that this node takes a snapshot, which the leader sends
// when its log does not reach back to what it believes this node lacks. Raft never sees it: a
// snapshot has no state, and taking one would make Raft forget the log. A node that
// has what the snapshot stands for says so, and gets the entries behind it.
func (n *Node) onSnapshot(q *raft.InstallSnapshotRequest) (*raft.InstallSnapshotResponse, error) {
	a := &raft.InstallSnapshotResponse{Term: n.raft.CurrentTerm()}
	if q.Term < a.Term {
		return a, nil
	}
	a.Term = q.Term
	if n.contradicts(place{q.LastLogTerm, q.LastLogIndex}) {
		return a, raftgroup.ErrKeepsLost
	}
	if q.LastLogIndex <= n.log.Applied() {
		a.Success = true
		return a, nil
	}
	if term, err := n.termOf(q.LastLogIndex); err == nil && term == q.LastLogTerm {
		a.Success = true // it has all entries up to there
		return a, nil
	}
	n.fetchFiles()
	return a, errors.New("this node is behind the log, and fetches the leader's files")
}

// fetchFiles begins to fetch the leader's files, unless it does so already.
func (n *Node) fetchFiles() {
	if n.o.Restart == nil || n.files.fetched.Load() != nil || n.files.running.Swap(true) {
		return
	}
	n.o.Logger.Warn("this node is behind the oldest entry of the leader's log: it fetches the leader's files")
	n.running.Go(func() {
		defer n.files.running.Store(false)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go func() {
			select {
			case <-n.stop:
				cancel()
			case <-ctx.Done():
			}
		}()
		_, err := n.files.fetcher.fetch(ctx)
		switch {
		case err == nil:
			n.o.Logger.Info("this node has fetched the leader's files, and restarts with them")
			n.o.Restart()
		case ctx.Err() == nil:
			n.o.Logger.Info("this node does not fetch files", "reason", err)
			n.dropFetched()
			select { // the leader asks often
			case <-time.After(fetchPause):
			case <-n.stop:
			}
		}
	})
}

// takeOthers has this node, which lacks what an entry needs, fetch the leader's files and start
// anew. Nothing is applied any more. It stores entries until it knows that a leader has had one of
// its term committed: that leader knows everything that was committed with this node's vote, and so
// do its files, once this node stores no more. If this node is elected, since it has the longest
// log, another one leads that has what is lacking.
func (n *Node) takeOthers(why error) {
	n.o.Logger.Warn("this node cannot continue by itself", "error", why)
	n.files.lacks.Store(true)
	n.st.GiveUp() // a request that waits for the rest of the entry would keep the process from ending
	n.running.Go(func() {
		for {
			changed := n.Changed()
			switch committed, _ := n.termOf(n.raft.CommitIndex()); {
			case n.raft.State() == raft.Leader:
				n.transport.RefuseEntries(false)
				n.passOn()
			case committed != n.raft.CurrentTerm() || n.raft.State() != raft.Follower:
				n.transport.RefuseEntries(false)
			case n.transport.RefuseEntries(true):
				n.fetchFiles()
			}
			select {
			case <-n.stop:
				return
			case <-changed:
			case <-time.After(lackPause):
			}
		}
	})
}

// passOn makes another node lead that answers, any of them, while this one cannot.
func (n *Node) passOn() {
	progress := n.transport.Progress()
	var others []raft.Server
	for _, s := range n.raft.GetConfiguration().Configuration().Servers {
		if s.Suffrage == raft.Voter && string(s.ID) != n.o.ID &&
			time.Since(progress[s.ID].Contact) <= n.o.Timeout {
			others = append(others, s)
		}
	}
	if len(others) > 0 {
		to := others[rand.IntN(len(others))]
		n.transport.HandOver()
		_ = n.await(context.Background(), n.transferTo(to)) // else it is tried again
	}
}

// dropFetched gives up what was fetched.
func (n *Node) dropFetched() {
	n.files.fetched.Store(nil)
	if err := n.o.FS.RemoveAll(n.files.fetcher.o.dir); err != nil {
		n.o.Logger.Warn("the files that were fetched cannot be removed", "error", err)
	}
}

// dialLeader connects to the leader.
func (n *Node) dialLeader(ctx context.Context) (net.Conn, error) {
	address, id := n.raft.LeaderWithID()
	if id == "" || string(id) == n.o.ID {
		return nil, errors.New("no other node leads")
	}
	raw, err := n.o.Net.Dial(ctx, string(id), string(address), KindAsk)
	if err != nil {
		return nil, err
	}
	c := &leaderConn{Conn: raw, hurry: hurryTimeouts * n.o.Timeout, closed: make(chan struct{})}
	n.running.Go(func() { n.watchLeader(id, c) })
	return c, nil
}

// hurryTimeouts is how many node timeouts an answer of a node may take that leads no more.
const hurryTimeouts = 3

// leaderConn is a connection to the leader. Once another node leads, this one may have lost its
// power, of which the connection says nothing, and the new leader may be able to commit nothing
// before this node has its files: each answer has to come soon then.
type leaderConn struct {
	net.Conn
	hurry  time.Duration
	closed chan struct{}
	once   sync.Once

	mu      sync.Mutex
	deposed bool
}

// watchLeader has a connection hurry once another node leads than one.
func (n *Node) watchLeader(one raft.ServerID, c *leaderConn) {
	for {
		changed := n.Changed()
		if _, now := n.raft.LeaderWithID(); now != "" && now != one {
			_ = c.depose() // a broken connection fails when it is used
			return
		}
		select {
		case <-changed:
		case <-c.closed:
			return
		}
	}
}

// depose says that another node leads.
func (c *leaderConn) depose() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deposed = true
	return c.Conn.SetDeadline(time.Now().Add(c.hurry))
}

func (c *leaderConn) SetDeadline(at time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if soon := time.Now().Add(c.hurry); c.deposed && soon.Before(at) {
		at = soon
	}
	return c.Conn.SetDeadline(at)
}

func (c *leaderConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// examine opens what was fetched, and notes where its log is.
func (n *Node) examine(dir string, m *manifest) error {
	at, lastTerm, nearest, err := examineCut(n.o.FS, dir, n.st.Meta(), m, n.log.Applied())
	if err == nil && slices.ContainsFunc(nearest[:], n.contradicts) {
		return raftgroup.ErrKeepsLost
	}
	if err == nil {
		n.files.fetched.Store(&fetched{manifest: m, at: at, lastTerm: lastTerm})
	}
	return err
}

// examineCut opens a directory that has the files of a manifest, and returns where its log is, the
// place of its committed entry that is nearest to an index, and the one at which the reign of that
// began.
func examineCut(fsys vfs.FS, dir string, own persistence.Meta, m *manifest, index uint64) (at cutPosition,
	lastTerm uint64, nearest [2]place, err error) {
	db, err := persistence.OpenReadOnly(persistence.Options{FS: fsys, Dir: dir, Sections: Sections,
		Fatal: func(error) {}})
	if err != nil {
		return at, 0, nearest, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if meta := db.Meta(); meta.Seed != own.Seed || meta.Partitions != own.Partitions {
		return at, 0, nearest, errors.New("they are another cluster's")
	}
	log := db.Log()
	first, last := log.EntryBounds()
	before := uint64(0) // what the log begins behind
	if m.Snapshot != nil {
		before = m.Snapshot.Index
	}
	at.applied = log.Applied()
	if last == 0 || first > before+1 || at.applied < before {
		return at, 0, nearest, fmt.Errorf("%w: the log has entries %d to %d, of which %d are applied, "+
			"behind a snapshot of %d", persistence.ErrCorrupt, first, last, at.applied, before)
	}
	var e oplog.Entry
	if err := log.Entry(at.applied, &e); err != nil {
		return at, 0, nearest, err
	}
	at.appliedTerm = e.Term
	if err := log.Entry(min(max(index, first), at.applied), &e); err != nil {
		return at, 0, nearest, err
	}
	nearest = [2]place{{e.Term, e.Index}, place(e.Reign)}
	err = log.Entry(last, &e)
	return at, e.Term, nearest, err
}

// noteSwap notes that the node takes what it has fetched, if it is to do so. Raft is shut
// down, so the log does not move any more.
func (n *Node) noteSwap() (bool, error) {
	f := n.files.fetched.Load()
	if f == nil {
		return false, nil
	}
	last, lastTerm := n.lastEntry()
	if !takesPlaceOf(f.at.applied, f.at.appliedTerm, last, lastTerm) {
		n.o.Logger.Info("this node has newer entries than the files that it fetched, and keeps its own",
			"last", last, "fetched", f.at.applied)
		n.dropFetched()
		return false, nil
	}
	err := swap{Term: f.lastTerm, Snapshot: f.manifest.Snapshot,
		Counts: n.files.fetcher.counts.Counts()}.begin(n.o.Stable)
	return err == nil, err
}

// Transfers returns what this node has fetched, and what it has given to others.
func (n *Node) Transfers() (fetched, given TransferCounts) {
	return n.files.fetcher.counts.Counts(), n.files.server.counts.Counts()
}
