package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/fbf"
	"github.com/fbfkv/fbfkv/internal/raced"
)

// allDuplicates re-sends operations 0 to n-1 and fails if one is applied again.
func allDuplicates(t *testing.T, s *Store, when string, n int) {
	t.Helper()
	for i := range n {
		if op := cincr(s, "k"+strconv.Itoa(i%20), strconv.Itoa(i), 1); op.Applied || op.Err != nil {
			t.Fatalf("%s: operation %d was applied again (%v)", when, i, op.Err)
		}
	}
}

// TestDowntime stops the server for longer than the window, several times and
// in several ways: ids do not age meanwhile (G1).
func TestDowntime(t *testing.T) {
	for _, mode := range []Mode{Exact, Approx} {
		fs, clock := vfs.NewMem(), newFakeClock()
		with := func(o *Options) { o.FS, o.Clock = fs, clock.now }
		s := testStore(t, with)
		must(t, s.AlterTable(DefaultTable, TableChange{Mode: &mode, Window: ptr(10 * time.Second)}))
		for i := range 200 {
			wantOp(t, cincr(s, "k"+strconv.Itoa(i%20), strconv.Itoa(i), 1), int64(i/20+1), true)
		}
		for n := range 6 {
			// A reboot: the wall clock goes on, or steps; the monotonic one begins anew.
			clock.mu.Lock()
			clock.wall += []int64{0, 60_000, -7_200_000, 30 * 86_400_000, 7_200_000, 11_000}[n]
			clock.mono = int64(n) * 12345
			clock.mu.Unlock()
			if n%2 == 0 {
				must(t, s.Close())
			} else {
				must(t, s.CloseNow())
			}
			s = testStore(t, with)
			clock.advance(1500 * time.Millisecond)
			for _, p := range s.partitions {
				s.refreshDue(p)
			}
			allDuplicates(t, s, fmt.Sprintf("%v, after stop %d", mode, n), 200)
		}
	}
}

// TestPausesDoNotAge pauses the process for longer than the window, again and again:
// the retries that waited meanwhile are recognised (G1). While it runs, ids age
// although nobody asks.
func TestPausesDoNotAge(t *testing.T) {
	for _, mode := range []Mode{Exact, Approx} {
		clock := newFakeClock()
		s := testStore(t, func(o *Options) { o.Clock = withoutPauses(clock.now) })
		must(t, s.AlterTable(DefaultTable,
			TableChange{Mode: &mode, Window: ptr(4 * time.Second), Skew: ptr(time.Duration(0))}))
		for i, pause := range []time.Duration{6 * time.Second, time.Hour, 366 * 24 * time.Hour} {
			wantOp(t, cincr(s, "k", strconv.Itoa(i), 1), int64(i+1), true)
			for range 2 {
				clock.advance(pause)
				for _, p := range s.partitions {
					s.refreshDue(p)
				}
				wantOp(t, cincr(s, "k", strconv.Itoa(i), 1), int64(i+1), false)
			}
		}
		for range 24 {
			clock.advance(time.Second)
			for _, p := range s.partitions {
				s.refreshDue(p)
			}
		}
		wantOp(t, cincr(s, "k", "0", 1), 4, true)
	}
}

// keyIn returns a key of a partition.
func keyIn(s *Store, p *partition, prefix string) string {
	for i := 0; ; i++ {
		if key := prefix + strconv.Itoa(i); s.partitions[Slot([]byte(key))>>s.shift] == p {
			return key
		}
	}
}

