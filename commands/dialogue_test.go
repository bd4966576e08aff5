package commands

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
)

// client is one connection in process: bytes in, bytes out, through the same
// reader, pipeline and writer that package server uses.
type client struct {
	t       *testing.T
	session *Session
	p       *Pipeline
	w       resp.Writer
}

// newStore opens a store in a directory of the test's own.
func newStore(t testing.TB) *store.Store {
	t.Helper()
	st, err := store.Open(store.Options{Dir: t.TempDir(), Fsync: store.No, MinFreeDisk: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.CloseNow() })
	return st
}

// dial connects a client to a store.
func dial(t *testing.T, st *store.Store, srv *Server) *client {
	t.Helper()
	s := NewSession(7, "127.0.0.1:50000", "127.0.0.1:6379", srv)
	c := &client{t: t, session: s, p: NewPipeline(srv, s)}
	NewRound(st, srv, false).Join(c.p)
	return c
}

// send plays a pipeline of requests, each a line of words as in redis-cli, and
// returns the replies' bytes.
func (c *client) send(lines ...string) string {
	c.t.Helper()
	var in bytes.Buffer
	for _, l := range lines {
		words, ok := resp.SplitWords([]byte(l))
		if !ok {
			c.t.Fatalf("bad line %q", l)
		}
		fmt.Fprintf(&in, "*%d\r\n", len(words))
		for _, w := range words {
			fmt.Fprintf(&in, "$%d\r\n%s\r\n", len(w), w)
		}
	}
	return c.bytes(in.Bytes())
}

// bytes plays raw bytes and returns the replies' bytes.
func (c *client) bytes(in []byte) string {
	c.t.Helper()
	r := resp.NewReader(bytes.NewReader(in), resp.Limits{})
	for {
		_, err := r.Fill()
		if err != nil && !errors.Is(err, io.EOF) {
			c.t.Fatal(err)
		}
		for {
			args, ok, perr := r.Next()
			if perr != nil {
				c.t.Fatal(perr)
			}
			if !ok {
				break
			}
			c.p.Do(args, &c.w)
		}
		c.p.Flush(&c.w)
		if err != nil {
			break
		}
	}
	out := string(c.w.Bytes())
	c.w.Reset()
	return out
}

// say plays one request and returns its reply in a readable form: see show.
func (c *client) say(line string) string {
	c.t.Helper()
	out := c.send(line)
	if out == "" {
		return ""
	}
	s, rest := show(out)
	if rest != "" {
		c.t.Fatalf("%s: more than one reply: %q", line, out)
	}
	return s
}

// show renders the first reply of b: +OK, -ERR …, :1, "bulk", nil, [a b],
// {k:v}, ~[a], #t, ,1.5; and returns what follows it.
func show(b string) (shown, rest string) {
	line, rest, ok := strings.Cut(b, "\r\n")
	if !ok {
		return "BROKEN", ""
	}
	n := 0
	switch b[0] {
	case '+', '-', ':', '#', ',':
		return line, rest
	case '_':
		return "nil", rest
	case '$', '=', '*', '%', '~':
		fmt.Sscanf(line[1:], "%d", &n)
	default:
		return "BROKEN", ""
	}
	if n < 0 {
		return "nil", rest
	}
	switch b[0] {
	case '$', '=':
		return fmt.Sprintf("%q", rest[:n]), rest[n+2:]
	case '%':
		return showMany("{", "}", 2*n, rest)
	case '~':
		return showMany("~[", "]", n, rest)
	}
	return showMany("[", "]", n, rest)
}

// showMany renders n replies.
func showMany(open, end string, n int, b string) (shown, rest string) {
	items := make([]string, n)
	for i := range items {
		items[i], b = show(b)
	}
	return open + strings.Join(items, " ") + end, b
}

// step is one request of a dialogue and the reply it must get.
type step struct{ say, want string }

// play plays a dialogue.
func (c *client) play(steps []step) {
	c.t.Helper()
	for _, s := range steps {
		if got := c.say(s.say); got != s.want {
			c.t.Errorf("%s\n got %s\nwant %s", s.say, got, s.want)
		}
	}
}

