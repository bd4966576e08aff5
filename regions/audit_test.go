package regions

import (
	"bytes"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/fbfkv/fbfkv/store"
	"github.com/fbfkv/fbfkv/store/part"
)

// ticks end the waits of an audit when a test says so.
type ticks struct {
	t     testing.TB
	waits chan time.Duration
	end   chan time.Time
}

func newTicks(t testing.TB) *ticks {
	return &ticks{t, make(chan time.Duration, 100), make(chan time.Time)}
}

func (s *ticks) options(o *Options) {
	o.Block = 50 * time.Millisecond
	o.after = func(d time.Duration) <-chan time.Time {
		s.waits <- d
		return s.end
	}
}

// look ends a wait, and returns for how long it waits after the look.
func (s *ticks) look() time.Duration {
	s.t.Helper()
	s.end <- time.Time{}
	return <-s.waits
}

// want looks, and checks whether a second look follows.
func (s *ticks) want(what string, again bool) {
	s.t.Helper()
	want := time.Hour
	if again {
		want = time.Minute
	}
	if got := s.look(); got != want {
		s.t.Fatalf("%s: the next look is after %v, and should be after %v", what, got, want)
	}
}

// lies makes a region tell digests of which the last sums are wrong, or right again; it counts both.
func (r *region) lies() (lie func(bool), asked *atomic.Int64) {
	asked = new(atomic.Int64)
	lying := new(atomic.Bool)
	change := func(args [][]byte, reply []byte) []byte {
		if string(args[0]) == wordDigest {
			if asked.Add(1); lying.Load() {
				reply = bytes.Clone(reply)
				reply[len(reply)-4]++ // the sum of a group without keys
			}
		}
		return reply
	}
	r.server.change.Store(&change)
	return lying.Store, asked
}

// mismatch checks how many groups of slots of another region are known to differ.
func (r *region) mismatch(when string, want int) {
	r.t.Helper()
	if got := r.of(1).DigestMismatch; got != want {
		r.t.Errorf("%s: %d groups of slots differ, and should %d", when, got, want)
	}
}

const (
	saysDiffer = "this region and another one have different counters"
	saysSame   = "another region has the same counters again"
)

// TestAudit: regions compare themselves; what differs twice in a row is a mismatch, until it is found equal.
func TestAudit(t *testing.T) {
	all := newRegions(t, 2, 4)
	a, b := all[0], all[1]
	lie, asked := b.lies()
	s := newTicks(t)
	a.start(map[part.Region]string{1: b.server.address()}, s.options)
	b.start(map[part.Region]string{0: a.server.address()}, nil)
	for i := range 50 {
		a.once(fmt.Sprint("k", i), "a", 1)
		b.once(fmt.Sprint("k", i), "b", 1)
	}
	if d := <-s.waits; d < 0 || d >= 10*time.Minute {
		t.Errorf("the first look is after %v", d)
	}
	if now := a.of(1); now.DigestCheckedMs != 0 {
		t.Errorf("compared before anything was: %+v", now)
	}
	agree(t, all)
	before := a.of(1).DigestCheckedMs
	if before == 0 {
		t.Error("Verify has compared all, which is not known")
	}
	a.skew.Store(time.Hour.Milliseconds())
	s.want("equal", false)
	if now := a.of(1); now.DigestMismatch != 0 || now.DigestCheckedMs < before+time.Hour.Milliseconds() {
		t.Errorf("%+v", now)
	}
	a.skew.Store(0)

	lie(true)
	s.want("differs once", true)
	a.mismatch("it differs once", 0)
	lie(false)
	s.want("not again", false)
	a.mismatch("it differed once", 0)
	lie(true)
	s.want("differs", true)
	s.want("differs again", false)
	a.mismatch("it differs twice", 4)
	if got, want := inWords(a.of(1).Mismatch),
		"4080 to 4095, 8176 to 8191, 12272 to 12287, 16368 to 16383"; got != want {
		t.Errorf("slots %s; want %s", got, want)
	}
	s.want("differs as before", false)
	a.mismatch("it differs as before", 4)
	if n := a.logged(saysDiffer); n != 1 || a.logged(saysSame) != 0 {
		t.Errorf("%d lines: %s", n, a.log.String())
	}

	a.mesh.Pause(1)
	lie(false)
	n := asked.Load()
	s.want("paused", false)
	if asked.Load() != n {
		t.Error("it is asked although its reading is paused")
	}
	a.mismatch("paused", 4)
	a.mesh.Resume(1)

	must(t, b.mesh.Close()) // from now on it takes nothing
	key := "new"
	// in the bucket that differs
	for i := 0; store.Slot([]byte(key)) < 16368 ||
		xxhash.Sum64String(key)%store.DigestBuckets != store.DigestBuckets-1; i++ {
		key = fmt.Sprint("new", i)
	}
	a.once(key, "a", 1)
	s.want("busy", false)
	if now := a.of(1); len(now.Mismatch) != 1 ||
		now.Mismatch[0] != (store.SlotRange{First: 16368, Last: 16383}) || now.DigestMissed != 1 ||
		a.logged(saysSame) != 0 {
		t.Errorf("what cannot be compared is left as it is, and the rest is equal: %+v", now)
	}
	b.start(map[part.Region]string{0: a.server.address()}, nil)
	eventually(t, "b has taken it", func() bool { return b.value(key) == 1 })
	s.want("equal again", false)
	a.mismatch("it is equal", 0)
	if a.logged(saysDiffer) != 1 || a.logged(saysSame) != 1 {
		t.Errorf("the log: %s", a.log.String())
	}
}

