package regions

import (
	"errors"
	"fmt"
	"time"

	"github.com/fbfkv/fbfkv/store"
	"github.com/fbfkv/fbfkv/store/part"
)

// Status is how the reading of a region goes.
type Status struct {
	Region    part.Region
	Name      string // "" if it is no longer a member
	Address   string
	Connected bool // it has answered on this connection
	Paused    bool
	// LagMs is by how much what was taken here is older than the newest that is known to be
	// there, by the source's clock, plus the time since then if nobody tells us what is there now.
	LagMs int64
	// LagOps is how many entries of its logs were not taken when it answered last (store.EntriesBetween). Not
	// all of them are told.
	LagOps uint64
	// ClockSkewMs is how far its clock leads ours, negative: lags, when it answered last, but for the
	// time of the way.
	ClockSkewMs int64
	// Version is the version of the members in its last answer.
	Version uint64
	// Since Start or the last change of address: answers, their bytes, the states that were
	// exchanged because logs do not reach back.
	Pulls, Bytes, StateExchanges uint64
	// LastError is the last failure, also if it is over, and when it was; Failing is that there was no
	// success since, of the link or of any range.
	LastError   string
	LastErrorAt time.Time
	Failing     bool
	LastAnswer  time.Time
	Ranges      []RangeStatus
	// Mismatch is slots in which it has not got the same, although both have taken what the other
	// one did: found by two looks in a row, see Options.DigestPeriod. DigestMismatch is how many of
	// the 1024 groups of slots, each of 16, that are. Most of it was compared last at
	// DigestCheckedMs, unix ms; 0: never; and so many of the 65,536 buckets of keys were missed, as
	// they were being changed, or had not been taken: DigestMissed.
	Mismatch        []store.SlotRange
	DigestMismatch  int
	DigestMissed    int
	DigestCheckedMs int64

	digestErr error          // why it could not be compared when that was tried last
	idle      bool           // this shard has nothing to read
	tables    store.TableSet // of the region, as it has told them; nil: it has not
}

// RangeStatus is how far a partition here has taken one of another region.
type RangeStatus struct {
	store.PullRange
	Taken, Newest uint64 // sequences: the cursor, and the source's newest when it was asked
	Error         string // why it is not read at present; "" if it is
	State         string // how much of its state has been taken, as "keys 40%"; "" if its log is read
}

// Status returns how the reading goes.
func (p *peer) Status() Status {
	set, _ := p.opts.Store.Regions()
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.status
	m, _ := set.Member(p.region)
	s.Name = m.Name
	s.Failing = p.linkErr != nil
	s.idle = p.shard != nil && len(p.readings) == 0
	now := p.opts.now()
	if len(p.readings) == 0 { // it never could be asked
		s.LagMs = now - p.began
	}
	for _, r := range p.readings {
		rs := RangeStatus{PullRange: r.PullRange, Taken: r.taken, Newest: r.newest}
		if r.state != nil {
			rs.State = r.state.says
		}
		if r.err != nil {
			rs.Error, s.Failing = r.err.Error(), true
		}
		if s.LagOps += store.EntriesBetween(r.taken, r.newest); !s.Connected || r.newest > r.taken ||
			r.err != nil {
			s.LagMs = max(s.LagMs, now-r.fresh)
		}
		s.Ranges = append(s.Ranges, rs)
	}
	return s
}

// NodeStatus is what an operator wants to know of a server and its regions. Numbers of 64 bits are
// JSON numbers.
type NodeStatus struct {
	Member   bool        `json:"member"`
	Name     string      `json:"name,omitempty"`
	Number   part.Region `json:"number"`
	Address  string      `json:"address,omitempty"`
	Group    uint64      `json:"group,omitempty"`
	Version  uint64      `json:"version"`           // of the members
	Era      uint64      `json:"era"`               // counts flushes
	Restored bool        `json:"restored"`          // from a backup: the others refuse it
	Removed  bool        `json:"removed"`           // by the others
	Leaving  bool        `json:"leaving"`           // it is being removed, and refuses writes
	Arbiter  string      `json:"arbiter,omitempty"` // the region that decides who is a member
	// what the server says of itself to become a member
	Admission    Admission       `json:"self"`
	Refuses      string          `json:"refuses,omitempty"` // why the server must not become a region
	Ills         []string        `json:"ills"`              // what is wrong, and helps
	Peers        []PeerStatus    `json:"peers"`
	Operations   Operations      `json:"operations"`
	Acknowledged uint64          `json:"acknowledged"` // operations that are unchecked, as an operator knows
	Removals     []RemovalStatus `json:"removals"`
	// it is to read the others: of a cluster, the leader of each shard
	Reads bool `json:"reads"`
	// Shards are the shards of this region, if it is a cluster: the leader of each reads others,
	// and knows how that goes.
	Shards []Shard `json:"shards,omitempty"`
}

