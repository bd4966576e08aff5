package persistence

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/fbfkv/fbfkv/internal/raced"
	"github.com/fbfkv/fbfkv/persistence/crashtest"
	"github.com/fbfkv/fbfkv/persistence/disk"
	"github.com/fbfkv/fbfkv/persistence/oplog"
)

// untilFatal runs do, which uses o, until it ends or Fatal is called, after
// which nothing more may happen, as after os.Exit. It returns Fatal's error.
func untilFatal(o *Options, do func()) error {
	fatal, finished := make(chan error), make(chan struct{})
	o.Fatal = func(err error) { fatal <- err; select {} }
	go func() {
		defer close(finished)
		do()
	}()
	select {
	case err := <-fatal:
		return err
	case <-finished:
		return nil
	}
}

// inLog matches operations on the op log's files.
func inLog(kinds ...errorfs.OpKind) func(errorfs.Op) bool {
	match := crashtest.On(".log", kinds...)
	return func(op errorfs.Op) bool { return strings.Contains(op.Path, "/"+logName+"/") && match(op) }
}

// TestLogFaults: after a failed write or fsync of the op log the outcome is
// unknown and nothing more is accepted (G8), the failed fsync is not tried
// again, reads go on, and reopening finds a prefix with all that was promised.
func TestLogFaults(t *testing.T) {
	write := inLog(errorfs.OpFileWrite)
	fsync := inLog(errorfs.OpFileSync, errorfs.OpFileSyncData)
	for _, c := range []struct {
		name   string
		policy oplog.Fsync
		match  func(errorfs.Op) bool
		err    error
		tick   bool
	}{
		{"write, always", oplog.Always, write, syscall.EIO, false},
		{"write, everysec", oplog.Everysec, write, syscall.EIO, false},
		{"write, no", oplog.No, write, syscall.EIO, false},
		{"disk full", oplog.Always, write, syscall.ENOSPC, false},
		{"fsync, always", oplog.Always, fsync, syscall.EIO, false},
		{"background fsync", oplog.Everysec, fsync, syscall.EIO, true},
		{"mark", oplog.Everysec, crashtest.On(oplog.MarkName, errorfs.OpFileWriteAt), syscall.EIO, true},
		{"mark, always", oplog.Always, crashtest.On(oplog.MarkName, errorfs.OpFileWriteAt), syscall.EIO,
			false},
	} {
		t.Run(c.name, func(t *testing.T) {
			mem, f := vfs.NewCrashableMem(), &crashtest.Fault{}
			o := testOptions(errorfs.Wrap(mem, f))
			o.Fsync = c.policy
			o.Fatal = func(err error) { t.Errorf("Fatal: %v", err) }
			ticks := make(chan time.Time)
			o.ticks = ticks
			tick := func() {
				ticks <- time.Time{}
				ticks <- time.Time{} // the first is over
			}
			db := mustOpen(t, o)
			mustCommit(t, db, func(b *oplog.Batch) { b.AppendLog(0, 1, crashtest.Record(1)) })
			mustChange(t, db, func(c *Changes) { c.PutState(0, []byte("state")) })
			if err := db.Sync(); err != nil {
				t.Fatal(err)
			}
			f.Arm(c.err, c.match)
			if c.tick {
				// Acknowledged under everysec, not yet fsynced.
				mustCommit(t, db, func(b *oplog.Batch) { b.AppendLog(0, 2, crashtest.Record(2)) })
				tick()
			}
			b := db.log.NewBatch()
			b.AppendLog(0, 2, crashtest.Record(2))
			err := b.Apply()
			if err == nil {
				err = b.Wait()
			}
			if !errors.Is(err, ErrFailed) || !errors.Is(err, c.err) {
				t.Fatal(err)
			}
			f.Arm(nil, nil) // the disk is well again; that must not help
			for range 3 {
				if err := commit(db, func(b *oplog.Batch) { b.AppendLog(0, 3, nil) }); !errors.Is(err,
					ErrFailed) {
					t.Fatal("a later commit:", err)
				}
				if err := commit(db, func(*oplog.Batch) {}); !errors.Is(err, ErrFailed) {
					t.Fatal("a later empty commit:", err)
				}
				if err := db.Sync(); !errors.Is(err, ErrFailed) {
					t.Fatal("a later Sync:", err)
				}
				if err := db.log.SetFsync(oplog.Always); !errors.Is(err, ErrFailed) {
					t.Fatal("a later SetFsync:", err)
				}
				if err := trySnapshot(db, 0, 1, nil); !errors.Is(err, ErrFailed) {
					t.Fatal("a later snapshot:", err)
				}
				tick()
			}
			if s, ok, err := db.State(0); !ok || err != nil || string(s) != "state" {
				t.Fatal("reads of durable state must go on", ok, err)
			}
			verifyCrashed(t, crashtest.Left(mem, 0, nil), oplog.Always, 1, 2)
			verifyCrashed(t, crashtest.Left(mem, 100, nil), oplog.Always, 1, 2)
			// Closing reports the failure, too, and keeps the mark.
			if err := db.Close(); err == nil {
				t.Fatal("Close says all is well")
			}
			tries := 1
			if c.err == syscall.ENOSPC {
				tries = 2 // Open's files ask for the spare's space
			}
			if hits, later := f.Count(); hits != tries || later != 0 {
				t.Fatalf("%d failures, tried %d times again", hits, later)
			}
			if mark, ok, err := disk.ReadMark(mem, "data", oplog.MarkName); err != nil || !ok ||
				mark.Lazy != (c.policy != oplog.Always) {
				t.Fatal("mark after a failure:", mark, ok, err)
			}
		})
	}
}

