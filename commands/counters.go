package commands

import (
	"math"
	"slices"

	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
)

// withStatus makes the counter commands answer [value, applied].
const withStatus Style = 1

// incrOptions are the options of CINCRBY and its family.
var incrOptions = []option[Request]{
	intOption("AT", 1, func(r *Request, ms int64) {
		r.Op.At = ms
		r.Op.Flags |= store.HasAt
	}),
	{token: "WITHSTATUS", class: 2, flag: func(r *Request) { r.Style = withStatus }},
	boundOption("LBOUND", 4, 0),
	boundOption("UBOUND", 8, 1),
}

// cIncrOptions are the options of CINCRBY, CDECRBY, CINCR and CDECR, which also set expiries.
var cIncrOptions = slices.Concat(incrOptions, incrExpiries(16, 32, func(r *Request) *Request { return r }))

// boundOption is the lower (0) or the upper bound (1) of an increment.
func boundOption(token string, class uint32, side int) option[Request] {
	return option[Request]{token: token, class: class, value: func(r *Request, v []byte) error {
		var ok bool
		if r.bounds[side], r.Op.Points[1+side], ok = parseAmount(v); !ok {
			return notAmount(refusal("ERR "+token+" is not an integer or out of range"), v)
		}
		r.bounded = true
		return nil
	}}
}

// parseIncrOptions parses the options of an increment, the last arguments. If there are bounds, the
// operation's Deltas get them for each of so many keys.
func parseIncrOptions(r *Request, options []option[Request], rest [][]byte, keys int) error {
	r.bounds, r.bounded = [2]int64{math.MinInt64, math.MaxInt64}, false
	if _, err := parseOptions(r, options, rest, ""); err != nil || !r.bounded {
		return err
	}
	points := r.Op.Points[1:]
	if r.bounds[0] > r.bounds[1] && points[0] == 0 && points[1] == 0 {
		return store.ErrBoundsCross // in steps the store compares them
	}
	for range keys {
		r.Op.Deltas = append(r.Op.Deltas, r.bounds[:]...)
	}
	return nil
}

// parseCIncr parses CINCRBY, CDECRBY, CINCR and CDECR: key, opid and, unless
// it is fixed to 1, the delta, which sign makes negative.
func parseCIncr(sign int64, hasDelta bool) func(*Request) error {
	return func(r *Request) error {
		delta, rest := int64(1), r.Args[3:]
		if hasDelta {
			var ok bool
			if delta, r.Op.Points[0], ok = parseAmount(rest[0]); !ok {
				return notAmount(errNotInteger, rest[0])
			}
			rest = rest[1:]
		}
		if sign < 0 && delta == math.MinInt64 {
			return errDecrOverflow
		}
		op := r.Op
		op.Kind, op.Key, op.ID, op.Delta = store.CIncrBy, r.Args[1], r.Args[2], sign*delta
		if err := checkOpID(op.ID); err != nil {
			return err
		}
		if len(rest) == 0 {
			return nil
		}
		r.expiry = expiryText{}
		if err := parseIncrOptions(r, cIncrOptions, rest, 1); err != nil {
			return err
		}
		switch expires := r.expiry.text != nil; {
		case expires || op.Flags&store.NoExpire != 0:
			op.Kind = store.CIncrEx
			op.Flags |= store.Strict
			return setExpiry(r, r.expiry)
		case op.Flags&store.IfNoExpire != 0:
			return errENXAlone
		}
		return nil
	}
}

// replyCIncr answers the counter's value, WITHSTATUS also whether the
// operation was applied now; integers in RESP3 too.
func replyCIncr(w *resp.Writer, r *Result) {
	if r.Style == withStatus {
		w.Array(2)
		writeAmount(w, r.Op.Value, r.Op.Scale)
		w.Int(bit(r.Op.Applied))
		return
	}
	writeAmount(w, r.Op.Value, r.Op.Scale)
}

