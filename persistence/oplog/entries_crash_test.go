package oplog

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/fbfkv/fbfkv/internal/raced"
	"github.com/fbfkv/fbfkv/persistence/crashtest"
)

// shardLog is what a replicated log should have.
type shardLog struct {
	first   uint64   // index of the first entry
	terms   []uint64 // of the entries from there on
	applied uint64   // as SetApplied said
	noted   uint64   // as a durable record notes at least
	low     uint64   // sections of the partition below it may be gone
	// committed has the terms of entries that were applied, and whose sections are needed.
	committed map[uint64]uint64
}

func (m *shardLog) next() uint64 { return m.first + uint64(len(m.terms)) }

func (m *shardLog) clone() *shardLog {
	c := *m
	c.terms, c.committed = slices.Clone(m.terms), maps.Clone(m.committed)
	return &c
}

// apply says that entries up to an index were applied.
func (m *shardLog) apply(index uint64) {
	for i := max(m.first, m.applied+1); i <= index && i < m.next(); i++ {
		m.committed[i] = m.terms[i-m.first]
	}
	m.applied = index
}

// begin makes everything void: the log goes on behind the applied index.
func (m *shardLog) begin() {
	maps.DeleteFunc(m.committed, func(i, _ uint64) bool { return i > m.noted })
	m.first, m.terms, m.noted = m.applied+1, nil, m.applied
}

// is reports whether an open log is that.
func (m *shardLog) is(l *Log) error {
	first, last := l.EntryBounds()
	if last == 0 {
		first, last = m.next(), m.next()-1 // none
	}
	if last+1 != m.next() || first > m.first {
		return fmt.Errorf("entries %d to %d instead of %d to %d", first, last, m.first, m.next()-1)
	}
	for i, term := range m.terms {
		var e Entry
		if err := l.Entry(m.first+uint64(i), &e); err != nil || e.Term != term {
			return fmt.Errorf("entry %d of term %d instead of %d: %w", e.Index, e.Term, term, err)
		}
	}
	if a := l.Applied(); a < m.noted || a > m.applied {
		return fmt.Errorf("%d was applied, not %d to %d", a, m.noted, m.applied)
	}
	return m.shows(l)
}

// shows reports whether Read shows what was applied, and nothing else.
func (m *shardLog) shows(l *Log) error {
	shown := make(map[uint64]bool)
	before := uint64(0)
	err := l.Read(0, 0, func(seq uint64, content []byte) error {
		if term, ok := m.committed[seq]; !ok || seq <= before || seq > l.Applied() ||
			string(content) != fmt.Sprintf("t%d", term) {
			return fmt.Errorf("a section %d of %s is shown, behind %d", seq, content, before)
		}
		shown[seq], before = true, seq
		return nil
	})
	for i := range m.committed {
		if i >= m.low && i <= l.Applied() && !shown[i] {
			err = errors.Join(err, fmt.Errorf("section %d is not shown", i))
		}
	}
	return err
}

// shardRun does random things to a replicated log and crashes while it does.
type shardRun struct {
	t    *testing.T
	rng  *rand.Rand
	mem  *vfs.MemFS
	l    *Log
	m    *shardLog // what the log has
	term uint64
	cuts int // suffixes cut so far

	mu   sync.Mutex // files are prepared beside
	dice *rand.Rand // of the crashes
	may  []*shardLog
	left []crashedShard
}

// crashedShard is what a crash left, and what it may be.
type crashedShard struct {
	mem *vfs.MemFS
	may []*shardLog
}

func (r *shardRun) options() Options {
	mem := r.mem
	o := shardOptions(errorfs.Wrap(mem, errorfs.InjectorFunc(func(errorfs.Op) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.dice.IntN(200) == 0 {
			r.left = append(r.left,
				crashedShard{crashtest.Left(mem, []int{0, 30, 70, 100}[r.dice.IntN(4)], r.dice), r.may})
		}
		return nil
	})))
	o.FileSize = 20 << 10
	return o
}

// becomes says what the log may be from now on.
func (r *shardRun) becomes(may ...*shardLog) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.may = may
}

// do calls fn, during which the log becomes one of the given ones and at last the last.
func (r *shardRun) do(what string, may []*shardLog, fn func() error) {
	r.t.Helper()
	r.becomes(append([]*shardLog{r.m.clone()}, may...)...)
	if err := fn(); err != nil {
		r.t.Fatal(what, err)
	}
	r.m = may[len(may)-1]
	r.becomes(r.m.clone())
}

// appends appends entries, behind a gap if there is one.
func (r *shardRun) appends() {
	if r.rng.IntN(4) == 0 {
		r.term++
	}
	m := r.m.clone()
	if m.applied >= m.next() {
		m.begin()
	}
	may := []*shardLog{m.clone()}
	var es []Entry
	for range 1 + r.rng.IntN(5) {
		e := entry(m.next(), r.term)
		if r.rng.IntN(3) == 0 {
			e.Extensions = crashtest.Record(r.rng.Uint64())
		}
		es = append(es, e)
		m.terms, m.noted = append(m.terms, r.term), m.applied
		may = append(may, m.clone())
	}
	r.do("append", may, func() error { return r.l.AppendEntries(es, 0) })
}

