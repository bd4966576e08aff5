package store

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/fbfkv/fbfkv/persistence/crashtest"
	"github.com/fbfkv/fbfkv/persistence/oplog"
)

// moveCrash is a move to a store and back, of which the power is cut.
type moveCrash struct {
	t     *testing.T
	clock *fakeClock
	peer  *Store // has the partition before, and after
	files *mover // of the peer's
	key   string // in the partition

	mu      sync.Mutex
	counted map[string]int64 // ids that were acknowledged, and their results
	stage   int              // what was acknowledged
	n       int64
}

// The stages of a move.
const (
	stageNone = iota
	stageAdopted
	stageHanded
	stageVacated
)

// openAt opens a store on a file system, which leads.
func (c *moveCrash) openAt(fs vfs.FS, dir string) (*Store, error) {
	l := new(proposals)
	l.decided.L = &l.mu
	s, err := Open(Options{
		Dir: dir, FS: fs, Partitions: 2, SnapshotInterval: -1, MinFreeDisk: -1, LogFileSize: 16 << 10,
		HotCounters: 128, Clock: c.clock.now, Seed: [16]byte{7},
		Replicated: func(local *oplog.Log) Log { l.Log = local; return l },
		Fatal:      func(err error) { panic(err) },
	})
	if err == nil {
		err = s.Lead()
	}
	return s, err
}

// count counts in the partition, under keys of rows, of an approximate table, and of a sketch.
func (c *moveCrash) count(s *Store, times int) error {
	for range times {
		c.mu.Lock()
		c.n++
		id := fmt.Sprint(c.n)
		c.mu.Unlock()
		op := cincr(s, c.keyOf(id), id, 3)
		if op.Err != nil {
			return op.Err
		}
		do(s, Op{Kind: CMSIncrBy, Key: []byte("{" + c.key + "}cms"), Keys: [][]byte{[]byte(id)},
			Deltas: []int64{1}})
		c.mu.Lock()
		c.counted[id] = op.Value
		c.mu.Unlock()
	}
	return nil
}

// keyOf is the key of an operation.
func (c *moveCrash) keyOf(id string) string {
	prefix := ""
	if len(id)%2 == 0 {
		prefix = "a:"
	}
	return prefix + "{" + c.key + "}" + id[len(id)-1:]
}

func newMoveCrash(t *testing.T) *moveCrash {
	c := &moveCrash{t: t, clock: newFakeClock(), counted: make(map[string]int64),
		files: newMover(t, vfs.NewMem())}
	var err error
	c.peer, err = c.openAt(c.files.fs, "data")
	must(t, err)
	c.key = keysIn(c.peer)[1]
	must(t, c.peer.CreateTable(TableOptions{Name: "a", Prefix: "a:", Mode: Approx, Window: time.Hour}))
	must(t, do(c.peer, Op{Kind: CMSInit, Key: []byte("{" + c.key + "}cms"),
		Object: &SketchOptions{Width: 5000, Depth: 2}}).Err)
	must(t, c.count(c.peer, 40))
	must(t, c.peer.Snapshot())
	must(t, c.count(c.peer, 20))
	return c
}

// reach notes a stage.
func (c *moveCrash) reach(stage int) {
	c.mu.Lock()
	c.stage = stage
	c.mu.Unlock()
}

// bring moves the partition to a store.
func (c *moveCrash) bring(s *Store, fs vfs.FS) error {
	out, err := c.peer.Export(1, "aside", s.LastOf(1), 1<<30)
	if err != nil {
		return err
	}
	defer out.Close()
	err = errors.Join(fs.MkdirAll("received", 0o755),
		copyBetween(c.files.fs, "aside/"+out.Name, fs, "received/"+out.Name))
	if err != nil {
		return err
	}
	in, err := s.Receive(1, "received/"+out.Name)
	if err != nil {
		return err
	}
	c.t.Helper()
	if err := c.count(c.peer, 5); err != nil && !errors.Is(err, ErrNotLeader) { // held by an earlier try
		return err
	}
	last, err := c.peer.HandOver(1, 7)
	if err != nil {
		return err
	}
	for {
		piece, _, err := out.Tail(in.Last(), 300)
		if err != nil {
			return err
		}
		if piece == nil {
			break
		}
		if err := in.Append(piece); err != nil {
			return err
		}
	}
	return adopt(s, 1, out.To, last)
}

// copyBetween copies a file between file systems.
func copyBetween(from vfs.FS, path string, to vfs.FS, as string) error {
	_, err := vfs.Clone(from, to, path, as)
	return err
}

// run is the life of the store whose power is cut.
func (c *moveCrash) run(s *Store, fs vfs.FS) error {
	if err := s.Vacate(1, 0); err != nil {
		return err
	}
	if err := s.CreateTable(TableOptions{Name: "a", Prefix: "a:", Mode: Approx,
		Window: time.Hour}); err != nil {
		return err
	}
	if err := errors.Join(s.Snapshot(), c.bring(s, fs)); err != nil {
		return err
	}
	c.reach(stageAdopted)
	for range 3 {
		if err := errors.Join(c.count(s, 20), s.Snapshot()); err != nil {
			return err
		}
	}
	out, err := s.Export(1, "back", c.peer.LastOf(1), 1<<30)
	if err != nil {
		return err
	}
	defer out.Close()
	if err := c.count(s, 5); err != nil {
		return err
	}
	if _, err := s.HandOver(1, 7); err != nil {
		return err
	}
	c.reach(stageHanded)
	if err := s.Snapshot(); err != nil { // whose state row says so
		return err
	}
	if err := s.Vacate(1, 7); err != nil {
		return err
	}
	c.reach(stageVacated)
	return s.Snapshot()
}

