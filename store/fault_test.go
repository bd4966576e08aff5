package store

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/fbfkv/fbfkv/internal/raced"
	"github.com/fbfkv/fbfkv/internal/testwait"
	"github.com/fbfkv/fbfkv/persistence/crashtest"
)

var (
	faultStride = flag.Int("fault.stride", max(40, 160/raced.Slowdown), "TestFaults tries every n-th file "+
		"operation; 1: all")
	faultChild = flag.Int("fault.children", 1, "of the points where the process must end, TestFaults "+
		"tries so many in a process of its own")
)

// fault is a way in which file operations fail.
type fault uint8

const (
	failOnce   fault = iota // EIO, this operation only: fsync, rename, create, …
	failOn                  // EIO, this one and all that follow
	diskFull                // ENOSPC, every write, create and rename from this one on
	shortWrite              // a write takes half of the bytes, then ENOSPC
	faults
)

func (f fault) String() string {
	return [...]string{"EIO once", "EIO from then on", "disk full", "short write"}[f]
}

// faultDisk fails file operations from the at-th on.
type faultDisk struct {
	fs    vfs.FS
	fault fault
	at    int64
	ops   atomic.Int64
	hit   atomic.Bool
	// place is the at-th operation, as another process can find it: a fault
	// begins at its n-th operation of a kind on files of a name.
	place faultPlace
	mu    sync.Mutex
	seen  map[faultPlace]int
}

type faultPlace struct {
	kind errorfs.OpKind
	name string
	n    int
}

func newFaultDisk(under vfs.FS, f fault, at int64) *faultDisk {
	d := &faultDisk{fault: f, at: at, seen: make(map[faultPlace]int)}
	d.fs = errorfs.Wrap(shortFS{under, d}, errorfs.InjectorFunc(d.before))
	return d
}

// count numbers an operation. If at is unknown, it is the one at the place.
func (d *faultDisk) count(op errorfs.Op) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := faultPlace{kind: op.Kind, name: filepath.Base(op.Path)}
	d.seen[p]++
	p.n = d.seen[p]
	n := d.ops.Add(1)
	if d.at == math.MaxInt64 && p == d.place {
		d.at = n
	}
	if n == d.at {
		d.place = p
	}
	return n
}

func (d *faultDisk) before(op errorfs.Op) error {
	n := d.count(op)
	if n < d.from() || d.fault == shortWrite || d.fault == failOnce && n > d.from() {
		return nil
	}
	if d.fault != diskFull {
		d.hit.Store(true)
		return fmt.Errorf("%w (injected: operation %d, kind %d, %s)", syscall.EIO, n, op.Kind, op.Path)
	}
	switch op.Kind {
	case errorfs.OpCreate, errorfs.OpFileWrite, errorfs.OpFilePreallocate, errorfs.OpMkdirAll,
		errorfs.OpRename, errorfs.OpLink:
		d.hit.Store(true)
		return fmt.Errorf("%w (injected: operation %d, kind %d, %s)", syscall.ENOSPC, n, op.Kind, op.Path)
	}
	return nil
}

// from is the operation at which the fault begins.
func (d *faultDisk) from() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.at
}

// takes reports how much of a write of n bytes succeeds.
func (d *faultDisk) takes(n int) int {
	if d.fault != shortWrite || d.ops.Load() < d.from() || n < 2 || !d.hit.CompareAndSwap(false, true) {
		return n
	}
	return n / 2
}

// shortFS makes writes short.
type shortFS struct {
	vfs.FS
	d *faultDisk
}

type shortFile struct {
	vfs.File
	d *faultDisk
}

func (f shortFile) Write(b []byte) (int, error) {
	n := f.d.takes(len(b))
	done, err := f.File.Write(b[:n])
	if err == nil && n < len(b) {
		err = fmt.Errorf("%w (injected: short write)", syscall.ENOSPC)
	}
	return done, err
}

func (fs shortFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(name, c)
	if err != nil {
		return nil, err
	}
	return shortFile{f, fs.d}, nil
}

func (fs shortFS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.ReuseForWrite(from, to, c)
	if err != nil {
		return nil, err
	}
	return shortFile{f, fs.d}, nil
}

