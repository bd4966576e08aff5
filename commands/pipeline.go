package commands

import (
	"time"

	"github.com/fbfkv/fbfkv/commands/acl"
	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
)

// Pipeline turns the requests of one connection into operations of a Round and
// their outcomes into replies. It belongs to the worker that serves the
// connection at the time.
//
// Requests that are sent together are decided in their order on each key, wait
// together, and are answered only with the results of Execute, which are as durable as
// promised: G3 holds because no reply is written before, and no request in between,
// refused or not, splits the batch.
type Pipeline struct {
	srv   *Server
	ses   *Session
	table *Table
	tx    transaction
	watch watches

	holds hold
	// OnHold, unless it is nil, is called when Do begins to wait for a leader, or for other clients: the
	// replies written so far should be sent.
	OnHold func()

	round    *Round // what the requests join
	first, n int    // which of its slots are ours
}

// NewPipeline returns the pipeline of a connection; it has to join a Round
// before it takes requests.
func NewPipeline(srv *Server, ses *Session) *Pipeline {
	return &Pipeline{srv: srv, ses: ses, table: srv.Table}
}

// maxSharedArgs is the largest request, in arguments, that is executed together
// with requests of other connections.
const maxSharedArgs = 1024

// Add takes one request: look up, arity, authentication, transaction, parse. It
// joins the round and is answered by Answer. Add returns false, and has done
// nothing, if the request must be carried out by itself, with Do in a private
// round: a command that must see the state by itself and, if the round is
// shared, one that would keep the others waiting. args[0] exists; args must stay
// valid until the round is reset.
func (p *Pipeline) Add(args [][]byte) bool {
	r := p.round
	r.undo.ops, r.undo.slots = len(r.batch.Ops), len(r.slots)
	if p.ses.Closing() {
		return true
	}
	if len(r.slots) == 0 {
		r.tapped, r.hot.search = p.srv.Observer.Watched(), p.srv.hotkeys.Going()
		if p.srv.Cluster != nil {
			r.look()
		}
	}
	c, refused := r.resolve(p.table, args)
	if refused == "" {
		refused = p.refusal(c, args)
	}
	misrouted, hold := "", false
	if r.view != nil && refused == "" {
		misrouted, hold = p.route(c, args)
	}
	if hold || refused == "" && misrouted == "" && p.alone(c, len(args)) {
		return false
	}
	muted := p.ses.takeMute()
	switch {
	case refused != "":
		p.reject(c, p.abort(c, refused), muted)
	case misrouted != "":
		p.misroute(c)
		p.reject(c, misrouted, muted)
	case p.tx.open && c.Flags&immediate == 0:
		p.enqueue(c, args, muted)
	case c.Control != nil:
		p.control(c, args, muted)
	default:
		p.add(c, args, muted)
	}
	p.n = len(r.slots) - p.first
	return true
}

// reject answers a request that is not carried out.
func (p *Pipeline) reject(c *Command, text string, muted bool) {
	p.srv.Observer.Stats.Rejected(c.number())
	p.push(slot{kind: slotError, text: text, muted: muted})
}

// refusal returns why a request is refused before its arguments are parsed, or "".
func (p *Pipeline) refusal(c *Command, args [][]byte) string {
	if !p.ses.unrestricted() {
		if text := p.denied(c, args); text != "" {
			return text
		}
	}
	return p.misplaced(c)
}

// misplaced returns why a command is refused whoever sends it, or "".
func (p *Pipeline) misplaced(c *Command) string {
	switch {
	case c.Refusal != "" && c.ofCluster() && p.srv.Cluster == nil:
		return "ERR " + clusterDisabled
	case c.Refusal != "":
		return "ERR " + c.Refusal
	case p.tx.open && c.Flags&NoMulti != 0:
		return string(errNotInMulti.(refusal))
	case p.ses.tap != nil && c.Flags&(Write|ReadOnly) != 0:
		return string(errMonitors.(refusal))
	}
	return ""
}

// Pausable reports whether CLIENT PAUSE may hold a request back: not one that is
// refused anyway, and not what is needed to end the pause.
func (p *Pipeline) Pausable(args [][]byte, writesOnly bool) bool {
	c, refused := p.table.resolve(args)
	switch {
	case refused != "" || p.misplaced(c) != "" || c.Flags&(NoAuth|unpaused) != 0 || c.parent != nil &&
		c.parent.Flags&unpaused != 0:
		return false
	case writesOnly && c.Flags&Write == 0 && !(c.Flags&executes != 0 && p.tx.writes):
		return false
	case p.ses.unrestricted():
		return true
	}
	reason, _, _ := c.check(p.ses.account.Load().User(), args, nil)
	return reason == acl.Allowed && !p.loginMissing(c)
}

// Killed reports whether the client was killed: none of its requests may be carried
// out any more.
func (p *Pipeline) Killed() bool { return p.ses.killed.Load() }

// alone reports whether a request of n arguments must be carried out by itself.
func (p *Pipeline) alone(c *Command, n int) bool {
	switch {
	case p.tx.open && c.Flags&immediate == 0:
		return false // it is only queued
	case c.Control != nil:
		return p.tx.solo || p.round.shared && (p.tx.heavy || len(p.watch.keys) > maxSharedArgs)
	case c.Parse == nil:
		return c.Flags&pure == 0
	}
	return p.round.shared && heavy(c, n)
}

// heavy reports whether a keyed command may take so long that nobody else
// should wait for it.
func heavy(c *Command, n int) bool { return c.Flags&waits != 0 || n > maxSharedArgs }

