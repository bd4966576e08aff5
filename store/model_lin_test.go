package store

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/anishathalye/porcupine"
)

// The model against which histories are checked: two counters and the opids
// that were applied to them. Operations touch one group of two counters, so
// that a history is linearizable if that of each group is.

// linMaxIDs bounds the opids of one group in one history.
const linMaxIDs = 64

// linInput is an operation as a client sent it. Delta 0 leaves a counter out.
type linInput struct {
	kind   Kind // Get, CIncrBy or CMIncrBy
	id     int
	key    int // of Get
	deltas [2]int64
}

// linOutput is what the client was answered; nil in the history if it never
// was.
type linOutput struct {
	values  [2]int64
	found   bool // Get
	applied bool // the others
}

// linState is a state of the group. It is comparable.
type linState struct {
	values [2]int64
	exists [2]bool
	seen   uint64
	result [linMaxIDs][2]int64
}

var linSeed = maphash.MakeSeed()

// linModel returns the model of a table in that mode: EXACT answers a
// duplicate with the original result, APPROX with the present values.
func linModel(mode Mode) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return linState{} },
		Step: func(state, input, output any) (bool, any) {
			out, _ := output.(*linOutput)
			return state.(linState).step(mode, input.(linInput), out)
		},
		Hash: func(state any) uint64 {
			s := state.(linState)
			return maphash.Comparable(linSeed, s.values) ^ s.seen
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
	}
}

// step applies an operation. One that was never answered may have had any
// outcome; one that had no effect is as if it came after everything else.
func (s linState) step(mode Mode, in linInput, out *linOutput) (bool, linState) {
	if in.kind == Get {
		return out == nil || out.found == s.exists[in.key] && out.values[in.key] == s.values[in.key], s
	}
	applied := s.seen&(1<<in.id) == 0
	want := s.result[in.id]
	switch {
	case applied:
		for k, d := range in.deltas {
			if d != 0 {
				s.values[k] += d
				s.exists[k] = true
				want[k] = s.values[k]
			}
		}
		s.seen |= 1 << in.id
		s.result[in.id] = want
	case mode == Approx:
		want = [2]int64{}
		for k, d := range in.deltas {
			if d != 0 {
				want[k] = s.values[k]
			}
		}
	}
	return out == nil || out.applied == applied && out.values == want, s
}

// linOp is an operation of a history.
type linOp struct {
	group int
	in    linInput
	out   *linOutput
	call  int64
	end   int64 // 0: never answered
}

// linGroups sorts a history by group.
func linGroups(ops []*linOp) map[int][]porcupine.Operation {
	groups := make(map[int][]porcupine.Operation)
	last := int64(0)
	for _, op := range ops {
		last = max(last, op.call, op.end)
	}
	for i, op := range thinned(ops) {
		p := porcupine.Operation{ClientId: i, Input: op.in, Output: op.out, Call: op.call, Return: op.end}
		if op.end == 0 {
			p.Return = last + 1 // after everything else, or at any time before
		}
		groups[op.group] = append(groups[op.group], p)
	}
	return groups
}

// thinned leaves out what was never answered and cannot matter, of which the
// checker would try every place: reads; attempts of an operation of which
// another attempt was answered that it had been applied; and all but the first
// attempt of one that was not, since whenever a later one could take effect,
// the first could.
func thinned(ops []*linOp) (out []*linOp) {
	type name struct{ group, id int }
	settled := make(map[name]bool)
	for _, op := range ops {
		if op.out != nil && op.in.kind != Get && op.out.applied {
			settled[name{op.group, op.in.id}] = true
		}
	}
	ops = slices.SortedFunc(slices.Values(ops), func(a, b *linOp) int { return cmp.Compare(a.call, b.call) })
	for _, op := range ops {
		n := name{op.group, op.in.id}
		if op.end == 0 && (op.in.kind == Get || settled[n]) {
			continue
		}
		if op.end == 0 {
			settled[n] = true
		}
		out = append(out, op)
	}
	return out
}
