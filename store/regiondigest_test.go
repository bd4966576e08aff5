package store

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/store/part"
)

// agree compares the digests of regions once they have taken everything. The store drops keys by itself
// meanwhile, which others are then told.
func (w *testRegions) agree() {
	for _, r := range w.r { // what was to expire soon has
		r.clock.advance(30 * time.Minute)
	}
	for range 20 {
		w.drain()
		w.expire() // others may not know yet how late it is
		w.drain()
		if w.compare() {
			w.samePassing()
			return
		}
	}
	w.t.Error("the regions cannot be compared")
}

// compare compares all digests, and reports whether that could be done.
func (w *testRegions) compare() (ok bool) {
	ok = true
	for _, a := range w.r {
		for _, b := range w.r[:a.n] {
			w.ranges(a, b, func(n, first uint16) {
				last, _, _ := pullRange(int(n), b.parts, a.parts, first)
				differ, all := w.compared(a, b, first, last)
				if ok = ok && all; len(differ) > 0 {
					w.t.Errorf("regions %d and %d differ in the groups of slots from %v on", a.n, b.n, differ)
				}
			})
		}
	}
	return ok
}

// compared returns the first slots of the groups of a range in which two regions differ, and
// whether all groups could be compared.
func (w *testRegions) compared(a, b *testRegion, first, last uint16) (differ []uint16, all bool) {
	w.t.Helper()
	here, _ := a.clock.now()
	there, _ := b.clock.now()
	da, err := a.s.RegionDigest(w.t.Context(), first, last, max(here, there), false)
	must(w.t, err)
	db, err := b.s.RegionDigest(w.t.Context(), first, last, max(here, there), false)
	must(w.t, err)
	raw := db.appendTo(nil)
	if again, err := DecodeDigest(raw); err != nil || !reflect.DeepEqual(again, db) {
		w.t.Fatalf("%+v became %+v, %v", db, again, err)
	}
	set := w.set(a.n)
	all = true
	for i, is := range da.Compare(&db, &set) {
		if all = all && is != Unknown; is == Differ {
			differ = append(differ, first+uint16(i*DigestSlots))
		}
	}
	return differ, all
}

// passing does something to a counter that may expire: the region that has set that deletes it, and all
// forget it when they have heard that all know. The model knows nothing of these: regions are compared with
// each other.
func (w *testRegions) passing(r *testRegion) {
	n := w.rnd.IntN(w.opids/2 + 12)
	key, id, delta := fmt.Append(nil, "e", n%passingKeys), fmt.Append(nil, "p", n), int64(n%3+1)
	at, _ := r.clock.now()
	if at += w.rnd.Int64N(4000); w.rnd.IntN(4) == 0 {
		at += (24 * time.Hour).Milliseconds()
	}
	w.do(r, []Op{
		{Kind: CIncrEx, Key: key, ID: id, Delta: delta, Flags: HasExpire, ExpireAt: at},
		{Kind: CIncrBy, Key: key, ID: id, Delta: delta},
		{Kind: IncrBy, Key: key, Delta: w.rnd.Int64N(5) - 2},
		{Kind: ExpireAt, Key: key, ExpireAt: at},
		{Kind: Persist, Key: key},
		{Kind: Set, Key: key, Delta: 5},
		{Kind: Set, Key: key, Delta: 6, Flags: HasExpire, ExpireAt: at},
		{Kind: Del, Keys: [][]byte{key}},
	}[w.rnd.IntN(8)])
	w.steps["passing"]++
}

const passingKeys = 3

// samePassing compares the counters that may expire.
func (w *testRegions) samePassing() {
	for n := range passingKeys {
		key, first := fmt.Sprint("e", n), ""
		for _, r := range w.r {
			v, ok := get(r.s, key)
			at := do(r.s, Op{Kind: ExpireTime, Key: []byte(key)})
			got := fmt.Sprint(v, ok, at.Value, at.Found)
			if r.n == 0 {
				first = got
			}
			if got != first {
				w.t.Errorf("%s is %s in region %d, and %s in region 0", key, got, r.n, first)
			}
		}
	}
}

// spoil changes a part of a counter that is in memory, as nothing ever does.
func (p *partition) spoil(key string) {
	p.lock()
	defer p.mu.Unlock()
	p.hot.peek(key).parts()[0].Cum++
}

