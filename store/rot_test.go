package store

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"path"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/internal/raced"
	"github.com/fbfkv/fbfkv/internal/testwait"
	"github.com/fbfkv/fbfkv/persistence/crashtest"
)

var rotStride = flag.Int("rot.stride", 16, "TestRot tries every n-th damage; 1: all")

// rot is one damage to one file.
type rot struct {
	file   string
	kind   string // flip, zero, cut, remove
	offset int64
}

func (d rot) String() string { return fmt.Sprintf("%s %s at %d", d.kind, d.file, d.offset) }

// rotBlock is the size of a block that reads as zeros.
const rotBlock = 4096

// do damages the file.
func (d rot) do(fs vfs.FS) error {
	if d.kind == "remove" {
		return fs.Remove(d.file)
	}
	b, err := contents(fs, d.file)
	if err != nil {
		return err
	}
	switch d.kind {
	case "flip":
		b[d.offset] ^= 1 << (d.offset % 8)
	case "zero":
		clear(b[d.offset:min(d.offset+rotBlock, int64(len(b)))])
	case "cut":
		b = b[:d.offset]
	}
	w, err := fs.Create(d.file, vfs.WriteCategoryUnspecified)
	if err == nil {
		_, err = w.Write(b)
		err = errors.Join(err, w.Sync(), w.Close())
	}
	return err
}

func contents(fs vfs.FS, name string) ([]byte, error) {
	f, err := fs.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// files lists all files below dir.
func files(fs vfs.FS, dir string) (out []string, err error) {
	names, err := fs.List(dir)
	if err != nil {
		return nil, err
	}
	sort.Strings(names)
	for _, n := range names {
		name := path.Join(dir, n)
		info, err := fs.Stat(name)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			out = append(out, name)
			continue
		}
		below, err := files(fs, name)
		if err != nil {
			return nil, err
		}
		out = append(out, below...)
	}
	return out, nil
}

// damages lists what is done to a file of some size: bits all over it and near
// its ends, blocks, several lengths, and no file.
func damages(name string, size int64) []rot {
	out := []rot{{name, "remove", 0}}
	if size == 0 {
		return out
	}
	rnd := rand.New(rand.NewPCG(uint64(size), 1))
	at := []int64{0, 1, size / 3, size / 2, size - 1, max(size-9, 0), max(size-60, 0)}
	for range 25 {
		at = append(at, rnd.Int64N(size))
	}
	slices.Sort(at)
	for _, o := range slices.Compact(at) {
		out = append(out, rot{name, "flip", o}, rot{name, "cut", o})
	}
	for o := int64(0); o < size; o += max(rotBlock, size/12/rotBlock*rotBlock) {
		out = append(out, rot{name, "zero", o})
	}
	return out
}

// rotBase is a directory as kill -9 leaves it: two tables of both modes, two
// snapshots of each partition, runs, rows, flushed and live op log.
func rotBase(fsync Fsync) *crashRun {
	r := &crashRun{fsync: fsync, kept: true, clock: newFakeClock()}
	r.clerk.init(fsync)
	mem := crashtest.NewDisk()
	r.disk = newCrashDisk(mem, 0)
	var err error
	r.s, err = r.open(r.disk)
	r.must(err)
	r.must(r.s.CreateTable(TableOptions{Name: "a", Prefix: "k1", Mode: Approx, Error: 1e-10}))
	for n := range 3 {
		r.apply(io.Discard, 80)
		r.filler(n, 2500)
		r.must(r.s.Snapshot())
	}
	for n := range 6 { // flushes memtables whose operations no snapshot holds
		r.apply(io.Discard, 80)
		r.filler(3+n, 2500)
	}
	r.must(r.s.db.Flush())
	r.must(r.s.Sync())
	return r
}

// TestRot damages each file of a data directory in many ways. Either the server
// recovers with nothing lost, or it refuses to start and names the file and
// what to do, or reading the damaged block is answered with an error. Never is
// the history silently shorter, and never is a value wrong.
func TestRot(t *testing.T) {
	for _, fsync := range []Fsync{Always, Everysec} {
		t.Run(fsync.String(), func(t *testing.T) {
			base := rotBase(fsync)
			defer base.s.CloseNow()
			whole := base.disk.clone(100, 1)
			list, err := files(whole, "data")
			must(t, err)
			var all []rot
			for _, name := range list {
				info, err := whole.Stat(name)
				must(t, err)
				all = append(all, damages(name, info.Size())...)
			}
			stride := *rotStride * raced.Slowdown
			all = all[min(rand.IntN(stride), len(all)):]
			var mu sync.Mutex
			outcomes := make(map[string]int)
			sweep(t, (len(all)+stride-1)/stride, func(i int) {
				d := all[i*stride]
				outcome, err := base.rot(d)
				if err != nil {
					t.Errorf("%v: %v", d, err)
				}
				mu.Lock()
				outcomes[kindOf(d.file)+": "+outcome]++
				mu.Unlock()
			})
			lines := make([]string, 0, len(outcomes))
			for k, n := range outcomes {
				lines = append(lines, fmt.Sprintf("%-10s %4d", k, n))
			}
			slices.Sort(lines)
			t.Log("\n" + strings.Join(lines, "\n"))
		})
	}
}