// TestPartitionsAgeAlone lets one partition's logged time be an hour ahead of the other's:
// neither a restart nor a change of the tables nor a pause ages the ids of either, and both
// forget in their own time (G1).
func TestPartitionsAgeAlone(t *testing.T) {
	for _, mode := range []Mode{Exact, Approx} {
		fs, clock := vfs.NewMem(), newFakeClock()
		with := func(o *Options) { o.FS, o.Clock, o.Partitions = fs, withoutPauses(clock.now), 2 }
		s := testStore(t, with)
		must(t, s.AlterTable(DefaultTable,
			TableChange{Mode: &mode, Window: ptr(10 * time.Second), Skew: ptr(time.Duration(0))}))
		ahead := s.partitions[1]
		ahead.mu.Lock()
		ahead.ahead += time.Hour.Milliseconds()
		ahead.mu.Unlock()
		keys := [2]string{keyIn(s, s.partitions[0], "k"), keyIn(s, ahead, "k")}
		both := func(when, id string, applied bool) {
			t.Helper()
			for i, key := range keys {
				if op := cincr(s, key, id, 1); op.Err != nil || op.Applied != applied {
					t.Errorf("%v, %s: operation %s in partition %d is applied: %v (%v), want %v", mode, when,
						id, i, op.Applied, op.Err, applied)
				}
			}
		}
		pass := func(seconds int) { // one look at a time
			for range seconds {
				clock.advance(time.Second)
				for _, p := range s.partitions {
					s.refreshDue(p)
				}
				s.pruneTables()
			}
		}
		both("before", "1", true)
		pass(2)
		must(t, s.CloseNow())
		s = testStore(t, with)
		if d := s.partitions[1].at.logged - s.partitions[0].at.logged; d < time.Hour.Milliseconds() {
			t.Fatalf("the partitions' logged times differ by %d ms after recovery", d)
		}
		pass(1)
		both("after a restart", "1", false)
		must(t, s.CreateTable(TableOptions{Name: "t", Prefix: "k", Mode: mode, Window: 10 * time.Second,
			Skew: time.Millisecond}))
		both("after CREATE", "1", false)
		both("after CREATE", "2", true)
		must(t, s.DropTable("t"))
		pass(1)
		clock.advance(time.Hour)
		pass(4)
		both("after DROP and a pause", "1", false)
		both("after DROP and a pause", "2", false)
		pass(24)
		both("long after", "1", true)
		both("long after", "2", true)
		pass(150)
		for _, p := range s.partitions {
			if n, links := len(p.catalog.Tables), len(p.catalog.Tables[0].Links); n != 1 || links != 0 {
				t.Errorf("partition %d has not pruned its tables: %d tables, %d links", p.id, n, links)
			}
		}
		must(t, s.CloseNow())
	}
}

// TestIdleStoreLooks: a store without operations looks at its clock often enough not
// to take idleness for a pause, also while its cycle and its saver do nothing.
func TestIdleStoreLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFakeClock()
		var looked atomic.Int64 // when, ns
		s := testStore(t, func(o *Options) {
			o.Clock = func() (int64, int64) {
				looked.Store(time.Now().UnixNano())
				return fake.now()
			}
		})
		s.freeze(errors.New("neither looks any more"))
		for range 50 {
			time.Sleep(fbf.LookPeriod)
			if ago := time.Duration(time.Now().UnixNano() - looked.Load()); ago > fbf.LookPeriod {
				t.Fatalf("nobody has looked at the clock for %v", ago)
			}
		}
	})
}

// TestShortestAndLongestWindow: the promise holds up to its end.
func TestShortestAndLongestWindow(t *testing.T) {
	for _, window := range []time.Duration{MinWindow, 30 * 24 * time.Hour} {
		for _, mode := range []Mode{Exact, Approx} {
			t.Run(fmt.Sprint(window, mode), func(t *testing.T) {
				fs, clock := vfs.NewMem(), newFakeClock()
				with := func(o *Options) { o.FS, o.Clock = fs, clock.now }
				s := testStore(t, with)
				must(t, s.AlterTable(DefaultTable,
					TableChange{Mode: &mode, Window: &window, Skew: ptr(time.Duration(0))}))
				for i := range 200 {
					cincr(s, "k"+strconv.Itoa(i%20), strconv.Itoa(i), 1)
				}
				for n := range 20 {
					clock.advance(window / 20)
					cincr(s, "other", strconv.Itoa(n), 1)
					for _, p := range s.partitions {
						s.refreshDue(p)
					}
					if n%7 == 3 {
						must(t, s.Snapshot())
						s.CloseNow()
						s = testStore(t, with)
					}
					if n == 18 {
						allDuplicates(t, s, "close to its end", 200)
					}
				}
				clock.advance(2 * window)
				for _, p := range s.partitions {
					s.refreshDue(p)
				}
				if op := cincr(s, "k0", "0", 1); !op.Applied {
					t.Fatalf("remembered for more than two windows: %+v", op)
				}
			})
		}
	}
}

