package observe

import (
	"bytes"
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fbfkv/fbfkv/commands/acl"
)

// MaxCommands bounds the numbers of commands, so that the statistics need no
// allocation.
const MaxCommands = 1024

// Stats counts, per command, what INFO and LATENCY HISTOGRAM show. A command is known
// by its number, below MaxCommands. Pipelines add once per command and batch, with
// atomics alone.
type Stats struct {
	all    [MaxCommands]commandTotals
	errors errorTotals

	rounds, roundNanos atomic.Uint64
	denied             [acl.Reasons]atomic.Uint64
}

// Round counts a round, or a command that ran by itself, which took a time.
func (s *Stats) Round(took time.Duration) {
	s.rounds.Add(1)
	s.roundNanos.Add(uint64(took))
}

// Rounds returns how many rounds there were, and the sum of their times.
func (s *Stats) Rounds() (n uint64, took time.Duration) {
	return s.rounds.Load(), time.Duration(s.roundNanos.Load())
}

// nanos returns the time of all commands.
func (s *Stats) nanos() (n uint64) {
	for i := range s.all {
		n += s.all[i].nanos.Load()
	}
	return n
}

// commandTotals are one command's counts.
type commandTotals struct {
	calls, rejections, failures, nanos atomic.Uint64
	latency                            atomic.Pointer[histogram] // made at the first call
}

// NoCommand is the number for requests that are not commands.
const NoCommand = -1

// Rejected counts a request refused before its arguments were looked at.
func (s *Stats) Rejected(command int) {
	if command != NoCommand {
		s.all[command].rejections.Add(1)
	}
}

// Denied counts a request that its user may not make.
func (s *Stats) Denied(reason acl.Reason) { s.denied[reason].Add(1) }

// Calls returns how often a command was carried out.
func (s *Stats) Calls(command int) uint64 { return s.all[command].calls.Load() }

// Ran counts n calls of a command that had each a share of a batch that took a time.
func (s *Stats) Ran(command, n int, share, took time.Duration) {
	t := &s.all[command]
	t.calls.Add(uint64(n))
	t.nanos.Add(uint64(share) * uint64(n))
	h := t.latency.Load()
	if h == nil {
		t.latency.CompareAndSwap(nil, new(histogram))
		h = t.latency.Load()
	}
	h.add(took, uint64(n))
}

// Tally counts how often a batch's few different commands occur, so that what all
// connections share is written to once for each.
//
// The time of a batch is shared evenly by its commands, as the time they cost; but each
// has waited for the whole of it, and that is its latency. They are executed as one and
// cannot be told apart.
type Tally struct {
	stats       *Stats
	share, took time.Duration
	used        int
	counts      [8]struct{ command, n int }
}

// Tally begins to count a batch of n requests that took a time. Flush ends it.
func (s *Stats) Tally(n int, took time.Duration) Tally {
	return Tally{stats: s, share: took / time.Duration(n), took: took}
}

// Add counts a command.
func (t *Tally) Add(command int) {
	for i := range t.used {
		if t.counts[i].command == command {
			t.counts[i].n++
			return
		}
	}
	if t.used == len(t.counts) {
		t.Flush()
	}
	t.counts[t.used].command, t.counts[t.used].n = command, 1
	t.used++
}

// Flush adds what was counted to the statistics.
func (t *Tally) Flush() {
	for _, c := range t.counts[:t.used] {
		t.stats.Ran(c.command, c.n, t.share, t.took)
	}
	t.used = 0
}

// Failed counts a command's error reply, which begins with '-'.
func (s *Stats) Failed(command int, reply []byte) {
	s.errors.count(reply)
	if command != NoCommand {
		s.all[command].failures.Add(1)
	}
}

// total returns the number of commands carried out.
func (s *Stats) total() uint64 {
	var n uint64
	for i := range s.all {
		n += s.all[i].calls.Load()
	}
	return n
}

// reset zeroes all counts (CONFIG RESETSTAT).
func (s *Stats) reset() {
	s.rounds.Store(0)
	s.roundNanos.Store(0)
	for i := range s.denied {
		s.denied[i].Store(0)
	}
	for i := range s.all {
		t := &s.all[i]
		t.calls.Store(0)
		t.rejections.Store(0)
		t.failures.Store(0)
		t.nanos.Store(0)
		t.latency.Store(nil)
	}
	s.errors.reset()
}