// writeAmount answers an amount of a counter: an integer, in a table with SCALE a string.
func writeAmount(w *resp.Writer, n int64, scale uint8) {
	if scale == 0 {
		w.Int(n)
		return
	}
	var digits [maxDecimal]byte
	w.Bulk(store.AppendDecimal(digits[:0], n, scale))
}

// maxDecimal is at least how many bytes an amount takes.
const maxDecimal = 24

// bit is 1 for true.
func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// parseCMIncr parses CMINCRBY opid numkeys key delta [key delta ...] …
func parseCMIncr(r *Request) error {
	op := r.Op
	op.Kind, op.ID = store.CMIncrBy, r.Args[1]
	n, ok := parseInt(r.Args[2])
	switch {
	case !ok:
		return errNotInteger
	case n < 1:
		return errNumKeysPositive
	case n > int64(len(r.Args)-3)/2:
		return errNumKeys
	}
	pairs, rest := r.Args[3:3+2*n], r.Args[3+2*n:]
	for i := 0; i < len(pairs); i += 2 {
		if !checkKey(pairs[i]) {
			return store.ErrKeySize
		}
		if !r.addPair(pairs[i], pairs[i+1]) {
			return notAmount(errNotInteger, pairs[i+1])
		}
	}
	if err := checkOpID(op.ID); err != nil {
		return err
	}
	if store.Repeat(op.Keys) {
		return store.ErrSameKeys
	}
	if err := parseIncrOptions(r, incrOptions, rest, int(n)); err != nil {
		return err
	}
	if all, ok := op.Object.([]store.Points); ok || op.Points != [3]store.Points{} {
		all = append(all, make([]store.Points, len(op.Keys)-len(all))...)
		for len(all) < len(op.Deltas) {
			all = append(all, op.Points[1:]...)
		}
		op.Object, op.Points = all, [3]store.Points{}
	}
	return nil
}

// addPair adds a key, and an amount for it, to an operation on several; false: the amount is no number.
func (r *Request) addPair(key, amount []byte) bool {
	op := r.Op
	n, points, ok := parseAmount(amount)
	if points > 0 {
		all, _ := op.Object.([]store.Points)
		op.Object = append(append(all, make([]store.Points, len(op.Keys)-len(all))...), points)
	}
	op.Keys, op.Deltas = append(op.Keys, key), append(op.Deltas, n)
	return ok
}

// replyCMIncr answers the counters' values, WITHSTATUS also whether the
// operation was applied now.
func replyCMIncr(w *resp.Writer, r *Result) {
	if r.Style == withStatus {
		w.Array(2)
	}
	w.Array(len(r.Op.Values))
	for i, n := range r.Op.Values {
		writeAmount(w, n, r.Op.ScaleOf(i))
	}
	if r.Style == withStatus {
		w.Int(bit(r.Op.Applied))
	}
}

// parseCSeen parses CSEEN key opid, and CSEEN key IDMP pid iid, which asks for an
// INCREX.
func parseCSeen(r *Request) error {
	op, args := r.Op, r.Args
	op.Kind, op.Key, op.ID = store.CSeen, args[1], args[2]
	switch {
	case len(args) == 3:
		return checkOpID(op.ID)
	case len(args) == 5 && is(args[2], "IDMP"):
		var err error
		op.ID, err = pairID(args[3], args[4])
		return err
	}
	return errSyntax
}

// replyCSeen answers null, 1 for maybe (APPROX), or what is remembered of the
// operation (EXACT).
func replyCSeen(w *resp.Writer, r *Result) {
	switch {
	case !r.Op.Found:
		w.Null()
	case !r.Op.Exact:
		w.Int(1)
	default:
		region, member := r.Op.Object.(string)
		if h := r.Op.Seen.Hold; h != nil {
			replyHold(w, &r.Op.Seen, h, r.Op.Scale)
			return
		}
		w.Array(3 + int(bit(member)))
		if r.Op.Seen.Is(store.Items) {
			w.Null()
			w.Null()
		} else {
			writeAmount(w, r.Op.Seen.Delta, r.Op.Scale)
			writeAmount(w, r.Op.Seen.Result, r.Op.Scale)
		}
		w.Int(r.Op.Seen.UnixMs)
		if member {
			w.BulkString(region)
		}
	}
}

