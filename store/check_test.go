package store

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/internal/raced"
	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/persistence/crashtest"
	"github.com/fbfkv/fbfkv/store/seen"
)

// variety does a little of everything that leaves something in a data
// directory, and takes snapshots in between.
func variety(t *testing.T, s *Store, rounds int) {
	t.Helper()
	approx := TableOptions{Name: "approx", Prefix: "approx:", Mode: Approx, Skew: DefaultSkew}
	must(t, s.CreateTable(approx))
	for r := range rounds {
		for i := range 60 {
			id := fmt.Sprintf("%d-%d", r, i)
			wantApplied(t, cincr(s, "k"+strconv.Itoa(i%17), id, int64(i)))
			wantApplied(t, cincr(s, "approx:"+strconv.Itoa(i%5), id, 1))
			wantApplied(t, do(s, Op{Kind: CMIncrBy, Keys: [][]byte{[]byte("m1"), []byte("m" + id)},
				Deltas: []int64{1, 2}, ID: []byte(id)}))
		}
		do(s, Op{Kind: Del, Keys: [][]byte{[]byte("k3"), fmt.Appendf(nil, "m%d-5", r)}})
		do(s, Op{Kind: Set, Key: []byte("k4"), Delta: int64(r), Flags: HasExpire,
			ExpireAt: 1_900_000_000_000 + int64(r)})
		do(s, Op{Kind: ExpireAt, Key: []byte("k5"), ExpireAt: 1_900_000_000_000})
		do(s, Op{Kind: FBFAdd, Key: []byte("filter"), Keys: [][]byte{[]byte(strconv.Itoa(r))}})
		do(s, Op{Kind: FBFReserve, Key: fmt.Appendf(nil, "fixed%d", r),
			Object: &FilterOptions{Fixed: true, Bits: 1024, Hashes: 3, Refresh: time.Second}})
		do(s, Op{Kind: Del, Keys: [][]byte{fmt.Appendf(nil, "fixed%d", r-1)}})
		do(s, Op{Kind: CMSInit, Key: []byte("sketch"), Object: &SketchOptions{Width: 5000, Depth: 2}})
		must(t, addItems(s, "sketch", "a", 1, "b", r+1).Err)
		if r == rounds/2 {
			must(t, s.AlterTable("approx", TableChange{Window: new(time.Minute)}))
			do(s, Op{Kind: FlushAll})
		}
		if r%2 == 1 {
			must(t, s.Snapshot())
		}
		must(t, s.flushRecords(s.partitions[r%len(s.partitions)], false))
	}
}

func wantApplied(t *testing.T, op Op) {
	t.Helper()
	if op.Err != nil || !op.Applied {
		t.Fatalf("%+v", op)
	}
}

// checkSound checks a directory in which nothing is wrong.
func checkSound(t *testing.T, fs vfs.FS, dir string) CheckReport {
	t.Helper()
	r, err := Check(CheckOptions{Dir: dir, FS: fs})
	must(t, err)
	for _, p := range r.Problems {
		t.Errorf("found in a sound directory: %v", p)
	}
	return r
}

// TestCheckSound: a directory is sound after an orderly close, after SHUTDOWN
// NOSAVE, and when it was cut off in the middle of a load; and examining it
// changes nothing.
func TestCheckSound(t *testing.T) {
	fs := vfs.NewMem()
	with := func(o *Options) { o.FS = fs }
	s := testStore(t, with)
	variety(t, s, 7)
	must(t, s.CloseNow())
	s = testStore(t, with)
	n, _ := s.DBSize()
	must(t, s.CloseNow())
	before := treeOf(t, fs, "data")
	r := checkSound(t, fs, "data")
	if r.Keys != n || r.Snapshots != 8 || r.Rows == 0 || r.Runs == 0 || r.RunRecords == 0 ||
		r.Entries < 500 || r.Sstables == 0 {
		t.Errorf("report: %+v, DBSIZE %d", r, n)
	}
	if after := treeOf(t, fs, "data"); after != before {
		t.Errorf("the directory was changed:\n%s\n%s", before, after)
	}
	s = testStore(t, with)
	if _, err := Check(CheckOptions{Dir: "data", FS: fs}); err == nil {
		t.Error("a directory in use was examined")
	}
	wantApplied(t, cincr(s, "k1", "after", 1))
	must(t, s.Close())
	checkSound(t, fs, "data")
}

