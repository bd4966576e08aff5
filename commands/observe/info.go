package observe

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fbfkv/fbfkv/commands/acl"
	"github.com/fbfkv/fbfkv/store"
)

// ServerFigures are the server's own numbers, as INFO shows them.
type ServerFigures struct {
	Port       int      // TCP port clients connect to
	TLSPort    int      // 0: none
	Listeners  []string // such as "name=tcp,bind=127.0.0.1,port=6379"
	RunID      string   // 40 hexadecimal digits, new at every start
	Started    time.Time
	Executable string
	ConfigFile string
	Polling    string // how connections are watched: epoll, or go for the runtime's own poller

	ConnectedClients int
	BlockedClients   int // that wait for the end of CLIENT PAUSE, a leader or replicas
	MaxClients       int
	ListsBloom       bool // MODULE LIST shows RedisBloom

	TotalConnections    uint64 // accepted since start
	RejectedConnections uint64 // refused because of maxclients
	EvictedClients      uint64 // disconnected because of maxmemory-clients
	ClientMemory        int64  // bytes that clients hold
	MaxMemoryClients    int64  // bytes; 0: no limit
	NetInputBytes       uint64
	NetOutputBytes      uint64
	Reads, Writes       uint64 // from and to clients' connections
}

// Buffers are the bytes that the buffers of clients' connections hold.
type Buffers struct {
	MaxIn, MaxOut int64 // of one client
	Total         int64
}

// View is what INFO reports on, gathered once per request by
// Observer.Look.
type View struct {
	Store    *store.Store
	Server   ServerFigures
	Clients  Buffers
	Tracking int      // clients that are told of changed keys
	Commands []string // their names, by number
	Version  string   // fbfkv's own
	Compat   string   // the version of Redis that we follow

	// Replication and Cluster render the sections of these names for a node of a cluster; nil:
	// the server is not a node.
	Replication, Cluster func(*Lines)

	// Stats are the store's figures; Look fills them in.
	Stats store.Stats

	o      *Observer
	now    time.Time
	memory memoryFigures
}

// Look completes a view with what the store and the observer know by now.
func (o *Observer) Look(v View) *View {
	v.o, v.now, v.Stats = o, time.Now(), v.Store.Stats()
	v.memory = o.gauges.memory(&v.Stats)
	return &v
}

// Section is one section of INFO.
type Section struct {
	Title  string // its name is asked for in any letter case
	Render func(v *View, b *Lines)
	extra  bool // not in the default set, as in Redis
}

// Lines gathers "name:value" lines.
type Lines struct{ strings.Builder }

// Add appends one line.
func (b *Lines) Add(name string, value any) { fmt.Fprintf(b, "%s:%v\r\n", name, value) }

// sections are Redis' sections in the order in which they are shown.
var sections = []Section{
	{Title: "Server", Render: infoServer},
	{Title: "Clients", Render: infoClients},
	{Title: "Memory", Render: infoMemory},
	{Title: "Persistence", Render: infoPersistence},
	{Title: "Stats", Render: infoStats},
	{Title: "Replication", Render: infoReplication},
	{Title: "CPU", Render: infoCPU},
	{Title: "Modules", Render: infoModules},
	{Title: "Commandstats", extra: true, Render: infoCommandStats},
	{Title: "Errorstats", Render: infoErrorStats},
	{Title: "Latencystats", extra: true, Render: infoLatencyStats},
	{Title: "Cluster", Render: infoCluster},
	{Title: "Keyspace", Render: infoKeyspace},
}

