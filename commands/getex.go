package commands

import (
	"errors"

	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
)

// The styles of GETEX. Redis looks at the expiry only after the key: with one
// that is refused, a key that does not exist is still answered with null.
const (
	expiryGood Style = iota
	expiryNotInteger
	expiryInvalid
)

// getexOptions are the options of GETEX.
var getexOptions = []option[Request]{
	setFlag("PERSIST", classExpiry, store.NoExpire),
	expiryOption("EX", 1000, true),
	expiryOption("PX", 1, true),
	expiryOption("EXAT", 1000, false),
	expiryOption("PXAT", 1, false),
}

// parseGetex parses GETEX key [expiry].
func parseGetex(r *Request) error {
	r.Op.Kind, r.Op.Key = store.GetEx, r.Args[1]
	r.expiry = setExpiryText{}
	if _, err := parseOptions(r, getexOptions, r.Args[2:], ""); err != nil {
		return err
	}
	e := &r.expiry
	if e.text == nil {
		return nil
	}
	switch err := setExpiry(r, e.text, e.unit, e.base); {
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

// getexCommands read a counter and change when it expires.
var getexCommands = []Command{{
	Name: "getex", Arity: -2, Flags: Write | Fast, Keys: oneKey("RW access update"), Group: groupString, ACL: stringACL,
	Since: "6.2.0", Complexity: "O(1)",
	Summary: "Returns a counter and sets or removes its expiry. Operation ids do not expire with it.",
	Args: []Arg{keyArg(), opt(oneOf("expiration",
		with("EX", intArg("seconds")), with("PX", intArg("milliseconds")),
		with("EXAT", timeArg("unix-time-seconds")), with("PXAT", timeArg("unix-time-milliseconds")),
		word("PERSIST")))},
	Parse: parseGetex, Reply: replyGetex,
}}
