package store

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// transfer makes a CMINCRBY; bounds, the least and the largest value, hold for all keys.
func transfer(id string, bounds []int64, pairs ...any) Op {
	op := Op{Kind: CMIncrBy, ID: []byte(id)}
	for i := 0; i < len(pairs); i += 2 {
		op.Keys = append(op.Keys, []byte(pairs[i].(string)))
		op.Deltas = append(op.Deltas, int64(pairs[i+1].(int)))
	}
	for range op.Keys {
		op.Deltas = append(op.Deltas, bounds...)
	}
	return op
}

func boundAt(n int64) Bound { return Bound{N: n, Set: true} }

func wantBound(t *testing.T, op Op, text string) {
	t.Helper()
	if !errors.Is(op.Err, ErrBound) || op.Err.Error() != text {
		t.Fatalf("got (%v, %v), want the refusal %s", op.Value, op.Err, text)
	}
}

// TestBounds: an operation that would leave a bound of its own changes nothing, and its opid can be used
// again (G6); a duplicate gets the first answer, whatever the bounds say.
func TestBounds(t *testing.T) {
	s := testStore(t, nil)
	within := func(key, id string, delta, lower, upper int64) Op {
		return do(s, Op{Kind: CIncrBy, Key: []byte(key), ID: []byte(id), Delta: delta,
			Deltas: []int64{lower, upper}})
	}
	none := []int64{0, math.MaxInt64}
	wantBound(t, within("a", "1", -2, 0, 10), `key "a" would become -2, below 0`)
	wantOp(t, within("a", "1", 3, 0, 10), 3, true)
	wantOp(t, within("a", "1", 3, 0, 1), 3, false)
	wantBound(t, within("a", "2", 8, 0, 10), `key "a" would become 11, above 10`)
	wantOp(t, within("a", "2", 7, 0, 10), 10, true)
	// Own bounds hold also where the counter lies outside of them.
	wantBound(t, within("a", "3", 0, 0, 5), `key "a" would become 10, above 5`)

	before := s.Stats().Entries
	wantBound(t, do(s, transfer("t", none, "a", -11, "b", 11)), `key "a" would become -1, below 0`)
	wantBound(t, do(s, transfer("t", none, "b", 11, "a", -11)), `key "a" would become -1, below 0`)
	if after := s.Stats().Entries; after != before {
		t.Fatalf("a refusal logged %d entries", after-before)
	}
	for i := range 2 {
		op := do(s, transfer("t", none, "a", -10, "b", 10))
		if op.Err != nil || op.Applied != (i == 0) || fmt.Sprint(op.Values) != "[0 10]" {
			t.Fatalf("%+v", op)
		}
		do(s, transfer(fmt.Sprint("back", i), nil, "b", -1, "a", 1))
	}
	// CINCRBY with an expiry.
	strict := Op{Kind: CIncrEx, Key: []byte("a"), ID: []byte("4"), Delta: 9, Deltas: []int64{0, 10},
		Flags: Strict | NoExpire}
	wantBound(t, do(s, strict), `key "a" would become 11, above 10`)
	strict.Deltas[1] = 11
	wantOp(t, do(s, strict), 11, true)
}

