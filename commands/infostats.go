package commands

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fbfkv/fbfkv/commands/acl"
)

// infoPersistence reports on the log and the snapshots, and on what the last
// start recovered. Redis' rdb is our snapshot, its aof our log of operations,
// which is trimmed at checkpoints and never rewritten.
func infoPersistence(v *infoView, b *infoLines) {
	at, took, err := v.c.Store.LastSnapshot()
	saved, seconds := v.server.Started.Unix(), int64(-1)
	if !at.IsZero() {
		saved, seconds = at.Unix(), int64(took/time.Second)
	}
	g := &v.c.Server.gauges
	saving, current := v.c.Store.Saving(), int64(-1)
	if saving {
		current = int64(v.now.Sub(at) / time.Second)
	}
	for _, name := range []string{"loading", "async_loading", "current_cow_peak", "current_cow_size", "current_cow_size_age"} {
		b.add(name, 0)
	}
	b.add("current_fork_perc", "0.00")
	b.add("current_save_keys_processed", 0)
	b.add("current_save_keys_total", 0)
	b.add("rdb_changes_since_last_save", v.store.Changes)
	b.add("rdb_bgsave_in_progress", bit(saving))
	b.add("rdb_last_save_time", max(saved, 0))
	b.add("rdb_last_bgsave_status", status(err))
	b.add("rdb_last_bgsave_time_sec", seconds)
	b.add("rdb_current_bgsave_time_sec", current)
	b.add("rdb_saves", g.snapshots.Load())
	b.add("rdb_last_cow_size", 0)
	b.add("rdb_last_load_keys_expired", 0)
	b.add("rdb_last_load_keys_loaded", v.store.Recovery.Keys)
	b.add("aof_enabled", 1)
	b.add("aof_rewrite_in_progress", 0)
	b.add("aof_rewrite_scheduled", 0)
	b.add("aof_last_rewrite_time_sec", -1)
	b.add("aof_current_rewrite_time_sec", -1)
	b.add("aof_last_bgrewrite_status", "ok")
	b.add("aof_rewrites", 0)
	b.add("aof_rewrites_consecutive_failures", 0)
	b.add("aof_last_write_status", status(v.store.Failure))
	b.add("aof_last_cow_size", 0)
	b.add("module_fork_in_progress", 0)
	b.add("module_fork_last_cow_size", 0)
	b.add("aof_current_size", v.store.Storage.LogSize)
	b.add("aof_base_size", 0)
	b.add("aof_pending_rewrite", 0)
	b.add("aof_buffer_length", 0)
	b.add("aof_pending_bio_fsync", 0)
	b.add("aof_delayed_fsync", 0)
	infoStorage(v, b)
}