// TestLogRotationFault: when the op log cannot go on in another file, commits
// fail and stay failed (G8).
func TestLogRotationFault(t *testing.T) {
	for name, match := range map[string]func(errorfs.Op) bool{
		"fsync":  inLog(errorfs.OpFileSyncData),
		"create": crashtest.On("/"+logName+"/", errorfs.OpCreate),
		"header": crashtest.On("/"+logName+"/", errorfs.OpFileSync),
		"rename": crashtest.On("/"+logName+"/", errorfs.OpRename),
	} {
		t.Run(name, func(t *testing.T) {
			mem, f := vfs.NewCrashableMem(), &crashtest.Fault{}
			o := testOptions(errorfs.Wrap(mem, f))
			o.Fsync, o.LogFileSize = oplog.Everysec, 100<<10
			db := mustOpen(t, manualTicks(o))
			f.Arm(syscall.EIO, match)
			var err error
			seq := uint64(1)
			for ; err == nil && seq < 10_000; seq++ {
				err = commit(db, func(b *oplog.Batch) { b.AppendLog(0, seq, crashtest.Record(seq)) })
			}
			if !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.EIO) {
				t.Fatal(err)
			}
			verifyCrashed(t, crashtest.Left(mem, 100, nil), oplog.Always, seq-2, seq)
			if err := db.Close(); err == nil {
				t.Fatal("Close says all is well")
			}
		})
	}
}

// TestPanicStops: a panic of Pebble reaches Fatal, not a recover further up.
func TestPanicStops(t *testing.T) {
	o := testOptions(vfs.NewMem())
	err := untilFatal(&o, func() {
		db := mustOpen(t, o)
		if err := db.pebble.Close(); err != nil {
			t.Error(err)
			return
		}
		_ = change(db, func(b *Changes) { b.PutState(0, nil) })
	})
	if !errors.Is(err, ErrFailed) {
		t.Fatal(err)
	}
}

// TestFatalDoesNotReturn: a Fatal that returns still ends the process.
func TestFatalDoesNotReturn(t *testing.T) {
	const variable = "FBFKV_TEST_FATAL"
	if os.Getenv(variable) != "" {
		o, err := Options{Dir: "unused", Fatal: func(error) {}}.withDefaults()
		if err == nil {
			pebbleLogger{log: o.Logger, stop: o.stop}.Fatalf("lost %d", 1)
		}
		os.Stdout.WriteString("it returned")
		return
	}
	c := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	c.Env = append(os.Environ(), variable+"=1")
	out, err := c.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || strings.Contains(string(out), "it returned") {
		t.Fatal(err, string(out))
	}
}

