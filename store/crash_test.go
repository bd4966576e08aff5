package store

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

var (
	crashPoints = flag.Int("crash.points", 500, "power losses that TestPowerLoss tries")
	crashSeed   = flag.Uint64("crash.seed", 0, "seed of the first power loss; 0: random")
)

// TestPowerLoss cuts the power at random instants under a load of new and
// repeated operations with snapshots going on, recovers from what a disk may
// then hold, re-sends everything and compares with an exact reference. Each
// fsync policy is judged by what it promises (G1, G2, G4).
func TestPowerLoss(t *testing.T) {
	seed := *crashSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	var next atomic.Int64
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for {
				i := next.Add(1) - 1
				if i >= int64(*crashPoints) || t.Failed() {
					return
				}
				run := newCrashRun(seed + uint64(i))
				if err := run.run(); err != nil {
					t.Errorf("%v: %v\nrun it again with -crash.points=1 -crash.seed=%d", run, err, seed+uint64(i))
				}
			}
		})
	}
	workers.Wait()
}

// crashRun is one power loss.
type crashRun struct {
	rnd     *rand.Rand
	fsync   Fsync
	mode    Mode
	percent int // of unsynced data that happens to survive
	fs      *crashFS
	s       *Store
	clock   *fakeClock

	mu  sync.Mutex
	ops []*crashOp
}

// crashOp is an operation that some client sent.
type crashOp struct {
	keys   []string
	deltas []int64
	id     string
	acked  bool // answered before the crash
	values []int64
}

// crashFS keeps CrashClone and Link apart: MemFS.Link takes its lock twice,
// which a clone that waits in between turns into a deadlock.
type crashFS struct {
	*vfs.MemFS
	mu sync.RWMutex
}

func (fs *crashFS) Link(from, to string) error {
	fs.mu.RLock()
	defer fs.mu.RUnlock()
	return fs.MemFS.Link(from, to)
}

func (fs *crashFS) clone(cfg vfs.CrashCloneCfg) *vfs.MemFS {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.MemFS.CrashClone(cfg)
}

func newCrashRun(seed uint64) *crashRun {
	rnd := rand.New(rand.NewPCG(seed, seed))
	r := &crashRun{
		rnd:     rnd,
		fsync:   Fsync(rnd.IntN(3)),
		mode:    Mode(rnd.IntN(2)),
		percent: []int{0, 0, 25, 50, 75, 100}[rnd.IntN(6)],
		clock:   newFakeClock(),
	}
	return r
}

func (r *crashRun) String() string {
	return fmt.Sprintf("appendfsync %v, mode %v, %d%% of unsynced data survives", r.fsync, r.mode, r.percent)
}

func (r *crashRun) open(fs vfs.FS) (*Store, error) {
	return Open(Options{
		Dir: "data", FS: fs, Fsync: r.fsync, Partitions: 2, SnapshotInterval: -1, MinFreeDisk: -1, HotCounters: 128, Clock: r.clock.now,
		Fatal: func(err error) { panic(err) },
	})
}

func (r *crashRun) run() error {
	r.fs = &crashFS{MemFS: vfs.NewCrashableMem()}
	var err error
	if r.s, err = r.open(r.fs); err != nil {
		return err
	}
	if err := r.s.AlterTable(DefaultTable, TableChange{Mode: &r.mode}); err != nil {
		return err
	}
	after, err := r.load()
	if err != nil {
		return err
	}
	r.s, err = r.open(after)
	if err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	defer r.s.CloseNow()
	return r.verify()
}

// load runs clients until the power fails, and returns the disk.
func (r *crashRun) load() (*vfs.MemFS, error) {
	var clients sync.WaitGroup
	stop := make(chan struct{})
	for c := range 4 {
		seed := r.rnd.Uint64()
		clients.Go(func() { r.client(c, rand.New(rand.NewPCG(seed, seed)), stop) })
	}
	clients.Go(func() { r.nuisance(stop) })
	time.Sleep(time.Duration(r.rnd.IntN(25_000)) * time.Microsecond)
	// What was acknowledged up to here must survive; what is acknowledged
	// while the disk is cloned may.
	r.mu.Lock()
	for _, op := range r.ops {
		op.acked = op.values != nil
	}
	r.mu.Unlock()
	after := r.fs.clone(vfs.CrashCloneCfg{UnsyncedDataPercent: r.percent, RNG: rand.New(rand.NewPCG(r.rnd.Uint64(), 1))})
	close(stop)
	clients.Wait()
	return after, r.s.CloseNow()
}

// client sends operations one after another, some in pipelines, and now and
// then repeats an old one.
func (r *crashRun) client(c int, rnd *rand.Rand, stop chan struct{}) {
	var b Batch
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		b.Reset()
		var sent []*crashOp
		for range 1 + rnd.IntN(4) {
			op := r.pick(c, n*8+len(sent), rnd)
			sent = append(sent, op)
			op.add(&b)
		}
		r.s.Execute(&b)
		r.mu.Lock()
		for i, op := range sent {
			if o := &b.Ops[i]; o.Err == nil && op.values == nil {
				op.values = append([]int64{}, o.Values...)
				if o.Kind == CIncrBy {
					op.values = []int64{o.Value}
				}
			}
		}
		r.mu.Unlock()
	}
}

