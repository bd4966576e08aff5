package store

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fbfkv/fbfkv/internal/longlock"
	"github.com/fbfkv/fbfkv/persistence/oplog"
)

// Clients follow the changes of counters in the op log, in its order, from a cursor on. A cursor says how
// far each partition was read, with a fingerprint of the section there, so that it is refused
// by a server whose log has something else. A follower may go back to an older cursor: the log is
// kept for it as far as Options.FollowBacklog reaches, whatever it has read. In a cluster the cursor has all
// partitions of the cluster, and each shard goes on with those that it has (followshard.go).

// The refusals of followers.
var (
	ErrCursor = errors.New("the cursor is not one of CFOLLOW")
	// ErrOtherLog: the cursor goes on in another log than this one.
	ErrOtherLog = errors.New("the cursor is of another history than this server's, which may be a copy or " +
		"restored from a backup: begin again with SNAPSHOT, START or NOW")
	// ErrLost: the op log does not have the next changes any more.
	ErrLost      = errors.New("changes are lost to this follower")
	ErrFollowers = fmt.Errorf("there are %d followers already: take the name of one of them, which INFO has, "+
		"or let one fall behind follow-backlog", maxFollowers)
	ErrFollowerName = fmt.Errorf("a group's name has 1 to %d letters, digits, or any of . _ : -", maxFollowerName)
)

const (
	maxFollowers    = 64
	maxFollowerName = 64
)

// FollowStart says where a follower without a cursor begins.
type FollowStart uint8

// Where a follower can begin.
const (
	FollowCursor   FollowStart = iota
	FollowOldest               // with the oldest change that the log has
	FollowNow                  // behind all that is committed
	FollowSnapshot             // with all counters that there are (followsnapshot.go)
)

// FollowRequest is what a follower asks.
type FollowRequest struct {
	Group  string
	Start  FollowStart
	Cursor string // of the answer before, with FollowCursor
	// Wants reports whether the follower follows a key, which it borrows.
	Wants func(key []byte) bool
	// Tell is called for each change, in the order of the log. Once it has said that it has enough, the
	// rest of the record at hand follows, and no more.
	Tell func(*Followed) (enough bool)
}

// FollowAnswer says how far FollowChanges has read.
type FollowAnswer struct {
	Cursor string
	More   bool     // it was too much for one answer
	Behind []Behind // else one of these must be passed before there is more
}

// followers are by their groups' names. Safe for concurrent use.
type followers struct {
	mu longlock.Mutex // held while the list of them is written
	of map[string]*follower
}

// follower reads the op log for a group.
type follower struct {
	hold *oplog.Hold

	reading longlock.Mutex // guards the fields below; held while a page of a snapshot is committed
	told    []followedTo   // how far, last
	at      oplog.Bookmark // where it goes on from there
}

// openFollowers keeps the log for the groups that there were before.
func (s *Store) openFollowers() {
	names, err := s.db.Followers()
	if err != nil {
		s.log.Warn("cannot read who follows the op log, so it may not be kept for them", "error", err)
	}
	for _, name := range names {
		if checkFollower(name) == nil && len(s.followers.of) < maxFollowers {
			s.holdForFollower(name)
		}
	}
}

// holdForFollower begins to keep the log for a group. The followers are locked, or nobody uses them yet.
func (s *Store) holdForFollower(name string) *follower {
	if s.followers.of == nil {
		s.followers.of = make(map[string]*follower)
	}
	f := &follower{hold: s.db.Log().HoldNewest("follower "+name, uint64(s.opts.FollowBacklog))}
	s.followers.of[name] = f
	return f
}

// follower returns the reader of a group, which may be new.
func (s *Store) follower(name string) (*follower, error) {
	if err := checkFollower(name); err != nil {
		return nil, err
	}
	s.followers.mu.Lock()
	defer s.followers.mu.Unlock()
	f := s.followers.of[name]
	switch {
	case f != nil && !f.hold.Lost():
		return f, nil
	case f == nil && len(s.followers.of) >= maxFollowers:
		return nil, ErrFollowers
	}
	f = s.holdForFollower(name)
	return f, s.saveFollowers()
}

