package store

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/fbfkv/fbfkv/internal/raced"
	"github.com/fbfkv/fbfkv/persistence/crashtest"
)

var (
	crashPoints = flag.Int("crash.points", max(100, 500/raced.Slowdown), "power losses that "+
		"TestPowerLoss tries")
	crashSeed   = flag.Uint64("crash.seed", 0, "seed of the first power loss; 0: random")
	crashRepeat = flag.Bool("crash.repeat", false, "use the same seed for every power loss, to meet a "+
		"rare schedule again")
)

// TestPowerLoss cuts the power at random instants under a load of new, repeated and overlapping
// operations, with everything else that may go on beside it (crash_load_test.go). It recovers
// from a disk as it may be then, re-sends everything and compares with an exact reference
// (crash_model_test.go). Each fsync policy is judged by its promises (G1 to G4). Often the
// process is only killed, also while it closes the log after an fsync has failed; it starts
// again on the same disk, answers, and then the power is cut.
func TestPowerLoss(t *testing.T) {
	seed := *crashSeed
	if seed == 0 {
		seed = rand.Uint64() >> 1
	}
	var sent, acked atomic.Int64
	sweep(t, *crashPoints, func(i int) {
		this := seed
		if !*crashRepeat {
			this += uint64(i)
		}
		run := newCrashRun(this)
		if err := run.run(); err != nil {
			t.Errorf("%v: %v\nrun it again with -crash.seed=%d -crash.points=1, or -crash.points=1000 "+
				"-crash.repeat", run, err, this)
		}
		n, a := run.clerk.count()
		sent.Add(n)
		acked.Add(a)
	})
	t.Logf("%d power losses, %d operations, of which %d were acknowledged before", *crashPoints, sent.Load(),
		acked.Load())
}

// sweep tries 0 to n-1, several at a time, until the test has failed.
func sweep(t *testing.T, n int, try func(i int)) {
	var next atomic.Int64
	var workers sync.WaitGroup
	for range 2 * runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for !t.Failed() {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				try(i)
			}
		})
	}
	workers.Wait()
}

// crashWindow is WINDOW in the runs, and their time: in a run less than that
// passes, so that every id must be remembered to its end.
const crashWindow = 10 * time.Second

// crashRun is one power loss, or two in a row.
type crashRun struct {
	fsync   Fsync
	logFile int64 // Options.LogFileSize; 0: small
	mode    Mode
	percent int           // of unsynced data that happens to survive; 100: the process is killed
	kept    bool          // all that was acknowledged must be there: nothing but the process has gone
	slow    time.Duration // longest fsync
	modes   bool          // ALTER changes the mode during the run
	flushes bool          // FLUSHALL forgets everything during the run
	switchs bool          // CONFIG SET appendfsync during the run
	// the server is stopped before the power is cut; killed: it cannot fsync what it closes
	orderly bool
	atOp    int64 // cut at this file operation of the load; 0: at a random time
	twice   int64 // cut again at this file operation of the recovery, or of the re-sending; 0: not
	second  int   // percent of the second cut

	rnd   *rand.Rand
	disk  *crashDisk
	s     *Store
	clock *fakeClock
	clerk crashModel
	books []*crashSketches

	clockMu sync.Mutex
	budget  time.Duration // of crashWindow
	barrier sync.RWMutex  // FLUSHALL waits for all others
	over    atomic.Bool   // the process has ended (live)
	noting  sync.Mutex    // of what the scenario knows, until then
}

func newCrashRun(seed uint64) *crashRun {
	rnd := rand.New(rand.NewPCG(seed, seed))
	oneIn := func(n int) bool { return rnd.IntN(n) == 0 }
	r := &crashRun{
		rnd:     rnd,
		fsync:   Fsync(rnd.IntN(3)),
		mode:    Mode(rnd.IntN(2)),
		percent: []int{0, 0, 25, 50, 75, 100, 100, 100}[rnd.IntN(8)],
		slow:    []time.Duration{0, 0, time.Millisecond, 3 * time.Millisecond}[rnd.IntN(4)],
		modes:   oneIn(4),
		flushes: oneIn(6),
		switchs: oneIn(8),
		orderly: oneIn(8),
		clock:   newFakeClock(),
		budget:  crashWindow - time.Second,
	}
	if oneIn(2) {
		r.atOp = 1 + rnd.Int64N(400)
	}
	if r.kept = r.percent == 100; r.kept || oneIn(3) {
		r.twice, r.second = 1+rnd.Int64N(300), []int{0, 0, 50, 100}[rnd.IntN(4)]
	}
	r.clerk.init(r.fsync)
	return r
}