// TestFlushFault: a full disk stops flushes, which Pebble retries. Nobody waits for
// that, and nothing more is changed; when space returns all goes on and nothing is lost.
func TestFlushFault(t *testing.T) {
	mem, f := vfs.NewCrashableMem(), &crashtest.Fault{}
	o := testOptions(errorfs.Wrap(mem, f))
	db := mustOpen(t, o)
	defer mustClose(t, db)
	db.flushes.wait = time.Millisecond
	put := func(n uint64) error {
		return change(db, func(c *Changes) {
			c.PutRow(RowKey{Hash: n, Key: []byte("k")}, crashtest.Record(n))
		})
	}
	f.Arm(syscall.ENOSPC, crashtest.On(".sst", errorfs.OpCreate, errorfs.OpFileWrite))
	for n := range uint64(30) {
		if err := put(n); err != nil {
			t.Fatal(err)
		}
	}
	for range 9 { // more than there may be memtables
		if err := db.Flush(); !errors.Is(err, ErrNoSpace) {
			t.Fatal("flushed to a full disk:", err)
		}
	}
	if err := put(30); !errors.Is(err, ErrNoSpace) {
		t.Fatal("a change while flushes fail:", err)
	}
	if err := db.CheckSpace(); !errors.Is(err, ErrNoSpace) {
		t.Fatal("space for writes while flushes fail:", err)
	}
	if n := db.pebble.Metrics().MemTable.Count; n > 2 {
		t.Fatal("memtables pile up:", n)
	}
	f.Arm(nil, nil)
	if err := errors.Join(db.CheckSpace(), put(30), db.Flush()); err != nil {
		t.Fatal("there is space again:", err)
	}
	crashed := mustOpen(t, testOptions(crashtest.Left(mem, 0, nil)))
	defer mustClose(t, crashed)
	for n := range uint64(31) {
		v, ok, err := crashed.Row(nil, RowKey{Hash: n, Key: []byte("k")})
		if err != nil || !ok || string(v) != string(crashtest.Record(n)) {
			t.Fatal(n, ok, err)
		}
	}
}

// categories notes for what purposes sstables are created.
type categories struct {
	vfs.FS
	seen map[vfs.DiskWriteCategory]bool
}

func (c categories) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasSuffix(name, tableSuffix) {
		c.seen[category] = true
	}
	return c.FS.Create(name, category)
}

// TestFailedCompactionWaits: Pebble begins a compaction that has failed again at once, and must
// wait before it writes. A flush does not wait for that.
func TestFailedCompactionWaits(t *testing.T) {
	under := categories{vfs.NewMem(), make(map[vfs.DiskWriteCategory]bool)}
	db := mustOpen(t, testOptions(under))
	mustChange(t, db, func(c *Changes) { c.PutState(0, []byte("state")) })
	if err := errors.Join(db.Flush(), db.Close()); err != nil || len(under.seen) != 1 ||
		!under.seen[flushCategory] {
		t.Fatal("a flush is not told by its category:", under.seen, err)
	}
	synctest.Test(t, func(t *testing.T) {
		var f flushes
		f.init()
		fs := newSpareFS(vfs.NewMem(), nil, &f, "d")
		fs.opened.Store(true)
		for i, step := range []struct {
			err               error // of the compaction before
			flush, compaction time.Duration
		}{
			{nil, 0, 0}, {syscall.ENOSPC, 0, flushRetry}, {syscall.EIO, 0, flushRetry},
			{pebble.ErrCancelledCompaction, 0, flushRetry}, {nil, 0, 0},
			{pebble.ErrCancelledCompaction, 0, 0},
		} {
			f.compactionEnded(pebble.CompactionInfo{Err: step.err})
			for category, want := range map[vfs.DiskWriteCategory]time.Duration{flushCategory: step.flush,
				"pebble-compaction": step.compaction} {
				began := time.Now()
				if _, err := fs.Create(fmt.Sprint(i, category, ".sst"), category); err != nil ||
					time.Since(began) != want {
					t.Errorf("step %d: after %v, %s waits for %v, want %v (%v)", i, step.err, category,
						time.Since(began), want, err)
				}
			}
		}
	})
}

