package store

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// shared sends increments of counters that all clients share, in pipelines, and
// now and then repeats an old one, or one that is in flight elsewhere.
func (r *crashRun) shared(c int, rnd *rand.Rand) {
	r.barrier.RLock()
	defer r.barrier.RUnlock()
	var b Batch
	var sent []*crashOp
	for range 1 + rnd.IntN(4) {
		op := r.clerk.pick(c, rnd, r.at(rnd))
		sent = append(sent, op)
		op.add(&b)
	}
	var item string
	if rnd.IntN(6) == 0 {
		item = fmt.Sprintf("%d-%d", c, rnd.Uint64())
		o := b.Add(FBFAdd)
		o.Key, o.Keys = []byte("filter"), [][]byte{[]byte(item)}
	}
	policy := r.clerk.policy()
	r.s.Execute(&b)
	r.clerk.answered(policy, sent, b.Ops)
	if o := &b.Ops[len(b.Ops)-1]; item != "" && o.Err == nil {
		r.clerk.added(policy, item)
	}
}

// at returns the time that an operation names, 0: none. FLUSHALL would make
// operations that name one stale for a while.
func (r *crashRun) at(rnd *rand.Rand) int64 {
	if r.flushes || rnd.IntN(4) > 0 {
		return 0
	}
	wall, _ := r.clock.now()
	return wall
}

// owner changes counters that no one else changes, one after another, so that
// their history is known in spite of DEL, SET and EXPIRE. Increments are
// sometimes sent by two clients at once.
func (r *crashRun) owner(c int, rnd *rand.Rand) {
	r.barrier.RLock()
	defer r.barrier.RUnlock()
	k := r.clerk.owned[c*crashOwned+rnd.IntN(crashOwned)]
	if rnd.IntN(12) == 0 {
		r.expireSoon(k)
		return
	}
	var b Batch
	wall, _ := r.clock.now()
	steps := r.clerk.steps(k, 1+rnd.IntN(3), wall, rnd)
	for _, st := range steps {
		st.add(&b, k.key)
	}
	policy := r.clerk.policy()
	if len(steps) == 1 && steps[0].kind.has(hasID) && rnd.IntN(2) == 0 {
		var twin Batch
		steps[0].add(&twin, k.key)
		var other sync.WaitGroup
		other.Go(func() { r.s.Execute(&twin) })
		defer other.Wait()
	}
	r.s.Execute(&b)
	r.clerk.stepped(policy, steps, b.Ops)
}

// expireSoon lets a counter expire: no time may pass beside that.
func (r *crashRun) expireSoon(k *crashOwner) {
	r.clockMu.Lock()
	defer r.clockMu.Unlock()
	if r.budget < 4*time.Millisecond {
		return
	}
	wall, _ := r.clock.now()
	st := r.clerk.step(k, &crashStep{kind: ExpireAt, n: wall + 2, wall: wall})
	var b Batch
	st.add(&b, k.key)
	policy := r.clerk.policy()
	r.s.Execute(&b)
	r.clerk.stepped(policy, []*crashStep{st}, b.Ops)
	r.budget -= 4 * time.Millisecond
	r.clock.advance(4 * time.Millisecond)
}

// observer reads counters that only grow: what left in a reply must be there
// after the crash (G3).
func (r *crashRun) observer(rnd *rand.Rand) {
	r.barrier.RLock()
	defer r.barrier.RUnlock()
	var b Batch
	o := b.Add(MGet)
	for range 4 {
		o.Keys = append(o.Keys, []byte(crashKey(rnd.IntN(3), rnd)))
	}
	policy := r.clerk.policy()
	r.s.Execute(&b)
	if o = &b.Ops[0]; o.Err == nil {
		r.clerk.observed(policy, o)
	}
	time.Sleep(100 * time.Microsecond)
}

