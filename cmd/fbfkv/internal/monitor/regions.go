package monitor

import (
	"math"

	"github.com/fbfkv/fbfkv/regions"
)

// regionFigures are those of a region as a whole.
var regionFigures = []figure[regions.NodeStatus]{
	gauge("region_members_version", "The version of the members of the regions that this one knows. All should know the same.",
		func(s *regions.NodeStatus) float64 { return float64(s.Version) }),
	gauge("region_ills", "How many things are wrong that an operator has to mend: fbfkv region status says which.",
		func(s *regions.NodeStatus) float64 { return float64(len(s.Ills)) }),
	gauge("region_reads", "Whether this node is to read the other regions, and so has the figures of each. Of a cluster that is the leader of each shard.",
		func(s *regions.NodeStatus) float64 { return bool01(s.Reads) }),
	// What a removed region did is told by others for a while, and has no series of its own: its name may be given again.
	counter("region_unchecked_total", "Operations of all regions, also of those that were removed, that may count twice: see region_ids_unchecked_total.",
		func(s *regions.NodeStatus) float64 { return float64(s.Operations.Unchecked) }),
	gauge("region_takebacks_owed", "Operations that were applied in another region, too, and count twice until there is room to take them back here.",
		func(s *regions.NodeStatus) float64 { return float64(s.Operations.Owed) }),
	counter("region_beyond_bounds_total", "Bounded increments that met a counter beyond their bounds.",
		func(s *regions.NodeStatus) float64 { return float64(s.Operations.BeyondBounds) }),
}

// peerFigures are those of the reading of another region.
var peerFigures = []figure[regions.PeerStatus]{
	gauge("region_up", "Whether another region is read without failures.",
		func(p *regions.PeerStatus) float64 { return bool01(p.Connected && !p.Failing) }, "region"),
	gauge("region_paused", "Whether its reading is paused (fbfkv region pause).",
		func(p *regions.PeerStatus) float64 { return bool01(p.Paused) }, "region"),
	gauge("region_lag_seconds", "By how much what was taken of it is older than what it has, as far as is known.",
		func(p *regions.PeerStatus) float64 { return float64(p.LagMs) / 1000 }, "region"),
	gauge("region_lag_entries", "Entries of its log that are not taken yet; NaN while it does not say how many there are.",
		func(p *regions.PeerStatus) float64 {
			if ops, known := p.Behind(); known {
				return float64(ops)
			}
			return math.NaN()
		}, "region"),
	gauge("region_waiting_entries", "Entries of the log here that it has not said to have taken: the ids in them are kept for it.",
		func(p *regions.PeerStatus) float64 { return float64(p.WaitingOps) }, "region"),
	gauge("region_clock_skew_seconds", "How far its clock is ahead of this server's.",
		func(p *regions.PeerStatus) float64 { return float64(p.ClockSkewMs) / 1000 }, "region"),
	counter("region_pulls_total", "Its answers.", func(p *regions.PeerStatus) float64 { return float64(p.Pulls) }, "region"),
	counter("region_received_bytes_total", "Their bytes.", func(p *regions.PeerStatus) float64 { return float64(p.Bytes) }, "region"),
	counter("region_state_exchanges_total", "How often its state was taken, as its log did not reach back.",
		func(p *regions.PeerStatus) float64 { return float64(p.StateExchanges) }, "region"),
	counter("region_ids_heard_total", "Its operations whose ids are remembered.",
		func(p *regions.PeerStatus) float64 { return float64(p.Operations.Heard) }, "region"),
	counter("region_ids_late_total", "Its operations that are older than what is remembered.",
		func(p *regions.PeerStatus) float64 { return float64(p.Operations.Late) }, "region"),
	counter("region_twins_total", "Its operations that were applied here, too.",
		func(p *regions.PeerStatus) float64 { return float64(p.Operations.Twins) }, "region"),
	counter("region_takebacks_total", "Such operations that were taken back here, as those of that region count.",
		func(p *regions.PeerStatus) float64 { return float64(p.Operations.TakenBack) }, "region"),
	counter("region_ids_unchecked_total", "Operations that may count twice: their record was given up before they could be compared.",
		func(p *regions.PeerStatus) float64 { return float64(p.Operations.Unchecked) }, "region"),
	gauge("region_digest_mismatch", "How many of the 1024 groups of slots were found to differ from its, by two digests in a row.",
		func(p *regions.PeerStatus) float64 { return float64(p.DigestMismatch) }, "region"),
	gauge("region_digest_missed", "How many of 65,536 parts of the keys could not be compared last time, as they were being changed.",
		func(p *regions.PeerStatus) float64 { return float64(p.DigestMissed) }, "region"),
	gauge("region_digest_timestamp_seconds", "When most of it was last compared with this region, by digests; 0 if never.",
		func(p *regions.PeerStatus) float64 { return float64(p.DigestCheckedMs) / 1000 }, "region"),
}
