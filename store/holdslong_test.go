package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/persistence/crashtest"
)

// TestHoldOutlivesWindow: a hold that is open longer than the window is known to every command, whatever its
// opid's time, also behind a checkpoint and a start; and how it ended is known for the window from then on.
func TestHoldOutlivesWindow(t *testing.T) {
	clock, fs := newFakeClock(), vfs.NewMem()
	with := func(o *Options) { o.FS, o.Clock = fs, clock.now }
	s := testStore(t, with)
	must(t, s.AlterTable(DefaultTable, TableChange{Window: ptr(time.Minute)}))
	began, _ := clock.now()
	command := func(kind Kind, id string, delta int64) Op {
		return do(s, Op{Kind: kind, Key: []byte("k"), ID: []byte(id), Delta: delta, Flags: HasAt, At: began,
			ExpireAt: began + time.Hour.Milliseconds()})
	}
	for _, id := range []string{"settled", "cancelled"} {
		must(t, command(CHold, id, 5).Err)
	}
	for range 3 {
		clock.advance(10 * time.Minute)
		for _, id := range []string{"settled", "cancelled"} {
			if op := command(CHold, id, 5); op.Err != nil || op.Applied {
				t.Errorf("hold %s again: %+v", id, op)
			}
			if err := command(CHold, id, 4).Err; !errors.Is(err, ErrMismatch) {
				t.Errorf("hold %s with another amount: %v", id, err)
			}
			if err := command(CIncrBy, id, 5).Err; !errors.Is(err, ErrMismatch) {
				t.Errorf("an increment with the opid of the hold %s: %v", id, err)
			}
			if op := command(CSeen, id, 0); op.Err != nil || !op.Found || op.Seen.Hold == nil ||
				op.Seen.Hold.How != 0 || op.Seen.Hold.Opened != began || op.Seen.Delta != 5 {
				t.Errorf("the hold %s is seen as %+v, %v", id, op.Seen, op.Err)
			}
		}
		must(t, s.Snapshot())
		must(t, s.Close())
		s = testStore(t, with)
	}
	for range 2 {
		if op := command(CSettle, "settled", 3); op.Err != nil || op.Value != 3 {
			t.Errorf("settled: %d, %v", op.Value, op.Err)
		}
		if op := command(CCancel, "cancelled", 0); op.Err != nil || op.Value != 3 {
			t.Errorf("cancelled: %d, %v", op.Value, op.Err)
		}
		clock.advance(50 * time.Second)
	}
}

// TestExpiredHoldNamesItsTime: whoever meets an expired hold first, and whenever it is ended, each answer
// names the time that the client gave.
func TestExpiredHoldNamesItsTime(t *testing.T) {
	clock, fs := newFakeClock(), vfs.NewMem()
	with := func(o *Options) { o.FS, o.Clock = fs, clock.now }
	s := testStore(t, with)
	wall, _ := clock.now()
	ends := wall + time.Minute.Milliseconds()
	for _, id := range []string{"settle", "cycle"} {
		openHold(t, s, clock, "k", id, 1)
	}
	for range 3 {
		clock.advance(40 * time.Second)
	}
	want := fmt.Sprintf("hold ended at %d,", ends)
	for range 3 {
		for _, id := range []string{"settle", "cycle"} {
			err := do(s, Op{Kind: CSettle, Key: []byte("k"), ID: []byte(id), Delta: 1}).Err
			if !errors.Is(err, ErrHoldExpired) || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%s: %v, want %s", id, err, want)
			}
			for _, p := range s.partitions {
				s.expireHolds(p, new(Batch))
			}
		}
		clock.advance(time.Second)
		must(t, s.Close())
		s = testStore(t, with)
	}
}

// TestHoldsDoNotDelayTables: while a cluster's tables wait for the end of open holds, no new ones are opened
// that would be in their way.
func TestHoldsDoNotDelayTables(t *testing.T) {
	clock := newFakeClock()
	s := testStore(t, func(o *Options) { o.Clock = clock.now })
	set := withTables(t, TableOptions{Name: "t", Prefix: "t:", Mode: Approx})
	openHold(t, s, clock, "t:a", "1", 1)
	if err := s.SetTables(set, nil, 1); !errors.Is(err, ErrHoldsOpen) {
		t.Fatal(err)
	}
	openHold(t, s, clock, "other", "1", 1)
	for i := range 20 { // in all partitions
		key := fmt.Sprint("t:", i)
		op := do(s, Op{Kind: CHold, Key: []byte(key), ID: []byte("2"), Delta: 1, ExpireAt: 1e15})
		if !errors.Is(op.Err, ErrHoldMode) {
			t.Errorf("%s: %v", key, op.Err)
		}
	}
	if op := do(s, Op{Kind: CHold, Key: []byte("t:a"), ID: []byte("1"), Delta: 1, ExpireAt: 1e15}); op.Err != nil {
		t.Errorf("the first one again: %v", op.Err)
	}
	must(t, do(s, Op{Kind: CCancel, Key: []byte("t:a"), ID: []byte("1")}).Err)
	must(t, s.SetTables(set, nil, 1))
	must(t, s.SetTables(withTables(t), nil, 2))
	openHold(t, s, clock, "t:a", "3", 1)
}

