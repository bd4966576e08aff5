// Package wire is how the nodes of a cluster ask each other for all that is not Raft's: one form of
// question and answer, and one way for files. It also has the Door of the cluster port, which bounds
// the handshakes. It knows no cluster, no Raft and no store: package cluster opens the connections,
// says which node is at the other end, and registers the verbs.
//
// The asking node sends a question, the other one answers it, in turn. Both are a line of JSON, and
// bytes may follow:
//
//	question  {"verb":"read","ask":{…},"bytes":0}\n
//	answer    {"answer":{…},"bytes":1048576}\n, and 1048576 bytes
//	          {"code":"gone","error":"why there is no answer"}\n
//
// A line has at most 16 KiB. How many bytes may follow it, the reading end says: the server for each
// verb, the asking node for each question. Bytes are believed as they come, never as they are
// announced, and fields that a reader does not know are an error: an unreadable line ends the
// connection.
//
// Files go the same way (files.go, fetch.go): a node offers some under an id, with their sizes and
// checksums; another one collects them in a directory, goes on where an earlier connection or process
// has stopped, and checks every byte.
package wire

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// Limits of a connection.
const (
	maxLine   = 16 << 10
	maxReason = 512
	step      = 1 << 20 // how much memory grows by before its bytes have come
	// idleTime is how long a server waits for the next question, restTime for the rest of one that has
	// begun, and for its answer to be taken.
	idleTime = 5 * time.Minute
	restTime = time.Minute
)

// ErrProtocol: the other end does not keep to the protocol.
var ErrProtocol = errors.New("a node does not keep to the protocol between nodes")

// Refusal is why there is no answer. One with a code is the same at both ends: errors.Is compares
// codes.
type Refusal struct{ Code, Text string }

// Error is one line.
func (r *Refusal) Error() string { return r.Text }

// Is reports whether an error is a Refusal of the same code.
func (r *Refusal) Is(other error) bool {
	o, ok := other.(*Refusal)
	return ok && r.Code != "" && r.Code == o.Code
}

// question and answer are the lines.
type (
	question struct {
		Verb  string          `json:"verb"`
		Ask   json.RawMessage `json:"ask,omitempty"`
		Bytes int             `json:"bytes,omitempty"`
	}
	answer struct {
		Code   string          `json:"code,omitempty"`
		Error  string          `json:"error,omitempty"`
		Answer json.RawMessage `json:"answer,omitempty"`
		Bytes  int             `json:"bytes,omitempty"`
	}
)

// Decode reads one JSON value, with no field that v does not have and with nothing behind it.
func Decode(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the value")
	}
	return nil
}

// conn reads and writes lines and the bytes behind them.
type conn struct {
	net.Conn
	r   *bufio.Reader
	buf []byte // see Call.Buffer
}

func newConn(c net.Conn) conn { return conn{Conn: c, r: bufio.NewReaderSize(c, maxLine)} }

func (c *conn) read(v any) error {
	line, err := c.r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return fmt.Errorf("%w: a line of more than %d bytes", ErrProtocol, maxLine)
	}
	if err != nil {
		return err
	}
	if err := Decode(line, v); err != nil {
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return nil
}

// readBytes reads the n bytes behind a line, into dst if they fit.
func (c *conn) readBytes(dst []byte, n, limit int) ([]byte, error) {
	if n < 0 || n > limit {
		return nil, fmt.Errorf("%w: %d bytes, where at most %d may come", ErrProtocol, n, limit)
	}
	b := dst[:0]
	for len(b) < n {
		b = slices.Grow(b, min(n-len(b), step))
		part := b[len(b):min(cap(b), n)]
		if _, err := io.ReadFull(c.r, part); err != nil {
			return nil, err
		}
		b = b[:len(b)+len(part)]
	}
	return b, nil
}

func (c *conn) write(line any, behind []byte) error {
	b, err := json.Marshal(line)
	switch {
	case err != nil:
		return err
	case len(b) >= maxLine:
		return fmt.Errorf("%w: a line of %d bytes is too long", ErrProtocol, len(b))
	}
	if _, err = c.Conn.Write(append(b, '\n')); err == nil && len(behind) > 0 {
		_, err = c.Conn.Write(behind)
	}
	return err
}

// Ask is a question, and what its answer may be.
type Ask struct {
	Verb string
	// Ask goes along, and Bytes behind it; nil: nothing.
	Ask   any
	Bytes []byte
	// Answer gets what is answered, nil: nothing is expected; at most Limit bytes may be behind it, and
	// they are read into Into if they fit.
	Answer any
	Limit  int
	Into   []byte
	// Within is how long the answer may take.
	Within time.Duration
}

// Caller asks over a connection. Not safe for concurrent use. Any error but a Refusal leaves the
// connection useless.
type Caller struct {
	c    conn
	stop func() bool
}

// NewCaller asks over a connection to a Server. The connection ends when ctx is done.
func NewCaller(ctx context.Context, c net.Conn) *Caller {
	return &Caller{newConn(c), context.AfterFunc(ctx, func() { c.Close() })}
}

