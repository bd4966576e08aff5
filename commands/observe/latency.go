package observe

import (
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
