package commands

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/fbfkv/fbfkv/store"
)

// infoView is what INFO reports on, gathered once per request.
type infoView struct {
	c       *Context
	now     time.Time
	server  ServerFigures
	store   store.Stats
	runtime runtime.MemStats
}

// infoSection is one section of INFO.
type infoSection struct {
	name   string // in lower case; its title is derived
	extra  bool   // not in the default set, as in Redis
	render func(v *infoView, b *infoLines)
}

// infoLines gathers "name:value" lines.
type infoLines struct{ strings.Builder }

// add appends one line.
func (b *infoLines) add(name string, value any) { fmt.Fprintf(b, "%s:%v\r\n", name, value) }

// infoSections are the sections in the order in which they are shown.
var infoSections = []infoSection{
	{name: "server", render: infoServer},
	{name: "clients", render: infoClients},
	{name: "memory", render: infoMemory},
	{name: "persistence", render: infoPersistence},
	{name: "stats", render: infoStats},
	{name: "replication", render: infoReplication},
	{name: "cpu", render: infoCPU},
	{name: "commandstats", extra: true, render: infoCommandStats},
	{name: "cluster", render: infoCluster},
	{name: "keyspace", render: infoKeyspace},
	{name: "fbf", render: infoFBF},
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
		if !all && !wanted[s.name] && (!defaults || s.extra) {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString("# " + strings.ToUpper(s.name[:1]) + s.name[1:] + "\r\n")
		s.render(v, &b)
	}
	c.W.Verbatim("txt", b.String())
}

// newInfoView gathers the figures.
func newInfoView(c *Context) *infoView {
	v := &infoView{c: c, now: time.Now(), server: c.Server.figures(), store: c.Store.Stats()}
	runtime.ReadMemStats(&v.runtime)
	return v
}

// infoServer reports what runs, where and since when.
func infoServer(v *infoView, b *infoLines) {
	f := &v.server
	up := v.now.Sub(f.Started)
	if f.Started.IsZero() {
		up = 0
	}
	b.add("redis_version", CompatVersion)
	b.add("server_name", "fbfkv")
	b.add("fbfkv_version", v.c.Server.Version)
	b.add("redis_mode", "standalone")
	b.add("os", runtime.GOOS+" "+runtime.GOARCH)
	b.add("arch_bits", 64)
	b.add("go_version", runtime.Version())
	b.add("process_id", os.Getpid())
	b.add("run_id", f.RunID)
	b.add("tcp_port", f.Port)
	b.add("tls_port", f.TLSPort)
	b.add("server_time_usec", v.now.UnixMicro())
	b.add("uptime_in_seconds", int64(up/time.Second))
	b.add("uptime_in_days", int64(up/(24*time.Hour)))
	b.add("executable", f.Executable)
	b.add("config_file", f.ConfigFile)
	b.add("io_threads_active", 0)
}

// infoClients reports on connections.
func infoClients(v *infoView, b *infoLines) {
	b.add("connected_clients", v.server.ConnectedClients)
	b.add("cluster_connections", 0)
	b.add("maxclients", v.server.MaxClients)
	b.add("blocked_clients", v.server.BlockedClients)
	b.add("tracking_clients", 0)
}