// Info renders the sections of INFO that are asked for, or the default set, with more
// sections at the end; the words default, all and everything stand for sets of sections.
func (v *View) Info(asked [][]byte, more ...Section) string {
	wanted := map[string]bool{}
	for _, a := range asked {
		wanted[strings.ToLower(string(a))] = true
	}
	all := wanted["all"] || wanted["everything"]
	defaults := len(wanted) == 0 || wanted["default"]
	var b Lines
	for _, s := range slices.Concat(sections, more) {
		if !all && !wanted[strings.ToLower(s.Title)] && (!defaults || s.extra) {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString("# " + s.Title + "\r\n")
		s.Render(v, &b)
	}
	return b.String()
}

// BloomModule is the version of RedisBloom that MODULE LIST shows if it is to show any.
const BloomModule = 80980

// infoModules shows no module, or RedisBloom's.
func infoModules(v *View, b *Lines) {
	if v.Server.ListsBloom {
		b.Add("module",
			fmt.Sprintf("name=bf,ver=%d,api=1,filters=0,usedby=[],using=[],options=[handle-io-errors]",
				BloomModule))
	}
}

// infoReplication reports on replicas, of which a server has none outside of a cluster.
func infoReplication(v *View, b *Lines) {
	if v.Replication != nil {
		v.Replication(b)
		return
	}
	b.Add("role", "master")
	b.Add("connected_slaves", 0)
	b.Add("master_failover_state", "no-failover")
	b.Add("master_replid", v.Server.RunID)
	b.Add("master_replid2", strings.Repeat("0", 40))
	b.Add("master_repl_offset", v.Stats.Entries)
	b.Add("second_repl_offset", -1)
	b.zeros(strings.Fields("repl_backlog_active repl_backlog_size repl_backlog_first_byte_offset " +
		"repl_backlog_histlen"))
}

// infoCluster reports on the cluster.
func infoCluster(v *View, b *Lines) {
	if v.Cluster != nil {
		v.Cluster(b)
		return
	}
	b.Add("cluster_enabled", 0)
}

// infoKeyspace reports on the one database, if it holds keys.
func infoKeyspace(v *View, b *Lines) {
	if v.Stats.Keys > 0 {
		fmt.Fprintf(b, "db0:keys=%d,expires=%d,avg_ttl=0\r\n", v.Stats.Keys, v.Stats.Expires)
	}
}

// flag is 1 for true.
func flag(b bool) int {
	if b {
		return 1
	}
	return 0
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

// infoServer reports what runs, where and since when.
func infoServer(v *View, b *Lines) {
	f := &v.Server
	up := v.now.Sub(f.Started)
	if f.Started.IsZero() {
		up = 0
	}
	supervised := "no"
	if os.Getenv("NOTIFY_SOCKET") != "" {
		supervised = "systemd"
	}
	b.Add("redis_version", v.Compat)
	b.Add("server_name", "fbfkv")
	b.Add("fbfkv_version", v.Version)
	mode := "standalone"
	if v.Cluster != nil {
		mode = "cluster"
	}
	b.Add("redis_mode", mode)
	b.Add("os", systemName())
	b.Add("arch_bits", 64)
	b.Add("multiplexing_api", f.Polling)
	b.Add("go_version", runtime.Version())
	b.Add("process_id", os.Getpid())
	b.Add("process_supervised", supervised)
	b.Add("run_id", f.RunID)
	b.Add("tcp_port", f.Port)
	b.Add("tls_port", f.TLSPort)
	b.Add("server_time_usec", v.now.UnixMicro())
	b.Add("uptime_in_seconds", int64(up/time.Second))
	b.Add("uptime_in_days", int64(up/(24*time.Hour)))
	b.Add("hz", 1)
	b.Add("configured_hz", 1)
	b.Add("lru_clock", v.now.Unix()&(1<<24-1))
	b.Add("executable", f.Executable)
	b.Add("config_file", f.ConfigFile)
	b.Add("io_threads_active", 0)
	for i, l := range f.Listeners {
		b.Add("listener"+strconv.Itoa(i), l)
	}
}

// infoClients reports on connections.
func infoClients(v *View, b *Lines) {
	b.Add("connected_clients", v.Server.ConnectedClients)
	b.Add("cluster_connections", 0)
	b.Add("maxclients", v.Server.MaxClients)
	b.Add("client_recent_max_input_buffer", v.Clients.MaxIn)
	b.Add("client_recent_max_output_buffer", v.Clients.MaxOut)
	b.Add("client_memory", v.Clients.Total)
	b.Add("maxmemory_clients", v.Server.MaxMemoryClients)
	b.Add("blocked_clients", v.Server.BlockedClients)
	b.Add("tracking_clients", v.Tracking)
	b.zeros(strings.Fields("clients_in_timeout_table total_blocking_keys total_blocking_keys_on_nokey"))
}

// scriptMemory are the fields about scripts and functions, of which there are none.
var scriptMemory = strings.Fields(`used_memory_lua used_memory_vm_eval used_memory_lua_human used_memory_scripts_eval
	number_of_cached_scripts number_of_functions number_of_libraries used_memory_vm_functions used_memory_vm_total
	used_memory_vm_total_human used_memory_functions used_memory_scripts used_memory_scripts_human`)

// infoMemory reports on memory. used_memory is what the Go heap and the storage
// engine hold, the closest to what Redis' allocator counts.
func infoMemory(v *View, b *Lines) {
	m := &v.memory
	dataset := m.dataset(&v.Stats)
	b.bytes("used_memory", m.used)
	b.bytes("used_memory_rss", m.resident)
	b.bytes("used_memory_peak", m.peak)
	b.Add("used_memory_peak_perc", percent(m.used, m.peak))
	b.Add("used_memory_overhead", m.used-dataset)
	b.Add("used_memory_startup", m.startup)
	b.Add("used_memory_dataset", dataset)
	b.Add("used_memory_dataset_perc", percent(dataset, max(m.used-min(m.used, m.startup), dataset)))
	b.Add("used_memory_filters", v.Stats.FilterBytes)
	b.Add("used_memory_recent_records", v.Stats.RecentBytes)
	b.Add("used_memory_block_cache", v.Stats.Storage.BlockCacheSize)
	b.Add("hot_counters", v.Stats.HotCounters)
	b.Add("loading_hot_counters", v.Stats.ColdCounters)
	b.Add("used_memory_row_filters", v.Stats.RowFilterBytes)
	b.Add("allocator_allocated", m.heap)
	b.Add("allocator_active", m.active)
	b.Add("allocator_resident", m.mapped)
	b.bytes("total_system_memory", totalMemory())
	b.zeros(scriptMemory)
	b.bytes("maxmemory", 0)
	b.Add("maxmemory_policy", "noeviction")
	b.Add("filter_maxmemory", v.Stats.FilterLimit)
	b.ratio("allocator_frag", m.active, m.heap)
	b.ratio("allocator_rss", m.mapped, m.active)
	b.ratio("rss_overhead", m.resident, m.mapped)
	b.Add("mem_fragmentation_ratio", quotient(m.resident, m.used))
	b.Add("mem_fragmentation_bytes", int64(m.resident)-int64(m.used))
	b.zeros(strings.Fields("mem_not_counted_for_evict mem_replication_backlog " +
		"mem_total_replication_buffers mem_clients_slaves"))
	b.Add("mem_clients_normal", v.Clients.Total)
	b.Add("mem_cluster_links", 0)
	b.Add("mem_aof_buffer", v.Stats.Storage.MemTableSize)
	b.Add("mem_allocator", "go-"+runtime.Version()[2:])
	b.zeros(strings.Fields("active_defrag_running lazyfree_pending_objects lazyfreed_objects"))
}

// bytes appends a number of bytes, and once more for people.
func (b *Lines) bytes(name string, n uint64) {
	b.Add(name, n)
	b.Add(name+"_human", human(n))
}

// ratio appends how much larger a is than b, and by how much.
func (b *Lines) ratio(name string, larger, smaller uint64) {
	b.Add(name+"_ratio", quotient(larger, smaller))
	b.Add(name+"_bytes", int64(larger)-int64(smaller))
}

// quotient renders a ratio with two decimals; of nothing it is 0.
func quotient(a, b uint64) string {
	if b == 0 {
		return "0.00"
	}
	return fmt.Sprintf("%.2f", float64(a)/float64(b))
}

// percent renders a part of a whole.
func percent(part, whole uint64) string {
	if whole == 0 {
		return "0.00%"
	}
	return fmt.Sprintf("%.2f%%", 100*float64(part)/float64(whole))
}

// infoPersistence reports on the log and the snapshots, and on what the last
// start recovered. Redis' rdb is our snapshot, its aof our log of operations,
// which is trimmed at checkpoints and never rewritten.
func infoPersistence(v *View, b *Lines) {
	at, took, err := v.Store.LastSnapshot()
	saved, seconds := v.Server.Started.Unix(), int64(-1)
	if !at.IsZero() {
		saved, seconds = at.Unix(), int64(took/time.Second)
	}
	saving, current := v.Store.Saving(), int64(-1)
	if saving {
		current = int64(v.now.Sub(at) / time.Second)
	}
	b.zeros(strings.Fields("loading async_loading current_cow_peak current_cow_size current_cow_size_age"))
	b.Add("current_fork_perc", "0.00")
	b.Add("current_save_keys_processed", 0)
	b.Add("current_save_keys_total", 0)
	b.Add("rdb_changes_since_last_save", v.Stats.Changes)
	b.Add("rdb_bgsave_in_progress", flag(saving))
	b.Add("rdb_last_save_time", max(saved, 0))
	b.Add("rdb_last_bgsave_status", status(err))
	b.Add("rdb_last_bgsave_time_sec", seconds)
	b.Add("rdb_current_bgsave_time_sec", current)
	b.Add("rdb_saves", v.o.gauges.snapshots.Load())
	b.Add("rdb_last_cow_size", 0)
	b.Add("rdb_last_load_keys_expired", 0)
	b.Add("rdb_last_load_keys_loaded", v.Stats.Recovery.Keys)
	b.Add("aof_enabled", 1)
	b.Add("aof_rewrite_in_progress", 0)
	b.Add("aof_rewrite_scheduled", 0)
	b.Add("aof_last_rewrite_time_sec", -1)
	b.Add("aof_current_rewrite_time_sec", -1)
	b.Add("aof_last_bgrewrite_status", "ok")
	b.Add("aof_rewrites", 0)
	b.Add("aof_rewrites_consecutive_failures", 0)
	b.Add("aof_last_write_status", status(v.Stats.Failure))
	b.zeros(strings.Fields("aof_last_cow_size module_fork_in_progress module_fork_last_cow_size"))
	b.Add("aof_current_size", v.Stats.Storage.LogSize)
	b.zeros(strings.Fields("aof_base_size aof_pending_rewrite aof_buffer_length aof_pending_bio_fsync " +
		"aof_delayed_fsync"))
	infoStorage(v, b)
}

// infoStorage reports what Redis has no name for.
func infoStorage(v *View, b *Lines) {
	b.Add("appendfsync", v.Stats.Fsync)
	b.Add("oplog_bytes_since_snapshot", v.Stats.LogBytes)
	b.Add("disk_bytes", v.Stats.Storage.DiskSize)
	b.Add("unreadable_keys", v.Stats.Unreadable)
	b.Add("disk_full", flag(v.Stats.DiskFull))
	b.Add("disk_free_bytes", v.Stats.DiskFree)
	b.Add("disk_min_free_bytes", v.Stats.MinFreeDisk)
	b.Add("oplog_fsyncs", v.Stats.Storage.Fsyncs.Count)
	b.Add("oplog_fsync_usec", v.Stats.Storage.Fsyncs.Sum.Microseconds())
	b.Add("disk_hangs", v.Stats.Storage.Hangs.Count)
	b.Add("disk_hangs_milliseconds", v.Stats.Storage.Hangs.Age.Milliseconds())
	infoBackup(v, b)
	r := &v.Stats.Recovery
	b.Add("recovery_milliseconds", r.Took.Milliseconds())
	b.Add("recovery_keys", r.Keys)
	b.Add("recovery_log_sections", r.Sections)
	b.Add("recovery_log_entries", r.Entries)
	b.Add("recovery_snapshots", r.Snapshots)
	b.Add("recovery_older_snapshots", r.Older)
	b.Add("recovery_rebuilt_filters", r.Rebuilt)
	b.Add("recovery_problems", len(r.Problems))
}

// infoBackup reports when the last backup was finished, and how far a present one is.
func infoBackup(v *View, b *Lines) {
	last := int64(0)
	if at := v.Stats.LastBackup; !at.IsZero() {
		last = at.Unix()
	}
	b.Add("backup_last_success_time", last)
	stage, done, total := v.Store.BackupProgress()
	b.Add("backup_in_progress", flag(stage != ""))
	if stage != "" {
		b.Add("backup_stage", stage)
		b.Add("backup_done", done)
		b.Add("backup_total", total)
	}
}

// idleStats are fields of Redis' statistics whose features do not exist here.
var idleStats = strings.Fields("total_eviction_exceeded_time current_eviction_exceeded_time")

// moreIdleStats follow the hits and misses.
var moreIdleStats = strings.Fields(`pubsub_channels pubsub_patterns pubsubshard_channels latest_fork_usec total_forks
	migrate_cached_sockets slave_expires_tracked_keys active_defrag_hits active_defrag_misses active_defrag_key_hits
	active_defrag_key_misses total_active_defrag_time current_active_defrag_time tracking_total_keys
	tracking_total_items tracking_total_prefixes unexpected_error_replies`)

// infoStats reports totals since the start or CONFIG RESETSTAT.
func infoStats(v *View, b *Lines) {
	f, o := &v.Server, v.o
	s := o.gauges.since(&v.Stats)
	r := o.gauges.rates(v.now, o.Stats.total())
	b.Add("total_connections_received", f.TotalConnections)
	b.Add("total_commands_processed", o.Stats.total())
	b.Add("instantaneous_ops_per_sec", int64(r.commands))
	b.Add("total_net_input_bytes", f.NetInputBytes)
	b.Add("total_net_output_bytes", f.NetOutputBytes)
	b.Add("total_net_repl_input_bytes", 0)
	b.Add("total_net_repl_output_bytes", 0)
	b.Add("instantaneous_input_kbps", fmt.Sprintf("%.2f", r.in/1024))
	b.Add("instantaneous_output_kbps", fmt.Sprintf("%.2f", r.out/1024))
	b.Add("instantaneous_input_repl_kbps", "0.00")
	b.Add("instantaneous_output_repl_kbps", "0.00")
	b.Add("rejected_connections", f.RejectedConnections)
	b.zeros(strings.Fields("sync_full sync_partial_ok sync_partial_err"))
	b.Add("expired_keys", s.Expired)
	b.Add("expired_stale_perc", "0.00")
	b.Add("expired_time_cap_reached_count", 0)
	b.zeros([]string{"expire_cycle_cpu_milliseconds", "evicted_keys"})
	b.Add("evicted_clients", f.EvictedClients)
	b.zeros(idleStats)
	b.Add("keyspace_hits", s.Hits)
	b.Add("keyspace_misses", s.Misses)
	b.zeros(moreIdleStats)
	b.Add("total_error_replies", o.Stats.errors.total.Load())
	b.Add("dump_payload_sanitizations", 0)
	b.Add("total_reads_processed", f.Reads)
	b.Add("total_writes_processed", f.Writes)
	b.zeros(strings.Fields("io_threaded_reads_processed io_threaded_writes_processed reply_buffer_shrinks " +
		"reply_buffer_expands"))
	infoRounds(&o.Stats, r, b)
	b.Add("acl_access_denied_auth", o.Stats.denied[acl.DeniedAuth].Load())
	b.Add("acl_access_denied_cmd", o.Stats.denied[acl.DeniedCommand].Load())
	b.Add("acl_access_denied_key", o.Stats.denied[acl.DeniedKey].Load())
	b.Add("acl_access_denied_channel", 0)
	b.Add("operations_applied", s.Applied)
	b.Add("operations_duplicate", s.Duplicates)
	b.Add("operations_stale", s.Stale)
	b.Add("operations_refused", s.Refused)
}

// infoRounds reports on rounds of serving as Redis does on cycles of its event loop.
// A round's time is what executing it took, commit included; to read what clients
// send and to write the replies is not in it.
func infoRounds(s *Stats, r traffic, b *Lines) {
	rounds, took := s.Rounds()
	b.Add("eventloop_cycles", rounds)
	b.Add("eventloop_duration_sum", took.Microseconds())
	b.Add("eventloop_duration_cmd_sum", s.nanos()/1000)
	b.Add("instantaneous_eventloop_cycles_per_sec", int64(r.rounds))
	each := 0.0
	if r.rounds > 0 {
		each = r.roundNanos / r.rounds / 1000
	}
	b.Add("instantaneous_eventloop_duration_usec", int64(each))
}

// zeros appends fields that are always 0.
func (b *Lines) zeros(names []string) {
	for _, name := range names {
		if strings.HasSuffix(name, "_human") {
			b.Add(name, human(0))
		} else {
			b.Add(name, 0)
		}
	}
}

// infoCommandStats reports calls and time per command.
func infoCommandStats(v *View, b *Lines) {
	for _, f := range v.o.Stats.Figures(v.Commands) {
		usec := float64(f.Time) / 1000
		per := 0.0
		if f.Calls > 0 {
			per = usec / float64(f.Calls)
		}
		fmt.Fprintf(b, "cmdstat_%s:calls=%d,usec=%d,usec_per_call=%.2f,rejected_calls=%d,failed_calls=%d\r\n",
			f.Name, f.Calls, int64(usec), per, f.Rejected, f.Failed)
	}
}

// infoErrorStats reports error replies by their first word.
func infoErrorStats(v *View, b *Lines) {
	for _, e := range v.o.Stats.ErrorFigures() {
		b.Add("errorstat_"+e.Prefix, "count="+strconv.FormatUint(e.Count, 10))
	}
}

// infoLatencyStats reports percentiles of the latencies per command.
func infoLatencyStats(v *View, b *Lines) {
	for _, f := range v.o.Stats.Figures(v.Commands) {
		if f.Latency.Count == 0 {
			continue
		}
		var parts []string
		for _, p := range []float64{50, 99, 99.9} {
			parts = append(parts, fmt.Sprintf("p%s=%.3f", strconv.FormatFloat(p, 'g', -1, 64),
				float64(f.Latency.Percentile(p))/1000))
		}
		b.Add("latency_percentiles_usec_"+f.Name, strings.Join(parts, ","))
	}
}
