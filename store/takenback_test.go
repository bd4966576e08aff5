package store

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestWatchTakenBack: WATCH does not answer with a sequence that may be taken back, for a
// later change of the key may get a lower one.
func TestWatchTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := proposingStore(t, vfs.NewMem(), func(o *Options) { o.Partitions = 1 })
		must(t, do(s, Op{Kind: Set, Key: []byte("k"), Delta: 1}).Err)
		p := s.partitions[0]
		from := cut{p, p.seq}
		l.holdBack()
		var waiting sync.WaitGroup
		for range 3 {
			waiting.Go(func() { do(s, Op{Kind: IncrBy, Key: []byte("other"), Delta: 1}) })
		}
		synctest.Wait()
		var watch Op
		waiting.Go(func() { watch = do(s, Op{Kind: Watch, Keys: keysOf("k")}) })
		synctest.Wait()
		l.cut()
		must(t, s.rebuild(from))
		waiting.Wait()
		must(t, do(s, Op{Kind: IncrBy, Key: []byte("k"), Delta: 1}).Err)
		if watch.Err != nil {
			return
		}
		if same, _ := ifUnchanged(s, []string{"k"}, watch.Values); same {
			t.Error("a change of a watched key is missed")
		}
	})
}

// TestTableTakenBack: nobody is told of a table whose creation is not committed.
func TestTableTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := proposingStore(t, vfs.NewMem(), func(*Options) {})
		var cuts []cut
		for _, p := range s.partitions {
			cuts = append(cuts, cut{p, p.seq})
		}
		l.holdBack()
		var waiting sync.WaitGroup
		waiting.Go(func() {
			if err := s.CreateTable(TableOptions{Name: "new", Prefix: "new:"}); !errors.Is(err,
				ErrNotLeader) {
				t.Errorf("CREATE answers %v", err)
			}
		})
		synctest.Wait()
		waiting.Go(func() {
			if _, err := s.TableInfo("new"); !errors.Is(err, ErrNoTable) {
				t.Errorf("INFO answers %v", err)
			}
		})
		waiting.Go(func() {
			if n := len(s.Tables()); n != 1 {
				t.Errorf("LIST shows %d tables", n)
			}
		})
		synctest.Wait()
		l.cut()
		must(t, s.rebuild(cuts...))
		waiting.Wait()
	})
}

// TestBackupOverRebuild: a backup does not count on commits of a partition that was made
// anew meanwhile, or is being: the copy of the log may have what was taken back.
func TestBackupOverRebuild(t *testing.T) {
	s := testStore(t, nil)
	p := s.partitions[1]
	lives := s.lives()
	must(t, s.awaitCommits(lives))
	p.mu.Lock()
	p.rebuilding = true
	p.mu.Unlock()
	if err := s.awaitCommits(lives); err == nil {
		t.Error("it counts on a partition that is away")
	}
	must(t, s.rebuild(all(p)...))
	if err := s.awaitCommits(lives); err == nil {
		t.Error("it counts on a partition that was made anew")
	}
	must(t, s.Backup("backup"))
}

// TestJumpIsNoChange: a jump that is redone for the sake of an older snapshot, though the
// rows contain it, does not count as changes that are saved.
func TestJumpIsNoChange(t *testing.T) {
	root := t.TempDir()
	open := func(name string) *Store {
		return testStore(t, func(o *Options) {
			o.Dir, o.FS, o.Partitions = filepath.Join(root, name), nil, 1
		})
	}
	s := open("data")
	must(t, s.Backup(filepath.Join(root, "copy")))
	must(t, s.Close())
	s = open("copy")
	cincr(s, "k", "a", 1)
	must(t, s.Close())
	s = open("copy")
	list, err := s.db.Snapshots(0)
	must(t, err)
	must(t, s.CloseNow())
	must(t, os.Remove(list[0].Path))
	s = open("copy")
	if s.Stats().Recovery.Entries == 0 {
		t.Fatal("nothing was redone")
	}
	if n := s.Stats().Changes; n < 0 || n > 10 {
		t.Errorf("%d changes", n)
	}
}

// TestClockAYearAhead: a clock that was a year ahead for a moment leaves a year in which
// operations with the right time are STALE, also after a restart. The operator is told, and
// can let ids alone tell retries (IDTIME NONE); those are remembered as ever.
func TestClockAYearAhead(t *testing.T) {
	var out bytes.Buffer
	fs, clock := vfs.NewMem(), newFakeClock()
	open := func() *Store {
		return testStore(t, func(o *Options) {
			o.FS, o.Clock, o.Logger = fs, clock.now, slog.New(slog.NewTextHandler(&out, nil))
		})
	}
	s := open()
	const year = 365 * 24 * time.Hour
	must(t, s.CreateTable(TableOptions{Name: "timed", Prefix: "t:", IDTime: IDTimeAuto, Skew: DefaultSkew}))
	clock.step(year)
	wantOp(t, cincr(s, "t:k", "ahead", 1), 1, true)
	clock.step(-year)
	must(t, s.CloseNow())
	s = open()
	now, _ := clock.now()
	id := uuidv7(now, 1)
	if op := cincr(s, "t:k", id, 1); !errors.Is(op.Err, ErrStale) {
		t.Fatal(op)
	}
	none := IDTimeNone
	must(t, s.AlterTable("timed", TableChange{IDTime: &none}))
	for i := range 2 {
		wantOp(t, cincr(s, "t:k", id, 1), 2, i == 0)
	}
	wantOp(t, cincr(s, "t:k", "ahead", 1), 1, false)
	must(t, s.CloseNow()) // and with it whoever else writes to out
	out.Reset()
	var told bool
	for _, step := range []time.Duration{0, 0, year, 0} {
		clock.step(step)
		s.checkClock(&told)
	}
	if n := strings.Count(out.String(), "the clock"); n != 2 || told {
		t.Errorf("the operator is told %d times:\n%s", n, out.String())
	}
}
