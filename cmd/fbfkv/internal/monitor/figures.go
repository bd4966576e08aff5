package monitor

import (
	"math"
	"time"

	"github.com/fbfkv/fbfkv/commands"
	"github.com/fbfkv/fbfkv/commands/observe"
	"github.com/fbfkv/fbfkv/store"
)

// serverFigures are the server's own.
var serverFigures = []figure[observe.ServerFigures]{
	gauge("connected_clients", "Clients that are connected.",
		func(f *observe.ServerFigures) float64 { return float64(f.ConnectedClients) }),
	gauge("max_clients", "How many clients may be connected (maxclients).",
		func(f *observe.ServerFigures) float64 { return float64(f.MaxClients) }),
	counter("connections_total", "Clients that were accepted.",
		func(f *observe.ServerFigures) float64 { return float64(f.TotalConnections) }),
	counter("connections_rejected_total", "Refused clients: too many, or strangers in protected mode.",
		func(f *observe.ServerFigures) float64 { return float64(f.RejectedConnections) }),
	gauge("clients_memory_bytes", "Memory that clients hold: buffers, and commands queued by MULTI.",
		func(f *observe.ServerFigures) float64 { return float64(f.ClientMemory) }),
	counter("clients_evicted_total", "Clients that were disconnected because all clients together held "+
		"more than maxmemory-clients.",
		func(f *observe.ServerFigures) float64 { return float64(f.EvictedClients) }),
	counter("network_receive_bytes_total", "Bytes that clients have sent.",
		func(f *observe.ServerFigures) float64 { return float64(f.NetInputBytes) }),
	counter("network_transmit_bytes_total", "Bytes that were sent to clients.",
		func(f *observe.ServerFigures) float64 { return float64(f.NetOutputBytes) }),
	gauge("start_timestamp_seconds", "When the server started.",
		func(f *observe.ServerFigures) float64 { return seconds(f.Started) }),
}

// commandFigures are the figures of one command. There is a series for each command
// that was called at least once.
var commandFigures = []figure[observe.CommandFigures]{
	counter("commands_total", "Calls of a command that were carried out.",
		func(f *observe.CommandFigures) float64 { return float64(f.Calls) }, "command"),
	counter("commands_failed_total", "Calls of a command that were answered with an error.",
		func(f *observe.CommandFigures) float64 { return float64(f.Failed) }, "command"),
	counter("commands_rejected_total", "Calls of a command that were refused before its arguments were read.",
		func(f *observe.CommandFigures) float64 { return float64(f.Rejected) }, "command"),
	counter("commands_busy_seconds_total", "Time that calls of a command took. The calls of one batch "+
		"have equal shares of its time.",
		func(f *observe.CommandFigures) float64 { return f.Time.Seconds() }, "command"),
}

