package commands

import (
	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
)

// throttleRequest is CL.THROTTLE while its option is read.
type throttleRequest struct{ id []byte }

var throttleOptions = []option[throttleRequest]{
	{token: "OPID", class: 1, value: func(q *throttleRequest, id []byte) error {
		q.id = id
		return checkOpID(id)
	}},
}

// parseThrottle parses CL.THROTTLE key max_burst count period [quantity] [OPID id].
func parseThrottle(r *Request) error {
	op, rest := r.Op, r.Args[5:]
	op.Kind, op.Key = store.Throttle, r.Args[1]
	numbers := r.Args[2:5]
	if len(rest) > 0 && !is(rest[0], "OPID") {
		numbers, rest = r.Args[2:6], rest[1:]
	}
	for _, text := range numbers {
		n, ok := parseInt(text)
		if !ok {
			return errNotInteger
		}
		op.Deltas = append(op.Deltas, n)
	}
	if len(numbers) == 3 {
		op.Deltas = append(op.Deltas, 1)
	}
	var q throttleRequest
	if _, err := parseOptions(&q, throttleOptions, rest, ""); err != nil {
		return err
	}
	if q.id != nil {
		op.Kind, op.ID = store.CThrottle, q.id
	}
	return nil
}

// replyInts answers several integers.
func replyInts(w *resp.Writer, r *Result) {
	w.Array(len(r.Op.Values))
	for _, n := range r.Op.Values {
		w.Int(n)
	}
}

// throttleCommands are CL.THROTTLE.
var throttleCommands = []Command{{
	Name: "cl.throttle", Arity: -5, Flags: Write | DenyOOM | Fast, Keys: oneKey(keyReadUpdate),
	Group: groupCounter, ACL: counterACL, Since: "0.2.0",
	Summary: "Limits a rate by the generic cell rate algorithm, as redis-cell does: count permits in each period " +
		"of seconds, and max_burst more at once. Returns whether it is limited (0 or 1), the limit (max_burst + 1), " +
		"the permits that remain, in how many seconds a retry can succeed (-1: it was not limited, or never can), " +
		"and in how many all permits are there again. With OPID, a retry of a request that was let in spends " +
		"nothing and gets the same reply; a limited one uses up no opid. A quantity of 0 asks only.",
	Args: []Arg{keyArg(), intArg("max_burst"), intArg("count"), intArg("period"), opt(intArg("quantity")),
		opt(with("OPID", strArg("opid")))},
	Parse: parseThrottle, Reply: replyInts,
}}
