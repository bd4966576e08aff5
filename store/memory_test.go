package store

import (
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

var memoryIDs = flag.Int("memory.ids", 0, "ids that TestMemoryPerID remembers; 0 skips it")

// TestMemoryPerID measures what a remembered id costs in steady state: growth
// of the resident set, Pebble's caches aside, and disk, after three windows of
// an even load. It needs the flag -memory.ids.
func TestMemoryPerID(t *testing.T) {
	if *memoryIDs == 0 {
		t.Skip("measures only with -memory.ids=10000000")
	}
	for mode, name := range map[Mode]string{Exact: "EXACT", Approx: "APPROX"} {
		clock := newFakeClock()
		s := testStore(t, func(o *Options) {
			o.FS, o.Dir, o.Fsync, o.Partitions, o.Clock = vfs.Default, t.TempDir(), Everysec, 16, clock.now
			o.SnapshotInterval = 10 * time.Second
		})
		must(t, s.AlterTable(DefaultTable, TableChange{Mode: &mode}))
		fill(s, clock, 10_000, 1)
		before := residentBytes(t)
		fill(s, clock, *memoryIDs, 3)
		must(t, s.Snapshot())
		info, err := s.TableInfo(DefaultTable)
		must(t, err)
		after, st := residentBytes(t), s.Stats()
		after -= int64(st.Storage.MemTableSize) + st.Storage.BlockCacheSize
		n := float64(info.Filter.Items)
		t.Logf("%s, %.0f ids remembered: %.1f bytes of memory an id, of these %.1f filters and %.1f "+
			"records; %.1f bytes of records on disk an id",
			name, n, float64(after-before)/n, float64(st.FilterBytes)/n, float64(st.RecentBytes)/n,
			float64(st.RunBytes)/n)
		must(t, s.CloseNow())
	}
}

// fill applies perWindow operations with new 36-byte ids on 10,000 counters in
// each of some windows of logged time.
func fill(s *Store, clock *fakeClock, perWindow, windows int) {
	const pipeline = 64
	var b Batch
	window := 125 * time.Second // default WINDOW and SKEW
	for i := 0; i < perWindow*windows; {
		b.Reset()
		for range pipeline {
			op := b.Add(CIncrBy)
			op.Key, op.Delta = []byte("counter:"+strconv.Itoa(i%10_000)), 1
			op.ID = fmt.Appendf(nil, "%036x", uint64(i)+uint64(perWindow)<<32)
			i++
		}
		before := int64(i-pipeline) * window.Milliseconds() / int64(perWindow)
		now := int64(i) * window.Milliseconds() / int64(perWindow)
		clock.advance(time.Duration(now-before) * time.Millisecond)
		s.Execute(&b)
	}
}

// residentBytes is the anonymous resident memory of the process after the
// garbage collector gave back what it could.
func residentBytes(t *testing.T) int64 {
	t.Helper()
	debug.FreeOSMemory()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip(err)
	}
	for _, line := range strings.Split(string(b), "\n") {
		if v, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64)
			must(t, err)
			return kb << 10
		}
	}
	t.Skip("no RssAnon")
	return 0
}
