package store

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/internal/raced"
	"github.com/fbfkv/fbfkv/persistence"
	"github.com/fbfkv/fbfkv/persistence/crashtest"
)

// fullModel is a store on a disk that a neighbour fills now and then, and what was
// answered by it.
type fullModel struct {
	t       *testing.T
	disk    *crashtest.FullDisk
	s       *Store
	clock   *fakeClock
	rnd     *rand.Rand
	fsync   Fsync
	full    bool
	values  map[string]int64
	applied []crashOp
	refused []crashOp
	items   map[string]bool

	n, refusals int
}

func (m *fullModel) open() {
	m.t.Helper()
	var err error
	m.s, err = Open(Options{Dir: "data", FS: m.disk, Fsync: m.fsync, SnapshotInterval: -1, MinFreeDisk: -1,
		HotCounters: 32,
		BlockCache:  1 << 20, LogFileSize: 64 << 10, Partitions: 4, Clock: m.clock.now,
		Fatal: func(err error) { panic(err) }})
	if err != nil {
		m.t.Fatal("open:", err)
	}
}

// judge checks an answer: it was applied, or refused for want of space; the store never
// freezes.
func (m *fullModel) judge(op *Op) bool {
	m.t.Helper()
	if err := m.s.Failure(); err != nil {
		m.t.Fatal("the store is frozen:", err)
	}
	if op.Err != nil && !errors.Is(op.Err, ErrDiskFull) {
		m.t.Fatalf("disk full %v: %v", m.full, op.Err)
	}
	if op.Err != nil {
		m.refusals++
	}
	return op.Err == nil
}

// batch sends a batch of operations of all kinds.
func (m *fullModel) batch(size int) {
	var b Batch
	b.Atomic = m.rnd.IntN(4) == 0
	var ops []crashOp
	pad := make([]byte, m.rnd.IntN(400))
	for range size {
		m.n++
		op := crashOp{id: fmt.Sprint("id", m.n, string(pad)),
			keys: []string{fmt.Sprint("k", m.rnd.IntN(300))}, deltas: []int64{1 + m.rnd.Int64N(9)}}
		if m.rnd.IntN(5) == 0 {
			op.keys, op.deltas = append(op.keys, fmt.Sprint("m", m.rnd.IntN(20))), append(op.deltas, 2)
		}
		ops = append(ops, op)
		op.add(&b)
	}
	m.s.Execute(&b)
	for i, op := range ops {
		if !m.judge(&b.Ops[i]) {
			m.refused = append(m.refused, op)
			continue
		}
		m.applied = append(m.applied, op)
		for j, k := range op.keys {
			m.values[k] += op.deltas[j]
		}
	}
}

// refuses reports whether writes are refused, also after a few looks at the disk: the
// store's own may just have seen it full.
func (m *fullModel) refuses() bool {
	for range 3 {
		m.s.checkDisk()
		if op := do(m.s, Op{Kind: Set, Key: []byte("again"), Delta: 1}); m.judge(&op) {
			return false
		}
	}
	return true
}

// others sends what is not an idempotent increment.
func (m *fullModel) others() {
	m.n++
	key := fmt.Sprint("k", m.rnd.IntN(300))
	switch m.rnd.IntN(6) {
	case 0:
		if op := do(m.s, Op{Kind: Set, Key: []byte(key), Delta: 7}); m.judge(&op) {
			m.values[key] = 7
		}
	case 1:
		if op := do(m.s, Op{Kind: Del, Keys: [][]byte{[]byte(key)}}); m.judge(&op) {
			m.values[key] = 0
		}
	case 2:
		item := fmt.Sprint("item", m.n)
		op := do(m.s, Op{Kind: FBFAdd, Key: []byte("filter"), Keys: [][]byte{[]byte(item)}})
		if m.judge(&op) && !op.Fulls[0] {
			m.items[item] = true
		}
	case 3:
		if err := m.s.AlterTable("default",
			TableChange{Window: ptr(time.Hour + time.Duration(m.n)*time.Second)}); err != nil &&
			!errors.Is(err, ErrDiskFull) {
			m.t.Fatal(err)
		}
	case 4:
		switch err := m.s.Snapshot(); {
		case err == nil || m.full:
		case errors.Is(err, persistence.ErrNoSpace):
			// a compaction that met the full disk is tried again in a while
			eventually(m.t, "a snapshot, as there is space", func() bool { return m.s.Snapshot() == nil })
		default:
			m.t.Fatal("snapshot:", err)
		}
	case 5:
		if m.rnd.IntN(4) == 0 {
			if op := do(m.s, Op{Kind: FlushAll}); m.judge(&op) {
				m.values, m.items = make(map[string]int64), make(map[string]bool)
				m.applied, m.refused = nil, nil
			}
		}
	}
	if err := m.s.Failure(); err != nil {
		m.t.Fatal("the store is frozen:", err)
	}
}

// verify compares values and remembered operations with the answers.
func (m *fullModel) verify() {
	m.t.Helper()
	for k, want := range m.values {
		if v, _ := get(m.s, k); v != want {
			m.t.Fatalf("%s is %d, want %d", k, v, want)
		}
	}
	seen := func(op crashOp) bool {
		return do(m.s, Op{Kind: CSeen, Key: []byte(op.keys[0]), ID: []byte(op.id)}).Found
	}
	for _, op := range m.applied {
		if !seen(op) {
			m.t.Fatalf("%s is forgotten", op.id)
		}
	}
	for _, op := range m.refused {
		if seen(op) {
			m.t.Fatalf("%s was refused, and is remembered", op.id)
		}
	}
	for item := range m.items {
		if op := do(m.s, Op{Kind: FBFExists, Key: []byte("filter"),
			Keys: [][]byte{[]byte(item)}}); !slices.Contains(op.Founds, true) {
			m.t.Fatalf("%s is not in the filter", item)
		}
	}
}

