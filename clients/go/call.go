package fbfkv

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// call is one operation while it is sent.
type call struct {
	op     Op                // of other operations than additions with the first key and amount
	more   []string          // all keys, if there may be several
	does   string            // for errors: what it does to the key
	args   func(op Op) []any // the command
	answer int               // how many integers the answer has
	named  bool              // the opid is the caller's, even if it is empty
	fresh  bool              // the package made the opid just now, so nobody else can have sent it
	reads  bool              // it changes nothing
	plain  bool              // it is what Do does with op
	scale  int               // how many decimals amounts and values have
}

// key returns one of the keys.
func (o *call) key(i int) string {
	if i < len(o.more) {
		return o.more[i]
	}
	return o.op.Key
}

// addition returns the call that an Op is.
func addition(op Op) call {
	return call{op: op, does: fmt.Sprintf("add %d to", op.Delta), answer: 2, plain: true,
		args: func(op Op) []any {
			return timed(op, "CINCRBY", op.Key, op.ID, decimal(op.Delta), "WITHSTATUS")
		}}
}

// timed returns a command with the operation's time, if that is known.
func timed(op Op, words ...any) []any {
	if op.At != 0 {
		words = append(words, "AT", op.At)
	}
	return words
}

// command returns the command that sends the operation.
func (o *call) command(ctx context.Context) request {
	args := o.args(o.op)
	for i, arg := range args {
		if n, ok := arg.(decimal); ok {
			args[i] = n.text(o.scale)
		}
	}
	command := request{redis.NewCmd(ctx, args...)}
	if o.more != nil {
		command.SetFirstKeyPos(3) // of CMINCRBY
	}
	return command
}

// decimal is a number in a command that has decimals with Scale.
type decimal int64

// text writes it with so many decimals.
func (a decimal) text(scale int) string {
	digits := strconv.FormatInt(int64(a), 10)
	if scale == 0 {
		return digits
	}
	digits, negative := strings.CutPrefix(digits, "-")
	digits = strings.Repeat("0", max(0, scale+1-len(digits))) + digits
	text := digits[:len(digits)-scale] + "." + digits[len(digits)-scale:]
	if negative {
		return "-" + text
	}
	return text
}

// steps reads a decimal as a number of steps of 10^-scale.
func steps(text string, scale int) (int64, error) {
	whole, decimals, _ := strings.Cut(text, ".")
	if len(decimals) > scale {
		return 0, errUnexpected
	}
	return strconv.ParseInt(whole+decimals+strings.Repeat("0", scale-len(decimals)), 10, 64)
}

// request is a command that go-redis does not retry by itself: an error after hidden
// tries would not say what became of them.
type request struct{ *redis.Cmd }

// NoRetry implements go-redis' Cmder.
func (request) NoRetry() bool { return true }

// reply is the answer to a call.
type reply struct {
	ints []int64 // in the order in which they come, whatever array they are in; of null none
	err  error
}

// read makes a reply of what go-redis returns.
func (o *call) read(value any, err error) reply {
	if err != nil && !errors.Is(err, redis.Nil) {
		return reply{err: err}
	}
	ints, ok := flatten(nil, value, o.scale)
	if !ok || len(ints) != o.answer && o.answer != anyAnswer {
		return reply{err: fmt.Errorf("%w: %v", errUnexpected, value)}
	}
	return reply{ints: ints}
}

// errUnexpected is the error of an answer that does not fit the command.
var errUnexpected = errors.New("unexpected answer (decimals need the option Scale)")

// anyAnswer is the answer of a call whose integers may be missing.
const anyAnswer = -1

// flatten appends the integers of an answer to ints.
func flatten(ints []int64, value any, scale int) ([]int64, bool) {
	switch value := value.(type) {
	case nil:
		return ints, true
	case int64:
		return append(ints, value), true
	case bool: // as RESP3 has the answers of filters
		if value {
			return append(ints, 1), true
		}
		return append(ints, 0), true
	case string:
		n, err := steps(value, scale)
		return append(ints, n), err == nil
	case []any:
		ok := true
		for i := 0; i < len(value) && ok; i++ {
			ints, ok = flatten(ints, value[i], scale)
		}
		return ints, ok
	}
	return ints, false
}
