package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fbfkv/fbfkv/cluster/raftmsg"
	"github.com/fbfkv/fbfkv/cluster/wire"
	"github.com/fbfkv/fbfkv/internal/longlock"
	"github.com/fbfkv/fbfkv/store"
)

// An arrival is a partition that comes to this node's shard (move.go), as this node has it. The
// received part lies on the node's disk, and the transfer continues behind it, no matter which
// connection breaks or which node leads: the adoption may be in the log already, for which a
// majority of the replicas was counted that had everything. A node gives up what it has only if
// that cannot be continued, and the leader of its shard says that no adoption has come (anew).
type arrival struct {
	m      *Mover
	move   Move
	p      uint16
	ctx    context.Context
	cancel context.CancelFunc
	is     atomic.Pointer[received] // nil: this node has nothing that is known to be whole

	// The rest is for run's goroutine.
	in     *store.Incoming
	source *wire.Caller
	files  wire.Fetcher
	peers  map[string]*movePeer

	// As the leader of the target:
	handed  uint64    // the last sequence that the source gives; 0: it was not asked to hand over
	near    time.Time // since when a majority is near the end
	whole   time.Time // since when a majority has everything
	began   time.Time
	fetched time.Time
	asked   time.Time // to hand over
	bytes   int64     // of the file
	tail    int64     // bytes of what followed
}

// received is how far a partition is that comes.
type received struct{ to, last uint64 }

// movePeer is another replica of the target, which is asked one question at a time.
type movePeer struct {
	busy longlock.Mutex
	conn *wire.Caller
}

func (m *Mover) newArrival(move Move) *arrival {
	a := &arrival{m: m, move: move, p: uint16(move.Partition), peers: map[string]*movePeer{},
		began: time.Now()}
	a.files = wire.Fetcher{FS: m.o.Node.o.FS, Dir: m.o.Node.o.FS.PathJoin(m.dir, fmt.Sprint("of", a.p)),
		MinFree: minFreeForFiles}
	a.ctx, a.cancel = context.WithCancel(m.ctx)
	return a
}

// run takes part in the move until the configuration says that it is over. If the partition has
// arrived, the received part stays until this node has redone the adoption as well.
func (a *arrival) run() {
	defer a.cancel()
	said, last := "", time.Now()
	for a.ctx.Err() == nil {
		began := time.Now()
		err := a.attempt()
		if time.Since(began) > moveQuiet {
			last = time.Now()
		}
		// Not what is over in a moment, and once for each reason.
		if err != nil && a.ctx.Err() == nil && !a.isHere() && time.Since(last) > moveQuiet &&
			err.Error() != said {
			said = err.Error()
			a.m.o.Logger.Warn("a partition cannot be received yet; this node tries again", "partition", a.p,
				"error", err)
		}
		select {
		case <-a.ctx.Done():
		case <-time.After(moveRetry):
		}
	}
	for _, p := range a.peers {
		p.busy.Lock()
		p.close()
		p.busy.Unlock()
	}
	for a.m.ctx.Err() == nil && !a.giveUp() {
		select {
		case <-a.m.ctx.Done():
		case <-time.After(moveRetry):
		}
	}
	_ = a.files.FS.RemoveAll(a.files.Dir) // else at the next start
}

// giveUp drops what has come if the partition is not to come any more; false: not yet. While that
// is not certain it is kept, for an adoption that was logged before.
func (a *arrival) giveUp() bool {
	c := a.m.o.Meta.Configuration()
	switch move := c.Move(int(a.p)); {
	case a.in == nil || c.Owner(int(a.p)).ID == a.m.o.Shard || a.m.o.Node.st.LastOf(a.p) >= a.is.Load().to:
		return true
	case move != nil && move.To == a.m.o.Shard: // it is to come again, and goes on with that
		a.in.Close()
		return true
	}
	return a.anew(c.Version) == nil
}

