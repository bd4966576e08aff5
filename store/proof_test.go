package store

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// testDoubt is a region that others have read, and that a test tells numbers.
type testDoubt struct {
	*testRegions
	a, b  *testRegion
	known uint64 // incarnation
}

func newTestDoubt(t *testing.T, parts ...int) *testDoubt {
	w := newTestRegions(t, 1, parts...)
	d := &testDoubt{w, w.r[0], w.r[1], w.r[0].s.Meta().Incarnation}
	d.write()
	w.drain()
	d.write()
	w.drain()
	return d
}

func (d *testDoubt) write() {
	d.t.Helper()
	for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		must(d.t, do(d.a.s, Op{Kind: IncrBy, Key: []byte(key), Delta: 1}).Err)
	}
}

// goesOn fails unless the region is what it was, and what it does reaches the other one.
func (d *testDoubt) goesOn(what string, err, want error) {
	d.t.Helper()
	if !errors.Is(err, want) || want == ErrStream && errors.Is(err, ErrAhead) {
		d.t.Errorf("%s: %v", what, err)
	}
	if m := d.a.s.Meta(); m.Incarnation != d.known || d.a.s.unread.Load() != nil {
		d.t.Fatalf("%s: a number fences it: %+v", what, m)
	}
	d.write()
	d.drain()
	here, _ := get(d.a.s, "a")
	if there, _ := get(d.b.s, "a"); here != there {
		d.t.Errorf("%s: the other region has %d, and not %d", what, there, here)
	}
}

// TestNumberIsNoEvidence: whatever number a request or an answer names, the region goes on, keeps its log for
// the other one, and believes nothing of it.
func TestNumberIsNoEvidence(t *testing.T) {
	d := newTestDoubt(t, 2, 2)
	last := d.a.s.LastOf(0)
	_, most := slotRange(0, 2)
	for _, x := range []struct {
		ahead uint64
		want  error
	}{
		{1, ErrAhead}, {MaxAhead, ErrAhead}, {MaxAhead + 1, ErrStream},
		// Behind jumps (incarnationBits): a directory that was put back from before them would see this.
		{1 << 62, ErrAhead}, {1 << 63, ErrAhead}, {1<<62 + MaxAhead + 1, ErrStream},
		{1<<62 - 1000, ErrStream},
	} {
		after := last + x.ahead
		_, err := d.a.s.Pull(Pull{By: 1, Group: 77, Incarnation: d.known, Partition: 0, First: 0, Last: most,
			After: after, Acked: after})
		if acked := d.a.s.peer(1).acked[0][0]; acked > last {
			t.Errorf("it gives up its log up to %d, of %d", acked, last)
		}
		d.goesOn("is asked", err, x.want)
		last = d.a.s.LastOf(0)
	}
}

// answer returns an answer of the other region, changed.
func (d *testDoubt) answer(change func(p *pulled, w *sectionWriter)) []byte {
	d.t.Helper()
	must(d.t, do(d.b.s, Op{Kind: IncrBy, Key: []byte("a"), Delta: 1}).Err)
	n := Slot([]byte("a")) >> d.b.s.shift
	first, _ := slotRange(int(n), 2)
	b, err := d.pull(d.a, d.b, n, first, 0)
	must(d.t, err)
	return changed(d.t, b, change)
}

// changed returns another answer: w has its last section.
func changed(t *testing.T, b []byte, change func(p *pulled, w *sectionWriter)) []byte {
	t.Helper()
	p, err := decodePulled(b, new(pulledMemory))
	must(t, err)
	w := sectionWriter{last: p.after, end: p.after}
	var sections []byte
	must(t, p.each(func(e *pulledEntry) error {
		sections = w.add(sections, e)
		return nil
	}))
	p.sections = nil
	change(&p, &w)
	p.sections = w.finish(sections)
	return p.appendTo(nil)
}

// says lets an answer say that the source has taken a log.
func says(of RegionSource, seq func() uint64) func(p *pulled, w *sectionWriter) {
	return func(p *pulled, w *sectionWriter) {
		e := pulledEntry{entry: entry{kind: entryCursor,
			r: &regional{cursor: RegionCursor{RegionTaken: RegionTaken{of, seq()}}}}, seq: w.last + 1}
		w.nextEnd++
		w.add(nil, &e)
		if p.page == nil {
			p.upTo++
		}
	}
}

