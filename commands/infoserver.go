package commands

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// infoServer reports what runs, where and since when.
func infoServer(v *infoView, b *infoLines) {
	f := &v.server
	up := v.now.Sub(f.Started)
	if f.Started.IsZero() {
		up = 0
	}
	supervised := "no"
	if os.Getenv("NOTIFY_SOCKET") != "" {
		supervised = "systemd"
	}
	b.add("redis_version", CompatVersion)
	b.add("server_name", "fbfkv")
	b.add("fbfkv_version", v.c.Server.Version)
	b.add("redis_mode", "standalone")
	b.add("os", systemName())
	b.add("arch_bits", 64)
	b.add("multiplexing_api", f.Polling)
	b.add("go_version", runtime.Version())
	b.add("process_id", os.Getpid())
	b.add("process_supervised", supervised)
	b.add("run_id", f.RunID)
	b.add("tcp_port", f.Port)
	b.add("tls_port", f.TLSPort)
	b.add("server_time_usec", v.now.UnixMicro())
	b.add("uptime_in_seconds", int64(up/time.Second))
	b.add("uptime_in_days", int64(up/(24*time.Hour)))
	b.add("hz", 1)
	b.add("configured_hz", 1)
	b.add("lru_clock", v.now.Unix()&(1<<24-1))
	b.add("executable", f.Executable)
	b.add("config_file", f.ConfigFile)
	b.add("io_threads_active", 0)
	for i, l := range f.Listeners {
		b.add("listener"+strconv.Itoa(i), l)
	}
}

// infoClients reports on connections.
func infoClients(v *infoView, b *infoLines) {
	in, out := int64(0), int64(0)
	for _, s := range v.c.sessions() {
		in, out = max(in, s.QueryBuffer.Load()), max(out, s.OutputBuffer.Load())
	}
	b.add("connected_clients", v.server.ConnectedClients)
	b.add("cluster_connections", 0)
	b.add("maxclients", v.server.MaxClients)
	b.add("client_recent_max_input_buffer", in)
	b.add("client_recent_max_output_buffer", out)
	b.add("blocked_clients", v.server.BlockedClients)
	b.add("tracking_clients", 0)
	b.zeros(strings.Fields("clients_in_timeout_table total_blocking_keys total_blocking_keys_on_nokey"))
}

// scriptMemory are the fields about scripts and functions, of which there are none.
var scriptMemory = strings.Fields(`used_memory_lua used_memory_vm_eval used_memory_lua_human used_memory_scripts_eval
	number_of_cached_scripts number_of_functions number_of_libraries used_memory_vm_functions used_memory_vm_total
	used_memory_vm_total_human used_memory_functions used_memory_scripts used_memory_scripts_human`)

// infoMemory reports on memory. used_memory is what the Go heap and the storage
// engine hold, the closest to what Redis' allocator counts.
func infoMemory(v *infoView, b *infoLines) {
	m := &v.memory
	dataset := m.dataset(&v.store)
	b.bytes("used_memory", m.used)
	b.bytes("used_memory_rss", m.resident)
	b.bytes("used_memory_peak", m.peak)
	b.add("used_memory_peak_perc", percent(m.used, m.peak))
	b.add("used_memory_overhead", m.used-dataset)
	b.add("used_memory_startup", m.startup)
	b.add("used_memory_dataset", dataset)
	b.add("used_memory_dataset_perc", percent(dataset, max(m.used-min(m.used, m.startup), dataset)))
	b.add("used_memory_filters", v.store.FilterBytes)
	b.add("used_memory_recent_records", v.store.RecentBytes)
	b.add("used_memory_block_cache", v.store.Storage.BlockCacheSize)
	b.add("hot_counters", v.store.HotCounters)
	b.add("used_memory_row_filters", v.store.RowFilterBytes)
	b.add("allocator_allocated", m.heap)
	b.add("allocator_active", m.active)
	b.add("allocator_resident", m.mapped)
	b.bytes("total_system_memory", totalMemory())
	b.zeros(scriptMemory)
	b.bytes("maxmemory", 0)
	b.add("maxmemory_policy", "noeviction")
	b.add("filter_maxmemory", v.store.FilterLimit)
	b.ratio("allocator_frag", m.active, m.heap)
	b.ratio("allocator_rss", m.mapped, m.active)
	b.ratio("rss_overhead", m.resident, m.mapped)
	b.add("mem_fragmentation_ratio", quotient(m.resident, m.used))
	b.add("mem_fragmentation_bytes", int64(m.resident)-int64(m.used))
	b.add("mem_not_counted_for_evict", 0)
	b.add("mem_replication_backlog", 0)
	b.add("mem_total_replication_buffers", 0)
	b.add("mem_clients_slaves", 0)
	b.add("mem_clients_normal", v.c.clientMemory())
	b.add("mem_cluster_links", 0)
	b.add("mem_aof_buffer", v.store.Storage.MemTableSize)
	b.add("mem_allocator", "go-"+runtime.Version()[2:])
	b.add("active_defrag_running", 0)
	b.add("lazyfree_pending_objects", 0)
	b.add("lazyfreed_objects", 0)
}

// clientMemory is what the buffers of all connections hold.
func (c *Context) clientMemory() (bytes int64) {
	for _, s := range c.sessions() {
		bytes += s.QueryBuffer.Load() + s.OutputBuffer.Load()
	}
	return bytes
}

// bytes appends a number of bytes, and once more for people.
func (b *infoLines) bytes(name string, n uint64) {
	b.add(name, n)
	b.add(name+"_human", human(n))
}

// ratio appends how much larger a is than b, and by how much.
func (b *infoLines) ratio(name string, larger, smaller uint64) {
	b.add(name+"_ratio", quotient(larger, smaller))
	b.add(name+"_bytes", int64(larger)-int64(smaller))
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