// isHere reports whether the partition goes on here: it was adopted for this move. One that this
// shard has given away, or adopted for a move that was taken back, and not deleted yet, does not.
func (a *arrival) isHere() bool {
	st := a.m.o.Node.st
	number, _ := st.Handed(a.p)
	return (number == 0 || number == a.move.Epoch) && st.Adopted(a.p) > 0
}

// leaderOfSource connects to the leader of the shard that has the partition.
func (a *arrival) leaderOfSource() (*wire.Caller, error) {
	leader, _, known := a.m.o.Leaders.Of(a.move.From)
	c := a.m.o.Meta.Configuration()
	member := c.Member(leader.Node)
	if !known || member == nil {
		return nil, errors.New("the leader of the shard that has it is not known")
	}
	return a.m.dial(a.ctx, *member)
}

func (m *Mover) dial(ctx context.Context, to Member) (*wire.Caller, error) {
	return m.o.Net.Caller(ctx, to.ID, to.ClusterAddress())
}

// askMove asks one of the verbs of moves.
func askMove(c *wire.Caller, verb string, q moveAsk, within time.Duration) (a moveAnswer, b []byte,
	err error) {
	b, err = c.Do(wire.Ask{Verb: verb, Ask: q, Answer: &a, Limit: raftmsg.MaxRequest, Within: within})
	return a, b, err
}

// attempt receives the partition over one connection, and has it adopted if this node leads.
func (a *arrival) attempt() (err error) {
	if a.isHere() {
		return a.adopt(a.m.o.Node.st.Adopted(a.p), 0) // an earlier leader may not have ended it
	}
	if a.source, err = a.leaderOfSource(); err != nil {
		return err
	}
	defer a.source.Close()
	a.handed = 0 // it says so again
	if err := a.open(); err != nil {
		return err
	}
	for a.ctx.Err() == nil {
		if a.isHere() {
			return a.adopt(a.m.o.Node.st.Adopted(a.p), 0)
		}
		began := time.Now()
		got, err := a.follow()
		if err != nil {
			return err
		}
		pause := max(movePause, time.Since(began)) // each answer makes the source read its log
		hurry := got > movePiece/2 || got > 0 && a.in.Last() < a.handed
		if !hurry && a.m.o.Node.Leads() {
			if hurry, err = a.lead(); err != nil {
				return err
			}
		}
		if hurry {
			continue
		}
		select {
		case <-a.ctx.Done():
		case <-time.After(pause):
		}
	}
	return a.ctx.Err()
}

// open takes up what was received before, or fetches the file.
func (a *arrival) open() error {
	st := a.m.o.Node.st
	if a.in != nil {
		return nil
	}
	to, err := st.Received(a.p)
	if err == nil && to > 0 {
		if a.in, err = st.Resume(a.p, to); err == nil {
			a.fetched = time.Now()
			a.note(to)
			return nil
		}
		if errors.Is(err, store.ErrMove) {
			return err
		}
		a.m.o.Logger.Warn("the received data of a partition is damaged; this node fetches it again",
			"partition", a.p, "error", err)
	}
	return a.fetch()
}

// note says how far this node is.
func (a *arrival) note(to uint64) { a.is.Store(&received{to, a.in.Last()}) }

// fetch gets the file of the partition, and makes the store take it in.
func (a *arrival) fetch() error {
	st, f := a.m.o.Node.st, &a.files
	answer, _, err := askMove(a.source, moveExport, moveAsk{Partition: a.p, Behind: st.LastOf(a.p)},
		moveFileTime)
	if err != nil {
		return err
	}
	o := answer.Offer
	if o == nil || len(o.Files) != 1 {
		return wire.ErrProtocol
	}
	if err := o.Valid(validMovedName); err != nil {
		return err
	}
	f.MinFree = minFreeForFiles + 2*uint64(o.Bytes()) // the store writes what the file says
	if err := f.Fetch(a.source, o); err != nil {
		return err
	}
	in, err := st.Receive(a.p, f.FS.PathJoin(f.Dir, o.Files[0].Name))
	if err == nil {
		a.in, a.bytes, a.fetched = in, o.Bytes(), time.Now()
		a.note(answer.To)
	}
	return errors.Join(err, f.FS.RemoveAll(f.Dir)) // the store has it now
}