// TestAnswerIsNoEvidence: an answer that names an entry which this region has not got is refused,
// and so is one that would move a cursor out of reach.
func TestAnswerIsNoEvidence(t *testing.T) {
	d := newTestDoubt(t, 2, 2)
	n := Slot([]byte("a")) >> d.a.s.shift
	own := RegionSource{0, n}
	for _, x := range []struct {
		name   string
		want   error
		change func(p *pulled, w *sectionWriter)
	}{
		{"own log", ErrAhead, says(own, func() uint64 { return d.a.s.LastOf(n) + 1 })},
		{"own log, far", ErrStream, says(own, func() uint64 { return d.a.s.LastOf(n) + MaxAhead + 1 })},
		{"own log, another partition", ErrAhead,
			says(RegionSource{0, 1 - n}, func() uint64 { return d.a.s.LastOf(1-n) + 1 })},
		{"own log, no partition", ErrStream, says(RegionSource{0, 2}, func() uint64 { return 1 })},
		{"a third region", ErrStream, says(RegionSource{2, 0}, func() uint64 { return MaxAhead + 1 })},
		{"its own log", ErrStream, func(p *pulled, w *sectionWriter) { p.upTo += MaxAhead }},
	} {
		before, _, err := d.a.s.TakenOf(n, RegionSource{1, n})
		must(t, err)
		_, err = d.a.s.Take(d.answer(x.change))
		if after, _, _ := d.a.s.TakenOf(n, RegionSource{1, n}); after > before {
			t.Errorf("%s: the cursor goes from %d to %d", x.name, before, after)
		}
		if heard := d.a.s.partitions[n].regions.heard[RegionSource{1, n}][own]; heard > d.a.s.LastOf(n) {
			t.Errorf("%s: it is believed that %d was taken", x.name, heard)
		}
		d.goesOn(x.name, err, x.want)
	}
}

// TestStateIsNoEvidence: the same of a state.
func TestStateIsNoEvidence(t *testing.T) {
	d := newTestDoubt(t, 1, 1)
	own := RegionSource{0, 0}
	ask := StateQuery{Pull: Pull{
		By: 0, Group: 77, Incarnation: d.b.s.Meta().Incarnation, First: 0, Last: slots - 1,
		Most: 1 << 20,
	}, Of: 1}
	for _, x := range []struct {
		name   string
		want   error
		change func(p *pulled, w *sectionWriter)
	}{
		{"nothing", nil, func(p *pulled, w *sectionWriter) {}},
		{"own log", ErrAhead, says(own, func() uint64 { return d.a.s.LastOf(0) + 1 })},
		{"own log, far", ErrStream, says(own, func() uint64 { return d.a.s.LastOf(0) + MaxAhead + 1 })},
		{"its own log", ErrStream, func(p *pulled, w *sectionWriter) { p.upTo += MaxAhead + 1 }},
	} {
		b, err := d.b.s.State(ask)
		must(t, err)
		_, err = d.a.s.Take(changed(t, b, x.change))
		d.goesOn(x.name, err, x.want)
	}
}

// TestProof: only a position that this directory has told, and does not have, is evidence.
func TestProof(t *testing.T) {
	d := newTestDoubt(t, 4, 2)
	genuine := d.positions(d.b, d.a)
	if len(genuine) != 4 {
		t.Fatalf("%d of 4 positions are proved: %v", len(genuine), genuine)
	}
	for _, at := range genuine {
		if last := d.a.s.LastOf(at.Partition); at.Seq != last {
			t.Errorf("partition %d was taken up to %d, of %d", at.Partition, at.Seq, last)
		}
	}
	must(t, d.a.s.Snapshot()) // positions are in the state row, too
	w := d.testRegions
	w.reopenAs(d.b, d.b.fs)
	if again := w.positions(d.b, d.a); !slices.Equal(again, genuine) {
		t.Errorf("after a start they are %v, and not %v", again, genuine)
	}
	for name, change := range map[string]func(p *Position){
		"as it is":             func(*Position) {},
		"no proof":             func(p *Position) { p.Seq, p.Proof = p.Seq+9, Proof{} },
		"another sequence":     func(p *Position) { p.Seq += 9 },
		"another fingerprint":  func(p *Position) { p.Print++ },
		"another code":         func(p *Position) { p.Seq, p.Code = p.Seq+9, p.Code+1 },
		"another partition":    func(p *Position) { p.Partition ^= 1; p.Seq += 9 },
		"a partition too many": func(p *Position) { p.Partition = 99 },
		"another region's":     func(p *Position) { p.Region = 1; p.Seq += 9 },
		"another directory's": func(p *Position) {
			p.Seq += 9
			p.Proof = d.b.s.prove(p.RegionSource, d.known, logEnd{p.Seq, p.Print})
		},
		"another incarnation's": func(p *Position) {
			p.Seq += 9
			p.Proof = d.a.s.prove(p.RegionSource, d.known+1, logEnd{p.Seq, p.Print})
		},
	} {
		all := slices.Clone(genuine)
		for i := range all {
			change(&all[i])
		}
		d.goesOn(name, d.a.s.Examine(1, all), nil)
	}
	at := genuine[2]
	at.Print++
	at.Proof = d.a.s.prove(at.RegionSource, d.known, logEnd{at.Seq, at.Print})
	d.a.clock.step(time.Second)
	if err := d.a.s.Examine(1, []Position{at}); !errors.Is(err, errWentBack) {
		t.Errorf("another entry than it has told: %v", err)
	}
	if err := do(d.a.s, Op{Kind: IncrBy, Key: []byte("a"), Delta: 1}).Err; !errors.Is(err, ErrRestored) {
		t.Errorf("a write: %v", err)
	}
}

