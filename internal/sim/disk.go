package sim

import (
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/fbfkv/fbfkv/persistence/crashtest"
)

// Disk is a machine's disk, in memory. It outlives the processes that use it. A process that is
// killed leaves everything it wrote in the page cache, where the next one finds it, and where a
// later loss of power takes what nobody has synced. A dead process goes on with a copy that nobody
// else sees.
type Disk struct {
	mu    sync.Mutex
	files *crashtest.Disk
	space *crashtest.FullDisk // of the process that lives now

	broken     atomic.Bool  // fsyncs fail
	slow       atomic.Int64 // an fsync outside of Pebble's directory takes so long, ns
	crashAfter atomic.Int64 // so many operations from now power is lost; 0: it is not
	lostPower  func()       // is called then
}

func newDisk(lostPower func()) *Disk {
	return &Disk{files: crashtest.NewDisk(), lostPower: lostPower}
}

// Replace puts an empty disk in the place of this one, which no process may be using.
func (d *Disk) Replace() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files = crashtest.NewDisk()
}

// Copy returns what a power loss would leave now: percent of the unsynced pages.
func (d *Disk) Copy(percent int, w *World) *crashtest.Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.files.Lose(percent, w.Rand())
}

// PutBack makes the disk what it was when it was copied. No process may be using it.
func (d *Disk) PutBack(files *crashtest.Disk) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files = files
}

// Files returns what a process would find that started now.
func (d *Disk) Files() vfs.FS {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.files.Kill()
}

// CrashAfter makes the machine lose power before its n-th operation from now; 0: it does not.
func (d *Disk) CrashAfter(n int) { d.crashAfter.Store(int64(n)) }

// Break makes all fsyncs fail, or no more.
func (d *Disk) Break(broken bool) { d.broken.Store(broken) }

// Slow makes each fsync take up to so long: of what the product writes, not of Pebble's files,
// since Pebble waits for some with mutexes held; nor of the tables of a partition that is adopted,
// which is locked then.
func (d *Disk) Slow(by time.Duration) { d.slow.Store(int64(by)) }

// wait takes the time that an operation takes.
func (d *Disk) wait(op errorfs.Op, w *World) {
	if slow := d.slow.Load(); slow > 0 &&
		(op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData) &&
		!strings.Contains(op.Path+"/", "/db/") && !strings.HasSuffix(op.Path, ".table") {
		time.Sleep(w.Between(0, time.Duration(slow)))
	}
}

// Fill leaves so many bytes free; negative: as many as there are.
func (d *Disk) Fill(free int64) {
	d.mu.Lock()
	space := d.space
	d.mu.Unlock()
	if space != nil {
		space.Fill(free)
	}
}

// mount returns the disk for a process, which is told when an fsync fails.
func (d *Disk) mount(l *Life) vfs.FS {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files.FailSyncs(func(string) error {
		if l.Dead() || !d.broken.Load() {
			return nil
		}
		if l.Hurt(); l.Failed != nil {
			l.failed.Do(l.Failed)
		}
		return syscall.EIO
	})
	d.space = crashtest.NewFullDisk(errorfs.Wrap(d.files, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if !l.Dead() {
			d.wait(op, l.Machine.World)
		}
		if n := d.crashAfter.Load(); n > 0 && !l.Dead() && d.crashAfter.CompareAndSwap(n, n-1) && n == 1 {
			d.lostPower()
		}
		return nil
	})))
	return d.space
}

// kill leaves the disk as kill -9 does.
func (d *Disk) kill() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files, d.space = d.files.Kill(), nil
	d.crashAfter.Store(0)
}

// losePower ends the use of the disk as a loss of power does: percent of the unsynced pages are left.
func (d *Disk) losePower(percent int, w *World) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files, d.space = d.files.Lose(percent, w.Rand()), nil
	d.crashAfter.Store(0)
}