func (r *crashRun) String() string {
	return fmt.Sprintf("appendfsync %v, mode %v, %d%% of unsynced data survives, fsync up to %v, modes "+
		"%v, flushes %v, switches %v, orderly %v, at %d, twice %d with %d%%",
		r.fsync, r.mode, r.percent, r.slow, r.modes, r.flushes, r.switchs, r.orderly, r.atOp, r.twice,
		r.second)
}

func (r *crashRun) open(d *crashDisk) (*Store, error) {
	s, err := Open(Options{
		Dir: "data", FS: d.fs, Fsync: r.fsync, Partitions: 2, SnapshotInterval: -1, MinFreeDisk: -1,
		LogFileSize: cmp.Or(r.logFile, 16<<10), HotCounters: 128, Clock: r.clock.now,
		Fatal: func(err error) { panic(err) },
	})
	if err == nil && r.rnd != nil && r.rnd.IntN(2) == 0 {
		s.procs = 1 // no batch is split
	}
	return s, err
}

func (r *crashRun) run() error {
	r.disk = newCrashDisk(crashtest.NewDisk(), r.slow)
	var err error
	if r.s, err = r.open(r.disk); err != nil {
		return err
	}
	if err := r.begin(); err != nil {
		return err
	}
	after, err := r.load()
	if err != nil {
		return err
	}
	if r.twice > 0 {
		if after, err = r.crashRecovery(after); err != nil {
			return err
		}
	}
	if r.s, err = r.open(newCrashDisk(after, 0)); err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	defer r.s.CloseNow()
	return r.verify()
}

// begin gives the table its settings and fills its filters through more than
// one window, so that generations are dropped during the run.
func (r *crashRun) begin() error {
	err := r.s.AlterTable(DefaultTable, TableChange{
		Mode: &r.mode, Error: ptr(1e-10), Window: ptr(crashWindow), Skew: ptr(time.Duration(0)),
	})
	if err != nil {
		return err
	}
	for n := range 12 {
		r.filler(n, 20)
		r.clock.advance(crashWindow / 6)
		r.cycle()
	}
	return nil
}

// load runs clients until the power fails, and returns the disk.
func (r *crashRun) load() (*crashtest.Disk, error) {
	var clients sync.WaitGroup
	stop := make(chan struct{})
	start := func(client func(*rand.Rand)) {
		seed := r.rnd.Uint64()
		clients.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, seed))
			for {
				select {
				case <-stop:
					return
				default:
					client(rnd)
				}
			}
		})
	}
	pause, seed := time.Duration(r.rnd.IntN(25_000))*time.Microsecond, r.rnd.Uint64()
	if r.atOp > 0 {
		r.disk.cutAt(r.atOp, func() { r.clerk.end() }, r.percent, seed)
	}
	for n := range 3 {
		start(func(rnd *rand.Rand) { r.shared(n, rnd) })
	}
	for n := range 2 {
		start(func(rnd *rand.Rand) { r.owner(n, rnd) })
	}
	for n := range 1 + r.rnd.IntN(2) {
		k := newCrashSketches(n, r.mode == Exact && !r.modes)
		r.books = append(r.books, k)
		start(func(rnd *rand.Rand) { r.sketch(k, rnd) })
	}
	start(r.observer)
	start(r.nuisance)
	select {
	case <-r.disk.cut:
	case <-time.After(pause):
	}
	close(stop)
	if r.orderly && r.disk.isCut() == nil {
		clients.Wait()
		return r.stop(seed)
	}
	// Operations acknowledged up to here must survive; those acknowledged
	// while the disk is cloned may.
	r.clerk.end()
	after := r.disk.isCut()
	if after == nil {
		after = r.disk.clone(r.percent, seed)
	}
	clients.Wait()
	return after, r.s.CloseNow()
}

