package store

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/fbfkv/fbfkv/store/coding"
	"github.com/fbfkv/fbfkv/store/part"
)

// Regions change the same counters at the same time, each by itself, and tell each other
// what they did. Here is what a store knows of
// the others. Of a key that another region has changed too, or that was set, deleted or
// given an expiry, its counter has parts (package part), and the value of the counter is
// their total. Of all other keys nothing is different, not a byte.
//
// A Change is one region's effect on a key. It follows from the entry of the op log alone
// (entry.change), both here, when that entry is redone, and in the regions that read it.
//
//	region.go       what a member knows: regions, cursors
//	regionentry.go  what is logged
//	regionown.go    what own operations note for redo, and for others
//	regionkey.go    changes; parts of a key, and redo of them
//	regionexpiry.go when keys expire
//	regiontake.go   operations that take what other regions did
//	regionflush.go  deleting everything, in all regions
//	regiondrop.go   forgetting keys that ended, and take-backs
//	proof.go        how a region sees that its directory is an older copy
//	pull.go         telling the log, take.go taking it
//	regionstate.go  telling the state, takestate.go taking it
//	regiondigest.go proving that regions agree
//	regionowed.go   what other regions are to take back
//	regionremove.go what becomes of a region that is lost
//	regionshard.go  a region that is a cluster: each shard is a part of it

// Errors of regions.
var (
	// ErrRegions: partitions of a region stay where they are.
	ErrRegions = errors.New("partitions of a region cannot be moved yet")
	// ErrRegionFlush: what others count would come back key by key.
	ErrRegionFlush = errors.New("FLUSHALL would delete what other regions count: use fbfkv region flush")
	// ErrNoRegions: the store is no member of regions.
	ErrNoRegions = errors.New("this server is not a region")
	// ErrRemoved and ErrRestored: no other region reads this one, so what clients write would be lost.
	ErrRemoved = errors.New("the other regions have removed this one, and it exchanges nothing with them " +
		"any more: send clients to another one; " +
		"to make this server a region again, start it with an empty directory and join")
	ErrRestored = errors.New("this directory was restored from a backup, or is an older copy, so the " +
		"other regions do not read it: remove this region, " +
		"and join with an empty directory; if all others are lost, remove them here, and this region goes on " +
		"(if there are none: fbfkv region create once more)")
	// ErrLeaving: see Store.Leave.
	ErrLeaving = errors.New("this region is being removed: send clients to another one (if fbfkv region " +
		"remove was interrupted for good: REGION LEAVE no)")
)

// Bounds of the name and of the address of a region, bytes.
const (
	maxRegionName    = 64
	maxRegionAddress = 300
	dataDigits       = 32
)

// MaxRegionVersion bounds RegionSet.Version.
const MaxRegionVersion = 1 << 53

// MaxRegionSet bounds what RegionSet.Encode returns, bytes: names and addresses may be escaped.
const MaxRegionSet = part.MaxRegions * (6*(maxRegionName+maxRegionAddress) + 512)

// RegionMember is one of the regions.
type RegionMember struct {
	Region      part.Region
	Name        string
	Partitions  int    // of its store, a power of two
	Incarnation uint64 // of its directory, whose log others read
	Address     string // HOST:PORT, at which others reach it; may be "" where nobody else is to
	// Data is the id of its data (persistence.Meta), 32 hex digits: with Incarnation it names the
	// directory. "": nobody knows.
	Data string `json:",omitempty"`
	// Joined is the version of the set in which it became a member, and must catch up with those that
	// were there before (checkCaughtUp); 0: it is one from the beginning.
	Joined uint64 `json:",omitempty"`

	// Gone: it was removed (regionremove.go). Heir is the region that writes its parts since, and
	// Since the version of the set that says so.
	Gone  bool        `json:",omitempty"`
	Heir  part.Region `json:",omitempty"`
	Since uint64      `json:",omitempty"`
}

// RegionSet is which regions there are, and which one this is. It is logged whole.
type RegionSet struct {
	Group   uint64 // drawn once for all of them; others are refused
	Version uint64 // of two sets, the one with the higher version is the newer
	Era     uint64 // counts flushes (regionflush.go)
	Self    part.Region
	Members []RegionMember // by Region
	// Leaving: this region will be removed, and refuses what clients write (Store.Leave). Older: what it has
	// told is not what it has (proof.go). Both are of the own region, and of a cluster's of one shard: a
	// store logs them itself, and what others tell does not count.
	Leaving bool `json:",omitempty"`
	Older   bool `json:",omitempty"`
	// Removed: the version is that by which the others removed this region; Members are as before.
	// It is for ever.
	Removed bool `json:",omitempty"`
}

