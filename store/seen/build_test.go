package seen

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence"
)

// owner is what a partition is to its records: a lock, a directory, and tables that keep
// records for some time.
type owner struct {
	mu   sync.Mutex
	db   *persistence.DB
	rs   Records
	keep map[uint32]int64
	seq  uint64
}

func newOwner(t testing.TB, fs vfs.FS, dir string) *owner {
	t.Helper()
	db, err := persistence.Open(persistence.Options{FS: fs, Dir: dir})
	must(t, err)
	o := &owner{db: db, keep: map[uint32]int64{1: 1000, 2: 1000}}
	o.rs = New(0, &o.mu, db)
	t.Cleanup(func() { db.Close() })
	return o
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// add remembers an operation whose hash is its sequence.
func (o *owner) add(table uint32, logged int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seq++
	o.rs.Add(&Record{Table: table, Hash: o.seq, Seq: o.seq, Logged: logged, Key: []byte("k"),
		ID: fmt.Append(nil, o.seq), Original: Original{Result: int64(o.seq)}})
}

func (o *owner) begin(goal Goal, now int64) *Build {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.rs.Begin(Options{Goal: goal, Now: now, Scratch: new(Scratch),
		Keep: func(table uint32) (int64, bool) {
			ms, ok := o.keep[table]
			return ms, ok
		}})
}

// save does all of a Build.
func (o *owner) save(t *testing.T, goal Goal, now int64) {
	t.Helper()
	b := o.begin(goal, now)
	must(t, b.Run())
	o.publish(t, b)
}

// publish does of a Build what follows Run.
func (o *owner) publish(t *testing.T, b *Build) {
	t.Helper()
	changes := o.db.NewChanges()
	must(t, b.Publish(changes))
	must(t, changes.Commit())
	b.Committed()
	must(t, o.db.Flush())
	b.Remove()
}

// find looks for an operation, in memory and then in runs of its table.
func (o *owner) find(t *testing.T, table uint32, seq uint64) (inMemory, inRun bool) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	id := fmt.Append(nil, seq)
	_, _, _, inMemory = o.rs.Find(math.MinInt64, math.MaxInt64, seq, []byte("k"), id)
	var s Search
	s.Begin(&o.rs)
	s.Within(table, math.MinInt64, math.MaxInt64)
	must(t, s.Run(seq, []byte("k"), id, new(persistence.Entries)))
	r, inRun := s.Found()
	if inRun && r.Result != int64(seq) {
		t.Errorf("operation %d came to %d", seq, r.Result)
	}
	return inMemory, inRun
}

// files are the runs of the data directory.
func (o *owner) files(t *testing.T) []persistence.Run {
	t.Helper()
	runs, err := o.db.Runs(0)
	must(t, err)
	return runs
}

