package commands

import (
	"math"
	"strconv"

	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
)

// Holds (CHOLD and its family), and the idempotent drain CGETDEL.

// statusOptions are the options of CSETTLE and CCANCEL.
var statusOptions = incrOptions[1:]

// holdOptions are the options of CHOLD.
var holdOptions = append(incrOptions[:len(incrOptions):len(incrOptions)],
	expiryOptions(16, false, func(r *Request) *Request { return r })...)

// parseCHold parses CHOLD key opid amount EX seconds|… [option …].
func parseCHold(r *Request) error {
	r.expiry = expiryText{}
	if err := r.hold(store.CHold, true, holdOptions); err != nil {
		return err
	}
	if r.expiry.text == nil {
		return refusal("ERR CHOLD needs EX, PX, EXAT or PXAT: when the hold ends by itself")
	}
	if err := setExpiry(r, r.expiry); err != nil {
		return err
	}
	if r.Op.ExpireAt > maxHoldEnd {
		return refusal("ERR CHOLD would set the amount aside until after the year 9999: EX and EXAT are " +
			"in seconds, PX and PXAT in milliseconds")
	}
	return nil
}

// maxHoldEnd is when the year 9999 ends, unix ms. A hold that ends later has its time in another unit.
const maxHoldEnd = 253_402_300_799_999

// parseCSettle parses CSETTLE key opid amount [option …].
func parseCSettle(r *Request) error { return r.hold(store.CSettle, true, statusOptions) }

// parseCCancel parses CCANCEL key opid [WITHSTATUS].
func parseCCancel(r *Request) error { return r.hold(store.CCancel, false, statusOptions[:1]) }

// hold reads key, opid, the amount if there is one, and options.
func (r *Request) hold(kind store.Kind, hasAmount bool, options []option[Request]) error {
	op, rest := r.Op, r.Args[3:]
	op.Kind, op.Key, op.ID = kind, r.Args[1], r.Args[2]
	if hasAmount {
		var ok bool
		if op.Delta, op.Points[0], ok = parseAmount(rest[0]); !ok {
			return notAmount(errNotInteger, rest[0])
		}
		rest = rest[1:]
	}
	if err := checkOpID(op.ID); err != nil {
		return err
	}
	return parseIncrOptions(r, options, rest, 1)
}

// parseCGetDel parses CGETDEL key opid [AT ms].
func parseCGetDel(r *Request) error {
	r.Op.Kind, r.Op.Key, r.Op.ID = store.CGetDel, r.Args[1], r.Args[2]
	if err := checkOpID(r.Op.ID); err != nil {
		return err
	}
	_, err := parseOptions(r, incrOptions[:1], r.Args[3:], "")
	return err
}

// holdsOptions are the options of CHOLDS.
var holdsOptions = []option[Request]{
	intOption("COUNT", 1, func(r *Request, n int64) { r.Op.At = n }),
	{token: "CURSOR", class: 2, value: func(r *Request, v []byte) error {
		cursor, ok := parseUint(v)
		if !ok || cursor > math.MaxUint32 {
			return errInvalidCursor
		}
		r.Op.Delta = int64(cursor)
		return nil
	}},
}

// maxHoldsCount bounds the holds that one CHOLDS lists, so that it holds nobody up.
const maxHoldsCount = 10_000

// parseCHolds parses CHOLDS key [COUNT n] [CURSOR c].
func parseCHolds(r *Request) error {
	op := r.Op
	op.Kind, op.Key, op.At = store.CHolds, r.Args[1], 10
	if _, err := parseOptions(r, holdsOptions, r.Args[2:], ""); err != nil {
		return err
	}
	if op.At < 1 {
		return errNotInteger
	}
	op.At = min(op.At, maxHoldsCount)
	return nil
}

// replyCHeld answers the counter's value, what positive and negative holds set aside, and how many are open.
func replyCHeld(w *resp.Writer, r *Result) {
	held, _ := r.Op.Object.(store.HeldInfo)
	w.Array(4)
	for _, n := range []int64{r.Op.Value, held.Up, held.Down} {
		writeAmount(w, n, r.Op.Scale)
	}
	w.Int(held.Open)
}