// dropFollowers forgets groups for which the log is not kept any more, as they are too far behind.
func (s *Store) dropFollowers() {
	s.followers.mu.Lock()
	defer s.followers.mu.Unlock()
	had := len(s.followers.of)
	maps.DeleteFunc(s.followers.of, func(name string, f *follower) bool {
		if f.hold.Lost() {
			s.log.Warn("the op log is not kept for a follower any more, which is more than follow-backlog behind, or "+
				"the disk is nearly full", "group", name)
		}
		return f.hold.Lost()
	})
	if len(s.followers.of) == had {
		return
	}
	if err := s.saveFollowers(); err != nil {
		s.log.Warn("cannot forget a follower", "error", err)
	}
}

// releaseFollowed gives up all of the log that is kept for followers alone, as the disk is nearly full.
func (s *Store) releaseFollowed() {
	s.followers.mu.Lock()
	defer s.followers.mu.Unlock()
	released := false
	for _, f := range s.followers.of {
		if f.hold.Kept() > 0 {
			f.hold.Release()
			released = true
		}
	}
	if released {
		if err := s.db.Log().Trim(0, 0); err != nil {
			s.log.Warn("cannot give up what is kept for followers", "error", err)
		}
	}
}

// FollowerInfo says how far a group has read the op log.
type FollowerInfo struct {
	Name string
	Lag  uint64 // bytes of the log that it has not read, about
	Kept uint64 // bytes of the log that are kept for it alone
}

// Followers returns the groups for which the op log is kept, by their names.
func (s *Store) Followers() (all []FollowerInfo) {
	s.followers.mu.Lock()
	defer s.followers.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.followers.of)) {
		if h := s.followers.of[name].hold; !h.Lost() {
			all = append(all, FollowerInfo{name, h.Lag(), h.Kept()})
		}
	}
	return all
}

// saveFollowers is called with the followers locked.
func (s *Store) saveFollowers() error {
	return s.db.SetFollowers(slices.Sorted(maps.Keys(s.followers.of)))
}

func checkFollower(name string) error {
	const others = "._:-"
	for _, c := range []byte(name) {
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && strings.IndexByte(others, c) < 0 {
			return ErrFollowerName
		}
	}
	if name == "" || len(name) > maxFollowerName {
		return ErrFollowerName
	}
	return nil
}

// FollowChanges tells a group the changes behind its cursor, as far as they are committed. It waits for no
// change, but a page of a snapshot is told when what it shows is committed.
// Errors: of this file, or of the op log. Safe for concurrent use.
func (s *Store) FollowChanges(q *FollowRequest) (a FollowAnswer, err error) {
	r := s.newFollowing(q)
	if err := r.begin(); err != nil {
		return a, err
	}
	f, err := s.follower(q.Group)
	if err != nil {
		return a, err
	}
	f.reading.Lock()
	defer f.reading.Unlock()
	at := f.at
	if !r.goesOnFrom(f.told) {
		at = s.db.Log().BookmarkAt(r.from())
	}
	if q.Start == FollowSnapshot {
		r.beginSnapshot()
	}
	at, err = r.read(at)
	if errors.Is(err, oplog.ErrBookmark) && !r.told {
		at, err = r.read(s.db.Log().BookmarkAt(r.from()))
	}
	err = r.judge(err)
	if err == nil && !r.enough && !r.more && r.nextPage() != nil {
		at, err = r.goOn(at)
		err = r.judge(err)
	}
	if err != nil {
		return a, err
	}
	a = FollowAnswer{Cursor: r.cursor(), More: r.more || r.nextPage() != nil}
	f.told, f.at = r.at, at
	f.hold.ReadTo(at)
	switch {
	case a.More:
	case r.stuck != nil:
		a.Behind = []Behind{*r.stuck}
	default:
		for p := range r.at {
			last := r.at[p].seq
			if r.waits(p) {
				last = r.at[p].committed
			}
			a.Behind = append(a.Behind, Behind{uint16(p), last})
		}
	}
	return a, nil
}

