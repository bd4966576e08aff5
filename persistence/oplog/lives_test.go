package oplog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/fbfkv/fbfkv/internal/raced"
	"github.com/fbfkv/fbfkv/persistence/crashtest"
	"github.com/fbfkv/fbfkv/persistence/disk"
)

// failLogs makes the fsyncs of the log's files fail.
func failLogs(d *crashtest.Disk) {
	d.FailSyncs(func(name string) error {
		if strings.HasSuffix(name, ".log") {
			return syscall.EIO
		}
		return nil
	})
}

// TestClosedOnNoDisk: an fsync fails in Close, behind the trailer of the last file. What the next
// start has read of it survives a power loss, with all that rests on it.
func TestClosedOnNoDisk(t *testing.T) {
	for _, policy := range []Fsync{Always, Everysec} {
		d := crashtest.NewDisk()
		o := testOptions(d)
		o.Fsync = policy
		l := mustOpen(t, manualTicks(o))
		mustCommit(t, l, func(b *Batch) { b.AppendLog(0, 1, crashtest.Record(1)) })
		failLogs(d)
		if err := l.Close(); !errors.Is(err, syscall.EIO) {
			t.Fatal(err)
		}
		o.FS = d.Kill()
		again := mustOpen(t, o)
		expect(t, "records", prefix(t, again), 1)
		verifyCrashed(t, o.FS.(*crashtest.Disk).Lose(0, nil), policy, 1, 1)
		mustClose(t, again)
	}
}

// TestEvictedWhileOpened: memory drops pages that are on no disk between two looks at them.
func TestEvictedWhileOpened(t *testing.T) {
	d := crashtest.NewDisk()
	o := testOptions(d)
	o.Fsync = No
	l := mustOpen(t, o)
	for seq := range uint64(9) {
		mustCommit(t, l, func(b *Batch) { b.AppendLog(0, seq+1, crashtest.Record(seq+1)) })
	}
	failLogs(d)
	if err := l.Close(); err == nil {
		t.Fatal("the fsync did not fail")
	}
	d = d.Kill()
	o.FS = errorfs.Wrap(d, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpCreate {
			return d.Evict("data/log/000001.log")
		}
		return nil
	}))
	if _, err := tryOpen(o); !errors.Is(err, disk.ErrChanged) {
		t.Fatal(err)
	}
	verifyCrashed(t, d.Lose(0, nil), No, 0, 9)
	verifyCrashed(t, d, No, 0, 9)
}

// TestRenewedOnFullDisk: a start needs no space for the records that are on no disk yet.
func TestRenewedOnFullDisk(t *testing.T) {
	d := crashtest.NewDisk()
	o := testOptions(d)
	o.Fsync = No
	l := mustOpen(t, o)
	for seq := range uint64(9) {
		mustCommit(t, l, func(b *Batch) { b.AppendLog(0, seq+1, crashtest.Record(seq+1)) })
	}
	failLogs(d)
	if err := l.Close(); err == nil {
		t.Fatal("the fsync did not fail")
	}
	d = d.Kill()
	full := crashtest.NewFullDisk(d)
	o.FS = full
	f, err := full.OpenReadWrite("data/log/000001.log", disk.WriteCategory) // it has its blocks
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	full.Fill(12 << 10) // for the new file of the log, and its mark
	again := mustOpen(t, o)
	defer again.Close()
	expect(t, "records", prefix(t, again), 9)
	verifyCrashed(t, d.Lose(0, nil), No, 9, 9)
}

// TestLives has a log live, end in all ways there are, and live again on the same disk. All that a start has
// found stays.
func TestLives(t *testing.T) {
	for seed := range uint64(60 / raced.Slowdown) {
		r := livesRun{t: t, rng: rand.New(rand.NewPCG(seed, 9)), disk: crashtest.NewDisk()}
		for range 6 {
			if r.life(); t.Failed() {
				t.Fatalf("seed %d: %v", seed, r.did)
			}
		}
	}
}

// livesRun is one disk.
type livesRun struct {
	t    *testing.T
	rng  *rand.Rand
	disk *crashtest.Disk
	did  []string
	// sure records survive a power loss, here records the death of the process; there are at most attempted.
	sure, here, attempted uint64
}

func (r *livesRun) options(fsys vfs.FS) Options {
	o := manualTicks(testOptions(fsys))
	o.Fsync, o.FileSize = Fsync(r.rng.IntN(3)), 64<<10
	return o
}

// life opens the log, writes, and ends.
func (r *livesRun) life() {
	if r.rng.IntN(3) == 0 {
		r.crashedStart()
	}
	o := r.options(r.disk)
	l, err := tryOpen(o)
	if err != nil {
		r.t.Error(err)
		return
	}
	n := prefix(r.t, l)
	if n < r.here || n > r.attempted {
		r.t.Errorf("%d records, %d were promised, %d attempted", n, r.here, r.attempted)
	}
	r.sure, r.here, r.attempted = n, n, n
	for range r.rng.IntN(40) {
		r.attempted++
		mustCommit(r.t, l, func(b *Batch) { b.AppendLog(0, r.attempted, crashtest.Record(r.attempted)) })
	}
	if r.here = r.attempted; o.Fsync == Always {
		r.sure = r.here
	}
	end := []string{"in order", "power loss", "killed", "bad fsync"}[r.rng.IntN(4)]
	r.did = append(r.did, fmt.Sprintf("%v, %s", o.Fsync, end))
	switch end {
	case "in order":
		mustClose(r.t, l)
		r.sure = r.here
		return
	case "power loss":
		r.disk, r.here = r.disk.Lose(50*r.rng.IntN(3), r.rng), r.sure
		_ = l.Close() // it changes nothing any more
	case "bad fsync":
		failLogs(r.disk)
		_ = l.Close() // it fails, if there was anything to fsync
		r.disk = r.disk.Kill()
	case "killed":
		r.disk = r.disk.Kill()
		_ = l.Close()
	}
	if end == "bad fsync" && r.rng.IntN(2) == 0 {
		r.here = r.sure
		for num := range uint64(50) {
			_ = r.disk.Evict(path.Join(o.Dir, fileName(num))) // few of them are there
		}
	}
}

// crashedStart is a start that does not come to its end.
func (r *livesRun) crashedStart() {
	var left *crashtest.Disk
	from, power := r.disk, r.rng.IntN(2) == 0
	at, percent := 1+r.rng.IntN(40), 50*r.rng.IntN(2)
	l, err := tryOpen(r.options(errorfs.Wrap(from, crashtest.AtOperation(at, func() {
		if left = from.Kill(); power {
			left = from.Lose(percent, r.rng)
		}
	}))))
	r.did = append(r.did, fmt.Sprintf("start, %d operations, power loss %v", at, power))
	if err != nil {
		r.t.Error(err)
		return
	}
	_ = l.Close()
	if left == nil {
		r.sure = r.here
		return
	}
	if r.disk = left; power {
		r.here = r.sure
	}
}
