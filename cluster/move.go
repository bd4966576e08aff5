package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/fbfkv/fbfkv/persistence/disk"
	"github.com/fbfkv/fbfkv/store"
)

// A partition moves from one shard to another while both serve (store/move.go has what their stores do). The
// configuration says which one moves from where to where; nobody else needs to remember anything, so
// that any node may be lost at any time, or the command that has asked for it:
//
//	each node of the target    fetches the partition's file from the source's leader, and then what that
//	                           commits, again and again (Mover.follow)
//	the target's leader        once it and a majority of its replicas are near the end, asks the source's
//	                           leader to hand over, which is that shard's last entry for the partition;
//	                           waits until a majority has all up to there on disk; logs the adoption; and
//	                           then has the configuration say who has the partition (Mover.lead)
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
	moveLog      = 4 << 30 // bytes of the op log that are kept for a move
	moveNear     = 1000    // entries that the target may lack when the source hands over
	movePause    = 20 * time.Millisecond
	moveRetry    = 500 * time.Millisecond
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

	mu        sync.Mutex
	following map[int]context.CancelFunc // partitions that come
	incoming  map[uint16]*incoming
	outgoing  map[uint16]*outgoing
}

// incoming is a partition of which this node receives what the source has.
type incoming struct {
	to   uint64
	last uint64
}

