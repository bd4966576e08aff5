package commands

import (
	"errors"
	"strings"

	"github.com/fbfkv/fbfkv/store"
)

// refusal is an error whose text is the whole error reply, code included.
type refusal string

// Error returns the reply's text.
func (r refusal) Error() string { return string(r) }

// The refusals that come before the store is asked; but for the last group
// they are Redis' own texts.
var (
	errSyntax        error = refusal("ERR syntax error")
	errNotInteger    error = refusal("ERR value is not an integer or out of range")
	errNoCounter     error = refusal("ERR value is not an integer or out of range: " + integerReason)
	errNotInt32      error = refusal("ERR value is out of range, value must between -2147483648 and 2147483647")
	errDecrOverflow  error = refusal("ERR decrement would overflow")
	errInvalidCursor error = refusal("ERR invalid cursor")
	errDBIndex       error = refusal("ERR DB index is out of range")
	errNXWithOthers  error = refusal("ERR NX and XX, GT or LT options at the same time are not compatible")
	errGTWithLT      error = refusal("ERR GT and LT options at the same time are not compatible")

	errNoAuth        error = refusal("NOAUTH Authentication required.")
	errWrongPass     error = refusal("WRONGPASS invalid username-password pair or user is disabled.")
	errTooManyLogins error = refusal("ERR too many failed logins from this address, try again later")
	errNoPassword    error = refusal("ERR AUTH <password> called without any password configured for the " +
		"default user. Are you sure your configuration is correct?")
	errHelloNoAuth error = refusal("NOAUTH HELLO must be called with the client already authenticated, " +
		"otherwise the HELLO AUTH <user> <pass> option can be used to authenticate the client and select " +
		"the RESP protocol version at the same time")
	errProtoNotInteger  error = refusal("ERR Protocol version is not an integer or out of range")
	errProtoUnsupported error = refusal("NOPROTO unsupported protocol version")

	errNestedMulti    error = refusal("ERR MULTI calls can not be nested")
	errExecNoMulti    error = refusal("ERR EXEC without MULTI")
	errDiscardNoMulti error = refusal("ERR DISCARD without MULTI")
	errExecAbort      error = refusal("EXECABORT Transaction discarded because of previous errors.")
	errWaitOnReplica  error = refusal("ERR WAIT cannot be used with replica instances. Please also note " +
		"that since Redis 4.0 if a replica is configured to be writable (which is not the default) writes " +
		"to replicas are just local and are not propagated.")
	errMonitors        error = refusal("ERR Replica can't interact with the keyspace")
	errNotInMulti      error = refusal("ERR Command not allowed inside a transaction")
	errWatchInMulti    error = refusal("ERR WATCH inside MULTI is not allowed")
	errTooManyWatched  error = refusal("ERR too many watched keys")
	errStopOnError     error = refusal("ERR CMULTI takes commands on keys only")
	errMultiTooLarge   error = refusal("ERR the queue of this transaction is too large")
	errNumKeys         error = refusal("ERR numkeys does not match the number of arguments")
	errNumKeysPositive error = refusal("ERR numkeys should be greater than 0")

	errENXAlone error = refusal("ERR ENX flag requires an expiration")
	errNotFloat error = refusal("ERR value is not a valid float")
	errPairSize error = refusal("ERR IDMP needs a pid and an iid, neither empty, of at most 512 bytes " +
		"together with the length of the pid")
)

