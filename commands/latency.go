package commands

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// latencySamples is how many samples the latency monitor keeps of an event.
const latencySamples = 160

// latencyEvents are the slow events that the latency monitor has seen, as in
// Redis: what took at least latency-monitor-threshold, by the name of what it
// was.
type latencyEvents struct {
	mu     sync.Mutex
	byName map[string]*latencyEvent
}

// latencyEvent is the history of one kind of event. It is a value: reports work
// on copies.
type latencyEvent struct {
	name    string
	samples []latencySample // oldest first, one per second at most
	max     time.Duration   // of all time
}

// latencySample is the worst of an event within one second.
type latencySample struct {
	at   int64 // Unix seconds
	took time.Duration
}

// add keeps an event.
func (l *latencyEvents) add(name string, at time.Time, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.byName[name]
	if e == nil {
		e = &latencyEvent{name: name}
		if l.byName == nil {
			l.byName = map[string]*latencyEvent{}
		}
		l.byName[name] = e
	}
	e.max = max(e.max, took)
	if n := len(e.samples); n > 0 && e.samples[n-1].at == at.Unix() {
		e.samples[n-1].took = max(e.samples[n-1].took, took)
		return
	}
	if len(e.samples) == latencySamples {
		e.samples = slices.Delete(e.samples, 0, 1)
	}
	e.samples = append(e.samples, latencySample{at.Unix(), took})
}

// all returns copies of all events, by name.
func (l *latencyEvents) all() []latencyEvent {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []latencyEvent
	for _, e := range l.byName {
		c := *e
		c.samples = slices.Clone(e.samples)
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b latencyEvent) int { return strings.Compare(a.name, b.name) })
	return list
}

// find returns a copy of one event; it has no samples if there is none.
func (l *latencyEvents) find(name []byte) latencyEvent {
	for _, e := range l.all() {
		if strings.EqualFold(e.name, string(name)) {
			return e
		}
	}
	return latencyEvent{}
}

// reset forgets the named events, or all if none is named, and returns how many
// there were.
func (l *latencyEvents) reset(names [][]byte) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.byName)
	if len(names) == 0 {
		l.byName = nil
		return n
	}
	for _, name := range names {
		delete(l.byName, strings.ToLower(string(name)))
	}
	return n - len(l.byName)
}

// latencyLatest is LATENCY LATEST.
func latencyLatest(c *Context) {
	list := c.Server.observer.events.all()
	c.W.Array(len(list))
	for _, e := range list {
		last := e.samples[len(e.samples)-1]
		c.W.Array(4)
		c.W.BulkString(e.name)
		c.W.Int(last.at)
		c.W.Int(last.took.Milliseconds())
		c.W.Int(e.max.Milliseconds())
	}
}

// latencyHistory is LATENCY HISTORY event.
func latencyHistory(c *Context) {
	e := c.Server.observer.events.find(c.Args[2])
	c.W.Array(len(e.samples))
	for _, s := range e.samples {
		c.W.Array(2)
		c.W.Int(s.at)
		c.W.Int(s.took.Milliseconds())
	}
}

// latencyHistogram is LATENCY HISTOGRAM [command …]; a container stands for its
// subcommands, and what is unknown or was not called yet is left out.
func latencyHistogram(c *Context) {
	var list []CommandFigures
	all := c.Server.stats.figures(c.table)
	pick := func(name string) {
		for _, f := range all {
			if f.Latency.Count > 0 && (f.Name == name || strings.HasPrefix(f.Name, name+"|")) {
				list = append(list, f)
			}
		}
	}
	for _, name := range c.Args[2:] {
		pick(strings.ToLower(string(name)))
	}
	if len(c.Args) == 2 {
		list = slices.DeleteFunc(all, func(f CommandFigures) bool { return f.Latency.Count == 0 })
	}
	c.W.Map(len(list))
	for i := range list {
		c.W.BulkString(list[i].Name)
		c.writeHistogram(&list[i])
	}
}

// writeHistogram writes how many latencies were within each power of two of
// 1.024 microseconds, from the shortest there was to the longest.
func (c *Context) writeHistogram(f *CommandFigures) {
	type point struct{ usec, count int64 }
	var points []point
	for end := uint64(1 << 10); end <= maxLatency+1; end <<= 1 {
		n := f.Latency.AtMost(time.Duration(end - 1))
		if n > 0 {
			points = append(points, point{int64(end+500) / 1000, int64(n)})
		}
		if n == f.Latency.Count {
			break
		}
	}
	c.W.Map(2)
	c.W.BulkString("calls")
	c.W.Int(int64(f.Latency.Count))
	c.W.BulkString("histogram_usec")
	c.W.Map(len(points))
	for _, p := range points {
		c.W.Int(p.usec)
		c.W.Int(p.count)
	}
}

// latencySub declares a subcommand of LATENCY.
func latencySub(name string, arity int, since, complexity, summary string, run func(*Context), args ...Arg) Command {
	return Command{
		Name: name, Arity: arity, Flags: Admin | NoScript | Loading | Stale, Group: groupServer, Since: since,
		Complexity: complexity, Summary: summary, Args: args, Run: run,
	}
}

// onEveryNode adds the tips of a command whose reply is a node's own matter.
func onEveryNode(c Command, response string) Command {
	c.Tips = append(c.Tips, "nondeterministic_output", "request_policy:all_nodes", "response_policy:"+response)
	return c
}

// latencyCommands are LATENCY and its subcommands.
var latencyCommands = []Command{{
	Name: "latency", Arity: -2, Group: groupServer, Since: "2.8.13", Complexity: "Depends on subcommand.",
	Summary: "A container for commands on how long things take.",
	Subcommands: []Command{
		onEveryNode(latencySub("doctor", 2, "2.8.13", "O(1)", "Says in words what was slow.", latencyDoctor), "special"),
		onEveryNode(latencySub("graph", 3, "2.8.13", "O(1)", "Draws the history of an event.", latencyGraph,
			strArg("event")), "special"),
		onEveryNode(latencySub("histogram", -2, "7.0.0", "O(N), where N is the number of commands with latencies",
			"Returns a histogram of the latencies of commands in microseconds. A command takes as long as its batch.", latencyHistogram,
			opt(multi(strArg("command")))), "special"),
		onEveryNode(latencySub("history", 3, "2.8.13", "O(1)",
			"Returns when an event was slow, and how many milliseconds it took.", latencyHistory, strArg("event")), "special"),
		onEveryNode(latencySub("latest", 2, "2.8.13", "O(1)",
			"Returns for every event when it was last slow, and its last and longest time in milliseconds.", latencyLatest), "special"),
		withTips(latencySub("reset", -2, "2.8.13", "O(1)", "Forgets events.", func(c *Context) {
			c.W.Int(int64(c.Server.observer.events.reset(c.Args[2:])))
		}, opt(multi(strArg("event")))), "request_policy:all_nodes", "response_policy:all_succeeded"),
		helpFor("latency", groupServer),
	},
}}

// since changes the version that introduced a command.
func since(version string, c Command) Command {
	c.Since = version
	return c
}

// withTips adds tips to a command.
func withTips(c Command, tips ...string) Command {
	c.Tips = append(c.Tips, tips...)
	return c
}
