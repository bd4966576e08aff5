package commands

import (
	"bytes"
	"strings"

	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
)

// maxQueued bounds what MULTI keeps for one connection, in bytes, with what a
// command and each of its arguments will cost when EXEC makes one batch of them:
// enough for fifty thousand small commands.
const (
	maxQueued    = 64 << 20
	commandCost  = 1 << 10
	argumentCost = 256
)

// transaction is the state between MULTI and EXEC. The commands wait as copies
// of their arguments and become part of the batch at EXEC, which the store is then
// asked to execute atomically, so that several transactions of one pipeline share a
// commit. If keys are watched, the first operation asks whether
// they are unchanged, and the others have their turn only then (see watches).
type transaction struct {
	open bool
	// flags belong to each operation behind the first. In a CMULTI it has its turn only if the one before
	// it was not refused.
	flags  store.Flags
	failed bool // a request was refused while queueing: EXEC will abort
	queue  []queued
	size   int
	solo   bool // a queued command runs at once: EXEC is a batch of its own
	heavy  bool // a queued command would keep other connections waiting
	writes bool // a queued command may change the data set
	slot   int  // of the queued commands' keys, or noSlot or manySlots; in a cluster
}

// queued is one command of a transaction.
type queued struct {
	cmd  *Command
	args [][]byte
}

// fail makes EXEC abort, if there is a transaction.
func (t *transaction) fail() {
	if t.open {
		t.failed = true
	}
}

// abort makes a transaction fail because a request in it was refused, and
// returns the reply. A refused EXEC ends it at once.
func (p *Pipeline) abort(c *Command, text string) string {
	p.tx.fail()
	if c == nil || c.Flags&executes == 0 {
		return text
	}
	p.leaveMulti()
	return "EXECABORT Transaction discarded because of: " + strings.TrimPrefix(text, "ERR ")
}

// enqueue keeps a command for EXEC.
func (p *Pipeline) enqueue(c *Command, args [][]byte, muted bool) {
	if p.tx.flags != 0 && c.Parse == nil { // it would run whatever becomes of the others
		p.tx.fail()
		p.push(slot{kind: slotError, text: errorText(errStopOnError), muted: muted})
		return
	}
	size := commandCost
	for _, a := range args {
		size += len(a) + argumentCost
	}
	if p.tx.size+size > maxQueued {
		p.tx.fail()
		p.tx.queue, p.tx.size = nil, maxQueued
		p.push(slot{kind: slotError, text: errorText(errMultiTooLarge), muted: muted})
		return
	}
	p.tx.size += size
	if !p.tx.failed {
		p.tx.queue = append(p.tx.queue, queued{c, copyArgs(args)})
		p.tx.writes = p.tx.writes || c.Flags&Write != 0
		if p.round.view != nil {
			p.tx.join(c.slotOf(args))
		}
	}
	p.tx.solo = p.tx.solo || c.Parse == nil && c.Flags&pure == 0
	p.tx.heavy = p.tx.heavy || heavy(c, len(args)) || len(p.tx.queue) > maxSharedArgs
	p.ses.multi.Store(int64(len(p.tx.queue)))
	p.ses.queued.Store(int64(p.tx.size))
	p.push(slot{kind: slotStatus, text: "QUEUED", muted: muted})
}

// copyArgs copies arguments out of the connection's buffer.
func copyArgs(args [][]byte) [][]byte {
	flat := bytes.Join(args, nil)
	own := make([][]byte, len(args))
	for i, a := range args {
		own[i], flat = flat[:len(a):len(a)], flat[len(a):]
	}
	return own
}

// refuse turns the slot that Do reserved for a Control command into an error.
func (p *Pipeline) refuse(err error) {
	s := &p.round.slots[len(p.round.slots)-1]
	s.kind, s.text = slotError, errorText(err)
}

// doMulti is MULTI.
func doMulti(p *Pipeline, _ [][]byte) { p.openMulti(0) }

// doCMulti is CMULTI [CONTINUE], which begins a transaction that stops at a refusal. An increment
// that a bound keeps from adding anything is one, too, unless the client says CONTINUE.
func doCMulti(p *Pipeline, args [][]byte) {
	switch {
	case len(args) == 1:
		p.openMulti(store.IfPrevious | store.IfAdded)
	case len(args) == 2 && is(args[1], "CONTINUE"):
		p.openMulti(store.IfPrevious)
	default:
		p.tx.fail()
		p.refuse(errSyntax)
	}
}

