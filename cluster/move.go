package cluster

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// A partition moves from one shard to another while both serve (store/move.go has what their stores do). The
// configuration says which one moves from where to where; nobody else needs to remember anything, so
// that any node may be lost at any time, or the command that has asked for it:
//
//	each node of the target    fetches the partition's file from the source's leader, and then what that
//	                           commits, again and again (arrival.go). What it has it keeps until the
//	                           adoption has made use of it: others count on it
//	the target's leader        once it and a majority of its replicas are near the end, asks the source's
//	                           leader to hand over, which is that shard's last entry for the partition;
//	                           waits until a majority has all up to there on disk; logs the adoption; and
//	                           then has the configuration say who has the partition (arrival.lead)
//	the source's leader        deletes the partition once the configuration says that (Mover.tidy). A later
//	                           one finds in its log that it was handed over
//
// Between the hand-over and the new configuration nobody is answered: clients are held. The number of a
// hand-over is the version of the configuration by which the source knew of the move. So a leader that knows
// only an older configuration neither deletes what has not arrived, nor serves what has.

// Limits and times of moves.
const (
	maxMoveLine  = 256 << 10
	movePiece    = 1 << 20
	moveLog      = 4 << 30              // bytes of the op log that are kept for a move
	moveNear     = 1000                 // entries that the target may lack when the source hands over
	movePause    = 5 * time.Millisecond // between two questions for what follows
	moveRetry    = 200 * time.Millisecond
	movePeerTime = time.Second           // for another replica to say how far it is
	moveWait     = 50 * time.Millisecond // for the last of the target's replicas, once a majority has everything
	moveQuiet    = 2 * time.Second       // that a partition cannot come is said only after this
	moveTime     = 10 * time.Second      // for an answer
	moveFileTime = time.Minute           // for a file to be made
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
	tidying   sync.Mutex
	mu        sync.Mutex
	following *arrival // the partition that comes: one after the other
	outgoing  map[uint16]*outgoing
}

// StartMover begins to move what is to be moved.
func StartMover(o MoverOptions) *Mover {
	m := &Mover{o: o, dir: o.Node.o.FS.PathJoin(o.Node.o.Dir, moveDir), again: make(chan struct{}, 1), outgoing: map[uint16]*outgoing{}}
	if err := o.Node.o.FS.RemoveAll(m.dir); err != nil { // what an earlier process has left
		o.Logger.Warn("the files of partitions that moved cannot be removed", "error", err)
	}
	m.ctx, m.stop = context.WithCancel(context.Background())
	o.Net.Handle(KindMove, m.serve)
	m.jobs.Go(m.watch)
	return m
}

// Close ends what is under way; it goes on at the next start.
func (m *Mover) Close() {
	m.o.Net.Handle(KindMove, nil)
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
	if a := m.following; a != nil && !slices.Contains(c.Moves, a.move) {
		a.cancel()
	}
	if i := slices.IndexFunc(c.Moves, func(move Move) bool { return move.To == m.o.Shard }); i >= 0 && m.following == nil && m.ctx.Err() == nil {
		a := m.newArrival(c.Moves[i])
		m.following = a
		m.jobs.Go(func() {
			a.run()
			m.mu.Lock()
			m.following = nil
			m.mu.Unlock()
			select {
			case m.again <- struct{}{}:
			default: // it is about to look
			}
		})
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

// tidy ends what was handed over, as the leader of the source: it goes if it has arrived, also if it is to come
// back, and is served again if it does not move any more.
func (m *Mover) tidy(c *Configuration) {
	m.tidying.Lock()
	defer m.tidying.Unlock()
	if !m.o.Node.Leads() {
		return
	}
	st := m.o.Node.st
	for p := range c.Partitions {
		number, _ := st.Handed(uint16(p))
		if number == 0 || c.Version < number {
			continue
		}
		var err error
		switch owner := c.Owner(p).ID; {
		case owner == m.o.Shard && c.Move(p) != nil: // it is on its way
			continue
		case owner == m.o.Shard:
			err = st.Release(uint16(p))
		default:
			if err = st.Vacate(uint16(p)); err == nil {
				m.o.Logger.Info("a partition that another shard has now is deleted", "partition", p)
			}
		}
		if err != nil {
			m.o.Logger.Warn("what is left of a partition that has moved cannot be deleted yet", "partition", p, "error", err)
		}
		m.o.Show()
	}
}