// infoStorage reports what Redis has no name for.
func infoStorage(v *infoView, b *infoLines) {
	b.add("appendfsync", v.store.Fsync)
	b.add("oplog_bytes_since_snapshot", v.store.LogBytes)
	b.add("disk_bytes", v.store.Storage.DiskSize)
	b.add("disk_full", bit(v.store.DiskFull))
	b.add("disk_free_bytes", v.store.DiskFree)
	b.add("disk_min_free_bytes", v.store.MinFreeDisk)
	b.add("oplog_fsyncs", v.store.Storage.Fsyncs.Count)
	b.add("oplog_fsync_usec", v.store.Storage.Fsyncs.Sum.Microseconds())
	infoBackup(v, b)
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

// idleStats are fields of Redis' statistics whose features do not exist here.
var idleStats = strings.Fields(`expire_cycle_cpu_milliseconds evicted_keys evicted_clients
	total_eviction_exceeded_time current_eviction_exceeded_time`)

// moreIdleStats follow the hits and misses.
var moreIdleStats = strings.Fields(`pubsub_channels pubsub_patterns pubsubshard_channels latest_fork_usec total_forks
	migrate_cached_sockets slave_expires_tracked_keys active_defrag_hits active_defrag_misses active_defrag_key_hits
	active_defrag_key_misses total_active_defrag_time current_active_defrag_time tracking_total_keys
	tracking_total_items tracking_total_prefixes unexpected_error_replies`)

// infoStats reports totals since the start or CONFIG RESETSTAT.
func infoStats(v *infoView, b *infoLines) {
	f, srv := &v.server, v.c.Server
	s := srv.gauges.since(&v.store)
	r := srv.gauges.rates(v.now, srv.stats.total())
	b.add("total_connections_received", f.TotalConnections)
	b.add("total_commands_processed", srv.stats.total())
	b.add("instantaneous_ops_per_sec", int64(r.commands))
	b.add("total_net_input_bytes", f.NetInputBytes)
	b.add("total_net_output_bytes", f.NetOutputBytes)
	b.add("total_net_repl_input_bytes", 0)
	b.add("total_net_repl_output_bytes", 0)
	b.add("instantaneous_input_kbps", fmt.Sprintf("%.2f", r.in/1024))
	b.add("instantaneous_output_kbps", fmt.Sprintf("%.2f", r.out/1024))
	b.add("instantaneous_input_repl_kbps", "0.00")
	b.add("instantaneous_output_repl_kbps", "0.00")
	b.add("rejected_connections", f.RejectedConnections)
	b.add("sync_full", 0)
	b.add("sync_partial_ok", 0)
	b.add("sync_partial_err", 0)
	b.add("expired_keys", s.Expired)
	b.add("expired_stale_perc", "0.00")
	b.add("expired_time_cap_reached_count", 0)
	b.zeros(idleStats)
	b.add("keyspace_hits", s.Hits)
	b.add("keyspace_misses", s.Misses)
	b.zeros(moreIdleStats)
	b.add("total_error_replies", srv.stats.errors.total.Load())
	b.add("dump_payload_sanitizations", 0)
	b.add("total_reads_processed", f.Reads)
	b.add("total_writes_processed", f.Writes)
	b.zeros(strings.Fields("io_threaded_reads_processed io_threaded_writes_processed reply_buffer_shrinks reply_buffer_expands"))
	infoRounds(&srv.stats, r, b)
	b.add("acl_access_denied_auth", srv.stats.denied[acl.DeniedAuth].Load())
	b.add("acl_access_denied_cmd", srv.stats.denied[acl.DeniedCommand].Load())
	b.add("acl_access_denied_key", srv.stats.denied[acl.DeniedKey].Load())
	b.add("acl_access_denied_channel", 0)
	b.add("operations_applied", s.Applied)
	b.add("operations_duplicate", s.Duplicates)
	b.add("operations_stale", s.Stale)
	b.add("operations_refused", s.Refused)
}

// infoRounds reports on rounds of serving as Redis does on cycles of its event loop.
// A round's time is what executing it took, commit included; to read what clients
// send and to write the replies is not in it.
func infoRounds(s *commandStats, r traffic, b *infoLines) {
	b.add("eventloop_cycles", s.rounds.Load())
	b.add("eventloop_duration_sum", s.roundNanos.Load()/1000)
	b.add("eventloop_duration_cmd_sum", s.nanos()/1000)
	b.add("instantaneous_eventloop_cycles_per_sec", int64(r.rounds))
	each := 0.0
	if r.rounds > 0 {
		each = r.roundNanos / r.rounds / 1000
	}
	b.add("instantaneous_eventloop_duration_usec", int64(each))
}

// zeros appends fields that are always 0.
func (b *infoLines) zeros(names []string) {
	for _, name := range names {
		if strings.HasSuffix(name, "_human") {
			b.add(name, human(0))
		} else {
			b.add(name, 0)
		}
	}
}

// infoCommandStats reports calls and time per command.
func infoCommandStats(v *infoView, b *infoLines) {
	for _, f := range v.c.Server.stats.figures(v.c.table) {
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
func infoErrorStats(v *infoView, b *infoLines) {
	for _, e := range v.c.Server.ErrorFigures() {
		b.add("errorstat_"+e.Prefix, "count="+strconv.FormatUint(e.Count, 10))
	}
}

// infoLatencyStats reports percentiles of the latencies per command.
func infoLatencyStats(v *infoView, b *infoLines) {
	for _, f := range v.c.Server.stats.figures(v.c.table) {
		if f.Latency.Count == 0 {
			continue
		}
		var parts []string
		for _, p := range []float64{50, 99, 99.9} {
			parts = append(parts, fmt.Sprintf("p%s=%.3f", strconv.FormatFloat(p, 'g', -1, 64), float64(f.Latency.Percentile(p))/1000))
		}
		b.add("latency_percentiles_usec_"+f.Name, strings.Join(parts, ","))
	}
}