// step does one thing.
func (r *shardRun) step() {
	m := r.m.clone()
	last := m.next() - 1
	switch k := r.rng.IntN(20); {
	case k < 9 && m.applied < last:
		m.apply(m.applied + 1 + r.rng.Uint64N(last-m.applied))
		r.m = m
		r.becomes(m.clone())
		r.l.SetApplied(m.applied)
	case k < 11 && m.applied < last:
		from := max(m.first, m.applied+1) + r.rng.Uint64N(last+1-max(m.first, m.applied+1))
		m.terms, m.noted = m.terms[:from-m.first], m.applied
		r.cuts++
		r.term++
		r.do("cut", []*shardLog{m}, func() error { return r.l.DeleteEntries(from, last) })
	case k == 11 && len(m.terms) > 0:
		// a state came from elsewhere
		m.applied = max(m.applied, m.first+r.rng.Uint64N(uint64(2*len(m.terms))))
		r.l.SetApplied(m.applied)
		m.begin()
		r.m.applied = m.applied
		r.do("void", []*shardLog{m}, func() error { return r.l.DeleteEntries(0, last) })
	case k == 12 && m.applied > m.first && m.applied < last:
		m.terms, m.first = m.terms[m.applied-m.first:], m.applied
		r.do("give up", []*shardLog{m}, func() error { return r.l.DeleteEntries(0, m.first-1) })
	case k == 13:
		m.low = max(m.low, m.noted)
		r.do("trim", []*shardLog{m}, func() error { return r.l.Trim(0, m.low) })
	case k == 15 && m.applied < m.next():
		m.noted = m.applied
		r.do("sync", []*shardLog{m}, func() error { return r.l.Sync() })
	case k == 14 && r.rng.IntN(4) == 0:
		m.apply(max(m.applied, last+r.rng.Uint64N(3)))
		r.m = m
		r.becomes(m.clone())
		r.l.SetApplied(m.applied)
	default:
		r.appends()
	}
}

// check opens what crashes left, and counts it; the run goes on with one of them.
func (r *shardRun) check() (crashes int) {
	r.t.Helper()
	r.mu.Lock()
	left := r.left
	r.left = nil
	r.mu.Unlock()
	for _, c := range left {
		o := shardOptions(c.mem)
		o.FileSize = 20 << 10
		l, err := tryOpen(o)
		if err != nil {
			r.t.Fatal(err)
		}
		i := slices.IndexFunc(c.may, func(m *shardLog) bool { return m.is(l) == nil })
		if i < 0 {
			for _, m := range c.may {
				r.t.Error(m.is(l))
			}
			r.t.Fatal("a crash left something else")
		}
		mustClose(r.t, l)
		if r.rng.IntN(3) == 0 {
			mustClose(r.t, r.l)
			r.mem, r.m = c.mem, c.may[i].clone()
			r.open()
		}
	}
	return len(left)
}

// open opens the log again: what nobody has noted was not applied.
func (r *shardRun) open() {
	r.t.Helper()
	r.becomes(r.m)
	r.l = mustOpen(r.t, r.options())
	r.m.applied = r.l.Applied()
	if r.m.noted = r.m.applied; len(r.m.terms) == 0 {
		r.m.first = r.m.next()
	}
	maps.DeleteFunc(r.m.committed, func(i, _ uint64) bool { return i > r.m.applied && i >= r.m.first })
	if err := r.m.is(r.l); err != nil {
		r.t.Fatal(err)
	}
	r.becomes(r.m.clone())
}

// TestEntriesCrash loses the power at any step: what was appended or deleted is so, what
// was cut never comes back, and what was applied is never beyond what the log has.
func TestEntriesCrash(t *testing.T) {
	for seed := uint64(0); seed < 8; seed += raced.Step {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := &shardRun{
				t: t, rng: rand.New(rand.NewPCG(seed, 3)), dice: rand.New(rand.NewPCG(seed, 4)),
				mem: vfs.NewCrashableMem(), term: 1,
				m: &shardLog{first: 1, low: 1, committed: make(map[uint64]uint64)},
			}
			r.open()
			crashes := 0
			for range 400 {
				r.step()
				crashes += r.check()
				if r.rng.IntN(10) > 0 {
					continue
				}
				if err := r.l.BeginRecovery(0); err != nil {
					t.Fatal(err)
				}
				if err := r.m.is(r.l); err != nil {
					t.Fatal(err)
				}
				r.l.EndRecovery()
			}
			files, _ := r.l.Sizes()
			t.Log(crashes, r.cuts, files)
			mustClose(t, r.l)
			if crashes == 0 || r.cuts == 0 || files > 40 {
				t.Fatalf("%d crashes, %d cuts, %d files: the test does not reach what it is for", crashes,
					r.cuts, files)
			}
		})
	}
}
