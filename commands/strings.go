package commands

import (
	"errors"
	"math"

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
	var digits [maxDecimal]byte
	w.Bulk(store.AppendDecimal(digits[:0], r.Op.Value, r.Op.Scale))
}

// replyValues answers a string or null for each key.
func replyValues(w *resp.Writer, r *Result) {
	var digits [maxDecimal]byte
	w.Array(len(r.Op.Values))
	for i, v := range r.Op.Values {
		if r.Op.Founds[i] {
			w.Bulk(store.AppendDecimal(digits[:0], v, r.Op.ScaleOf(i)))
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
				return notWhole(errNotInteger, r.Args[2], "INCRBYFLOAT")
			}
		}
		if sign < 0 && delta == math.MinInt64 {
			return errDecrOverflow
		}
		r.Op.Kind, r.Op.Key, r.Op.Delta = store.IncrBy, r.Args[1], sign*delta
		return nil
	}
}

// parseIncrFloat parses INCRBYFLOAT.
func parseIncrFloat(r *Request) (err error) {
	op, ok := r.Op, false
	op.Kind, op.Key, op.Flags = store.IncrBy, r.Args[1], store.Float
	if op.Delta, op.Points[0], ok = parseAmount(r.Args[2]); !ok {
		return notAmount(errNotFloat, r.Args[2])
	}
	return nil
}

// expiryText is the expiry of a SET while its options are read.
type expiryText struct {
	text       []byte // as it was written, nil if there is none
	unit, base int64  // in ms, and what it counts from
}

// The classes of SET's options: what shares a bit excludes each other.
const (
	classCondition = 1 << iota
	classGet
	classExpiry
)

// expiryOptions makes EX, PX, EXAT and PXAT, which give the request that of returns an
// expiry.
func expiryOptions[T any](class uint32, again bool, of func(*T) *Request) []option[T] {
	make := func(token string, unit int64, relative bool) option[T] {
		return option[T]{token: token, class: class, again: again, value: func(t *T, v []byte) error {
			r := of(t)
			r.expiry = expiryText{text: v, unit: unit}
			if relative {
				r.expiry.base = r.Now()
			}
			return nil
		}}
	}
	return []option[T]{make("EX", 1000, true), make("PX", 1, true), make("EXAT", 1000, false),
		make("PXAT", 1, false)}
}

// setExpiries are the expiry options of SET and GETEX, of which the last one counts.
var setExpiries = expiryOptions(classExpiry, true, func(r *Request) *Request { return r })

// expiryArg documents the expiry options and the keyword that goes in their place.
func expiryArg(instead string) Arg {
	return opt(oneOf("expiration",
		with("EX", intArg("seconds")), with("PX", intArg("milliseconds")),
		with("EXAT", timeArg("unix-time-seconds")), with("PXAT", timeArg("unix-time-milliseconds")),
		word(instead)))
}

// setFlag makes an option of SET that sets a flag of the operation.
func setFlag(token string, class uint32, f store.Flags) option[Request] {
	return option[Request]{token: token, class: class, again: true,
		flag: func(s *Request) { s.Op.Flags |= f }}
}

// setOptions are the options of SET.
var setOptions = append([]option[Request]{
	setFlag("NX", classCondition, store.NX),
	setFlag("XX", classCondition, store.XX),
	setFlag("GET", classGet, store.SetGet),
	setFlag("KEEPTTL", classExpiry, store.KeepTTL),
}, setExpiries...)

// setKeyFlags are the flags of one SET: with GET it also reads the key.
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
	r.expiry = expiryText{}
	if _, err := parseOptions(r, setOptions, r.Args[3:], ""); err != nil {
		return err
	}
	if err := setExpiry(r, r.expiry); err != nil {
		return err
	}
	return setValue(r, r.Args[2])
}

// setExpiry gives a SET its expiry, if there is one; one that is not in the future of
// its base is refused, as in Redis.
func setExpiry(r *Request, e expiryText) error {
	if e.text == nil {
		return nil
	}
	n, ok := parseInt(e.text)
	if !ok {
		return errNotInteger
	}
	if n <= 0 || n > (math.MaxInt64-e.base)/e.unit {
		return invalidExpire(r)
	}
	r.Op.ExpireAt = n*e.unit + e.base
	r.Op.Flags |= store.HasExpire
	return nil
}

