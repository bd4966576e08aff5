package regions

import (
	"time"

	"github.com/fbfkv/fbfkv/store"
	"github.com/fbfkv/fbfkv/store/part"
)

// Status is how the reading of a region goes.
type Status struct {
	Region    part.Region
	Name      string // "" if it is no member any more
	Address   string
	Connected bool // it has answered on this connection
	Paused    bool
	// LagMs is by how much what was taken here is older than the newest that is known to be
	// there, by the source's clock, plus the time since then if nobody tells us what is there now.
	LagMs int64
	// LagOps is how many sequences of its logs were not taken when it answered last. Not all
	// of them are told.
	LagOps uint64
	// ClockSkewMs is how far its clock leads ours, negative: lags, when it answered last, but for the
	// time of the way.
	ClockSkewMs int64
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
	for _, m := range set.Members {
		if m.Region == p.region {
			s.Name = m.Name
		}
	}
	s.Failing = p.linkErr != nil
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
		if s.LagOps += r.newest - r.taken; !s.Connected || r.newest > r.taken || r.err != nil {
			s.LagMs = max(s.LagMs, now-r.fresh)
		}
		s.Ranges = append(s.Ranges, rs)
	}
	return s
}