// faultBase is the data directory in which the scenario begins, and what was
// acknowledged in it. It is made once: two tables, both modes, snapshots, runs,
// and a log that goes on behind them.
var faultBase = sync.OnceValue(func() *crashRun {
	r := &crashRun{kept: true, clock: newFakeClock()}
	r.clerk.init(Always)
	mem := crashtest.NewDisk()
	r.disk = newCrashDisk(mem, 0)
	var err error
	r.s, err = r.open(r.disk)
	r.must(err)
	r.must(r.s.CreateTable(TableOptions{Name: "a", Prefix: "k1", Mode: Approx, Error: 1e-10}))
	for range 3 {
		r.apply(io.Discard, 60)
		r.must(r.s.Snapshot())
	}
	r.apply(io.Discard, 30)
	r.must(r.s.CloseNow())
	// Opened once more, so that Pebble's own log is empty: after a failed Open
	// that had to replay it, a goroutine that Pebble leaves behind may panic,
	// which is as good an end for a server, but not for this process.
	r.s, err = r.open(r.disk)
	r.must(err)
	r.must(r.s.CloseNow())
	return r
})

// plan makes the next n operations, each with an earlier one to repeat. It is
// a function of the history alone, so that two processes plan the same.
func (r *crashRun) plan(n int) (ops, again []*crashOp) {
	rnd := rand.New(rand.NewPCG(uint64(len(r.clerk.ops)), 1))
	for i := range n {
		op := &crashOp{id: strconv.Itoa(len(r.clerk.ops))}
		op.keys, op.deltas = []string{fmt.Sprint("k", 20+rnd.IntN(9)*40)}, []int64{1 + rnd.Int64N(9)}
		if i%3 == 2 {
			op.keys = []string{fmt.Sprint("m", rnd.IntN(9)), fmt.Sprint("n", rnd.IntN(9))}
			op.deltas = append(op.deltas, 1)
		}
		r.clerk.ops = append(r.clerk.ops, op)
		ops = append(ops, op)
		again = append(again, r.clerk.ops[rnd.IntN(len(r.clerk.ops))])
	}
	return ops, again
}

// apply sends n new operations, one by one, and repeats some.
func (r *crashRun) apply(acks io.Writer, n int) error {
	r.live()
	var b Batch
	var ops, again []*crashOp
	r.note(func() { ops, again = r.plan(n) })
	for i, op := range ops {
		b.Reset()
		op.add(&b)
		again[i].add(&b)
		read := b.Add(Get)
		read.Key = []byte(again[i].keys[0])
		if err := r.attempt(acks, &b, op, again[i]); err != nil {
			return err
		}
		for _, k := range r.books {
			if err := r.trySketch(k); err != nil {
				return err
			}
		}
	}
	return nil
}

// live returns the store of the scenario. Once the process has ended, of which Fatal
// stops one goroutine only, it does not return: what then happens to r is the
// verification's.
func (r *crashRun) live() *Store {
	s := r.s
	if r.over.Load() {
		select {}
	}
	return s
}

// note lets fn change what the scenario knows, and like live does not return once the
// process has ended.
func (r *crashRun) note(fn func()) {
	r.noting.Lock()
	if r.over.Load() {
		r.noting.Unlock()
		select {}
	}
	fn()
	r.noting.Unlock()
}

// end is the end of the process: from here on nobody changes what the scenario knows.
func (r *crashRun) end() {
	r.noting.Lock()
	defer r.noting.Unlock()
	r.over.Store(true)
	r.clerk.end()
}

// attempt executes an operation, a repeated one and a read, and judges what
// they answer by G8.
func (r *crashRun) attempt(acks io.Writer, b *Batch, op, again *crashOp) (err error) {
	s := r.live()
	frozen := s.Failure() != nil
	s.Execute(b)
	r.note(func() { err = r.judge(acks, s, b, op, again, frozen) })
	return err
}