// kindOf names the kind of a file.
func kindOf(name string) string {
	base := path.Base(name)
	switch ext := path.Ext(base); {
	case ext == ".log" || ext == ".sst" || ext == ".fbf":
		return ext
	case strings.HasPrefix(base, "marker."):
		return "marker"
	}
	return strings.TrimRight(base, "-0123456789")
}

// rot damages a copy of the directory and opens it.
func (r *crashRun) rot(d rot) (outcome string, err error) {
	mem := r.disk.clone(100, 1)
	if err := d.do(mem); err != nil {
		return "", err
	}
	fatal, done := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(done)
		outcome, err = r.openRotten(mem, d, fatal)
	}()
	select {
	case <-done:
		return outcome, err
	case f := <-fatal:
		if path := path.Base(d.file); !strings.Contains(f.Error(), path) && kindOf(path) != ".sst" {
			return "", fmt.Errorf("the process ends without naming the file: %w", f)
		}
		return "the process ends", nil
	case <-time.After(testwait.Limit):
		return "", errors.New("it hangs")
	}
}

func (r *crashRun) openRotten(mem *crashtest.Disk, d rot, fatal chan error) (string, error) {
	s, err := Open(Options{
		Dir: "data", FS: mem, Fsync: r.fsync, SnapshotInterval: -1, MinFreeDisk: -1, HotCounters: 32,
		BlockCache: 1 << 20, LogFileSize: 16 << 10, Clock: r.clock.now,
		Fatal: func(err error) { fatal <- err; select {} },
	})
	if err != nil {
		text := err.Error()
		switch {
		case !names(text, d):
			return "", fmt.Errorf("refused without naming the file: %w", err)
		case !strings.Contains(text, "restore a backup") &&
			!strings.Contains(text, "--accept-forgotten-window"):
			return "", fmt.Errorf("refused without saying what to do: %w", err)
		}
		return "refused", nil
	}
	defer s.CloseNow()
	return r.compareRotten(s)
}

// names reports whether an error names the damaged file, or in what is missing
// the file that held it.
func names(text string, d rot) bool {
	base := path.Base(d.file)
	switch {
	case strings.Contains(text, base):
		return true
	case d.kind == "remove" && kindOf(base) == "marker": // its number is gone with it
		kind, _, _ := strings.Cut(base, ".0")
		return strings.Contains(text, kind)
	case kindOf(base) == ".log" && (d.kind == "remove" || d.kind == "cut" && d.offset == 0):
		return strings.Contains(text, "op log is damaged: entries")
	}
	return false
}

// compareRotten compares all of the history. An unreadable key may be
// answered with an error.
func (r *crashRun) compareRotten(s *Store) (string, error) {
	outcome := "nothing lost"
	total := make(map[string]int64)
	for _, op := range r.clerk.ops {
		for i, k := range op.keys {
			total[k] += op.deltas[i]
		}
	}
	for k, want := range total {
		switch o := do(s, Op{Kind: Get, Key: []byte(k)}); {
		case errors.Is(o.Err, ErrRead):
			outcome = "a read fails"
		case o.Err != nil || o.Value != want:
			return "", fmt.Errorf("%s is %d, want %d (%v)", k, o.Value, want, o.Err)
		}
	}
	for _, op := range r.clerk.ops {
		var b Batch
		op.add(&b)
		s.Execute(&b)
		switch o := &b.Ops[0]; {
		case errors.Is(o.Err, ErrRead):
			outcome = "a read fails"
		case o.Err != nil || o.Applied:
			return "", fmt.Errorf("operation %s on %v was applied again (%v)", op.id, op.keys, o.Err)
		case op.values != nil && fmt.Sprint(results(o)) != fmt.Sprint(op.values):
			return "", fmt.Errorf("operation %s answers %v, the original %v", op.id, results(o), op.values)
		}
	}
	return outcome, nil
}