// RegionSource is a partition of a region: where a log comes from.
type RegionSource struct {
	Region    part.Region
	Partition uint16
}

func (a RegionSource) compare(b RegionSource) int {
	return cmp.Or(cmp.Compare(a.Region, b.Region), cmp.Compare(a.Partition, b.Partition))
}

// RegionTaken says that the log of a source has been taken up to a sequence.
type RegionTaken struct {
	RegionSource
	Seq uint64
}

// RegionCursor is what a partition logs behind the changes that it has taken from a source: the
// position up to which it has taken them, and the positions that the source itself had taken by then.
type RegionCursor struct {
	RegionTaken
	Wall   int64         // of the source at Seq, unix ms
	Vector []RegionTaken // by source
	Proof  Proof         // of Seq

	life uint64 // of the partition, in which it follows what was taken before; in no entry
}

// regions is what a partition of a member knows of the others. The partition's lock guards it.
type regions struct {
	RegionSet
	ids     []part.Region             // of all members but those that are gone
	cursors map[RegionSource]uint64   // how far this partition has taken each log
	clocks  map[RegionSource]int64    // … and by how much its clock was ahead of logged time here
	proved  map[RegionSource]Position // … the last position of each that its source has proved
	// heard is, for each source, how far it has taken the logs of others, as it said in its
	// own log, up to where that was taken here. It may be ahead of the op log: idle regions log
	// nothing of it.
	heard map[RegionSource]map[RegionSource]uint64
	news  uint64 // counts changes of both
	owed  owedOps
	// stated is what regions have said of the removal of others (regionremove.go).
	stated map[statement]stated
	// caughtUp is that the state of all regions that were there before was taken (checkCaughtUp).
	caughtUp bool
	// since is the sequence from which on the log tells others all that they must know, and keys that
	// end are remembered until all know that. Before it, this region was alone. 0: it still is.
	since uint64
	// tells is the last sequence of an entry that others log when they take it: all that is told but
	// cursors.
	tells uint64
}

func newRegions(set RegionSet) *regions {
	g := &regions{RegionSet: set, cursors: make(map[RegionSource]uint64),
		clocks: make(map[RegionSource]int64), proved: make(map[RegionSource]Position),
		heard: make(map[RegionSource]map[RegionSource]uint64), stated: make(map[statement]stated)}
	g.setMembers(set)
	return g
}

func (g *regions) setMembers(set RegionSet) {
	g.RegionSet, g.ids, g.news, g.caughtUp = set, nil, g.news+1, false
	for _, m := range set.Members {
		if !m.Gone {
			g.ids = append(g.ids, m.Region)
		}
	}
}

// member returns a region; nil if there is none of that number.
func (s *RegionSet) member(r part.Region) *RegionMember {
	for i := range s.Members {
		if s.Members[i].Region == r {
			return &s.Members[i]
		}
	}
	return nil
}

// Member returns a region; false if there is none of that number.
func (s *RegionSet) Member(r part.Region) (RegionMember, bool) {
	if m := s.member(r); m != nil {
		return *m, true
	}
	return RegionMember{}, false
}

// mark tells two states of a store's members apart. It is not 0.
func (s *RegionSet) mark() uint64 {
	return (s.Version+1)<<2 | uint64(bit(s.Leaving))<<1 | uint64(bit(s.Older))
}

// hasOthers reports whether there are living members beside the own region.
func (s *RegionSet) hasOthers() bool {
	return slices.ContainsFunc(s.Members, func(m RegionMember) bool { return !m.Gone && m.Region != s.Self })
}

// Shared reports whether other regions count the same keys. A server without regions has a nil set.
func (s *RegionSet) Shared() bool { return s != nil && s.hasOthers() }

// alone reports whether there are no other regions: then no other region knows any key.
func (g *regions) alone() bool { return len(g.ids) == 1 }

// take notes what a cursor says, which was logged at a logged time. Cursors only go forward, so repeating it
// changes nothing.
func (g *regions) take(c *RegionCursor, logged int64) {
	if c.Seq > g.cursors[c.RegionSource] {
		g.cursors[c.RegionSource], g.clocks[c.RegionSource] = c.Seq, c.Wall-logged
		g.news++
		if c.Proof != (Proof{}) {
			g.proved[c.RegionSource] = Position{c.RegionTaken, c.Proof}
		}
	}
	g.hear(c.RegionSource, c.Vector)
}

