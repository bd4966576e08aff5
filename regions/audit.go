package regions

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/fbfkv/fbfkv/store"
	"github.com/fbfkv/fbfkv/store/part"
)

// A Mesh compares this region with the others once in a while by itself, and remembers where they differ. It is
// proof, not the mechanism: nothing is mended by it, and an operator hears of it.
//
//	look ── nothing new ──► the next one, after Options.DigestPeriod
//	  └──── differs where it did not ──► a second look at those regions, a sixtieth of that later:
//	                                     what differs in both is a mismatch
//
// One look alone raises no alarm: what it finds may be a moment's, and be over soon. A mismatch lasts until a
// look finds that the slots are equal; what cannot be compared leaves it as it is, and a suspect one. Both are forgotten
// with the Mesh, so a new leader of a shard has to find them by itself, and begins soon.
//
// Looks and calls of Verify may run at the same time: each has connections of its own, and reads only. Verify by
// an operator ends a mismatch, and begins none: the operator is told what differs, and can look twice.

const (
	// digestGroups is how many sums a digest of all slots has: a mismatch is counted in these.
	digestGroups = slots / groupSlots
	// shownSlots is how many ranges of slots are named to an operator.
	shownSlots = 4
)

// groups says something of each group of slots that has a sum together.
type groups [digestGroups]bool

// add adds those that have any of these slots.
func (g *groups) add(r store.SlotRange) {
	for i := r.First / groupSlots; i <= r.Last/groupSlots; i++ {
		g[i] = true
	}
}

// count returns how many there are.
func (g *groups) count() (n int) {
	for _, is := range g {
		if is {
			n++
		}
	}
	return n
}

// slots returns their slots, ascending; neighbours are one range.
func (g *groups) slots() (all []store.SlotRange) {
	for i, is := range g {
		first, last := uint16(i*groupSlots), uint16((i+1)*groupSlots-1)
		switch n := len(all); {
		case !is:
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

// look is what a comparison with regions has found.
type look struct {
	asked []part.Region
	found []Difference
}

// of returns where a region differs, where it could not be compared, how many buckets of keys were not, and what kept it from
// being asked.
func (l *look) of(r part.Region) (differ, missed groups, buckets int, failed error) {
	for i := range l.found {
		switch d := &l.found[i]; {
		case d.Region != r:
		case d.Err != nil:
			buckets += d.Missed
			if missed.add(d.SlotRange); !errors.Is(d.Err, ErrBusy) && !errors.Is(d.Err, ErrLevelling) && !errors.Is(d.Err, ErrPaused) {
				failed = d.Err
			}
		default:
			differ.add(d.SlotRange)
		}
	}
	return differ, missed, buckets, failed
}

// digests are what is known of other regions by comparing.
type digests struct {
	mu sync.Mutex
	of map[part.Region]*digested // of those that were asked
}

type digested struct {
	mismatch groups
	checked  int64 // when it was compared last, unix ms; 0: never
	missed   int   // buckets that could not be compared then
	failed   error // of the last look; nil: none
}

// show adds what is known of the region.
func (d *digests) show(s *Status) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if known := d.of[s.Region]; known != nil {
		s.Mismatch, s.DigestMismatch = known.mismatch.slots(), known.mismatch.count()
		s.DigestCheckedMs, s.DigestMissed, s.digestErr = known.checked, known.missed, known.failed
	}
}

// note takes note of a look. What differs is a mismatch if it is among the suspects, those of looks before; the rest
// of it is returned, by region, with the suspects that were not compared: the suspects from then on.
func (m *Mesh) note(l *look, suspects map[part.Region]groups) (differ map[part.Region]groups) {
	if differ = maps.Clone(suspects); differ == nil {
		differ = make(map[part.Region]groups)
	}
	m.digests.mu.Lock()
	defer m.digests.mu.Unlock()
	for _, r := range l.asked {
		now, missed, buckets, failed := l.of(r)
		known := m.digests.of[r]
		if known == nil {
			known = new(digested)
			m.digests.of[r] = known
		}
		before, suspect, rest := known.mismatch.count(), suspects[r], groups{}
		for i := range now {
			switch {
			case now[i]:
				known.mismatch[i] = known.mismatch[i] || suspect[i]
				rest[i] = !known.mismatch[i]
			case !missed[i]:
				known.mismatch[i] = false
			default:
				rest[i] = suspect[i]
			}
		}
		if delete(differ, r); rest.count() > 0 {
			differ[r] = rest
		}
		if buckets < m.opts.bucketsOf(r) {
			known.checked, known.missed = m.opts.now(), buckets
		}
		if failed != nil && known.failed == nil {
			m.opts.Logger.Warn("this region could not compare itself with another one", "region", m.opts.nameOf(r), "error", failed)
		}
		known.failed = failed
		m.opts.sayMismatch(r, before, &known.mismatch)
	}
	return differ
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
func (o *Options) sayMismatch(r part.Region, before int, now *groups) {
	switch n := now.count(); {
	case before == 0 && n > 0:
		o.Logger.Error("another region has not got the same counters, although each has taken what the other one did: see fbfkv region status",
			"region", o.nameOf(r), "slots", inWords(now.slots()), "digest_mismatch", n)
	case before > 0 && n == 0:
		o.Logger.Info("another region has the same counters again", "region", o.nameOf(r))
	}
}

// mismatchIll tells an operator of a mismatch, and what helps.
func mismatchIll(self, other string, where []store.SlotRange) string {
	return fmt.Sprintf("%s and %s have not got the same counters in slots %s: if their tables differ, status says so. Else run "+
		"fbfkv region verify HOST:PORT. If it stands, CGET KEY REGIONS at both shows which counters differ, and a region is right about what it "+
		"has counted itself: remove the one that is wrong about another one, let it join again, empty, and report a bug", self, other, inWords(where))
}

// audit compares this region with the others by itself, until the Mesh is closed.
func (m *Mesh) audit() {
	period, suspects := m.opts.DigestPeriod, map[part.Region]groups(nil)
	// Regions and shards that have begun together do not look together, nor do two that read each other.
	for wait := time.Duration(rand.Int64N(int64(period / 6))); m.wait(wait); wait = period {
		if suspects = m.lookAt(m.audited(nil), suspects); len(suspects) > 0 && m.wait(period/60) {
			suspects = m.lookAt(m.audited(suspects), suspects)
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

// lookAt looks at regions, and returns the suspects from then on: see note.
func (m *Mesh) lookAt(only map[part.Region]bool, suspects map[part.Region]groups) map[part.Region]groups {
	if len(only) == 0 {
		return suspects
	}
	l, err := m.look(m.ctx, only)
	if err != nil { // the Mesh was closed
		return suspects
	}
	return m.note(&l, suspects)
}

// audited returns the regions that can be compared now, among those that are suspects; nil: among all. A region that
// others do not read differs from them, and that is known.
func (m *Mesh) audited(suspects map[part.Region]groups) map[part.Region]bool {
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