// follow gets what the source has committed since, and returns how many bytes that was.
func (a *arrival) follow() (got int, err error) {
	_, piece, err := askMove(a.source, moveTail, moveAsk{Partition: a.p, Behind: a.in.Last()}, moveTime)
	if errors.Is(err, errAnew) {
		return 0, errors.Join(err, a.anew(0))
	}
	if err != nil || len(piece) == 0 {
		return 0, err
	}
	if err := a.in.Append(piece); err != nil {
		if !errors.Is(err, store.ErrMove) {
			a.in.Close() // what is on the disk is sound, and is taken up again
			a.in = nil
			return 0, err
		}
		return 0, errors.Join(err, a.anew(0))
	}
	a.tail += int64(len(piece))
	a.note(a.is.Load().to)
	return len(piece), nil
}

// anew gives up what has come, which cannot be continued; unless it was adopted, and this node has
// not redone that yet. Only the leader of the shard knows: it has redone everything, and there is
// no adoption in its log. None will come that counts on what is given up here: for that it lacks
// something, or the leader knows the version of the configuration, if that is not 0, by which the
// partition is not to come any more.
func (a *arrival) anew(version uint64) error {
	n := a.m.o.Node
	leads, last := n.Leads(), n.st.LastOf(a.p)
	if !leads {
		_, id := n.raft.LeaderWithID()
		c := a.m.o.Meta.Configuration()
		member := c.Member(string(id))
		if member == nil {
			return errors.New("the leader of this node's shard is not known")
		}
		conn, err := a.m.dial(a.m.ctx, *member)
		if err != nil {
			return err
		}
		defer conn.Close()
		answer, _, err := askMove(conn, moveReceived, moveAsk{Partition: a.p, Version: version}, moveTime)
		if err != nil {
			return err
		}
		leads, last = answer.Leads, answer.Sequence
	}
	if to := a.is.Load().to; !leads || last >= to {
		return fmt.Errorf("it is kept: it may have been adopted, to go on with %d", to)
	}
	a.is.Store(nil)
	err := a.in.Discard()
	a.in = nil
	return err
}

// survey asks the other voters of the shard how far they are, all at the same time. It returns how many have
// the partition up to a sequence, this node among them, and how many answered and have not; once all
// have answered, or a majority has it and the others had their time.
func (a *arrival) survey(last uint64) (have, lack, voters int) {
	c := a.m.o.Meta.Configuration()
	to := a.is.Load().to
	answers := make(chan *received, MaxMembers)
	asked := 0
	for _, member := range c.Of(a.m.o.Shard) {
		if !member.Voter {
			continue
		}
		if voters++; member.ID == a.m.o.Node.o.ID {
			have++
			continue
		}
		peer := a.peers[member.ID]
		if peer == nil {
			peer = new(movePeer)
			a.peers[member.ID] = peer
		}
		asked++
		a.m.jobs.Go(func() { answers <- peer.ask(a, member) })
	}
	limit := time.NewTimer(moveTime)
	defer limit.Stop()
	for hurry := false; asked > 0; asked-- {
		if 2*have > voters && !hurry {
			hurry = true
			limit.Reset(moveWait)
		}
		select {
		case r := <-answers:
			switch {
			case r != nil && r.to == to && r.last >= last:
				have++
			case r != nil:
				lack++
			}
		case <-limit.C:
			return have, lack, voters
		}
	}
	return have, lack, voters
}