// TestAuditBusy: what cannot be compared is no difference, however often.
func TestAuditBusy(t *testing.T) {
	all := newRegions(t, 2, 4)
	a, b := all[0], all[1]
	s := newTicks(t)
	a.start(map[part.Region]string{1: b.server.address()}, s.options)
	<-s.waits
	eventually(t, "it is read", func() bool { return a.of(1).Connected })
	changed := make(map[uint16]bool)
	for i := range 10 { // b takes nothing
		key := fmt.Sprint("k", i)
		a.once(key, "a", 1)
		changed[store.Slot([]byte(key))/groupSlots] = true
	}
	for range 2 {
		s.want("busy", false)
		if now := a.of(1); now.DigestMismatch != 0 || now.DigestMissed != len(changed) ||
			now.DigestCheckedMs == 0 {
			t.Errorf("%d groups have changed: %+v", len(changed), now)
		}
	}
}

// TestVerifyEndsMismatch: an operator who finds that all is equal need not wait for the next look;
// one who finds differences begins no mismatch.
func TestVerifyEndsMismatch(t *testing.T) {
	all := newRegions(t, 1, 1)
	a, b := all[0], all[1]
	lie, _ := b.lies()
	s := newTicks(t)
	a.start(map[part.Region]string{1: b.server.address()}, s.options)
	b.start(map[part.Region]string{0: a.server.address()}, nil)
	<-s.waits
	agree(t, all)
	lie(true)
	for range 2 {
		if differ, err := a.mesh.Verify(t.Context()); err != nil || len(differ) != 1 || differ[0].Err != nil {
			t.Fatal(differ, err)
		}
		a.mismatch("an operator looks", 0)
	}
	s.want("differs", true)
	s.want("differs again", false)
	a.mismatch("it differs twice", 1)
	lie(false)
	agree(t, all)
	a.mismatch("an operator has found it equal", 0)
	if a.logged(saysSame) != 1 {
		t.Errorf("the log: %s", a.log.String())
	}
}

// TestAuditShown: a node shows an operator where regions differ, and what helps.
func TestAuditShown(t *testing.T) {
	all := newRegions(t, 1, 1)
	a, b := all[0], all[1]
	lie, _ := b.lies()
	b.start(map[part.Region]string{0: a.server.address()}, nil)
	s := newTicks(t)
	n := a.openNode(s.options)
	set := setOf(all, 0)
	set.Members[1].Address = b.server.address()
	must(t, n.Change(set))
	<-s.waits
	eventually(t, "they agree", func() bool {
		differ, err := n.Verify(t.Context())
		return err == nil && len(differ) == 0
	})
	if st := n.Status(); len(st.Ills) > 0 || st.Peers[0].DigestMismatch != 0 ||
		st.Peers[0].DigestCheckedMs == 0 {
		t.Errorf("%+v", st)
	}
	lie(true)
	s.want("differs", true)
	s.want("differs again", false)
	st := n.Status()
	if len(st.Ills) != 1 || st.Peers[0].DigestMismatch != 1 {
		t.Fatalf("%+v", st)
	}
	for _, want := range []string{"region0 and region1", "slots 16368 to 16383:", "fbfkv region verify",
		"CGET KEY REGIONS"} {
		if !strings.Contains(st.Ills[0], want) {
			t.Errorf("it lacks %q: %s", want, st.Ills[0])
		}
	}
	n.Mesh().note(&outcome{region: 1, began: time.Now(), missed: everything(),
		why: fmt.Errorf("%w: a row is damaged", errHere)}, nil)
	if st := n.Status(); len(st.Ills) != 2 || st.Ills[1] != "region0 could not compare itself with "+
		"region1: the counters here cannot be read: a row is damaged" {
		t.Errorf("%q", st.Ills)
	}
}

