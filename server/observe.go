package server

import (
	"math"
	"net"
	"time"

	"github.com/fbfkv/fbfkv/commands"
	"github.com/fbfkv/fbfkv/commands/observe"
)

// GroupObservation heads the settings of SLOWLOG, LATENCY and INFO.
const GroupObservation = "Observation"

// ObservationConfig holds the settings that say what is noted of clients'
// commands.
type ObservationConfig struct {
	SlowlogSlowerThan int // microseconds; -1: nothing is slow
	SlowlogMaxLen     int
	LatencyThreshold  int // milliseconds; 0: the monitor is off
	LatencyTracking   bool
}

// observationSettings are the settings of SLOWLOG, LATENCY and INFO latencystats.
var observationSettings = []Setting{
	{
		Name: "slowlog-log-slower-than", Group: GroupObservation, Default: "10000", Mutable: true,
		Doc: "From how many microseconds on a batch is kept in the slow log (SLOWLOG). The server executes as one batch " +
			"what clients send at the same time, so a batch is one entry: its duration, its first command, and how " +
			"many follow. 0 keeps all, -1 none.",
		kind: count(func(c *Config) *int { return &c.Observation.SlowlogSlowerThan }, time.Microsecond, -1, math.MaxInt32),
	}, {
		Name: "slowlog-max-len", Group: GroupObservation, Default: "128", Mutable: true,
		Doc:  "How many entries the slow log keeps.",
		kind: integer(func(c *Config) *int { return &c.Observation.SlowlogMaxLen }, 0, 100_000),
	}, {
		Name: "latency-monitor-threshold", Group: GroupObservation, Default: "0", Mutable: true,
		Doc: "From how many milliseconds on an event (a batch, an fsync, a checkpoint, a snapshot) is kept for LATENCY " +
			"LATEST, HISTORY and DOCTOR; 0 keeps none.",
		kind: count(func(c *Config) *int { return &c.Observation.LatencyThreshold }, time.Millisecond, 0, math.MaxInt32),
	}, {
		Name: "latency-tracking", Group: GroupObservation, Default: "yes", Mutable: true,
		Doc: "Count the latencies of every command, for INFO latencystats and LATENCY HISTOGRAM. A command takes as " +
			"long as its batch, including the commit.",
		kind: yesNo(func(c *Config) *bool { return &c.Observation.LatencyTracking }),
	},
}

// tuning returns the settings as package observe wants them.
func (c *Config) tuning() observe.Tuning {
	o := &c.Observation
	return observe.Tuning{
		SlowlogSlowerThan: time.Duration(o.SlowlogSlowerThan) * time.Microsecond,
		SlowlogMaxLen:     o.SlowlogMaxLen,
		LatencyThreshold:  time.Duration(o.LatencyThreshold) * time.Millisecond,
		LatencyTracking:   o.LatencyTracking,
		OutputLimit:       int(c.MaxOutput.Hard),
	}
}

// push sends bytes to a client beside its replies, for MONITOR.
func (s *Server) push(ses *commands.Session, b []byte) error {
	s.mu.Lock()
	var c *dedicated // as everyone who monitors
	if found := s.conns[ses.ID]; found != nil {
		c, _ = found.line.(*dedicated)
	}
	s.mu.Unlock()
	if c == nil {
		return net.ErrClosed
	}
	n, err := c.net.Write(b)
	c.out.Add(uint64(n))
	c.writes.Add(1)
	return err
}