// setValue makes r a SET of a counter to the integer v.
func setValue(r *Request, v []byte) error {
	n, points, ok := parseAmount(v)
	if !ok {
		return notAmount(errNoCounter, v)
	}
	r.Op.Kind, r.Op.Key, r.Op.Delta, r.Op.Points[0] = store.Set, r.Args[1], n, points
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
		if err := setExpiry(r, expiryText{r.Args[2], unit, r.Now()}); err != nil {
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
	plainNote   = " Not idempotent: a retry counts again. Use CINCRBY with an operation id where that " +
		"matters."
)

var stringACL = []string{"@string"}

// setArgs documents SET's options.
var setArgs = []Arg{
	keyArg(), strArg("value"),
	opt(oneOf("condition", word("NX"), word("XX"))),
	opt(word("GET")),
	expiryArg("KEEPTTL"),
}

// replyLength answers the length of the string that Redis would hold.
func replyLength(w *resp.Writer, r *Result) {
	if !r.Op.Found {
		w.Int(0)
		return
	}
	var digits [maxDecimal]byte
	w.Int(int64(len(store.AppendDecimal(digits[:0], r.Op.Value, r.Op.Scale))))
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
	var digits [maxDecimal]byte
	text := store.AppendDecimal(digits[:0], r.Op.Value, r.Op.Scale)
	w.Bulk(substring(text, r.Op.Deltas[0], r.Op.Deltas[1]))
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

// rangeCommand declares GETRANGE or SUBSTR.
func rangeCommand(name, since, summary string) Command {
	return Command{
		Name: name, Arity: 4, Flags: ReadOnly, Keys: oneKey(keyRead), Group: groupString, ACL: stringACL,
		Since: since, Summary: summary, Args: []Arg{keyArg(), intArg("start"), intArg("end")},
		Parse: parseRange, Reply: replyRange,
	}
}

// parseMSet parses MSET and MSETNX: pairs of a key and an integer. One value
// that is not an integer refuses them all (G6).
func parseMSet(flags store.Flags) func(*Request) error {
	return func(r *Request) error {
		pairs := r.Args[1:]
		if len(pairs)%2 != 0 {
			return arityError(r)
		}
		r.Op.Kind = store.MSet
		r.Op.Flags |= flags
		for i := 0; i < len(pairs); i += 2 {
			if !r.addPair(pairs[i], pairs[i+1]) {
				return notAmount(errNoCounter, pairs[i+1])
			}
		}
		if all, ok := r.Op.Object.([]store.Points); ok {
			r.Op.Object = append(all, make([]store.Points, len(r.Op.Keys)-len(all))...)
		}
		return nil
	}
}

// pairKeys is where MSET's keys are.
func pairKeys(flags string) KeySpec { return KeySpec{First: 1, Last: -1, Step: 2, Flags: flags} }

var (
	pairArgs = []Arg{multi(block("data", keyArg(), strArg("value")))}
	msetTips = []string{"request_policy:multi_shard", "response_policy:all_succeeded"}
)

// The styles of GETEX. Redis looks at the expiry only after the key: with one
// that is refused, a key that does not exist is still answered with null.
const (
	expiryGood Style = iota
	expiryNotInteger
	expiryInvalid
)

// getexOptions are the options of GETEX.
var getexOptions = append([]option[Request]{setFlag("PERSIST", classExpiry, store.NoExpire)}, setExpiries...)

// parseGetex parses GETEX key [expiry].
func parseGetex(r *Request) error {
	r.Op.Kind, r.Op.Key = store.GetEx, r.Args[1]
	r.expiry = expiryText{}
	if _, err := parseOptions(r, getexOptions, r.Args[2:], ""); err != nil {
		return err
	}
	switch err := setExpiry(r, r.expiry); {
	case err == nil:
		return nil
	case errors.Is(err, errNotInteger):
		r.Style = expiryNotInteger
	default:
		r.Style = expiryInvalid
	}
	r.Op.Kind = store.Get // changes nothing
	return nil
}

// replyGetex answers the counter's value, or null, or what is wrong with the
// expiry that an existing counter was to get.
func replyGetex(w *resp.Writer, r *Result) {
	switch {
	case r.Op.Found && r.Style == expiryNotInteger:
		w.Error(errorText(errNotInteger))
	case r.Op.Found && r.Style == expiryInvalid:
		w.Error(invalidExpireText("getex"))
	default:
		replyValue(w, r)
	}
}

// incrCommand declares INCR, INCRBY, DECR or DECRBY.
func incrCommand(name string, arity int, summary string, parse func(*Request) error, args ...Arg) Command {
	return Command{
		Name: name, Arity: arity, Flags: Write | DenyOOM | Fast, Keys: oneKey(keyReadUpdate),
		Group: groupString, ACL: stringACL, Since: "1.0.0", Summary: summary + plainNote, Args: args,
		Parse: parse, Reply: replyAmount,
	}
}

// replyAmount answers a counter's value.
func replyAmount(w *resp.Writer, r *Result) { writeAmount(w, r.Op.Value, r.Op.Scale) }

// stringCommands are Redis' commands on strings that hold an integer.
var stringCommands = family(Command{Group: groupString, ACL: stringACL}, []Command{
	{
		Name: "get", Arity: 2, Flags: ReadOnly | Fast, Keys: oneKey(keyRead), Since: "1.0.0",
		Summary: "Returns a counter as a string.", Args: []Arg{keyArg()}, Parse: parseKey(store.Get),
		Reply: replyValue,
	},
	{
		Name: "mget", Arity: -2, Flags: ReadOnly | Fast, Keys: manyKeys(keyRead), Since: "1.0.0",
		Complexity: "O(N), where N is the number of keys", Tips: []string{"request_policy:multi_shard"},
		Summary: "Returns several counters as strings.", Args: []Arg{multi(keyArg())},
		Parse: parseKeys(store.MGet), Reply: replyValues,
	},
	{
		Name: "set", Arity: -3, Flags: Write | DenyOOM, Keys: oneKey(keySet), KeyFlags: setKeyFlags,
		Since: "1.0.0", Summary: "Sets a counter to an integer. Its operation ids stay remembered.",
		Args: setArgs, Parse: parseSet, Reply: replySet,
	},
	{
		Name: "setex", Arity: 4, Flags: Write | DenyOOM, Keys: oneKey(keyOverwrite), Since: "2.0.0",
		Summary: "Sets a counter to an integer with an expiry in seconds.",
		Args:    []Arg{keyArg(), intArg("seconds"), strArg("value")}, Parse: parseSetex(1000), Reply: replyOK,
	},
	{
		Name: "psetex", Arity: 4, Flags: Write | DenyOOM, Keys: oneKey(keyOverwrite), Since: "2.6.0",
		Summary: "Sets a counter to an integer with an expiry in milliseconds.",
		Args:    []Arg{keyArg(), intArg("milliseconds"), strArg("value")}, Parse: parseSetex(1), Reply: replyOK,
	},
	{
		Name: "setnx", Arity: 3, Flags: Write | DenyOOM | Fast, Keys: oneKey("OW insert"), Since: "1.0.0",
		Summary: "Sets a counter to an integer only if it does not exist.",
		Args:    []Arg{keyArg(), strArg("value")}, Parse: parsePlainSet(store.NX), Reply: replyApplied,
	},
	{
		Name: "getset", Arity: 3, Flags: Write | DenyOOM | Fast, Keys: oneKey(keyReadUpdate), Since: "1.0.0",
		Summary: "Sets a counter to an integer and returns its old value.",
		Args:    []Arg{keyArg(), strArg("value")}, Parse: parsePlainSet(store.SetGet), Reply: replySet,
	},
	{
		Name: "getdel", Arity: 2, Flags: Write | Fast, Keys: oneKey(keyReadDelete), Since: "6.2.0",
		Summary: "Returns a counter and deletes it. Its operation ids stay remembered.",
		Args:    []Arg{keyArg()}, Parse: parseKey(store.GetDel), Reply: replyValue,
	},
	incrCommand("incr", 2, "Adds 1 to a counter.", parseIncr(1), keyArg()),
	incrCommand("incrby", 3, "Adds an integer to a counter.", parseIncr(1), keyArg(), intArg("increment")),
	incrCommand("decr", 2, "Subtracts 1 from a counter.", parseIncr(-1), keyArg()),
	incrCommand("decrby", 3, "Subtracts an integer from a counter.", parseIncr(-1), keyArg(),
		intArg("decrement")),
	since("2.6.0", incrCommand("incrbyfloat", 3, "Adds a decimal number to a counter of a table with SCALE, "+
		"exactly.", parseIncrFloat, keyArg(), dblArg("increment"))),
	{
		Name: "mset", Arity: -3, Flags: Write | DenyOOM, Keys: pairKeys(keyOverwrite), Since: "1.0.1",
		Complexity: "O(N), where N is the number of keys", Tips: msetTips,
		Summary: "Sets several counters to integers, all or none.", Args: pairArgs, Parse: parseMSet(0),
		Reply: replyOK,
	},
	{
		Name: "msetnx", Arity: -3, Flags: Write | DenyOOM, Keys: pairKeys("OW insert"), Since: "1.0.1",
		Complexity: "O(N), where N is the number of keys",
		Tips:       []string{"request_policy:multi_shard", "response_policy:agg_min"},
		Summary:    "Sets several counters to integers, only if none of them exists.", Args: pairArgs,
		Parse: parseMSet(store.NX), Reply: replyApplied,
	},
	{
		Name: "getex", Arity: -2, Flags: Write | Fast, Keys: oneKey("RW access update"), Since: "6.2.0",
		Summary: "Returns a counter and sets or removes its expiry. Operation ids do not expire with it.",
		Args:    []Arg{keyArg(), expiryArg("PERSIST")}, Parse: parseGetex, Reply: replyGetex,
	},
	{
		Name: "strlen", Arity: 2, Flags: ReadOnly | Fast, Keys: oneKey(keyLook), Since: "2.2.0",
		Summary: "Returns the length of a counter written as a decimal number.", Args: []Arg{keyArg()},
		Parse: parseKey(store.Get), Reply: replyLength,
	},
	rangeCommand("getrange", "2.4.0", "Returns a part of a counter written as a decimal number."),
	rangeCommand("substr", "1.0.0", "Like GETRANGE, under its old name."),
})