// Operations are store.RegionIDs.
type Operations struct {
	Heard        uint64 `json:"heard"`
	Late         uint64 `json:"late"`
	Twins        uint64 `json:"twins"`
	TakenBack    uint64 `json:"taken_back"`
	Unchecked    uint64 `json:"unchecked"`
	BeyondBounds uint64 `json:"beyond_bounds"`
	Aside        uint64 `json:"aside"`
	Owed         uint64 `json:"owed"`
}

// PeerStatus is how the reading of a region goes, see Status.
type PeerStatus struct {
	Name       string      `json:"name"`
	Number     part.Region `json:"number"`
	Address    string      `json:"address"`
	Partitions int         `json:"partitions"`
	Connected  bool        `json:"connected"`
	Paused     bool        `json:"paused"`
	Failing    bool        `json:"failing"`
	LagMs      int64       `json:"lag_ms"`
	LagOps     uint64      `json:"lag_ops"`
	// entries of the logs here that it has not said to have taken: their ids are kept for it
	WaitingOps     uint64 `json:"waiting_ops"`
	Pulls          uint64 `json:"pulls"`
	Bytes          uint64 `json:"bytes"`
	StateExchanges uint64 `json:"state_exchanges"`
	ClockSkewMs    int64  `json:"clock_skew_ms"`
	Version        uint64 `json:"version"`
	LastAnswerMs   int64  `json:"last_answer_ms"` // unix ms; 0: never
	LastError      string `json:"last_error,omitempty"`
	LastErrorMs    int64  `json:"last_error_ms,omitempty"`
	// DigestMismatch is how many of the 1024 groups of 16 slots differ: found twice, and not found
	// equal since.
	DigestMismatch int `json:"digest_mismatch"`
	// when most of it was compared last, unix ms; 0: never
	DigestCheckedMs int64 `json:"digest_checked_ms"`
	// of the 65,536 buckets of keys, those that could not be compared then
	DigestMissed int        `json:"digest_missed"`
	Operations   Operations `json:"operations"` // of that region, but for those beyond bounds
	// of the ills, that it has not got the same tables
	Tables []string     `json:"tables,omitempty"`
	Ranges []RangePlace `json:"ranges"`
}

// Verdict is a Difference.
type Verdict struct {
	Region string `json:"region"`
	First  uint16 `json:"first"` // slots
	Last   uint16 `json:"last"`
	// Why they could not be compared; "": they differ.
	Error string `json:"error,omitempty"`
}

// Verdicts are differences for others to read, of a node's regions.
func (n *Node) Verdicts(all []Difference) []Verdict {
	set, _ := n.Members()
	out := make([]Verdict, 0, len(all))
	for _, d := range all {
		m, _ := set.Member(d.Region)
		v := Verdict{Region: m.Name, First: d.First, Last: d.Last}
		if d.Err != nil {
			v.Error = d.Err.Error()
		}
		out = append(out, v)
	}
	return out
}

// RangePlace is a RangeStatus.
type RangePlace struct {
	Own       uint16 `json:"own"`       // partition here
	Partition uint16 `json:"partition"` // of the other region
	Taken     uint64 `json:"taken"`
	Newest    uint64 `json:"newest"`
	Error     string `json:"error,omitempty"`
}

// State says in a word how the reading goes.
func (p *PeerStatus) State() string {
	switch {
	case p.Paused:
		return "paused"
	case p.Failing:
		return "failing"
	case !p.Connected:
		return "connecting"
	}
	return "connected"
}

// Behind is LagOps, as far as that is known: else the region was that far behind when it was told
// last, or further.
func (p *PeerStatus) Behind() (ops uint64, known bool) { return p.LagOps, p.Connected }

// Well reports whether all is taken that the region has told of.
func (p *PeerStatus) Well() bool { return p.Connected && !p.Paused && !p.Failing && p.LagOps == 0 }