// openMulti begins a transaction.
func (p *Pipeline) openMulti(flags store.Flags) {
	if p.tx.open {
		p.refuse(errNestedMulti)
		return
	}
	p.tx.open, p.tx.flags, p.tx.slot = true, flags, noSlot
	p.ses.multi.Store(0)
}

// doDiscard drops the transaction.
func doDiscard(p *Pipeline, _ [][]byte) {
	if !p.tx.open {
		p.refuse(errDiscardNoMulti)
		return
	}
	p.leaveMulti()
}

// doExec adds the queued commands to the batch.
func doExec(p *Pipeline, _ [][]byte) {
	switch {
	case !p.tx.open:
		p.refuse(errExecNoMulti)
		return
	case p.tx.failed:
		p.leaveMulti()
		p.refuse(errExecAbort)
		return
	}
	queue := p.tx.queue
	p.round.batch.Atomic = true // all of it is seen, and survives, or nothing (G6)
	guard := p.watch.guard(&p.round.batch)
	solo, flags := p.tx.solo, p.tx.flags
	p.leaveMulti()
	p.tx.solo = solo // until its commands have run
	header := &p.round.slots[len(p.round.slots)-1]
	header.kind, header.op, header.guard = slotArray, len(queue), guard+1
	muted := header.muted
	refused := false
	for i := range queue {
		q := &queue[i]
		text := p.withdrawn(q)
		if refused && flags != 0 {
			text = errorText(store.ErrNotExecuted)
		}
		if text != "" {
			p.push(slot{kind: slotError, text: text, muted: muted})
			refused = true
			continue
		}
		p.add(q.cmd, q.args, muted)
		s := &p.round.slots[len(p.round.slots)-1]
		if refused = s.kind == slotError; !refused && flags != 0 && i > 0 {
			p.round.batch.Ops[s.op].Flags |= flags
		}
	}
	if guard >= 0 {
		p.round.batch.Ops[guard].Delta = int64(len(p.round.batch.Ops) - guard - 1)
	}
}

// held reports whether the transaction of a slot was executed: no watched key had changed,
// and the node has kept its shard. failed is an operation on whose error all of it rests.
func (r *Round) held(i int) (held bool, failed *store.Op) {
	s := &r.slots[i]
	if s.guard > 0 {
		if op := &r.batch.Ops[s.guard-1]; op.Err != nil {
			return false, op
		} else if !op.Applied {
			return false, nil
		}
	}
	if r.view != nil {
		failed = r.unseated(r.slots[i+1 : i+1+s.op])
	}
	return failed == nil, failed
}

// answerExec begins EXEC's array, or says why there is none.
func (p *Pipeline) answerExec(i int, w *resp.Writer) {
	r := p.round
	switch held, failed := r.held(i); {
	case failed != nil:
		w.Error(p.execError(failed, r.slots[i+1:i+1+r.slots[i].op]))
	case !held:
		w.NullArray()
	default:
		w.Array(r.slots[i].op)
	}
}

// passOver returns how many slots after i are of a transaction that was not
// executed. They are neither answered nor counted.
func (r *Round) passOver(i int) int {
	s := &r.slots[i]
	if s.kind != slotArray {
		return 0
	}
	if held, _ := r.held(i); held {
		return 0
	}
	for j := i + 1; j <= i+s.op; j++ {
		r.slots[j].cmd = nil
	}
	return s.op
}

// leaveMulti ends the transaction and the watch.
func (p *Pipeline) leaveMulti() {
	p.tx = transaction{}
	p.watch.clear()
	p.ses.multi.Store(-1)
	p.ses.queued.Store(0)
	p.ses.watched.Store(0)
}

// watches are the keys that a connection watches, with what the store noted of
// them. EXEC hands them back to it as the first operation of the transaction,
// which decides under the transaction's own locks whether the rest is done.
type watches struct {
	keys  [][]byte
	notes []int64 // three for each key
	index map[string]struct{}
	size  int
}

// watchCost is what a watched key costs beside its bytes.
const watchCost = 128