// nuisance does one of the things that may go on beside the load.
func (r *crashRun) nuisance(rnd *rand.Rand) {
	time.Sleep(time.Duration(rnd.IntN(1500)) * time.Microsecond)
	other := []byte(fmt.Sprintf("other%d", rnd.IntN(5)))
	wall, _ := r.clock.now()
	switch rnd.IntN(14) {
	case 0, 1:
		r.must(r.s.checkpoint(r.s.partitions[rnd.IntN(2)], false))
	case 2:
		r.must(r.s.flushRecords(r.s.partitions[rnd.IntN(2)], false))
	case 3:
		r.must(r.s.flushRows(r.s.partitions[rnd.IntN(2)]))
	case 4, 5, 6:
		r.pass(time.Duration(rnd.Int64N(int64(crashWindow / 8))))
	case 7:
		do(r.s, Op{Kind: IncrBy, Key: other, Delta: 1})
		do(r.s, Op{Kind: ExpireAt, Key: other, ExpireAt: wall + rnd.Int64N(2000)})
	case 8:
		do(r.s, Op{Kind: Del, Keys: [][]byte{other}})
		do(r.s, Op{Kind: FBFRefresh, Key: []byte("filter")})
	case 9:
		r.changeTables(rnd)
	case 10:
		r.alter(rnd)
	case 11:
		r.filler(rnd.Int(), 400)
	case 12:
		r.syncOrSwitch(rnd)
	case 13:
		if r.flushes {
			r.flushAll()
		}
	}
}

// must panics: nothing in a run has a reason to fail before the power does.
func (r *crashRun) must(err error) {
	if err != nil {
		panic(err)
	}
}

// pass lets time pass, as long as ids are promised to be remembered.
func (r *crashRun) pass(d time.Duration) {
	r.clockMu.Lock()
	d = min(d, r.budget)
	r.budget -= d
	r.clock.advance(d)
	r.clockMu.Unlock()
	r.cycle()
}

// cycle does what the background cycle does.
func (r *crashRun) cycle() {
	var b Batch
	for _, p := range r.s.partitions {
		r.s.refreshDue(p)
	}
	r.s.expireAllDue(&b)
	r.s.pruneTables()
}

// changeTables moves keys between tables. What exists already, or does not, is
// refused.
func (r *crashRun) changeTables(rnd *rand.Rand) {
	mode := r.mode
	if r.modes {
		mode = Mode(rnd.IntN(2))
	}
	switch rnd.IntN(4) {
	case 0:
		r.s.CreateTable(TableOptions{Name: "t", Prefix: "k", Mode: mode, Error: 1e-10})
	case 1:
		r.s.CreateTable(TableOptions{Name: "u", Prefix: "d", Mode: mode, Error: 1e-10, Window: crashWindow})
	case 2:
		r.s.DropTable("t")
	case 3:
		r.s.DropTable("u")
	}
}

// alter changes settings; never so that an id may be forgotten within the run.
func (r *crashRun) alter(rnd *rand.Rand) {
	var ch TableChange
	switch rnd.IntN(3) {
	case 0:
		ch.Window = ptr(crashWindow * time.Duration(1+rnd.IntN(3)))
	case 1:
		ch.Error = ptr([]float64{1e-9, 1e-10, 1e-11}[rnd.IntN(3)])
	case 2:
		if r.modes {
			ch.Mode = ptr(Mode(rnd.IntN(2)))
		}
	}
	r.must(r.s.AlterTable(DefaultTable, ch))
}

// filler makes filters grow with ids that nobody asks for again.
func (r *crashRun) filler(n, size int) {
	var b Batch
	for i := range size {
		o := b.Add(CIncrBy)
		o.Key, o.ID, o.Delta = []byte(fmt.Sprint("k-filler", i%7)), []byte(fmt.Sprint("f", n, "-", i)), 1
	}
	r.live().Execute(&b)
}

// syncOrSwitch makes durable what a lax policy has not yet, as WAITAOF and
// CONFIG SET appendfsync do.
func (r *crashRun) syncOrSwitch(rnd *rand.Rand) {
	if !r.switchs {
		upTo := r.clerk.now()
		r.must(r.s.Sync())
		r.clerk.synced(upTo)
		return
	}
	f := Fsync(rnd.IntN(3))
	r.clerk.switching()
	upTo := r.clerk.now()
	r.must(r.s.SetFsync(f))
	r.clerk.synced(upTo)
	r.clerk.switched(f)
}

// flushAll forgets everything while no other client is at work. In the same
// commit a counter is set that tells afterwards how far the history came.
func (r *crashRun) flushAll() {
	r.barrier.Lock()
	defer r.barrier.Unlock()
	n := r.clerk.epoch + 1
	var b Batch
	b.Add(FlushAll)
	o := b.Add(CIncrBy)
	o.Key, o.ID, o.Delta = []byte("epoch"), []byte(fmt.Sprint("epoch", n)), int64(n)
	policy := r.clerk.policy()
	r.s.Execute(&b)
	for i := range b.Ops {
		r.must(b.Ops[i].Err)
	}
	r.clerk.forgotten(policy, n)
}