// TestBuild brings records of two tables to disk: they are found in memory, then in runs,
// never in neither; what is expired goes; another process finds what was published.
func TestBuild(t *testing.T) {
	fs := vfs.NewMem()
	o := newOwner(t, fs, "data")
	o.add(1, 10)
	o.add(2, 20)
	o.save(t, Flush, 20)
	o.add(1, 30)
	b := o.begin(Flush, 30)
	o.add(1, 40) // after it began
	for seq, table := range []uint32{1: 1, 2: 2, 3: 1, 4: 1} {
		if inMemory, inRun := o.find(t, table, uint64(seq)); seq > 0 &&
			(inMemory != (seq >= 3) || inRun != (seq < 3)) {
			t.Errorf("before: operation %d in memory %v, in a run %v", seq, inMemory, inRun)
		}
	}
	must(t, b.Run())
	for seq, table := range []uint32{1: 1, 2: 2, 3: 1, 4: 1} {
		if inMemory, inRun := o.find(t, table, uint64(seq)); seq > 0 &&
			(inMemory != (seq == 4) || inRun != (seq < 4)) {
			t.Errorf("after: operation %d in memory %v, in a run %v", seq, inMemory, inRun)
		}
	}
	if n := len(o.files(t)); n != 2 {
		t.Errorf("%d runs before the commit", n)
	}
	o.publish(t, b)
	if got, want := o.rs.TableFigures(1),
		(Figures{Recent: 1, Runs: 2, RunRecords: 2, RunBytes: o.rs.RunBytes(1)}); got != want ||
		got.RunBytes == 0 {
		t.Errorf("%+v instead of %+v", got, want)
	}
	o.save(t, Tidy, 40)
	if f := o.rs.Figures(); f.Runs != 2 || f.RunRecords != 4 || f.Recent != 0 {
		t.Errorf("tidy: %+v", f)
	}
	must(t, o.db.Close())

	o = newOwner(t, fs, "data")
	must(t, o.rs.Load())
	n := 0
	must(t, o.rs.Scan(func(table uint32) bool { return table == 1 },
		func(table uint32, hash uint64, last int64) error {
			n++
			if table != 1 || last != 40 {
				t.Errorf("operation %d of table %d, at %d", hash, table, last)
			}
			return nil
		}))
	o.rs.Assign(2, func(uint32) bool { return true }) // FLUSHALL was the second
	if f := o.rs.Figures(); n != 3 || f.Runs != 1 || f.RunRecords != 3 || !o.rs.Obsolete() {
		t.Errorf("%d were scanned; %+v", n, f)
	}
	o.save(t, Flush, 40+1000)
	if f := o.rs.Figures(); f.Runs != 1 || len(o.files(t)) != 1 {
		t.Errorf("at the end of its time: %+v, %v", f, o.files(t))
	}
	o.save(t, Flush, 41+1000)
	if f := o.rs.Figures(); f.Runs != 0 || len(o.files(t)) != 0 {
		t.Errorf("after its time: %+v, %v", f, o.files(t))
	}
}

// TestDropDuringBuild drops a table while its runs are merged: nothing of it is left,
// and nothing is kept in mind of it.
func TestDropDuringBuild(t *testing.T) {
	o := newOwner(t, vfs.NewMem(), "data")
	for logged := range int64(3) {
		o.add(1, logged)
		o.save(t, Flush, logged)
	}
	o.add(1, 3)
	must(t, o.begin(Flush, 3).Run()) // not published
	o.add(1, 4)
	b := o.begin(Tidy, 4)
	keep := b.Keep
	b.Keep = func(table uint32) (int64, bool) {
		ms, ok := keep(table)
		if ok { // the next time it is gone
			delete(o.keep, table)
			defer o.rs.Drop(table)
		}
		return ms, ok
	}
	must(t, b.Run())
	o.publish(t, b)
	o.save(t, Flush, 4)
	if f := o.rs.Figures(); f != (Figures{}) || len(o.files(t)) != 0 || len(o.rs.unpublished) != 0 ||
		o.rs.Obsolete() {
		t.Errorf("%+v, files %v, unpublished %v", f, o.files(t), o.rs.unpublished)
	}
}

// TestForgetUnpublished: nothing is kept of runs that FLUSHALL drops before they are
// published.
func TestForgetUnpublished(t *testing.T) {
	o := newOwner(t, vfs.NewMem(), "data")
	o.add(1, 1)
	b := o.begin(Flush, 1)
	must(t, b.Run())
	b.GiveBack()
	o.rs.Forget()
	if n := len(o.rs.unpublished); n != 1 {
		t.Fatalf("%d unpublished runs before the commit", n)
	}
	o.save(t, Tidy, 1)
	if n := len(o.rs.unpublished); n != 0 || len(o.files(t)) != 0 {
		t.Errorf("%d unpublished runs are kept, files %v", n, o.files(t))
	}
}