// TestAlterUnderLoad changes WINDOW, ERROR and MODE, there and back, while
// clients apply and repeat operations: none is applied twice, also after a
// restart (G1).
func TestAlterUnderLoad(t *testing.T) {
	const window = 20 * time.Second
	fs, clock := vfs.NewMem(), newFakeClock()
	with := func(o *Options) { o.FS, o.Clock = fs, clock.now }
	s := testStore(t, with)
	must(t, s.AlterTable(DefaultTable, TableChange{Window: ptr(window), Error: ptr(1e-10)}))
	sent := make([][]string, 4)
	for n := range 28 {
		var clients, begun sync.WaitGroup
		begun.Add(len(sent))
		for c := range sent {
			clients.Go(func() {
				ready := sync.OnceFunc(begun.Done)
				defer ready()
				rnd := rand.New(rand.NewPCG(uint64(c), uint64(n)))
				for i := range 1000 / raced.Slowdown {
					if i == 20 {
						ready()
					}
					id := fmt.Sprint(c, "-", n, "-", i)
					switch op := cincr(s, "k"+strconv.Itoa(c), id, 1); {
					case errors.Is(op.Err, ErrOutOfMemory):
						continue // the filters of so many ALTERs have yet to drain
					case !op.Applied || op.Err != nil:
						t.Errorf("new operation %s: %+v", id, op)
						return
					}
					sent[c] = append(sent[c], id)
					id = sent[c][rnd.IntN(len(sent[c]))]
					if op := cincr(s, "k"+strconv.Itoa(c), id, 1); op.Applied || op.Err != nil {
						t.Errorf("%s was applied again (%v)", id, op.Err)
						return
					}
				}
			})
		}
		begun.Wait()
		ch := TableChange{}
		switch n % 4 {
		case 0:
			ch.Mode = ptr(Mode(n / 4 % 2))
		case 1:
			ch.Window = ptr([]time.Duration{time.Second, window, time.Hour}[n/4%3])
		case 2:
			ch.Error = ptr([]float64{1e-9, 1e-10, 1e-11}[n/4%3])
		case 3:
			must(t, s.flushRecords(s.partitions[n%len(s.partitions)], false))
			must(t, s.checkpoint(s.partitions[n%len(s.partitions)], false))
		}
		must(t, s.AlterTable(DefaultTable, ch))
		// Windows down to one second promise no more than that to what is
		// applied under them; all other ids live for at least twenty.
		clock.advance(900 * time.Millisecond / 28)
		clients.Wait()
	}
	for range 2 {
		for c, ids := range sent {
			if len(ids) < 100 {
				t.Fatalf("only %d operations were applied", len(ids))
			}
			for _, id := range ids {
				if op := cincr(s, "k"+strconv.Itoa(c), id, 1); op.Applied || op.Err != nil {
					t.Fatalf("%s was applied again (%v)", id, op.Err)
				}
			}
		}
		s.CloseNow()
		s = testStore(t, with)
	}
}

// TestShorterWindowKeepsRuns: what was applied under a longer window is kept for
// that long on disk, too (G1).
func TestShorterWindowKeepsRuns(t *testing.T) {
	clock := newFakeClock()
	s := testStore(t, func(o *Options) { o.Clock = clock.now })
	for i := range 300 {
		cincr(s, "k"+strconv.Itoa(i%20), strconv.Itoa(i), 1)
	}
	must(t, s.Snapshot())
	must(t, s.AlterTable(DefaultTable, TableChange{Window: ptr(time.Second), Skew: ptr(time.Duration(0))}))
	for range 11 {
		clock.advance(10 * time.Second)
		cincr(s, "other", strconv.Itoa(int(clock.mono)), 1)
		must(t, s.Snapshot())
		allDuplicates(t, s, "within the old window", 300)
	}
}

