package store

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// crashModel is the exact reference of a run: what was sent, in which order
// where that matters, what was answered, and what of it a power loss may take.
type crashModel struct {
	mu     sync.Mutex
	clock  int64 // counts answers
	over   bool  // the power is gone: answers count no longer
	fsync  Fsync
	change int   // counts changes of the policy, begun and done
	upTo   int64 // answers up to this one were synced explicitly

	epoch   int // FLUSHALLs
	flush   crashAck
	flushed int // the last FLUSHALL that was acknowledged
	ops     []*crashOp
	owned   []*crashOwner
	largest map[string]int64 // value of a shared counter that a reply showed
	items   []crashItem
}

// crashAck is an answer that left before the power did.
type crashAck struct {
	at     int64 // the answer's number; 0: none
	always bool  // made under appendfsync always
}

// crashPolicy is the policy as it was before an operation was sent.
type crashPolicy struct {
	fsync  Fsync
	change int
}

// crashOp is an idempotent operation that some client sent.
type crashOp struct {
	keys    []string
	deltas  []int64
	id      string
	time    int64 // AT; 0: none
	epoch   int
	ack     crashAck
	values  []int64 // of the first answer
	refused bool    // answered that it was not applied
	clipped bool    // bounded: an INCREX that is cut to crashBounds
	expires int64   // a CINCRBY with an expiry: unix ms; 0: none
}

type crashItem struct {
	name  string
	epoch int
	ack   crashAck
}

// crashOwner is a counter that one client alone changes.
type crashOwner struct {
	key   string
	steps []*crashStep
}

// crashStep is one change of such a counter. Steps of one batch stand or fall
// together.
type crashStep struct {
	kind  Kind
	n     int64 // delta, value, or unix ms
	ends  int64 // of a CINCRBY with an expiry: unix ms
	op    *crashOp
	wall  int64
	batch int
	epoch int
	ack   crashAck
}

const crashOwned = 3 // counters of each owner

// crashBounds are the bounds of bounded increments.
var crashBounds = []int64{-4, 12}

func (m *crashModel) init(f Fsync) {
	m.fsync, m.largest = f, make(map[string]int64)
	for i := range 2 * crashOwned {
		m.owned = append(m.owned, &crashOwner{key: fmt.Sprint("d", i)})
	}
}

// count returns how many operations were sent, and answered before the end.
func (m *crashModel) count() (sent, acked int64) {
	add := func(a crashAck) {
		sent++
		if a.at != 0 {
			acked++
		}
	}
	for _, op := range m.ops {
		add(op.ack)
	}
	for _, k := range m.owned {
		for _, st := range k.steps {
			add(st.ack)
		}
	}
	return sent, acked
}

// end is the moment at which the power goes.
func (m *crashModel) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.over = true
}

// endDurably is the moment at which the server is stopped in order.
func (m *crashModel) endDurably() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.over, m.upTo = true, m.clock
}

func (m *crashModel) policy() crashPolicy {
	m.mu.Lock()
	defer m.mu.Unlock()
	return crashPolicy{m.fsync, m.change}
}

// ack numbers an answer.
func (m *crashModel) ack(p crashPolicy) crashAck {
	if m.over {
		return crashAck{}
	}
	m.clock++
	return crashAck{m.clock, p.fsync == Always && p.change == m.change}
}

func (m *crashModel) now() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.clock
}

func (m *crashModel) synced(upTo int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.over {
		m.upTo = max(m.upTo, upTo)
	}
}

func (m *crashModel) switching() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fsync, m.change = No, m.change+1
}

func (m *crashModel) switched(f Fsync) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fsync, m.change = f, m.change+1
}

// crashKey returns the i-th key of an operation.
func crashKey(i int, rnd *rand.Rand) string { return fmt.Sprintf("k%d", i*50+rnd.IntN(40)) }

// pick returns a new operation, or one that some client sent before: often one
// of the last, whose first attempt may still be in flight.
func (m *crashModel) pick(c int, rnd *rand.Rand, at int64) *crashOp {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(m.ops); n > 0 && rnd.IntN(3) == 0 {
		if last := 8; n > last && rnd.IntN(2) == 0 {
			return m.retry(n-1-rnd.IntN(last), c)
		}
		return m.retry(rnd.IntN(n), c)
	}
	op := &crashOp{id: fmt.Sprintf("%d-%d", c, len(m.ops)), epoch: m.epoch, time: at}
	for i := range 1 + rnd.IntN(2)*rnd.IntN(3) {
		op.keys = append(op.keys, crashKey(i, rnd))
		op.deltas = append(op.deltas, 1+rnd.Int64N(9))
	}
	m.ops = append(m.ops, op)
	return op
}

