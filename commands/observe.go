package commands

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fbfkv/fbfkv/commands/observe"
	"github.com/fbfkv/fbfkv/store"
)

// The reports to package observe, and the commands that show its figures.

// begin shows a command to the monitors, and remembers the first of a round
// that does something for the slow log.
func (p *Pipeline) begin(c *Command, args [][]byte) {
	r := p.round
	if r.head.cmd == nil && c.Control == nil {
		r.head = batchHead{p.ses, c, args}
	}
	if r.tapped && c.Flags&Admin == 0 { // as in Redis
		var except *observe.Tap
		if c.Flags&unwatches != 0 {
			except = p.ses.tap
		}
		p.srv.Observer.Feed(p.ses.Addr, c.redact(args), except)
	}
}

// number is the number of a command in package observe; nil: no command.
func (c *Command) number() int {
	if c == nil {
		return observe.NoCommand
	}
	return c.index
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
	if h := &r.head; h.cmd != nil && r.srv.Observer.Slow(took) {
		n, fast := 0, h.cmd.Flags&Fast != 0
		for i := range slots {
			if c := slots[i].cmd; c != nil && c.Control == nil {
				n++
				fast = fast && c.Flags&Fast != 0
			}
		}
		r.srv.Observer.Report(&observe.Batch{
			Command: h.cmd.fullName, Args: h.cmd.redact(h.args), Addr: h.ses.Addr, Name: h.ses.Name(),
			Unlogged: h.cmd.Flags&SkipSlowlog != 0,
			More:     max(n-1, 0), Fast: fast, Start: start, Took: took,
		})
	}
	r.head = batchHead{}
}

// CommandFigures returns the figures of the commands that were asked for at
// least once, by name; see observe.Stats.
func (s *Server) CommandFigures() []observe.CommandFigures {
	return s.Observer.Stats.Figures(Commands.names())
}

// view gathers what INFO reports on.
func (s *Server) view(st *store.Store, tls bool) *observe.View {
	v := observe.View{Store: st, Server: s.figures(), Commands: s.Table.names(), Version: s.Version,
		Compat: CompatVersion, Tracking: s.tracking.Clients()}
	if s.Sessions != nil {
		for _, ses := range s.Sessions() {
			in, out := ses.QueryBuffer.Load(), ses.OutputBuffer.Load()
			v.Clients.MaxIn, v.Clients.MaxOut = max(v.Clients.MaxIn, in), max(v.Clients.MaxOut, out)
			v.Clients.Total += ses.Held()
		}
	}
	if view := s.clusterView(); view != nil {
		v.Replication, v.Cluster = s.infoReplication(view, tls), s.infoCluster(view)
	}
	return s.Observer.Look(v)
}

// InfoText returns what INFO answers when it is asked for sections, such as "stats fbf".
func (s *Server) InfoText(st *store.Store, sections string) string {
	s.prepare()
	return s.info(st, bytes.Fields([]byte(sections)), false)
}

func (s *Server) info(st *store.Store, sections [][]byte, tls bool) string {
	return s.view(st, tls).Info(sections, observe.Section{Title: "Regions", Render: s.infoRegions},
		observe.Section{Title: "FBF", Render: s.infoFBF})
}

// doInfo is INFO [section …].
func doInfo(c *Context) { c.W.Verbatim(c.Server.info(c.Store, c.Args[1:], c.Session.TLS)) }

// slowlogGet is SLOWLOG GET [count].
func slowlogGet(c *Context) {
	n := int64(10)
	if len(c.Args) > 3 {
		c.fail(tooManyArguments("SLOWLOG", c.Args[1]))
		return
	}
	if len(c.Args) == 3 {
		var ok bool
		if n, ok = parseInt(c.Args[2]); !ok || n < -1 {
			c.fail(refusal("ERR count should be greater than or equal to -1"))
			return
		}
	}
	c.Server.Observer.Slowlog.Write(c.W, n)
}

// slowlogFlags are the flags of SLOWLOG's subcommands.
const slowlogFlags = Admin | Loading | Stale

// latencySub declares a subcommand of LATENCY.
func latencySub(name string, arity int, since, complexity, summary string, run func(*Context),
	args ...Arg) Command {
	return Command{
		Name: name, Arity: arity, Flags: Admin | NoScript | Loading | Stale, Group: groupServer,
		Since: since, Complexity: complexity, Summary: summary, Args: args, Run: run,
	}
}

// ownTips are of a command whose reply is a node's own matter.
var ownTips = []string{"nondeterministic_output", "request_policy:all_nodes", "response_policy:special"}

