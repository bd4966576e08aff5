package commands

import (
	"math"
	"strconv"

	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
)

// replyValue answers a counter's value as the string that Redis would hold, or
// null.
func replyValue(w *resp.Writer, r *Result) {
	if !r.Op.Found {
		w.Null()
		return
	}
	var digits [20]byte
	w.Bulk(strconv.AppendInt(digits[:0], r.Op.Value, 10))
}

// replyValues answers a string or null for each key.
func replyValues(w *resp.Writer, r *Result) {
	var digits [20]byte
	w.Array(len(r.Op.Values))
	for i, v := range r.Op.Values {
		if r.Op.Founds[i] {
			w.Bulk(strconv.AppendInt(digits[:0], v, 10))
		} else {
			w.Null()
		}
	}
}

// parseIncr parses INCR, INCRBY, DECR and DECRBY.
func parseIncr(sign int64) func(*Request) error {
	return func(r *Request) error {
		delta := int64(1)
		if len(r.Args) > 2 {
			var ok bool
			if delta, ok = parseInt(r.Args[2]); !ok {
				return errNotInteger
			}
		}
		if sign < 0 && delta == math.MinInt64 {
			return errDecrOverflow
		}
		r.Op.Kind, r.Op.Key, r.Op.Delta = store.IncrBy, r.Args[1], sign*delta
		return nil
	}
}

// setExpiryText is the expiry of a SET while its options are read.
type setExpiryText struct {
	text       []byte // as it was written, nil if there is none
	unit, base int64  // in ms, and what it counts from
}

// The classes of SET's options: what shares a bit excludes each other.
const (
	classCondition = 1 << iota
	classGet
	classExpiry
)

// expiryOption makes one of SET's expiry options.
func expiryOption(token string, unit int64, relative bool) option[Request] {
	return option[Request]{token: token, class: classExpiry, again: true, value: func(s *Request, v []byte) error {
		s.expiry = setExpiryText{text: v, unit: unit}
		if relative {
			s.expiry.base = s.Now()
		}
		return nil
	}}
}

// setFlag makes an option of SET that sets a flag of the operation.
func setFlag(token string, class uint32, f store.Flags) option[Request] {
	return option[Request]{token: token, class: class, again: true, flag: func(s *Request) { s.Op.Flags |= f }}
}

// setOptions are the options of SET.
var setOptions = []option[Request]{
	setFlag("NX", classCondition, store.NX),
	setFlag("XX", classCondition, store.XX),
	setFlag("GET", classGet, store.SetGet),
	setFlag("KEEPTTL", classExpiry, store.KeepTTL),
	expiryOption("EX", 1000, true),
	expiryOption("PX", 1, true),
	expiryOption("EXAT", 1000, false),
	expiryOption("PXAT", 1, false),
}

// setKeyFlags are the flags of one SET: with GET it reads the key, too.
func setKeyFlags(args [][]byte) string {
	for _, a := range args[min(3, len(args)):] {
		if is(a, "GET") {
			return keyReadUpdate
		}
	}
	return keyOverwrite
}

// parseSet parses SET key value [option …].
func parseSet(r *Request) error {
	r.expiry = setExpiryText{}
	if _, err := parseOptions(r, setOptions, r.Args[3:], ""); err != nil {
		return err
	}
	if e := &r.expiry; e.text != nil {
		if err := setExpiry(r, e.text, e.unit, e.base); err != nil {
			return err
		}
	}
	return setValue(r, r.Args[2])
}

// setExpiry gives a SET its expiry; one that is not in the future of base is
// refused, as in Redis.
func setExpiry(r *Request, v []byte, unit, base int64) error {
	n, ok := parseInt(v)
	if !ok {
		return errNotInteger
	}
	if n <= 0 || n > (math.MaxInt64-base)/unit {
		return invalidExpire(r)
	}
	r.Op.ExpireAt = n*unit + base
	r.Op.Flags |= store.HasExpire
	return nil
}

// setValue makes r a SET of a counter to the integer v.
func setValue(r *Request, v []byte) error {
	n, ok := parseInt(v)
	if !ok {
		return errNotInteger
	}
	r.Op.Kind, r.Op.Key, r.Op.Delta = store.Set, r.Args[1], n
	return nil
}

// replySet answers OK, or null if the condition did not hold; with GET the old
// value, whatever came of the condition.
func replySet(w *resp.Writer, r *Result) {
	switch {
	case r.Op.Flags&store.SetGet != 0:
		replyValue(w, r)
	case r.Op.Applied:
		w.Status("OK")
	default:
		w.Null()
	}
}

// parseSetex parses SETEX and PSETEX: key, expiry, value.
func parseSetex(unit int64) func(*Request) error {
	return func(r *Request) error {
		if err := setExpiry(r, r.Args[2], unit, r.Now()); err != nil {
			return err
		}
		return setValue(r, r.Args[3])
	}
}

// parsePlainSet parses GETSET and SETNX: key, value.
func parsePlainSet(flags store.Flags) func(*Request) error {
	return func(r *Request) error {
		r.Op.Flags |= flags
		return setValue(r, r.Args[2])
	}
}

const (
	groupString = "string"
	plainNote   = " Not idempotent: a retry counts again. Use CINCRBY with an operation id where that matters."
)

var stringACL = []string{"@string"}

