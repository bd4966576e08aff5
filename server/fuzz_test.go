package server

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/fbfkv/fbfkv/resp"
	"github.com/fbfkv/fbfkv/store"
)

// fuzzSeeds are conversations of one client each.
var fuzzSeeds = []string{
	"PING\r\nECHO hi\r\nGET k\r\n", "\r\n\r\nPING\r\n", "*0\r\n*-1\r\nPING\n",
	frame("CINCRBY", "k", "op-1", "5") + frame("CINCRBY", "k", "op-1", "5", "WITHSTATUS") +
		frame("CSEEN", "k", "op-1"),
	frame("CMINCRBY", "op-2", "2", "a", "1", "b", "-1", "WITHSTATUS") + frame("CMGET", "a", "b", "none"),
	frame("CINCRBY", "k", "op-3", "1", "AT", "1") + frame("CDECR", "k", "") +
		frame("CINCRBY", "k", "op", "x"),
	frame("HELLO", "3") + frame("CSEEN", "k", "none") + frame("FBF.ADD", "f", "x") + frame("FBF.INFO", "f") +
		frame("CTABLE", "INFO", "default"),
	frame("MULTI") + frame("SET", "a", "1") + frame("NOSUCH") + frame("EXEC") + frame("MULTI") +
		frame("INCR", "a") + frame("EXEC"),
	frame("MULTI") + frame("GET", "a") + frame("DISCARD") + frame("WATCH", "a") + frame("EXEC"),
	frame("FBF.INSERT", "g", "CAPACITY", "10", "ITEMS", "a", "b") + frame("FBF.MEXISTS", "g", "a", "c") +
		frame("FBF.REFRESH", "g"),
	frame("CTABLE", "CREATE", "t", "PREFIX", "t:", "MODE", "APPROX") + frame("CTABLE", "LIST") +
		frame("CTABLE", "DROP", "t"),
	frame("SET", "k", "1", "EX", "100", "GET") + frame("TTL", "k") +
		frame("SCAN", "0", "MATCH", "*", "COUNT", "10") + frame("KEYS", "*"),
	frame("COMMAND", "DOCS", "get") + frame("COMMAND", "GETKEYS", "mget", "a", "b") + frame("INFO") +
		frame("CLIENT", "LIST"),
	frame("SLOWLOG", "GET") + frame("LATENCY", "HISTOGRAM") + frame("MEMORY", "USAGE", "k") +
		frame("OBJECT", "ENCODING", "k"),
	frame("RESET") + frame("SELECT", "0") + frame("SELECT", "9") + frame("WAIT", "0", "0") + frame("DBSIZE") +
		frame("FLUSHALL"),
	"*1\r\n$9223372036854775807\r\n", "*2\r\n$3\r\nGET\r\n$-1\r\n", "GET \"unbalanced\r\n",
	"PING\r\n*1\r\n:1\r\n",
	"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\n", "POST / HTTP/1.1\r\nHost: x\r\n\r\n",
}

// fuzzLeftOut are words of commands that end the server, hold it back, write
// elsewhere, or change what later inputs get to see; and of those after which
// fewer or more replies come than requests went.
var (
	fuzzLeftOut   = []string{"shutdown", "pause", "backup", "kill", "config", "acl", "debug"}
	fuzzUncounted = []string{"reply", "quit", "monitor", "subscribe"}
)

// FuzzServer sends bytes through a connection, the command table and a store on
// a file system in memory. For any bytes, every complete request is answered with one reply that is
// whole RESP, in the end nothing is left over, and the server goes on.
func FuzzServer(f *testing.F) {
	for _, s := range fuzzSeeds {
		f.Add([]byte(s))
	}
	st, err := store.Open(store.Options{Dir: "data", FS: vfs.NewMem(), Logger: quiet,
		Fatal: func(err error) { f.Error(err) }})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { st.CloseNow() })
	s := startWith(f, Options{Store: st, Logger: quiet, Fatal: func(err error) { f.Error(err) }})
	f.Fuzz(func(t *testing.T, input []byte) {
		lower := string(bytes.ToLower(input))
		if containsAny(lower, fuzzLeftOut) {
			return
		}
		answer := s.converse(t, input)
		replies := 0
		for rest := answer; len(rest) > 0; replies++ {
			if rest, err = skipReply(rest, 0); err != nil {
				t.Fatalf("%q is answered with %.2000q: %v", input, answer, err)
			}
		}
		if want := requestsIn(input); replies != want && !containsAny(lower, fuzzUncounted) {
			t.Fatalf("%q: %d replies, want %d: %.2000q", input, replies, want, answer)
		}
	})
}