// TestAuditOfUnread: a region that was restored, or removed, compares nothing by itself.
func TestAuditOfUnread(t *testing.T) {
	for name, change := range map[string]func(*store.RegionSet){
		"restored": func(s *store.RegionSet) { s.Members[0].Incarnation++ },
		"removed":  func(s *store.RegionSet) { s.Removed = true },
	} {
		t.Run(name, func(t *testing.T) {
			all := newRegions(t, 1, 1)
			a, b := all[0], all[1]
			_, asked := b.lies()
			s := newTicks(t)
			a.start(map[part.Region]string{1: b.server.address()}, s.options)
			<-s.waits
			eventually(t, "it is read", func() bool { return a.of(1).Connected })
			s.want("a member", false)
			n := asked.Load()
			if n == 0 {
				t.Fatal("a member has compared nothing")
			}
			set := setOf(all, 0)
			set.Version++
			change(&set)
			must(t, a.s.SetRegions(set))
			s.want("no member", false)
			if asked.Load() != n {
				t.Error("it compares")
			}
		})
	}
}

// TestAuditCloses: Close ends a look that hangs.
func TestAuditCloses(t *testing.T) {
	all := newRegions(t, 1, 1)
	a, b := all[0], all[1]
	entered, release := make(chan bool, 10), make(chan bool)
	defer close(release)
	hang := func(args [][]byte, reply []byte) []byte {
		if string(args[0]) == wordDigest {
			entered <- true
			<-release
		}
		return reply
	}
	b.server.change.Store(&hang)
	s := newTicks(t)
	a.start(map[part.Region]string{1: b.server.address()}, s.options)
	<-s.waits
	eventually(t, "it is read", func() bool { return a.of(1).Connected })
	s.end <- time.Time{}
	<-entered
	must(t, a.mesh.Close())
	if now := a.of(1); now.DigestMismatch != 0 || now.DigestCheckedMs != 0 {
		t.Errorf("%+v", now)
	}
}

// TestBuckets: how buckets become slots, and slots words.
func TestBuckets(t *testing.T) {
	for _, c := range []struct {
		buckets       buckets
		count, groups int
		words         string
	}{
		{buckets{}, 0, 0, ""},
		{buckets{0: 1}, 1, 1, "0 to 15"},
		{buckets{0: 1 << 63, 1: 3}, 3, 2, "0 to 31"},
		{everything(), 65536, 1024, "0 to 16383"},
		{buckets{1023: 1, 0: 1}, 2, 2, "0 to 15, 16368 to 16383"},
		{buckets{0: 1, 2: 1, 4: 1, 6: 1, 8: 1}, 5, 5, "0 to 15, 32 to 47, 64 to 79, 96 to 111 and 1 more"},
	} {
		if got := inWords(c.buckets.slots()); c.buckets.count() != c.count ||
			c.buckets.groups() != c.groups || got != c.words {
			t.Errorf("%d buckets of %d groups, %q; want %d of %d, %q", c.buckets.count(), c.buckets.groups(),
				got, c.count, c.groups, c.words)
		}
	}
}

// TestShardsDigests: a region has been compared when each of its shards has, and differs where any does.
func TestShardsDigests(t *testing.T) {
	p := PeerStatus{DigestMismatch: 2, DigestCheckedMs: 7, DigestMissed: 4}
	p.Add(&PeerStatus{DigestMismatch: 1, DigestCheckedMs: 5, DigestMissed: 2})
	if p.DigestMismatch != 3 || p.DigestCheckedMs != 5 || p.DigestMissed != 6 {
		t.Errorf("%+v", p)
	}
	if p.Add(&PeerStatus{}); p.DigestMismatch != 3 || p.DigestCheckedMs != 0 {
		t.Errorf("one was never compared: %+v", p)
	}
}
