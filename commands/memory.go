package commands

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/fbfkv/fbfkv/store"
)

// samplesOption is SAMPLES, which is read and has no effect: an estimate here
// counts everything.
var samplesOption = []option[Request]{{token: "SAMPLES", class: 1, again: true, value: func(_ *Request, v []byte) error {
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

// advice is a sign of trouble with memory that MEMORY DOCTOR looks for.
type advice struct {
	found func(st *store.Stats, m *runtime.MemStats) bool
	text  string
}

// memoryAdvice is what MEMORY DOCTOR knows.
var memoryAdvice = []advice{
	{
		func(st *store.Stats, _ *runtime.MemStats) bool {
			return st.FilterLimit > 0 && st.FilterBytes > st.FilterLimit/10*9
		},
		"Filters use more than nine tenths of filter-maxmemory. At the limit APPROX tables refuse new operations and the " +
			"error of EXACT ones' filters rises: raise it, shorten a WINDOW, or allow a larger ERROR.",
	},
	{
		func(st *store.Stats, _ *runtime.MemStats) bool {
			return st.DirtyCounters > 100_000 && st.DirtyCounters > st.HotCounters/2
		},
		"More than half of the counters in memory wait to be written back. Shorten save's interval, or see whether the disk is slow.",
	},
	{
		func(_ *store.Stats, m *runtime.MemStats) bool {
			return m.HeapIdle-m.HeapReleased > m.HeapInuse && m.HeapIdle > 256<<20
		},
		"More memory is kept for reuse than is in use, perhaps after a peak. MEMORY PURGE gives it back to the operating system.",
	},
}

// doMemoryDoctor is MEMORY DOCTOR.
func doMemoryDoctor(c *Context) {
	st := c.Store.Stats()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	var found []string
	for i := range memoryAdvice {
		if a := &memoryAdvice[i]; a.found(&st, &m) {
			found = append(found, " * "+a.text)
		}
	}
	if len(found) == 0 {
		found = []string{"No memory issue was found in this instance."}
	}
	c.W.Verbatim("txt", strings.Join(found, "\n")+"\n")
}

// doMallocStats is MEMORY MALLOC-STATS: the figures of Go's allocator.
func doMallocStats(c *Context) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	var b strings.Builder
	for _, f := range []struct {
		name  string
		value uint64
	}{
		{"heap in use", m.HeapInuse}, {"heap allocated", m.HeapAlloc}, {"heap idle", m.HeapIdle},
		{"heap released", m.HeapReleased}, {"heap objects", m.HeapObjects}, {"stacks in use", m.StackInuse},
		{"from the system", m.Sys}, {"next collection at", m.NextGC}, {"collections", uint64(m.NumGC)},
	} {
		fmt.Fprintf(&b, "%s: %d\n", f.name, f.value)
	}
	c.W.Verbatim("txt", b.String())
}

// doMemoryPurge is MEMORY PURGE: what is free goes back to the operating system.
func doMemoryPurge(c *Context) {
	debug.FreeOSMemory()
	c.W.Status("OK")
}

var (
	reportTips = []string{"nondeterministic_output", "request_policy:all_shards", "response_policy:special"}
	purgeTips  = []string{"request_policy:all_shards", "response_policy:all_succeeded"}
)

// memoryCommands tell where memory is.
var memoryCommands = []Command{{
	Name: "memory", Arity: -2, Group: groupServer, Since: "4.0.0", Complexity: "Depends on subcommand.",
	Summary: "A container for commands on memory.",
	Subcommands: []Command{
		{
			Name: "usage", Arity: -3, Flags: ReadOnly, Keys: KeySpec{First: 2, Last: 2, Step: 1, Flags: keyLook}, Group: groupServer,
			Since: "4.0.0", Complexity: "O(1)",
			Summary: "Estimates the bytes that a key holds in memory. Operation ids belong to their table: see CTABLE INFO.",
			Args:    []Arg{keyArg(), opt(with("SAMPLES", intArg("count")))}, Parse: parseMemoryUsage, Reply: replyIntOrNull,
		},
		{
			Name: "doctor", Arity: 2, Group: groupServer, Since: "4.0.0", Complexity: "O(1)", Tips: reportTips,
			Summary: "Says what is wrong with the server's memory.", Run: doMemoryDoctor,
		},
		{
			Name: "malloc-stats", Arity: 2, Group: groupServer, Since: "4.0.0", Complexity: "O(1)", Tips: reportTips,
			Summary: "Returns the figures of the memory allocator.", Run: doMallocStats,
		},
		{
			Name: "purge", Arity: 2, Group: groupServer, Since: "4.0.0", Complexity: "O(N), where N is the memory in use", Tips: purgeTips,
			Summary: "Gives free memory back to the operating system.", Run: doMemoryPurge,
		},
		memoryStatsCommand,
		helpFor("memory", groupServer),
	},
}}