// storeErrors gives every error of the store its reply. It is the only place
// where they are chosen; what is not listed is an ERR with its own text.
//
// Not applied, and the same opid may be used again: WRONGTYPE, OOM and every
// ERR. Not applied, and a new opid is needed if the operation is still wanted:
// STALE, MISMATCH. Unknown whether applied, so retry with the same opid:
// MISCONF of a failed commit. In a cluster, displaced (clusterroute.go) has more to say.
var storeErrors = []struct {
	err  error
	text string // "" or a code that ends in a space: the error's own text follows
}{
	{store.ErrNoSketch, ""},
	{store.ErrSketchExists, ""},
	{store.ErrSketchSize, ""},
	{store.ErrSketchCells, ""},
	{store.ErrSketchOptions, ""},
	{store.ErrSketchMemory, ""},
	{store.ErrSketchWindow, ""},
	{store.ErrSketchOver, ""},
	{store.ErrSketchUnder, ""},
	{store.ErrSketchMerge, ""},
	{store.ErrInnerProduct, ""},

	{store.ErrWrongType, "WRONGTYPE Operation against a key holding the wrong kind of value"},
	{store.ErrBound, "BOUND "},
	{store.ErrNoRights, "NORIGHTS "},
	{store.ErrNoHold, "NOHOLD "},
	{store.ErrLost, "LOST "},
	{store.ErrEnded, "ENDED "},
	{store.ErrHoldExpired, "EXPIRED "},
	{store.ErrStale, "STALE "},
	{store.ErrMismatch, "MISMATCH "},
	{store.ErrPartlySeen, "MISMATCH "},
	{store.ErrOtherThrottle, "MISMATCH "},
	{store.ErrPartlyHeard, "TRYAGAIN "},
	{store.ErrNotCaughtUp, "TRYAGAIN "},
	{store.ErrTableChanging, "TRYAGAIN "},
	{store.ErrAsking, "TRYAGAIN "},
	{store.ErrOtherItems, "MISMATCH "},
	{store.ErrOutOfMemory, "OOM "},
	{store.ErrUnknownOutcome, "MISCONF "},
	{store.ErrNotLeader, "CLUSTERDOWN "},
	{store.ErrRemoved, "READONLY nothing was applied: "},
	{store.ErrRestored, "READONLY nothing was applied: "},
	{store.ErrLeaving, "READONLY nothing was applied: "},
	{store.ErrUnheard, "MISCONF writes are refused, nothing was applied: "},
	{store.ErrDiskFull, "MISCONF writes are refused, nothing was applied: "},
	{store.ErrSnapshotRunning, "ERR Background save already in progress"},
}

// errorText returns the error reply for err.
func errorText(err error) string {
	var r refusal
	if errors.As(err, &r) {
		return string(r)
	}
	for i := range storeErrors {
		if e := &storeErrors[i]; errors.Is(err, e.err) {
			if e.text == "" || strings.HasSuffix(e.text, " ") {
				return e.text + err.Error()
			}
			return e.text
		}
	}
	return "ERR " + err.Error()
}

// wrongArity is the refusal of a request with too few or too many arguments. It shows the
// syntax of the idempotent counters, which no book on Redis explains.
func wrongArity(c *Command) string {
	text := "ERR wrong number of arguments for '" + c.fullName + "' command"
	if c.Group == groupCounter {
		text += ": " + c.Syntax()
	}
	return text
}

// maxQuoted is how much of a request an error reply repeats, as in Redis.
const maxQuoted = 128

// unknownCommand is the refusal of a request whose command does not exist.
func unknownCommand(args [][]byte) string {
	var b strings.Builder
	b.WriteString("ERR unknown command '")
	b.Write(cString(args[0], maxQuoted))
	b.WriteString("', with args beginning with: ")
	quoted := 0
	for _, a := range args[1:] {
		if quoted >= maxQuoted {
			break
		}
		a = cString(a, maxQuoted-quoted)
		b.WriteByte('\'')
		b.Write(a)
		b.WriteString("' ")
		quoted += len(a) + 3
	}
	return b.String()
}

// unknownSubcommand is the refusal of a container's second argument.
func unknownSubcommand(c *Command, name []byte) string {
	return "ERR unknown subcommand '" + string(cString(name, maxQuoted)) + "'. Try " +
		strings.ToUpper(c.fullName) + " HELP."
}

// tooManyArguments is the refusal of an optional argument too many, in the words
// that Redis has for it in some subcommands.
func tooManyArguments(container string, sub []byte) error {
	return refusal("ERR unknown subcommand or wrong number of arguments for '" +
		string(cString(sub, maxQuoted)) +
		"'. Try " + container + " HELP.")
}

// cString returns at most limit bytes of b, up to its first NUL: what Redis
// prints of an argument.
func cString(b []byte, limit int) []byte {
	b = b[:min(len(b), limit)]
	for i, c := range b {
		if c == 0 {
			return b[:i]
		}
	}
	return b
}