func TestCounters(t *testing.T) {
	c := dial(t, newStore(t), &Server{})
	c.play([]step{
		{"CINCRBY k a 5", ":5"},
		{"cincrby k a 5", ":5"},
		{"CINCRBY k b 5", ":10"},
		{"CINCRBY k a 5", ":5"}, // the original result, not the present value
		{"CINCRBY k a 5 WITHSTATUS", "[:5 :0]"},
		{"CINCRBY k c 1 WITHSTATUS", "[:11 :1]"},
		{"CINCRBY k a 6", "-MISMATCH opid was used with another delta"},
		{"CDECRBY k d 1", ":10"},
		{"CINCRBY k d -1", ":10"},
		{"CINCR k e", ":11"},
		{"CDECR k f WITHSTATUS", "[:10 :1]"},
		{"CINCR k e", ":11"},
		{"CGET k", ":10"},
		{"CGET none", "nil"},
		{"CMGET k none", "[:10 nil]"},
		{"GET k", `"10"`},
		{"MGET k none", `["10" nil]`},
		{"CSEEN k nope", "nil"},
		{"CINCRBY zero id 0", ":0"},
		{"EXISTS zero", ":1"},
		{"CMINCRBY m 2 x 1 y 2", "[:1 :2]"},
		{"CMINCRBY m 2 x 1 y 2 WITHSTATUS", "[[:1 :2] :0]"},
		{"CMINCRBY m 2 x 1 z 2", "-MISMATCH opid was used with some of these keys only"},
		{"DEL k", ":1"},
		{"CINCRBY k a 5", ":5"}, // remembered beyond DEL, creating nothing
		{"EXISTS k", ":0"},
	})
	if got := c.say("CSEEN x m"); !strings.HasPrefix(got, "[:1 :1 :1") {
		t.Errorf("CSEEN: %s", got)
	}
}

func TestCounterErrors(t *testing.T) {
	c := dial(t, newStore(t), &Server{})
	long := strings.Repeat("x", store.MaxOpID+1)
	longKey := strings.Repeat("k", store.MaxKey+1)
	c.play([]step{
		{"CINCRBY", "-ERR wrong number of arguments for 'cincrby' command: CINCRBY key opid delta [AT " +
			"unix-time-milliseconds] [WITHSTATUS] [LBOUND lowerbound] [UBOUND upperbound] " +
			"[EX seconds | PX milliseconds | EXAT unix-time-seconds " +
			"| PXAT unix-time-milliseconds | PERSIST] [ENX]"},
		{"CINCRBY k a", "-ERR wrong number of arguments for 'cincrby' command: CINCRBY key opid delta [AT " +
			"unix-time-milliseconds] [WITHSTATUS] [LBOUND lowerbound] [UBOUND upperbound] " +
			"[EX seconds | PX milliseconds | EXAT unix-time-seconds " +
			"| PXAT unix-time-milliseconds | PERSIST] [ENX]"},
		{"CINCRBY k a x", "-ERR value is not an integer or out of range"},
		{"CINCRBY k a +1", "-ERR value is not an integer or out of range: decimals are written as -12.34, in a " +
			"table with SCALE"},
		{"CINCRBY k a 01", "-ERR value is not an integer or out of range"},
		{"CINCRBY k a -0", "-ERR value is not an integer or out of range"},
		{"CINCRBY k a 0.1", "-ERR value is not an integer or out of range: decimals need a table with SCALE " +
			"(CTABLE CREATE)"},
		{`CINCRBY k a " 1"`, "-ERR value is not an integer or out of range"},
		{"CINCRBY k a 9223372036854775808", "-ERR value is not an integer or out of range: a counter holds -2^63 " +
			"to 2^63-1, in a table with SCALE n so many steps of 10^-n"},
		{`CINCRBY k "" 1`, "-ERR opid must be 1 to 512 bytes"},
		{"CINCRBY k " + long + " 1", "-ERR opid must be 1 to 512 bytes"},
		{`CSEEN k ""`, "-ERR opid must be 1 to 512 bytes"},
		{"CSEEN k a b", "-ERR syntax error"},
		{"CSEEN k IDMP p", "-ERR syntax error"},
		{"CSEEN k IDMP p i x", "-ERR syntax error"},
		{`CSEEN k IDMP "" i`, "-" + errPairSize.Error()},
		{`CINCRBY "" a 1`, "-ERR key must be 1 to 65536 bytes"},
		{"CINCRBY " + longKey + " a 1", "-ERR key must be 1 to 65536 bytes"},
		{`CMINCRBY a 2 k 1 "" 1`, "-ERR key must be 1 to 65536 bytes"},
		{"CINCRBY k a 1 AT", "-ERR syntax error"},
		{"CINCRBY k a 1 AT x", "-ERR value is not an integer or out of range"},
		{"CINCRBY k a 1 AT 1 AT 1", "-ERR syntax error"},
		{"CINCRBY k a 1 WITHSTATUS WITHSTATUS", "-ERR syntax error"},
		{"CINCRBY k a 1 FOO", "-ERR syntax error"},
		{"CINCRBY k a 1 AT 1", "-" + staleText},
		{"CINCRBY k a 1 AT 1764240000", "-ERR AT is a time in milliseconds, and this one is in 1970 to " +
			"1973: is it in seconds?"},
		{"CDECRBY k a -9223372036854775808", "-ERR decrement would overflow"},
		{"CINCRBY k a 9223372036854775807", ":9223372036854775807"},
		{"CINCRBY k b 1", "-ERR increment or decrement would overflow"},
		{"CMINCRBY a 0 k 1", "-ERR numkeys should be greater than 0"},
		{"CMINCRBY a x k 1", "-ERR value is not an integer or out of range"},
		{"CMINCRBY a 2 k 1", "-ERR numkeys does not match the number of arguments"},
		{"CMINCRBY a 9223372036854775807 k 1", "-ERR numkeys does not match the number of arguments"},
		{"CMINCRBY z 2 p 1 p 1", "-ERR keys of one operation must be distinct"},
		{"CMINCRBY z 2 p 1 k 1", "-ERR increment or decrement would overflow"},
		{"CGET p", "nil"}, // all or nothing
		{"FBF.ADD f x", ":1"},
		{"CINCRBY f b 1", "-WRONGTYPE Operation against a key holding the wrong kind of value"},
		{"CGET f", "-WRONGTYPE Operation against a key holding the wrong kind of value"},
		{"CMGET f", "[nil]"},
		{"CINCRBY k b -1", ":9223372036854775806"}, // b was not consumed by the refusals
	})
}

