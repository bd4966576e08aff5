package commands

import (
	"time"
	"unsafe"

	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
)

// Round is one step of serving: the requests that one or several connections
// have sent, executed as one store.Batch and so committed together.
//
//	r.Join(p)      the requests that follow are this connection's
//	p.Add(args)    …
//	r.Join(q)
//	q.Add(args)    …
//	r.Execute()    once, for all of them
//	r.Observe()
//	p.Answer(w)    each connection's replies, in its own order
//	q.Answer(v)
//	r.Reset()
//
// A connection joins a round at most once. That operations of different
// connections are decided one after the other is an order that they might have had
// anyway, so nobody can tell. No reply exists
// before Execute has returned, and it returns only when what it decided is as
// durable as promised: that is G2 and G3 for everyone in the round.
//
// The connection with a goroutine of its own has a private round, see
// Pipeline.Do. A Round is used by one goroutine at a time. It holds the scratch
// memory of its pipelines, so that idle connections need none and a request
// allocates nothing.
type Round struct {
	st      *store.Store
	srv     *Server
	execute func(*store.Batch)
	shared  bool

	batch store.Batch
	slots []slot // one reply each, in order, pipeline after pipeline
	now   int64  // wall time of this round in Unix ms, 0: not read yet
	start time.Time
	undo  struct{ ops, slots int } // what there was before the last Add or Join

	last   lastCommand
	head   batchHead // of the batch, for the slow log
	tapped bool      // someone monitors this round
	hot    hotRound

	view  *ClusterView // by which the round's requests are routed; nil: there is no cluster
	is    standing     // of this node in it
	stale bool         // nobody leads, for longer than a replica may answer

	req    Request
	result Result
	ctx    Context
}

// slot is one reply that waits for the batch. It holds the index of an
// operation in the batch, a ready text, or a command that runs in its turn.
type slot struct {
	kind  slotKind
	style Style
	muted bool     // CLIENT REPLY OFF or SKIP: execute, but write nothing
	cmd   *Command // nil: the reply is not the outcome of a command
	op    int
	guard int // of slotArray: 1 + the operation on which EXEC depends; 0: none
	text  string
	args  [][]byte // of a command that runs, or is an administrative act
}

// lastCommand is the command that was resolved last. Most pipelines ask for the
// same one again and again, in the same letters.
type lastCommand struct {
	table *Table
	cmd   *Command
	name  [maxName]byte
	size  int
}

// resolve is Table.resolve, which it asks only if the name is another one than
// the last time.
func (r *Round) resolve(t *Table, args [][]byte) (c *Command, text string) {
	l := &r.last
	if l.table == t && string(l.name[:l.size]) == string(args[0]) {
		if l.cmd.arityOK(len(args)) {
			return l.cmd, ""
		}
		return l.cmd, wrongArity(l.cmd)
	}
	if c, text = t.resolve(args); c != nil && c.subs == nil && c.parent == nil {
		l.table, l.cmd, l.size = t, c, copy(l.name[:], args[0])
	}
	return c, text
}

// slotKind says what a slot holds.
type slotKind uint8

const (
	slotOp     slotKind = iota // op: an operation of the batch
	slotError                  // text: an error reply
	slotStatus                 // text: a status reply
	slotRun                    // args: for cmd.Run
	slotArray                  // op: how many slots follow that are one array (EXEC)
)

// NewRound returns an empty round. A shared one takes the requests of several
// connections, and refuses those that would keep the others waiting, see
// Pipeline.Add.
func NewRound(st *store.Store, srv *Server, shared bool) *Round {
	r := &Round{st: st, srv: srv, shared: shared, execute: srv.Execute}
	if r.execute == nil {
		r.execute = st.Execute
	}
	r.req.now, r.result.now, r.req.bloom = r.wallTime, r.wallTime, srv.newBloom
	r.ctx = Context{Store: st, Server: srv}
	return r
}

// OnBlock sets what the round calls right before it waits for the disk, be it
// to read or to commit; maybe more than once.
func (r *Round) OnBlock(f func()) { r.batch.OnBlock = f }

// Join makes p's next requests part of the round.
func (r *Round) Join(p *Pipeline) {
	r.undo.ops, r.undo.slots = len(r.batch.Ops), len(r.slots)
	p.round, p.first, p.n = r, len(r.slots), 0
}

// slot appends an empty slot and returns it, valid until the next one: filled in
// place, because a copy of freshly written memory would wait for the writes.
func (r *Round) slot() *slot {
	if len(r.slots) < cap(r.slots) {
		r.slots = r.slots[:len(r.slots)+1]
	} else {
		r.slots = append(r.slots, slot{})
	}
	return &r.slots[len(r.slots)-1]
}

// Pending returns how many requests wait in the round; the server bounds it.
func (r *Round) Pending() int { return len(r.slots) }

// Undo removes what the last Add left behind when it panicked: no operation is
// executed of which only a half was parsed. After Execute it does nothing.
func (r *Round) Undo() {
	r.batch.Ops = r.batch.Ops[:r.undo.ops]
	clear(r.slots[r.undo.slots:])
	r.slots = r.slots[:r.undo.slots]
}

// Execute executes the batch. It returns when every reply may leave.
func (r *Round) Execute() {
	if len(r.slots) == 0 {
		return
	}
	// A reply that panics costs its own connection: nothing is undone any more.
	r.undo.ops, r.undo.slots = len(r.batch.Ops), len(r.slots)
	r.start = time.Now()
	switch {
	case len(r.batch.Ops) == 0:
	case r.hot.search != nil:
		r.measure()
	default:
		r.execute(&r.batch)
	}
	for i := 0; i < len(r.slots); i++ {
		i += r.passOver(i)
	}
}

// Observe counts the round's commands, which took as long as since Execute
// began, and notes the round if it was slow. It is called once.
func (r *Round) Observe() {
	if len(r.slots) == 0 {
		return
	}
	took := max(time.Since(r.start), 1) // the clock may not have moved on
	stats := &r.srv.Observer.Stats
	stats.Round(took)
	tally := stats.Tally(len(r.slots), took)
	for i := range r.slots {
		if c := r.slots[i].cmd; c != nil {
			tally.Add(c.index)
		}
	}
	tally.Flush()
	r.looked(r.slots, r.start, took)
}

// maxKeptSlots bounds what is kept of the memory of a large transaction.
const maxKeptSlots = 4 << 10

// Reset empties the round. The arguments of its requests are no longer used.
func (r *Round) Reset() {
	r.head = batchHead{}
	if len(r.slots) == 0 {
		return
	}
	r.batch.Reset()
	clear(r.slots)
	r.slots = r.slots[:0]
	if cap(r.slots) > maxKeptSlots {
		r.slots = nil
	}
	r.now = 0
}

// Memory returns about how many bytes the Round keeps for the next requests.
func (r *Round) Memory() int {
	return cap(r.slots)*int(unsafe.Sizeof(slot{})) + r.batch.Memory()
}

// wallTime returns the wall time in Unix milliseconds, read once per round.
func (r *Round) wallTime() int64 {
	if r.now == 0 {
		r.now = r.st.WallTime()
	}
	return r.now
}

// context returns what a command of p that runs can use.
func (r *Round) context(p *Pipeline, args [][]byte, w *resp.Writer) *Context {
	c := &r.ctx
	c.Session, c.table, c.routes, c.tx, c.watch = p.ses, p.table, r.view, &p.tx, &p.watch
	c.Args, c.W, c.unmute = args, w, false
	return c
}
