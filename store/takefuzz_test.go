package store

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/fbfkv/fbfkv/internal/raced"
	"github.com/fbfkv/fbfkv/store/part"
)

// fuzzIncarnation is the incarnation of the source whose answers FuzzTake takes.
const fuzzIncarnation = 5

// fuzzSince is how far it had been taken before; there it became a member.
const fuzzSince = 2

func openTakeStore(t testing.TB, fs vfs.FS, clock *fakeClock, seed byte) *Store {
	s, err := Open(Options{Dir: "data", FS: fs, Partitions: 1, Seed: [16]byte{seed}, SnapshotInterval: -1,
		MinFreeDisk: -1, Clock: clock.now})
	must(t, err)
	return s
}

// takeStore is region 1 of three of one partition, which reads another one's log.
func takeStore(t testing.TB, fs vfs.FS) *Store {
	s := openTakeStore(t, fs, newFakeClock(), 1)
	must(t, s.AlterTable(DefaultTable, TableChange{Mode: ptr(Exact)}))
	set := threeRegions(1, 1)
	set.Era, set.Members[0].Incarnation = 1, fuzzIncarnation
	must(t, s.SetRegions(set))
	must(t, do(s, Op{Kind: regionCursor,
		Object: &RegionCursor{RegionTaken: RegionTaken{RegionSource{0, 0}, fuzzSince}}}).Err)
	for i := range 4 {
		key := fmt.Appendf(nil, "k%d", i)
		must(t, do(s, Op{Kind: CIncrBy, Key: key, ID: fmt.Appendf(nil, "op%d", i), Delta: 3}).Err)
	}
	return s
}

// takeAnswers are real answers to pulls of such a store: all kinds of entries that are told.
func takeAnswers(t testing.TB) (answers [][]byte) {
	clock := newFakeClock()
	clock.step(-1e9) // it is first
	s := openTakeStore(t, vfs.NewMem(), clock, 2)
	must(t, s.AlterTable(DefaultTable, TableChange{Mode: ptr(Exact)}))
	set := threeRegions(0, 1)
	set.Era = 1
	must(t, s.SetRegions(set))
	if n := s.CommittedOf(0); n != fuzzSince {
		t.Fatalf("it became a member at entry %d", n)
	}
	wall, _ := clock.now()
	for i := range 4 {
		key, id := fmt.Appendf(nil, "k%d", i), fmt.Appendf(nil, "op%d", i)
		clock.advance(1e9)
		for _, op := range []Op{
			{Kind: CIncrBy, Key: key, ID: id, Delta: int64(i) + 3},
			{Kind: CIncrBy, Key: key, ID: append(id, "new"...), Delta: -1},
			{Kind: IncrBy, Key: key, Delta: 10},
			{Kind: ExpireAt, Key: key, ExpireAt: wall + 1e6},
			{Kind: Set, Key: fmt.Appendf(nil, "s%d", i), Delta: 8},
			{Kind: Del, Keys: [][]byte{fmt.Appendf(nil, "s%d", max(i-1, 0))}},
			{Kind: regionMerge, Key: key, Object: []Change{added(2, uint64(i)+1, 100)}},
			{Kind: regionHear, Key: key, ID: id,
				Object: &Heard{Origin: 2, Dot: uint64(i) + 1, Wall: wall - 1, Delta: 3}},
			{Kind: regionCursor,
				Object: &RegionCursor{RegionTaken: RegionTaken{RegionSource{2, 0}, uint64(i) + 1}}},
		} {
			must(t, do(s, op).Err)
		}
	}
	kinds := make(map[entryKind]bool)
	for _, most := range []int{1, 100, 200, 400, 800, 0} {
		b, err := s.Pull(Pull{By: 1, Group: set.Group, Incarnation: s.Meta().Incarnation, Last: slots - 1,
			After: fuzzSince, Most: most})
		must(t, err)
		d, err := decodePulled(b, new(pulledMemory))
		must(t, err)
		must(t, d.each(func(e *pulledEntry) error {
			kinds[e.kind] = true
			return nil
		}))
		d.incarnation = fuzzIncarnation // it was drawn
		answers = append(answers, d.appendTo(nil))
	}
	if len(kinds) != 7 { // all but entrySpent
		t.Errorf("only these kinds are told: %v", kinds)
	}
	must(t, s.CloseNow())
	return answers
}

