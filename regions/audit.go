package regions

import (
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/fbfkv/fbfkv/store"
	"github.com/fbfkv/fbfkv/store/part"
)

// A Mesh compares this region with the others once in a while by itself, and remembers where they
// differ. It is proof, not the mechanism: nothing is mended by it, and an operator hears of it.
//
//	look ── nothing new ──► the next one, after Options.DigestPeriod
//	  └──── differs where it did not ──► a second look at those regions, a sixtieth of that later:
//	                                     what differs in both is a mismatch
//
// One look alone raises no alarm: what it finds may be a moment's, and be over soon. A mismatch
// lasts until a look finds that the slots are equal; what cannot be compared leaves it as it is,
// and a suspect one. Both are forgotten with the Mesh, so a new leader of a shard has to find them
// by itself, and begins soon.
//
// Looks and calls of Verify may run at the same time: each has connections of its own, and reads
// only. Verify by an operator ends a mismatch, and begins none: the operator is told what differs,
// and can look twice.

const (
	// digestGroups is how many sums a digest of all slots has: a mismatch is counted in these.
	digestGroups = slots / groupSlots
	// shownSlots is how many ranges of slots are named to an operator.
	shownSlots = 4
)

// buckets says something of each bucket of keys: a bit for each, by group of slots.
type buckets [digestGroups]uint64

// allBuckets is a bit for each bucket of a group.
const allBuckets = 1<<store.DigestBuckets - 1

// count returns how many there are.
func (b *buckets) count() (n int) {
	for _, some := range b {
		n += bits.OnesCount64(some)
	}
	return n
}

// groups returns how many groups have some.
func (b *buckets) groups() (n int) {
	for _, some := range b {
		if some != 0 {
			n++
		}
	}
	return n
}

// slots returns the slots of these groups, ascending; neighbours are one range.
func (b *buckets) slots() (all []store.SlotRange) {
	for i, some := range b {
		first, last := uint16(i*groupSlots), uint16((i+1)*groupSlots-1)
		switch n := len(all); {
		case some == 0:
		case n > 0 && all[n-1].Last+1 == first:
			all[n-1].Last = last
		default:
			all = append(all, store.SlotRange{First: first, Last: last})
		}
	}
	return all
}

// inWords names slots to an operator: "0 to 15, 64 to 127 and 3 more".
func inWords(all []store.SlotRange) string {
	var b strings.Builder
	for i, r := range all[:min(len(all), shownSlots)] {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%d to %d", r.First, r.Last)
	}
	if n := len(all) - shownSlots; n > 0 {
		fmt.Fprintf(&b, " and %d more", n)
	}
	return b.String()
}

// outcome is what a comparison with a region has found.
type outcome struct {
	region         part.Region
	began          time.Time
	differ, missed buckets
	why            error // some were missed: see Difference.Err
}

// failed is what kept the region from being asked, or this one from being read; nil: nothing.
func (o *outcome) failed() error {
	if o.missed == (buckets{}) || errors.Is(o.why, ErrBusy) || errors.Is(o.why, ErrLevelling) ||
		errors.Is(o.why, ErrPaused) {
		return nil
	}
	return o.why
}

// differences are the slots that differ, and those that were missed, each in their order.
func (o *outcome) differences() (all []Difference) {
	for _, r := range o.differ.slots() {
		all = append(all, Difference{o.region, r, nil})
	}
	for _, r := range o.missed.slots() {
		all = append(all, Difference{o.region, r, o.why})
	}
	return all
}

// digests are what is known of other regions by comparing.
type digests struct {
	mu sync.Mutex
	of map[part.Region]*digested // of those that were asked
}

type digested struct {
	mismatch buckets
	checked  int64     // when most of it was compared last, unix ms; 0: never
	missed   int       // buckets that could not be compared last time
	failed   error     // of the last look; nil: none
	began    time.Time // that look
}

// show adds what is known of the region.
func (d *digests) show(s *Status) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if known := d.of[s.Region]; known != nil {
		s.Mismatch, s.DigestMismatch = known.mismatch.slots(), known.mismatch.groups()
		s.DigestCheckedMs, s.DigestMissed, s.digestErr = known.checked, known.missed, known.failed
	}
}