// setArgs documents SET's options.
var setArgs = []Arg{
	keyArg(), strArg("value"),
	opt(oneOf("condition", word("NX"), word("XX"))),
	opt(word("GET")),
	opt(oneOf("expiration",
		with("EX", intArg("seconds")), with("PX", intArg("milliseconds")),
		with("EXAT", timeArg("unix-time-seconds")), with("PXAT", timeArg("unix-time-milliseconds")),
		word("KEEPTTL"))),
}

// stringCommands are Redis' commands on strings that hold an integer.
var stringCommands = []Command{
	{
		Name: "get", Arity: 2, Flags: ReadOnly | Fast, Keys: oneKey(keyRead), Group: groupString, ACL: stringACL,
		Since: "1.0.0", Complexity: "O(1)", Summary: "Returns a counter as a string.",
		Args: []Arg{keyArg()}, Parse: parseKey(store.Get), Reply: replyValue,
	},
	{
		Name: "mget", Arity: -2, Flags: ReadOnly | Fast, Keys: manyKeys(keyRead), Group: groupString, ACL: stringACL,
		Since: "1.0.0", Complexity: "O(N), where N is the number of keys", Tips: []string{"request_policy:multi_shard"},
		Summary: "Returns several counters as strings.",
		Args:    []Arg{multi(keyArg())}, Parse: parseKeys(store.MGet), Reply: replyValues,
	},
	{
		Name: "set", Arity: -3, Flags: Write | DenyOOM, Keys: oneKey(keySet), KeyFlags: setKeyFlags, Group: groupString, ACL: stringACL,
		Since: "1.0.0", Complexity: "O(1)",
		Summary: "Sets a counter to an integer. Its operation ids stay remembered.",
		Args:    setArgs, Parse: parseSet, Reply: replySet,
	},
	{
		Name: "setex", Arity: 4, Flags: Write | DenyOOM, Keys: oneKey(keyOverwrite), Group: groupString, ACL: stringACL,
		Since: "2.0.0", Complexity: "O(1)", Summary: "Sets a counter to an integer with an expiry in seconds.",
		Args: []Arg{keyArg(), intArg("seconds"), strArg("value")}, Parse: parseSetex(1000), Reply: replyOK,
	},
	{
		Name: "psetex", Arity: 4, Flags: Write | DenyOOM, Keys: oneKey(keyOverwrite), Group: groupString, ACL: stringACL,
		Since: "2.6.0", Complexity: "O(1)", Summary: "Sets a counter to an integer with an expiry in milliseconds.",
		Args: []Arg{keyArg(), intArg("milliseconds"), strArg("value")}, Parse: parseSetex(1), Reply: replyOK,
	},
	{
		Name: "setnx", Arity: 3, Flags: Write | DenyOOM | Fast, Keys: oneKey("OW insert"), Group: groupString, ACL: stringACL,
		Since: "1.0.0", Complexity: "O(1)", Summary: "Sets a counter to an integer only if it does not exist.",
		Args: []Arg{keyArg(), strArg("value")}, Parse: parsePlainSet(store.NX), Reply: replyApplied,
	},
	{
		Name: "getset", Arity: 3, Flags: Write | DenyOOM | Fast, Keys: oneKey(keyReadUpdate), Group: groupString, ACL: stringACL,
		Since: "1.0.0", Complexity: "O(1)", Summary: "Sets a counter to an integer and returns its old value.",
		Args: []Arg{keyArg(), strArg("value")}, Parse: parsePlainSet(store.SetGet), Reply: replySet,
	},
	{
		Name: "getdel", Arity: 2, Flags: Write | Fast, Keys: oneKey(keyReadDelete), Group: groupString, ACL: stringACL,
		Since: "6.2.0", Complexity: "O(1)",
		Summary: "Returns a counter and deletes it. Its operation ids stay remembered.",
		Args:    []Arg{keyArg()}, Parse: parseKey(store.GetDel), Reply: replyValue,
	},
	{
		Name: "incr", Arity: 2, Flags: Write | DenyOOM | Fast, Keys: oneKey(keyReadUpdate), Group: groupString, ACL: stringACL,
		Since: "1.0.0", Complexity: "O(1)", Summary: "Adds 1 to a counter." + plainNote,
		Args: []Arg{keyArg()}, Parse: parseIncr(1), Reply: replyInt,
	},
	{
		Name: "incrby", Arity: 3, Flags: Write | DenyOOM | Fast, Keys: oneKey(keyReadUpdate), Group: groupString, ACL: stringACL,
		Since: "1.0.0", Complexity: "O(1)", Summary: "Adds an integer to a counter." + plainNote,
		Args: []Arg{keyArg(), intArg("increment")}, Parse: parseIncr(1), Reply: replyInt,
	},
	{
		Name: "decr", Arity: 2, Flags: Write | DenyOOM | Fast, Keys: oneKey(keyReadUpdate), Group: groupString, ACL: stringACL,
		Since: "1.0.0", Complexity: "O(1)", Summary: "Subtracts 1 from a counter." + plainNote,
		Args: []Arg{keyArg()}, Parse: parseIncr(-1), Reply: replyInt,
	},
	{
		Name: "decrby", Arity: 3, Flags: Write | DenyOOM | Fast, Keys: oneKey(keyReadUpdate), Group: groupString, ACL: stringACL,
		Since: "1.0.0", Complexity: "O(1)", Summary: "Subtracts an integer from a counter." + plainNote,
		Args: []Arg{keyArg(), intArg("decrement")}, Parse: parseIncr(-1), Reply: replyInt,
	},
}