// stop ends the server in order: everything acknowledged must survive, also
// under appendfsync no.
func (r *crashRun) stop(seed uint64) (*crashtest.Disk, error) {
	stop := r.s.Close
	if seed%2 == 0 {
		stop = r.s.CloseNow
	}
	if !r.kept {
		r.clerk.endDurably()
		err := stop()
		return r.disk.clone(r.percent, seed), err
	}
	r.clerk.end()
	r.disk.mem.FailSyncs(func(path string) error {
		if strings.HasPrefix(path, "data/log/") {
			return syscall.EIO
		}
		return nil
	})
	err := stop()
	if errors.Is(err, syscall.EIO) {
		err = nil
	}
	return r.disk.clone(r.percent, seed), err
}

// crashRecovery recovers, sends some operations again, and ends once more meanwhile, or soon after.
func (r *crashRun) crashRecovery(fs *crashtest.Disk) (*crashtest.Disk, error) {
	d := newCrashDisk(fs, 0)
	seed := r.rnd.Uint64()
	var started, keeps atomic.Bool
	ending := func() { keeps.Store(r.second == 100 || started.Load()) }
	d.cutAt(r.twice, ending, r.second, seed)
	s, err := r.open(d)
	if err != nil {
		return nil, fmt.Errorf("recovery before the second power loss: %w", err)
	}
	started.Store(true)
	r.s = s
	if err := errors.Join(r.again(d), s.Snapshot()); err != nil {
		return nil, err
	}
	after := d.isCut()
	if after == nil {
		ending()
		after = d.clone(r.second, seed)
	}
	r.kept = r.kept && keeps.Load()
	return after, s.CloseNow()
}

// again sends operations again. Those that were applied before must survive from now on: a start
// has found them. The others are promised by the policy.
func (r *crashRun) again(d *crashDisk) error {
	marker, _ := get(r.s, "epoch")
	epoch := int(marker)
	for _, op := range r.clerk.ops {
		if op.epoch < epoch || r.rnd.IntN(3) > 0 {
			continue
		}
		applied, err := r.resend(op, epoch)
		if err != nil {
			return err
		}
		if op.ack.at == 0 || applied {
			op.values = nil // those that were answered are not known here
		}
		if applied { // also if it is the one at which the power fails
			op.epoch = epoch // a FLUSHALL after it may be lost
		}
		if d.isCut() != nil {
			return nil
		}
		op.ack = crashAck{at: math.MaxInt64, always: true}
		if applied && r.fsync != Always {
			op.ack = crashAck{} // nothing was promised yet
		}
	}
	return nil
}

// crashDisk is a disk that can lose its power.
type crashDisk struct {
	fs    vfs.FS
	mem   *crashtest.Disk
	slow  time.Duration // longest fsync
	only  string        // "", or how the names of the files end whose fsync is slow
	ops   atomic.Int64
	at    atomic.Int64 // cut at this operation; 0: never
	take  func()
	cut   chan struct{} // closed when it was
	after atomic.Pointer[crashtest.Disk]
}

func newCrashDisk(mem *crashtest.Disk, slow time.Duration) *crashDisk {
	d := &crashDisk{mem: mem, slow: slow, cut: make(chan struct{})}
	d.fs = errorfs.Wrap(d.mem, errorfs.InjectorFunc(d.before))
	return d
}

// before is called before every file operation.
func (d *crashDisk) before(op errorfs.Op) error {
	n := d.ops.Add(1)
	if at := d.at.Load(); at != 0 && n >= at && d.at.CompareAndSwap(at, 0) {
		d.take()
	}
	switch op.Kind {
	case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
		if d.slow > 0 && strings.HasSuffix(op.Path, d.only) {
			time.Sleep(d.slow * time.Duration(n*2654435761%64) / 64)
		}
	}
	return nil
}

// cutAt arranges that the n-th file operation from now on finds the power gone.
func (d *crashDisk) cutAt(n int64, ending func(), percent int, seed uint64) {
	d.take = func() {
		ending()
		d.after.Store(d.clone(percent, seed))
		close(d.cut)
	}
	d.at.Store(d.ops.Load() + n)
}

// isCut returns what the power loss left; nil if there was none yet.
func (d *crashDisk) isCut() *crashtest.Disk { return d.after.Load() }

// clone returns what a power loss leaves; if all survives, what kill -9 leaves.
func (d *crashDisk) clone(percent int, seed uint64) *crashtest.Disk {
	if percent == 100 {
		return d.mem.Kill()
	}
	return d.mem.Lose(percent, rand.New(rand.NewPCG(seed, 1)))
}