// TestRegionDigest: a digest tells one part of one key. Changes that one region has not taken of the
// other cannot be compared, and all else can.
func TestRegionDigest(t *testing.T) {
	w := newTestRegions(t, 1, 2, 1)
	a, b := w.r[0], w.r[1]
	for i := range 50 {
		cincr(w.r[i%2].s, fmt.Sprint("k", i), "op", 3)
	}
	w.agree()
	compare := func(want ...uint16) (all bool) {
		t.Helper()
		one, ok := w.compared(a, b, 0, slots/2-1)
		other, too := w.compared(a, b, slots/2, slots-1)
		if differ := append(one, other...); !slices.Equal(differ, want) {
			t.Errorf("%v differ, and not %v", differ, want)
		}
		return ok && too
	}
	group := Slot([]byte("k2")) / DigestSlots * DigestSlots
	get(b.s, "k2")
	b.s.partitions[0].spoil("k2")
	if !compare(group) {
		t.Error("not all was compared")
	}
	// it is being changed by either: nothing is said of it, and the rest is compared
	for _, r := range []*testRegion{a, b} {
		w.do(r, Op{Kind: IncrBy, Key: []byte("k2"), Delta: 1})
		if compare() {
			t.Errorf("compared although what region %d did was not taken", r.n)
		}
	}
	w.drain()
	if !compare(group) {
		t.Error("not all was compared")
	}
	if w.do(a, Op{Kind: Del, Keys: [][]byte{[]byte("k2")}}); compare() {
		t.Error("compared although a deletion was not taken")
	}
	for w.drain(); !compare(); w.drain() { // the cycle may forget the key between the two digests
	}
}

// TestDigestBuckets: of a group in which something differs, is being changed or was dropped, all
// but the bucket of that key is compared.
func TestDigestBuckets(t *testing.T) {
	w := newTestRegions(t, 1, 16, 4)
	a, b := w.r[0], w.r[1]
	var keys []string // of three groups of slots, and hardly two in a bucket
	const first = 5000 / DigestSlots * DigestSlots
	for i := 0; len(keys) < 40; i++ {
		if key := fmt.Sprint("k", i); Slot([]byte(key))/DigestSlots-first/DigestSlots < 3 {
			keys = append(keys, key)
			cincr(a.s, key, "op", 3)
		}
	}
	w.drain()
	set := w.set(0)
	forgotten := "" // a key that the cycle may forget between the two digests
	expect := func(what string, want map[string]Agreement) {
		t.Helper()
		da, err := a.s.RegionDigest(t.Context(), first, first+3*DigestSlots-1, 0, true)
		must(t, err)
		db, err := b.s.RegionDigest(t.Context(), first, first+3*DigestSlots-1, 0, true)
		must(t, err)
		raw := db.appendTo(nil)
		if again, err := DecodeDigest(raw); err != nil || !reflect.DeepEqual(again, db) {
			t.Fatalf("%+v became %+v, %v", db, again, err)
		}
		of := make(map[int]Agreement)
		for key, is := range want {
			of[sumOf([]byte(key), first/DigestSlots, true)] = is
		}
		for i, is := range da.Compare(&db, &set) {
			if forgotten != "" && is == Unknown && i == sumOf([]byte(forgotten), first/DigestSlots, true) {
				continue
			}
			if should, ok := of[i]; ok && is != should || !ok && is != Agree {
				t.Errorf("%s: bucket %d of group %d: %d", what, i%DigestBuckets, i/DigestBuckets, is)
			}
		}
	}
	expect("all is well", nil)
	for _, key := range keys[:2] {
		w.do(a, Op{Kind: IncrBy, Key: []byte(key), Delta: 1})
	}
	get(b.s, keys[2])
	b.s.partitions[Slot([]byte(keys[2]))>>b.s.shift].spoil(keys[2])
	expect("two are being changed, and one differs",
		map[string]Agreement{keys[0]: Unknown, keys[1]: Unknown, keys[2]: Differ})
	w.do(a, Op{Kind: Del, Keys: [][]byte{[]byte(keys[2])}})
	forgotten = keys[2]
	w.drain()
	expect("all was taken", nil)
	p := b.s.partitions[Slot([]byte(keys[3]))>>b.s.shift]
	p.lock()
	p.noteDropped([]byte(keys[3]), p.seq+1)
	p.mu.Unlock()
	expect("one was dropped just now", map[string]Agreement{keys[3]: Unknown})
}