// doMonitor is MONITOR. Lines follow once its own reply was written.
func doMonitor(c *Context) {
	srv, ses := c.Server, c.Session
	switch {
	case srv.Push == nil:
		c.fail(refusal("ERR MONITOR is not supported here"))
		return
	case c.tx.solo:
		c.fail(refusal("ERR MONITOR isn't allowed for DENY BLOCKING client"))
		return
	case ses.tap != nil:
		return // as Redis: it watches already
	}
	ses.monitors.Store(true)
	ses.tap = srv.Observer.Watch(func(b []byte) error { return srv.Push(ses, b) }, func() {
		if srv.Kill != nil {
			srv.Kill(func(o *Session) bool { return o == ses })
		}
	}, &ses.monitored)
	c.W.Status("OK")
}

// samplesOption is SAMPLES, which is read and has no effect: an estimate here
// counts everything.
var samplesOption = []option[Request]{{token: "SAMPLES", class: 1, again: true,
	value: func(_ *Request, v []byte) error {
		switch n, ok := parseInt(v); {
		case !ok:
			return errNotInteger
		case n < 0:
			return errSyntax
		}
		return nil
	}}}

// parseMemoryUsage parses MEMORY USAGE key [SAMPLES count].
func parseMemoryUsage(r *Request) error {
	r.Op.Kind, r.Op.Key = store.MemoryUsage, r.Args[2]
	_, err := parseOptions(r, samplesOption, r.Args[3:], "")
	return err
}

// memoryCommands tell where memory is.
var memoryCommands = []Command{{
	Name: "memory", Arity: -2, Group: groupServer, Since: "4.0.0",
	Summary: "A container for commands on memory.",
	Subcommands: []Command{
		{
			Name: "usage", Arity: -3, Flags: ReadOnly,
			Keys: KeySpec{First: 2, Last: 2, Step: 1, Flags: keyLook},
			Summary: "Estimates the bytes that a key holds in memory. Operation ids belong to their " +
				"table: see CTABLE INFO.",
			Args: []Arg{keyArg(), opt(with("SAMPLES", intArg("count")))}, Parse: parseMemoryUsage,
			Reply: replyIntOrNull,
		},
		since("4.0.0", helpFor("memory", groupServer)),
	},
}}

// observeCommands show what was slow and what happens.
var observeCommands = family(Command{Group: groupServer}, []Command{
	{
		Name: "slowlog", Arity: -2, Since: "2.2.12",
		Summary: "A container for commands on the log of slow batches.",
		Subcommands: []Command{
			{
				Name: "get", Arity: -2, Flags: slowlogFlags,
				Complexity: "O(N), where N is the number of entries returned",
				Tips:       []string{"request_policy:all_nodes", "nondeterministic_output"},
				Summary: "Returns the newest entries: id, Unix time, microseconds, the first command " +
					"of the batch, client and its name.",
				Args: []Arg{opt(intArg("count"))}, Run: slowlogGet,
			},
			{
				Name: "len", Arity: 2, Flags: slowlogFlags,
				Tips: []string{"request_policy:all_nodes", "response_policy:agg_sum",
					"nondeterministic_output"},
				Summary: "Returns the number of entries.",
				Run:     func(c *Context) { c.W.Int(int64(c.Server.Observer.Slowlog.Len())) },
			},
			{
				Name: "reset", Arity: 2, Flags: slowlogFlags,
				Complexity: "O(N), where N is the number of entries",
				Tips:       []string{"request_policy:all_nodes", "response_policy:all_succeeded"},
				Summary:    "Drops all entries.",
				Run:        func(c *Context) { c.Server.Observer.Slowlog.Reset(); c.W.Status("OK") },
			},
			since("6.2.0", helpFor("slowlog", groupServer)),
		},
	},
	{
		Name: "latency", Arity: -2, Since: "2.8.13",
		Summary: "A container for commands on how long things take.",
		Subcommands: []Command{
			withTips(latencySub("histogram", -2, "7.0.0", "O(N), where N is the number of commands with "+
				"latencies",
				"Returns a histogram of the latencies of commands in microseconds. A command takes as "+
					"long as its batch.", func(c *Context) {
					c.Server.Observer.Stats.WriteHistograms(c.W, c.table.names(), c.Args[2:])
				},
				opt(multi(strArg("command")))), ownTips...),
			withTips(latencySub("history", 3, "2.8.13", "O(1)",
				"Returns when an event was slow, and how many milliseconds it took.",
				func(c *Context) { c.Server.Observer.Events.WriteHistory(c.W, c.Args[2]) },
				strArg("event")), ownTips...),
			withTips(latencySub("latest", 2, "2.8.13", "O(1)",
				"Returns for every event when it was last slow, and its last and longest time in "+
					"milliseconds.", func(c *Context) { c.Server.Observer.Events.WriteLatest(c.W) }),
				ownTips...),
			withTips(latencySub("reset", -2, "2.8.13", "O(1)", "Forgets events.", func(c *Context) {
				c.W.Int(int64(c.Server.Observer.Events.Reset(c.Args[2:])))
			}, opt(multi(strArg("event")))), "request_policy:all_nodes", "response_policy:all_succeeded"),
			since("2.8.13", helpFor("latency", groupServer)),
		},
	},
	{
		Name: "monitor", Arity: 1, Flags: Admin | NoScript | Loading | Stale, Since: "1.0.0",
		Summary: "Shows every command of all clients as the server executes it.", Run: doMonitor,
	},
})

