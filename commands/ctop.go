package commands

import (
	"github.com/fbfkv/fbfkv/store"
)

// topCount reads a TOP.
func topCount(v []byte) int {
	if is(v, "NONE") || is(v, "0") {
		return 0
	}
	return positive(v)
}

// doTop is CTOP prefix n. In RESP3 each counter and its value are an array, in RESP2 all are one.
func doTop(c *Context) {
	n, ok := parseInt(c.Args[2])
	if !ok {
		c.fail(errNotInteger)
		return
	}
	list, scale, err := c.Store.Top(string(c.Args[1]), int(max(0, min(n, store.MaxTop+1))))
	if c.failed(err) {
		return
	}
	allowed := c.Session.mayRead(c.Args[1])
	for _, l := range list {
		allowed = allowed && c.Session.mayRead([]byte(l.Key))
	}
	if !allowed { // a list with gaps would be no list of those that lead
		c.fail(errKeyDenied)
		return
	}
	if c.W.Proto == 3 {
		c.W.Array(len(list))
	} else {
		c.W.Array(2 * len(list))
	}
	for _, l := range list {
		if c.W.Proto == 3 {
			c.W.Array(2)
		}
		var digits [maxDecimal]byte
		c.W.BulkString(l.Key)
		c.W.Bulk(store.AppendDecimal(digits[:0], l.Value, scale))
	}
}

// topCommands list the counters of a table that lead.
var topCommands = []Command{{
	Name: "ctop", Arity: 3, Flags: ReadOnly, Group: groupCounter, ACL: []string{"@counter", "@keyspace"},
	Since: "0.2.0",
	Complexity: "O(N*log(N)), where N is n and what partitions keep for it; a walk over all keys at the first use after a " +
		"start or a change of tables",
	Summary: "Returns the n counters with the highest values, and their values, of the table with exactly this prefix. " +
		"The list is exact, and of one time. Of equal values the first by key leads. The table's TOP must " +
		"be n or more. In a cluster a node answers for its shard.",
	Args: []Arg{strArg("prefix"), intArg("n")}, Tips: []string{"request_policy:special"}, Run: doTop,
}}
