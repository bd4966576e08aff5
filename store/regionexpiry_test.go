package store

import (
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/store/part"
)

// apart returns two regions. The clock of the first one is ten minutes ahead of the second one's.
func apart(t *testing.T) (w *testRegions, ahead, limits *testRegion) {
	w = newTestRegions(t, 1, 1, 1)
	ahead, limits = w.r[0], w.r[1]
	first, _ := ahead.clock.now()
	second, _ := limits.clock.now()
	ahead.clock.step(10*time.Minute + time.Duration(second-first)*time.Millisecond)
	return w, ahead, limits
}

// advance lets time pass in all regions, which then delete what they are to delete.
func (w *testRegions) advance(d time.Duration) {
	for _, r := range w.r {
		r.clock.advance(d)
	}
	w.expire()
}

func (w *testRegions) expire() {
	for _, r := range w.r {
		r.s.expireAllDue(new(Batch))
	}
}

// limit counts once more in a region, by an increment that gives a new counter a minute.
func (w *testRegions) limit(r *testRegion, want int64) {
	w.t.Helper()
	now, _ := r.clock.now()
	if op := w.do(r, Op{Kind: IncrEx, Key: []byte("k"), Delta: 1, Flags: HasExpire | IfNoExpire,
		ExpireAt: now + time.Minute.Milliseconds()}); op.Value != want {
		w.t.Fatalf("region %d counts %d, and not %d", r.n, op.Value, want)
	}
}

// shows expects what a region shows of the counter, and in how many seconds it expires there; 0: it is not
// there.
func (w *testRegions) shows(r *testRegion, want, left int64) {
	w.t.Helper()
	v, ok := get(r.s, "k")
	op := do(r.s, Op{Kind: ExpireTime, Key: []byte("k")})
	if v != want || ok != (left != 0) || op.Found != ok {
		w.t.Fatalf("region %d shows %d, %v, %+v", r.n, v, ok, op)
	}
	if ok && (op.Values[0]+999)/1000 != left {
		w.t.Fatalf("in region %d it expires in %d ms", r.n, op.Values[0])
	}
	if _, scanned := scanAll(w.t, r.s)["k"]; scanned != ok {
		w.t.Fatalf("region %d scans it: %v", r.n, scanned)
	}
}

// TestClockAhead: a region whose clock is far ahead, and which does nothing, does not delete counters of
// others, also if it starts again, or its clock leaps; and it counts with them.
func TestClockAhead(t *testing.T) {
	w, ahead, limits := apart(t)
	for n := range int64(3) {
		w.limit(limits, n+1)
		w.drainLogs()
		w.expire()
		w.shows(ahead, n+1, 60-10*n)
		w.advance(10 * time.Second)
	}
	must(t, ahead.s.CloseNow())
	w.open(ahead)
	w.expire()
	w.shows(ahead, 3, 40) // of the last seconds its log says nothing
	must(t, ahead.s.Close())
	w.open(ahead)
	ahead.clock.step(48 * time.Hour)
	w.expire()
	w.shows(ahead, 3, 40)
	w.limit(ahead, 4)
	w.drainLogs()
	w.shows(limits, 4, 30)
	w.advance(30 * time.Second)
	w.shows(limits, 0, 0)
	w.drainLogs()
	w.shows(ahead, 0, 0)
	for _, r := range w.r {
		if n := r.s.partitions[0].size; n != 0 {
			t.Errorf("region %d has %d keys", r.n, n)
		}
	}
	w.agree()

	w.limit(ahead, 1) // a minute by its own clock
	w.drainLogs()
	w.limit(limits, 2)
	w.shows(limits, 2, 60)
	w.advance(59 * time.Second)
	w.shows(limits, 2, 1)
	w.advance(time.Second)
	w.drainLogs()
	w.shows(limits, 0, 0)
	w.shows(ahead, 0, 0)
}

// TestCutExpiry: a region that hears nothing hides a counter whose time has come, and does not delete it, as
// a later expiry may have been set elsewhere. If it writes, it counts from nothing, and deletes what it saw.
func TestCutExpiry(t *testing.T) {
	for _, writes := range []bool{false, true} {
		w, cut, limits := apart(t)
		w.limit(limits, 1)
		w.drainLogs()
		now, _ := limits.clock.now()
		w.do(limits, Op{Kind: ExpireAt, Key: []byte("k"), ExpireAt: now + time.Hour.Milliseconds()})
		w.advance(time.Minute)
		w.shows(cut, 0, 0)
		w.shows(limits, 1, 59*60)
		want := int64(1)
		if writes {
			w.limit(cut, 1)
			w.shows(cut, 1, 60)
		}
		w.drainLogs()
		w.expire()
		got, _ := get(limits.s, "k")
		if again, _ := get(cut.s, "k"); got != want || again != want {
			t.Errorf("writes %v: they show %d and %d", writes, got, again)
		}
	}
}

// TestUnknownClock: an expiry of a region of whose log nothing was taken is not judged by the own clock.
func TestUnknownClock(t *testing.T) {
	r := newRegionStore(t, false)
	at := r.clock.wall + 1000
	under := added(other, 9, 7)
	under.Expire = part.Expiry{HLC: uint64(at), At: at, By: other}
	r.merge("k", under)
	r.clock.advance(time.Hour)
	r.expireAllDue(new(Batch))
	r.must(Op{Kind: IncrBy, Key: []byte("k"), Delta: 1})
	r.shows("k", 8, true)
	if by := r.parts("k").Of(own).Expire.By; by != other {
		t.Errorf("the increment asserts an expiry of region %d", by)
	}
	keep := Op{Kind: Set, Key: []byte("k"), Delta: 8, Flags: KeepTTL}
	r.must(keep)
	if k := r.counter("k"); k.expire != r.clock.wall+1 || k.parts().Expiry().By != own {
		t.Errorf("it expires at %d, now is %d: %+v", k.expire, r.clock.wall, k.parts())
	}
	r.clock.advance(time.Second)
	r.expireAllDue(new(Batch))
	r.shows("k", 0, false)
	r.reopen("k")
}

// TestOrphans: the heir of a region that was removed sets its expiries again, and deletes the counters in
// time.
func TestOrphans(t *testing.T) {
	w := newTestRemoval(t, 1, 1, 1, 1)
	lost := w.r[2]
	w.limit(lost, 1)
	w.drainLogs()
	w.loseOne(2, 0)
	heir, other := w.r[0], w.r[1]
	for range 20 {
		for _, r := range w.r {
			w.progress(r)
		}
		w.drainLogs()
	}
	if p := heir.s.partitions[0]; !p.inherited(2) {
		t.Fatal("the heir does not inherit")
	}
	for range 4 {
		heir.s.dropEnded(heir.s.partitions[0], new(Batch))
	}
	w.drainLogs()
	for _, r := range w.r {
		w.shows(r, 1, 60)
		if by := r.s.partitions[0].partsOf("k").Expiry().By; by != 0 {
			t.Errorf("in region %d the expiry is of region %d", r.n, by)
		}
	}
	w.advance(time.Minute)
	w.shows(heir, 0, 0)
	w.drainLogs()
	w.shows(other, 0, 0)
}