// hear notes the positions that a source, by its log, has taken itself.
func (g *regions) hear(from RegionSource, vector []RegionTaken) {
	for _, t := range vector {
		if g.heard[from] == nil {
			g.heard[from] = make(map[RegionSource]uint64)
		}
		if t.Seq > g.heard[from][t.RegionSource] {
			g.heard[from][t.RegionSource] = t.Seq
			g.news++
		}
	}
}

// source is the partition of a region that has a slot. It must be a member.
func (g *regions) source(r part.Region, slot uint16) RegionSource {
	return RegionSource{r, uint16(int(slot) * g.member(r).Partitions / slots)}
}

// checkCaughtUp refuses an operation that nothing is known of here while a region that was there
// before this one may know it, and its state was not taken yet. That region may have forgotten the
// counter since: what is applied here now would be taken back from one that begins anew, or not at
// all.
func (r *ref) checkCaughtUp() error {
	g := r.p.regions
	if g == nil || g.caughtUp || !r.p.catalog.find(r.key).Told() {
		return nil
	}
	all, joined := true, g.member(g.Self).Joined
	first, last := slotRange(int(r.p.id), r.p.count)
	for i := range g.Members {
		m := &g.Members[i]
		if m.Gone || m.Joined >= joined {
			continue
		}
		at, end := g.source(m.Region, first), g.source(m.Region, last).Partition
		for ; at.Partition <= end; at.Partition++ {
			if g.cursors[at] > 0 { // its state was taken before its log (newTeller)
				continue
			}
			if all = false; at == g.source(m.Region, r.slot) {
				return fmt.Errorf("%w (%s)", ErrNotCaughtUp, m.Name)
			}
		}
	}
	g.caughtUp = all
	return nil
}

// acked is what part.Parts asks for a key of a slot: how far region by has taken the changes of
// region of, as it said in its own log.
func (g *regions) acked(slot uint16) func(by, of part.Region) uint64 {
	return func(by, of part.Region) uint64 {
		m := g.member(of)
		if m == nil || g.member(by) == nil {
			return 0
		}
		if m.Gone {
			return g.ackedGone(by, m, slot)
		}
		if by == g.Self {
			return g.cursors[g.source(of, slot)]
		}
		return g.heard[g.source(by, slot)][g.source(of, slot)]
	}
}

// clone returns a copy for the state row.
func (g *regions) clone() *regions {
	if g == nil {
		return nil
	}
	n := *g
	n.cursors, n.clocks = maps.Clone(g.cursors), maps.Clone(g.clocks)
	n.proved, n.heard = maps.Clone(g.proved), make(map[RegionSource]map[RegionSource]uint64)
	for from, taken := range g.heard {
		n.heard[from] = maps.Clone(taken)
	}
	n.owed, n.stated = g.owed.clone(), maps.Clone(g.stated)
	return &n
}

// Encode is the JSON that is logged, and that regions tell each other.
func (s RegionSet) Encode() []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // numbers and strings of UTF-8
	}
	return b
}

// DecodeRegionSet reads what Encode has written; whoever sent it need not be trusted.
func DecodeRegionSet(b []byte) (s RegionSet, err error) {
	if len(b) > MaxRegionSet {
		return s, fmt.Errorf("%w: regions of %d bytes", ErrOption, len(b))
	}
	if err = decodeJSON(b, &s); err == nil {
		err = s.Valid()
	}
	return s, err
}

func decodeRegions(b []byte) (s RegionSet, err error) {
	if s, err = DecodeRegionSet(b); err != nil {
		return s, fmt.Errorf("%w: regions: %v", errCorruptEntry, err)
	}
	return s, nil
}