// infoMemory reports on memory. used_memory is what the Go heap holds, the
// closest to what Redis' allocator counts.
func infoMemory(v *infoView, b *infoLines) {
	m := &v.runtime
	b.add("used_memory", m.HeapAlloc)
	b.add("used_memory_human", human(m.HeapAlloc))
	b.add("used_memory_rss", m.Sys-m.HeapReleased)
	b.add("used_memory_rss_human", human(m.Sys-m.HeapReleased))
	b.add("used_memory_filters", v.store.FilterBytes)
	b.add("used_memory_recent_records", v.store.RecentBytes)
	b.add("hot_counters", v.store.HotCounters)
	b.add("maxmemory", 0)
	b.add("maxmemory_human", "0B")
	b.add("maxmemory_policy", "noeviction")
	b.add("filter_maxmemory", v.store.FilterLimit)
	b.add("mem_allocator", "go")
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

// infoPersistence reports on the log and the snapshots, and on what the last
// start recovered.
func infoPersistence(v *infoView, b *infoLines) {
	at, took, err := v.c.Store.LastSnapshot()
	saved, seconds := int64(0), int64(-1)
	if !at.IsZero() {
		saved, seconds = at.Unix(), int64(took/time.Second)
	}
	b.add("loading", 0)
	b.add("async_loading", 0)
	b.add("rdb_changes_since_last_save", v.store.DirtyCounters)
	b.add("rdb_bgsave_in_progress", bit(v.c.Store.Saving()))
	b.add("rdb_last_save_time", saved)
	b.add("rdb_last_bgsave_status", status(err))
	b.add("rdb_last_bgsave_time_sec", seconds)
	b.add("aof_enabled", 1)
	b.add("aof_rewrite_in_progress", 0)
	b.add("aof_last_write_status", status(v.store.Failure))
	b.add("aof_current_size", v.store.Storage.WALSize)
	b.add("appendfsync", v.store.Fsync)
	b.add("oplog_bytes_since_snapshot", v.store.LogBytes)
	b.add("disk_bytes", v.store.Storage.DiskSize)
	b.add("disk_full", bit(v.store.DiskFull))
	infoBackup(v.c.Store, b)
	r := &v.store.Recovery
	b.add("recovery_milliseconds", r.Took.Milliseconds())
	b.add("recovery_keys", r.Keys)
	b.add("recovery_log_records", r.Records)
	b.add("recovery_log_entries", r.Entries)
	b.add("recovery_snapshots", r.Snapshots)
	b.add("recovery_older_snapshots", r.Older)
	b.add("recovery_rebuilt_filters", r.Rebuilt)
	b.add("recovery_problems", len(r.Problems))
}

// status is Redis' word for whether something went well.
func status(err error) string {
	if err != nil {
		return "err"
	}
	return "ok"
}

// infoStats reports totals since the start or CONFIG RESETSTAT.
func infoStats(v *infoView, b *infoLines) {
	f := &v.server
	total := f.TotalCommands
	if total == 0 {
		total = v.c.Server.stats.total()
	}
	b.add("total_connections_received", f.TotalConnections)
	b.add("total_commands_processed", total)
	b.add("total_net_input_bytes", f.NetInputBytes)
	b.add("total_net_output_bytes", f.NetOutputBytes)
	b.add("rejected_connections", f.RejectedConnections)
	b.add("total_error_replies", v.c.Server.stats.errors.total.Load())
	b.add("evicted_keys", 0)
	b.add("pubsub_channels", 0)
	b.add("pubsub_patterns", 0)
	b.add("operations_applied", v.store.Applied)
	b.add("operations_duplicate", v.store.Duplicates)
	b.add("operations_stale", v.store.Stale)
	b.add("operations_refused", v.store.Refused)
}

// infoReplication reports that there is none yet.
func infoReplication(v *infoView, b *infoLines) {
	b.add("role", "master")
	b.add("connected_slaves", 0)
	b.add("master_replid", v.server.RunID)
	b.add("master_repl_offset", v.store.Entries)
}

// infoCluster reports that there is none yet.
func infoCluster(_ *infoView, b *infoLines) { b.add("cluster_enabled", 0) }

// infoKeyspace reports on the one database, if it holds keys.
func infoKeyspace(v *infoView, b *infoLines) {
	if v.store.Keys > 0 {
		fmt.Fprintf(b, "db0:keys=%d,expires=%d,avg_ttl=0\r\n", v.store.Keys, v.store.Expires)
	}
}

// infoCommandStats reports calls and time per command.
func infoCommandStats(v *infoView, b *infoLines) {
	for _, c := range v.c.table.all {
		s := &v.c.Server.stats.all[c.index]
		calls, rejected, failed := s.calls.Load(), s.rejections.Load(), s.failures.Load()
		if calls == 0 && rejected == 0 && failed == 0 {
			continue
		}
		usec := float64(s.nanos.Load()) / 1000
		per := 0.0
		if calls > 0 {
			per = usec / float64(calls)
		}
		fmt.Fprintf(b, "cmdstat_%s:calls=%d,usec=%d,usec_per_call=%.2f,rejected_calls=%d,failed_calls=%d\r\n",
			c.fullName, calls, int64(usec), per, rejected, failed)
	}
}

// infoFBF reports on the filters: all together, then a line per table.
func infoFBF(v *infoView, b *infoLines) {
	s := &v.store
	b.add("filter_bytes", s.FilterBytes)
	b.add("filter_keys", s.FilterKeys)
	b.add("recent_records", s.RecentRecords)
	b.add("record_runs", s.Runs)
	b.add("record_bytes", s.RunBytes)
	b.add("positives_confirmed", s.Confirmed)
	b.add("positives_dismissed", s.Dismissed)
	for _, o := range v.c.Store.Tables() {
		t, err := v.c.Store.TableInfo(o.Name)
		if err != nil {
			continue // dropped meanwhile
		}
		fmt.Fprintf(b, "table_%s:mode=%s,window_ms=%d,target_fpp=%g,effective_fpp=%g,generations=%d,refresh_ms=%d,"+
			"ids=%d,memory=%d,applied=%d,duplicates=%d,stale=%d,refused=%d\r\n",
			lineSafe(t.Name), wordAt(modeWords, uint8(t.Mode)), t.TableOptions.Window.Milliseconds(), t.Error,
			t.Filter.EffectiveFPP, t.Filter.Generations, t.Filter.RefreshPeriod.Milliseconds(), t.Filter.Items,
			t.Filter.Bytes, t.Applied, t.Duplicates, t.Stale, t.Refused)
	}
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
