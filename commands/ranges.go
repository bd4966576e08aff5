package commands

import (
	"strconv"

	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
)

// replyLength answers the length of the string that Redis would hold.
func replyLength(w *resp.Writer, r *Result) {
	if !r.Op.Found {
		w.Int(0)
		return
	}
	var digits [20]byte
	w.Int(int64(len(strconv.AppendInt(digits[:0], r.Op.Value, 10))))
}

// parseRange parses GETRANGE key start end. The bounds travel to the reply in
// Deltas, at which a read does not look.
func parseRange(r *Request) error {
	start, ok := parseInt(r.Args[2])
	end, ok2 := parseInt(r.Args[3])
	if !ok || !ok2 {
		return errNotInteger
	}
	r.Op.Kind, r.Op.Key = store.Get, r.Args[1]
	r.Op.Deltas = append(r.Op.Deltas, start, end)
	return nil
}

// replyRange answers a part of the string that Redis would hold.
func replyRange(w *resp.Writer, r *Result) {
	if !r.Op.Found {
		w.Bulk(nil)
		return
	}
	var digits [20]byte
	w.Bulk(substring(strconv.AppendInt(digits[:0], r.Op.Value, 10), r.Op.Deltas[0], r.Op.Deltas[1]))
}

// substring returns s from start to end, both included; negative ones count
// from the end, and what is out of range is cut, all as in Redis.
func substring(s []byte, start, end int64) []byte {
	n := int64(len(s))
	if start < 0 && end < 0 && start > end {
		return nil
	}
	if start < 0 {
		start = max(start+n, 0)
	}
	if end < 0 {
		end = max(end+n, 0)
	}
	if end = min(end, n-1); start > end {
		return nil
	}
	return s[start : end+1]
}

var rangeArgs = []Arg{keyArg(), intArg("start"), intArg("end")}

// rangeCommands read a counter as the string of its digits.
var rangeCommands = []Command{
	{
		Name: "strlen", Arity: 2, Flags: ReadOnly | Fast, Keys: oneKey(keyLook), Group: groupString, ACL: stringACL,
		Since: "2.2.0", Complexity: "O(1)", Summary: "Returns the length of a counter written as a decimal number.",
		Args: []Arg{keyArg()}, Parse: parseKey(store.Get), Reply: replyLength,
	},
	{
		Name: "getrange", Arity: 4, Flags: ReadOnly, Keys: oneKey(keyRead), Group: groupString, ACL: stringACL,
		Since: "2.4.0", Complexity: "O(1)", Summary: "Returns a part of a counter written as a decimal number.",
		Args: rangeArgs, Parse: parseRange, Reply: replyRange,
	},
	{
		Name: "substr", Arity: 4, Flags: ReadOnly, Keys: oneKey(keyRead), Group: groupString, ACL: stringACL,
		Since: "1.0.0", Complexity: "O(1)", Summary: "Like GETRANGE, under its old name.",
		Args: rangeArgs, Parse: parseRange, Reply: replyRange,
	},
}
