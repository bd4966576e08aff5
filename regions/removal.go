package regions

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fbfkv/fbfkv/store"
	"github.com/fbfkv/fbfkv/store/part"
)

// Removing a region that is lost: the arbiter makes it gone, with an heir, and the others learn
// that. Then each of them asks each other one for the state of the lost region, as that knows it
// (REGION.PULL STATE), and says in its own log that it has it; the rest is the store's
// (store/regionremove.go). All of it is begun anew after a restart, unless it was said before. A
// region that cannot be reached holds it up.

// Remove removes regions, whose counters heir looks after from then on. A region that is not lost
// stops when it learns that; counts of it that no other region has taken are lost to the others. It
// returns when that is committed here: Removals tells how far it is. Removing a region again
// changes nothing. Errors: ErrMember; *AskError; store.ErrNoRegions; ErrRemoved.
//
// The arbiter is the member with the lowest number among those that are to stay. A region that was
// restored from a backup, which the others refuse, may remove all others, and goes on alone.
func (n *Node) Remove(heir string, lost ...string) error {
	_, err := n.changeWithout(lost, func(set *store.RegionSet) error {
		to, ok := named(set, heir)
		if !ok {
			return memberError("there is no region %.64q to be the heir", heir)
		}
		var gone []part.Region
		for _, name := range lost {
			switch m, ok := named(set, name); {
			case name == heir:
				return memberError("the region %s cannot be its own heir", name)
			case ok && m.Region == set.Self:
				return memberError("this is the region %s: remove it at another one", name)
			case ok && slices.Contains(gone, m.Region): // named twice
			case ok:
				gone = append(gone, m.Region)
			default:
				if err := removedFor(set, name, heir, lost); err != nil {
					return err
				}
			}
		}
		if len(gone) == 0 {
			return nil // it was removed before
		}
		next, err := set.Remove(to.Region, gone...)
		if err != nil {
			return memberError("%v", err)
		}
		next.Version = set.Version // change counts it
		*set = next
		return nil
	})
	return err
}

// Leave lets the store refuse what clients write, or ends that, because this region is about to be
// removed (store.Leave). It returns the sequences that others must have taken, by partition: those
// of the shard that this node leads.
func (n *Node) Leave(yes bool) (map[uint16]uint64, error) {
	switch _, ok := n.Members(); {
	case !ok:
		return nil, store.ErrNoRegions
	case !n.leads():
		return nil, memberError("this node does not lead its shard, and refuses all writes")
	}
	last, err := n.Store.Leave(yes)
	if err != nil {
		return nil, err
	}
	ends := make(map[uint16]uint64)
	for p, seq := range last {
		if n.cluster == nil || slices.Contains(n.cluster.Own(), uint16(p)) {
			ends[uint16(p)] = seq
		}
	}
	return ends, nil
}

// removedFor checks that a region outside the members was removed before, the last one of its name,
// and that its heir is the same or is removed as well.
func removedFor(set *store.RegionSet, name, heir string, lost []string) error {
	for _, m := range slices.Backward(set.Members) {
		if m.Name == name {
			if is, _ := set.Member(m.Heir); is.Name != heir && !slices.Contains(lost, is.Name) {
				return memberError("the region %s was removed before, and its heir is %s: to change the "+
					"heir, remove %[2]s as well", name, is.Name)
			}
			return nil
		}
	}
	return memberError("there is no region %.64q", name)
}

// named returns the living member of a name.
func named(set *store.RegionSet, name string) (store.RegionMember, bool) {
	for _, m := range set.Members {
		if m.Name == name && !m.Gone {
			return m, true
		}
	}
	return store.RegionMember{}, false
}

// RemovalStatus is how far the removal of a region has come, as this one knows.
type RemovalStatus struct {
	Name   string      `json:"name"` // another region may have it, too
	Number part.Region `json:"number"`
	Heir   string      `json:"heir"`
	Done   bool        `json:"done"`  // the heir looks after its counters
	State  string      `json:"state"` // what is awaited, in words
}

// Removals returns those of all regions that were removed.
func (n *Node) Removals() []RemovalStatus {
	set, _ := n.Members()
	own, _ := set.Member(set.Self)
	name := func(r part.Region) string { m, _ := set.Member(r); return m.Name }
	all := []RemovalStatus{}
	for _, r := range n.Store.Removals() {
		s := RemovalStatus{Name: name(r.Gone), Number: r.Gone, Heir: name(r.Heir), Done: r.Done}
		n.levelling.mu.Lock()
		why := n.levelling.why
		n.levelling.mu.Unlock()
		switch {
		case r.Done:
			s.State = "done"
		case why != "" && !r.Levelled && own.Joined > r.Since:
			s.State = "it was removed before this region joined, which must still read " + why
		case why != "" && !r.Levelled:
			s.State = why
		case r.Heir == set.Self && len(r.Waiting) > 0:
			s.State = fmt.Sprintf("waiting until %s says that it has all its known operations",
				name(r.Waiting[0]))
		case r.Levelled:
			s.State = fmt.Sprintf("waiting for the heir %s", s.Heir)
		default:
			s.State = "taking what others know of it"
		}
		all = append(all, s)
	}
	return all
}

