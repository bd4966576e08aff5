package commands

import (
	"math"

	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
)

// increxRequest is INCREX while its options are read. Redis looks at the syntax
// of all of them before it looks at any number.
type increxRequest struct {
	delta, lower, upper []byte // as written; nil: not given
	id, pid, iid        []byte
	named, idmp         bool
	request             *Request // its flags and its expiry are the options'
}

// The classes of INCREX's options. PERSIST and ENX exclude each other, and each
// excludes another of its own kind.
const (
	classBy = 1 << iota
	classLower
	classUpper
	classSaturate
	classExpire
	classENX
	classID
	classTTL
)

// increxOptions are the options of INCREX.
var increxOptions = append([]option[increxRequest]{
	{token: "BYINT", class: classBy,
		value: func(q *increxRequest, v []byte) error { q.delta = v; return nil }},
	{token: "BYFLOAT", class: classBy,
		value: func(q *increxRequest, v []byte) error {
			q.delta = v
			q.request.Op.Flags |= store.Float
			return nil
		}},
	{token: "LBOUND", class: classLower,
		value: func(q *increxRequest, v []byte) error { q.lower = v; return nil }},
	{token: "UBOUND", class: classUpper,
		value: func(q *increxRequest, v []byte) error { q.upper = v; return nil }},
	{token: "SATURATE", class: classSaturate,
		flag: func(q *increxRequest) { q.request.Op.Flags |= store.Saturate }},
	{token: "WITHTTL", class: classTTL,
		flag: func(q *increxRequest) { q.request.Op.Flags |= store.WithTTL }},
	{token: "OPID", class: classID,
		value: func(q *increxRequest, id []byte) error { q.named, q.id = true, id; return nil }},
	{token: "IDMP", class: classID,
		pair: func(q *increxRequest, pid, iid []byte) { q.idmp, q.pid, q.iid = true, pid, iid }},
}, incrExpiries(classExpire, classENX, func(q *increxRequest) *Request { return q.request })...)

// incrExpiries are the expiry options of an increment: PERSIST removes the expiry, and
// ENX sets one only where there is none.
func incrExpiries[T any](expire, enx uint32, of func(*T) *Request) []option[T] {
	return append([]option[T]{
		{token: "PERSIST", class: expire | enx, flag: func(t *T) { of(t).Op.Flags |= store.NoExpire }},
		{token: "ENX", class: enx, flag: func(t *T) { of(t).Op.Flags |= store.IfNoExpire }},
	}, expiryOptions(expire, false, of)...)
}

// parseIncrex parses INCREX key [option …].
func parseIncrex(r *Request) error {
	q := increxRequest{request: r}
	r.expiry = expiryText{}
	if _, err := parseOptions(&q, increxOptions, r.Args[2:], ""); err != nil {
		return err
	}
	if r.Op.Flags&store.IfNoExpire != 0 && r.expiry.text == nil {
		return errENXAlone
	}
	op := r.Op
	op.Kind, op.Key = store.IncrEx, r.Args[1]
	if err := q.numbers(op); err != nil {
		return err
	}
	if err := setExpiry(r, r.expiry); err != nil {
		return err
	}
	return q.identify(op)
}

// numbers reads the increment and the bounds.
func (q *increxRequest) numbers(op *store.Op) error {
	op.Delta = 1
	lower, upper := int64(math.MinInt64), int64(math.MaxInt64)
	for i, n := range []struct {
		text []byte
		dst  *int64
		name string
	}{{q.delta, &op.Delta, "Increment"}, {q.lower, &lower, "LBOUND"}, {q.upper, &upper, "UBOUND"}} {
		if n.text == nil {
			continue
		}
		var ok bool
		*n.dst, op.Points[i], ok = parseAmount(n.text)
		refused := error(refusal("ERR " + n.name + " is not an integer or out of range"))
		switch float := i == 0 && op.Flags&store.Float != 0; {
		case !ok && float:
			return notAmount(errNotFloat, n.text)
		case i == 0 && !float && (!ok || op.Points[0] != 0):
			return notWhole(refused, n.text, "BYFLOAT")
		case !ok:
			return notAmount(refused, n.text)
		}
	}
	if lower > upper && op.Points[1] == 0 && op.Points[2] == 0 {
		return store.ErrBoundsCross // in steps the store compares them
	}
	op.Deltas = append(op.Deltas, lower, upper)
	return nil
}

// identify makes the operation idempotent if it has an opid, or names its producer and
// its number: then the opid is the pair, so that ("a", "bc") is another than ("ab", "c").
func (q *increxRequest) identify(op *store.Op) (err error) {
	switch {
	case q.named:
		op.Kind, op.ID = store.CIncrEx, q.id
		return checkOpID(q.id)
	case q.idmp:
		op.Kind = store.CIncrEx
		op.Flags |= store.PairID
		op.ID, err = pairID(q.pid, q.iid)
	}
	return err
}

// pairID returns the opid that IDMP's pair stands for.
func pairID(pid, iid []byte) ([]byte, error) {
	id := store.AppendPairID(nil, pid, iid)
	if len(pid) == 0 || len(iid) == 0 || len(id) > store.MaxOpID {
		return nil, errPairSize
	}
	return id, nil
}

// replyIncrex answers the counter's value and the increment that was made: 0 if
// it would have been out of bounds. WITHTTL adds what the counter has left.
func replyIncrex(w *resp.Writer, r *Result) {
	w.Array(1 + len(r.Op.Values))
	writeAmount(w, r.Op.Value, r.Op.Scale)
	writeAmount(w, r.Op.Values[0], r.Op.Scale)
	for _, ms := range r.Op.Values[1:] {
		w.Int(ms)
	}
}

// idmpArg documents what follows IDMP.
var idmpArg = block("idempotency", strArg("pid"), strArg("iid"))

// increxCommands are the bounded increments.
var increxCommands = []Command{{
	Name: "increx", Arity: -2, Flags: Write | DenyOOM | Fast, Keys: oneKey(keyReadUpdate),
	Group: groupString, ACL: stringACL, Since: "8.8.0",
	Summary: "Adds to a counter within bounds and sets its expiry. Returns its value and the increment " +
		"made, which is 0 if the result would be out of bounds. BYFLOAT is for tables with SCALE. With OPID, once per operation id; with " +
		"IDMP, once per pair of producer id and idempotent id. WITHTTL adds the milliseconds that the " +
		"counter has left, now also for a duplicate; -1 if it does not expire.",
	Args: []Arg{
		keyArg(), opt(oneOf("by", with("BYINT", intArg("increment")), with("BYFLOAT", dblArg("increment")))), opt(with("LBOUND", intArg("lowerbound"))),
		opt(with("UBOUND", intArg("upperbound"))), opt(word("SATURATE")),
		expiryArg("PERSIST"),
		opt(word("ENX")),
		opt(word("WITHTTL")),
		opt(oneOf("operation", with("OPID", strArg("opid")), with("IDMP", idmpArg))),
	},
	Parse: parseIncrex, Reply: replyIncrex,
}}
