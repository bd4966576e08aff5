package commands

import (
	"time"

	"github.com/fbfkv/fbfkv/server/resp"
	"github.com/fbfkv/fbfkv/store"
)

// Pipeline turns the requests of one connection into one store.Batch and its
// outcomes into replies. It belongs to the connection's goroutine.
//
// What is sent together is decided in its order and committed together, and is
// answered only by what Execute returned, which is as durable as promised: G3
// holds because no reply is written before Flush, and no request in between,
// refused or not, splits the batch.
type Pipeline struct {
	st    *store.Store
	srv   *Server
	ses   *Session
	table *Table

	batch store.Batch
	slots []slot // one reply each, in order
	now   int64  // wall time of this batch in Unix ms, 0: not read yet
	tx    transaction
	watch watches

	head   batchHead // of the batch, for the slow log
	tapped bool      // someone monitors this batch

	// Scratch, kept here so that a request allocates nothing.
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
	cmd   *Command // nil: a reply that is no command's outcome
	op    int
	guard int // of slotArray: 1 + the operation on which EXEC depends; 0: none
	text  string
	args  [][]byte
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

// NewPipeline returns the pipeline of a connection.
func NewPipeline(st *store.Store, srv *Server, ses *Session) *Pipeline {
	p := &Pipeline{st: st, srv: srv, ses: ses, table: Commands}
	p.req.now = p.wallTime
	p.ctx = Context{Store: st, Server: srv, Session: ses, table: p.table, tx: &p.tx, watch: &p.watch}
	return p
}

// Pending returns how many requests wait in the batch; the server bounds it
// by calling Flush.
func (p *Pipeline) Pending() int { return len(p.slots) }

// Do takes one request: look up, arity, authentication, transaction, parse. A
// keyed command joins the batch and is answered by Flush; one that must see
// the state by itself flushes first and is answered at once. args[0] exists;
// args must stay valid until the next Flush returned.
func (p *Pipeline) Do(args [][]byte, w *resp.Writer) {
	if p.ses.Closing() {
		return
	}
	if len(p.slots) == 0 {
		p.tapped = p.srv.observer.taps.any()
	}
	muted := p.ses.takeMute()
	c, refused := p.table.resolve(args)
	switch {
	case refused != "":
	case !p.ses.authenticated && c.Flags&NoAuth == 0 && p.srv.password() != "":
		refused = string(errNoAuth.(refusal))
	case c.Refusal != "":
		refused = "ERR " + c.Refusal
	case p.tx.open && c.Flags&NoMulti != 0:
		refused = string(errNotInMulti.(refusal))
	case p.ses.tap != nil && c.Flags&(Write|ReadOnly) != 0:
		refused = string(errMonitors.(refusal))
	}
	if refused != "" {
		refused = p.abort(c, refused)
		p.srv.stats.rejected(c)
		p.slots = append(p.slots, slot{kind: slotError, text: refused, muted: muted})
		return
	}
	if p.tx.open && c.Flags&immediate == 0 {
		p.enqueue(c, args, muted)
		return
	}
	switch {
	case c.Control != nil:
		p.slots = append(p.slots, slot{kind: slotStatus, cmd: c, text: "OK", muted: muted})
		c.Control(p, args)
		p.begin(c, args)
		if p.tx.solo { // what runs at once in a transaction sees its end, not what follows it
			p.Flush(w)
		}
	case c.Parse != nil || c.Flags&pure != 0:
		p.add(c, args, muted)
	default:
		p.Flush(w)
		p.run(c, args, muted, w)
	}
}

// add gives a command its slot: an operation of the batch, the reason why
// there is none, or a run in its turn.
func (p *Pipeline) add(c *Command, args [][]byte, muted bool) {
	s := slot{cmd: c, muted: muted}
	p.begin(c, args)
	if c.Parse == nil {
		s.kind, s.args = slotRun, args
		p.slots = append(p.slots, s)
		return
	}
	p.req.Args, p.req.Style = args, 0
	p.req.Op = p.batch.Add(store.Nop)
	err := store.ErrKeySize
	if c.Keys.NumKeys || c.Keys.each(args, checkKey) {
		err = c.Parse(&p.req)
	}
	if err != nil { // it never becomes an operation, so it consumes no opid (G6)
		p.batch.Ops = p.batch.Ops[:len(p.batch.Ops)-1]
		s.kind, s.text = slotError, errorText(err)
	} else {
		s.op, s.style = len(p.batch.Ops)-1, p.req.Style
	}
	p.slots = append(p.slots, s)
}

// run carries out a command that answers at once.
func (p *Pipeline) run(c *Command, args [][]byte, muted bool, w *resp.Writer) {
	start := time.Now()
	before := w.Len()
	p.ctx.Args, p.ctx.W, p.ctx.unmute = args, w, false
	p.ses.touch(c, start)
	p.begin(c, args)
	c.Run(&p.ctx)
	p.count(c, before, w)
	if muted && !p.ctx.unmute {
		w.Truncate(before)
	}
	took := time.Since(start)
	p.srv.stats.ran(c, 1, took, took)
	p.looked(nil, start, took)
}

// maxKeptSlots bounds what is kept of the memory of a large transaction.
const maxKeptSlots = 4 << 10

// Flush executes the batch and writes the replies of all requests that wait,
// in their order.
func (p *Pipeline) Flush(w *resp.Writer) {
	if len(p.slots) == 0 {
		return
	}
	start := time.Now()
	if len(p.batch.Ops) > 0 {
		p.st.Execute(&p.batch)
	}
	p.result.Now = start.UnixMilli()
	for i := 0; i < len(p.slots); i++ {
		p.answer(&p.slots[i], w)
		i += p.passOver(i)
	}
	took := time.Since(start)
	p.srv.stats.ranAll(p.slots, took)
	p.looked(p.slots, start, took)
	p.ses.touch(p.slots[len(p.slots)-1].cmd, start)
	p.batch.Reset()
	clear(p.slots)
	p.slots = p.slots[:0]
	if cap(p.slots) > maxKeptSlots {
		p.slots = nil
	}
	p.now = 0
	p.tx.solo = false
}

// answer writes the reply of one slot.
func (p *Pipeline) answer(s *slot, w *resp.Writer) {
	before := w.Len()
	switch s.kind {
	case slotOp:
		p.result.Op, p.result.Style = &p.batch.Ops[s.op], s.style
		if err := p.result.Op.Err; err != nil {
			w.Error(errorText(err))
		} else {
			s.cmd.Reply(w, &p.result)
		}
	case slotError:
		w.Error(s.text)
	case slotStatus:
		w.Status(s.text)
	case slotArray:
		p.answerExec(s, w)
	case slotRun:
		p.ctx.Args, p.ctx.W = s.args, w
		s.cmd.Run(&p.ctx)
	}
	p.count(s.cmd, before, w)
	if s.muted {
		w.Truncate(before)
	}
}

// count notes whether the reply written since before is an error.
func (p *Pipeline) count(c *Command, before int, w *resp.Writer) {
	if b := w.Bytes(); len(b) > before && b[before] == '-' {
		p.srv.stats.failed(c, b[before:])
	}
}

// wallTime returns the wall time in Unix milliseconds, read once per batch.
func (p *Pipeline) wallTime() int64 {
	if p.now == 0 {
		p.now = time.Now().UnixMilli()
	}
	return p.now
}