// Close ends the connection.
func (c *Caller) Close() error {
	c.stop()
	return c.c.Close()
}

// Do asks, and returns the bytes behind the answer. A *Refusal is what the other node has answered.
func (c *Caller) Do(a Ask) ([]byte, error) {
	if err := c.c.SetDeadline(time.Now().Add(a.Within)); err != nil {
		return nil, err
	}
	q := question{Verb: a.Verb, Bytes: len(a.Bytes)}
	var err error
	if a.Ask != nil {
		if q.Ask, err = json.Marshal(a.Ask); err != nil {
			return nil, err
		}
	}
	if err := c.c.write(q, a.Bytes); err != nil {
		return nil, err
	}
	var got answer
	if err := c.c.read(&got); err != nil {
		return nil, err
	}
	if got.Error != "" {
		return nil, &Refusal{got.Code, fmt.Sprintf("the other node answers: %.*s", maxReason, got.Error)}
	}
	if a.Answer != nil {
		if err := Decode(got.Answer, a.Answer); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrProtocol, err)
		}
	}
	return c.c.readBytes(a.Into, got.Bytes, a.Limit)
}

// Verb answers the questions of a kind. The zero Verb refuses them.
type Verb struct {
	limit  int
	answer func(c *Call, ask []byte) (any, []byte, error)
}

// Answer makes a Verb of f, which gets each question in the connection's goroutine, and returns the
// answer and the bytes behind it. At most limit bytes may come with a question.
func Answer[Q any](limit int, f func(c *Call, q Q) (any, []byte, error)) Verb {
	return Verb{limit, func(c *Call, ask []byte) (any, []byte, error) {
		var q Q
		if len(ask) > 0 {
			if err := Decode(ask, &q); err != nil {
				return nil, nil, fmt.Errorf("%w: %w", ErrProtocol, err)
			}
		}
		return f(c, q)
	}}
}

// Call is a question that is being answered.
type Call struct {
	// From is the id of the node that asks, Bytes what came behind its question.
	From  string
	Bytes []byte
	l     *Line
}

// Line is a connection on which a server answers. It serves as a key for what a node asks in turn.
type Line struct {
	conn
	end []func()
}

// Line returns the connection on which the question came.
func (c *Call) Line() *Line { return c.l }

// OnEnd has f called when the connection has ended. It is called from a Verb.
func (l *Line) OnEnd(f func()) { l.end = append(l.end, f) }

// Buffer returns memory for the bytes of an answer. It is good until the next question.
func (c *Call) Buffer(n int) []byte {
	c.l.buf = slices.Grow(c.l.buf[:0], n)[:n]
	return c.l.buf
}

// Server answers questions by their verbs. The zero value is ready; safe for concurrent use.
type Server struct {
	mu    sync.Mutex
	verbs map[string]Verb
}

// Handle has a verb answered so from now on.
func (s *Server) Handle(verb string, v Verb) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.verbs == nil {
		s.verbs = map[string]Verb{}
	}
	s.verbs[verb] = v
}

func (s *Server) verb(name string) Verb {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.verbs[name]
}

// Serve answers the questions of a node until the connection ends, and closes it. admits is asked
// before each answer: its error ends the connection.
func (s *Server) Serve(c net.Conn, from string, admits func() error) {
	l := &Line{conn: newConn(c)}
	defer func() {
		c.Close()
		for _, f := range l.end {
			f()
		}
	}()
	for s.next(l, from, admits) == nil {
	}
}

// next answers a question.
func (s *Server) next(l *Line, from string, admits func() error) error {
	_ = l.SetDeadline(time.Now().Add(idleTime)) // a broken connection fails below
	if _, err := l.r.Peek(1); err != nil {
		return err
	}
	_ = l.SetDeadline(time.Now().Add(restTime))
	var q question
	if err := l.read(&q); err != nil {
		return err
	}
	v := s.verb(q.Verb)
	b, err := l.readBytes(nil, q.Bytes, v.limit)
	if err == nil {
		err = admits()
	}
	if err != nil {
		return err
	}
	var a answer
	said, behind, failed := any(nil), []byte(nil), error(&Refusal{Text: "it does not answer this at present"})
	if v.answer != nil {
		said, behind, failed = v.answer(&Call{From: from, Bytes: b, l: l}, q.Ask)
	}
	switch {
	case failed != nil:
		refused := new(Refusal)
		if errors.As(failed, &refused) {
			a.Code = refused.Code
		}
		a.Error, behind = fmt.Sprintf("%.*s", maxReason, failed), nil
	case said != nil:
		if a.Answer, err = json.Marshal(said); err != nil {
			return err
		}
	}
	a.Bytes = len(behind)
	_ = l.SetDeadline(time.Now().Add(restTime))
	if err := l.write(a, behind); err != nil {
		return err
	}
	if errors.Is(failed, ErrProtocol) {
		return failed
	}
	return nil
}