// replyHold answers what is remembered of a hold: amount, first reply, when it was opened, and how it ended.
func replyHold(w *resp.Writer, s *store.Seen, h *store.HoldEnd, scale uint8) {
	w.Array(4)
	writeAmount(w, s.Delta, scale)
	writeAmount(w, s.Result, scale)
	w.Int(h.Opened)
	switch h.How {
	case store.Settled:
		w.Bulk(store.AppendDecimal([]byte("settled "), h.Settled, scale))
	case store.Cancelled:
		w.BulkString("cancelled")
	case store.Expired:
		w.BulkString("expired")
	default:
		w.BulkString("open")
	}
}

// parseCGet parses CGET key [REGIONS].
func parseCGet(r *Request) error {
	r.Op.Kind, r.Op.Key = store.Get, r.Args[1]
	switch {
	case len(r.Args) == 2:
		return nil
	case len(r.Args) == 3 && is(r.Args[2], "REGIONS"):
		r.Op.Kind = store.ByRegion
		return nil
	}
	return errSyntax
}

// replyCGet answers a counter's value, with REGIONS what each region has added to it, or null if
// there is no counter.
func replyCGet(w *resp.Writer, r *Result) {
	shares, ok := r.Op.Object.([]store.RegionShare)
	if !ok {
		replyIntOrNull(w, r)
		return
	}
	w.Map(len(shares))
	for _, s := range shares {
		if w.BulkString(s.Region); s.Object {
			w.BulkString("object")
		} else {
			writeAmount(w, s.Value, r.Op.Scale)
		}
	}
}

// replyIntOrNull answers a counter's value, or null if there is none.
func replyIntOrNull(w *resp.Writer, r *Result) {
	if r.Op.Found {
		writeAmount(w, r.Op.Value, r.Op.Scale)
	} else {
		w.Null()
	}
}

// replyCMGet answers an integer or null for each key.
func replyCMGet(w *resp.Writer, r *Result) {
	w.Array(len(r.Op.Values))
	for i, v := range r.Op.Values {
		if r.Op.Founds[i] {
			writeAmount(w, v, r.Op.ScaleOf(i))
		} else {
			w.Null()
		}
	}
}

// parseKey returns the parser of a command whose only argument is its key.
func parseKey(kind store.Kind) func(*Request) error {
	return func(r *Request) error {
		r.Op.Kind, r.Op.Key = kind, r.Args[1]
		return nil
	}
}

// parseKeys returns the parser of a command all of whose arguments are keys.
func parseKeys(kind store.Kind) func(*Request) error {
	return func(r *Request) error {
		r.Op.Kind = kind
		r.Op.Keys = append(r.Op.Keys, r.Args[1:]...)
		return nil
	}
}

// incrArgs documents the options of the CINCRBY family after its own arguments.
func incrArgs(own ...Arg) []Arg {
	return append(onceArgs(own...),
		opt(with("LBOUND", intArg("lowerbound"))), opt(with("UBOUND", intArg("upperbound"))))
}

// onceArgs are a command's own arguments, and those of every operation with a time.
func onceArgs(own ...Arg) []Arg {
	return append(own, opt(with("AT", timeArg("unix-time-milliseconds"))), opt(word("WITHSTATUS")))
}

const (
	groupCounter   = "counter"
	idempotentNote = "The same opid sent again within the table's window changes nothing: EXACT tables " +
		"answer the original result, APPROX tables the present value. EX, PX, EXAT, PXAT and PERSIST set " +
		"the counter's expiry together with it, with ENX only if it has none; a duplicate changes no expiry. " +
		"A value below LBOUND or above UBOUND, or beyond the table's MIN or MAX, is refused with BOUND: nothing " +
		"changes, and the opid can be used again."
)

