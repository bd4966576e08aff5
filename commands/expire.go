package commands

import (
	"math"
	"strings"

	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
)

// invalidExpire is Redis' refusal of an expiry out of range.
func invalidExpire(r *Request) error { return refusal(invalidExpireText(lower(r.Args[0]))) }

func invalidExpireText(command string) string {
	return "ERR invalid expire time in '" + command + "' command"
}

// lower is a command's name as errors show it.
func lower(name []byte) string { return strings.ToLower(string(name)) }

// expireConditions are the conditions of EXPIRE.
var expireConditions = []option[store.Op]{
	{token: "NX", class: 1, again: true, flag: func(op *store.Op) { op.Flags |= store.NX }},
	{token: "XX", class: 2, again: true, flag: func(op *store.Op) { op.Flags |= store.XX }},
	{token: "GT", class: 4, again: true, flag: func(op *store.Op) { op.Flags |= store.GT }},
	{token: "LT", class: 8, again: true, flag: func(op *store.Op) { op.Flags |= store.LT }},
}

// parseExpire parses EXPIRE and its variants: unit in milliseconds, and
// whether the time counts from now.
func parseExpire(unit int64, relative bool) func(*Request) error {
	return func(r *Request) error {
		r.Op.Kind, r.Op.Key = store.ExpireAt, r.Args[1]
		if err := parseConditions(r); err != nil {
			return err
		}
		n, ok := parseInt(r.Args[2])
		if !ok {
			return errNotInteger
		}
		var base int64
		if relative {
			base = r.Now()
		}
		if n > math.MaxInt64/unit || n < math.MinInt64/unit || n*unit > math.MaxInt64-base {
			return invalidExpire(r)
		}
		r.Op.ExpireAt = max(n*unit+base, 1) // long past is past, and 0 means never
		return nil
	}
}

// parseConditions reads NX, XX, GT and LT; only XX goes with GT or LT.
func parseConditions(r *Request) error {
	for _, a := range r.Args[3:] {
		if findOption(expireConditions, a) == nil {
			return refusal("ERR Unsupported option " + string(cString(a, maxQuoted)))
		}
	}
	if _, err := parseOptions(r.Op, expireConditions, r.Args[3:], ""); err != nil {
		return err
	}
	f := r.Op.Flags
	switch {
	case f&store.NX != 0 && f&(store.XX|store.GT|store.LT) != 0:
		return errNXWithOthers
	case f&store.GT != 0 && f&store.LT != 0:
		return errGTWithLT
	}
	return nil
}

// replyTTL answers the time until the key expires, in units of unit ms; -1 if
// it does not expire, -2 if it does not exist. Seconds are rounded, as Redis
// does.
func replyTTL(unit int64, relative bool) func(*resp.Writer, *Result) {
	return func(w *resp.Writer, r *Result) {
		switch {
		case !r.Op.Found:
			w.Int(-2)
		case r.Op.Value == 0:
			w.Int(-1)
		case relative:
			w.Int((max(r.Op.Value-r.Now, 0) + unit/2) / unit)
		default:
			w.Int((r.Op.Value + unit/2) / unit)
		}
	}
}

const groupGeneric = "generic"

var (
	keyspaceACL = []string{"@keyspace"}
	conditions  = opt(oneOf("condition", word("NX"), word("XX"), word("GT"), word("LT")))
)

// expireCommands set, read and remove the expiry of keys.
var expireCommands = []Command{
	{
		Name: "expire", Arity: -3, Flags: Write | Fast, Keys: oneKey(keyUpdate), Group: groupGeneric, ACL: keyspaceACL,
		Since: "1.0.0", Complexity: "O(1)",
		Summary: "Sets the expiry of a key in seconds. Operation ids do not expire with it.",
		Args:    []Arg{keyArg(), intArg("seconds"), conditions}, Parse: parseExpire(1000, true), Reply: replyApplied,
	},
	{
		Name: "pexpire", Arity: -3, Flags: Write | Fast, Keys: oneKey(keyUpdate), Group: groupGeneric, ACL: keyspaceACL,
		Since: "2.6.0", Complexity: "O(1)", Summary: "Sets the expiry of a key in milliseconds.",
		Args: []Arg{keyArg(), intArg("milliseconds"), conditions}, Parse: parseExpire(1, true), Reply: replyApplied,
	},
	{
		Name: "expireat", Arity: -3, Flags: Write | Fast, Keys: oneKey(keyUpdate), Group: groupGeneric, ACL: keyspaceACL,
		Since: "1.2.0", Complexity: "O(1)", Summary: "Sets the expiry of a key to a Unix time in seconds.",
		Args: []Arg{keyArg(), timeArg("unix-time-seconds"), conditions}, Parse: parseExpire(1000, false), Reply: replyApplied,
	},
	{
		Name: "pexpireat", Arity: -3, Flags: Write | Fast, Keys: oneKey(keyUpdate), Group: groupGeneric, ACL: keyspaceACL,
		Since: "2.6.0", Complexity: "O(1)", Summary: "Sets the expiry of a key to a Unix time in milliseconds.",
		Args: []Arg{keyArg(), timeArg("unix-time-milliseconds"), conditions}, Parse: parseExpire(1, false), Reply: replyApplied,
	},
	{
		Name: "ttl", Arity: 2, Flags: ReadOnly | Fast, Keys: oneKey(keyRead), Group: groupGeneric, ACL: keyspaceACL,
		Since: "1.0.0", Complexity: "O(1)", Tips: []string{"nondeterministic_output"},
		Summary: "Returns the seconds until a key expires, -1 if it does not, -2 if there is no such key.",
		Args:    []Arg{keyArg()}, Parse: parseKey(store.ExpireTime), Reply: replyTTL(1000, true),
	},
	{
		Name: "pttl", Arity: 2, Flags: ReadOnly | Fast, Keys: oneKey(keyRead), Group: groupGeneric, ACL: keyspaceACL,
		Since: "2.6.0", Complexity: "O(1)", Tips: []string{"nondeterministic_output"},
		Summary: "Returns the milliseconds until a key expires, -1 if it does not, -2 if there is no such key.",
		Args:    []Arg{keyArg()}, Parse: parseKey(store.ExpireTime), Reply: replyTTL(1, true),
	},
	{
		Name: "expiretime", Arity: 2, Flags: ReadOnly | Fast, Keys: oneKey(keyRead), Group: groupGeneric, ACL: keyspaceACL,
		Since: "7.0.0", Complexity: "O(1)", Summary: "Returns the Unix time in seconds at which a key expires.",
		Args: []Arg{keyArg()}, Parse: parseKey(store.ExpireTime), Reply: replyTTL(1000, false),
	},
	{
		Name: "pexpiretime", Arity: 2, Flags: ReadOnly | Fast, Keys: oneKey(keyRead), Group: groupGeneric, ACL: keyspaceACL,
		Since: "7.0.0", Complexity: "O(1)", Summary: "Returns the Unix time in milliseconds at which a key expires.",
		Args: []Arg{keyArg()}, Parse: parseKey(store.ExpireTime), Reply: replyTTL(1, false),
	},
	{
		Name: "persist", Arity: 2, Flags: Write | Fast, Keys: oneKey(keyUpdate), Group: groupGeneric, ACL: keyspaceACL,
		Since: "2.2.0", Complexity: "O(1)", Summary: "Removes the expiry of a key.",
		Args: []Arg{keyArg()}, Parse: parseKey(store.Persist), Reply: replyApplied,
	},
}