// TestCheckDropDuringSnapshot: a generation that is dropped while a snapshot
// copies it is missing there, and nobody will miss it.
func TestCheckDropDuringSnapshot(t *testing.T) {
	fs, clock := vfs.NewMem(), newFakeClock()
	s := testStore(t, func(o *Options) { o.FS, o.Clock, o.Partitions = fs, clock.now, 1 })
	window, p := time.Minute, s.partitions[0]
	must(t, s.AlterTable(DefaultTable, TableChange{Window: &window, Skew: new(time.Duration(0))}))
	pass := func() {
		clock.advance(window / 6)
		s.refreshDue(p)
	}
	for i := range 12 {
		wantApplied(t, cincr(s, "k", strconv.Itoa(i), 1))
		pass()
	}
	p.mu.Lock()
	snap := p.beginSnapshot()
	p.mu.Unlock()
	for range 5 {
		pass()
	}
	w, err := s.db.CreateSnapshot(p.id, snap.seq)
	must(t, err)
	must(t, snap.write(p, w))
	p.endSnapshot()
	must(t, s.CloseNow())
	if r := checkSound(t, fs, "data"); r.Snapshots != 1 {
		t.Errorf("%d snapshots, want the one during which generations were dropped", r.Snapshots)
	}
}

// TestCheckAfterPowerLoss: what a power loss leaves of a load is sound, under
// every policy and in both modes.
func TestCheckAfterPowerLoss(t *testing.T) {
	first := rand.Uint64()
	sweep(t, *checkPoints, func(i int) {
		r := newCrashRun(first + uint64(i))
		if err := r.check(); err != nil {
			t.Errorf("%v: %v\nseed %d", r, err, first+uint64(i))
		}
	})
}

// check cuts the power and examines what is left.
func (r *crashRun) check() error {
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
	report, err := Check(CheckOptions{Dir: "data", FS: after})
	if err == nil && len(report.Problems) > 0 {
		err = fmt.Errorf("found in a sound directory: %v", report.Problems)
	}
	return err
}

var checkPoints = flag.Int("check.points", 60/raced.Slowdown, "power losses after which "+
	"TestCheckAfterPowerLoss examines the directory")

// treeOf lists the files below dir with their sizes.
func treeOf(t *testing.T, fs vfs.FS, dir string) string {
	t.Helper()
	names, err := fs.List(dir)
	must(t, err)
	slices.Sort(names)
	var b strings.Builder
	for _, name := range names {
		path := fs.PathJoin(dir, name)
		info, err := fs.Stat(path)
		must(t, err)
		if info.IsDir() {
			b.WriteString(treeOf(t, fs, path))
			continue
		}
		fmt.Fprintln(&b, path, info.Size())
	}
	return b.String()
}

// damageCase is one damage of a directory, and what check must say of it.
type damageCase struct {
	name   string
	damage func(*testing.T, *Store, *persistence.Changes)
	want   string
}

func (tc damageCase) find(t *testing.T) {
	fs := vfs.NewMem()
	s := testStore(t, func(o *Options) { o.FS = fs })
	variety(t, s, 7)
	must(t, s.Snapshot())
	b := s.db.NewChanges()
	tc.damage(t, s, b)
	must(t, b.Commit())
	must(t, s.CloseNow())
	wantProblem(t, fs, tc.want)
}

// rowAt is where the row of a key lies.
func rowAt(s *Store, key string) persistence.RowKey {
	return rowKey(s.hashes.position([]byte(key)), []byte(key))
}

// changeRow changes the row of a key.
func changeRow(key string, change func(*row)) func(*testing.T, *Store, *persistence.Changes) {
	return func(t *testing.T, s *Store, b *persistence.Changes) {
		value, ok, err := s.db.Row(nil, rowAt(s, key))
		must(t, err)
		r, err := decodeRow(value)
		must(t, err)
		if !ok {
			t.Fatal("no row")
		}
		change(&r)
		c := counter{seq: r.seq, value: r.value, expire: r.expire}
		b.PutRow(rowAt(s, key), c.appendRow(nil))
	}
}