func (r *crashRun) judge(acks io.Writer, s *Store, b *Batch, op, again *crashOp, frozen bool) error {
	for i, sent := range []*crashOp{op, again} {
		o := &b.Ops[i]
		switch {
		case o.Err == nil && frozen:
			return fmt.Errorf("operation %s was answered after the failure", sent.id)
		case o.Err == nil && sent.ack.at == 0:
			sent.refused = false
			r.clerk.answered(crashPolicy{fsync: r.clerk.fsync}, []*crashOp{sent}, b.Ops[i:i+1])
			if strings.HasPrefix(sent.keys[0], "k1") {
				sent.values = nil // APPROX answers a duplicate with the present value
			}
			fmt.Fprintln(acks, "ack", sent.id)
		case o.Err == nil && o.Applied:
			return fmt.Errorf("operation %s was applied twice", sent.id)
		case o.Err == nil, errors.Is(o.Err, ErrUnknownOutcome):
		case errors.Is(o.Err, ErrRead), errors.Is(o.Err, ErrDiskFull):
			sent.refused = sent.ack.at == 0 && !frozen && s.Failure() == nil
		default:
			return fmt.Errorf("operation %s: %w", sent.id, o.Err)
		}
	}
	if o := &b.Ops[2]; o.Err == nil {
		o.Keys, o.Values = [][]byte{o.Key}, []int64{o.Value}
		r.clerk.observed(crashPolicy{fsync: r.clerk.fsync}, o)
	}
	return nil
}

// The scenario's length: steps, and operations after each. For each read of a row Pebble
// keeps a stack trace where the race detector is on, which was all that the test did.
const faultSteps, faultOps, faultFiller = 9, 9, 2500 / raced.Slowdown

// scenario opens the directory and does everything that writes files: commits,
// checkpoints, runs, snapshots, trimming, table changes, WAL rotation, closing.
// Apart from operations that are judged, everything may fail.
func (r *crashRun) scenario(acks io.Writer, o Options) error {
	s, err := Open(o)
	if err != nil {
		return nil
	}
	r.s = s
	r.books = []*crashSketches{newCrashSketches(0, true)}
	checkpoints := func() {
		for _, p := range s.partitions {
			_ = s.checkpoint(p, false)
			_ = s.flushRecords(p, false)
		}
	}
	for _, between := range []func(){ // faultSteps of them
		checkpoints,
		func() { _ = s.CreateTable(TableOptions{Name: "t", Prefix: "k2"}) },
		func() { r.clock.advance(time.Second); _ = s.Snapshot() },
		func() { r.filler(1, faultFiller) }, // flushes a memtable
		func() { _ = s.AlterTable("a", TableChange{Mode: ptr(Exact), Window: ptr(time.Hour)}) },
		func() { r.filler(2, faultFiller) },
		func() { _ = s.DropTable("t") },
		checkpoints,
		func() { _ = s.Snapshot() },
	} {
		between()
		if err := r.apply(acks, faultOps); err != nil {
			return err
		}
		if s.Failure() != nil {
			if o := cincr(s, "x", "y", 1); !errors.Is(o.Err, ErrUnknownOutcome) {
				return fmt.Errorf("a write after the failure: %+v", o)
			}
		}
	}
	_ = s.Close()
	return nil
}

// from continues the history of another run.
func (r *crashRun) from(base *crashRun) {
	r.clerk.init(r.fsync)
	r.clerk.clock = base.clerk.clock
	for _, op := range base.clerk.ops { // which other runs continue meanwhile
		own := *op
		r.clerk.ops = append(r.clerk.ops, &own)
	}
	r.clerk.upTo = base.clerk.clock
	r.clock = newFakeClock()
	r.clock.wall, r.clock.mono = base.clock.now()
}

// verifyFault opens what is left on a healthy disk and compares it with what
// was acknowledged.
func (r *crashRun) verifyFault(mem *crashtest.Disk, percent int) error {
	r.kept = percent == 100
	var err error
	if r.s, err = r.open(newCrashDisk(mem, 0)); err != nil {
		return fmt.Errorf("opening on a healthy disk: %w", err)
	}
	defer r.s.CloseNow()
	for _, k := range r.books {
		if err := r.verifySketches(k, 0); err != nil {
			return err
		}
	}
	if err := r.verifyShared(0); err != nil {
		return err
	}
	if err := r.verifyAtEnd(0); err != nil {
		return err
	}
	return r.verifySize()
}

// faultOutcome is how a run of the scenario ended.
type faultOutcome struct {
	ops   int64
	hit   bool
	place faultPlace
	fatal error
	err   error
}