// storeFigures are the figures of the whole store and of Pebble below it.
var storeFigures = []figure[store.Stats]{
	gauge("keys", "Keys, as DBSIZE counts them.", func(s *store.Stats) float64 { return float64(s.Keys) }),
	counter("key_hits_total", "Keys that queries have found.", func(s *store.Stats) float64 {
		return float64(s.Hits)
	}),
	counter("key_misses_total", "Keys that queries have not found.", func(s *store.Stats) float64 {
		return float64(s.Misses)
	}),
	counter("keys_expired_total", "Expired keys that were removed.",
		func(s *store.Stats) float64 { return float64(s.Expired) }),
	gauge("frozen", "Whether a commit has failed: writes are refused until a restart.",
		func(s *store.Stats) float64 { return bool01(s.Failure != nil) }),
	gauge("disk_full", "Whether writes are refused because the disk is full, or there is less free space "+
		"than min-free-disk.",
		func(s *store.Stats) float64 { return bool01(s.DiskFull) }),
	counter("disk_hangs_total", "Writes and fsyncs of the op log, or of the node's own values, that took "+
		"two seconds or longer; in a cluster twice cluster-node-timeout if that is shorter.",
		func(s *store.Stats) float64 { return float64(s.Storage.Hangs.Count) }),
	gauge("disk_hangs_seconds", "How long the present write or fsync of this kind has taken; 0 if there "+
		"is none.",
		func(s *store.Stats) float64 { return s.Storage.Hangs.Age.Seconds() }),
	gauge("disk_free_bytes", "Bytes that the server may still write to the disk of the data directory.",
		func(s *store.Stats) float64 { return float64(s.DiskFree) }),
	gauge("disk_min_free_bytes", "The server refuses writes below this many free bytes (min-free-disk).",
		func(s *store.Stats) float64 { return float64(s.MinFreeDisk) }),
	gauge("backup_last_success_timestamp_seconds", "When the last good backup was made, by BACKUP to a "+
		"directory or as a stream that fbfkv verify has tested; 0 if never.",
		func(s *store.Stats) float64 { return seconds(s.LastBackup) }),
	gauge("hot_counters", "Counters kept in memory.", func(s *store.Stats) float64 {
		return float64(s.HotCounters)
	}),
	gauge("loading_hot_counters", "Counters still to be read into memory after a start.",
		func(s *store.Stats) float64 { return float64(s.ColdCounters) }),
	gauge("dirty_counters", "Counters in memory that changed since their row was written; the log has them.",
		func(s *store.Stats) float64 { return float64(s.DirtyCounters) }),
	gauge("row_filter_bytes", "Memory of the filter that knows which counters have a row on disk.",
		func(s *store.Stats) float64 { return float64(s.RowFilterBytes) }),
	gauge("filter_memory_bytes", "Memory of all filters.", func(s *store.Stats) float64 {
		return float64(s.FilterBytes)
	}),
	gauge("filter_memory_limit_bytes", "Memory that all filters may use together (filter-maxmemory); 0: "+
		"no limit.",
		func(s *store.Stats) float64 { return float64(s.FilterLimit) }),
	gauge("filter_keys", "Filters that are keys (FBF.*).", func(s *store.Stats) float64 {
		return float64(s.Objects[store.TypeFilter])
	}),
	gauge("unreadable_keys", "Filters and sketches that cannot be read: commands on these keys are errors "+
		"until DEL.",
		func(s *store.Stats) float64 { return float64(s.Unreadable) }),
	gauge("recent_records", "Records of EXACT tables that are not in a run yet.",
		func(s *store.Stats) float64 { return float64(s.RecentRecords) }),
	gauge("recent_record_bytes", "Memory of these records.", func(s *store.Stats) float64 {
		return float64(s.RecentBytes)
	}),
	gauge("open_holds", "Holds that are open.", func(s *store.Stats) float64 { return float64(s.Holds) }),
	gauge("open_hold_bytes", "Memory of these holds.", func(s *store.Stats) float64 {
		return float64(s.HoldBytes)
	}),
	gauge("oldest_hold_seconds", "For how long the oldest of these holds has been open.",
		func(s *store.Stats) float64 { return s.HoldAge().Seconds() }),
	gauge("runs", "Sorted runs of records on disk.", func(s *store.Stats) float64 { return float64(s.Runs) }),
	gauge("run_bytes", "Size of these runs.", func(s *store.Stats) float64 { return float64(s.RunBytes) }),
	gauge("run_records", "Records in these runs.", func(s *store.Stats) float64 {
		return float64(s.RunRecords)
	}),
	gauge("oplog_bytes", "Op log since the last checkpoints, which a restart would redo.",
		func(s *store.Stats) float64 { return float64(s.LogBytes) }),
	counter("oplog_entries_total", "Outcomes logged since the data directory was made.",
		func(s *store.Stats) float64 { return float64(s.Entries) }),
	gauge("recovery_duration_seconds", "How long the last start took to recover.",
		func(s *store.Stats) float64 { return s.Recovery.Took.Seconds() }),
	gauge("recovery_redone_entries", "Outcomes that the last start redid from the log.",
		func(s *store.Stats) float64 { return float64(s.Recovery.Entries) }),
	gauge("recovery_problems", "Damages that the last start found and recovered from.",
		func(s *store.Stats) float64 { return float64(len(s.Recovery.Problems)) }),

	gauge("oplog_files", "Files of the op log.", func(s *store.Stats) float64 {
		return float64(s.Storage.LogFiles)
	}),
	gauge("oplog_file_bytes", "Size of these files.", func(s *store.Stats) float64 {
		return float64(s.Storage.LogSize)
	}),
	counter("oplog_written_bytes_total", "Bytes appended to the op log.",
		func(s *store.Stats) float64 { return float64(s.Storage.LogWritten) }),
	gauge("pebble_sstables", "Live sorted tables.", func(s *store.Stats) float64 {
		return float64(s.Storage.TableFiles)
	}),
	gauge("pebble_sstable_bytes", "Size of these tables.", func(s *store.Stats) float64 {
		return float64(s.Storage.TableSize)
	}),
	gauge("disk_bytes", "Disk space that everything in the data directory occupies, as du counts it.",
		func(s *store.Stats) float64 {
			return float64(s.Storage.DiskSize)
		}),
	gauge("pebble_memtable_bytes", "Memory of the memtables.", func(s *store.Stats) float64 {
		return float64(s.Storage.MemTableSize)
	}),
	counter("pebble_flushes_total", "Memtables written to disk.", func(s *store.Stats) float64 {
		return float64(s.Storage.Flushes)
	}),
	counter("pebble_compactions_total", "Compactions that have finished.",
		func(s *store.Stats) float64 { return float64(s.Storage.Compactions) }),
	gauge("pebble_compaction_debt_bytes", "Estimated volume that compactions are behind.",
		func(s *store.Stats) float64 { return float64(s.Storage.Debt) }),
	gauge("pebble_read_amplification", "How many sorted tables a look-up may have to ask.",
		func(s *store.Stats) float64 { return float64(s.Storage.ReadAmplification) }),
	gauge("pebble_block_cache_bytes", "Memory of the block cache.",
		func(s *store.Stats) float64 { return float64(s.Storage.BlockCacheSize) }),
	counter("pebble_block_cache_hits_total", "Blocks found in the cache.",
		func(s *store.Stats) float64 { return float64(s.Storage.BlockCacheHits) }),
	counter("pebble_block_cache_misses_total", "Blocks read from disk.",
		func(s *store.Stats) float64 { return float64(s.Storage.BlockCacheMisses) }),
}