// TestFlushStops: a flush that fails for another reason than a full disk is final (G8).
func TestFlushStops(t *testing.T) {
	f := &crashtest.Fault{}
	db := mustOpen(t, testOptions(errorfs.Wrap(vfs.NewMem(), f)))
	mustChange(t, db, func(c *Changes) { c.PutState(0, []byte("state")) })
	f.Arm(syscall.EIO, crashtest.On(".sst", errorfs.OpFileSync, errorfs.OpFileSyncData))
	if err := db.Flush(); !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	f.Arm(nil, nil)
	for name, err := range map[string]error{
		"a commit": commit(db, func(b *oplog.Batch) { b.AppendLog(0, 1, nil) }),
		"a change": change(db, func(c *Changes) { c.PutState(0, nil) }), "a flush": db.Flush(),
	} {
		if !errors.Is(err, ErrFailed) {
			t.Fatal(name, "after it:", err)
		}
	}
	if s, ok, err := db.State(0); !ok || err != nil || string(s) != "state" {
		t.Fatal("reads must go on", ok, err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestFlushIsInOrder crashes at every file operation while changes are committed and
// flushed: what is left is the first so many of them, all that were flushed, and
// the log is there as far as they reach (G4).
func TestFlushIsInOrder(t *testing.T) {
	for at := int64(1); ; at += raced.Step {
		mem := vfs.NewCrashableMem()
		var n, flushed atomic.Int64
		var left *vfs.MemFS
		var sure int64
		armed := false
		var mu sync.Mutex
		o := testOptions(errorfs.Wrap(mem, errorfs.InjectorFunc(func(errorfs.Op) error {
			mu.Lock()
			defer mu.Unlock()
			if armed && n.Add(1) == at {
				left, sure = crashtest.Left(mem, 0, nil), flushed.Load()
			}
			return nil
		})))
		o.MemTableSize = 64 << 10
		db := mustOpen(t, manualTicks(o))
		mu.Lock()
		armed = true
		mu.Unlock()
		for i := range uint64(12) {
			mustCommit(t, db, func(b *oplog.Batch) { b.AppendLog(0, i+1, nil) })
			mustChange(t, db, func(c *Changes) {
				c.PutRow(RowKey{Hash: i, Key: []byte("k")}, crashtest.Noise[:20<<10])
			})
			if i%4 == 3 {
				mustFlush(t, db)
				flushed.Store(int64(i + 1))
			}
		}
		mu.Lock()
		armed = false
		mu.Unlock()
		mustClose(t, db)
		if left == nil {
			if at < 20 {
				t.Fatalf("%d crashes", at)
			}
			return
		}
		crashed := mustOpen(t, testOptions(left))
		have := int64(0)
		for i := range uint64(12) {
			_, ok, err := crashed.Row(nil, RowKey{Hash: i, Key: []byte("k")})
			if err != nil || ok && have < int64(i) {
				t.Fatalf("at %d: row %d is there, %d are before it, %v", at, i, have, err)
			}
			if ok {
				have++
			}
		}
		if _, last, _ := crashed.log.Bounds(0); have < sure || int64(last) < have {
			t.Fatalf("at %d: %d rows, %d were flushed, the log ends at %d", at, have, sure, last)
		}
		mustClose(t, crashed)
	}
}

// TestOpenFaults fails each operation of Open in turn: an error or a Fatal,
// never a hang, and the directory opens once the disk is well again.
func TestOpenFaults(t *testing.T) {
	seed := vfs.NewCrashableMem()
	db := mustOpen(t, testOptions(seed))
	for seq := uint64(1); seq <= 3; seq++ {
		mustCommit(t, db, func(b *oplog.Batch) { b.AppendLog(0, seq, crashtest.Record(seq)) })
	}
	mustClose(t, db)
	failed := true
	for at := int64(1); failed; at += 2 * raced.Step {
		mem := crashtest.Left(seed, 0, nil)
		var n atomic.Int64
		o := testOptions(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if n.Add(1) == at {
				return syscall.EIO
			}
			return nil
		})))
		o.Fsync = oplog.Everysec
		_ = untilFatal(&o, func() {
			if db, err := Open(o); err == nil {
				_ = db.Close() // may fail: the fault may be there
			}
		})
		failed = n.Load() >= at
		verifyCrashed(t, crashtest.Left(mem, 0, nil), oplog.Always, 3, 3)
	}
}