// runFault runs the scenario in this process. Fatal ends it like a process:
// the disk stays as it was at that moment, and no goroutine comes back to it.
func runFault(f fault, at int64, fsync Fsync) (out faultOutcome) {
	base := faultBase()
	r := &crashRun{fsync: fsync}
	r.from(base)
	under := newCrashDisk(base.disk.clone(100, 1), 0)
	d := newFaultDisk(under.fs, f, at)
	type leftover struct{ killed, power *crashtest.Disk }
	ended := make(chan leftover, 2)
	var fatal atomic.Pointer[error]
	end := func() {
		r.end()
		ended <- leftover{under.clone(100, 1), under.clone(0, 1)}
	}
	var result atomic.Pointer[error]
	go func() {
		err := r.scenario(io.Discard, Options{
			Dir: "data", FS: d.fs, Fsync: fsync, SnapshotInterval: -1, MinFreeDisk: -1, HotCounters: 32,
			BlockCache: 1 << 20, LogFileSize: 16 << 10, Clock: r.clock.now,
			Fatal: func(err error) {
				if fatal.CompareAndSwap(nil, &err) {
					end()
				}
				select {}
			},
		})
		result.Store(&err)
		end()
	}()
	select {
	case left := <-ended:
		out.ops, out.hit, out.place = d.ops.Load(), d.hit.Load(), d.place
		if err := fatal.Load(); err != nil {
			out.fatal = *err
		}
		if err := result.Load(); err != nil {
			out.err = *err
		}
		if out.err == nil {
			out.err = r.verifyFault(left.killed, 100)
		}
		if out.err == nil && fsync == Always {
			out.err = r.verifyFault(left.power, 0)
		}
	case <-time.After(testwait.Limit):
		out.err = errors.New("it hangs")
	}
	return out
}

// faultSweep is set in the environment of a process that tries one kind of faults.
const faultSweep = "FBFKV_FAULT_SWEEP"

// sweepInChild runs a part of TestFaults in a process of its own: what Fatal ends in this
// one never gives its memory back, and many points of all kinds would need too much.
func sweepInChild(t *testing.T) {
	_, part, _ := strings.Cut(t.Name(), "/")
	c := exec.Command(os.Args[0], "-test.run=^TestFaults$/^"+regexp.QuoteMeta(part)+"$", "-test.v",
		"-test.timeout=20m",
		fmt.Sprint("-fault.stride=", *faultStride), fmt.Sprint("-fault.children=", *faultChild))
	c.Env = append(os.Environ(), faultSweep+"=1")
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("%v: %s", err, out)
	}
}

// TestFaults fails every file operation of the scenario in turn, in every way,
// until none is left to fail. Expected is what G8 says: writes answer that the
// outcome is unknown, or the process ends; reads serve only what is durable;
// and on a healthy disk nothing acknowledged is missing and nothing is counted
// twice.
func TestFaults(t *testing.T) {
	for f := range faults {
		for _, fsync := range []Fsync{Always, Everysec} {
			t.Run(fmt.Sprint(f, ", ", fsync), func(t *testing.T) {
				stride := int64(*faultStride * raced.Slowdown)
				if stride < 40 && os.Getenv(faultSweep) == "" {
					sweepInChild(t)
					return
				}
				var next, fatals, hits atomic.Int64
				var over atomic.Bool
				next.Store(rand.Int64N(stride) + 1)
				var mu sync.Mutex
				var ends []faultPlace
				var workers sync.WaitGroup
				for range runtime.GOMAXPROCS(0) {
					workers.Go(func() {
						for !over.Load() && !t.Failed() {
							at := next.Add(stride) - stride
							out := runFault(f, at, fsync)
							if out.err != nil {
								t.Errorf("operation %d: %v", at, out.err)
							}
							if out.hit {
								hits.Add(1)
							}
							if out.fatal != nil {
								fatals.Add(1)
								mu.Lock()
								ends = append(ends, out.place)
								mu.Unlock()
							}
							if out.ops < at && out.fatal == nil {
								over.Store(true)
							}
						}
					})
				}
				workers.Wait()
				t.Logf("%d faults, of which %d end the process", hits.Load(), fatals.Load())
				if hits.Load() == 0 {
					t.Error("no fault was met")
				}
				rand.Shuffle(len(ends), func(i, j int) { ends[i], ends[j] = ends[j], ends[i] })
				for i, place := range ends {
					if i < *faultChild && !t.Failed() {
						faultInChild(t, f, place, fsync)
					}
				}
			})
		}
	}
}