var counterACL = []string{"@counter"}

// cIncrCommand declares CINCRBY, CDECRBY, CINCR or CDECR.
func cIncrCommand(name string, arity int, does string, parse func(*Request) error, delta ...Arg) Command {
	return Command{
		Name: name, Arity: arity, Flags: Write | DenyOOM | Fast, Keys: oneKey(keyReadUpdate),
		Group: groupCounter, ACL: counterACL, Since: "0.2.0",
		Summary: does + " once per operation id. " + idempotentNote,
		Args: append(incrArgs(append([]Arg{keyArg(), strArg("opid")}, delta...)...), expiryArg("PERSIST"),
			opt(word("ENX"))),
		Parse: parse, Reply: replyCIncr,
	}
}

// counterCommands are the idempotent counters.
var counterCommands = family(Command{Group: groupCounter, ACL: counterACL, Since: "0.2.0"}, []Command{
	cIncrCommand("cincrby", -4, "Adds a delta to a counter", parseCIncr(1, true), intArg("delta")),
	cIncrCommand("cdecrby", -4, "Subtracts a delta from a counter", parseCIncr(-1, true), intArg("delta")),
	cIncrCommand("cincr", -3, "Adds 1 to a counter", parseCIncr(1, false)),
	cIncrCommand("cdecr", -3, "Subtracts 1 from a counter", parseCIncr(-1, false)),
	{
		Name: "cmincrby", Arity: -5, Flags: Write | DenyOOM | MovableKeys,
		Keys:       KeySpec{First: 2, Step: 2, NumKeys: true, Flags: keyReadUpdate},
		Complexity: "O(N), where N is the number of keys",
		Summary: "Adds a delta to each of several counters, all or none, once per operation id: a transfer. " +
			"If one counter would leave a bound, LBOUND, UBOUND or its table's, an error names it and nothing " +
			"changes. The counters are of one table, or of EXACT tables; in a cluster of one slot.",
		Args: incrArgs(strArg("opid"), intArg("numkeys"),
			multi(block("data", keyArg(), intArg("delta")))),
		Parse: parseCMIncr, Reply: replyCMIncr,
	},
	{
		Name: "cseen", Arity: -3, Flags: ReadOnly | Fast, Keys: oneKey(keyRead),
		Summary: "Returns what the table remembers of an operation, without applying it: delta, result, " +
			"time and, in one of several regions, which region applied it. IDMP names an operation of " +
			"INCREX. CL.THROTTLE has its quantity and the time at which all permits are there again (unix µs), " +
			"CGETDEL the delta 0 and the value that it deleted, BF.CADD and CMS.CINCRBY null for both.",
		Args: []Arg{keyArg(), oneOf("operation", strArg("opid"), with("IDMP", idmpArg))}, Parse: parseCSeen,
		Reply: replyCSeen,
	},
	{
		Name: "cget", Arity: -2, Flags: ReadOnly | Fast, Keys: oneKey(keyRead),
		Summary: "Returns a counter as an integer. With REGIONS, in one of several regions, it returns " +
			"what each region has added, by name; a removed region appears as NAME#NUMBER, and this one as " +
			"object where the key holds a filter or sketch here.",
		Args: []Arg{keyArg(), opt(word("REGIONS"))}, Parse: parseCGet, Reply: replyCGet,
	},
	{
		Name: "cmget", Arity: -2, Flags: ReadOnly | Fast, Keys: manyKeys(keyRead),
		Complexity: "O(N), where N is the number of keys", Tips: []string{"request_policy:multi_shard"},
		Summary: "Returns several counters as integers.", Args: []Arg{multi(keyArg())},
		Parse: parseKeys(store.MGet), Reply: replyCMGet,
	},
})
