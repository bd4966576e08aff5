package observe

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
	// OutputLimit is how many bytes may wait for a client that watches with
	// MONITOR; 0: no bound.
	OutputLimit int
}

// Observer is all that watches commands being carried out. On the path of every
// batch it costs, beside the counting, two atomic loads: is anyone monitoring, and was
// the batch slow. The zero value observes nothing but counts. It must not be copied and
// is safe for concurrent use.
type Observer struct {
	Stats   Stats
	Slowlog Slowlog
	Events  Events

	alarm  atomic.Int64 // batches from this many ns on are examined; 0: none
	tuning atomic.Pointer[Tuning]
	taps   taps
	gauges gauges
}

// Tune puts settings in force.
func (o *Observer) Tune(t Tuning) {
	o.tuning.Store(&t)
	o.Slowlog.shorten(t.SlowlogMaxLen)
	alarm := int64(0)
	if t.SlowlogSlowerThan >= 0 && t.SlowlogMaxLen > 0 {
		alarm = max(int64(t.SlowlogSlowerThan), 1)
	}
	if at := int64(t.LatencyThreshold); at > 0 && (alarm == 0 || at < alarm) {
		alarm = at
	}
	o.alarm.Store(alarm)
}

// noTuning is what an Observer is tuned to before Tune.
var noTuning = Tuning{SlowlogSlowerThan: -1}

// tuned returns the settings in force.
func (o *Observer) tuned() *Tuning {
	if t := o.tuning.Load(); t != nil {
		return t
	}
	return &noTuning
}

// Slow reports whether a duration is worth a closer look, by Report.
func (o *Observer) Slow(took time.Duration) bool {
	at := o.alarm.Load()
	return at != 0 && int64(took) >= at
}

// Batch is a batch, or a command that ran by itself, that was slow.
type Batch struct {
	Command    string   // its first command's full name
	Args       [][]byte // of that command, without secrets
	Addr, Name string   // of the client that sent it
	Unlogged   bool     // that command is not for the slow log
	More       int      // commands after it, of other clients too
	Fast       bool     // all of them are of constant time
	Start      time.Time
	Took       time.Duration
}

// Report notes a slow batch where it belongs.
func (o *Observer) Report(b *Batch) {
	t := o.tuned()
	if t.SlowlogSlowerThan >= 0 && b.Took >= t.SlowlogSlowerThan && !b.Unlogged {
		o.Slowlog.add(b, t.SlowlogMaxLen)
	}
	event := "command"
	if b.Fast {
		event = "fast-command"
	}
	o.note(event, b.Start.Add(b.Took), b.Took)
}

// note keeps an event, which ended at a time, for the latency monitor if it took long
// enough.
func (o *Observer) note(event string, at time.Time, took time.Duration) {
	if t := o.tuned(); t.LatencyThreshold > 0 && took >= t.LatencyThreshold {
		o.Events.add(event, at, took)
	}
}

// NoteEvent tells the latency monitor how long something took that clients may
// have waited for, such as an fsync, which has just ended.
func (o *Observer) NoteEvent(event string, took time.Duration) {
	if event == store.EventSnapshot {
		o.gauges.snapshots.Add(1)
	}
	o.note(event, time.Now(), took)
}

// Sample tells how many bytes were read from and written to clients so far; the
// server calls it about once a second, for the figures per second.
func (o *Observer) Sample(now time.Time, in, out uint64) {
	s := &o.Stats
	rounds, took := s.Rounds()
	o.gauges.sample(sample{now, s.total(), in, out, rounds, uint64(took)})
	o.gauges.seen(heapInUse())
}

// Reset makes all counts, and the store's totals as INFO shows them, begin anew
// (CONFIG RESETSTAT).
func (o *Observer) Reset(s *store.Store) {
	o.Stats.reset()
	o.gauges.reset(s)
}