// TestTableBounds: no write leaves the bounds of a table. A counter outside of them can only come nearer.
func TestTableBounds(t *testing.T) {
	s := testStore(t, nil)
	must(t, s.CreateTable(TableOptions{Name: "stock", Prefix: "s:", Min: boundAt(0), Max: boundAt(10)}))
	must(t, s.CreateTable(TableOptions{Name: "free", Prefix: "f:"}))
	key := []byte("s:a")
	set := func(n int64) Op { return do(s, Op{Kind: Set, Key: key, Delta: n}) }
	ex := func(delta int64, f Flags) Op {
		return do(s, bounded("s:a", "", delta, math.MinInt64, math.MaxInt64, f))
	}
	wantBound(t, cincr(s, "s:a", "1", -1), `key "s:a" would become -1, below 0`)
	wantBound(t, cincr(s, "s:a", "1", 11), `key "s:a" would become 11, above 10`)
	wantBound(t, incr(s, "s:a", 11), `key "s:a" would become 11, above 10`)
	wantBound(t, set(11), `key "s:a" would become 11, above 10`)
	wantBound(t, do(s, Op{Kind: MSet, Keys: [][]byte{[]byte("x"), key}, Deltas: []int64{1, -1}}),
		`key "s:a" would become -1, below 0`)
	if _, found := get(s, "x"); found {
		t.Fatal("half of a refused MSET is there")
	}
	wantBound(t, do(s, transfer("m", []int64{-100, 100}, "f:x", 11, "s:a", 11)),
		`key "s:a" would become 11, above 10`)
	wantBound(t, do(s, Op{Kind: CIncrEx, Flags: Strict | HasExpire, ExpireAt: math.MaxInt64 / 2, Key: key,
		ID: []byte("5"), Delta: 11}), `key "s:a" would become 11, above 10`)
	wantOp(t, set(8), 0, true)
	if op := ex(3, 0); op.Err != nil || op.Value != 8 || op.Values[0] != 0 {
		t.Fatalf("%+v", op)
	}
	if op := ex(3, Saturate); op.Err != nil || op.Value != 10 || op.Values[0] != 2 {
		t.Fatalf("%+v", op)
	}
	// ALTER leaves the counter outside.
	must(t, s.AlterTable("stock", TableChange{Max: ptr(boundAt(5))}))
	wantBound(t, incr(s, "s:a", 1), `key "s:a" would become 11, above 5`)
	wantOp(t, incr(s, "s:a", 0), 10, true)
	if op := ex(1, Saturate); op.Err != nil || op.Value != 10 || op.Values[0] != 0 {
		t.Fatalf("%+v", op)
	}
	wantBound(t, incr(s, "s:a", -11), `key "s:a" would become -1, below 0`)
	wantOp(t, incr(s, "s:a", -2), 8, true)
	wantOp(t, set(7), 8, true)
	wantBound(t, set(8), `key "s:a" would become 8, above 5`)
	must(t, s.AlterTable("stock", TableChange{Max: &Bound{}}))
	wantOp(t, incr(s, "s:a", 100), 107, true)
	for _, o := range []TableOptions{{Min: boundAt(1)}, {Max: boundAt(-1)}, {Min: Bound{N: -1}}} {
		o.Name, o.Prefix = "wrong", "w:"
		if err := s.CreateTable(o); !errors.Is(err, ErrOption) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// TestTransferTables: a CMINCRBY takes keys of several EXACT tables, and none of an APPROX one among others.
func TestTransferTables(t *testing.T) {
	s := testStore(t, nil)
	must(t, s.CreateTable(TableOptions{Name: "e", Prefix: "e:"}))
	must(t, s.CreateTable(TableOptions{Name: "a", Prefix: "a:", Mode: Approx}))
	for i := range 2 {
		if op := do(s, transfer("1", nil, "x", -5, "e:x", 5)); op.Err != nil || op.Applied != (i == 0) ||
			fmt.Sprint(op.Values) != "[-5 5]" {
			t.Fatalf("%+v", op)
		}
	}
	for _, op := range []Op{transfer("2", nil, "x", 1, "a:x", 1), transfer("2", nil, "a:x", 1, "e:x", 1)} {
		if err := do(s, op).Err; !errors.Is(err, ErrSpansTables) {
			t.Error(err)
		}
	}
	if err := do(s, transfer("1", nil, "x", -5, "e:y", 5)).Err; !errors.Is(err, ErrPartlySeen) {
		t.Error(err)
	}
}

// TestTransfersKeepTheSum makes random transfers with random retries between accounts, and starts anew now
// and then: the sum stays, no account falls below 0, and each transfer counts once.
func TestTransfersKeepTheSum(t *testing.T) {
	const accounts, each = 8, 20
	fs := vfs.NewMem()
	with := func(o *Options) { o.FS = fs }
	s := testStore(t, with)
	must(t, s.CreateTable(TableOptions{Name: "acc", Prefix: "acc:", Window: time.Hour, Min: boundAt(0)}))
	name := func(i int) string { return fmt.Sprint("acc:", i) }
	model := make([]int64, accounts)
	for i := range model {
		model[i] = each
		wantOp(t, cincr(s, name(i), "begin", each), each, true)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	answers := make(map[string]string)
	ops := make(map[string]Op)
	refused := 0
	for i := range 2000 {
		id := fmt.Sprint(rnd.IntN(i + 1))
		op, again := ops[id]
		from, to, n := rnd.IntN(accounts), rnd.IntN(accounts), 1+rnd.IntN(each)
		if !again {
			if from == to {
				continue
			}
			op = transfer(id, nil, name(from), -n, name(to), n)
		}
		got := do(s, op)
		switch {
		case again && (got.Err != nil || got.Applied || fmt.Sprint(got.Values) != answers[id]):
			t.Fatalf("a retry: %+v, want %s", got, answers[id])
		case again:
		case model[from] < int64(n):
			wantBound(t, got, fmt.Sprintf("key %q would become %d, below 0", name(from), model[from]-int64(n)))
			refused++
		default:
			model[from], model[to] = model[from]-int64(n), model[to]+int64(n)
			want := fmt.Sprint([]int64{model[from], model[to]})
			if got.Err != nil || fmt.Sprint(got.Values) != want {
				t.Fatalf("%+v, want %s", got, want)
			}
			ops[id], answers[id] = op, fmt.Sprint(got.Values)
		}
		if i%500 == 499 {
			must(t, s.Close())
			s = testStore(t, with)
		}
	}
	sum := int64(0)
	for i := range model {
		v, _ := get(s, name(i))
		if sum += v; v != model[i] {
			t.Errorf("%s is %d, want %d", name(i), v, model[i])
		}
	}
	if sum != accounts*each || refused == 0 || len(ops) == 0 {
		t.Errorf("the sum is %d, %d were refused of %d", sum, refused, len(ops))
	}
}
