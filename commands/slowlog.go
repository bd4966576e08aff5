package commands

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// How much of a command the slow log keeps, as Redis does.
const (
	maxSlowArgs   = 32
	maxSlowLength = 128 // bytes of an argument
)

// slowlog keeps the last slow batches. A pipeline, or several that arrive at the
// same time, is executed and committed as one batch; which of its commands took
// how long cannot be told apart. So there is one entry for a slow batch: its
// duration, the first of its commands with its client, and how many followed,
// of other clients too.
type slowlog struct {
	mu      sync.Mutex
	entries []slowEntry // oldest first
	next    int64
}

// slowEntry is one entry of the slow log.
type slowEntry struct {
	id   int64
	at   time.Time
	took time.Duration
	args []string
	addr string
	name string
}

// add puts a batch on the log, which keeps limit entries.
func (l *slowlog) add(b slowBatch, limit int) {
	e := slowEntry{at: b.start, took: b.took, args: b.abridged(), addr: b.ses.Addr, name: b.ses.Name()}
	l.mu.Lock()
	defer l.mu.Unlock()
	e.id = l.next
	l.next++
	l.entries = append(l.entries, e)
	l.trim(limit)
}

// shorten drops what is more than limit entries.
func (l *slowlog) shorten(limit int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trim(limit)
}

// trim drops the oldest entries beyond limit; l.mu is held.
func (l *slowlog) trim(limit int) {
	if extra := len(l.entries) - limit; extra > 0 {
		l.entries = slices.Delete(l.entries, 0, extra)
	}
}

// latest returns up to n entries, newest first; n < 0: all.
func (l *slowlog) latest(n int64) []slowEntry {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.entries
	if n >= 0 && n < int64(len(list)) {
		list = list[int64(len(list))-n:]
	}
	list = slices.Clone(list)
	slices.Reverse(list)
	return list
}

// abridged returns a batch's first command as the log keeps it, and counts what
// followed.
func (b *slowBatch) abridged() []string {
	list := abridged(b.args)
	if b.more > 0 {
		list = append(list, fmt.Sprintf("... (%d more commands of the same batch)", b.more))
	}
	return list
}

// abridged returns arguments as logs keep them: long ones and many are cut.
func abridged(args [][]byte) []string {
	kept, cut := args, 0
	if len(args) > maxSlowArgs {
		kept = args[:maxSlowArgs-1]
		cut = len(args) - len(kept)
	}
	list := make([]string, 0, len(kept)+2)
	for _, a := range kept {
		if len(a) > maxSlowLength {
			list = append(list, fmt.Sprintf("%s... (%d more bytes)", a[:maxSlowLength], len(a)-maxSlowLength))
		} else {
			list = append(list, string(a))
		}
	}
	if cut > 0 {
		list = append(list, fmt.Sprintf("... (%d more arguments)", cut))
	}
	return list
}

// slowlogGet is SLOWLOG GET [count].
func slowlogGet(c *Context) {
	n := int64(10)
	if len(c.Args) > 3 {
		c.fail(refusal("ERR unknown subcommand or wrong number of arguments for '" + string(c.Args[1]) + "'. Try SLOWLOG HELP."))
		return
	}
	if len(c.Args) == 3 {
		var ok bool
		if n, ok = parseInt(c.Args[2]); !ok || n < -1 {
			c.fail(refusal("ERR count should be greater than or equal to -1"))
			return
		}
	}
	list := c.Server.observer.slowlog.latest(n)
	c.W.Array(len(list))
	for i := range list {
		e := &list[i]
		c.W.Array(6)
		c.W.Int(e.id)
		c.W.Int(e.at.Unix())
		c.W.Int(e.took.Microseconds())
		c.W.BulkStrings(e.args)
		c.W.BulkString(e.addr)
		c.W.BulkString(e.name)
	}
}

// slowlogFlags are the flags of SLOWLOG's subcommands.
const slowlogFlags = Admin | Loading | Stale

// slowlogCommands are SLOWLOG and its subcommands.
var slowlogCommands = []Command{{
	Name: "slowlog", Arity: -2, Group: groupServer, Since: "2.2.12", Complexity: "Depends on subcommand.",
	Summary: "A container for commands on the log of slow batches.",
	Subcommands: []Command{
		{
			Name: "get", Arity: -2, Flags: slowlogFlags, Group: groupServer, Since: "2.2.12",
			Complexity: "O(N), where N is the number of entries returned",
			Tips:       []string{"request_policy:all_nodes", "nondeterministic_output"},
			Summary:    "Returns the newest entries: id, Unix time, microseconds, the first command of the batch, client and its name.",
			Args:       []Arg{opt(intArg("count"))}, Run: slowlogGet,
		},
		{
			Name: "len", Arity: 2, Flags: slowlogFlags, Group: groupServer, Since: "2.2.12", Complexity: "O(1)",
			Tips:    []string{"request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"},
			Summary: "Returns the number of entries.",
			Run:     func(c *Context) { c.W.Int(int64(len(c.Server.observer.slowlog.latest(-1)))) },
		},
		{
			Name: "reset", Arity: 2, Flags: slowlogFlags, Group: groupServer, Since: "2.2.12",
			Complexity: "O(N), where N is the number of entries",
			Tips:       []string{"request_policy:all_nodes", "response_policy:all_succeeded"},
			Summary:    "Drops all entries.",
			Run:        func(c *Context) { c.Server.observer.slowlog.shorten(0); c.W.Status("OK") },
		},
		helpFor("slowlog", groupServer),
	},
}}
