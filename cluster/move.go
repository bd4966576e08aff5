package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/fbfkv/fbfkv/internal/longlock"
	"github.com/fbfkv/fbfkv/store"
)

// A partition moves from one shard to another while both serve (store/move.go has what their stores do). The
// configuration says which one moves from where to where; nobody else needs to remember anything, so
// that any node may be lost at any time, or the command that has asked for it:
//
//	each node of the target    fetches the partition's file from the source's leader, and then that leader's
//	                           new commits, again and again (arrival.go). It keeps all of it until the
//	                           adoption has made use of it: others count on it
//	the target's leader        once it and a majority of its replicas are near the end, asks the source's
//	                           leader to hand over, which is that shard's last entry for the partition;
//	                           waits until a majority has all up to there on disk; logs the adoption; and
//	                           then has the configuration say who has the partition (arrival.lead)
//	both leaders               once the configuration says that it does not move any more, the one
//	                           of the shard that has the partition lets it be served, and the other
//	                           one deletes it (endMove). A later leader finds in its log that it is
//	                           held
//
// From the hand-over on nobody is answered in the source, and from the adoption on nobody in the
// target: clients are held until the configuration says which of the two has the partition. Only
// the configuration decides that, by the change that comes first: the partition has arrived
// (Configuration.arrived), or it stays (Configuration.stay). An operator may ask for the latter
// when one of the shards is lost for ever. The other one finds no move any more, and changes
// nothing. So a move can be taken back until the configuration says that the partition has arrived,
// also when it was handed over, and whether it was adopted or not: that adoption counts for
// nothing.
//
// Four rules keep late nodes from doing harm. A partition is held under the number of its move, the
// version of the configuration that noted it (Move.Epoch): so a leader that knows only an older
// configuration neither serves nor deletes a held partition, in either shard. A hold for an earlier
// move than the present one is over: a partition that was adopted for a move that was taken back is
// deleted, and comes anew. And the source hands over only for the move that it knows itself, under
// its number, so that the end of an earlier one releases nothing. And a shard holds a partition
// under no number that is lower than one before: when all nodes have just started, both leaders may
// know an old configuration only, and would repeat a move that is over.

// Limits and times of moves.
const (
	movePiece    = 1 << 20
	moveLog      = 4 << 30              // bytes of the op log that are kept for a move
	moveNear     = 1000                 // entries that the target may lack when the source hands over
	movePause    = 5 * time.Millisecond // between two questions for the records that follow
	moveRetry    = 200 * time.Millisecond
	movePeerTime = time.Second // for another replica to say how far it is
	// for the last of the target's replicas, once a majority has everything
	moveWait     = 50 * time.Millisecond
	moveQuiet    = 2 * time.Second  // that a partition cannot come is said only after this
	moveTime     = 10 * time.Second // for an answer
	moveFileTime = time.Minute      // for a file to be made
	moveDir      = "moving"
)

// MoverOptions configure a Mover. All are required.
type MoverOptions struct {
	Node    *Node
	Meta    *Meta
	Net     *Net
	Leaders *Leaders
	// Shard is the node's.
	Shard string
	// Show is called when Held may have changed, and returns when clients are answered accordingly.
	Show   func()
	Logger *slog.Logger
}

// Mover moves partitions to and from this node's shard. Safe for concurrent use.
type Mover struct {
	o    MoverOptions
	dir  string
	ctx  context.Context
	stop context.CancelFunc
	jobs sync.WaitGroup

	again     chan struct{} // an arrival has ended
	tidying   longlock.Mutex
	mu        sync.Mutex
	following map[string]*arrival // the partition that comes from each shard: one after the other
	outgoing  map[uint16]*outgoing
}

// StartMover starts the moves of the configuration that concern this node.
func StartMover(o MoverOptions) *Mover {
	m := &Mover{o: o, dir: o.Node.o.FS.PathJoin(o.Node.o.Dir, moveDir), again: make(chan struct{}, 1),
		following: map[string]*arrival{}, outgoing: map[uint16]*outgoing{}}
	if err := o.Node.o.FS.RemoveAll(m.dir); err != nil { // what an earlier process has left
		o.Logger.Warn("the files of partitions that moved cannot be removed", "error", err)
	}
	m.ctx, m.stop = context.WithCancel(context.Background())
	m.answers(true)
	m.jobs.Go(m.watch)
	return m
}

// Close ends what is under way; it goes on at the next start.
func (m *Mover) Close() {
	m.answers(false)
	m.mu.Lock()
	m.stop()
	m.mu.Unlock()
	m.jobs.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, out := range m.outgoing {
		m.drop(out)
	}
}

