package store

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/fbfkv/fbfkv/internal/raced"
	"github.com/fbfkv/fbfkv/persistence/crashtest"
)

var (
	linHistories = flag.Int("lin.histories", max(2, 4/raced.Slowdown), "histories that "+
		"TestLinearizable checks")
	linRunSeed = flag.Uint64("lin.seed", 0, "seed of the first history; 0: random")
)

// TestLinearizable checks that what clients saw has an order in which each
// operation takes effect once and at one instant between its call and its
// answer: over retries on other connections, clients that hang up before they
// are answered, slow fsyncs, checkpoints and power losses (G1, G2, G3, G4).
func TestLinearizable(t *testing.T) {
	seed := *linRunSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	ops, decided, made := 0, 0, 0
	// A slow machine decides few of them: more is under way at once, and the checker gets
	// less done before its time is over, which is therefore longer the more often it was.
	for ; decided < *linHistories; made++ {
		h := newLinHistory(seed)
		if err := h.run(); err != nil {
			t.Fatalf("seed %d: %v: %v", seed, h, err)
		}
		ops += len(h.ops)
		switch h.check(time.Duration(2+made-decided) * time.Second) {
		case porcupine.Illegal:
			t.Fatalf("%v: the history is not linearizable; run again with -lin.seed=%d -lin.histories=1", h,
				seed)
		case porcupine.Ok:
			decided++
		}
		seed++
	}
	t.Logf("%d histories, %d operations, %d too intricate to decide", made, ops, made-decided)
}

// TestLinearizableMutants: a server that answers reads too early, or from an
// old copy, or acknowledges before the commit is durable, must be caught.
func TestLinearizableMutants(t *testing.T) {
	for name, mutate := range map[string]func(h *linHistory){
		"reads what is not durable":    func(h *linHistory) { h.read = h.readDirty },
		"reads an old copy":            func(h *linHistory) { h.read = h.readOld },
		"duplicates before durability": func(h *linHistory) { h.write = h.writeDirtyDuplicate },
	} {
		t.Run(name, func(t *testing.T) {
			for i := range uint64(300) {
				h := newLinHistory(i)
				h.slow, h.fsync, h.mode, h.percent = 3*time.Millisecond, Always, Exact, 0
				mutate(h)
				must(t, h.run())
				if h.check(time.Duration(2+i)*time.Second) == porcupine.Illegal {
					return
				}
			}
			t.Error("the checker does not notice")
		})
	}
}

// linHistory is one history: clients against a store whose power fails, twice.
type linHistory struct {
	rnd     *rand.Rand
	mode    Mode
	fsync   Fsync
	percent int
	slow    time.Duration
	start   time.Time
	disk    *crashDisk
	s       *Store
	read    func(in linInput, group int) linOutput // nil: ask the store
	write   func(in linInput, group int) (linOutput, error)

	phase atomic.Int32 // linRunning …
	mu    sync.Mutex
	ops   []*linOp
	sent  [linGroupCount][]linInput // by id, for retries
	old   map[string]linOutput
}

const (
	linGroupCount = 3
	// linClientOps bounds what a client does in one life: the checker's work
	// grows fast with the calls under way at once, and with those never answered.
	linClientOps = 60
)

// The phases of a power loss.
const (
	linRunning = iota
	linEnding  // answers count no longer: the disk is being cloned
	linOver    // calls count no longer: they are made in a world that is gone
)

func newLinHistory(seed uint64) *linHistory {
	rnd := rand.New(rand.NewPCG(seed, seed))
	h := &linHistory{
		rnd: rnd, mode: Mode(rnd.IntN(2)), fsync: Fsync(rnd.IntN(3)),
		percent: []int{0, 30, 70, 100}[rnd.IntN(4)],
		slow:    []time.Duration{0, time.Millisecond, 3 * time.Millisecond}[rnd.IntN(3)],
		start:   time.Now(), old: make(map[string]linOutput),
	}
	if h.fsync != Always {
		h.percent = 100 // then only kill -9 loses nothing that was acknowledged
	}
	return h
}