// infoFBF reports on the filters: all together, then a line per table.
func (srv *Server) infoFBF(v *observe.View, b *observe.Lines) {
	s := &v.Stats
	b.Add("filter_bytes", s.FilterBytes)
	b.Add("filter_keys", s.Objects[store.TypeFilter])
	b.Add("recent_records", s.RecentRecords)
	b.Add("record_runs", s.Runs)
	b.Add("record_bytes", s.RunBytes)
	b.Add("open_holds", s.Holds)
	b.Add("open_hold_bytes", s.HoldBytes)
	b.Add("oldest_hold_seconds", int64(s.HoldAge().Seconds()))
	b.Add("positives_confirmed", s.Confirmed)
	b.Add("positives_dismissed", s.Dismissed)
	infoWaits(srv, b)
	for i, f := range v.Store.Followers() {
		fmt.Fprintf(b, "follower%d:name=%s,lag_bytes=%d,kept_bytes=%d\r\n", i, f.Name, f.Lag, f.Kept)
	}
	for _, o := range v.Store.Tables() {
		t, err := v.Store.TableInfo(o.Name)
		if err != nil {
			continue // dropped meanwhile
		}
		newestFill := 0.0
		if fill := t.Filter.Fill; len(fill) > 0 {
			newestFill = fill[0]
		}
		fmt.Fprintf(b,
			"table_%s:mode=%s,window_ms=%d,guaranteed_ms=%d,target_fpp=%g,effective_fpp=%g,generations=%d,"+
				"fill=%.4f,fills=%s,refresh_ms=%d,refreshes=%d,ids=%d,memory=%d,applied=%d,duplicates=%d,looked_up=%d,confirmed=%d,"+
				"stale=%d,refused=%d\r\n",
			lineSafe(t.Name), wordAt(modeWords, uint8(t.Mode)), t.TableOptions.Window.Milliseconds(),
			t.Filter.Window.Milliseconds(), t.Error, t.Filter.EffectiveFPP, t.Filter.Generations, newestFill,
			shares(t.Filter.Fill),
			t.Filter.RefreshPeriod.Milliseconds(), t.Filter.Refreshes, t.Filter.Items, t.Filter.Bytes,
			t.Applied,
			t.Duplicates, t.Confirmed+t.Dismissed, t.Confirmed, t.Stale, t.Refused)
	}
}

// infoWaits reports how long clients have waited for commands on keys: how often at most
// each of observe.LatencyBounds, in microseconds, and in all.
func infoWaits(srv *Server, b *observe.Lines) {
	counts := srv.Observer.Stats.Waits(func(command int) bool {
		return srv.Table.all[command].Flags&(Write|ReadOnly) != 0
	})
	var line []byte
	for i, bound := range observe.LatencyBounds {
		line = fmt.Appendf(line, "%d=%d,", bound.Microseconds(), counts[i])
	}
	b.Add("waits_usec", fmt.Sprintf("%sinf=%d", line, counts[len(counts)-1]))
}

// shares are the shares of bits set in the generations, the newest first.
func shares(of []float64) string {
	words := make([]string, len(of))
	for i, fill := range of {
		words[i] = strconv.FormatFloat(fill, 'f', 4, 64)
	}
	return strings.Join(words, "/")
}

// lineSafe keeps a table's name from breaking INFO's lines.
func lineSafe(name string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r == ':' || r == ',' || r == '=' || r == 0x7f {
			return '_'
		}
		return r
	}, name)
}