// note takes note of a look at a region, unless one that began later has been. A bucket that
// differs is a mismatch if it is among the suspects of earlier looks; the other ones that differ
// are returned with the suspects that were not compared: the suspects from then on.
func (m *Mesh) note(o *outcome, suspects *buckets) *buckets {
	m.digests.mu.Lock()
	defer m.digests.mu.Unlock()
	known := m.digests.of[o.region]
	if known == nil {
		known = new(digested)
		m.digests.of[o.region] = known
	}
	if suspects == nil {
		suspects = new(buckets)
	}
	if o.began.Before(known.began) {
		return suspects
	}
	before, rest := known.mismatch.groups(), new(buckets)
	for i, differ := range o.differ {
		missed, mismatch := o.missed[i]&^differ, &known.mismatch[i]
		*mismatch = *mismatch&(differ|missed) | differ&suspects[i]
		rest[i] = differ&^*mismatch | missed&suspects[i]
	}
	known.began, known.missed = o.began, o.missed.count()
	if 2*known.missed < m.opts.bucketsOf(o.region) {
		known.checked = m.opts.now()
	}
	failed := o.failed()
	if failed != nil && known.failed == nil {
		m.opts.Logger.Warn("this region could not compare itself with another one", "region",
			m.opts.nameOf(o.region), "error", failed)
	}
	known.failed = failed
	m.opts.sayMismatch(o.region, before, &known.mismatch)
	return rest
}

// bucketsOf is how many buckets of keys of a region are read here.
func (o *Options) bucketsOf(r part.Region) (n int) {
	ranges, _ := o.Store.PullRanges(r)
	for i := range ranges {
		n += (int(ranges[i].Last) - int(ranges[i].First) + 1) / groupSlots
	}
	return n * store.DigestBuckets
}

// sayMismatch writes to the log that a mismatch has begun, or has ended.
func (o *Options) sayMismatch(r part.Region, before int, now *buckets) {
	switch n := now.groups(); {
	case before == 0 && n > 0:
		o.Logger.Error("this region and another one have different counters, although each has read all "+
			"of the other's log: see fbfkv region status",
			"region", o.nameOf(r), "slots", inWords(now.slots()), "digest_mismatch", n)
	case before > 0 && n == 0:
		o.Logger.Info("another region has the same counters again", "region", o.nameOf(r))
	}
}

// mismatchIll tells an operator of a mismatch, and what helps.
func mismatchIll(self, other string, where []store.SlotRange) string {
	return fmt.Sprintf("%s and %s have different counters in slots %s: if their tables differ, status "+
		"says so. Else run "+
		"fbfkv region verify HOST:PORT. If it stands, CGET KEY REGIONS at both shows which counters "+
		"differ, and a region is right about what it "+
		"has counted itself: remove the one that is wrong about another one, let it join again, empty, "+
		"and report a bug", self, other, inWords(where))
}

// audit compares this region with the others by itself, until the Mesh is closed.
func (m *Mesh) audit() {
	period, suspects := m.opts.DigestPeriod, make(map[part.Region]*buckets)
	// Regions and shards that have begun together do not look together, nor do two that read each other.
	for wait := time.Duration(rand.Int64N(int64(period / 6))); m.wait(wait); wait = period {
		if m.lookAt(m.audited(nil), suspects); len(suspects) > 0 && m.wait(period/60) {
			m.lookAt(m.audited(suspects), suspects)
		}
	}
}

// wait waits; false: the Mesh was closed.
func (m *Mesh) wait(d time.Duration) bool {
	select {
	case <-m.ctx.Done():
		return false
	case <-m.opts.after(d):
		return m.ctx.Err() == nil
	}
}

// lookAt looks at regions, and keeps the suspects: see note.
func (m *Mesh) lookAt(only map[part.Region]bool, suspects map[part.Region]*buckets) {
	if len(only) == 0 {
		return
	}
	_ = m.look(m.ctx, only, func(o *outcome) { // it fails if the Mesh was closed
		rest := m.note(o, suspects[o.region])
		if delete(suspects, o.region); *rest != (buckets{}) {
			suspects[o.region] = rest
		}
	})
}

// audited returns the regions that can be compared now, among those that are suspects; nil: among
// all. A region that others do not read differs from them, and that is known.
func (m *Mesh) audited(suspects map[part.Region]*buckets) map[part.Region]bool {
	only := make(map[part.Region]bool)
	set, _ := m.opts.Store.Regions()
	if own, _ := set.Member(set.Self); set.Removed || own.Incarnation != m.opts.identity().Incarnation {
		return only
	}
	for _, s := range m.Status() {
		if _, is := suspects[s.Region]; (is || suspects == nil) && !s.Paused && !s.Failing {
			only[s.Region] = true
		}
	}
	return only
}