// TestCheckFinds damages a directory in one way after another; check must say
// what is wrong and where.
func TestCheckFinds(t *testing.T) {
	for _, tc := range []damageCase{
		{"value", changeRow("k1", func(r *row) { r.value++ }), "but the log says"},
		{"sequence", changeRow("k1", func(r *row) { r.seq-- }), "entry"},
		{"future", changeRow("k1", func(r *row) { r.seq = 1 << 40 }), "but the log ends at"},
		{"expiry", changeRow("k5", func(r *row) { r.expire++ }), "says that it expires at"},
		{"no row", func(_ *testing.T, s *Store, b *persistence.Changes) { b.DeleteRow(rowAt(s, "k1")) },
			"its row is missing"},
		{"wrong slot", func(_ *testing.T, s *Store, b *persistence.Changes) {
			k := rowAt(s, "k1")
			k.Slot++
			b.PutRow(k, (&counter{seq: 1}).appendRow(nil))
		}, "lies where that key does not belong"},
		{"no slot", func(_ *testing.T, _ *Store, b *persistence.Changes) {
			b.PutRow(persistence.RowKey{Slot: slots, Key: []byte("x")}, nil)
		}, "lie outside all hash slots: 1"},
		{"garbage row",
			func(_ *testing.T, s *Store, b *persistence.Changes) { b.PutRow(rowAt(s, "k1"), []byte("?")) },
			"cannot be read"},
		{"DBSIZE", func(_ *testing.T, s *Store, b *persistence.Changes) {
			p := s.partitions[0]
			p.saving.state.size++
			b.PutState(0, p.saving.state.encode())
		}, "DBSIZE is"},
		{"state", func(_ *testing.T, _ *Store, b *persistence.Changes) { b.PutState(0, []byte{1, 2}) },
			"last checkpoint cannot be read"},
		{"log gap", func(t *testing.T, s *Store, _ *persistence.Changes) {
			appendLog(t, s, 0, s.partitions[0].seq+2, beginSection(nil, moment{}))
		}, "are missing"},
		{"garbage log", func(t *testing.T, s *Store, _ *persistence.Changes) {
			appendLog(t, s, 0, s.partitions[0].seq+1, append(beginSection(nil, moment{}), 99))
		}, "cannot be read"},
		{"expiry index", func(_ *testing.T, s *Store, b *persistence.Changes) {
			b.DeleteExpiry(partitionOf(s, "k5").id, 1_900_000_000_000, rowAt(s, "k5"))
		}, "does not know it"},
		{"run", func(t *testing.T, s *Store, _ *persistence.Changes) {
			w, err := s.db.NewRun(persistence.Run{Partition: 0, Table: 1, ID: 99})
			must(t, err)
			must(t, w.Add(7, 1, (&seen.Record{Key: []byte("k1"), ID: []byte("?")}).AppendTo(nil)))
			publishRun(t, s, w, persistence.Run{FirstSeq: 1, LastSeq: 1})
		}, "under a hash that is not its own"},
		{"short run", func(t *testing.T, s *Store, _ *persistence.Changes) {
			w, err := s.db.NewRun(persistence.Run{Partition: 0, Table: 1, ID: 99})
			must(t, err)
			publishRun(t, s, w, persistence.Run{FirstSeq: 1, LastSeq: s.partitions[0].seq})
		}, "retries of the others"},
	} {
		t.Run(tc.name, tc.find)
	}
}

