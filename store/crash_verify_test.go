package store

import (
	"errors"
	"fmt"
)

var errLost = errors.New("acknowledged, but lost")

// promised reports whether what was answered must have survived. A kill -9 takes nothing that
// was acknowledged, under any policy, nor does a power loss after the next start (G2).
func (r *crashRun) promised(a crashAck) bool {
	return a.at != 0 && (a.always || a.at <= r.clerk.upTo || r.kept)
}

// verify re-sends every operation that was ever sent. The duplicates
// among them must be exactly the operations that the recovered counters contain
// (G4). They must include all that were acknowledged (G2), with their original
// results (G5). Afterwards each counter is the sum over all operations (G1), also
// at the end of the window.
func (r *crashRun) verify() error {
	marker, _ := get(r.s, "epoch")
	epoch := int(marker)
	m := &r.clerk
	if epoch < m.flushed && r.promised(m.flush) {
		return fmt.Errorf("FLUSHALL %d: %w", m.flushed, errLost)
	}
	if err := r.verifyItems(epoch); err != nil {
		return err
	}
	for _, k := range r.books {
		if err := r.verifySketches(k, epoch); err != nil {
			return err
		}
	}
	for _, k := range m.owned {
		if err := r.verifyOwned(k, epoch); err != nil {
			return err
		}
	}
	if err := r.verifyShared(epoch); err != nil {
		return err
	}
	if err := r.verifyAtEnd(epoch); err != nil {
		return err
	}
	return r.verifySize()
}

// verifyShared checks the counters that only grow.
func (r *crashRun) verifyShared(epoch int) error {
	recovered, want, total := make(map[string]int64), make(map[string]int64), make(map[string]int64)
	for _, op := range r.clerk.ops {
		for _, k := range op.keys {
			if _, ok := recovered[k]; !ok {
				recovered[k], _ = get(r.s, k)
			}
		}
	}
	for k, v := range r.clerk.largest {
		if now, _ := get(r.s, k); epoch == r.clerk.flushed && now < v {
			return fmt.Errorf("%s was read as %d before the crash and is %d after", k, v, now)
		}
	}
	for _, op := range r.clerk.ops {
		if op.epoch < epoch {
			continue
		}
		applied, err := r.resend(op, epoch)
		if err != nil {
			return err
		}
		for i, k := range op.keys {
			total[k] += op.deltas[i]
			if !applied {
				want[k] += op.deltas[i]
			}
		}
	}
	for k, v := range recovered {
		if v != want[k] {
			return fmt.Errorf("%s was %d after recovery, but its remembered operations sum up to %d", k, v,
				want[k])
		}
		if now, _ := get(r.s, k); now != total[k] {
			return fmt.Errorf("%s is %d after all was re-sent, want %d", k, now, total[k])
		}
	}
	return nil
}

// resend sends an operation again.
func (r *crashRun) resend(op *crashOp, epoch int) (applied bool, err error) {
	var b Batch
	op.add(&b)
	r.s.Execute(&b)
	o := &b.Ops[0]
	switch {
	case o.Err != nil:
		return false, fmt.Errorf("re-send of %s, %s: %w", op.id, r.remembered(op), o.Err)
	case o.Applied && r.promised(op.ack):
		return false, fmt.Errorf("operation %s on %v: %w", op.id, op.keys, errLost)
	case !o.Applied && op.epoch > epoch:
		return false, fmt.Errorf("operation %s came after FLUSHALL %d, which is lost", op.id, op.epoch)
	case !o.Applied && op.refused:
		return false, fmt.Errorf("operation %s was refused, but applied", op.id)
	case !o.Applied && op.values != nil && op.ack.at != 0 && r.mode == Exact && !r.modes &&
		fmt.Sprint(results(o)) != fmt.Sprint(op.values):
		return false, fmt.Errorf("duplicate %s answered %v, the original %v", op.id, results(o), op.values)
	}
	return o.Applied, nil
}

// remembered tells what is known of an operation, for the report of a failure.
func (r *crashRun) remembered(op *crashOp) string {
	text := fmt.Sprintf("answered %+v", op.ack)
	for i, k := range op.keys {
		seen := do(r.s, Op{Kind: CSeen, Key: []byte(k), ID: []byte(op.id)})
		value, _ := get(r.s, k)
		text += fmt.Sprintf(", %s = %d (delta %d, table %s, seen %v)", k, value, op.deltas[i],
			r.s.partitions[0].catalog.find([]byte(k)).Name, seen.Found)
	}
	return text
}

// ownedState is a counter after some steps.
type ownedState struct {
	exists bool
	value  int64
	expire int64
}