// judge opens what is left and holds it to what was acknowledged before.
func (c *moveCrash) judge(fs vfs.FS, counted map[string]int64, stage int) error {
	report, err := Check(CheckOptions{Dir: "data", FS: fs})
	if err != nil {
		return fmt.Errorf("check: %w", err)
	}
	if len(report.Problems) > 0 {
		return fmt.Errorf("check: %v", report.Problems)
	}
	s, err := c.openAt(fs, "data")
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer func() { s.CloseNow() }()
	if len(s.Tables()) == 1 { // it was not much that was done
		if err := s.CreateTable(TableOptions{Name: "a", Prefix: "a:", Mode: Approx,
			Window: time.Hour}); err != nil {
			return err
		}
	}
	if stage == stageVacated {
		if !s.Vacant(1) {
			return errors.New("it was vacated, and is back")
		}
		if op := cincr(s, c.keyOf("1"), "1", 3); !errors.Is(op.Err, ErrNotLeader) {
			return fmt.Errorf("it was vacated, and answers %d, %v", op.Value, op.Err)
		}
		return nil
	}
	number, _ := s.Handed(1)
	if stage == stageHanded && number != 7 && !s.Vacant(1) {
		return errors.New("it was handed over, and is served")
	}
	if stage == stageHanded && number == 0 {
		return nil // just vacated
	}
	if number > 0 {
		if err := s.Release(1, 7); err != nil {
			return err
		}
	}
	if adopted := s.partitions[1].adopted > 0 && !s.Vacant(1); !adopted {
		if stage == stageAdopted && !s.Vacant(1) {
			return errors.New("it was adopted, and is not here")
		}
		if stage == stageAdopted {
			return nil // just vacated
		}
		if !s.Vacant(1) {
			if err := s.Vacate(1, 0); err != nil {
				return err
			}
		}
		if err := c.bring(s, fs); err != nil {
			return fmt.Errorf("bring it again: %w", err)
		}
	}
	for id, want := range counted {
		exact := len(id)%2 == 1
		op := cincr(s, c.keyOf(id), id, 3)
		if op.Err != nil || op.Applied || exact && op.Value != want {
			return fmt.Errorf("id %s of %s answers %d, applied %v, %w; it was %d", id, c.keyOf(id), op.Value,
				op.Applied, op.Err, want)
		}
	}
	op := Op{Kind: CMSQuery, Key: []byte("{" + c.key + "}cms")}
	for id := range counted {
		op.Keys = append(op.Keys, []byte(id))
	}
	if op = do(s, op); op.Err != nil {
		return op.Err
	}
	for i, n := range op.Values {
		if n != 1 {
			return fmt.Errorf("the sketch counts %d of %s", n, op.Keys[i])
		}
	}
	return s.Close()
}

// TestMovePowerLoss cuts the power of a store at each of its file operations while it
// receives a partition, adopts it, counts in it, saves and vacates it. Acknowledged operations
// are there; before the adoption the move begins anew (G1, G2, G4).
func TestMovePowerLoss(t *testing.T) {
	total := 0
	try := func(at, percent int) {
		c := newMoveCrash(t)
		defer c.peer.CloseNow()
		mem := vfs.NewCrashableMem()
		var left *vfs.MemFS
		var counted map[string]int64
		var stage int
		operations := math.MinInt // until the store is open
		var mu sync.Mutex
		rng := rand.New(rand.NewPCG(uint64(at), uint64(percent)))
		fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(errorfs.Op) error {
			mu.Lock()
			defer mu.Unlock()
			if operations++; operations == at {
				c.mu.Lock()
				stage, counted = c.stage, maps.Clone(c.counted)
				c.mu.Unlock()
				left = crashtest.Left(mem, percent, rng)
			}
			return nil
		}))
		s, err := c.openAt(fs, "data")
		must(t, err)
		mu.Lock()
		operations = 0
		mu.Unlock()
		err = c.run(s, fs)
		s.CloseNow()
		must(t, err)
		mu.Lock()
		total = operations
		mu.Unlock()
		if left == nil {
			return
		}
		if err := c.judge(left, counted, stage); err != nil {
			t.Errorf("power lost at file operation %d of %d, %d%% of what was not fsynced is left, "+
				"stage %d: %v", at, total, percent, stage, err)
		}
	}
	try(0, 0)
	step, shift := max(1, 4*total / *crashPoints), rand.IntN(3)
	for at := 1 + shift; at < total && !t.Failed(); at += step {
		try(at, []int{0, 50, 100}[(at/step+shift)%3])
	}
	t.Logf("%d file operations", total)
}