// TestCheckCompares damages a view so that nothing is wrong with it by itself; check must
// say that it is not what the log leads to.
func TestCheckCompares(t *testing.T) {
	for _, tc := range []damageCase{
		{"record", func(t *testing.T, s *Store, _ *persistence.Changes) {
			p := partitionOf(s, "k1")
			must(t, cincr(s, "k1", "late", 1).Err)
			w, err := s.db.NewRun(persistence.Run{Partition: p.id, Table: 1, ID: 99})
			must(t, err)
			rec := seen.Record{Key: []byte("k1"), ID: []byte("late"), Original: Seen{Delta: 1, Result: -7}}
			must(t, w.Add(p.hashes.ids.Hash(rec.Key, rec.ID), p.seq, rec.AppendTo(nil)))
			publishRun(t, s, w, persistence.Run{FirstSeq: p.seq, LastSeq: p.seq})
		}, "is not the operation that the log has"},
		{"row of another entry", func(_ *testing.T, s *Store, b *persistence.Changes) {
			c := counter{seq: partitionOf(s, "none").seq}
			b.PutRow(rowAt(s, "none"), c.appendRow(nil))
		}, "is about something else"},
		{"row ahead of the checkpoint", func(t *testing.T, s *Store, b *persistence.Changes) {
			must(t, cincr(s, "k1", "late", 1).Err)
			must(t, s.flushRows(partitionOf(s, "k1")))
			must(t, cincr(s, "k1", "later", 1).Err)
			changeRow("k1", func(r *row) { r.value++ })(t, s, b)
		}, "but the log says"},
		{"key in another partition", func(t *testing.T, s *Store, _ *persistence.Changes) {
			p := s.partitions[(Slot([]byte("k1"))>>s.shift+1)%4]
			e := entry{kind: entrySet, key: []byte("k1")}
			appendLog(t, s, p.id, p.seq+1, e.appendTo(beginSection(nil, p.at)))
		}, "belongs to another partition"},
		{"empty record", func(t *testing.T, s *Store, _ *persistence.Changes) {
			appendLog(t, s, 0, s.partitions[0].seq+1, beginSection(nil, s.partitions[0].at))
		}, "is empty"},
		{"log ends early", func(_ *testing.T, s *Store, b *persistence.Changes) {
			s.partitions[0].saving.state.seq += 9
			b.PutState(0, s.partitions[0].saving.state.encode())
		}, "but entries up to"},
		{"snapshot of another entry", func(t *testing.T, s *Store, _ *persistence.Changes) {
			p := s.partitions[0]
			snap := p.beginSnapshot()
			defer p.endSnapshot()
			w, err := s.db.CreateSnapshot(p.id, snap.seq+1)
			must(t, errors.Join(err, snap.write(p, w)))
		}, "its name says"},
		{"filter of a table", func(t *testing.T, s *Store, _ *persistence.Changes) {
			p := s.partitions[0]
			must(t, p.emptyTable(p.tables[1], p.at))
			must(t, s.Snapshot())
		}, `about the filter of table "default"`},
		{"filter of a key", func(t *testing.T, s *Store, _ *persistence.Changes) {
			p := partitionOf(s, "filter")
			p.objects["filter"].object().(*filterKey).insert(1, p.at.logged)
			must(t, s.Snapshot())
		}, `about key "filter"`},
		{"horizon", func(t *testing.T, s *Store, _ *persistence.Changes) {
			p := s.partitions[0]
			must(t, s.AlterTable("approx", TableChange{Window: new(time.Hour)}))
			p.tables[1].horizon.forget(1 << 50)
			must(t, s.Snapshot())
		}, "about what tables there are"},
		{"state's time", changeState(func(s *partitionState) { s.at.logged++ }), "not what the log leads to"},
		{"state's objects", changeState(func(s *partitionState) { s.objects++ }),
			"not what the log leads to"},
		{"state's tables",
			changeState(func(s *partitionState) { s.horizons[1] = horizon{forgotten: 7} }), "not what the log leads to"},
	} {
		t.Run(tc.name, tc.find)
	}
}

// partitionOf returns the partition of a key.
func partitionOf(s *Store, key string) *partition { return s.partitions[Slot([]byte(key))>>s.shift] }

// changeState changes the state row of partition 0.
func changeState(change func(*partitionState)) func(*testing.T, *Store, *persistence.Changes) {
	return func(_ *testing.T, s *Store, b *persistence.Changes) {
		state := s.partitions[0].saving.state
		change(&state)
		b.PutState(0, state.encode())
	}
}

// appendLog adds a record to the op log.
func appendLog(t *testing.T, s *Store, partition uint16, seq uint64, record []byte) {
	t.Helper()
	b := s.oplog.NewBatch()
	b.AppendLog(partition, seq, record)
	must(t, errors.Join(b.Apply(), b.Wait()))
}