// clusterFigures are the figures of a node of a cluster as a whole.
var clusterFigures = []figure[commands.ShardFigures]{
	gauge("cluster_meta_has_leader", "Whether the meta group has a leader, as far as this node knows. "+
		"Without one the configuration cannot be changed.",
		func(f *commands.ShardFigures) float64 { return bool01(f.MetaLed) }),
}

// ledFigures are the figures of each shard of the cluster, also of shards without this node.
var ledFigures = []figure[bool]{
	gauge("shard_has_leader", "Whether a shard has a leader, as far as this node knows.",
		func(led *bool) float64 { return bool01(*led) }, "shard"),
}

// shardFigures are the figures of a node of a cluster in its shard.
var shardFigures = []figure[commands.ShardFigures]{
	gauge("shard_leads", "Whether this node leads its shard.",
		func(f *commands.ShardFigures) float64 { return bool01(f.Leads) }, "shard"),
	gauge("shard_term", "The shard's term: it grows with each election.",
		func(f *commands.ShardFigures) float64 { return float64(f.Term) }, "shard"),
	counter("shard_leader_changes_total", "How often a leader has begun since this node's start.",
		func(f *commands.ShardFigures) float64 { return float64(f.LeaderChanges) }, "shard"),
	counter("shard_takeovers_total", "How often this node became the leader.",
		func(f *commands.ShardFigures) float64 { return float64(f.Takeovers) }, "shard"),
	gauge("shard_takeover_last_duration_seconds", "How long the shard had no leader before this node last "+
		"became it: writes waited so long.",
		func(f *commands.ShardFigures) float64 { return f.LastTakeover.Seconds() }, "shard"),
	gauge("shard_log_index", "The last entry of the shard's log that is on this node's disk.",
		func(f *commands.ShardFigures) float64 { return float64(f.LastIndex) }, "shard"),
	gauge("shard_commit_index", "The last entry that is known here to be on a majority of disks.",
		func(f *commands.ShardFigures) float64 { return float64(f.Committed) }, "shard"),
	gauge("shard_applied_index", "The last entry in this node's state.",
		func(f *commands.ShardFigures) float64 { return float64(f.Applied) }, "shard"),
	counter("shard_rebuilds_total", "How often this node rebuilt state, because its decisions were not "+
		"committed.",
		func(f *commands.ShardFigures) float64 { return float64(f.Rebuilds) }, "shard"),
	counter("shard_fenced_entries_total", "Ignored entries: a former leader had decided them.",
		func(f *commands.ShardFigures) float64 { return float64(f.Fenced) }, "shard"),
	gauge("shard_clock_skew_seconds", "How far this node's clock was ahead of another leader's when that "+
		"leader began.",
		func(f *commands.ShardFigures) float64 { return f.Skew.Seconds() }, "shard"),
	gauge("shard_fetching", "Whether this node is behind the log and fetches the leader's files.",
		func(f *commands.ShardFigures) float64 { return bool01(f.Fetching) }, "shard"),
}