func TestUnknownAndArity(t *testing.T) {
	c := dial(t, newStore(t), &Server{})
	c.play([]step{
		{"foo", "-ERR unknown command 'foo', with args beginning with: "},
		{"foo bar baz", "-ERR unknown command 'foo', with args beginning with: 'bar' 'baz' "},
		{`foo "c\r\nd"`, "-ERR unknown command 'foo', with args beginning with: 'c  d' "},
		{`""`, "-ERR unknown command '', with args beginning with: "},
		{"foo " + strings.Repeat("y", 200) + " z", "-ERR unknown command 'foo', with args beginning with: '" +
			strings.Repeat("y", 128) + "' "},
		{strings.Repeat("q", 200), "-ERR unknown command '" + strings.Repeat("q", 128) +
			"', with args beginning with: "},
		{"client", "-ERR wrong number of arguments for 'client' command"},
		{"client foo", "-ERR unknown subcommand 'foo'. Try CLIENT HELP."},
		{"config get", "-ERR wrong number of arguments for 'config|get' command"},
		{"CoNfIg GeT", "-ERR wrong number of arguments for 'config|get' command"},
		{"ctable create x", "-ERR wrong number of arguments for 'ctable|create' command"},
		{"ping a b", "-ERR wrong number of arguments for 'ping' command"},
		{"get", "-ERR wrong number of arguments for 'get' command"},
		{"rename a b", "-ERR RENAME is not supported: a counter's key is part of its operations' " +
			"identity, so it cannot be moved or copied"},
		{"rename a", "-ERR wrong number of arguments for 'rename' command"},
	})
}

// Replies before HELLO in a pipeline are in the old protocol.
func TestProtocolChangesInAPipeline(t *testing.T) {
	c := dial(t, newStore(t), &Server{})
	got := c.send("GET none", "HELLO 3", "GET none", "RESET", "GET none")
	if !strings.HasPrefix(got, "$-1\r\n%7\r\n") || !strings.HasSuffix(got, "_\r\n+RESET\r\n$-1\r\n") {
		t.Errorf("got %q", got)
	}
}

func TestRESP3(t *testing.T) {
	c := dial(t, newStore(t), &Server{})
	c.play([]step{
		{"HELLO 3", `{"server" "redis" "version" "` + CompatVersion +
			`" "proto" :3 "id" :7 "mode" "standalone" "role" "master" "modules" []}`},
		{"CINCRBY k a 1 WITHSTATUS", "[:1 :1]"},
		{"CGET none", "nil"},
		{"FBF.ADD f x", "#t"},
		{"FBF.ADD f x", "#f"},
		{"FBF.MADD f x y", "[#f #t]"},
		{"FBF.EXISTS f y", "#t"},
		{"FBF.MEXISTS f y z", "[#t #f]"},
		{"FBF.CARD f", ":2"},
		{"SETNX s 1", ":1"},
	})
	if got := c.say("CTABLE LIST"); got != `{"default" ""}` {
		t.Errorf("CTABLE LIST: %s", got)
	}
	if got := c.say("CTABLE INFO default"); !strings.HasPrefix(got,
		`{"name" "default" "prefix" "" "window" :120000 "error" ,0.001 "mode" "exact"`) {
		t.Errorf("CTABLE INFO: %s", got)
	}
}