// CommandFigures are what is known of one command's calls since the start, or
// since CONFIG RESETSTAT.
type CommandFigures struct {
	// Name is the full name, such as "get" or "config|set".
	Name string
	// Calls were carried out, Failed of them with an error; Rejected were
	// refused before their arguments were looked at.
	Calls, Failed, Rejected uint64
	// Time is what the calls cost. Commands that were executed as one batch
	// share its time evenly.
	Time time.Duration
	// Latency is how long their clients waited: every command of a batch for
	// the whole of it.
	Latency Latency
}

// Figures returns the figures of the commands that were asked for at least once, by
// name, of which there is one for each number. It takes about 10 kB for each; use it for
// reports.
func (s *Stats) Figures(names []string) []CommandFigures {
	var list []CommandFigures
	for i, name := range names {
		t := &s.all[i]
		f := CommandFigures{
			Name: name, Calls: t.calls.Load(), Failed: t.failures.Load(), Rejected: t.rejections.Load(),
			Time: time.Duration(t.nanos.Load()),
		}
		if f.Calls == 0 && f.Failed == 0 && f.Rejected == 0 {
			continue
		}
		f.Latency = t.latency.Load().latency()
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b CommandFigures) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// LatencyBounds are the upper ends of the buckets in which reports count latencies. What
// is counted is exact to 3 %, see Latency.
var LatencyBounds = []time.Duration{
	25 * time.Microsecond, 50 * time.Microsecond, 100 * time.Microsecond, 250 * time.Microsecond,
	500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond,
	25 * time.Millisecond,
	50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second,
}

// Waits returns how many latencies of the commands that are asked for were at most each
// of LatencyBounds and, last, how many there were.
func (s *Stats) Waits(of func(command int) bool) []uint64 {
	counts := make([]uint64, len(LatencyBounds)+1)
	for i := range s.all {
		h := s.all[i].latency.Load()
		if h == nil || !of(i) {
			continue
		}
		l := h.latency()
		for j, bound := range LatencyBounds {
			counts[j] += l.AtMost(bound)
		}
		counts[len(LatencyBounds)] += l.Count
	}
	return counts
}

// ErrorFigures are how many error replies began with a word.
type ErrorFigures struct {
	Prefix string // such as "ERR" or "STALE"
	Count  uint64
}

// ErrorFigures returns how often each kind of error was answered since the
// start, or since CONFIG RESETSTAT, by prefix.
func (s *Stats) ErrorFigures() []ErrorFigures { return s.errors.figures() }

// maxPrefixes bounds the kinds of errors counted one by one, maxPrefix their names. All
// texts are ours, so neither is ever reached.
const (
	maxPrefixes = 128
	maxPrefix   = 32
)

// errorTotals counts error replies by their first word.
type errorTotals struct {
	total atomic.Uint64
	kinds atomic.Pointer[[]*errorKind] // replaced when one is added
	mu    sync.Mutex                   // held to add one
}

// errorKind counts the errors with one prefix.
type errorKind struct {
	prefix string
	n      atomic.Uint64
}

// count counts a reply that begins with "-PREFIX ".
func (e *errorTotals) count(reply []byte) {
	e.total.Add(1)
	prefix := reply[1:min(len(reply), maxPrefix+1)]
	if end := bytes.IndexAny(prefix, " \r"); end >= 0 {
		prefix = prefix[:end]
	}
	if k := e.find(prefix); k != nil {
		k.n.Add(1)
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if k := e.find(prefix); k != nil {
		k.n.Add(1)
		return
	}
	if old := e.list(); len(old) < maxPrefixes {
		k := &errorKind{prefix: string(prefix)}
		k.n.Store(1)
		kinds := append(slices.Clone(old), k)
		e.kinds.Store(&kinds)
	}
}

// list returns the kinds there are.
func (e *errorTotals) list() []*errorKind {
	if kinds := e.kinds.Load(); kinds != nil {
		return *kinds
	}
	return nil
}

// find returns the kind with a prefix, or nil.
func (e *errorTotals) find(prefix []byte) *errorKind {
	for _, k := range e.list() {
		if k.prefix == string(prefix) {
			return k
		}
	}
	return nil
}

// figures returns the counts by prefix.
func (e *errorTotals) figures() []ErrorFigures {
	var list []ErrorFigures
	for _, k := range e.list() {
		list = append(list, ErrorFigures{Prefix: k.prefix, Count: k.n.Load()})
	}
	slices.SortFunc(list, func(a, b ErrorFigures) int { return cmp.Compare(a.Prefix, b.Prefix) })
	return list
}

// reset forgets all errors.
func (e *errorTotals) reset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.total.Store(0)
	e.kinds.Store(nil)
}