// following is one reading for a follower.
type following struct {
	s       *Store
	q       *FollowRequest
	shard   Shard     // whose log it is
	regions RegionSet // whose names are told
	at      []followedTo
	told    bool    // something was
	enough  bool    // … and that is enough
	more    bool    // there is more than was told
	stuck   *Behind // it ended as this is not committed

	place   *followedPlace // of a snapshot; nil: it is within no partition
	page    *followedPage  // the log is told up to this page of it
	stalled bool           // the next page cannot be read now

	reader sectionReader // of the section at hand
	entry  entry         // of it
	taken  takenSection  // … if it has what other regions did
	change Followed
}

// followedTo is how far a partition was read.
type followedTo struct {
	begins    FollowStart // so it is to begin, where it is; FollowCursor: it has begun
	log       uint64      // that seq is of (Shard.Log); 0: one that the partition has left behind seq
	seq       uint64
	print     uint32 // of the section that ends there; 0: unknown
	open      bool   // it begins with the first section that the log has of it since it came
	owned     bool   // this shard has it, as far as this replica knows
	here      bool   // … and it can begin here
	adopted   uint64 // it has come with this sequence; 0: from nowhere
	committed uint64
	catalog   *catalog
}

// newFollowing begins the reading of a request.
func (s *Store) newFollowing(q *FollowRequest) *following {
	return &following{s: s, q: q, shard: s.shard(), at: make([]followedTo, len(s.partitions))}
}

// begin finds out where the reading begins, and how far it may go.
func (r *following) begin() error {
	if r.q.Start == FollowCursor {
		if err := r.parse(r.q.Cursor); err != nil {
			return err
		}
	}
	r.regions, _ = r.s.Regions()
	leads := r.s.Leads() // so it has all that the configuration says
	for i, p := range r.s.partitions {
		at := &r.at[i]
		if r.q.Start != FollowCursor {
			at.begins = r.q.Start
		}
		owns := r.shard.Owns(p.id)
		p.lock()
		last := p.seq
		at.catalog, at.adopted, at.committed = p.catalog, p.adopted, p.committed.upTo()
		at.owned = owns && p.handed == 0 && !p.gone && p.movedRows == nil
		at.here = at.owned && leads
		p.mu.Unlock()
		if at.seq > last && !r.waits(i) && r.s.replica == nil {
			return ErrOtherLog
		}
	}
	if err := r.cross(); err != nil {
		return err
	}
	for i := range r.at {
		at := &r.at[i]
		switch {
		case r.waits(i) && !at.here:
		case at.begins == FollowOldest:
			at.begins, at.log, at.open = FollowCursor, r.shard.Log, true
		case at.begins == FollowNow:
			at.begins, at.log, at.seq = FollowCursor, r.shard.Log, at.committed
		}
		if !r.waits(i) { // nobody may have noted yet what is durable, or another replica was ahead
			at.committed = max(at.committed, at.seq)
		}
	}
	return nil
}

// goesOnFrom reports whether the reading goes on behind the changes that the follower was told last.
func (r *following) goesOnFrom(told []followedTo) bool {
	reads := false
	for p := range r.at {
		if r.waits(p) {
			continue
		}
		reads = true
		if at := &r.at[p]; told == nil || at.open || told[p].begins != FollowCursor ||
			told[p].log != at.log || told[p].seq != at.seq || told[p].print != at.print {
			return false
		}
	}
	return reads
}

// waits reports whether the log is not read for a partition: it is, or was, another shard's, or begins later.
func (r *following) waits(p int) bool {
	return r.at[p].begins != FollowCursor || r.at[p].log != r.shard.Log
}

// from is what the log must be read from so that the cursor can be compared with it.
func (r *following) from() map[uint16]uint64 {
	from := make(map[uint16]uint64, len(r.at))
	for p := range r.at {
		if !r.waits(p) {
			from[uint16(p)] = max(r.at[p].seq, 1)
		}
	}
	return from
}

// read tells what follows a bookmark, and returns one behind that.
func (r *following) read(at oplog.Bookmark) (oplog.Bookmark, error) {
	if r.page == nil && len(r.from()) == 0 {
		return at, nil
	}
	at, err := r.s.db.Log().Follow(at, r.record)
	if err == nil {
		for p := range r.at {
			at := &r.at[p]
			switch {
			case r.waits(p):
			case at.open:
				at.seq, at.open = at.committed, false
			case at.seq < at.committed:
				return oplog.Bookmark{}, r.lost(uint16(p), at.committed)
			}
		}
	}
	return at, err
}