// transferFigures are the figures of transfers of files, in one direction.
var transferFigures = []figure[commands.Transfers]{
	counter("shard_file_transfers_total", "Transfers of files to (given) or from (fetched) another node "+
		"that were completed.",
		func(f *commands.Transfers) float64 { return float64(f.Finished) }, "shard", "direction"),
	counter("shard_file_transfers_failed_total", "Transfers that were given up.",
		func(f *commands.Transfers) float64 { return float64(f.Failed) }, "shard", "direction"),
	counter("shard_file_transfer_bytes_total", "Bytes of transfers.",
		func(f *commands.Transfers) float64 { return float64(f.Bytes) }, "shard", "direction"),
}

// replicaFigures are the figures of another node of the shard. Only the leader shows them.
var replicaFigures = []figure[commands.ReplicaFigures]{
	gauge("shard_replica_lag_entries", "Committed entries that a replica does not have on disk.",
		func(f *commands.ReplicaFigures) float64 { return float64(f.LagEntries) }, "shard", "node"),
	gauge("shard_replica_lag_seconds", "For how long a replica has lacked such entries.",
		func(f *commands.ReplicaFigures) float64 { return f.Lag.Seconds() }, "shard", "node"),
	gauge("shard_replica_silence_seconds", "How long ago a replica answered last; +Inf: not since this "+
		"node leads.",
		func(f *commands.ReplicaFigures) float64 {
			if f.LastContact < 0 {
				return math.Inf(1)
			}
			return f.LastContact.Seconds()
		}, "shard", "node"),
}

// snapshots is what is known of checkpoints and filter snapshots.
type snapshots struct {
	running bool
	at      time.Time
	took    time.Duration
	err     error
}

// snapshotFigures are the figures of the last snapshot.
var snapshotFigures = []figure[snapshots]{
	gauge("snapshot_in_progress", "Whether a snapshot is being written.", func(s *snapshots) float64 {
		return bool01(s.running)
	}),
	gauge("snapshot_last_timestamp_seconds", "When the last snapshot was finished; 0 if there was none "+
		"since the start.",
		func(s *snapshots) float64 { return seconds(s.at) }),
	gauge("snapshot_last_duration_seconds", "How long it took.", func(s *snapshots) float64 {
		return s.took.Seconds()
	}),
	gauge("snapshot_last_failed", "Whether it failed.", func(s *snapshots) float64 {
		return bool01(s.err != nil)
	}),
}

// seconds is a time as Prometheus has it; 0 for none.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}