// TestDirectoryStopsGrowing applies the same load again and again. Expired records and
// counters leave the disk, so that the directory is not much larger after many rounds than
// after two.
func TestDirectoryStopsGrowing(t *testing.T) {
	const rounds, ops, keys = 12, 5000, 1000
	fs, clock := vfs.NewMem(), newFakeClock()
	with := func(o *Options) { o.FS, o.Clock, o.LogFileSize = fs, clock.now, 256<<10 }
	s := testStore(t, with)
	must(t, s.CreateTable(TableOptions{Name: "short", Prefix: "counter-", Window: time.Second,
		Skew: time.Millisecond}))
	var sizes []int64
	for round := range rounds {
		var b Batch
		for i := range ops {
			o := b.Add(CIncrBy)
			o.Key, o.ID, o.Delta = fmt.Appendf(nil, "counter-%d", i%keys),
				fmt.Appendf(nil, "some-longer-operation-id-%d-%d", round, i), 1
			if i%100 == 99 {
				s.Execute(&b)
				b.Reset()
			}
		}
		must(t, s.Snapshot())
		clock.advance(3 * time.Second)
		must(t, s.Snapshot())
		must(t, s.Close())
		s = testStore(t, with)
		list, err := files(fs, "data")
		must(t, err)
		size := int64(0)
		for _, name := range list {
			info, err := fs.Stat(name)
			must(t, err)
			size += info.Size()
		}
		sizes = append(sizes, size)
	}
	t.Logf("the directory's size, round by round: %d", sizes)
	if first, last := sizes[1], sizes[rounds-1]; last > 2*first {
		t.Errorf("the directory goes on growing: %d bytes after two rounds, %d after %d", first, last, rounds)
	}
	for i := range keys {
		if v, _ := get(s, fmt.Sprint("counter-", i)); v != rounds*ops/keys {
			t.Errorf("counter-%d is %d", i, v)
		}
	}
}

// uuidv7, ulid and msID make opids of a time.
func uuidv7(ms int64, n int) string {
	h := fmt.Sprintf("%012x", ms)
	return fmt.Sprintf("%s-%s-7%03x-8000-%012x", h[:8], h[8:], n&0xfff, n)
}

func ulid(ms int64, n int) string {
	const digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	b := make([]byte, 26)
	for i := 9; i >= 0; i-- {
		b[i] = digits[ms&31]
		ms >>= 5
	}
	for i := 25; i > 9; i-- {
		b[i] = digits[n&31]
		n >>= 5
	}
	return string(b)
}

func msID(ms int64, n int) string { return fmt.Sprint(ms, "-", n) }

// TestTimeBearingIDs: with the time in the opid, what is older than the window
// is refused, what is remembered is a duplicate, clocks may differ by SKEW, the
// future is refused, and what FLUSHALL, a longer WINDOW or a restart made
// forgotten is not let in again (G7).
func TestTimeBearingIDs(t *testing.T) {
	const window, skew = 60 * time.Second, 3 * time.Second
	for name, f := range map[string]struct {
		format IDTime
		id     func(ms int64, n int) string
	}{
		"uuidv7": {IDTimeUUIDv7, uuidv7}, "ulid": {IDTimeULID, ulid}, "ms": {IDTimeMS, msID},
		"auto uuidv7": {IDTimeAuto, uuidv7}, "auto ulid": {IDTimeAuto, ulid},
	} {
		for _, mode := range []Mode{Exact, Approx} {
			t.Run(fmt.Sprint(name, mode), func(t *testing.T) {
				fs, clock := vfs.NewMem(), newFakeClock()
				with := func(o *Options) { o.FS, o.Clock = fs, clock.now }
				s := testStore(t, with)
				must(t, s.AlterTable(DefaultTable,
					TableChange{Mode: &mode, IDTime: &f.format, Window: ptr(window), Skew: ptr(skew)}))
				n := 0
				at := func(d time.Duration) (id string) {
					n++
					wall, _ := clock.now()
					return f.id(wall+d.Milliseconds(), n)
				}
				check := func(what, id string, applied bool, want error) {
					t.Helper()
					if op := cincr(s, "k", id, 1); !errors.Is(op.Err, want) || op.Applied != applied {
						t.Fatalf("%s: applied %v, %v", what, op.Applied, op.Err)
					}
				}
				now, ahead, behind := at(0), at(2900*time.Millisecond), at(-59*time.Second)
				check("now", now, true, nil)
				check("client ahead", ahead, true, nil)
				check("client behind", behind, true, nil)
				check("too old", at(-61*time.Second), false, ErrStale)
				if f.format == IDTimeAuto { // an opid without a time is as good as any
					early := at(63 * time.Second)
					check("too far ahead", early, true, nil)
					check("retry, too far ahead", early, false, nil)
					check("no time", "not-an-id", true, nil)
				} else {
					check("too far ahead", at(3100*time.Millisecond), false, ErrFuture)
					check("no time", "not-an-id", false, ErrNoIDTime)
				}
				clock.advance(55 * time.Second)
				check("retry within the window", now, false, nil)
				check("retry, client ahead", ahead, false, nil)
				must(t, s.Snapshot())
				s.CloseNow()
				s = testStore(t, with)
				check("retry after a restart", now, false, nil)
				clock.advance(10 * time.Second)
				check("retry after the window", now, false, ErrStale)
				must(t, s.AlterTable(DefaultTable, TableChange{Window: ptr(time.Hour)}))
				check("retry after a longer window", now, false, ErrStale)
				check("older than the change", at(-61*time.Second), false, ErrStale)
				check("younger than the change", at(-10*time.Second), true, nil)
				last := at(2 * time.Second)
				check("before FLUSHALL", last, true, nil)
				if op := do(s, Op{Kind: FlushAll}); op.Err != nil {
					t.Fatal(op.Err)
				}
				check("retry after FLUSHALL", last, false, ErrStale)
				s.CloseNow()
				s = testStore(t, with)
				check("retry after FLUSHALL and a restart", last, false, ErrStale)
				clock.advance(10 * time.Second)
				check("new after FLUSHALL", at(0), true, nil)
			})
		}
	}
}

