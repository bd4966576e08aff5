package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fbfkv/fbfkv/cmd/fbfkv/internal/connect"
)

// answerTime bounds a command. A server that takes part in an admission asks others.
const answerTime = 15 * time.Second

// Server is a server, by its port for clients. It is connected when it is first asked, and
// again after it was restarted. Safe for concurrent use.
type Server struct {
	Addr   string
	Client *connect.Client
}

// address is a server's, and how long its answers may take.
type address struct {
	at      string
	timeout time.Duration
}

// Server returns the server at HOST:PORT.
func (o *Operator) Server(addr string) (*Server, error) { return o.open(address{addr, answerTime}) }

// Patient is Server for commands that take as long as they take.
func (o *Operator) Patient(addr string) (*Server, error) { return o.open(address{addr, 0}) }

func (o *Operator) open(a address) (*Server, error) {
	if s := o.servers[a]; s != nil {
		return s, nil
	}
	client, err := o.Login.Client(a.at, a.timeout)
	if err != nil {
		return nil, err
	}
	if o.servers == nil {
		o.servers = map[address]*Server{}
	}
	o.servers[a] = &Server{a.at, client}
	return o.servers[a], nil
}

// close closes the connections.
func (o *Operator) close() {
	for _, s := range o.servers {
		s.Client.Close()
	}
}

// Ask carries out a command, and returns the answer. An error says which server it is about.
func (s *Server) Ask(command string, args ...any) (string, error) {
	var words []any
	for _, w := range strings.Fields(command) {
		words = append(words, w)
	}
	text, err := s.Client.Do(context.Background(), append(words, args...)...).Text()
	if err == nil {
		return text, nil
	}
	if explained := connect.Explain(s.Addr, command, err); explained != nil {
		return "", explained
	}
	return "", fmt.Errorf("%s: %w", s.Addr, Refusal(strings.TrimPrefix(err.Error(), "ERR ")))
}

// AskJSON is Ask for an answer in JSON; answer may be nil.
func (s *Server) AskJSON(answer any, command string, args ...any) error {
	text, err := s.Ask(command, args...)
	if err != nil || answer == nil {
		return err
	}
	if err := json.Unmarshal([]byte(text), answer); err != nil {
		return fmt.Errorf("%s does not answer %s as expected: %w", s.Addr, command, err)
	}
	return nil
}

// Refusal is what a server answered instead of doing what it was asked.
type Refusal string

// tryAgain begins a refusal of what may go well if it is sent again.
const tryAgain = "TRYAGAIN "

// Error is the server's text.
func (r Refusal) Error() string {
	_, text := r.Elsewhere()
	return strings.TrimPrefix(text, tryAgain)
}

// Elsewhere returns the server that can do what was asked, "" if the refusal names none, and the rest of
// the text.
func (r Refusal) Elsewhere() (addr, text string) {
	text = string(r)
	if rest, ok := strings.CutPrefix(text, "ASK "); ok {
		addr, text, _ = strings.Cut(rest, " ")
	}
	return addr, text
}

// Transient reports whether a second attempt may go well: the server cannot be reached, does
// not lead any more, or is about to.
func Transient(err error) bool {
	var gone connect.Unreachable
	var said Refusal
	return errors.As(err, &gone) || errors.As(err, &said) && strings.HasPrefix(string(said), tryAgain)
}