func (s ownedState) after(st *crashStep) ownedState {
	s = s.at(st.wall)
	switch st.kind {
	case CIncrBy, IncrBy:
		s.exists, s.value = true, s.value+st.n
		if st.ends != 0 {
			s.expire = st.ends
		}
	case CIncrEx:
		s.exists, s.value = true, min(max(s.value+st.n, crashBounds[0]), crashBounds[1])
	case Set:
		s = ownedState{exists: true, value: st.n}
	case Del:
		s = ownedState{}
	case ExpireAt:
		if s.exists {
			s.expire = st.n
		}
	}
	return s.at(st.wall)
}

// at is the state at a wall time.
func (s ownedState) at(wall int64) ownedState {
	if s.exists && s.expire != 0 && s.expire <= wall {
		return ownedState{}
	}
	return s
}

// verifyOwned checks that a counter holds exactly some first part of its
// history, cut between two pipelines, which contains what was acknowledged and
// just those increments whose ids are remembered.
func (r *crashRun) verifyOwned(k *crashOwner, epoch int) error {
	wall, _ := r.clock.now()
	var got ownedState
	got.value, got.exists = get(r.s, k.key)
	if o := do(r.s, Op{Kind: ExpireTime, Key: []byte(k.key)}); o.Found {
		got.expire = o.Value
	}
	var steps []*crashStep
	for _, st := range k.steps {
		if st.epoch > epoch && r.promised(st.ack) {
			return fmt.Errorf("%s, a step after FLUSHALL %d: %w", k.key, st.epoch, errLost)
		}
		if st.epoch == epoch {
			steps = append(steps, st)
		}
	}
	// The history ends after the last remembered increment and before the
	// first forgotten one.
	first, last := 0, len(steps)
	for i, st := range steps {
		if st.op == nil {
			if r.promised(st.ack) {
				first = i + 1
			}
			continue
		}
		applied, err := r.resend(st.op, epoch)
		if err != nil {
			return err
		}
		if applied {
			last = min(last, i)
		} else {
			first = i + 1
		}
	}
	if first > last {
		return fmt.Errorf("%s: step %d survived, step %d did not", k.key, first-1, last)
	}
	var s ownedState
	for i := 0; ; i++ {
		whole := i == 0 || i == len(steps) || steps[i].batch != steps[i-1].batch
		if i >= first && i <= last && whole && s.at(wall) == got {
			return nil
		}
		if i == len(steps) {
			return fmt.Errorf("%s is %+v after recovery, which is no state of its history between steps "+
				"%d and %d: %s", k.key, got, first, last, history(steps))
		}
		s = s.after(steps[i])
	}
}

func history(steps []*crashStep) (out string) {
	var s ownedState
	for i, st := range steps {
		s = s.after(st)
		out += fmt.Sprintf("\n%d: batch %d, kind %d %d at %d: %+v", i, st.batch, st.kind, st.n, st.wall, s)
	}
	return out
}

// verifyItems checks that the filter key holds what was acknowledged.
func (r *crashRun) verifyItems(epoch int) error {
	for _, it := range r.clerk.items {
		o := do(r.s, Op{Kind: FBFExists, Key: []byte("filter"), Keys: [][]byte{[]byte(it.name)}})
		switch {
		case o.Err != nil:
			return o.Err
		case r.promised(it.ack) && it.epoch >= epoch && !o.Founds[0]:
			return fmt.Errorf("item %s: %w", it.name, errLost)
		}
	}
	return nil
}

// verifyAtEnd lets the rest of the window pass and sends everything once more:
// nothing may be applied again.
func (r *crashRun) verifyAtEnd(epoch int) error {
	for r.budget > 0 {
		r.pass(crashWindow / 9)
	}
	ops := r.clerk.ops
	for _, k := range r.clerk.owned {
		for _, st := range k.steps {
			if st.op != nil && st.epoch == epoch {
				ops = append(ops, st.op)
			}
		}
	}
	var b Batch
	for len(ops) > 0 {
		n := min(len(ops), 50)
		b.Reset()
		for _, op := range ops[:n] {
			if op.epoch >= epoch {
				op.add(&b)
			}
		}
		r.s.Execute(&b)
		for i := range b.Ops {
			if o := &b.Ops[i]; o.Err != nil || o.Applied {
				return fmt.Errorf("operation %s at the end of its window: applied again %v, %v", o.ID,
					o.Applied, o.Err)
			}
		}
		ops = ops[n:]
	}
	return nil
}

// verifySize compares the logged number of keys with those that SCAN finds.
func (r *crashRun) verifySize() error {
	found := make(map[string]bool)
	for cursor := uint64(0); ; {
		next, err := r.s.Scan(cursor, 7, func(k []byte, _ Type) { found[string(k)] = true })
		if err != nil {
			return err
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	expire := Op{Kind: removeExpired}
	for i := range 6 {
		expire.Keys = append(expire.Keys, []byte(fmt.Sprint("other", i)), []byte(fmt.Sprint("d", i)))
	}
	do(r.s, expire)
	if n, _ := r.s.DBSize(); n != int64(len(found)) {
		return fmt.Errorf("DBSIZE is %d, SCAN finds %d keys", n, len(found))
	}
	return nil
}
