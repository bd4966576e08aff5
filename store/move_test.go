package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/internal/raced"
	"github.com/fbfkv/fbfkv/persistence/oplog"
)

// mover moves partitions between stores that lead shards of their own.
type mover struct {
	t     *testing.T
	fs    vfs.FS
	aside string
}

// begin exports a partition and lets the target receive it.
func (m *mover) begin(from, to *Store, partition uint16) (*Moving, *Incoming) {
	m.t.Helper()
	must(m.t, m.fs.MkdirAll(m.aside, 0o755))
	out, err := from.Export(partition, m.aside, to.LastOf(partition), 1<<30)
	must(m.t, err)
	in, err := to.Receive(partition, m.fs.PathJoin(m.aside, out.Name))
	must(m.t, err)
	return out, in
}

// adopt lets a partition go on in a store, and be served there.
func adopt(s *Store, partition uint16, to, last uint64) error {
	err := s.Adopt(partition, to, last, 7)
	if err == nil {
		err = s.Release(partition, 7)
	}
	return err
}

// follow brings what the source has done since, in pieces.
func (m *mover) follow(out *Moving, in *Incoming, most int) {
	m.t.Helper()
	for {
		piece, last, err := out.Tail(in.Last(), most)
		must(m.t, err)
		if piece == nil {
			return
		}
		must(m.t, in.Append(piece))
		if in.Last() != last {
			m.t.Fatalf("behind the piece is entry %d, and not %d", in.Last(), last)
		}
	}
}

// end hands the partition over.
func (m *mover) end(from, to *Store, partition uint16, out *Moving, in *Incoming) {
	m.t.Helper()
	last, err := from.HandOver(partition, 7)
	must(m.t, err)
	m.follow(out, in, 1<<20)
	if in.Last() != last {
		m.t.Fatalf("entry %d has come, and the last one is %d", in.Last(), last)
	}
	out.Close()
	must(m.t, adopt(to, partition, out.To, last))
	must(m.t, from.Vacate(partition, 7))
}

func (m *mover) move(from, to *Store, partition uint16) {
	m.t.Helper()
	out, in := m.begin(from, to, partition)
	m.end(from, to, partition, out, in)
}

// newMover returns one whose files are in memory.
func newMover(t *testing.T, fs vfs.FS) *mover { return &mover{t, fs, "aside"} }

// moveModel compares two shards, between which partitions move, with a store that
// has all of them for ever.
type moveModel struct {
	*mover
	rnd   *rand.Rand
	clock *fakeClock
	dirs  [2]string
	shard [2]*Store
	plain *Store
	owner []int // of partitions
	sent  []Op  // with opids
	held  []Op  // … that are holds
	n     int
}

func newMoveModel(t *testing.T, seed uint64) *moveModel {
	m := &moveModel{
		mover: newMover(t, vfs.NewMem()),
		rnd:   rand.New(rand.NewPCG(seed, seed)), clock: newFakeClock(), owner: make([]int, 4),
	}
	m.plain = testStore(t, func(o *Options) { o.Clock, o.Seed = m.clock.now, [16]byte{7} })
	for i := range m.shard {
		m.dirs[i] = fmt.Sprint("shard", i)
		m.open(i)
	}
	for i := range m.owner {
		must(t, m.shard[1].Vacate(uint16(i), 0))
	}
	approx := TableOptions{Name: "approx", Prefix: "a:", Mode: Approx, Window: time.Hour, Skew: time.Second}
	for _, s := range []*Store{m.plain, m.shard[0], m.shard[1]} {
		must(t, s.CreateTable(approx))
		top := 25
		must(t, s.AlterTable(DefaultTable, TableChange{Top: &top}))
	}
	return m
}

func (m *moveModel) open(i int) {
	l := new(proposals)
	l.decided.L = &l.mu
	m.shard[i] = testStore(m.t, func(o *Options) {
		o.Dir, o.FS, o.Clock, o.Seed, o.HotCounters = m.dirs[i], m.fs, m.clock.now, [16]byte{7}, 256
		o.Replicated = func(local *oplog.Log) Log { l.Log = local; return l }
	})
	must(m.t, m.shard[i].Lead())
}

// at is the store that serves a key, the other one, and the key's partition.
func (m *moveModel) at(key []byte) (s, other *Store, partition int) {
	partition = int(Slot(key) >> m.plain.shift)
	return m.shard[m.owner[partition]], m.shard[1-m.owner[partition]], partition
}