// retry returns the i-th operation. After a FLUSHALL, which forgot it, sending
// it again makes it another operation.
func (m *crashModel) retry(i, c int) *crashOp {
	op := m.ops[i]
	if op.epoch == m.epoch {
		return op
	}
	again := &crashOp{keys: op.keys, deltas: op.deltas, id: fmt.Sprintf("%d-%d", c, len(m.ops)),
		epoch: m.epoch}
	m.ops = append(m.ops, again)
	return again
}

func (op *crashOp) add(b *Batch) {
	kind := CMIncrBy
	if len(op.keys) == 1 {
		kind = CIncrBy
	}
	o := b.Add(kind)
	o.ID = []byte(op.id)
	if op.time != 0 {
		o.Flags, o.At = HasAt, op.time
	}
	switch {
	case op.clipped:
		o.Kind = CIncrEx
		o.Flags |= Saturate
		o.Deltas = append(o.Deltas, crashBounds...)
	case op.expires != 0:
		o.Kind, o.ExpireAt = CIncrEx, op.expires
		o.Flags |= HasExpire
	}
	if kind == CIncrBy {
		o.Key, o.Delta = []byte(op.keys[0]), op.deltas[0]
		return
	}
	for i, k := range op.keys {
		o.Keys, o.Deltas = append(o.Keys, []byte(k)), append(o.Deltas, op.deltas[i])
	}
}

// results returns what an operation answered.
func results(o *Op) []int64 {
	switch o.Kind {
	case CIncrBy:
		return []int64{o.Value}
	case CIncrEx:
		return []int64{o.Value, o.Values[0]}
	}
	return append([]int64{}, o.Values...)
}

// answered notes the answers to operations.
func (m *crashModel) answered(p crashPolicy, sent []*crashOp, ops []Op) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, op := range sent {
		if o := &ops[i]; o.Err == nil && op.ack.at == 0 {
			op.ack, op.values = m.ack(p), results(o)
		}
	}
}

func (m *crashModel) added(p crashPolicy, item string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.items = append(m.items, crashItem{item, m.epoch, m.ack(p)})
}

func (m *crashModel) forgotten(p crashPolicy, epoch int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.epoch = epoch
	if !m.over {
		m.flush, m.flushed = m.ack(p), epoch
		clear(m.largest)
	}
}

// observed notes values that left in a reply under appendfsync always.
func (m *crashModel) observed(p crashPolicy, o *Op) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ack(p).always {
		for i, k := range o.Keys {
			m.largest[string(k)] = max(m.largest[string(k)], o.Values[i])
		}
	}
}

// steps makes the steps of one pipeline.
func (m *crashModel) steps(k *crashOwner, n int, wall int64, rnd *rand.Rand) []*crashStep {
	var steps []*crashStep
	for range n {
		st := &crashStep{kind: CIncrBy, n: rnd.Int64N(9) - 3, wall: wall, batch: len(k.steps) + 1}
		switch rnd.IntN(10) {
		case 0:
			st.kind = Del
		case 1:
			st.kind, st.n = Set, rnd.Int64N(1000)
		case 2:
			st.kind, st.n = ExpireAt, wall+int64(time.Hour/time.Millisecond)+rnd.Int64N(1000)
		case 3:
			st.kind = ExpireAt
			st.n = wall - 1
		case 4:
			st.kind = IncrBy
		case 5, 6:
			st.kind = CIncrEx
		case 7: // one in four is past already, so that the counter goes
			st.ends = wall + []int64{-1, 3600_000, 3600_001, 3600_002}[rnd.IntN(4)]
		}
		steps = append(steps, st)
	}
	first := m.step(k, steps[0])
	for _, st := range steps[1:] {
		m.step(k, st).batch = first.batch
	}
	return steps
}

// step appends a step to a counter's history, before it is sent.
func (m *crashModel) step(k *crashOwner, st *crashStep) *crashStep {
	m.mu.Lock()
	defer m.mu.Unlock()
	st.epoch = m.epoch
	k.steps = append(k.steps, st)
	st.batch = len(k.steps)
	if st.kind.has(hasID) {
		st.op = &crashOp{clipped: st.kind == CIncrEx, expires: st.ends,
			keys: []string{k.key}, deltas: []int64{st.n},
			id: fmt.Sprint("own", len(k.steps)), epoch: m.epoch}
	}
	return st
}

func (st *crashStep) add(b *Batch, key string) {
	if st.op != nil {
		st.op.add(b)
		return
	}
	o := b.Add(st.kind)
	o.Delta, o.ExpireAt = st.n, st.n
	if st.kind == Del {
		o.Keys = append(o.Keys, []byte(key))
		return
	}
	o.Key = []byte(key)
}

func (m *crashModel) stepped(p crashPolicy, steps []*crashStep, ops []Op) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, st := range steps {
		if ops[i].Err != nil {
			panic(ops[i].Err)
		}
		st.ack = m.ack(p)
		if st.op != nil {
			st.op.ack, st.op.values = st.ack, results(&ops[i])
		}
	}
}