// replyCHolds answers the next cursor, and open holds.
func replyCHolds(w *resp.Writer, r *Result) {
	holds, _ := r.Op.Object.([]store.HoldInfo)
	w.Array(2)
	w.BulkString(strconv.FormatInt(r.Op.Value, 10))
	w.Array(len(holds))
	for _, h := range holds {
		w.Array(3)
		w.BulkString(h.ID)
		writeAmount(w, h.Amount, r.Op.Scale)
		w.Int(h.Expires)
	}
}

const holdNote = " A retry gets the first reply. BOUND changes nothing."

// holdCommands are the holds, and CGETDEL.
var holdCommands = family(Command{Group: groupCounter, ACL: counterACL, Since: "0.2.0"}, []Command{
	{
		Name: "chold", Arity: -6, Flags: Write | DenyOOM | Fast, Keys: oneKey(keyReadUpdate),
		Summary: "Sets an amount of a counter aside, once per operation id, until CSETTLE, CCANCEL or the time " +
			"ends the hold. Bounds are judged as if all holds of this sign were settled in full; the reply is " +
			"what would be left then. EXACT tables only." + holdNote,
		Args: incrArgs(keyArg(), strArg("opid"), intArg("amount"), oneOf("expiration",
			with("EX", intArg("seconds")), with("PX", intArg("milliseconds")),
			with("EXAT", timeArg("unix-time-seconds")), with("PXAT", timeArg("unix-time-milliseconds")))),
		Parse: parseCHold, Reply: replyCIncr,
	},
	{
		Name: "csettle", Arity: -4, Flags: Write | Fast, Keys: oneKey(keyReadUpdate),
		Summary: "Ends a hold and adds to the counter what has happened: more or less than was held, or 0. " +
			"Returns the counter. ENDED says how the hold ended before, EXPIRED that its time had come, NOHOLD " +
			"that it is not known." + holdNote,
		Args:  append([]Arg{keyArg(), strArg("opid"), intArg("amount")}, incrArgs()[1:]...),
		Parse: parseCSettle, Reply: replyCIncr,
	},
	{
		Name: "ccancel", Arity: -3, Flags: Write | Fast, Keys: oneKey(keyReadUpdate),
		Summary: "Ends a hold and adds nothing. Returns the counter as it is now, also if it is sent again.",
		Args:    []Arg{keyArg(), strArg("opid"), opt(word("WITHSTATUS"))}, Parse: parseCCancel,
		Reply: replyCIncr,
	},
	{
		Name: "cheld", Arity: 2, Flags: ReadOnly | Fast, Keys: oneKey(keyRead),
		Summary: "Returns a counter's value, the sums of its positive and of its negative open holds, and their " +
			"number.",
		Args: []Arg{keyArg()}, Parse: parseKey(store.CHeld), Reply: replyCHeld,
	},
	{
		Name: "cholds", Arity: -2, Flags: ReadOnly, Keys: oneKey(keyRead),
		Complexity: "O(N), where N is COUNT",
		Summary: "Lists open holds of a counter as opid, amount and when it expires (unix ms), about COUNT at a " +
			"time (10 by default); the cursor 0 ends the list. As with SCAN, a hold may come twice.",
		Args:  []Arg{keyArg(), opt(with("COUNT", intArg("count"))), opt(with("CURSOR", intArg("cursor")))},
		Parse: parseCHolds, Reply: replyCHolds,
	},
	{
		Name: "cgetdel", Arity: -3, Flags: Write | Fast, Keys: oneKey(keyReadDelete),
		Summary: "Returns a counter and deletes it, once per operation id: a retry gets the same reply. EXACT " +
			"tables only. Open holds stay. In regions it subtracts its answer instead, so that " +
			"what others count meanwhile stays.",
		Args:  []Arg{keyArg(), strArg("opid"), opt(with("AT", timeArg("unix-time-milliseconds")))},
		Parse: parseCGetDel, Reply: replyValue,
	},
})