// TestDigestOfGone: what an heir does to the part of a region that was removed is in the heir's
// log: until that was taken nothing is said, and from then on a part that is another one is a
// difference.
func TestDigestOfGone(t *testing.T) {
	set := RegionSet{Self: 0, Members: []RegionMember{{Region: 0, Partitions: 1}, {Region: 1, Partitions: 1},
		{Region: 2, Partitions: 1, Gone: true, Heir: 1}}}
	digest := func(r, other part.Region, taken, seq uint64, clocks []uint64) *RegionDigest {
		d := &RegionDigest{RegionSource: RegionSource{r,
			0}, Last: DigestSlots - 1, Seq: seq, Gone: 1 << 2, Sums: make([]DigestSum, 1)}
		d.Taken = []RegionTaken{{RegionSource{other, 0}, taken}}
		for i, clock := range clocks {
			k := foundKey{key: fmt.Append(nil, "k", i),
				parts: part.Parts{{Region: 2, Clock: clock, Live: clock, Cum: int64(clock)}}}
			d.Sums[0].add(nil, &k, 0, d.Gone)
		}
		return d
	}
	for _, c := range []struct {
		taken       uint64   // of the heir's 20 entries
		here, there []uint64 // the clocks of the parts
		want        Agreement
	}{
		{20, []uint64{7}, []uint64{7}, Agree}, {20, []uint64{5}, []uint64{7}, Differ},
		{19, []uint64{5}, []uint64{7}, Unknown}, {19, []uint64{7}, []uint64{7}, Agree},
		{19, []uint64{5, 9}, []uint64{7, 9}, Unknown}, // not the highest
		{19, nil, []uint64{7}, Unknown},               // dropped here
		{19, []uint64{7}, nil, Unknown},
	} {
		if got := digest(0, 1, c.taken, 10, c.here).Compare(digest(1, 0, 10, 20, c.there),
			&set); got[0] != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	d, unheard := digest(0, 1, 20, 10, []uint64{7}), digest(1, 0, 10, 20, []uint64{7})
	if unheard.Gone = 0; d.Compare(unheard, &set)[0] != Unknown {
		t.Error("one had not heard yet that a region is gone")
	}
}

// TestDigestOfDropped: a key that was dropped, with all that tells of its end, while regions were
// being compared is no difference.
func TestDigestOfDropped(t *testing.T) {
	w := newTestRegions(t, 1, 1, 1)
	a, b := w.r[0], w.r[1]
	key := []byte("k")
	cincr(a.s, "k", "x", 5)
	w.drain()
	before, err := a.s.RegionDigest(t.Context(), 0, slots-1, 0, false)
	must(t, err)
	w.do(a, Op{Kind: Del, Keys: [][]byte{key}})
	dropped := func(r *testRegion) bool {
		get(r.s, "k") // into memory
		p := r.s.partitions[0]
		p.lock()
		defer p.mu.Unlock()
		return p.hot.peek("k").parts() == nil
	}
	for range 20 {
		w.drain()
		for _, r := range w.r {
			r.s.dropEnded(r.s.partitions[0], new(Batch))
		}
		if dropped(b) {
			break
		}
	}
	if !dropped(b) {
		t.Fatal("not dropped")
	}
	after, err := b.s.RegionDigest(t.Context(), 0, slots-1, 0, false)
	must(t, err)
	set := w.set(0)
	for i, is := range before.Compare(&after, &set) {
		if here := i == int(Slot(key)/DigestSlots); here && is != Unknown || !here && is != Agree {
			t.Errorf("group %d: %d", i, is)
		}
	}
	w.agree()
}

// TestDigestEnds: who does not want a digest any more does not wait for it, also while another one is made.
func TestDigestEnds(t *testing.T) {
	w := newTestRegions(t, 1, 1, 1)
	a := w.r[0]
	ctx, cancel := context.WithCancel(t.Context())
	a.s.digesting <- struct{}{}
	ended := make(chan error)
	go func() {
		_, err := a.s.RegionDigest(ctx, 0, slots-1, 0, false)
		ended <- err
	}()
	select {
	case err := <-ended:
		t.Error("two at a time", err)
	case <-time.After(20 * time.Millisecond):
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-a.s.digesting
	for range 50 { // it may begin, and ends
		if _, err := a.s.RegionDigest(ctx, 0, slots-1, 0, false); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	_, err := a.s.RegionDigest(t.Context(), 0, slots-1, 0, false)
	must(t, err)
}

// TestDigestOfWriters: regions that are written all the time are found to agree in all that is not
// being changed, however the keys change, are deleted and dropped while they are read.
func TestDigestOfWriters(t *testing.T) {
	w := newTestRegions(t, 1, 1, 1)
	a, b := w.r[0], w.r[1]
	for i := range 3 * stateKeys { // some pages
		cincr(w.r[i%2].s, fmt.Sprint("k", i), "op", 3)
	}
	w.drain()
	const fleeting = 20
	stop, done := make(chan struct{}), make(chan struct{})
	written := make(chan struct{}, 1)
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case written <- struct{}{}:
			default:
			}
			do(w.r[i%2].s, Op{Kind: IncrBy, Key: []byte("hot"), Delta: 1})
			key := fmt.Append(nil, "fleeting", i/2%fleeting)
			do(w.r[i%2].s,
				[]Op{{Kind: IncrBy, Key: key, Delta: 1}, {Kind: Del, Keys: [][]byte{key}}}[i/2/fleeting%2])
			if i%10 == 0 {
				w.drain()
				for _, r := range w.r {
					r.s.dropEnded(r.s.partitions[0], new(Batch))
				}
			}
		}
	}()
	changed := map[bool]map[int]bool{false: {}, true: {}}
	for fine, of := range changed {
		of[sumOf([]byte("hot"), 0, fine)] = true
		for i := range fleeting {
			of[sumOf(fmt.Append(nil, "fleeting", i), 0, fine)] = true
		}
	}
	set := w.set(0)
	for i := range 20 {
		fine := i%2 == 1
		<-written
		da, err := a.s.RegionDigest(w.t.Context(), 0, slots-1, 0, fine)
		must(t, err)
		<-written
		db, err := b.s.RegionDigest(w.t.Context(), 0, slots-1, 0, fine)
		must(t, err)
		for i, is := range da.Compare(&db, &set) {
			if !changed[fine][i] && is != Agree || is == Differ {
				t.Errorf("sum %d (fine: %t): %d", i, fine, is)
			}
		}
	}
	close(stop)
	<-done
	w.agree()
}