// Do takes one request of a connection whose round is private. One that must
// see the state by itself flushes first and is answered at once; any other is
// answered by Flush. args must stay valid until then.
func (p *Pipeline) Do(args [][]byte, w *resp.Writer) {
	for !p.Add(args) {
		p.Flush(w)
		if p.holds.view == nil {
			p.doAlone(args, w)
			break
		}
		if !p.await() {
			break
		}
	}
	p.holds = hold{}
}

// doAlone is Do for a request that must see the state by itself, and for EXEC of one.
func (p *Pipeline) doAlone(args [][]byte, w *resp.Writer) {
	c, _ := p.table.resolve(args)
	muted := p.ses.takeMute()
	if c.Flags&untimed != 0 && p.OnHold != nil {
		p.OnHold()
	}
	if c.Control == nil {
		p.run(c, args, muted, w)
		return
	}
	// EXEC: what runs at once in a transaction sees its end, not what follows it.
	p.control(c, args, muted)
	p.n = len(p.round.slots) - p.first
	p.Flush(w)
	p.tx.solo = false
}

// Flush executes a private round and writes the replies of all requests that
// wait in it.
func (p *Pipeline) Flush(w *resp.Writer) {
	r := p.round
	if len(r.slots) == 0 {
		return
	}
	r.batch.Source = p.ses.source()
	r.Execute()
	p.Answer(w)
	r.Observe()
	r.Reset()
	r.Join(p)
}

// Pending returns how many requests wait in a private round; the server bounds
// it by calling Flush.
func (p *Pipeline) Pending() int { return p.round.Pending() }

// Idle reports whether the pipeline has no request in the round it joined last.
func (p *Pipeline) Idle() bool { return p.n == 0 }

// push appends a slot.
func (p *Pipeline) push(s slot) { *p.round.slot() = s }

// control gives a command that steers the pipeline its slot and carries it out.
func (p *Pipeline) control(c *Command, args [][]byte, muted bool) {
	p.push(slot{kind: slotStatus, cmd: c, text: "OK", muted: muted})
	c.Control(p, args)
	p.begin(c, args)
}

// add gives a command its slot: an operation of the batch, the reason why
// there is none, or a run in its turn.
func (p *Pipeline) add(c *Command, args [][]byte, muted bool) {
	p.begin(c, args)
	r := p.round
	s := r.slot()
	s.cmd, s.muted = c, muted
	if c.Parse == nil {
		s.kind, s.args = slotRun, args
		return
	}
	if c.Audit != nil || r.hot.search != nil {
		s.args = args
	}
	r.req.Args, r.req.Style = args, 0
	r.req.Op = r.batch.Add(store.Nop)
	err := store.ErrKeySize
	if c.Keys.NumKeys || c.Keys.Sources > 0 || c.Keys.each(args, checkKey) {
		err = c.Parse(&r.req)
	}
	if err != nil { // it never becomes an operation, so it consumes no opid (G6)
		r.batch.Ops = r.batch.Ops[:len(r.batch.Ops)-1]
		s.kind, s.text = slotError, errorText(err)
	} else {
		s.op, s.style = len(r.batch.Ops)-1, r.req.Style
	}
}

// run carries out a command that answers at once.
func (p *Pipeline) run(c *Command, args [][]byte, muted bool, w *resp.Writer) {
	start := time.Now()
	before := w.Len()
	ctx := p.round.context(p, args, w)
	p.ses.touch(c, start)
	p.begin(c, args)
	c.Run(ctx)
	p.count(c, args, before, w)
	if muted && !ctx.unmute {
		w.Truncate(before)
	}
	took := time.Since(start)
	if c.Flags&untimed != 0 {
		took = 0
	}
	p.srv.Observer.Stats.Round(took)
	p.srv.Observer.Stats.Ran(c.index, 1, took, took)
	p.round.looked(nil, start, took)
	if h := &p.round.hot; h.search != nil {
		h.note(c, args, took, w.Len()-before)
		h.tell()
	}
}

// Answer writes the replies of the pipeline's requests in an executed round, in
// their order.
func (p *Pipeline) Answer(w *resp.Writer) {
	if p.n == 0 {
		return
	}
	slots, hot := p.round.slots[p.first:p.first+p.n], &p.round.hot
	for i := 0; i < len(slots); i++ {
		before := w.Len()
		p.answer(p.first+i, w)
		if hot.search != nil {
			hot.noteSlot(&slots[i], w.Len()-before)
		}
		i += p.round.passOver(p.first + i)
	}
	if hot.search != nil {
		hot.tell()
	}
	p.ses.touch(slots[len(slots)-1].cmd, p.round.start)
}

// answer writes the reply of one slot.
func (p *Pipeline) answer(i int, w *resp.Writer) {
	r := p.round
	s, before := &r.slots[i], w.Len()
	switch s.kind {
	case slotOp:
		r.result.Op, r.result.Style = &r.batch.Ops[s.op], s.style
		if r.result.Op.Err != nil {
			w.Error(p.opError(r.result.Op))
		} else {
			s.cmd.Reply(w, &r.result)
		}
	case slotError:
		w.Error(s.text)
	case slotStatus:
		w.Status(s.text)
	case slotArray:
		p.answerExec(i, w)
	case slotRun:
		s.cmd.Run(r.context(p, s.args, w))
	}
	p.count(s.cmd, s.args, before, w)
	if s.muted {
		w.Truncate(before)
	}
}

// count notes whether the reply written since before is an error and, if it is
// not, that an administrative act was carried out. args may be left out unless c
// declares one.
func (p *Pipeline) count(c *Command, args [][]byte, before int, w *resp.Writer) {
	if b := w.Bytes(); len(b) > before && b[before] == '-' {
		p.srv.Observer.Stats.Failed(c.number(), b[before:])
	} else if args != nil && c.Audit != nil {
		p.srv.audit(p.ses, c, args)
	}
}