// TestCheckFindsShortLog: the op log must reach back as far as recovery could
// need it.
func TestCheckFindsShortLog(t *testing.T) {
	for _, tc := range []struct {
		name string
		more int // operations after the snapshot
		want string
	}{
		{"log begins late", 0, "not reach back to the older snapshot"},
		{"log begins too late", 50, "are needed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fs := vfs.NewMem()
			s := testStore(t, func(o *Options) { o.FS = fs })
			variety(t, s, 7)
			must(t, s.Snapshot())
			for i := range tc.more {
				cincr(s, "late"+strconv.Itoa(i), "1", 1)
			}
			last := s.partitions[0].seq
			must(t, s.CloseNow())
			shortenLog(t, fs, last)
			wantProblem(t, fs, tc.want)
		})
	}
}

// shortenLog writes the op log anew without partition 0's records below a
// sequence.
func shortenLog(t *testing.T, fs vfs.FS, below uint64) {
	t.Helper()
	open := func() *persistence.DB {
		db, err := persistence.Open(persistence.Options{Dir: "data", FS: fs})
		must(t, err)
		return db
	}
	db := open()
	type kept struct {
		partition uint16
		seq       uint64
		record    []byte
	}
	var keep []kept
	for p := range db.Meta().Partitions {
		must(t, db.Log().Read(uint16(p), 0, func(seq uint64, record []byte) error {
			if p != 0 || seq >= below {
				keep = append(keep, kept{uint16(p), seq, slices.Clone(record)})
			}
			return nil
		}))
	}
	must(t, db.Close())
	must(t, fs.RemoveAll("data/log"))
	must(t, fs.Remove("data/LOGSYNC"))
	db = open()
	b := db.Log().NewBatch()
	for _, k := range keep {
		b.AppendLog(k.partition, k.seq, k.record)
	}
	must(t, errors.Join(b.Apply(), b.Wait()))
	must(t, db.Close())
}

// wantProblem checks the directory and expects a problem.
func wantProblem(t *testing.T, fs vfs.FS, want string) {
	t.Helper()
	r, err := Check(CheckOptions{Dir: "data", FS: fs})
	must(t, err)
	for _, p := range r.Problems {
		if strings.Contains(p.String(), want) {
			return
		}
	}
	t.Errorf("want a problem that says %q, got %v", want, r.Problems)
}

// TestCheckFindsRot flips a byte in files of every kind.
func TestCheckFindsRot(t *testing.T) {
	for _, tc := range []struct{ suffix, want string }{
		{".sst", "is damaged"},
		{".run", "is damaged"},
		{".fbf", "the server starts with the older snapshot"},
		{"META", "restore a backup"},
		{"LOGSYNC", "restore a backup"},
		{"MANISYNC", "restore a backup"},
	} {
		fs := vfs.NewMem()
		s := testStore(t, func(o *Options) { o.FS = fs })
		variety(t, s, 5)
		must(t, s.Close())
		path := ""
		for _, line := range strings.Split(treeOf(t, fs, "data"), "\n") {
			name, size, _ := strings.Cut(line, " ")
			if strings.HasSuffix(name, tc.suffix) && size != "0" && name > path {
				path = name
			}
		}
		if path == "" {
			t.Fatalf("no file %s", tc.suffix)
		}
		if strings.HasSuffix(tc.suffix, "SYNC") {
			damageEnds(t, fs, path)
		} else {
			flipByte(t, fs, path)
		}
		wantProblem(t, fs, tc.want)
	}
}

// damageEnds overwrites a file with as many other bytes.
func damageEnds(t *testing.T, fs vfs.FS, path string) {
	t.Helper()
	info, err := fs.Stat(path)
	must(t, err)
	w, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	must(t, err)
	_, err = w.Write(make([]byte, info.Size()))
	must(t, err)
	must(t, w.Close())
}

// publishRun ends a run and makes it part of the data directory.
func publishRun(t *testing.T, s *Store, w *persistence.RunWriter, last persistence.Run) {
	t.Helper()
	r, err := w.Finish(last)
	must(t, err)
	b := s.db.NewChanges()
	must(t, b.PublishRuns([]persistence.Run{r}))
	must(t, b.Commit())
}