// TestForgottenTwin: a region that has forgotten a counter tells the same of it as one that has not. What
// was taken back must not be in the one's part for ever, and not in the other's: so the region that took
// it back closes its part before anybody forgets, although a deletion left nothing of the sum.
func TestForgottenTwin(t *testing.T) {
	w := newTestRegions(t, 1, 1, 1, 1)
	a, b := w.r[0], w.r[1]
	b.clock.advance(20 * time.Minute)
	w.drain()
	cincr(a.s, "k", "x", 5)
	cincr(b.s, "k", "x", 5)
	w.drain()
	w.do(a, Op{Kind: Del, Keys: [][]byte{[]byte("k")}})
	w.drain()
	parts := func(r *testRegion) part.Parts {
		get(r.s, "k") // into memory
		p := r.s.partitions[0]
		p.lock()
		defer p.mu.Unlock()
		return p.hot.peek("k").parts()
	}
	for range 3 {
		a.s.dropEnded(a.s.partitions[0], new(Batch))
	}
	if left := parts(a); left != nil {
		t.Fatalf("not forgotten: %+v", left)
	}
	cincr(a.s, "k", "y", 1)
	w.drain()
	cincr(b.s, "k", "z", 2)
	at, _ := b.clock.now()
	w.do(b, Op{Kind: ExpireAt, Key: []byte("k"), ExpireAt: at + (24 * time.Hour).Milliseconds()})
	w.agree()
	for _, r := range w.r {
		if undo := parts(r)[1].Undo; len(undo) > 0 {
			t.Errorf("region %d remembers %+v", r.n, undo)
		}
	}
}

// FuzzDigest reads digests.
func FuzzDigest(f *testing.F) {
	d := RegionDigest{RegionSource: RegionSource{1,
		0}, Last: 31, At: 7, Era: 1, Seq: 9, Busy: true, Taken: []RegionTaken{{RegionSource{0, 0}, 4}},
		Sums: []DigestSum{{Sum: 1}, {2, [part.MaxRegions]uint64{3: 5}}}}
	f.Add(d.appendTo(nil))
	d.Last, d.Fine, d.Sums = 15, true, make([]DigestSum, DigestBuckets)
	f.Add(d.appendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := DecodeDigest(b)
		if err == nil && string(d.appendTo(nil)) != string(b) {
			t.Fatalf("%x became %x", b, d.appendTo(nil))
		}
		if err != nil && !errors.Is(err, ErrPulled) {
			t.Fatal(err)
		}
	})
}