// judge returns the follower's error for one of read. Changes told before it count.
func (r *following) judge(err error) error {
	switch {
	case errors.Is(err, errEnough):
		return nil
	case r.told && (errors.Is(err, oplog.ErrBookmark) || errors.Is(err, ErrLost)):
		r.more = true
		return nil
	}
	return err
}

// lost is the error of a gap in a partition, from the last sequence that was read up to another one.
func (r *following) lost(p uint16, to uint64) error {
	return fmt.Errorf("%w, which is more than follow-backlog behind: those of partition %d from %d to %d, perhaps "+
		"more; %s", ErrLost, p, r.at[p].seq+1, to, beginAgain)
}

const beginAgain = "begin again with SNAPSHOT, which tells all counters first, or with START or NOW"

// record tells of a record of the log, if all of it is committed.
func (r *following) record(record []byte) error {
	if g := r.page; g != nil { // as of which all is committed
		if r.at[g.p.id].seq >= g.at || r.waits(int(g.p.id)) {
			return errEnough
		}
		return oplog.Sections(record, r.section)
	}
	if r.enough {
		r.more = true
		return errEnough
	}
	err := oplog.Sections(record, func(p uint16, seq uint64, _ []byte) error {
		if seq > r.at[p].committed {
			r.stuck = &Behind{p, seq - 1}
			return errEnough
		}
		return nil
	})
	if err != nil {
		return err
	}
	return oplog.Sections(record, r.section)
}

// section tells of a section that begins with a sequence, unless it was read before.
func (r *following) section(p uint16, seq uint64, content []byte) error {
	at := &r.at[p]
	if r.waits(int(p)) {
		return nil
	}
	if at.open {
		if seq <= at.adopted {
			return nil
		}
		at.seq, at.open = seq-1, false
	}
	switch {
	case seq <= at.seq && seq+uint64(len(content)) < at.seq: // it has fewer entries than bytes
		return nil
	case seq <= at.seq:
		end, err := sectionEnd(seq, content)
		print := uint32(fingerprint(content))
		switch {
		case err != nil || end < at.seq:
			return err
		case end > at.seq || at.print != 0 && at.print != print:
			return ErrOtherLog
		}
		at.print = print
		return nil
	case seq > at.seq+1:
		return r.lost(p, seq-1)
	}
	rd, err := newSectionReader(content)
	if err != nil {
		return err
	}
	r.reader, r.taken.looked = rd, false
	r.reader.r = &r.taken.regional
	for seq--; r.reader.next(&r.entry); {
		if r.entry.kind == entryVacate { // what it goes on behind is the entry before
			at.log, at.seq = 0, seq
			return nil
		}
		seq = r.entry.endsAt(seq + 1)
		r.tell(p, seq)
	}
	at.seq, at.print = seq, uint32(fingerprint(content))
	return r.reader.err()
}

// tell tells what the entry at hand did to a counter, if it did anything.
func (r *following) tell(p uint16, seq uint64) {
	e := &r.entry
	row := e.kind.row()
	if row.follow == nil || row.key != noKey && !(r.q.Wants(e.key) && r.knows(p, seq, e.key)) {
		return
	}
	r.change = Followed{Partition: p, Seq: seq, Key: e.key, Wall: r.reader.at.wall}
	if e.kind != entryDelete && !e.kind.is(ofRegions) && e.flags&flagExpired != 0 { // the counter before
		r.change.Kind = FollowedExpired
		r.pass()
		r.change.Kind, r.change.Index = FollowedAdd, 1
	}
	tells := row.follow(e, &r.change)
	if row.traits&ofRegions != 0 {
		tells = r.byRegion(tells)
	}
	if !tells {
		return
	}
	if c := r.at[p].catalog; c.scaled && row.key != noKey {
		r.change.Scale = c.find(e.key).Scale
	}
	r.pass()
	if f := &r.change; e.ends() && !f.Kind.Ends() {
		f.Kind, f.ID, f.Index = FollowedDeleted, nil, f.Index+1
		r.pass()
	}
}

// pass tells the change at hand.
func (r *following) pass() { r.told, r.enough = true, r.q.Tell(&r.change) || r.enough }
