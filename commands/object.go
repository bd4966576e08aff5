package commands

import (
	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
)

// The refusals of OBJECT; the first is Redis' own.
const (
	noFrequencies = "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when " +
		"switching between policies at runtime LRU and LFU data will take some time to adjust."
	noIdleTimes = "ERR idle time is not tracked: nothing here is evicted for not being used"
)

// parseObject parses OBJECT subcommand key.
func parseObject(r *Request) error {
	r.Op.Kind, r.Op.Key = store.TypeOf, r.Args[2]
	return nil
}

// replyObject answers null for a key that does not exist, otherwise what
// answer writes.
func replyObject(answer func(w *resp.Writer, r *Result)) func(*resp.Writer, *Result) {
	return func(w *resp.Writer, r *Result) {
		if !r.Op.Found {
			w.Null()
			return
		}
		answer(w, r)
	}
}

// objectSub declares a subcommand of OBJECT.
func objectSub(name, since, summary string, answer func(w *resp.Writer, r *Result)) Command {
	return Command{
		Name: name, Arity: 3, Flags: ReadOnly, Keys: KeySpec{First: 2, Last: 2, Step: 1, Flags: keyLook},
		Group: groupGeneric, ACL: keyspaceACL, Since: since, Complexity: "O(1)", Summary: summary,
		Tips: []string{"nondeterministic_output"},
		Args: []Arg{keyArg()}, Parse: parseObject, Reply: replyObject(answer),
	}
}

// objectCommands describe how a key is kept.
var objectCommands = []Command{{
	Name: "object", Arity: -2, Group: groupGeneric, Since: "2.2.3",
	Complexity: "Depends on subcommand.", Summary: "A container for commands that describe how a key is kept.",
	Subcommands: []Command{
		objectSub("encoding", "2.2.3", "Returns how a key is stored: int for a counter, raw for a filter or sketch.",
			func(w *resp.Writer, r *Result) { w.BulkString(keyTypes[r.Op.Type].encoding) }),
		objectSub("freq", "4.0.0", "Refused: access frequencies are not tracked.",
			func(w *resp.Writer, _ *Result) { w.Error(noFrequencies) }),
		objectSub("idletime", "2.2.3", "Refused: idle times are not tracked.",
			func(w *resp.Writer, _ *Result) { w.Error(noIdleTimes) }),
		objectSub("refcount", "2.2.3", "Returns 1: a value belongs to one key.",
			func(w *resp.Writer, _ *Result) { w.Int(1) }),
		since("6.2.0", helpFor("object", groupGeneric, keyspaceACL...)),
	},
}}