// Held reports whether nobody is answered for a partition of this node's shard because it is being handed
// over, or has arrived elsewhere.
func (m *Mover) Held(partition int) bool {
	number, _ := m.o.Node.st.Handed(uint16(partition))
	return number > 0
}

// watch does what the configuration says.
func (m *Mover) watch() {
	for m.ctx.Err() == nil {
		changed, configured := m.o.Node.Changed(), m.o.Meta.Changed()
		m.look()
		select {
		case <-changed:
		case <-configured:
		case <-m.again:
		case <-time.After(moveRetry):
		case <-m.ctx.Done():
		}
	}
}

func (m *Mover) look() {
	c := m.o.Meta.Configuration()
	if c.Version == 0 {
		return
	}
	m.mu.Lock()
	for _, a := range m.following {
		if !slices.Contains(c.Moves, a.move) {
			a.cancel()
		}
	}
	for _, move := range c.Moves {
		// a shard without a leader holds up no other
		if move.To == m.o.Shard && m.following[move.From] == nil && m.ctx.Err() == nil {
			m.follow(move)
		}
	}
	for p, out := range m.outgoing {
		if move := c.Move(int(p)); move == nil || move.From != m.o.Shard {
			delete(m.outgoing, p)
			m.jobs.Go(func() { m.drop(out) })
		}
	}
	m.mu.Unlock()
	m.tidy(&c)
}

// follow begins to take part in a move. It is locked.
func (m *Mover) follow(move Move) {
	a := m.newArrival(move)
	m.following[move.From] = a
	m.jobs.Go(func() {
		a.run()
		m.mu.Lock()
		delete(m.following, move.From)
		m.mu.Unlock()
		select {
		case m.again <- struct{}{}:
		default: // it is about to look
		}
	})
}

// tidy ends the moves that are over, as the leader of the shard.
func (m *Mover) tidy(c *Configuration) {
	m.tidying.Lock()
	defer m.tidying.Unlock()
	if !m.o.Node.Leads() {
		return
	}
	for p := range c.Partitions {
		ended, err := endMove(m.o.Node.st, c, m.o.Shard, p)
		switch {
		case err != nil:
			m.o.Logger.Warn("the move of a partition is complete, but this node cannot end it yet",
				"partition", p, "error", err)
		case !ended:
			continue
		case c.Owner(p).ID != m.o.Shard:
			m.o.Logger.Info("a partition is deleted here: another shard has it", "partition", p)
		}
		m.o.Show()
	}
}

// endMove ends the move of a partition that is held in a shard, as its leader, if by a
// configuration it is over: the partition is served if the shard has it, and deleted if it has not.
func endMove(st *store.Store, c *Configuration, shard string, p int) (ended bool, err error) {
	number, _ := st.Handed(uint16(p))
	switch move := c.Move(p); {
	case number == 0 || number > c.Version:
		return false, nil
	case move != nil && number >= move.Epoch: // handed over for it, or adopted
		return false, nil
	case c.Owner(p).ID == shard:
		return true, st.Release(uint16(p), number)
	}
	return true, st.Vacate(uint16(p), number)
}

// moves notes that partitions are to move to a shard, unless they are there or on their way.
func (c *Configuration) moves(r MoveRequest) error {
	for _, p := range r.Partitions {
		owner, moves := c.Owner(p), c.Move(p)
		switch {
		case c.Regions != nil:
			return errRegionsMove
		case owner == nil:
			return fmt.Errorf("there is no partition %d: the cluster has %d", p, c.Partitions)
		case moves != nil && moves.To != r.To:
			return fmt.Errorf("partition %d is on its way to the shard %.8s", p, moves.To)
		case owner.ID != r.To && moves == nil:
			c.Moves = append(c.Moves, Move{Partition: p, From: owner.ID, To: r.To, Epoch: c.Version + 1})
		}
	}
	return nil
}

// stay takes back the moves of partitions.
func (c *Configuration) stay(partitions []int) {
	c.Moves = slices.DeleteFunc(c.Moves, func(m Move) bool {
		return slices.Contains(partitions, m.Partition)
	})
}

// arrived ends a move: its partition is the other shard's. One that was taken back ends nothing.
func (c *Configuration) arrived(m Move) {
	i := slices.Index(c.Moves, m)
	if i < 0 {
		return // it was said before
	}
	c.Moves = slices.Delete(c.Moves, i, i+1)
	c.Shard(m.From).set(m.Partition, false)
	c.Shard(m.To).set(m.Partition, true)
}