// takePages are the pages of the state of such a store.
func takePages(t testing.TB) (pages [][]byte) {
	s := openTakeStore(t, vfs.NewMem(), newFakeClock(), 3)
	must(t, s.AlterTable(DefaultTable, TableChange{Mode: ptr(Exact)}))
	set := threeRegions(0, 1)
	set.Era, set.Version = 1, 1
	must(t, s.SetRegions(set))
	for i := range 3 {
		key := fmt.Appendf(nil, "k%d", i)
		must(t, do(s, Op{Kind: CIncrBy, Key: key, ID: fmt.Appendf(nil, "op%d", i), Delta: 3}).Err)
		must(t, do(s, Op{Kind: regionMerge, Key: key, Object: []Change{added(2, uint64(i)+1, 100)}}).Err)
	}
	must(t, do(s, Op{Kind: regionCursor,
		Object: &RegionCursor{RegionTaken: RegionTaken{RegionSource{2, 0}, 3}}}).Err)
	p := s.partitions[0]
	p.lock()
	p.noteOwed([]byte("k1"), []part.Owed{owedOp(0, 2, 3)})
	p.regions.stated[statement{2, RegionSource{0, 0}}] = stated{1, 2}
	p.mu.Unlock()
	q := StateQuery{Pull: Pull{
		By: 1, Group: set.Group, Incarnation: s.Meta().Incarnation, Last: slots - 1, Most: 1 << 20,
	}}
	kinds := make(map[entryKind]bool)
	for {
		b, err := s.State(q)
		must(t, err)
		d, err := decodePulled(b, new(pulledMemory))
		must(t, err)
		must(t, d.each(func(e *pulledEntry) error {
			kinds[e.kind] = true
			return nil
		}))
		d.incarnation = fuzzIncarnation
		pages = append(pages, d.appendTo(nil))
		if q.Seq, q.At = d.upTo, d.page.next; len(q.At) == 0 {
			break
		}
	}
	if len(kinds) != 5 || len(pages) != 2 {
		t.Errorf("%d pages have only these kinds: %v", len(pages), kinds)
	}
	must(t, s.CloseNow())
	return pages
}

// known is all that a partition has of regions.
func (p *partition) known() string {
	p.taking.mu.Lock()
	defer p.taking.mu.Unlock()
	p.lock()
	defer p.mu.Unlock()
	return fmt.Sprintf("%d %x %v %v", p.seq, p.regions.appendTo(nil), p.taking.ahead, p.taking.heard)
}

// mutate changes a few bytes of an answer.
func mutate(b []byte, rnd *rand.Rand) []byte {
	b = bytes.Clone(b)
	for range 1 + rnd.IntN(3) {
		switch i := rnd.IntN(len(b)); rnd.IntN(4) {
		case 0:
			b = append(b[:i], b[min(i+1+rnd.IntN(4), len(b)):]...)
		case 1:
			b = append(b[:i:i], append([]byte{byte(rnd.Uint32())}, b[i:]...)...)
		default:
			b[i] = byte(rnd.Uint32())
		}
		if len(b) == 0 {
			return b
		}
	}
	return b
}

// FuzzTake takes what may come from another region. Nothing that is refused changes anything, and
// nothing that is taken does harm: the store goes on, also when it is opened again.
func FuzzTake(f *testing.F) {
	rnd := rand.New(rand.NewPCG(1, 2))
	answers, pages := takeAnswers(f), takePages(f)
	begun := func(t testing.TB, fs vfs.FS) *Store { // the second page is taken behind the first one
		s := takeStore(t, fs)
		_, err := s.Take(pages[0])
		must(t, err)
		return s
	}
	answers = append(answers, pages...)
	for _, b := range answers {
		s := begun(f, vfs.NewMem())
		if _, err := s.Take(b); err != nil {
			f.Fatalf("a real one is refused: %v", err)
		}
		must(f, s.CloseNow())
		f.Add(b)
	}
	for range 150 / raced.Slowdown {
		f.Add(mutate(answers[rnd.IntN(len(answers))], rnd))
	}
	f.Add(mutate([]byte{pulledVersion}, rnd))
	fs := vfs.NewMem()
	s := begun(f, fs)
	f.Fuzz(func(t *testing.T, b []byte) {
		p := s.partitions[0]
		before := p.known()
		taken, err := s.Take(b)
		switch {
		case errors.Is(err, ErrPulled) || errors.Is(err, ErrStream) || errors.Is(err, ErrEra):
			if now := p.known(); now != before {
				t.Errorf("%v, and yet: %s, before %s", err, now, before)
			}
			return
		case err == nil:
			d, err := decodePulled(b, new(pulledMemory))
			must(t, err)
			after, _, _ := s.TakenOf(0, RegionSource{Region: 0})
			if plain, _ := Unpack(nil, b); after != taken.Seq || !bytes.Equal(d.appendTo(nil), plain) {
				t.Errorf("taken up to %d of %d", after, taken.Seq)
			}
		}
		must(t, s.Failure())
		must(t, cincr(s, "another", "one", 1).Err)
		last := s.CommittedOf(0)
		must(t, s.CloseNow())
		s = openTakeStore(t, fs, newFakeClock(), 1)
		if s.partitions[0].seq != last {
			t.Errorf("opened again its log ends at %d, and not %d", s.partitions[0].seq, last)
		}
		must(t, s.CloseNow())
		fs = vfs.NewMem()
		s = begun(t, fs)
	})
}
