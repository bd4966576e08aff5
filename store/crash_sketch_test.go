package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
)

// crashSketches is the work of one client on two sketches and a Bloom filter, which no other one
// changes. The log keeps the order of its steps, so that after a power loss all are as after
// some step.
type crashSketches struct {
	keys  [2]string
	bloom string
	steps []*crashSketchStep
	now   crashSketchState // while the load runs
	epoch int
	ids   int
	exact bool // the keys' table is, so that it takes BFCAdd
}

// crashSketchState is what the keys hold.
type crashSketchState struct {
	sketches [2]*plainSketch // nil: nothing
	items    int             // in the filter: "0", "1" and so on; 0: there is none
}

// crashSketchStep is one step: an operation, and what becomes of the state.
type crashSketchStep struct {
	op    Op
	retry bool // of an earlier one
	does  func(crashSketchState) crashSketchState
	epoch int
	ack   crashAck
}

// mayFail reports whether the step may be refused, and then changes nothing either.
func (st *crashSketchStep) mayFail() bool { return st.op.Kind == FBFReserve || st.retry }

var crashSketchOptions = SketchOptions{Width: 3000, Depth: 2, Cell: 8}

func newCrashSketches(client int, exact bool) *crashSketches {
	return &crashSketches{exact: exact,
		keys:  [2]string{fmt.Sprint("sk-a", client), fmt.Sprint("sk-b", client)},
		bloom: fmt.Sprint("bloom", client)}
}

// next makes the next step.
func (k *crashSketches) next(rnd *rand.Rand) *crashSketchStep {
	i := rnd.IntN(2)
	key, st := []byte(k.keys[i]), new(crashSketchStep)
	set := func(p *plainSketch) func(crashSketchState) crashSketchState {
		return func(s crashSketchState) crashSketchState {
			s.sketches[i] = p
			return s
		}
	}
	was := k.now.sketches[i]
	if n := len(k.steps); n > 0 && rnd.IntN(8) == 0 {
		if old := k.steps[rnd.IntN(n)]; old.op.ID != nil && old.epoch == k.epoch {
			st.op, st.retry, st.does = old.op, true, func(s crashSketchState) crashSketchState { return s }
			return st
		}
	}
	withID := func(kind Kind) {
		if rnd.IntN(2) == 0 && (k.exact || kind != BFCAdd) {
			k.ids++
			st.op.Kind, st.op.ID = kind, fmt.Append(nil, "id", k.ids)
		}
	}
	switch other := k.now.sketches[1-i]; {
	case rnd.IntN(4) == 0:
		st.op = Op{Kind: BFAdd, Key: []byte(k.bloom),
			Object: &BloomOptions{Error: 1e-9, Capacity: 50, Expansion: 2}}
		from := max(k.now.items-2, 0) // some are there
		to := k.now.items + 1 + rnd.IntN(30)
		for ; from < to; from++ {
			st.op.Keys = append(st.op.Keys, strconv.AppendInt(nil, int64(from), 10))
		}
		withID(BFCAdd)
		if rnd.IntN(20) == 0 {
			st.op, to = Op{Kind: Del, Keys: [][]byte{[]byte(k.bloom)}}, 0
		}
		st.does = func(s crashSketchState) crashSketchState {
			s.items = to
			return s
		}
	case was == nil:
		o := crashSketchOptions
		st.op, st.does = Op{Kind: CMSInit, Key: key, Object: &o}, set(newPlainSketch(o))
	case rnd.IntN(20) == 0 || was.count() > 1<<50:
		st.op, st.does = Op{Kind: Del, Keys: [][]byte{key}}, set(nil)
	case rnd.IntN(30) == 0:
		// refused
		st.op, st.does = Op{Kind: FBFReserve, Key: key}, func(s crashSketchState) crashSketchState {
			return s
		}
	case rnd.IntN(6) == 0 && other != nil:
		weights := []int64{rnd.Int64N(2), 1}
		sum := was.clone()
		sum.merge([]*plainSketch{was, other}, weights)
		st.op = Op{Kind: CMSMerge, Keys: [][]byte{key, key, []byte(k.keys[1-i])}, Deltas: weights}
		st.does = set(sum)
	default:
		p := was.clone()
		st.op = Op{Kind: CMSIncrBy, Key: key}
		for range 1 + rnd.IntN(5) {
			item, delta := fmt.Sprint("item", rnd.IntN(200)), 1+rnd.Int64N(9)
			st.op.Keys, st.op.Deltas = append(st.op.Keys, []byte(item)), append(st.op.Deltas, delta)
			p.add(item, delta)
		}
		withID(CMSCIncrBy)
		st.does = set(p)
	}
	return st
}