// converse sends all of the input and returns all that is answered until the
// server hangs up.
func (s *running) converse(t *testing.T, input []byte) []byte {
	c := s.dial(t)
	go func() {
		c.Write(input) // in vain once the server has hung up
		c.Conn.(*net.TCPConn).CloseWrite()
	}()
	answer, err := io.ReadAll(c)
	if err != nil {
		t.Fatalf("%q: %v after %.2000q", input, err, answer)
	}
	c.Close()
	return answer
}

// requestsIn counts the complete requests, and the one error for malformed bytes.
func requestsIn(input []byte) (n int) {
	r := resp.NewReader(bytes.NewReader(input), resp.Limits{})
	for {
		_, readErr := r.Fill()
		for {
			_, ok, err := r.Next()
			if err != nil {
				return n + 1
			}
			if !ok {
				break
			}
			n++
		}
		if readErr != nil {
			return n
		}
	}
}

// skipReply returns what follows one whole reply of RESP2 or 3.
func skipReply(b []byte, depth int) ([]byte, error) {
	line, rest, ok := bytes.Cut(b, []byte("\r\n"))
	if !ok || len(line) == 0 || depth > 32 {
		return nil, fmt.Errorf("no reply: %.80q", b)
	}
	body := string(line[1:])
	switch line[0] {
	case '+', '-', '(':
		return rest, nil
	case ':':
		_, err := strconv.ParseInt(body, 10, 64)
		return rest, err
	case ',':
		_, err := strconv.ParseFloat(body, 64)
		return rest, err
	case '#':
		if body != "t" && body != "f" {
			return nil, fmt.Errorf("boolean %q", body)
		}
		return rest, nil
	case '_':
		return rest, nil
	}
	n, err := strconv.Atoi(body)
	if err != nil || n < -1 {
		return nil, fmt.Errorf("length %q: %v", line, err)
	}
	switch line[0] {
	case '$', '=':
		if n < 0 {
			return rest, nil
		}
		if len(rest) < n+2 || string(rest[n:n+2]) != "\r\n" {
			return nil, fmt.Errorf("string of %d bytes: %.80q", n, rest)
		}
		return rest[n+2:], nil
	case '%':
		n *= 2
	case '*', '~', '>':
	default:
		return nil, fmt.Errorf("type %q", line)
	}
	for ; n > 0 && err == nil; n-- {
		rest, err = skipReply(rest, depth+1)
	}
	return rest, err
}

func containsAny(s string, words []string) bool {
	for _, w := range words {
		if strings.Contains(s, w) {
			return true
		}
	}
	return false
}

// FuzzConfig reads configuration files: each fault is one line, and what is
// accepted says the same when it is written and read again.
func FuzzConfig(f *testing.F) {
	for i := range Settings {
		f.Add(Settings[i].Line(DefaultConfig()))
	}
	for i := range Directives {
		f.Add(Directives[i].Name + " " + strings.Join(Directives[i].Unless, " "))
	}
	f.Add("# comment\nbind 127.0.0.1 ::1\nsave 300 1\nsave \"\"\nrequirepass \"\\x00 '\"\n")
	f.Fuzz(func(t *testing.T, text string) {
		c := DefaultConfig()
		if strings.Contains(strings.ToLower(text), "include") {
			return // files of this machine
		}
		if err := readConfig(strings.NewReader(text), "conf", c); err != nil {
			faults := err.(Faults)
			for _, f := range faults {
				if !strings.HasPrefix(f, "conf:") || strings.ContainsAny(f, "\r\n") {
					t.Fatalf("%q: %q", text, f)
				}
			}
			if len(faults) == 0 || len(faults) > maxFaults+1 {
				t.Fatalf("%q: %d faults", text, len(faults))
			}
		}
		var lines strings.Builder
		for i := range Settings {
			lines.WriteString(Settings[i].Line(c) + "\n")
		}
		again := DefaultConfig()
		if err := readConfig(strings.NewReader(lines.String()), "conf", again); err != nil {
			t.Fatalf("%q: %q: %v", text, lines.String(), err)
		}
		for i := range Settings {
			if s := &Settings[i]; s.Format(c) != s.Format(again) {
				t.Fatalf("%q: %s is %q, again %q", text, s.Name, s.Format(c), s.Format(again))
			}
		}
	})
}