func (h *linHistory) String() string {
	return fmt.Sprintf("mode %v, appendfsync %v, %d%% of unsynced data survives, fsync up to %v", h.mode,
		h.fsync, h.percent, h.slow)
}

// run makes the history.
func (h *linHistory) run() error {
	mem := crashtest.NewDisk()
	for range 2 {
		after, err := h.life(mem)
		if err != nil {
			return err
		}
		mem = after
	}
	if err := h.open(mem); err != nil {
		return err
	}
	defer h.s.CloseNow()
	for g := range linGroupCount {
		for k := range 2 {
			h.do(g, linInput{kind: Get, key: k}, false)
		}
	}
	return nil
}

func (h *linHistory) open(mem *crashtest.Disk) (err error) {
	h.disk = newCrashDisk(mem, h.slow)
	h.s, err = Open(Options{Dir: "data", FS: h.disk.fs, Fsync: h.fsync, Partitions: 2, SnapshotInterval: -1,
		MinFreeDisk: -1,
		Fatal:       func(err error) { panic(err) }})
	if err == nil {
		err = h.s.AlterTable(DefaultTable, TableChange{Mode: &h.mode, Error: ptr(1e-10)})
	}
	h.phase.Store(linRunning)
	return err
}

// life runs clients until the power fails and returns what the disk has then.
func (h *linHistory) life(mem *crashtest.Disk) (*crashtest.Disk, error) {
	if err := h.open(mem); err != nil {
		return nil, err
	}
	h.disk.cutAt(20+h.rnd.Int64N(120), func() { h.phase.Store(linEnding) }, h.percent, h.rnd.Uint64())
	var clients, hung sync.WaitGroup
	for range 5 {
		rnd := rand.New(rand.NewPCG(h.rnd.Uint64(), 1))
		clients.Go(func() {
			for n := 0; n < linClientOps && h.phase.Load() != linOver; n++ {
				g, in := h.pick(rnd)
				if rnd.IntN(6) > 0 {
					h.do(g, in, false)
					continue
				}
				hung.Go(func() { h.do(g, in, true) }) // the client loses patience
				time.Sleep(time.Duration(rnd.IntN(500)) * time.Microsecond)
			}
		})
	}
	clients.Go(func() {
		for n := 0; h.phase.Load() != linOver; n++ {
			time.Sleep(2 * time.Millisecond)
			if err := h.s.checkpoint(h.s.partitions[n%2], false); err != nil {
				panic(err)
			}
		}
	})
	<-h.disk.cut
	h.phase.Store(linOver)
	clients.Wait()
	hung.Wait()
	return h.disk.isCut(), h.s.CloseNow()
}

// pick returns an operation: new, or sent before by anyone, or a read.
func (h *linHistory) pick(rnd *rand.Rand) (group int, in linInput) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g := rnd.IntN(linGroupCount)
	n := len(h.sent[g])
	switch p := rnd.IntN(10); {
	case p < 3 || p < 5 && n == linMaxIDs:
		return g, linInput{kind: Get, key: rnd.IntN(2)}
	case n == linMaxIDs || p < 6 && n > 0:
		return g, h.sent[g][max(0, n-1-rnd.IntN(min(n, 6)))] // a recent one: it may be in flight
	case p < 7:
		in = linInput{kind: CMIncrBy, id: n, deltas: [2]int64{1 + rnd.Int64N(9), -1 - rnd.Int64N(9)}}
	default:
		in = linInput{kind: CIncrBy, id: n}
		in.deltas[rnd.IntN(2)] = 1 + rnd.Int64N(9)
	}
	h.sent[g] = append(h.sent[g], in)
	return g, in
}

func (h *linHistory) now() int64 { return time.Since(h.start).Nanoseconds() + 1 }