// both executes an operation in both worlds; their answers must be the same.
func (m *moveModel) both(op Op) {
	m.t.Helper()
	key := op.Key
	if key == nil {
		key = op.Keys[0]
	}
	s, other, partition := m.at(key)
	want, got := do(m.plain, op), do(s, op)
	want.run, got.run = opRun{}, opRun{}
	want.Seen.Dot, got.Seen.Dot = 0, 0
	if want.Seen.Hold != nil { // the cycle may find it later
		want.Seen.UnixMs, got.Seen.UnixMs = 0, 0
	}
	if errors.Is(got.Err, ErrHoldExpired) && errors.Is(want.Err, ErrHoldExpired) { // likewise
		got.Err = want.Err
	}
	if fmt.Sprint(got.Err) != fmt.Sprint(want.Err) || want.Err == nil && !reflect.DeepEqual(got, want) {
		m.t.Fatalf("kind %d of %q %q in partition %d: %+v, and it should be %+v", op.Kind, op.Key, op.ID,
			partition, got, want)
	}
	if m.n++; m.n%7 == 0 {
		if refused := do(other, op); !errors.Is(refused.Err, ErrNotLeader) {
			m.t.Fatalf("the other shard answers %+v", refused)
		}
	}
}

// step is an operation of some kind.
func (m *moveModel) step() {
	m.n++
	k := m.rnd.IntN(300)
	id := fmt.Appendf(nil, "id%d", m.n)
	key := func(prefix string) []byte { return fmt.Appendf(nil, "%s%d", prefix, k%60) }
	item := fmt.Appendf(nil, "item%d", k)
	wall, _ := m.clock.now()
	idempotent := func(op Op) {
		m.sent = append(m.sent, op)
		m.both(op)
	}
	switch m.rnd.IntN(26) {
	case 23:
		m.held = append(m.held, Op{Kind: CHold, Key: key("k"), ID: id, Delta: int64(k) - 150, ExpireAt: wall +
			int64(1+k*20)})
		idempotent(m.held[len(m.held)-1])
	case 24:
		if len(m.held) > 0 {
			h := m.held[m.rnd.IntN(len(m.held))]
			m.both(Op{Kind: []Kind{CSettle, CCancel, CSeen}[k%3], Key: h.Key, ID: h.ID, Delta: h.Delta / 2})
		}
	case 25:
		m.both(Op{Kind: CHeld, Key: key("k")})
		m.both(Op{Kind: CGetDel, Key: key("k"), ID: id})
	case 0, 1, 2, 3:
		idempotent(Op{Kind: CIncrBy, Key: fmt.Appendf(nil, "k%d", k), ID: id, Delta: int64(k)})
	case 4, 5, 6:
		idempotent(Op{Kind: CIncrBy, Key: fmt.Appendf(nil, "a:k%d", k), ID: id, Delta: int64(k)})
	case 7:
		idempotent(Op{Kind: CIncrEx, Key: key("bounded"), ID: id, Delta: int64(k), Deltas: []int64{0, 500},
			Flags: Saturate})
	case 8:
		tag := fmt.Sprintf("{%d}", k%20)
		idempotent(Op{Kind: CMIncrBy, ID: id, Keys: [][]byte{[]byte(tag + "x"), []byte(tag + "y")},
			Deltas: []int64{1, int64(k)}})
	case 9:
		idempotent(Op{Kind: CIncrBy, Key: key("at"), ID: id, Delta: 1, At: wall, Flags: HasAt})
	case 10:
		m.both(Op{Kind: IncrBy, Key: key("k"), Delta: 3})
	case 11:
		m.both(Op{Kind: Set, Key: key("k"), Delta: int64(m.n)})
	case 12:
		m.both(Op{Kind: ExpireAt, Key: key("k"), ExpireAt: wall + int64(1+k*20)})
	case 13:
		m.both(Op{Kind: Persist, Key: key("k")})
	case 14:
		m.both(Op{Kind: Del, Keys: [][]byte{key([]string{"k", "fbf", "bf", "cms"}[k%4])}})
	case 15:
		m.both(Op{Kind: FBFAdd, Key: key("fbf")[:4], Keys: [][]byte{item}})
	case 16:
		m.both(Op{Kind: BFAdd, Key: key("bf")[:3], Keys: [][]byte{item},
			Object: &BloomOptions{Error: 0.001, Capacity: 1000, Expansion: 2}})
	case 17:
		m.both(Op{Kind: CMSInit, Key: key("cms")[:4], Object: &SketchOptions{Width: 5000, Depth: 3}})
	case 18, 19:
		m.both(Op{Kind: CMSIncrBy, Key: key("cms")[:4], Keys: [][]byte{item}, Deltas: []int64{int64(1 + k)}})
	case 20:
		if len(m.sent) > 0 {
			m.both(m.sent[m.rnd.IntN(len(m.sent))])
		}
	case 21:
		m.clock.advance(time.Duration(m.rnd.IntN(40)) * time.Millisecond)
	case 22:
		switch m.rnd.IntN(40) {
		case 0:
			m.all(func(s *Store) error { return do(s, Op{Kind: FlushAll}).Err })
		case 1, 2:
			m.all(func(s *Store) error {
				return s.CreateTable(TableOptions{Name: "t", Prefix: "k1", Window: time.Hour})
			})
		case 3, 4:
			window := time.Duration(30+k) * time.Minute
			m.all(func(s *Store) error { return s.AlterTable("t", TableChange{Window: &window}) })
		case 5:
			m.all(func(s *Store) error { return s.DropTable("t") })
		}
	}
}

