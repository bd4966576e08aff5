package commands

import (
	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
)

// parseMSet parses MSET and MSETNX: pairs of a key and an integer. One value
// that is no integer refuses them all (G6).
func parseMSet(flags store.Flags) func(*Request) error {
	return func(r *Request) error {
		pairs := r.Args[1:]
		if len(pairs)%2 != 0 {
			return refusal("ERR wrong number of arguments for '" + lower(r.Args[0]) + "' command")
		}
		r.Op.Kind = store.MSet
		r.Op.Flags |= flags
		for i := 0; i < len(pairs); i += 2 {
			n, ok := parseInt(pairs[i+1])
			if !ok {
				return errNotInteger
			}
			r.Op.Keys = append(r.Op.Keys, pairs[i])
			r.Op.Deltas = append(r.Op.Deltas, n)
		}
		return nil
	}
}

// replyMSetNX answers 1 if the counters were set, 0 if one of them existed.
func replyMSetNX(w *resp.Writer, r *Result) { w.Int(bit(r.Op.Applied)) }

// pairKeys is where MSET's keys are.
func pairKeys(flags string) KeySpec { return KeySpec{First: 1, Last: -1, Step: 2, Flags: flags} }

var (
	pairArgs = []Arg{multi(block("data", keyArg(), strArg("value")))}
	msetTips = []string{"request_policy:multi_shard", "response_policy:all_succeeded"}
)

// multiSetCommands set several counters at once.
var multiSetCommands = []Command{
	{
		Name: "mset", Arity: -3, Flags: Write | DenyOOM, Keys: pairKeys(keyOverwrite), Group: groupString, ACL: stringACL,
		Since: "1.0.1", Complexity: "O(N), where N is the number of keys", Tips: msetTips,
		Summary: "Sets several counters to integers, all or none.",
		Args:    pairArgs, Parse: parseMSet(0), Reply: replyOK,
	},
	{
		Name: "msetnx", Arity: -3, Flags: Write | DenyOOM, Keys: pairKeys("OW insert"), Group: groupString, ACL: stringACL,
		Since: "1.0.1", Complexity: "O(N), where N is the number of keys",
		Tips:    []string{"request_policy:multi_shard", "response_policy:agg_min"},
		Summary: "Sets several counters to integers, only if none of them exists.",
		Args:    pairArgs, Parse: parseMSet(store.NX), Reply: replyMSetNX,
	},
}
