package store

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fbfkv/fbfkv/store/part"
	"github.com/fbfkv/fbfkv/store/seen"
)

// Regions returns which regions there are; false if this store is no member of any. While only some
// partitions have a change (KeepRegions), the newest version counts.
func (s *Store) Regions() (set RegionSet, ok bool) {
	for _, p := range s.partitions {
		p.lock()
		if g := p.regions; g != nil && (!ok || g.Version > set.Version) {
			set, ok = g.RegionSet, true
		}
		p.mu.Unlock()
		if s.replica == nil {
			break // all have the same
		}
	}
	return set, ok
}

// SetRegions makes the store a member of regions, or changes which there are. It returns when
// that is committed, in all partitions at once. Its partitions keep what they have taken of regions
// that stay. If the era is a later one, everything is deleted with it.
func (s *Store) SetRegions(set RegionSet) error { return s.followRegions(set, s.partitions) }

// followRegions is setRegions, but for what the store alone says of itself.
func (s *Store) followRegions(set RegionSet, ps []*partition) error {
	s.saying.Lock()
	defer s.saying.Unlock()
	was, _ := s.Regions()
	set.Leaving, set.Older = was.Leaving, was.Older && set.hasOthers()
	return s.setRegions(set, ps)
}

// say changes what the store says of itself, in all partitions that it has.
func (s *Store) say(change func(set *RegionSet)) error {
	s.saying.Lock()
	defer s.saying.Unlock()
	set, ok := s.Regions()
	if !ok {
		return ErrNoRegions
	}
	was := set.mark()
	if change(&set); set.mark() == was {
		return nil
	}
	return s.setRegions(set, slices.DeleteFunc(slices.Clone(s.partitions),
		func(p *partition) bool { return !p.isMember() }))
}

// setRegions logs members, and that a store is an older copy with a jump: what it does from then on must not
// count as what others have seen of it.
func (s *Store) setRegions(set RegionSet, ps []*partition) error {
	if err := set.Valid(); err != nil {
		return err
	}
	if own := set.member(set.Self); own.Partitions != len(s.partitions) {
		return fmt.Errorf("%w: this store has %d partitions, not %d", ErrOption, len(s.partitions),
			own.Partitions)
	}
	if err := s.writable(); err != nil {
		return err
	}
	encoded := set.Encode()
	s.catalogMu.Lock()
	defer s.catalogMu.Unlock()
	flushes, done := s.beginEra(&set)
	defer done()
	x := s.internal(ps...)
	x.flushes = flushes
	x.lock()
	err, older := s.refusal(ps...), false
	for _, p := range ps {
		switch g := p.regions; {
		case p.gone || p.handed > 0:
			err = ErrRegions
		case g != nil && (g.Self != set.Self || g.Group != set.Group):
			err = fmt.Errorf("%w: this is region %d of group %x", ErrOption, g.Self, g.Group)
		case g != nil && set.Era < g.Era:
			err = fmt.Errorf("%w: era %d after era %d", ErrOption, set.Era, g.Era)
		case g != nil:
			err = set.follows(&g.RegionSet)
		case p.catalog != nil:
			err = cmp.Or(p.catalog.checkRegional(), p.checkHeld(p.catalog, true), p.checkJoins(&set))
		}
		if err != nil {
			break
		}
		older = set.Older && p.regions != nil && !p.regions.Older
	}
	if err == nil {
		x.room, err = s.reserve(int64(len(ps) * (3*entryRoom + len(encoded))))
	}
	if err != nil {
		x.unlock()
		return err
	}
	for _, p := range ps {
		p.draft.need = p.seq
		if flushes && p.regions != nil && set.Era > p.regions.Era {
			x.flush(&p.machine, false)
		}
		x.log(&p.machine, &entry{kind: entryRegions, id: encoded})
		if older {
			x.logJump(&p.machine)
		}
	}
	s.member.Store(true)
	s.holdForRegions(&set)
	x.apply()
	x.trim()
	x.unlock()
	done() // the commit may need who needs that (Execute)
	x.giveBackRoom()
	x.wait()
	return x.err
}

// RegionIDs returns the sums of all partitions, since the store was opened.
func (s *Store) RegionIDs() (sum RegionIDs) {
	for _, n := range s.RegionIDsOf() {
		sum.Add(&n)
	}
	for _, p := range s.partitions {
		p.lock()
		sum.BeyondBounds, sum.Aside = sum.BeyondBounds+p.beyond, sum.Aside+p.aside
		if p.regions != nil {
			sum.Owed += uint64(p.regions.owed.count[p.self()])
		}
		p.mu.Unlock()
	}
	return sum
}

// RegionIDsOf returns what was made of the opids of each region, by its number, since the store was
// opened, without BeyondBounds and Aside. Own records that were given up
// too early are unchecked of the region that was furthest behind.
func (s *Store) RegionIDsOf() (sums [part.MaxRegions]RegionIDs) {
	for _, p := range s.partitions {
		p.lock()
		n := p.ids
		p.mu.Unlock()
		for r := range sums {
			sums[r].Add(&n[r])
		}
	}
	return sums
}

