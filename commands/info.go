package commands

import (
	"fmt"
	"strings"
	"time"

	"github.com/fbfkv/fbfkv/store"
)

// infoView is what INFO reports on, gathered once per request.
type infoView struct {
	c      *Context
	now    time.Time
	server ServerFigures
	store  store.Stats
	memory memoryFigures
}

// infoSection is one section of INFO.
type infoSection struct {
	title  string // its name is asked for in any letter case
	extra  bool   // not in the default set, as in Redis
	render func(v *infoView, b *infoLines)
}

// infoLines gathers "name:value" lines.
type infoLines struct{ strings.Builder }

// add appends one line.
func (b *infoLines) add(name string, value any) { fmt.Fprintf(b, "%s:%v\r\n", name, value) }

// infoSections are the sections in the order in which they are shown.
var infoSections = []infoSection{
	{title: "Server", render: infoServer},
	{title: "Clients", render: infoClients},
	{title: "Memory", render: infoMemory},
	{title: "Persistence", render: infoPersistence},
	{title: "Stats", render: infoStats},
	{title: "Replication", render: infoReplication},
	{title: "CPU", render: infoCPU},
	{title: "Modules", render: func(*infoView, *infoLines) {}}, // there are none
	{title: "Commandstats", extra: true, render: infoCommandStats},
	{title: "Errorstats", render: infoErrorStats},
	{title: "Latencystats", extra: true, render: infoLatencyStats},
	{title: "Cluster", render: infoCluster},
	{title: "Keyspace", render: infoKeyspace},
	{title: "FBF", render: infoFBF},
}

// doInfo is INFO [section …]; the words default, all and everything stand for
// sets of sections.
func doInfo(c *Context) {
	wanted := map[string]bool{}
	for _, a := range c.Args[1:] {
		wanted[strings.ToLower(string(a))] = true
	}
	all := wanted["all"] || wanted["everything"]
	defaults := len(wanted) == 0 || wanted["default"]
	v := newInfoView(c)
	var b infoLines
	for i := range infoSections {
		s := &infoSections[i]
		if !all && !wanted[strings.ToLower(s.title)] && (!defaults || s.extra) {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString("# " + s.title + "\r\n")
		s.render(v, &b)
	}
	c.W.Verbatim("txt", b.String())
}

// newInfoView gathers the figures.
func newInfoView(c *Context) *infoView {
	v := &infoView{c: c, now: time.Now(), server: c.Server.figures(), store: c.Store.Stats()}
	v.memory = c.Server.gauges.memory(&v.store)
	return v
}

// infoReplication reports that there is none yet.
func infoReplication(v *infoView, b *infoLines) {
	b.add("role", "master")
	b.add("connected_slaves", 0)
	b.add("master_failover_state", "no-failover")
	b.add("master_replid", v.server.RunID)
	b.add("master_replid2", strings.Repeat("0", 40))
	b.add("master_repl_offset", v.store.Entries)
	b.add("second_repl_offset", -1)
	b.add("repl_backlog_active", 0)
	b.add("repl_backlog_size", 0)
	b.add("repl_backlog_first_byte_offset", 0)
	b.add("repl_backlog_histlen", 0)
}

// infoCluster reports that there is none yet.
func infoCluster(_ *infoView, b *infoLines) { b.add("cluster_enabled", 0) }

// infoKeyspace reports on the one database, if it holds keys.
func infoKeyspace(v *infoView, b *infoLines) {
	if v.store.Keys > 0 {
		fmt.Fprintf(b, "db0:keys=%d,expires=%d,avg_ttl=0\r\n", v.store.Keys, v.store.Expires)
	}
}

// status is Redis' word for whether something went well.
func status(err error) string {
	if err != nil {
		return "err"
	}
	return "ok"
}

// human renders a number of bytes as Redis does, such as 1.50M.
func human(n uint64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%dB", n)
	}
	const units = "KMGTPE"
	i, f := 0, float64(n)/(1<<10)
	for ; f >= 1<<10 && i < len(units)-1; i++ {
		f /= 1 << 10
	}
	return fmt.Sprintf("%.2f%c", f, units[i])
}