// ask asks a replica how far it is; nil: it does not say.
func (p *movePeer) ask(a *arrival, member Member) *received {
	if !p.busy.TryLock() {
		return nil
	}
	defer p.busy.Unlock()
	if p.conn == nil {
		ctx, cancel := context.WithTimeout(a.ctx, movePeerTime)
		defer cancel()
		conn, err := a.m.o.Net.Dial(ctx, member.ID, member.ClusterAddress(), KindAsk)
		if err != nil {
			return nil
		}
		p.conn = wire.NewCaller(a.ctx, conn)
	}
	answer, _, err := askMove(p.conn, moveReceived, moveAsk{Partition: a.p}, movePeerTime)
	if err != nil {
		p.close()
		return nil
	}
	return &received{answer.To, answer.Last}
}

func (p *movePeer) close() {
	if p.conn != nil {
		p.conn.Close()
		p.conn = nil
	}
}

// lead does the next step as the leader of the target, if it is time for that; now: there is
// another one to do.
func (a *arrival) lead() (now bool, err error) {
	last := a.in.Last()
	if a.handed == 0 {
		if !a.enough(last-min(last, moveNear), &a.near, moveTime) {
			return false, nil
		}
		if a.asked.IsZero() {
			a.asked = time.Now()
		}
		answer, _, err := askMove(a.source, moveHandOver, moveAsk{Partition: a.p, Move: a.move.Epoch},
			moveTime)
		if err != nil {
			return false, err
		}
		a.handed, a.whole = answer.Last, time.Time{}
		return true, nil
	}
	if last != a.handed {
		return false, nil
	}
	if !a.enough(last, &a.whole, moveWait) {
		return false, nil
	}
	return false, a.adopt(a.is.Load().to, last)
}

// enough reports whether a majority has the partition up to a sequence, and those that answered and
// have not were waited for: they would have to take all files of the shard. since is when a
// majority had it.
func (a *arrival) enough(last uint64, since *time.Time, wait time.Duration) bool {
	have, lack, voters := a.survey(last)
	if 2*have <= voters {
		*since = time.Time{}
		return false
	}
	if since.IsZero() {
		*since = time.Now()
	}
	return lack == 0 || time.Since(*since) >= wait
}

// adopt lets the partition go on here with the sequence to, as the leader, has the configuration
// say so, and tells the source.
func (a *arrival) adopt(to, last uint64) error {
	m := a.m
	if !m.o.Node.Leads() {
		return nil // its leader does
	}
	if err := m.o.Node.st.Adopt(a.p, to, last, a.move.Epoch); err != nil {
		return err
	}
	if err := m.o.Meta.Configure(a.ctx, func(c *Configuration) error {
		c.arrived(a.move)
		return nil
	}); err != nil {
		return err
	}
	c := m.o.Meta.Configuration()
	m.tidy(&c)
	if c.Owner(int(a.p)).ID != m.o.Shard {
		return nil // it was taken back
	}
	b, err := c.Encode()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(m.ctx, moveTime) // the move is over
	defer cancel()
	leader, _, _ := m.o.Leaders.Of(a.move.From)
	if member := c.Member(leader.Node); member != nil {
		_, err = m.o.Net.Ask(ctx, member.ID, member.ClusterAddress(), wire.Ask{Verb: moveArrived,
			Ask: moveAsk{Partition: a.p}, Bytes: b, Within: moveTime})
	}
	if err != nil {
		m.o.Logger.Info("a partition has arrived, and its former shard does not know yet; this node tells "+
			"it later", "partition", a.p, "error", err)
	}
	a.report()
	return nil
}

// report logs how long it took. The work of an earlier leader or process is not known.
func (a *arrival) report() {
	ms := func(from, to time.Time) int64 {
		if from.IsZero() || to.IsZero() {
			return 0
		}
		return to.Sub(from).Milliseconds()
	}
	now := time.Now()
	a.m.o.Logger.Info("a partition has arrived", "partition", a.p, "from", a.move.From, "bytes", a.bytes,
		"copied_ms", ms(a.began, a.fetched),
		"tail_bytes", a.tail, "tail_ms", ms(a.fetched, a.asked), "hand_over_ms", ms(a.asked, now), "took_ms",
		ms(a.began, now))
}