// StartMover begins to move what is to be moved.
func StartMover(o MoverOptions) *Mover {
	m := &Mover{o: o, dir: o.Node.o.FS.PathJoin(o.Node.o.Dir, moveDir), following: map[int]context.CancelFunc{},
		incoming: map[uint16]*incoming{}, outgoing: map[uint16]*outgoing{}}
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
	m.stop()
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
	wanted := map[int]bool{}
	for _, move := range c.Moves {
		if move.To != m.o.Shard {
			continue
		}
		wanted[move.Partition] = true
		if m.following[move.Partition] == nil && len(m.following) == 0 { // one after the other
			ctx, cancel := context.WithCancel(m.ctx)
			m.following[move.Partition] = cancel
			m.jobs.Go(func() {
				m.receive(ctx, move)
				m.mu.Lock()
				delete(m.following, move.Partition)
				m.mu.Unlock()
			})
		}
	}
	for p, cancel := range m.following {
		if !wanted[p] {
			cancel()
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

// tidy ends what was handed over, as the leader of the source: it goes if it has arrived, and is served again
// if it does not move any more.
func (m *Mover) tidy(c *Configuration) {
	if !m.o.Node.Leads() {
		return
	}
	st := m.o.Node.st
	for p := range c.Partitions {
		number, _ := st.Handed(uint16(p))
		if number == 0 || c.Version < number || c.Move(p) != nil {
			continue
		}
		var err error
		if c.Owner(p).ID == m.o.Shard {
			err = st.Release(uint16(p))
		} else if err = st.Vacate(uint16(p)); err == nil {
			m.o.Logger.Info("a partition that another shard has now is deleted", "partition", p)
		}
		if err != nil {
			m.o.Logger.Warn("what is left of a partition that has moved cannot be deleted yet", "partition", p, "error", err)
		}
		m.o.Show()
	}
}

// receive takes part in a move until the configuration says that it is over.
func (m *Mover) receive(ctx context.Context, move Move) {
	said := ""
	for ctx.Err() == nil {
		err := m.attempt(ctx, move)
		if err != nil && ctx.Err() == nil && err.Error() != said { // once for each reason
			said = err.Error()
			m.o.Logger.Warn("a partition cannot come yet; this node tries again", "partition", move.Partition, "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(moveRetry):
		}
	}
}

// source connects to the leader of the shard that has the partition.
func (m *Mover) source(ctx context.Context, move Move) (*moveConn, error) {
	leader, _, known := m.o.Leaders.Of(move.From)
	c := m.o.Meta.Configuration()
	member := c.Member(leader.Node)
	if !known || member == nil {
		return nil, errors.New("nobody is known to lead the shard that has it")
	}
	return m.dial(ctx, *member)
}

func (m *Mover) dial(ctx context.Context, to Member) (*moveConn, error) {
	conn, err := m.o.Net.Dial(ctx, to.ID, to.ClusterAddress(), KindMove)
	if err != nil {
		return nil, err
	}
	return newMoveConn(conn), nil
}

// attempt receives the partition over one connection, and moves it if this node leads.
func (m *Mover) attempt(ctx context.Context, move Move) error {
	st, p := m.o.Node.st, uint16(move.Partition)
	if st.Adopted(p) > 0 {
		return m.conclude(ctx, move)
	}
	conn, err := m.source(ctx, move)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	in, to, err := m.fetch(conn, p)
	if err != nil {
		return err
	}
	defer func() {
		m.note(p, nil)
		if err := in.Discard(); err != nil { // unless it has been adopted
			m.o.Logger.Warn("what has come of a partition cannot be removed", "partition", p, "error", err)
		}
	}()
	for handed := uint64(0); ; {
		m.note(p, &incoming{to, in.Last()})
		if st.Adopted(p) > 0 {
			return m.conclude(ctx, move)
		}
		_, piece, err := conn.ask(moveQuestion{Verb: moveTail, Partition: p, Behind: in.Last()}, moveTime)
		if err != nil {
			return err
		}
		if len(piece) > 0 {
			if err := in.Append(piece); err != nil {
				return err
			}
			continue
		}
		switch {
		case !m.o.Node.Leads():
		case handed == 0 && m.majorityHas(ctx, p, to, in.Last()-min(in.Last(), moveNear)):
			answer, _, err := conn.ask(moveQuestion{Verb: moveHandOver, Partition: p}, moveTime)
			if err != nil {
				return err
			}
			handed = answer.Last
			m.o.Logger.Info("a partition was handed over to this shard", "partition", p, "entry", handed)
			continue
		case handed > 0 && in.Last() == handed && m.majorityHas(ctx, p, to, handed):
			if err := st.Adopt(p, to, handed); err != nil {
				return err
			}
			return m.conclude(ctx, move)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(movePause):
		}
	}
}

// note notes how far a partition that comes is; nil: it does not come.
func (m *Mover) note(p uint16, in *incoming) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.incoming[p] = in; in == nil {
		delete(m.incoming, p)
	}
}

// fetch gets the file of a partition, and makes the store take it in.
func (m *Mover) fetch(conn *moveConn, p uint16) (in *store.Incoming, to uint64, err error) {
	fsys, st := m.o.Node.o.FS, m.o.Node.st
	answer, _, err := conn.ask(moveQuestion{Verb: moveExport, Partition: p, Behind: st.LastOf(p)}, moveFileTime)
	if err != nil {
		return nil, 0, err
	}
	if !validMovedName(answer.Name) || answer.Size < 0 {
		return nil, 0, errProtocol
	}
	if err := disk.MakeDir(fsys, m.dir); err != nil {
		return nil, 0, err
	}
	path := fsys.PathJoin(m.dir, answer.Name)
	if usage, err := fsys.GetDiskUsage(m.dir); err == nil && usage.AvailBytes < 3*uint64(answer.Size)+minFreeForFiles {
		return nil, 0, fmt.Errorf("%w: %d bytes of a partition", errTooLarge, answer.Size)
	}
	f, err := fsys.Create(path, disk.WriteCategory)
	if err != nil {
		return nil, 0, err
	}
	for at := int64(0); err == nil && at < answer.Size; {
		var b []byte
		if _, b, err = conn.ask(moveQuestion{Verb: moveRead, Partition: p, Offset: at}, moveTime); err == nil && len(b) == 0 {
			err = errProtocol
		}
		if err == nil {
			_, err = f.Write(b)
		}
		at += int64(len(b))
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, 0, err
	}
	in, err = st.Receive(p, path)
	return in, answer.To, err
}

// majorityHas reports whether a majority of the shard's voters, this node among them, has received a partition at
// least up to a sequence.
func (m *Mover) majorityHas(ctx context.Context, p uint16, to, last uint64) bool {
	c := m.o.Meta.Configuration()
	have, voters := 1, 0
	for _, member := range c.Of(m.o.Shard) {
		if !member.Voter {
			continue
		}
		voters++
		if member.ID == m.o.Node.o.ID {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		if conn, err := m.dial(ctx, member); err == nil {
			answer, _, err := conn.ask(moveQuestion{Verb: moveReceived, Partition: p}, time.Second)
			if err == nil && answer.To == to && answer.Last >= last {
				have++
			}
			conn.Close()
		}
		cancel()
	}
	return 2*have > voters
}

// conclude has the configuration say that a partition is here, and tells the source.
func (m *Mover) conclude(ctx context.Context, move Move) error {
	if !m.o.Node.Leads() {
		return nil // its leader does
	}
	if err := m.o.Meta.Configure(ctx, func(c *Configuration) error {
		c.arrived(move)
		return nil
	}); err != nil {
		return err
	}
	m.o.Show()
	m.o.Logger.Info("a partition has arrived", "partition", move.Partition)
	c := m.o.Meta.Configuration()
	b, err := c.Encode()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(m.ctx, moveTime) // the move is over
	defer cancel()
	conn, err := m.source(ctx, move)
	if err == nil {
		_, _, err = conn.ask(moveQuestion{Verb: moveArrived, Partition: uint16(move.Partition), Configuration: b}, moveTime)
		conn.Close()
	}
	if err != nil {
		m.o.Logger.Info("the shard that had a partition will hear later that it has arrived", "partition", move.Partition, "error", err)
	}
	return nil
}
