package commands

import (
	"sync/atomic"
	"time"

	"github.com/fbfkv/fbfkv/store"
)

// Tuning are the settings that say what is observed of clients' commands.
type Tuning struct {
	// SlowlogSlowerThan is from which duration on a batch gets into the slow
	// log: 0 logs every batch, a negative one none.
	SlowlogSlowerThan time.Duration
	// SlowlogMaxLen is how many entries the slow log keeps.
	SlowlogMaxLen int
	// LatencyThreshold is from which duration on an event is kept by the
	// latency monitor; 0: none is.
	LatencyThreshold time.Duration
	// LatencyTracking: count every command's latencies.
	LatencyTracking bool
	// OutputLimit is how many bytes may wait for a client that watches with
	// MONITOR; 0: no bound.
	OutputLimit int
}

// observer is all that watches commands being carried out. On the path of every
// batch it costs two atomic loads: is anyone monitoring, and was the batch slow.
type observer struct {
	alarm   atomic.Int64 // ns from which a batch is looked at; 0: never
	tuning  atomic.Pointer[Tuning]
	slowlog slowlog
	events  latencyEvents
	taps    taps
}

// Tune puts settings in force. The zero Server observes nothing but counts.
func (s *Server) Tune(t Tuning) {
	s.observer.tuning.Store(&t)
	s.stats.untimed.Store(!t.LatencyTracking)
	s.observer.slowlog.shorten(t.SlowlogMaxLen)
	alarm := int64(0)
	if t.SlowlogSlowerThan >= 0 && t.SlowlogMaxLen > 0 {
		alarm = max(int64(t.SlowlogSlowerThan), 1)
	}
	if at := int64(t.LatencyThreshold); at > 0 && (alarm == 0 || at < alarm) {
		alarm = at
	}
	s.observer.alarm.Store(alarm)
}

// noTuning is what a Server is tuned to before Tune.
var noTuning = Tuning{SlowlogSlowerThan: -1, LatencyTracking: true}

// tuned returns the settings in force.
func (o *observer) tuned() *Tuning {
	if t := o.tuning.Load(); t != nil {
		return t
	}
	return &noTuning
}

// slow reports whether a duration is worth a closer look.
func (o *observer) slow(took time.Duration) bool {
	at := o.alarm.Load()
	return at != 0 && int64(took) >= at
}

// slowBatch is a batch, or a command that ran by itself, that was slow.
type slowBatch struct {
	batchHead
	more  int  // commands after it
	fast  bool // all of them are
	start time.Time
	took  time.Duration
}

// report notes a slow batch where it belongs.
func (o *observer) report(b slowBatch) {
	t := o.tuned()
	if t.SlowlogSlowerThan >= 0 && b.took >= t.SlowlogSlowerThan && b.cmd.Flags&SkipSlowlog == 0 {
		o.slowlog.add(b, t.SlowlogMaxLen)
	}
	event := "command"
	if b.fast {
		event = "fast-command"
	}
	o.note(t, event, b.start, b.took)
}

// note keeps an event for the latency monitor if it took long enough.
func (o *observer) note(t *Tuning, event string, start time.Time, took time.Duration) {
	if t.LatencyThreshold > 0 && took >= t.LatencyThreshold {
		o.events.add(event, start.Add(took), took)
	}
}

// NoteEvent tells the latency monitor how long something took that clients may
// have waited for, such as an fsync, which has just ended.
func (s *Server) NoteEvent(event string, took time.Duration) {
	if event == store.EventSnapshot {
		s.gauges.snapshots.Add(1)
	}
	t := s.observer.tuned()
	if t.LatencyThreshold > 0 && took >= t.LatencyThreshold {
		s.observer.events.add(event, time.Now(), took)
	}
}

// begin shows a command to those who monitor, and remembers the first of a round
// that does something for the slow log.
func (p *Pipeline) begin(c *Command, args [][]byte) {
	r := p.round
	if r.head.cmd == nil && c.Control == nil {
		r.head = batchHead{p.ses, c, args}
	}
	if r.tapped {
		p.srv.observer.taps.feed(p.ses, c, p.table.Redact(args))
	}
}

// batchHead is the first command of a batch that is carried out.
type batchHead struct {
	ses  *Session
	cmd  *Command
	args [][]byte
}

// looked ends a batch, or a command that ran by itself: if it was slow, it is
// noted.
func (r *Round) looked(slots []slot, start time.Time, took time.Duration) {
	if r.head.cmd != nil && r.srv.observer.slow(took) {
		b := slowBatch{batchHead: r.head, fast: r.head.cmd.Flags&Fast != 0, start: start, took: took}
		b.args = Commands.Redact(b.args)
		n := 0
		for i := range slots {
			if c := slots[i].cmd; c != nil && c.Control == nil {
				n++
				b.fast = b.fast && c.Flags&Fast != 0
			}
		}
		b.more = max(n-1, 0)
		r.srv.observer.report(b)
	}
	r.head = batchHead{}
}