// TestGiveBack: what a Build has not dropped, the next one does.
func TestGiveBack(t *testing.T) {
	o := newOwner(t, vfs.NewMem(), "data")
	o.add(1, 1)
	o.save(t, Flush, 1)
	b := o.begin(Flush, 2000)
	must(t, b.Run())
	b.GiveBack()
	if !o.rs.Obsolete() || len(o.files(t)) != 1 {
		t.Fatalf("obsolete %v, files %v", o.rs.Obsolete(), o.files(t))
	}
	o.save(t, Merge, 2000)
	if o.rs.Obsolete() || len(o.files(t)) != 0 {
		t.Errorf("obsolete %v, files %v", o.rs.Obsolete(), o.files(t))
	}
}

// TestMergeKeepsRunsFew builds runs for long, of records that come at several
// rates, and merges them at once, or only now and then, as busy stores do: their
// number stays small, none spans more than an eighth of the remembering time, and a
// record is rewritten only once at the usual rates.
func TestMergeKeepsRunsFew(t *testing.T) {
	const keep, size = 125_000, 1000
	for _, tc := range []struct {
		every int64 // ms between two runs
		late  int   // runs that are built between two merges
		runs  int   // at most
		write float64
	}{
		{50, 1, 70, 3.1},
		{100, 1, 60, 3.1},
		{100, 8, 70, 3.1},
		{400, 1, 40, 3.1},
		{400, 12, 50, 2.6},
		{800, 1, 30, 2.1},
		{800, 5, 35, 2.1},
		{800, 12, 40, 2.1},
		{1600, 1, 30, 2.1},
		{1600, 7, 35, 2.1},
		{3000, 1, 30, 2.1},
		{8000, 1, 30, 1},
	} {
		var runs []persistence.Run
		var written, records uint64
		most := 0
		for n := range int(40 * keep / tc.every) {
			now := int64(n) * tc.every
			for len(runs) > 0 && runs[0].LastTime+keep < now {
				runs = runs[1:]
			}
			runs = append(runs, persistence.Run{Count: size, FirstTime: now, LastTime: now + tc.every - 1})
			records, written = records+size, written+size
			if from, to := mergeRange(runs, keep); from < to && n%tc.late == 0 {
				run := runs[from]
				for _, m := range runs[from+1 : to] {
					run.Count += m.Count
					run.LastTime = m.LastTime
				}
				written += run.Count
				if span := run.LastTime - run.FirstTime; span > keep/8 {
					t.Fatalf("a run spans %d ms", span)
				}
				runs = slices.Replace(runs, from, to, run)
			}
			most = max(most, len(runs))
		}
		f := float64(written) / float64(records)
		t.Logf("every %d ms, merged every %d: each record is written %.2f times, %d runs at most", tc.every,
			tc.late, f, most)
		if f > tc.write || most > tc.runs {
			t.Errorf("every %d ms, merged every %d: each record is written %.2f times, %d runs at most",
				tc.every, tc.late, f, most)
		}
	}
}

// TestSearchOverReset: what a search has found, or not found, before a table is dropped, or
// before FLUSHALL or a rebuild, does not count behind it, whether there were runs or not (G1).
func TestSearchOverReset(t *testing.T) {
	for what, forget := range map[string]func(*Records){
		"Forget": (*Records).Forget, "Reset": (*Records).Reset, "Drop": func(rs *Records) { rs.Drop(1) },
	} {
		for _, runs := range []bool{false, true} {
			o := newOwner(t, vfs.NewMem(), "data")
			o.add(1, 1)
			if runs {
				o.save(t, Flush, 1)
			}
			o.mu.Lock()
			var s Search
			s.Begin(&o.rs)
			s.Within(1, math.MinInt64, math.MaxInt64)
			must(t, s.Run(1, []byte("k"), []byte("1"), new(persistence.Entries)))
			_, found := s.Found()
			before := s.Holds()
			if forget(&o.rs); !before || found != runs || s.Holds() {
				t.Errorf("%s, with runs: %v: the search holds: %v, and behind it: %v; found: %v", what, runs,
					before, s.Holds(), found)
			}
			o.mu.Unlock()
		}
	}
}
