package commands

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// causes says, of every event that can be slow, what usually makes it so.
var causes = map[string]string{
	"command":      "Long pipelines and transactions are executed, and committed, as one batch: send shorter ones. SLOWLOG GET shows the batches.",
	"fast-command": "Commands of constant time mostly wait for the disk (see commit) or for a busy processor. SLOWLOG GET shows the batches.",
	"commit":       "The disk is slow to sync. Use a faster one, or appendfsync everysec if a second may be lost to a power failure.",
	"checkpoint":   "Counters are being written back in bulk. Look for other programs that use the same disk.",
	"expire-cycle": "Many keys expire at once. Spread their times.",
	"snapshot":     "Filters are being written to disk. It stops nobody, but shares the disk; see the setting save.",
}

// latencyDoctor is LATENCY DOCTOR: what was slow, how often, how badly, and what
// to do about it.
func latencyDoctor(c *Context) {
	o := &c.Server.observer
	var b strings.Builder
	list := o.events.all()
	switch {
	case len(list) == 0 && o.tuned().LatencyThreshold == 0:
		b.WriteString("Latency monitoring is off. Turn it on with CONFIG SET latency-monitor-threshold <milliseconds>.\n")
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
	c.W.Verbatim("txt", b.String())
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
	return fmt.Sprintf("%s: %d latency spikes (average %dms, mean deviation %dms, period %.2f sec). Worst all time event %dms.",
		e.name, n, mean.Milliseconds(), deviation.Milliseconds(), period, e.max.Milliseconds())
}

// The size of LATENCY GRAPH, in characters.
const (
	graphWidth  = 80
	graphHeight = 4
)

// latencyGraph is LATENCY GRAPH event.
func latencyGraph(c *Context) {
	e := c.Server.observer.events.find(c.Args[2])
	if len(e.samples) == 0 {
		c.fail(refusal("ERR No samples available for event '" + string(cString(c.Args[2], maxQuoted)) + "'"))
		return
	}
	c.W.Verbatim("txt", e.graph(time.Now().Unix()))
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