// TestDiskFilledByNeighbour: a disk that another process fills at any instant freezes
// nothing (G8). The space that a batch may need is reserved before: the batch is applied,
// or refused with nothing applied; reads go on, also after a start on the full disk; and writes
// go on by themselves once there is space.
func TestDiskFilledByNeighbour(t *testing.T) {
	for _, fsync := range []Fsync{Always, Everysec, No} {
		t.Run(fsync.String(), func(t *testing.T) {
			seed := rand.Uint64()
			t.Log("seed", seed)
			m := &fullModel{t: t, disk: crashtest.NewFullDisk(vfs.NewMem()), clock: newFakeClock(),
				fsync: fsync,
				rnd:   rand.New(rand.NewPCG(seed, 1)), values: make(map[string]int64),
				items: make(map[string]bool)}
			m.open()
			for round := range max(6, 12/raced.Slowdown) {
				m.full = round%2 == 1
				if m.full {
					m.disk.Fill(m.rnd.Int64N(200 << 10))
				} else {
					m.disk.Fill(-1)
				}
				before := m.refusals
				for i := 0; i < 60 || m.full && m.refusals == before && i < 3000; i++ {
					m.batch(1 + m.rnd.IntN(30))
					m.others()
					m.clock.advance(100 * time.Millisecond)
					if m.rnd.IntN(10) == 0 {
						m.s.checkDisk()
					}
				}
				if !m.full && m.refuses() {
					t.Fatal("there is space, and writes are refused")
				}
				m.verify()
				if m.rnd.IntN(3) == 0 { // also on the full disk
					_ = m.s.CloseNow()
					m.open()
					m.verify()
				}
			}
			if m.refusals == 0 {
				t.Error("nothing was refused")
			}
			t.Logf("%d of %d operations were refused", m.refusals, m.n)
			m.disk.Fill(-1)
			if err := m.s.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestFullDiskIsToldOnce: what cannot be saved while the disk is full is tried again and
// again, but the log does not fill with it.
func TestFullDiskIsToldOnce(t *testing.T) {
	disk := crashtest.NewFullDisk(vfs.NewMem())
	var out bytes.Buffer
	s, err := Open(Options{Dir: "data", FS: disk, SnapshotInterval: time.Hour, MinFreeDisk: -1,
		BlockCache: 1 << 20, Partitions: 4,
		Logger: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelError}))})
	if err != nil {
		t.Fatal(err)
	}
	w := saver{s: s}
	for i, lines := range []int{0, 1, 1, 1, 1, 2, 2} {
		disk.Fill(-1)
		s.checkDisk()
		for n := range 20 {
			do(s, Op{Kind: CIncrBy, Key: fmt.Append(nil, "k", n), ID: fmt.Append(nil, i), Delta: 1})
		}
		if i != 0 && i != 4 {
			disk.Fill(0)
		}
		w.began, w.saved = time.Time{}, 0
		if w.round(); strings.Count(out.String(), "\n") != lines || w.lacks != (i != 0 && i != 4) {
			t.Fatalf("round %d: %v\n%s", i, w.lacks, out.String())
		}
	}
	disk.Fill(-1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestManyFiltersDueAtOnce: filters that are due at once may need more of the op log than the
// slack it keeps for what nobody foresaw. That is no full disk: the batch waits for room.
func TestManyFiltersDueAtOnce(t *testing.T) {
	const tables, keys = 80, 64
	disk, clock := crashtest.NewFullDisk(vfs.NewMem()), newFakeClock()
	var out bytes.Buffer
	s, err := Open(Options{Dir: "data", FS: disk, SnapshotInterval: -1, MinFreeDisk: -1, BlockCache: 1 << 20,
		LogFileSize: 64 << 10, Partitions: 32, Fsync: Everysec, Clock: clock.now,
		Logger: slog.New(slog.NewTextHandler(&out, nil))})
	if err != nil {
		t.Fatal(err)
	}
	for i := range tables {
		if err := s.CreateTable(TableOptions{Name: fmt.Sprint("t", i), Prefix: fmt.Sprintf("t%d:", i),
			Window: time.Second}); err != nil {
			t.Fatal(err)
		}
	}
	increment := func(id string) (ops []Op) {
		for i := range tables * keys {
			ops = append(ops, Op{Kind: CIncrBy, Key: fmt.Appendf(nil, "t%d:k%d", i%tables, i/tables),
				ID: []byte(id), Delta: 1})
		}
		b := Batch{Ops: ops}
		s.Execute(&b)
		return ops
	}
	for round := range 5 {
		for i, op := range increment(fmt.Sprint("round", round)) {
			if op.Err != nil {
				t.Fatalf("round %d, operation %d: %v", round, i, op.Err)
			}
		}
		clock.advance(time.Second) // each filter is due for a refresh
	}
	if strings.Contains(out.String(), "no space") {
		t.Errorf("the log says %s", out.String())
	}
	disk.Fill(0)
	refused := 0
	for n := 0; refused == 0 && n < 100; n++ {
		for _, op := range increment(fmt.Sprint("full", n)) {
			if op.Err != nil && !errors.Is(op.Err, ErrDiskFull) {
				t.Fatal(op.Err)
			} else if op.Err != nil {
				refused++
			}
		}
	}
	if refused == 0 || !strings.Contains(out.String(), "no space") {
		t.Errorf("%d operations were refused on a full disk, and the log says %q", refused, out.String())
	}
	disk.Fill(-1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