// Valid refuses regions that contradict themselves: ErrOption.
func (s *RegionSet) Valid() error {
	if len(s.Members) == 0 || len(s.Members) > part.MaxRegions || !s.living(s.Self) {
		return fmt.Errorf("%w: the own region is not among at most %d", ErrOption, part.MaxRegions)
	}
	if s.Version > MaxRegionVersion {
		return fmt.Errorf("%w: version %d of the regions", ErrOption, s.Version)
	}
	for i, m := range s.Members {
		n := m.Partitions
		switch {
		case m.Region >= part.MaxRegions || i > 0 && m.Region <= s.Members[i-1].Region:
			return fmt.Errorf("%w: region %d", ErrOption, m.Region)
		case m.Name == "" || len(m.Name) > maxRegionName || !utf8.ValidString(m.Name):
			return fmt.Errorf("%w: the name of region %d", ErrOption, m.Region)
		case len(m.Address) > maxRegionAddress || !utf8.ValidString(m.Address):
			return fmt.Errorf("%w: the address of region %d", ErrOption, m.Region)
		case m.Data != "" && (len(m.Data) != dataDigits || strings.Trim(m.Data, "0123456789abcdef") != ""):
			return fmt.Errorf("%w: the data of region %d", ErrOption, m.Region)
		case n < 1 || n > slots || n&(n-1) != 0:
			return fmt.Errorf("%w: region %d has %d partitions", ErrOption, m.Region, n)
		case m.Joined > s.Version:
			return fmt.Errorf("%w: when region %d became one", ErrOption, m.Region)
		case m.Gone && (!s.living(m.Heir) || m.Since == 0 || m.Since > s.Version) || !m.Gone &&
			(m.Heir != 0 || m.Since != 0):
			return fmt.Errorf("%w: the heir of region %d", ErrOption, m.Region)
		}
		for _, o := range s.Members[:i] {
			if o.Name == m.Name && !o.Gone && !m.Gone {
				return fmt.Errorf("%w: two regions have the name %q", ErrOption, m.Name)
			}
		}
	}
	return nil
}

// appendTo appends what the state row has of regions: the set, since, tells, then for each cursor source
// and sequence, for each its clock, the positions that are proved, for each source that has said
// something what it said, and what is of removals.
func (g *regions) appendTo(b []byte) []byte {
	b = coding.AppendBytes(b, g.RegionSet.Encode())
	b = binary.AppendUvarint(binary.AppendUvarint(b, g.since), g.tells)
	cursors := sortTaken(g.cursors)
	b = appendTaken(b, cursors)
	for _, t := range cursors {
		b = binary.AppendVarint(b, g.clocks[t.RegionSource])
	}
	b = appendPositions(b, slices.SortedFunc(maps.Values(g.proved), func(a, b Position) int {
		return a.compare(b.RegionSource)
	}))
	var said []RegionCursor
	for from, taken := range g.heard {
		said = append(said,
			RegionCursor{RegionTaken: RegionTaken{RegionSource: from}, Vector: sortTaken(taken)})
	}
	slices.SortFunc(said, func(a, b RegionCursor) int { return a.compare(b.RegionSource) })
	b = binary.AppendUvarint(b, uint64(len(said)))
	for _, c := range said {
		b = c.RegionSource.appendTo(b)
		b = appendTaken(b, c.Vector)
	}
	return g.appendStated(g.owed.appendTo(b))
}

func (r *reader) regions() *regions {
	set, err := decodeRegions(r.Bytes())
	if err != nil {
		r.Fail()
		return nil
	}
	g := newRegions(set)
	g.since, g.tells = r.Uvarint(), r.Uvarint()
	for _, t := range r.taken() {
		g.cursors[t.RegionSource], g.clocks[t.RegionSource] = t.Seq, r.Varint()
	}
	for _, at := range r.positions() {
		if _, twice := g.proved[at.RegionSource]; twice || at.Proof == (Proof{}) ||
			at.Seq > g.cursors[at.RegionSource] {
			r.Fail()
		}
		g.proved[at.RegionSource] = at
	}
	var last *RegionSource
	for n := r.UpTo(uint64(len(r.Rest))); n > 0 && r.err() == nil; n-- {
		from := r.source()
		if last != nil && from.compare(*last) <= 0 {
			r.Fail()
		}
		taken := r.taken()
		if len(taken) == 0 {
			r.Fail()
		}
		last = &from
		g.hear(from, taken)
	}
	g.owed = r.owed()
	g.stated = r.stated()
	return g
}

// sortTaken returns what a map says, by source.
func sortTaken(m map[RegionSource]uint64) []RegionTaken {
	out := make([]RegionTaken, 0, len(m))
	for from, seq := range m {
		out = append(out, RegionTaken{from, seq})
	}
	slices.SortFunc(out, func(a, b RegionTaken) int { return a.compare(b.RegionSource) })
	return out
}

