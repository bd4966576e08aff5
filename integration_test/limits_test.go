package integration

import (
	"strings"
	"testing"
	"time"
)

// TestMaxClients refuses the client too many, in Redis' words, and admits one
// again once another has left.
func TestMaxClients(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--maxclients", "3")
	var admitted []*rawConn
	for range 3 {
		c := s.dial()
		c.want("+PONG", "PING")
		admitted = append(admitted, c)
	}
	refused := s.dial()
	refused.send("")
	if got := refused.reply(); got != "-ERR max number of clients reached" {
		t.Errorf("the fourth client is told %s", got)
	}
	refused.wantClosed()
	admitted[0].Close()
	eventually(t, patience, "a client is admitted in the place of one that left", func() bool {
		c := s.dial()
		defer c.Close()
		c.send(frame("PING"))
		reply, err := readReply(c.r)
		return err == nil && reply == "+PONG"
	})
	admitted[1].want("+OK", "CONFIG", "SET", "maxclients", "10")
	for range 5 {
		s.dial().want("+PONG", "PING")
	}
}

// TestPassword keeps out who does not know the password, and lets such clients
// send little.
func TestPassword(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--requirepass", "open sesame")
	const noAuth = "-NOAUTH Authentication required."
	const wrong = "-WRONGPASS invalid username-password pair or user is disabled."
	c := s.dial()
	for _, command := range [][]string{{"PING"}, {"CINCRBY", "k", "op", "1"}, {"INFO"}, {"CONFIG", "GET",
		"*"}, {"SHUTDOWN"}, {"FLUSHALL"}} {
		c.want(noAuth, command...)
	}
	c.want(wrong, "AUTH", "guess")
	c.want(wrong, "AUTH", "someone", "open sesame")
	c.want(wrong, "HELLO", "3", "AUTH", "default", "guess")
	c.want("+OK", "AUTH", "open sesame")
	c.want(":1", "CINCRBY", "k", "op", "1")

	hello := s.dial()
	if got := hello.do("HELLO", "3", "AUTH", "default", "open sesame"); !strings.HasPrefix(got, "{") {
		t.Errorf("HELLO 3 AUTH: %s", got)
	}
	hello.want("+PONG", "PING")

	pipeline := s.dial()
	pipeline.send(frame("GET", "k") + frame("AUTH", "open sesame") + frame("GET", "k"))
	for _, want := range []string{noAuth, "+OK", `"1"`} {
		if got := pipeline.reply(); got != want {
			t.Errorf("in a pipeline with AUTH: %s, want %s", got, want)
		}
	}
	for input, want := range map[string]string{
		"*11\r\n":            "-ERR Protocol error: unauthenticated multibulk length",
		"*2\r\n$1000000\r\n": "-ERR Protocol error: unauthenticated bulk length",
	} {
		stranger := s.dial()
		stranger.send(input)
		if got := stranger.reply(); got != want {
			t.Errorf("a stranger's %q: %s, want %s", input, got, want)
		}
		stranger.wantClosed()
	}
	// A new password is asked of new clients only.
	c.want("+OK", "CONFIG", "SET", "requirepass", "")
	s.dial().want("+PONG", "PING")
}

// TestTimeout disconnects a client that is idle for too long, and no other.
func TestTimeout(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--timeout", "5") // much longer than what keeps the busy client from its PING
	idle, busy := s.dial(), s.dial()
	begin := time.Now()
	idle.want("+PONG", "PING")
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		idle.wantClosed()
	}()
	for asked := begin; ; time.Sleep(50 * time.Millisecond) {
		if time.Since(asked) > 2*time.Second {
			busy = s.dial() // the machine has kept it from its PING: it may be idle as well
		}
		asked = time.Now()
		busy.want("+PONG", "PING")
		select {
		case <-closed:
			if took := time.Since(begin); took < 5*time.Second {
				t.Errorf("disconnected after %v", took)
			}
			busy.want("+PONG", "PING")
			return
		default:
		}
	}
}

// TestLargeValues takes keys and requests up to their limits and refuses those
// beyond, without harm to the connection where Redis has none either.
func TestLargeValues(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--appendfsync", "everysec")
	c := s.dial()
	c.want(`"`+strings.Repeat("x", 1<<20)+`"`, "ECHO", strings.Repeat("x", 1<<20))
	many := []string{"CMINCRBY", "tx", "1000"}
	for i := range 1000 {
		many = append(many, "key-"+strings.Repeat("x", 1000)+string(rune('0'+i%10))+strings.Repeat("y", i),
			"1")
	}
	if got := c.do(many...); strings.Count(got, ":1") != 1000 {
		t.Errorf("CMINCRBY of 1000 keys: %.100s", got)
	}
	s.crash()
	c = s.dial()
	if got := c.do(append(many, "WITHSTATUS")...); !strings.HasSuffix(got, " :0]") {
		t.Errorf("its retry after a crash: …%s", tail(got, 50))
	}
	c.send("*2\r\n$4\r\nECHO\r\n$1048577\r\n")
	if got := c.reply(); got != "-ERR Protocol error: invalid bulk length" {
		t.Errorf("beyond proto-max-bulk-len: %s", got)
	}
}
