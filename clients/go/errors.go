package fbfkv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Outcome says what is known of an operation that ended in an error.
type Outcome int

const (
	// Unknown: the operation may have been applied. Do with the same Op, or the same operation with
	// the same ID, within the table's WINDOW, finds out and has it applied once.
	Unknown Outcome = iota
	// NotApplied: it has not been applied, and no try that is still under way can change
	// that. Of an operation that may have been sent before (its opid is the caller's, so the package
	// cannot know), only ErrMismatch, ErrEnded, ErrExpired and ErrArgument say so.
	NotApplied
)

// String returns "outcome unknown" or "not applied".
func (o Outcome) String() string {
	if o == NotApplied {
		return "not applied"
	}
	return "outcome unknown"
}

// Error is what became of an operation without a value.
type Error struct {
	// Op is the addition that was tried, for Do. It is zero for any other operation, also for an
	// addition with a bound or an expiry: ask for that again, with ID.
	Op  Op
	Key string // the first one
	// ID is the opid. It is empty if there is none yet, since the server could not be asked for the time.
	ID      string
	Outcome Outcome
	// Err is the most telling error of all tries: the last answer of the server, else the last
	// failure of a connection, else that there was no answer in time.
	Err     error
	Server  string        // the address that was asked; of a cluster those that it was given
	Tries   int           // that failed
	Elapsed time.Duration // since the first one began
	does    string        // to the key
	earlier error         // of the first try that may have been applied, if it is not Err
	context error         // of the caller's context, if it ended the tries
}

// Error implements error.
func (e *Error) Error() string {
	text := fmt.Sprintf("fbfkv: %s %q (opid %q): %v", e.does, e.Key, e.ID, e.Outcome)
	if e.Tries > 1 {
		text += fmt.Sprintf(" after %d tries in %v", e.Tries, e.Elapsed.Round(time.Millisecond))
	}
	if e.Server != "" {
		text += " at " + e.Server
	}
	if e.context != nil {
		text += fmt.Sprintf(": %v", e.context)
	}
	text += fmt.Sprintf(": %v", e.Err)
	if e.Outcome == Unknown && e.earlier != nil {
		text += fmt.Sprintf(" (an earlier try: %v)", e.earlier)
	}
	return text
}

// Unwrap returns Err, one of the errors below if it is the server's answer, and the error of
// the caller's context if that ended the tries. Only then is it a context.DeadlineExceeded.
func (e *Error) Unwrap() []error {
	all := []error{e.Err}
	if answer, ok := answerOf(e.Err); ok {
		all = append(all, answer.code())
	}
	if e.context != nil {
		all = append(all, e.context)
	}
	return all
}

// What errors.Is finds in an Error. Those of the first group are final. The others pass: they were
// the last answer when the time for retries was over.
var (
	// ErrStale: the operation is older than what the table remembers. Unless the package
	// made it just now, it may have been applied long ago: look at the counter.
	ErrStale error = code("STALE")
	// ErrMismatch: the opid belongs to another operation, with another delta.
	ErrMismatch error = code("MISMATCH")
	// ErrFuture: the operation's time is later than the server's clock and SKEW allow.
	ErrFuture error = code("FUTURE")
	// ErrArgument: the server can never apply the operation as it is: its opid or its key is
	// empty or too long, or its time is no time in milliseconds.
	ErrArgument error = code("ARGUMENT")
	// ErrBound: the counter would leave Min, Max or the bounds of its table. The opid is not used up.
	ErrBound error = code("BOUND")
	// ErrNoHold: no hold with this opid is known. If there was one, it ended longer ago than the WINDOW.
	ErrNoHold error = code("NOHOLD")
	// ErrEnded: the hold was settled, with another amount, or cancelled.
	ErrEnded error = code("ENDED")
	// ErrExpired: the hold's time was over, and nothing was applied.
	ErrExpired error = code("EXPIRED")
	// ErrNoRights: this region's share of a counter with bounds does not suffice.
	ErrNoRights error = code("NORIGHTS")
	// ErrWrongType: the key holds something else.
	ErrWrongType error = code("WRONGTYPE")
	// ErrOverflow: the counter would leave the range of int64.
	ErrOverflow error = code("OVERFLOW")
	// ErrSketch: the count-min sketch does not exist, or cannot count that.
	ErrSketch error = code("CMS:")
	// ErrCrossSlot: in a cluster the keys of one operation must be in one slot.
	ErrCrossSlot error = code("CROSSSLOT")
	// ErrNoAuth, ErrWrongPass and ErrNoPerm: the server does not know or does not permit the user.
	ErrNoAuth    error = code("NOAUTH")
	ErrWrongPass error = code("WRONGPASS")
	ErrNoPerm    error = code("NOPERM")

	// ErrMisconf: the server refuses writes, since its disk is full or has failed.
	ErrMisconf error = code("MISCONF")
	// ErrLoading: the server starts.
	ErrLoading error = code("LOADING")
	// ErrOutOfMemory: a memory cap of the server or the table is reached.
	ErrOutOfMemory error = code("OOM")
	// ErrMaxClients: the server has as many clients as it may.
	ErrMaxClients error = code("MAXCLIENTS")
	// ErrMoved: the node does not lead the key's shard, and its redirects led nowhere.
	ErrMoved error = code("MOVED")
	// ErrClusterDown and ErrMasterDown: the key's shard has no leader, or this replica has lost it.
	ErrClusterDown error = code("CLUSTERDOWN")
	ErrMasterDown  error = code("MASTERDOWN")
	// ErrReadOnly: this region was removed or restored from a backup.
	ErrReadOnly error = code("READONLY")
	// ErrTryAgain: the shard lost its leader before it knew the outcome.
	ErrTryAgain error = code("TRYAGAIN")
)