// all does something in all stores, which must succeed in all, or fail.
func (m *moveModel) all(do func(s *Store) error) {
	m.t.Helper()
	want := do(m.plain)
	for i := range m.shard {
		if err := do(m.shard[i]); (err == nil) != (want == nil) {
			m.t.Fatalf("shard %d: %v; it should be %v", i, err, want)
		}
	}
}

// compare asks both worlds everything.
func (m *moveModel) compare() {
	m.t.Helper()
	for _, op := range m.sent {
		m.both(op)
	}
	var keys []string
	for i := range 300 {
		keys = append(keys, fmt.Sprint("k", i), fmt.Sprint("a:k", i), fmt.Sprint("bounded", i%60),
			fmt.Sprint("at", i%60))
	}
	for i := range 10 {
		keys = append(keys, fmt.Sprint("fbf", i), fmt.Sprint("bf", i), fmt.Sprint("cms", i))
	}
	for _, key := range keys {
		for _, kind := range []Kind{Get, TypeOf, ExpireTime} {
			m.both(Op{Kind: kind, Key: []byte(key)})
		}
	}
	for i := range 300 {
		item := [][]byte{fmt.Appendf(nil, "item%d", i)}
		for n := range 10 {
			m.both(Op{Kind: FBFExists, Key: fmt.Appendf(nil, "fbf%d", n), Keys: item})
			m.both(Op{Kind: BFExists, Key: fmt.Appendf(nil, "bf%d", n), Keys: item})
			m.both(Op{Kind: CMSQuery, Key: fmt.Appendf(nil, "cms%d", n), Keys: item})
		}
	}
	scanned, alive := len(scanAll(m.t, m.shard[0]))+len(scanAll(m.t, m.shard[1])), len(scanAll(m.t, m.plain))
	if scanned != alive {
		m.t.Fatalf("SCAN finds %d keys; it should be %d", scanned, alive)
	}
	checkTop(m.t, m.plain, "", 25)
	checkTop(m.t, m.shard[0], "", 25)
	checkTop(m.t, m.shard[1], "", 25)
	eventually(m.t, "there are so many keys, once those that have expired are removed", func() bool {
		got := int64(0)
		for _, s := range m.shard {
			n, err := s.DBSize()
			must(m.t, err)
			got += n
		}
		return got == int64(alive)
	})
}

// scanAll returns all keys that SCAN finds.
func scanAll(t *testing.T, s *Store) map[string]Type {
	t.Helper()
	all := make(map[string]Type)
	for cursor := uint64(0); ; {
		next, err := s.Scan(cursor, 100, func(key []byte, kind Type) { all[string(key)] = kind })
		must(t, err)
		if cursor = next; next == 0 {
			return all
		}
	}
}

// TestMoveModel: partitions move to and fro under operations of all kinds, while stores save,
// and start again in order or not; a third store, of which nothing ever moves, gives the
// same answers (G1, G2, G5).
func TestMoveModel(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			m := newMoveModel(t, seed)
			steps := func() {
				for range m.rnd.IntN(400) {
					m.step()
				}
			}
			for range 12 / (raced.Slowdown/5 + 1) {
				steps()
				p := m.rnd.IntN(len(m.owner))
				from, to := m.owner[p], 1-m.owner[p]
				if m.rnd.IntN(2) == 0 {
					must(t, m.shard[from].Snapshot())
					steps()
				}
				out, in := m.begin(m.shard[from], m.shard[to], uint16(p))
				for range m.rnd.IntN(3) {
					steps()
					m.follow(out, in, 1+m.rnd.IntN(2000))
				}
				if m.rnd.IntN(4) == 0 { // it does not move after all
					out.Close()
					must(t, in.Discard())
					continue
				}
				steps()
				m.end(m.shard[from], m.shard[to], uint16(p), out, in)
				m.owner[p] = to
				switch i := m.rnd.IntN(2); m.rnd.IntN(5) {
				case 0:
					must(t, m.shard[i].Close())
					m.open(i)
				case 1:
					must(t, m.shard[i].CloseNow())
					m.open(i)
				case 2:
					must(t, m.shard[i].Snapshot())
				}
			}
			m.compare()
			for i := range m.shard {
				must(t, m.shard[i].Close())
				report, err := Check(CheckOptions{Dir: m.dirs[i], FS: m.fs})
				must(t, err)
				if len(report.Problems)+len(report.Notes) > 0 {
					t.Errorf("check: %v %v", report.Problems, report.Notes)
				}
				m.open(i)
			}
			m.compare()
		})
	}
}