// pick returns a new operation, or one that some client sent before.
func (r *crashRun) pick(c, n int, rnd *rand.Rand) *crashOp {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ops) > 0 && rnd.IntN(4) == 0 {
		return r.ops[rnd.IntN(len(r.ops))]
	}
	op := &crashOp{id: fmt.Sprintf("%d-%d", c, n)}
	for i := range 1 + rnd.IntN(2)*rnd.IntN(3) {
		op.keys = append(op.keys, fmt.Sprintf("k%d", i*50+rnd.IntN(40)))
		op.deltas = append(op.deltas, 1+rnd.Int64N(9))
	}
	r.ops = append(r.ops, op)
	return op
}

func (op *crashOp) add(b *Batch) {
	if len(op.keys) == 1 {
		o := b.Add(CIncrBy)
		o.Key, o.ID, o.Delta = []byte(op.keys[0]), []byte(op.id), op.deltas[0]
		return
	}
	o := b.Add(CMIncrBy)
	o.ID = []byte(op.id)
	for i, k := range op.keys {
		o.Keys, o.Deltas = append(o.Keys, []byte(k)), append(o.Deltas, op.deltas[i])
	}
}

// nuisance does what may go on beside the load: checkpoints, table changes, deletions and
// expiries of other keys, time that passes.
func (r *crashRun) nuisance(stop chan struct{}) {
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(n%3) * time.Millisecond):
		}
		save := r.s.checkpoint
		if n%3 == 0 {
			save = func(p *partition, _ bool) error { return r.s.flushRecords(p) }
		}
		if err := save(r.s.partitions[n%2], false); err != nil {
			panic(err)
		}
		r.clock.advance(time.Duration(n%7) * 100 * time.Millisecond)
		key := []byte(fmt.Sprintf("other%d", n%5))
		switch n % 6 {
		case 0:
			do(r.s, Op{Kind: IncrBy, Key: key, Delta: 1})
		case 1:
			do(r.s, Op{Kind: ExpireAt, Key: key, ExpireAt: 1_700_000_000_500})
		case 2:
			do(r.s, Op{Kind: Del, Keys: [][]byte{key}})
		case 3:
			r.s.CreateTable(TableOptions{Name: "t", Prefix: "k", Mode: r.mode, Error: 1e-6})
		case 4:
			do(r.s, Op{Kind: FBFAdd, Key: []byte("filter"), Keys: [][]byte{[]byte(fmt.Sprint(n))}})
		case 5:
			r.s.DropTable("t")
		}
	}
}

// verify re-sends every operation that was ever sent. What is answered as a
// duplicate must be exactly what the recovered counters contain (G4), must
// include all that was acknowledged (G2) with its original result (G5), and
// afterwards each counter is the sum over all operations (G1).
func (r *crashRun) verify() error {
	recovered, want := make(map[string]int64), make(map[string]int64)
	for _, op := range r.ops {
		for _, k := range op.keys {
			if _, ok := recovered[k]; !ok {
				v, _ := get(r.s, k)
				recovered[k], want[k] = v, 0
			}
		}
	}
	total := make(map[string]int64)
	for _, op := range r.ops {
		applied, err := r.resend(op)
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
			return fmt.Errorf("%s was %d after recovery, but its remembered operations sum up to %d", k, v, want[k])
		}
		if now, _ := get(r.s, k); now != total[k] {
			return fmt.Errorf("%s is %d after all was re-sent, want %d", k, now, total[k])
		}
	}
	return r.verifySize()
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
	do(r.s, Op{Kind: removeExpired, Keys: [][]byte{[]byte("other0"), []byte("other1"), []byte("other2"), []byte("other3"), []byte("other4")}})
	if n, _ := r.s.DBSize(); n != int64(len(found)) {
		return fmt.Errorf("DBSIZE is %d, SCAN finds %d keys", n, len(found))
	}
	return nil
}

func (r *crashRun) resend(op *crashOp) (applied bool, err error) {
	var b Batch
	op.add(&b)
	r.s.Execute(&b)
	o := &b.Ops[0]
	if o.Err != nil {
		return false, fmt.Errorf("re-send of %s: %w", op.id, o.Err)
	}
	// Under everysec and no, what was written but not synced may be lost with
	// the power; with all unsynced data surviving it is a kill -9.
	if op.acked && o.Applied && (r.fsync == Always || r.percent == 100) {
		return false, errors.New("acknowledged operation " + op.id + " was lost")
	}
	if op.acked && !o.Applied && r.mode == Exact {
		got := o.Values
		if o.Kind == CIncrBy {
			got = []int64{o.Value}
		}
		if fmt.Sprint(got) != fmt.Sprint(op.values) {
			return false, fmt.Errorf("duplicate %s answered %v, the original %v", op.id, got, op.values)
		}
	}
	return o.Applied, nil
}
