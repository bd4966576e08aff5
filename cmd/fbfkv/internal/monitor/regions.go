package monitor

import (
	"math"

	"github.com/fbfkv/fbfkv/regions"
)

// regionFigures are the figures of a region as a whole.
var regionFigures = []figure[regions.NodeStatus]{
	gauge("region_members_version", "The version of the set of regions that this one knows. All should "+
		"know the same.",
		func(s *regions.NodeStatus) float64 { return float64(s.Version) }),
	gauge("region_ills", "Problems that an operator has to mend: fbfkv region status names them.",
		func(s *regions.NodeStatus) float64 { return float64(len(s.Ills)) }),
	gauge("region_reads", "Whether this node reads the other regions, and so has their figures. In a "+
		"cluster the leader of each shard does.",
		func(s *regions.NodeStatus) float64 { return bool01(s.Reads) }),
	// Others still pass on a removed region's operations for a while. It has no series of its own:
	// its name may be used again.
	counter("region_unchecked_total", "Operations of all regions, also of removed ones, that may count "+
		"twice: see region_ids_unchecked_total.",
		func(s *regions.NodeStatus) float64 { return float64(s.Operations.Unchecked) }),
	gauge("region_takebacks_owed", "Operations that another region applied as well, and that count twice "+
		"until there is room to take them back here.",
		func(s *regions.NodeStatus) float64 { return float64(s.Operations.Owed) }),
	counter("region_beyond_bounds_total", "Bounded increments that met a counter beyond their bounds.",
		func(s *regions.NodeStatus) float64 { return float64(s.Operations.BeyondBounds) }),
	counter("region_changes_aside_total", "Changes of other regions to counters whose keys hold objects here.",
		func(s *regions.NodeStatus) float64 { return float64(s.Operations.Aside) }),
}

// peerFigures are the figures of the reading of another region.
var peerFigures = []figure[regions.PeerStatus]{
	gauge("region_up", "Whether another region is read without failures.",
		func(p *regions.PeerStatus) float64 { return bool01(p.Connected && !p.Failing) }, "region"),
	gauge("region_paused", "Whether its reading is paused (fbfkv region pause).",
		func(p *regions.PeerStatus) float64 { return bool01(p.Paused) }, "region"),
	gauge("region_lag_seconds", "How much older the last entry read of it is than its newest one, as far "+
		"as is known.",
		func(p *regions.PeerStatus) float64 { return float64(p.LagMs) / 1000 }, "region"),
	gauge("region_lag_entries", "Unread entries of its log; NaN while it does not say how many there are.",
		func(p *regions.PeerStatus) float64 {
			if ops, known := p.Behind(); known {
				return float64(ops)
			}
			return math.NaN()
		}, "region"),
	gauge("region_waiting_entries", "Entries of this log that it has not acknowledged as read: their ids "+
		"are kept for it.",
		func(p *regions.PeerStatus) float64 { return float64(p.WaitingOps) }, "region"),
	gauge("region_clock_skew_seconds", "How far its clock is ahead of this server's.",
		func(p *regions.PeerStatus) float64 { return float64(p.ClockSkewMs) / 1000 }, "region"),
	counter("region_pulls_total", "Its answers.",
		func(p *regions.PeerStatus) float64 { return float64(p.Pulls) }, "region"),
	counter("region_received_bytes_total", "Their bytes.",
		func(p *regions.PeerStatus) float64 { return float64(p.Bytes) }, "region"),
	counter("region_state_exchanges_total", "How often its state was fetched, because its log did not "+
		"reach back.",
		func(p *regions.PeerStatus) float64 { return float64(p.StateExchanges) }, "region"),
	counter("region_ids_heard_total", "Its operations whose ids are remembered.",
		func(p *regions.PeerStatus) float64 { return float64(p.Operations.Heard) }, "region"),
	counter("region_ids_late_total", "Its operations that are too old to be remembered.",
		func(p *regions.PeerStatus) float64 { return float64(p.Operations.Late) }, "region"),
	counter("region_twins_total", "Its operations that were applied here as well.",
		func(p *regions.PeerStatus) float64 { return float64(p.Operations.Twins) }, "region"),
	counter("region_takebacks_total", "Such operations that were taken back here, because they count there.",
		func(p *regions.PeerStatus) float64 { return float64(p.Operations.TakenBack) }, "region"),
	counter("region_ids_unchecked_total", "Its operations that may count twice: their records were given "+
		"up before they could be compared.",
		func(p *regions.PeerStatus) float64 { return float64(p.Operations.Unchecked) }, "region"),
	gauge("region_digest_mismatch", "How many of the 1024 groups of slots differed from its groups in two "+
		"digests in a row.",
		func(p *regions.PeerStatus) float64 { return float64(p.DigestMismatch) }, "region"),
	gauge("region_digest_missed", "How many of 65,536 parts of the keys were changing last time and could "+
		"not be compared.",
		func(p *regions.PeerStatus) float64 { return float64(p.DigestMissed) }, "region"),
	gauge("region_digest_timestamp_seconds", "When most of its keys were last compared with this region, "+
		"by digests; 0 if never.",
		func(p *regions.PeerStatus) float64 { return float64(p.DigestCheckedMs) / 1000 }, "region"),
}