// add watches keys from now on. One that is watched already keeps what was
// noted first, as in Redis.
func (ws *watches) add(st *store.Store, keys [][]byte) error {
	var b store.Batch
	op := b.Add(store.Watch)
	size := ws.size
	for _, k := range keys {
		if !checkKey(k) {
			return store.ErrKeySize
		}
		if _, known := ws.index[string(k)]; !known {
			op.Keys = append(op.Keys, k)
			size += len(k) + watchCost
		}
	}
	if size > maxQueued || len(ws.keys)+len(op.Keys) > store.MaxKeys {
		return errTooManyWatched
	}
	st.Execute(&b)
	if op.Err != nil {
		return op.Err
	}
	if ws.index == nil {
		ws.index = make(map[string]struct{}, len(op.Keys))
	}
	for i, k := range copyArgs(op.Keys) {
		if _, known := ws.index[string(k)]; known {
			continue // it was there twice
		}
		ws.index[string(k)] = struct{}{}
		ws.keys = append(ws.keys, k)
		ws.notes = append(ws.notes, op.Values[3*i:3*i+3]...)
	}
	ws.size = size
	return nil
}

// clear watches nothing any more.
func (ws *watches) clear() { *ws = watches{} }

// guard adds the question whether the keys are unchanged to a batch and returns
// its index, -1 if no key is watched. The caller says how many operations
// depend on it.
func (ws *watches) guard(b *store.Batch) int {
	if len(ws.keys) == 0 {
		return -1
	}
	op := b.Add(store.IfUnchanged)
	op.Keys = append(op.Keys, ws.keys...)
	op.Deltas = append(op.Deltas, ws.notes...)
	return len(b.Ops) - 1
}

// doWatch is WATCH key [key …].
func doWatch(c *Context) {
	if c.tx.open {
		c.fail(errWatchInMulti)
		return
	}
	c.ok(c.watch.add(c.Store, c.Args[1:]))
	c.Session.watched.Store(int64(c.watch.size))
}

// doUnwatch is UNWATCH.
func doUnwatch(c *Context) {
	c.watch.clear()
	c.Session.watched.Store(0)
	c.W.Status("OK")
}

// transactionCommands are MULTI and its companions, and those that make a
// transaction depend on keys.
var transactionCommands = family(Command{Group: "transactions", ACL: []string{"@transaction"}}, []Command{
	{
		Name: "multi", Arity: 1, Flags: NoScript | Loading | Stale | Fast | AllowBusy | immediate,
		Since: "1.2.0", Summary: "Starts a transaction: the commands that follow are queued until EXEC.",
		Control: doMulti,
	},
	{
		Name: "exec", Arity: 1, Flags: NoScript | Loading | Stale | SkipSlowlog | immediate | executes,
		Since: "1.2.0", Complexity: "Depends on the commands of the transaction",
		Summary: "Executes the queued commands as one atomic batch, committed together.", Control: doExec,
	},
	{
		Name: "discard", Arity: 1, Flags: NoScript | Loading | Stale | Fast | AllowBusy | immediate,
		Since: "2.0.0", Complexity: "O(N), where N is the number of queued commands",
		Summary: "Drops the queued commands and ends the transaction.", Control: doDiscard,
	},
	{
		Name: "watch", Arity: -2, Flags: NoScript | Loading | Stale | Fast | AllowBusy | immediate,
		Keys: manyKeys(keyLook), Since: "2.2.0", Complexity: "O(N), where N is the number of keys",
		Summary: "Makes EXEC answer null and do nothing if one of the keys changes before.",
		Args:    []Arg{multi(keyArg())}, Run: doWatch,
	},
	{
		Name: "unwatch", Arity: 1, Flags: NoScript | Loading | Stale | Fast | AllowBusy, Since: "2.2.0",
		Summary: "Forgets the watched keys, like EXEC and DISCARD.", Run: doUnwatch,
	},
	{
		Name: "cmulti", Arity: -1, Flags: NoScript | Loading | Stale | Fast | AllowBusy | immediate,
		Since: "0.2.0",
		Summary: "Starts a transaction as MULTI does, for commands on keys. EXEC stops at the first error, " +
			"and at an INCREX that a bound kept from adding anything, unless CONTINUE is given; what ran " +
			"before it stays.",
		Args: []Arg{opt(word("CONTINUE"))}, Control: doCMulti,
	},
})