// redoRegions redoes a change of regions.
func (p *machine) redoRegions(e *entry, seq uint64, _ moment) error {
	set, err := decodeRegions(e.id)
	if err != nil || seq <= p.marks.counters {
		return err
	}
	if p.regions == nil {
		p.regions = newRegions(set)
		p.tellsFrom(seq)
		return nil
	}
	before, alone := p.regions.ids, p.regions.alone()
	if p.regions.setMembers(set); alone {
		p.tellsFrom(seq)
	}
	p.regions.dropStated(before)
	p.ended.owes = false
	return nil
}

// tellsFrom notes that the region is alone no more, as of a sequence.
func (p *machine) tellsFrom(seq uint64) {
	if g := p.regions; !g.alone() {
		g.since = seq
	}
}

// self is the own region. The partition must be a member's.
func (p *machine) self() part.Region { return p.regions.Self }

// RegionShare is what a region has added to the value of a counter, by its name; or this one's, where the key
// holds an object.
type RegionShare struct {
	Region string
	Value  int64
	Object bool
}

// shares answers ByRegion. The counter is looked at as Get does: what is shown is committed. Of a key that
// holds an object here it shows the counter that other regions have, if there is one.
func (r *ref) shares(op *Op, object bool) error {
	g := r.p.regions
	switch {
	case g == nil:
		return ErrNoRegions
	case object && !r.c.parts().Alive():
		return ErrWrongType
	case !op.Found && !object:
		return nil
	}
	parts := r.c.asParts(g.Self)
	var all []RegionShare
	if object {
		all = append(all, RegionShare{Region: g.name(g.Self), Object: true})
	}
	for i := range parts {
		if of := parts[i].Region; !object || of != g.Self {
			all = append(all, RegionShare{Region: g.name(of), Value: parts.Share(of)})
		}
	}
	op.Found, op.Object = true, all
	return nil
}

// nameOf returns the name of the region that applied an operation.
func (g *regions) nameOf(o *Seen) string {
	if o.Own() {
		return g.name(g.Self)
	}
	return g.name(o.Region)
}

// name returns a region's name. The name of a removed region is followed by its number, since
// another region may have the same name now.
func (s *RegionSet) name(r part.Region) string {
	switch m := s.member(r); {
	case m == nil:
		return fmt.Sprint("region ", r)
	case m.Gone:
		return fmt.Sprint(m.Name, "#", r)
	default:
		return m.Name
	}
}

// checkTold refuses tables by which other regions would be told of keys of which they were not.
// All keys whose table might be another one begin with the prefix of a table, old or new.
func (p *machine) checkTold(next *catalog) error {
	if err := p.checkHeld(next, p.regions != nil); err != nil || p.regions == nil {
		return err
	}
	if err := next.checkRegional(); err != nil || p.regions.alone() {
		return err
	}
	for _, c := range []*catalog{p.catalog, next} {
		for _, t := range c.live() {
			prefix := []byte(t.Prefix)
			if next.find(prefix).Told() && !p.catalog.find(prefix).Told() {
				return ErrTableRegions
			}
		}
	}
	return nil
}

// checkJoins refuses that counters with bounds, which this region has alone until now, meet those of others.
func (p *machine) checkJoins(set *RegionSet) error {
	bounded := slices.ContainsFunc(p.catalog.live(), func(t *tableDef) bool {
		return t.Told() && t.hasBounds()
	})
	if bounded && set.hasOthers() && p.size > 0 {
		return ErrBoundedKeys
	}
	return nil
}

// checkHeld refuses tables under which open holds cannot be, of a region or of none.
func (p *machine) checkHeld(next *catalog, region bool) error {
	for key := range p.holds.keys {
		if err := next.find([]byte(key)).takesHolds(region); err != nil {
			return fmt.Errorf("%w (key %q): %v", ErrHoldsOpen, key, err)
		}
	}
	return nil
}

// checkRegional refuses tables that no region may have.
func (c *catalog) checkRegional() error {
	for _, t := range c.live() {
		if t.Scale > 0 {
			return fmt.Errorf("%w (table %q)", ErrTableScale, t.Name)
		}
	}
	return nil
}

// dead reports whether another region's answer is passed over, as its era is older than the one
// here. It fails with ErrEra if the era is newer: then the answer must wait.
func (g *regions) dead(era uint64) (bool, error) {
	if era > g.Era {
		return false, ErrEra
	}
	return era < g.Era, nil
}