// sketch does a client's next step.
func (r *crashRun) sketch(k *crashSketches, rnd *rand.Rand) {
	r.barrier.RLock()
	defer r.barrier.RUnlock()
	m := &r.clerk
	m.mu.Lock()
	if k.epoch != m.epoch {
		k.epoch, k.now = m.epoch, crashSketchState{}
	}
	m.mu.Unlock()
	st := k.next(rnd)
	st.epoch = k.epoch
	k.steps = append(k.steps, st)
	policy := m.policy()
	if op := do(r.s, st.op); op.Err != nil && !st.mayFail() || st.retry && op.Applied {
		panic(fmt.Sprint(op.Err, op.Applied))
	}
	k.now = st.does(k.now)
	m.mu.Lock()
	st.ack = m.ack(policy)
	m.mu.Unlock()
}

// trySketch does the next step on a disk that may fail, and judges the answer by G8.
func (r *crashRun) trySketch(k *crashSketches) error {
	s := r.live()
	frozen := s.Failure() != nil
	last := len(k.steps)
	st := k.next(rand.New(rand.NewPCG(uint64(last), 2)))
	r.note(func() { k.steps = append(k.steps, st) }) // it may be applied
	op := do(s, st.op)
	var err error
	r.note(func() {
		switch {
		case op.Err == nil && frozen:
			err = errors.New("a sketch was changed after the failure")
		case frozen, errors.Is(op.Err, ErrRead), errors.Is(op.Err, ErrDiskFull):
			k.steps = k.steps[:last] // it is not applied
			return
		case op.Err == nil:
			r.clerk.mu.Lock()
			k.steps[last].ack = r.clerk.ack(crashPolicy{fsync: r.clerk.fsync})
			r.clerk.mu.Unlock()
		case !errors.Is(op.Err, ErrUnknownOutcome) && !st.mayFail():
			err = op.Err
		}
		k.now = st.does(k.now)
	})
	return err
}

// verifySketches checks that sketches are as after some step, which is not before the
// last one that was promised.
func (r *crashRun) verifySketches(k *crashSketches, epoch int) error {
	var state crashSketchState
	var err error
	seen := make([]bool, len(k.steps)) // which opids are remembered
	for i, st := range k.steps {
		if st.op.ID != nil {
			seen[i] = do(r.s, Op{Kind: CSeen, Key: st.op.Key, ID: st.op.ID}).Found
		}
	}
	found := r.matches(k, state, &err) && k.remembers(seen, epoch, -1)
	for i, st := range k.steps {
		if st.epoch > epoch && r.promised(st.ack) {
			return fmt.Errorf("sketches %v, a step after FLUSHALL %d: %w", k.keys, st.epoch, errLost)
		}
		if st.epoch != epoch {
			continue
		}
		if state = st.does(state); r.promised(st.ack) {
			found = false
		}
		var differs error
		if r.matches(k, state, &differs) && k.remembers(seen, epoch, i) {
			found = true
		}
		if !found {
			err = fmt.Errorf("step %d of %d, kind %d: %w", i, len(k.steps), st.op.Kind, differs)
		}
	}
	if !found {
		return fmt.Errorf("the sketches are as after no step that they may be after: %w", err)
	}
	return nil
}

// remembers reports whether exactly the opids of the steps up to one are remembered (G4).
func (k *crashSketches) remembers(seen []bool, epoch, upTo int) bool {
	for i, st := range k.steps {
		if st.op.ID != nil && st.epoch == epoch && !st.retry && seen[i] != (i <= upTo) {
			return false
		}
	}
	return true
}

func (r *crashRun) matches(k *crashSketches, s crashSketchState, differs *error) bool {
	for i, key := range k.keys {
		if *differs = s.sketches[i].differs(r.s, key); *differs != nil {
			return false
		}
	}
	info, size := do(r.s, Op{Kind: BFInfo, Key: []byte(k.bloom)}), 0
	if i, _ := info.Object.(*BloomInfo); i != nil {
		size = int(i.Size)
	}
	if size != s.items {
		*differs = fmt.Errorf("filter %s has %d items instead of %d (%v)", k.bloom, size, s.items, info.Err)
		return false
	}
	has := Op{Kind: BFExists, Key: []byte(k.bloom)}
	for i := range s.items {
		has.Keys = append(has.Keys, strconv.AppendInt(nil, int64(i), 10))
	}
	if has = do(r.s, has); slices.Contains(has.Founds, false) {
		*differs = fmt.Errorf("filter %s of %d items lacks some: %v", k.bloom, s.items, has.Founds)
		return false
	}
	return true
}