// TestForgottenWindow: after --accept-forgotten-window operations whose ids may
// be lost are refused as stale, not applied again (G7).
func TestForgottenWindow(t *testing.T) {
	fs, clock := vfs.NewMem(), newFakeClock()
	s := testStore(t, func(o *Options) { o.FS, o.Clock = fs, clock.now })
	must(t, s.AlterTable(DefaultTable, TableChange{Mode: ptr(Approx), IDTime: ptr(IDTimeMS)}))
	t0, _ := clock.now()
	for i := range 300 {
		if op := cincr(s, "k"+strconv.Itoa(i%20), msID(t0, i), 1); !op.Applied {
			t.Fatal(op.Err)
		}
		if i == 100 || i == 200 {
			must(t, s.Snapshot())
		}
	}
	must(t, s.Snapshot())
	clock.advance(5 * time.Second)
	damage := func() {
		s.CloseNow()
		damageSnapshots(t, s, fs, 2)
	}
	damage()
	o := Options{Dir: "data", FS: fs, SnapshotInterval: -1, MinFreeDisk: -1, Clock: clock.now,
		LogFileSize: 4 << 10}
	if _, err := Open(o); !errors.Is(err, ErrForgotten) {
		t.Fatal(err)
	}
	o.AcceptForgottenWindow = true
	for range 2 {
		var err error
		if s, err = Open(o); err != nil {
			t.Fatal(err)
		}
		for i := range 300 {
			if op := cincr(s, "k"+strconv.Itoa(i%20), msID(t0, i), 1); op.Applied ||
				!errors.Is(op.Err, ErrStale) {
				t.Fatalf("operation %d after the window was forgotten: %+v", i, op)
			}
		}
		must(t, s.CloseNow())
		o.AcceptForgottenWindow = false
	}
}

// TestRefreshIsLogged: after a crash filters are exactly where they were (G4).
func TestRefreshIsLogged(t *testing.T) {
	fs, clock := vfs.NewMem(), newFakeClock()
	with := func(o *Options) { o.FS, o.Clock = fs, clock.now }
	s := testStore(t, with)
	must(t, s.AlterTable(DefaultTable, TableChange{Window: ptr(10 * time.Second), Mode: ptr(Approx)}))
	for i := range 4000 {
		cincr(s, "k"+strconv.Itoa(i%20), strconv.Itoa(i), 1)
		clock.advance(20 * time.Millisecond)
	}
	before, err := s.TableInfo(DefaultTable)
	must(t, err)
	s.CloseNow()
	s = testStore(t, with)
	after, err := s.TableInfo(DefaultTable)
	must(t, err)
	if a, b := before.Filter, after.Filter; a.Refreshes == 0 || a.Refreshes != b.Refreshes ||
		a.Items != b.Items || a.Bytes != b.Bytes || a.Segments != b.Segments ||
		a.Opened == 0 || a.Opened != b.Opened {
		t.Errorf("before the crash %+v, after it %+v", a, b)
	}
}