// TestBackupOfHolds: a backup has the holds that are open and how others ended, and examines as sound.
func TestBackupOfHolds(t *testing.T) {
	clock, fs := newFakeClock(), vfs.NewMem()
	s := testStore(t, func(o *Options) { o.FS, o.Clock = fs, clock.now })
	for i := range 40 {
		key := fmt.Sprint("k", i%7)
		openHold(t, s, clock, key, fmt.Sprint(i), int64(i%5+1))
		if i%4 == 0 {
			must(t, do(s, Op{Kind: CSettle, Key: []byte(key), ID: []byte(fmt.Sprint(i)), Delta: 1}).Err)
		}
		if i == 20 {
			must(t, s.Snapshot())
		}
	}
	must(t, s.Backup("backup"))
	var want []string
	state := func(s *Store) (all []string) {
		for i := range 7 {
			op := do(s, Op{Kind: CHeld, Key: []byte(fmt.Sprint("k", i))})
			all = append(all, fmt.Sprint(op.Value, op.Object))
		}
		for i := range 40 {
			op := do(s, Op{Kind: CSettle, Key: fmt.Append(nil, "k", i%7), ID: fmt.Append(nil, i), Delta: 1})
			all = append(all, fmt.Sprint(op.Value, op.Applied, op.Err))
		}
		return all
	}
	want = state(s)
	must(t, s.CloseNow())
	for _, dir := range []string{"data", "backup"} {
		checkSound(t, fs, dir)
	}
	got := state(testStore(t, func(o *Options) { o.FS, o.Clock, o.Dir = fs, clock.now, "backup" }))
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("answer %d of the backup is %s, want %s", i, got[i], want[i])
		}
	}
}

// TestHoldsOnFullDisk: on a disk that is full now and then, what is answered with an error has done nothing,
// what is not has, and a hold that could not be ended ends later.
func TestHoldsOnFullDisk(t *testing.T) {
	clock, disk := newFakeClock(), crashtest.NewFullDisk(vfs.NewMem())
	with := func(o *Options) { o.FS, o.Clock = disk, clock.now }
	s := testStore(t, with)
	rnd := rand.New(rand.NewPCG(3, 1))
	m := &holdModel{map[string]int64{}, map[[2]string]*modelHold{}, map[[2]string]*modelHold{}}
	refused, n := 0, 0
	for i := range 12_000 {
		if i%1500 == 0 {
			if disk.Fill(-1); i%3000 == 0 {
				disk.Fill(rnd.Int64N(8 << 10))
			}
			s.checkDisk()
		}
		clock.advance(time.Duration(rnd.IntN(200)) * time.Millisecond)
		wall, _ := clock.now()
		m.end(wall)
		name := func(i int) string { return fmt.Sprint(i, strings.Repeat("x", i%300)) }
		key, id, amount := fmt.Sprint("k", n%3), name(n-rnd.IntN(min(n+1, 40))), 1+rnd.Int64N(5)
		op := Op{Kind: CSettle, Key: []byte(key), ID: []byte(id), Delta: amount}
		answer := func() (int64, error) { return m.settle(key, id, amount, false) }
		switch rnd.IntN(4) {
		case 0:
			op.Kind, op.Delta = CCancel, 0
			answer = func() (int64, error) { return m.settle(key, id, 0, true) }
		case 1, 2:
			if rnd.IntN(8) > 0 {
				n++
				id = name(n)
			}
			op.Kind, op.ID, op.ExpireAt = CHold, []byte(id), wall+1+rnd.Int64N(5000)
			answer = func() (int64, error) { return m.hold(key, id, amount, op.ExpireAt, -1e9, 1e9) }
		}
		if op = do(s, op); errors.Is(op.Err, ErrDiskFull) {
			refused++
			continue
		}
		want, err := answer()
		wantHold(t, "on a full disk", op, want, err)
		if i%7 == 0 {
			for _, p := range s.partitions {
				s.expireHolds(p, new(Batch))
			}
		}
	}
	if refused == 0 {
		t.Error("the disk was never full")
	}
	disk.Fill(-1)
	must(t, s.Close())
	s = testStore(t, with)
	for i := range 3 {
		key := fmt.Sprint("k", i)
		up, down, open := m.sums(key)
		op := do(s, Op{Kind: CHeld, Key: []byte(key)})
		if op.Value != m.value[key] || op.Object != (HeldInfo{up, down, open}) {
			t.Errorf("%s: %d %+v, want %d %d %d %d", key, op.Value, op.Object, m.value[key], up, down, open)
		}
	}
}

// BenchmarkTakeHolds is how long a partition with a million open holds is locked by a checkpoint that writes
// all of them.
func BenchmarkTakeHolds(b *testing.B) {
	var h holdings
	for i := range 1_000_000 {
		key, id := fmt.Appendf(nil, "k%d", i%1000), fmt.Append(nil, "order-", i)
		h.open(uint64(i)*0x9e3779b97f4a7c15, key, &hold{id: string(id), amount: 1, expires: int64(i)})
	}
	for b.Loop() {
		h.whole = true
		h.takeChanged()
	}
}
