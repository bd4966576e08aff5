package connect

import (
	"errors"
	"fmt"
	"net"
	"strings"
)

// Unreachable is the error of a server that does not answer, or not yet.
type Unreachable struct{ error }

// Unwrap returns the cause.
func (u Unreachable) Unwrap() error { return u.error }

// Explain says what an error of a server's means that any command may have; nil: it is its answer to
// that one.
func Explain(addr, command string, err error) error {
	switch text := err.Error(); {
	case !IsReply(err):
		var op *net.OpError
		if errors.As(err, &op) && op.Op == "dial" {
			err = op.Err
		}
		return Unreachable{fmt.Errorf("%s cannot be reached: %w", addr, err)}
	case strings.Contains(text, "unknown subcommand") || strings.Contains(text, "unknown command"):
		return fmt.Errorf("%s is not an fbfkv server, or an older one: it does not know %s", addr, command)
	case strings.HasPrefix(text, "LOADING"):
		return Unreachable{fmt.Errorf("%s is starting: %w", addr, err)}
	}
	return nil
}