// do sends an operation and notes it; if the client hangs up, not its answer.
func (h *linHistory) do(group int, in linInput, hangUp bool) {
	if h.phase.Load() == linOver {
		return
	}
	op := &linOp{group: group, in: in, call: h.now()}
	h.mu.Lock()
	h.ops = append(h.ops, op)
	h.mu.Unlock()
	out, err := h.send(in, group)
	end := h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	// Looked at after the answer: one that leaves while the power fails may
	// never have arrived.
	if err == nil && !hangUp && h.phase.Load() == linRunning {
		op.out, op.end = &out, end
	}
}

func (h *linHistory) send(in linInput, group int) (linOutput, error) {
	if in.kind == Get && h.read != nil {
		return h.read(in, group), nil
	}
	if in.kind != Get && h.write != nil {
		return h.write(in, group)
	}
	return h.ask(in, group)
}

// ask sends an operation to the store.
func (h *linHistory) ask(in linInput, group int) (out linOutput, err error) {
	id := []byte(strconv.Itoa(in.id))
	switch in.kind {
	case Get:
		op := do(h.s, Op{Kind: Get, Key: linKey(group, in.key)})
		out.values[in.key], out.found, err = op.Value, op.Found, op.Err
	case CMIncrBy:
		op := do(h.s, Op{Kind: CMIncrBy, Keys: [][]byte{linKey(group, 0), linKey(group, 1)},
			Deltas: in.deltas[:], ID: id})
		copy(out.values[:], op.Values)
		out.applied, err = op.Applied, op.Err
	default:
		k := 0
		if in.deltas[0] == 0 {
			k = 1
		}
		op := do(h.s, Op{Kind: CIncrBy, Key: linKey(group, k), ID: id, Delta: in.deltas[k]})
		out.values[k] = op.Value
		out.applied, err = op.Applied, op.Err
	}
	return out, err
}

func linKey(group, key int) []byte { return fmt.Appendf(nil, "g%d-%d", group, key) }

// check returns whether the history of each group is linearizable, if that is found in time.
func (h *linHistory) check(limit time.Duration) porcupine.CheckResult {
	for _, g := range linGroups(h.ops) {
		if r := porcupine.CheckOperationsTimeout(linModel(h.mode), g, limit); r != porcupine.Ok {
			return r
		}
	}
	return porcupine.Ok
}

// readDirty is the mutant that answers what is decided but not yet durable.
func (h *linHistory) readDirty(in linInput, group int) (out linOutput) {
	key := linKey(group, in.key)
	p := h.s.partitions[Slot(key)>>h.s.shift]
	p.mu.Lock()
	c := p.hot.peek(string(key))
	if c != nil {
		out.values[in.key], out.found = c.value, c.kind == TypeCounter
	}
	p.mu.Unlock()
	if c == nil {
		out, _ = h.ask(in, group)
	}
	return out
}

// readOld is the mutant that answers every other read from a copy.
func (h *linHistory) readOld(in linInput, group int) linOutput {
	key := string(linKey(group, in.key))
	h.mu.Lock()
	out, ok := h.old[key]
	delete(h.old, key)
	h.mu.Unlock()
	if ok {
		return out
	}
	out, _ = h.ask(in, group)
	h.mu.Lock()
	h.old[key] = out
	h.mu.Unlock()
	return out
}

// writeDirtyDuplicate is the mutant that answers a duplicate while its
// original is not yet durable.
func (h *linHistory) writeDirtyDuplicate(in linInput, group int) (out linOutput, err error) {
	id := []byte(strconv.Itoa(in.id))
	for k, d := range in.deltas {
		if d == 0 {
			continue
		}
		key := linKey(group, k)
		p := h.s.partitions[Slot(key)>>h.s.shift]
		p.mu.Lock()
		o, _, _, ok := p.seen.Find(math.MinInt64, math.MaxInt64, h.s.hashes.ids.Hash(key, id), key, id)
		p.mu.Unlock()
		if out.values[k] = o.Result; !ok {
			return h.ask(in, group)
		}
	}
	return out, nil
}
