package commands

import (
	"bytes"
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fbfkv/fbfkv/commands/acl"
)

// maxCommands bounds the table, so that the statistics need no allocation.
const maxCommands = 1024

// commandStats counts, per command, what INFO and LATENCY HISTOGRAM show.
// Pipelines add to it once per command and batch, with atomics alone.
type commandStats struct {
	all     [maxCommands]commandTotals
	errors  errorTotals
	untimed atomic.Bool // latency-tracking no

	rounds, roundNanos atomic.Uint64
	denied             [acl.Reasons]atomic.Uint64
}

// round counts a round, or a command that ran by itself, which took a time.
func (s *commandStats) round(took time.Duration) {
	s.rounds.Add(1)
	s.roundNanos.Add(uint64(took))
}

// nanos returns the time of all commands.
func (s *commandStats) nanos() (n uint64) {
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

// rejected counts a request refused before its arguments were looked at; c is
// nil if no command has the name.
func (s *commandStats) rejected(c *Command) {
	if c != nil {
		s.all[c.index].rejections.Add(1)
	}
}

// ran counts n calls of c that had each a share of a batch that took a time.
func (s *commandStats) ran(c *Command, n int, share, took time.Duration) {
	t := &s.all[c.index]
	t.calls.Add(uint64(n))
	t.nanos.Add(uint64(share) * uint64(n))
	if s.untimed.Load() {
		return
	}
	h := t.latency.Load()
	if h == nil {
		t.latency.CompareAndSwap(nil, new(histogram))
		h = t.latency.Load()
	}
	h.add(took, uint64(n))
}

// ranAll counts a batch's slots. The time of a batch is shared evenly by its
// commands, as the time they cost; but each has waited for the whole of it, and
// that is its latency. They are executed as one and cannot be told apart.
func (s *commandStats) ranAll(slots []slot, took time.Duration) {
	share := took / time.Duration(len(slots))
	var tally tally
	for i := range slots {
		if c := slots[i].cmd; c != nil && !tally.add(c) {
			tally.each(func(c *Command, n int) { s.ran(c, n, share, took) })
			tally.used = 0
			tally.add(c)
		}
	}
	tally.each(func(c *Command, n int) { s.ran(c, n, share, took) })
}

// tally counts how often a batch's few different commands occur, so that what
// all connections share is written to once for each.
type tally struct {
	used   int
	counts [8]struct {
		cmd *Command
		n   int
	}
}

// add counts a command; it is false if there is no room for one more.
func (t *tally) add(c *Command) bool {
	for i := range t.used {
		if t.counts[i].cmd == c {
			t.counts[i].n++
			return true
		}
	}
	if t.used == len(t.counts) {
		return false
	}
	t.counts[t.used].cmd, t.counts[t.used].n = c, 1
	t.used++
	return true
}

// each calls fn for every command counted.
func (t *tally) each(fn func(c *Command, n int)) {
	for i := range t.used {
		fn(t.counts[i].cmd, t.counts[i].n)
	}
}

// failed counts an error reply, which begins with '-'; c is nil if it belongs
// to no command.
func (s *commandStats) failed(c *Command, reply []byte) {
	s.errors.count(reply)
	if c != nil {
		s.all[c.index].failures.Add(1)
	}
}

// total returns the number of commands carried out.
func (s *commandStats) total() uint64 {
	var n uint64
	for i := range s.all {
		n += s.all[i].calls.Load()
	}
	return n
}

// reset zeroes all counts (CONFIG RESETSTAT).
func (s *commandStats) reset() {
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
	// the whole of it. It is empty while latency-tracking is off.
	Latency Latency
}

// CommandFigures returns the figures of the commands that were asked for at
// least once, by name. It takes about 10 kB for each; use it for reports.
func (s *Server) CommandFigures() []CommandFigures { return s.stats.figures(Commands) }

// figures returns the figures of a table's commands.
func (s *commandStats) figures(table *Table) []CommandFigures {
	var list []CommandFigures
	for _, c := range table.all {
		t := &s.all[c.index]
		f := CommandFigures{
			Name: c.fullName, Calls: t.calls.Load(), Failed: t.failures.Load(), Rejected: t.rejections.Load(),
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

// ErrorFigures are how many error replies began with a word.
type ErrorFigures struct {
	Prefix string // such as "ERR" or "STALE"
	Count  uint64
}

// ErrorFigures returns how often each kind of error was answered since the
// start, or since CONFIG RESETSTAT, by prefix.
func (s *Server) ErrorFigures() []ErrorFigures { return s.stats.errors.figures() }

// maxPrefixes bounds the kinds of errors counted one by one. All texts are
// ours, so this is far from reached.
const maxPrefixes = 128

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
	prefix := reply[1:min(len(reply), maxName+1)]
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