// certain are the answers that say of every try, also of one that is still under way, that it is
// without effect.
var certain = []error{ErrMismatch, ErrEnded, ErrExpired, ErrArgument}

// code is the first word of a server's answer.
type code string

// Error implements error.
func (c code) Error() string { return "fbfkv: " + string(c) }

// answer is the text of an error that the server answered.
type answer string

// spoken are the answers that have no word of their own, by how they begin.
var spoken = map[string]code{
	"ERR increment or decrement would overflow": "OVERFLOW",
	"ERR operation time is in the future":       "FUTURE",
	"ERR max number of clients":                 "MAXCLIENTS",
	"ERR opid must be":                          "ARGUMENT",
	"ERR key must be":                           "ARGUMENT",
	"ERR AT is a time in milliseconds":          "ARGUMENT",
}

// code returns the first word of the answer, or the name of a known text.
func (a answer) code() code {
	for text, code := range spoken {
		if strings.HasPrefix(string(a), text) {
			return code
		}
	}
	word, _, _ := strings.Cut(string(a), " ")
	return code(word)
}

// answerOf returns the server's answer that err is, if it is one.
func answerOf(err error) (answer, bool) {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return "", false
	}
	return answer(reply.Error()), true
}

// verdict is what one try says of an operation.
type verdict struct {
	again   bool // another try may end otherwise
	unknown bool // this try may have been applied, or may be later
	lost    bool // the key's node may be another one than the map says
}

// judge judges one try by its error.
func judge(err error) verdict {
	if err == nil {
		return verdict{}
	}
	if a, ok := answerOf(err); ok {
		switch a.code() {
		case "MISCONF":
			return verdict{again: true, unknown: !strings.Contains(string(a), "nothing was applied")}
		case "TRYAGAIN", "UNKNOWN":
			return verdict{again: true, unknown: true}
		case "MOVED", "ASK", "CLUSTERDOWN", "MASTERDOWN", "READONLY":
			return verdict{again: true, lost: true}
		case "LOADING", "OOM", "BUSY", "MAXCLIENTS":
			return verdict{again: true}
		}
		return verdict{}
	}
	var network *net.OpError
	switch {
	case errors.Is(err, redis.ErrClosed):
		return verdict{}
	case errors.Is(err, errUnexpected):
		return verdict{unknown: true}
	case errors.Is(err, redis.ErrPoolTimeout):
		return verdict{again: true}
	case errors.As(err, &network) && network.Op == "dial": // nothing was sent
		return verdict{again: true, lost: true}
	}
	return verdict{again: true, unknown: true, lost: true}
}

// failure describes an operation that ended in err. Unknown is the error of the first of our
// tries that may have been applied, if there is one.
func failure(o call, unknown, err error) *Error {
	e := &Error{Err: err}
	var already *Error
	if errors.As(err, &already) { // of learn
		*e = *already
	}
	e.Op, e.Key, e.ID, e.does, e.Outcome = Op{}, o.op.Key, o.op.ID, o.does, Unknown
	if o.plain {
		e.Op = o.op
	}
	if unknown != nil && unknown.Error() != err.Error() {
		e.earlier = unknown
	}
	// Of an operation that may have been sent before, a refusal says only that this server has not
	// applied it so far. Another region may have, and an earlier try may still be on its way.
	is := func(code error) bool { return errors.Is(e, code) }
	if unknown == nil && o.fresh || slices.ContainsFunc(certain, is) {
		e.Outcome = NotApplied
	}
	return e
}

// trail is what the tries of an operation leave for its error.
type trail struct {
	begun time.Time
	tries int
	told  error // the most telling error so far
}

// note adds a try that failed.
func (t *trail) note(err error) {
	t.tries++
	if t.told == nil || telling(err) >= telling(t.told) {
		t.told = err
	}
}

// telling ranks errors: the server's answer says most of the reason, a time limit least.
func telling(err error) int {
	if _, ok := answerOf(err); ok {
		return 2
	}
	var network *net.OpError
	if errors.As(err, &network) && !network.Timeout() || errors.Is(err, io.EOF) {
		return 1
	}
	return 0
}

// completed adds to an error what its tries left. A time limit of one try is ours, and no
// context.DeadlineExceeded of the caller.
func (c *Client) completed(e *Error, t *trail) *Error {
	e.Server, e.Tries, e.Elapsed = c.server, t.tries, time.Since(t.begun)
	e.Err = t.told
	switch {
	case e.Err == context.DeadlineExceeded, errors.Is(e.Err, errNoAnswer):
		e.Err = fmt.Errorf("no answer within %v", c.o.Timeout)
	case errors.Is(e.Err, context.DeadlineExceeded): // such as "dial tcp 10.0.0.1:6379: i/o timeout"
		e.Err = errors.New(e.Err.Error())
	}
	if e.earlier != nil && e.earlier.Error() == e.Err.Error() {
		e.earlier = nil
	}
	return e
}

// errNoAnswer is the error of a try whose time was over.
var errNoAnswer = errors.New("no answer in time")