// strayTime is how long a removed region is asked whether it goes on.
const strayTime = 24 * time.Hour

// strays asks regions that are removed while the server runs whether they go on, until the node is closed:
// one that hears nothing of its removal does, and nobody takes what it counts. Those that were gone before
// are not asked, as others may have their addresses.
func (n *Node) strays() {
	var until map[part.Region]time.Time // a removed region is asked; nil: this is no member yet
	for tick := time.NewTicker(n.opts.strayPeriod); ; {
		set, ok := n.Members()
		end := time.Now().Add(strayTime)
		if ok && until == nil {
			until, end = make(map[part.Region]time.Time), time.Time{}
		}
		var ills []string
		for _, m := range set.Members {
			if !m.Gone || set.Removed {
				continue
			}
			if _, known := until[m.Region]; !known {
				until[m.Region] = end
			}
			if time.Now().Before(until[m.Region]) && n.leads() && n.goesOn(m, &set) {
				ills = append(ills, fmt.Sprintf("the region %s was removed and still counts at %s, and no other "+
					"region takes that: stop its server", m.Name, m.Address))
			}
		}
		n.stray.Store(&ills)
		select {
		case <-n.ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
	}
}

// goesOn reports whether a removed region answers that it is one.
func (n *Node) goesOn(m store.RegionMember, set *store.RegionSet) bool {
	there, _, err := n.membersAt(n.ctx, m.Address, set)
	own, ok := there.Member(there.Self)
	return err == nil && ok && !own.Gone && own.Data == m.Data
}

// levelled says which ranges of which region have told all that they know of a removed one.
type levelled struct {
	gone  part.Region
	since uint64
	from  part.Region
}

// removals levels with the others whenever a region was removed, until the node is closed.
func (n *Node) removals() {
	ranges := make(map[levelled]int) // how many were taken
	for fails := 0; ; {
		busy, err := n.level(ranges)
		n.levelling.mu.Lock()
		n.levelling.why = ""
		if err != nil {
			n.levelling.why = err.Error()
		}
		n.levelling.mu.Unlock()
		var again <-chan time.Time
		if fails++; err == nil {
			fails = 0
		}
		if busy || err != nil {
			again = time.After(n.opts.delay(fails))
		}
		select {
		case <-n.ctx.Done():
			return
		case <-n.levelling.wake:
		case <-again:
		}
	}
}

// level takes from each other region what that knows of those that were removed, and says so.
// It reports whether something remains to be done or to be waited for.
func (n *Node) level(ranges map[levelled]int) (busy bool, err error) {
	set, ok := n.Store.Regions()
	if !ok || set.Removed || !n.leads() {
		return false, nil
	}
	for _, r := range n.Store.Removals() {
		if r.Levelled {
			continue
		}
		busy = true
		failed := error(nil)
		for _, m := range set.Members {
			if m.Region == set.Self || m.Gone {
				continue
			}
			k := levelled{r.Gone, r.Since, m.Region}
			if ranges[k], err = n.levelWith(m, &set, r.Gone, ranges[k]); err != nil {
				failed = errors.Join(failed, fmt.Errorf("what the region %s knows of it: %w", m.Name, err))
			}
		}
		if failed == nil {
			failed = n.Store.Levelled(r.Gone, r.Since)
		}
		if failed != nil {
			return true, failed
		}
	}
	return busy, nil
}

// levelWith takes the ranges behind those that were taken, and returns how many were.
func (n *Node) levelWith(m store.RegionMember, set *store.RegionSet, gone part.Region, taken int) (int,
	error) {
	all, err := n.Store.PullRanges(m.Region)
	if err != nil || taken >= len(all) {
		return taken, err
	}
	links, err := (&peer{opts: &n.opts, address: m.Address}).linksTo(n.ctx,
		&membership{set.Group, set.Self, m}, false)
	if err != nil {
		return taken, err
	}
	defer links.close()
	for ; taken < len(all); taken++ {
		r := all[taken]
		l, err := links.to(n.ctx, r.Source.Partition)
		if err != nil {
			return taken, err
		}
		q := store.StateQuery{Pull: store.Pull{
			By: set.Self, Group: set.Group, Incarnation: m.Incarnation, Partition: r.Source.Partition,
			First: r.First, Last: r.Last, Most: min(n.opts.Most, stateMost),
		}, Of: gone}
		for ends := false; !ends; {
			writeState(&l.w, &q)
			if err := l.send(n.opts.Timeout); err != nil {
				return taken, err
			}
			page, failed, err := l.string(q.Most + maxSection)
			if err = errors.Join(err, failed); err != nil {
				return taken, err
			}
			t, err := n.Store.Take(page)
			if err != nil {
				return taken, err
			}
			if t.RegionSource != r.Source || t.State == nil || t.State.Of != gone {
				return taken, fmt.Errorf("%w: the state of partition %d of region %d", ErrAnswer, t.Partition,
					t.Region)
			}
			q.Seq, q.At, ends = t.State.Seq, t.State.Next, t.State.Next == nil
		}
	}
	return taken, nil
}