// RegionWaiting returns how many entries of the own logs, up to the last one that others log, each other
// region has not said, in its own, to have taken (EntriesBetween): the ids in them are kept for it.
func (s *Store) RegionWaiting() (ops [part.MaxRegions]uint64) {
	for _, p := range s.partitions {
		p.lock()
		if p.regions != nil {
			for _, by := range p.regions.ids {
				if by != p.regions.Self {
					ops[by] += EntriesBetween(p.takenBy(by), p.regions.tells)
				}
			}
		}
		p.mu.Unlock()
	}
	return ops
}

// forgetUnchecked counts what a Build has given up too early.
func (p *partition) forgetUnchecked(b *seen.Build) {
	if n := b.Unchecked(); n > 0 {
		p.mu.Lock()
		_, last := p.ackedByRegions()
		p.ids[last].Unchecked += n
		p.mu.Unlock()
	}
}

// Removal is how far the removal of a region has come, as this one knows.
type Removal struct {
	Gone, Heir part.Region
	Since      uint64
	Levelled   bool          // this region has said that it has all that is known of it, or inherits
	Waiting    []part.Region // those that have not, as far as is known here
	Done       bool          // the heir inherits
}

// Removals returns those of all regions that are gone.
func (s *Store) Removals() (all []Removal) {
	set, _ := s.Regions()
	for _, m := range set.Members {
		if !m.Gone {
			continue
		}
		r := Removal{Gone: m.Region, Heir: m.Heir, Since: m.Since, Levelled: true, Done: true}
		for _, p := range s.partitions {
			p.lock()
			if g := p.regions; g != nil {
				for _, by := range p.unlevelled(m.Region) {
					r.Levelled = r.Levelled && by != g.Self
					r.Done = r.Done && by != m.Heir
					if by != g.Self && !slices.Contains(r.Waiting, by) {
						r.Waiting = append(r.Waiting, by)
					}
				}
			}
			p.mu.Unlock()
		}
		all = append(all, r)
	}
	return all
}

// Levelled says that this region has taken from each other member, since the removal, all that that
// knows of a region that is gone. In the heir nothing is said as long as any other has not said it;
// Removals tells. To be called again after the store was opened, unless Removals says that it is
// levelled.
func (s *Store) Levelled(gone part.Region, since uint64) error {
	set, ok := s.Regions()
	m := set.member(gone)
	if !ok || m == nil || !m.Gone || m.Since != since {
		return fmt.Errorf("%w: region %d is not gone since %d", ErrOption, gone, since)
	}
	b := Batch{Atomic: true}
	for _, p := range s.partitions {
		p.lock()
		if p.regions == nil { // another shard has it
			p.mu.Unlock()
			continue
		}
		waiting := p.unlevelled(gone)
		if slices.Contains(waiting, set.Self) && (m.Heir != set.Self || len(waiting) == 1) {
			l := &levelled{Gone: gone, Since: since, By: RegionSource{set.Self, p.id}}
			op := b.Add(regionLevel)
			op.Delta, op.Object = int64(p.id), l
		}
		p.mu.Unlock()
	}
	if len(b.Ops) > 0 {
		s.Execute(&b)
	}
	for i := range b.Ops {
		if err := b.Ops[i].Err; err != nil {
			return err
		}
	}
	return nil
}

// KeepRegions is SetRegions of the leader of a shard, for the partitions that this has. A partition
// that knows this version, or a newer one, stays as it is.
func (s *Store) KeepRegions(set RegionSet, partitions []uint16) error {
	var lack []*partition
	for _, n := range partitions {
		p, err := s.ownPartition(n)
		if err != nil {
			return err
		}
		p.lock()
		if p.regions == nil || p.regions.Version < set.Version {
			lack = append(lack, p)
		}
		p.mu.Unlock()
	}
	if len(lack) == 0 {
		return nil
	}
	return s.followRegions(set, lack)
}

// isMember reports whether the partition knows of regions: a replica has some that are another shard's.
func (p *partition) isMember() bool {
	p.lock()
	defer p.mu.Unlock()
	return p.regions != nil
}

// holdForNews keeps the log for regions of which Follow has just heard.
func (s *Store) holdForNews() {
	if set := s.replica.news; set != nil {
		s.replica.news = nil
		s.member.Store(true)
		s.holdForRegions(set)
	}
}

// giveUpHeard gives up, of the log that a replica keeps for other regions, what these have said in
// their own logs that they have taken. They may never ask this replica.
func (s *Store) giveUpHeard() {
	if s.replica == nil || !s.member.Load() {
		return
	}
	for _, p := range s.partitions {
		if !p.lockNow() {
			continue
		}
		var taken [part.MaxRegions]uint64
		if g := p.regions; g != nil {
			for _, by := range g.ids {
				if by != g.Self {
					taken[by] = p.takenBy(by)
				}
			}
		}
		p.mu.Unlock()
		s.peers.mu.Lock()
		for r, seq := range taken {
			if h := s.peers.of[r]; h != nil && seq > 0 {
				h.hold.Acknowledge(p.id, seq+1)
			}
		}
		s.peers.mu.Unlock()
	}
}

// Conflicts returns the twins that were met last, up to MaxConflicts, the newest first.
func (s *Store) Conflicts() (all []Conflict) {
	for _, p := range s.partitions {
		p.lock()
		all = append(all, p.twins.ring...)
		p.mu.Unlock()
	}
	slices.SortStableFunc(all, func(a, b Conflict) int { return cmp.Compare(b.Met, a.Met) })
	return all[:min(len(all), MaxConflicts)]
}
