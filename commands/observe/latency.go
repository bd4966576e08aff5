package observe

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fbfkv/fbfkv/resp"
)

// latencySamples is how many samples the latency monitor keeps of an event.
const latencySamples = 160

// Events are the slow events that the latency monitor has seen, as in
// Redis: those that took at least latency-monitor-threshold, by name.
type Events struct {
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
func (l *Events) add(name string, at time.Time, took time.Duration) {
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
func (l *Events) all() []latencyEvent {
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
func (l *Events) find(name []byte) latencyEvent {
	for _, e := range l.all() {
		if strings.EqualFold(e.name, string(name)) {
			return e
		}
	}
	return latencyEvent{}
}

// Reset forgets the named events, or all if none is named, and returns how many
// there were.
func (l *Events) Reset(names [][]byte) int {
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

// WriteLatest writes, of every event, when it was last slow, its last and its longest
// time, as LATENCY LATEST does.
func (l *Events) WriteLatest(w *resp.Writer) {
	list := l.all()
	w.Array(len(list))
	for _, e := range list {
		last := e.samples[len(e.samples)-1]
		w.Array(4)
		w.BulkString(e.name)
		w.Int(last.at)
		w.Int(last.took.Milliseconds())
		w.Int(e.max.Milliseconds())
	}
}

// WriteHistory writes when an event was slow and how long it took, as LATENCY HISTORY
// does.
func (l *Events) WriteHistory(w *resp.Writer, name []byte) {
	e := l.find(name)
	w.Array(len(e.samples))
	for _, s := range e.samples {
		w.Array(2)
		w.Int(s.at)
		w.Int(s.took.Milliseconds())
	}
}

// WriteHistograms writes the histograms of the latencies of commands, as LATENCY
// HISTOGRAM does: of those that are asked for, or of all. A container stands for its
// subcommands, and what is unknown or was not called yet is left out.
func (s *Stats) WriteHistograms(w *resp.Writer, names []string, asked [][]byte) {
	all := slices.DeleteFunc(s.Figures(names), func(f CommandFigures) bool { return f.Latency.Count == 0 })
	list := all
	if len(asked) > 0 {
		list = nil
	}
	for _, a := range asked {
		name := strings.ToLower(string(a))
		for _, f := range all {
			if f.Name == name || strings.HasPrefix(f.Name, name+"|") {
				list = append(list, f)
			}
		}
	}
	w.Map(len(list))
	for i := range list {
		w.BulkString(list[i].Name)
		list[i].Latency.write(w)
	}
}

// write writes how many latencies were within each power of two of
// 1.024 microseconds, from the shortest there was to the longest.
func (l *Latency) write(w *resp.Writer) {
	type point struct{ usec, count int64 }
	var points []point
	for end := uint64(1 << 10); end <= maxLatency+1; end <<= 1 {
		n := l.AtMost(time.Duration(end - 1))
		if n > 0 {
			points = append(points, point{int64(end+500) / 1000, int64(n)})
		}
		if n == l.Count {
			break
		}
	}
	w.Map(2)
	w.BulkString("calls")
	w.Int(int64(l.Count))
	w.BulkString("histogram_usec")
	w.Map(len(points))
	for _, p := range points {
		w.Int(p.usec)
		w.Int(p.count)
	}
}

// causes says, of every event that can be slow, what usually makes it so.
var causes = map[string]string{
	"command": "Long pipelines and transactions are executed, and committed, as one batch: send " +
		"shorter ones. SLOWLOG GET shows the batches.",
	"fast-command": "Commands of constant time mostly wait for the disk (see commit) or for a busy " +
		"processor. SLOWLOG GET shows the batches.",
	"commit": "The disk is slow to sync. Use a faster one, or appendfsync everysec if a second may " +
		"be lost to a power failure.",
	"checkpoint":   "Counters are being written back in bulk. Look for other programs that use the same disk.",
	"expire-cycle": "Many keys expire at once. Spread their times.",
	"snapshot": "Filters are being written to disk. It stops nobody, but shares the disk; see the " +
		"setting save.",
}

// LatencyDoctor says what was slow, how often, how badly, and what to do about it
// (LATENCY DOCTOR).
func (o *Observer) LatencyDoctor() string {
	var b strings.Builder
	list := o.Events.all()
	switch {
	case len(list) == 0 && o.tuned().LatencyThreshold == 0:
		b.WriteString("Latency monitoring is off. Turn it on with CONFIG SET latency-monitor-threshold " +
			"<milliseconds>.\n")
	case len(list) == 0:
		b.WriteString("Nothing was slow: no event took as long as latency-monitor-threshold.\n")
	default:
		b.WriteString("These were slow:\n\n")
		for i := range list {
			fmt.Fprintf(&b, "%d. %s\n", i+1, list[i].summary())
		}
		b.WriteString("\nWhat to do:\n\n")
		for i := range list {
			if advice := causes[list[i].name]; advice != "" {
				fmt.Fprintf(&b, "- %s: %s\n", list[i].name, advice)
			}
		}
	}
	return b.String()
}

// summary says in a sentence how often an event was slow and how badly.
func (e *latencyEvent) summary() string {
	n := len(e.samples)
	sum := time.Duration(0)
	for _, s := range e.samples {
		sum += s.took
	}
	mean := sum / time.Duration(n)
	off := 0.0
	for _, s := range e.samples {
		off += math.Abs(float64(s.took - mean))
	}
	deviation := time.Duration(off / float64(n))
	period := 0.0
	if n > 1 {
		period = float64(e.samples[n-1].at-e.samples[0].at) / float64(n-1)
	}
	return fmt.Sprintf("%s: %d latency spikes (average %dms, mean deviation %dms, period %.2f sec). Worst "+
		"all time event %dms.",
		e.name, n, mean.Milliseconds(), deviation.Milliseconds(), period, e.max.Milliseconds())
}

// The size of LATENCY GRAPH, in characters.
const (
	graphWidth  = 80
	graphHeight = 4
)

// Graph draws the history of an event (LATENCY GRAPH); it is not ok if there is none.
func (l *Events) Graph(name []byte, now time.Time) (graph string, ok bool) {
	e := l.find(name)
	if len(e.samples) == 0 {
		return "", false
	}
	return e.graph(now.Unix()), true
}

// graph draws the newest samples as columns between the lowest and the highest,
// each above how long ago it was.
func (e *latencyEvent) graph(now int64) string {
	samples := e.samples[max(len(e.samples)-graphWidth, 0):]
	low, high := samples[0].took, samples[0].took
	for _, s := range samples {
		low, high = min(low, s.took), max(high, s.took)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s - high %d ms, low %d ms (all time high %d ms)\n%s\n", e.name, high.Milliseconds(),
		low.Milliseconds(), e.max.Milliseconds(), strings.Repeat("-", graphWidth))
	for row := graphHeight - 1; row >= 0; row-- {
		line := make([]byte, len(samples))
		for i, s := range samples {
			line[i] = columnAt(level(s.took, low, high), row)
		}
		b.WriteString(strings.TrimRight(string(line), " ") + "\n")
	}
	b.WriteString("\n")
	labels := make([]string, len(samples))
	longest := 0
	for i, s := range samples {
		labels[i] = ago(now - s.at)
		longest = max(longest, len(labels[i]))
	}
	for row := range longest {
		for _, l := range labels {
			if row < len(l) {
				b.WriteByte(l[row])
			} else {
				b.WriteByte(' ')
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// graphLevels is how many heights a column can have: three to a row.
const graphLevels = 3*graphHeight - 1

// level returns a sample's height, 0 for the lowest to graphLevels for the
// highest.
func level(took, low, high time.Duration) int {
	if high == low {
		return 0
	}
	return int(int64(took-low) * graphLevels / int64(high-low))
}

// columnAt returns what a column of a height shows in a row, counted from the
// ground: the tip as _, o or #, and a | below it.
func columnAt(height, row int) byte {
	switch tip := height / 3; {
	case row < tip:
		return '|'
	case row == tip:
		return "_o#"[height%3]
	}
	return ' '
}

// ago renders a number of seconds in at most three characters or so.
func ago(seconds int64) string {
	switch {
	case seconds < 60:
		return fmt.Sprintf("%ds", max(seconds, 0))
	case seconds < 3600:
		return fmt.Sprintf("%dm", seconds/60)
	case seconds < 86400:
		return fmt.Sprintf("%dh", seconds/3600)
	}
	return fmt.Sprintf("%dd", seconds/86400)
}