// TestPullIsCompared: a pull that goes on behind an entry which is another one here is refused: the last
// entry, one of many, or one that is read for the second time. It fences nobody.
func TestPullIsCompared(t *testing.T) {
	d := newTestDoubt(t, 1, 1)
	at := d.positions(d.b, d.a)[0]
	pull := func(code uint64) error {
		_, err := d.a.s.Pull(Pull{By: 1, Group: 77, Incarnation: d.known, First: 0, Last: slots - 1,
			After: at.Seq, Code: code, Acked: at.Seq})
		return err
	}
	for _, what := range []string{"the last entry", "one of many", "once more", "after a start"} {
		switch what {
		case "one of many":
			d.write()
			d.a.s.peers.of[1].told = nil
		case "after a start":
			d.reopenAs(d.a, d.a.fs)
		}
		if err := pull(at.Code); err != nil {
			t.Errorf("%s: what it has told: %v", what, err)
		}
		if err := pull(at.Code + 1); !errors.Is(err, ErrAhead) {
			t.Errorf("%s: what it has not told: %v", what, err)
		}
		if err := pull(0); err != nil {
			t.Errorf("%s: without a proof: %v", what, err)
		}
		d.goesOn(what, nil, nil)
	}
	if code := d.b.s.CodeOf(0, at.RegionSource, at.Seq); code != 0 {
		t.Errorf("an old position has the code %d", code)
	}
	at = d.positions(d.b, d.a)[0]
	if code := d.b.s.CodeOf(0, at.RegionSource, at.Seq); code != at.Code {
		t.Errorf("the position has the code %d, and not %d", code, at.Code)
	}
}

// TestUncompared: a position to which no reading of the log has come is not right by that: it is compared the
// next time.
func TestUncompared(t *testing.T) {
	d := newTestDoubt(t, 1, 1)
	at := d.positions(d.b, d.a)[0]
	d.write()
	d.a.s.peers.of[1].told = nil
	for _, c := range []struct {
		examines int
		want     error
	}{{0, nil}, {0, nil}, {maxExamined, ErrAhead}} {
		d.a.s.examines = c.examines
		_, err := d.a.s.Pull(Pull{By: 1, Group: 77, Incarnation: d.known, First: 0, Last: slots - 1,
			After: at.Seq, Code: at.Code + 1, Acked: at.Seq})
		if !errors.Is(err, c.want) {
			t.Errorf("%d bytes are read: %v", c.examines, err)
		}
	}
}

// TestProofOfState: a position that comes from a state is proved as well.
func TestProofOfState(t *testing.T) {
	w := newTestRegions(t, 1, 1, 1)
	a, b := w.r[0], w.r[1]
	must(t, do(a.s, Op{Kind: IncrBy, Key: []byte("a"), Delta: 1}).Err)
	at := &stateRead{from: a}
	w.exchange(b, at)
	all := w.positions(b, a)
	if len(all) != 1 || all[0].Seq != a.s.LastOf(0) ||
		all[0].Proof != a.s.prove(all[0].RegionSource, 0, a.s.partitions[0].end) {
		t.Errorf("%+v, and the last entry is %d", all, a.s.LastOf(0))
	}
}

// TestProofAhead: what a log tells is proved also where nothing of it is logged: idle regions tell each other
// positions only.
func TestProofAhead(t *testing.T) {
	w := newTestRegions(t, 1, 1, 1)
	a, b := w.r[0], w.r[1]
	must(t, do(a.s, Op{Kind: IncrBy, Key: []byte("a"), Delta: 1}).Err)
	w.drain()
	must(t, do(b.s, Op{Kind: IncrBy, Key: []byte("a"), Delta: 1}).Err)
	w.drain() // a logs that it has taken it
	all := w.positions(b, a)
	if after, acked, err := b.s.TakenOf(0, RegionSource{0, 0}); err != nil || acked >= after ||
		len(all) != 1 || all[0].Seq != after {
		t.Errorf("%v are proved; what is taken ends at %d, and what is logged at %d, %v", all, after, acked,
			err)
	}
	must(t, a.s.Examine(1, all))
}