// Status returns how it goes.
func (n *Node) Status() NodeStatus {
	s := NodeStatus{Admission: n.Admission("", ""), Ills: []string{}, Peers: []PeerStatus{},
		Removals: []RemovalStatus{}}
	set, ok := n.Members()
	mesh := n.Mesh()
	if n.cluster != nil {
		s.Shards = n.cluster.Shards()
	}
	if !ok || mesh == nil && n.cluster == nil {
		if err := n.safe(); err != nil {
			s.Refuses = err.Error()
		}
		return s
	}
	own, _ := set.Member(set.Self)
	s.Member, s.Name = true, own.Name
	s.Number, s.Address = own.Region, own.Address
	s.Group, s.Version = set.Group, set.Version
	s.Era, s.Restored = set.Era, own.Incarnation != s.Admission.Incarnation || n.Store.Older()
	s.Admission.Name, s.Arbiter = own.Name, arbiter(&set).Name
	s.Operations = Operations(n.Store.RegionIDs())
	if s.Removed = set.Removed; s.Removed {
		s.Ills = append(s.Ills, store.ErrRemoved.Error())
		return s
	}
	if s.Restored {
		s.Ills = append(s.Ills, store.ErrRestored.Error())
	}
	if s.Leaving = n.Store.Leaving(); s.Leaving {
		s.Ills = append(s.Ills, store.ErrLeaving.Error())
	}
	s.Acknowledged = n.acknowledged.Load()
	if n := s.Operations.Unchecked - s.Acknowledged; n > 0 {
		s.Ills = append(s.Ills, fmt.Sprintf("operations that may count twice, because the records to "+
			"compare them with were given up (region-retention): up to %d; "+
			"compare the counters that matter, and then: fbfkv region status --acknowledge", n))
	}
	if stray := n.stray.Load(); stray != nil {
		s.Ills = append(s.Ills, *stray...)
	}
	s.Removals = n.Removals()
	s.Reads = n.leads()
	if mesh == nil {
		if why := n.cannotRead(); s.Reads && why != "" {
			s.Ills = append(s.Ills,
				"this node leads its shard and cannot begin to read the other regions: "+why)
		}
		return s
	}
	of, waiting, tables := n.Store.RegionIDsOf(), n.Store.RegionWaiting(), store.TableSet(nil)
	for _, p := range mesh.Status() {
		m, _ := set.Member(p.Region)
		peer := p.public(m.Partitions)
		peer.Operations, peer.WaitingOps = Operations(of[p.Region]), waiting[p.Region]
		if p.tables != nil {
			if tables == nil {
				tables = n.Store.Tables() // as they are now, so that what was mended here is
			}
			if ill := tablesIll(s.Name, p.Name, tables, p.tables); ill != "" {
				peer.Tables = []string{ill}
			}
		}
		s.Peers = append(s.Peers, peer)
		s.Ills = append(s.Ills, peer.Tables...)
		if len(p.Mismatch) > 0 {
			s.Ills = append(s.Ills, mismatchIll(s.Name, p.Name, p.Mismatch))
		}
		if errors.Is(p.digestErr, errHere) {
			s.Ills = append(s.Ills, fmt.Sprintf("%s could not compare itself with %s: %v", s.Name, p.Name,
				p.digestErr))
		}
	}
	return s
}

// Acknowledge takes note that an operator knows of so many unchecked operations: only more of them
// are an ill. It is forgotten with the number of these, when the store is opened again.
func (n *Node) Acknowledge(unchecked uint64) {
	n.acknowledged.Store(min(unchecked, n.Store.RegionIDs().Unchecked))
}

// public is a status for others to read.
func (s *Status) public(partitions int) PeerStatus {
	p := PeerStatus{
		Name: s.Name, Number: s.Region, Address: s.Address, Partitions: partitions,
		Connected: s.Connected, Paused: s.Paused, Failing: s.Failing, LagMs: s.LagMs, LagOps: s.LagOps,
		Pulls: s.Pulls, Bytes: s.Bytes, StateExchanges: s.StateExchanges, ClockSkewMs: s.ClockSkewMs,
		Version:   s.Version,
		LastError: s.LastError, DigestMismatch: s.DigestMismatch, DigestCheckedMs: s.DigestCheckedMs,
		DigestMissed: s.DigestMissed, Ranges: []RangePlace{},
	}
	if !s.LastAnswer.IsZero() {
		p.LastAnswerMs = s.LastAnswer.UnixMilli()
	}
	if !s.LastErrorAt.IsZero() {
		p.LastErrorMs = s.LastErrorAt.UnixMilli()
	}
	for _, r := range s.Ranges {
		p.Ranges = append(p.Ranges, RangePlace{r.Own, r.Source.Partition, r.Taken, r.Newest, r.Error})
	}
	return p
}

// Conflict is a store.Conflict with the names of the regions.
type Conflict struct {
	Key       string `json:"key"`
	ID        string `json:"opid"`
	Kept      string `json:"kept"`       // the region whose application counts
	TakenBack string `json:"taken_back"` // the region whose application is taken back
	Delta     int64  `json:"delta"`      // that is taken back
	AppliedMs int64  `json:"applied_ms"` // when it was applied in Kept, unix ms
	MetMs     int64  `json:"met_ms"`     // when both were known here
}

// Conflicts returns the last operations that were applied in two regions, the newest first.
func (n *Node) Conflicts() ([]Conflict, error) {
	set, ok := n.Members()
	if !ok {
		return nil, store.ErrNoRegions
	}
	all := []Conflict{}
	for _, c := range n.Store.Conflicts() {
		kept, _ := set.Member(c.Winner)
		back, _ := set.Member(c.Loser)
		all = append(all, Conflict{c.Key, c.ID, kept.Name, back.Name, c.Delta, c.Applied, c.Met})
	}
	return all, nil
}
