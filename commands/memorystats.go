package commands

// memoryStat is one figure of MEMORY STATS: an integer, a ratio, or what db.0
// consists of.
type memoryStat struct {
	name  string
	value any // int64, float64 or []memoryStat
}

// doMemoryStats is MEMORY STATS, with Redis' names where there is such a thing.
func doMemoryStats(c *Context) {
	v := newInfoView(c)
	c.writeStats(v.memoryStats())
}

// memoryStats are the figures of INFO memory as MEMORY STATS shows them.
func (v *infoView) memoryStats() []memoryStat {
	m, s := &v.memory, &v.store
	dataset := m.dataset(s)
	keys := max(s.Keys, 0)
	perKey := int64(0)
	if keys > 0 {
		perKey = int64(m.used-min(m.used, m.startup)) / keys
	}
	return []memoryStat{
		{"peak.allocated", int64(m.peak)},
		{"total.allocated", int64(m.used)},
		{"startup.allocated", int64(m.startup)},
		{"replication.backlog", int64(0)},
		{"clients.slaves", int64(0)},
		{"clients.normal", v.c.clientMemory()},
		{"cluster.links", int64(0)},
		{"aof.buffer", int64(s.Storage.MemTableSize)},
		{"filters", s.FilterBytes},
		{"recent.records", int64(s.RecentBytes)},
		{"block.cache", s.Storage.BlockCacheSize},
		{"db.0", []memoryStat{
			{"overhead.hashtable.main", int64(hotCounterBytes * s.HotCounters)},
			{"overhead.hashtable.expires", int64(0)},
			{"overhead.hashtable.slot-to-keys", int64(0)},
		}},
		{"overhead.total", int64(m.used - dataset)},
		{"keys.count", keys},
		{"keys.bytes-per-key", perKey},
		{"dataset.bytes", int64(dataset)},
		{"dataset.percentage", share(dataset, max(m.used-min(m.used, m.startup), dataset))},
		{"peak.percentage", share(m.used, m.peak)},
		{"allocator.allocated", int64(m.heap)},
		{"allocator.active", int64(m.active)},
		{"allocator.resident", int64(m.mapped)},
		{"allocator-fragmentation.ratio", share(m.active, m.heap) / 100},
		{"allocator-fragmentation.bytes", int64(m.active) - int64(m.heap)},
		{"allocator-rss.ratio", share(m.mapped, m.active) / 100},
		{"allocator-rss.bytes", int64(m.mapped) - int64(m.active)},
		{"rss-overhead.ratio", share(m.resident, m.mapped) / 100},
		{"rss-overhead.bytes", int64(m.resident) - int64(m.mapped)},
		{"fragmentation", share(m.resident, m.used) / 100},
		{"fragmentation.bytes", int64(m.resident) - int64(m.used)},
	}
}

// share is a part of a whole in percent; of nothing it is 0.
func share(part, whole uint64) float64 {
	if whole == 0 {
		return 0
	}
	return 100 * float64(part) / float64(whole)
}

// writeStats writes figures as a map.
func (c *Context) writeStats(list []memoryStat) {
	c.W.Map(len(list))
	for _, s := range list {
		c.W.BulkString(s.name)
		switch value := s.value.(type) {
		case int64:
			c.W.Int(value)
		case float64:
			c.W.Double(value)
		case []memoryStat:
			c.writeStats(value)
		}
	}
}

// memoryStatsCommand is the subcommand STATS of MEMORY.
var memoryStatsCommand = Command{
	Name: "stats", Arity: 2, Group: groupServer, Since: "4.0.0", Complexity: "O(1)",
	Tips:    []string{"nondeterministic_output", "request_policy:all_shards", "response_policy:special"},
	Summary: "Returns what the server's memory is used for.", Run: doMemoryStats,
}
