package integration

import (
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// TestHostileInput sends what no client should. The server answers with one
// error, hangs up, and goes on serving others on the connection they have.
func TestHostileInput(t *testing.T) {
	t.Parallel()
	const protocol = "-ERR Protocol error: "
	attacks := []struct {
		name, input, reply string
	}{
		{"largest bulk", "*1\r\n$9223372036854775807\r\n", protocol + "invalid bulk length"},
		{"beyond int64", "*1\r\n$9223372036854775808\r\n", protocol + "invalid bulk length"},
		{"negative bulk", "*1\r\n$-1\r\n", protocol + "invalid bulk length"},
		{"2 GB bulk", "*1\r\n$2147483647\r\n", protocol + "invalid bulk length"},
		{"largest array", "*9223372036854775807\r\n", protocol + "invalid multibulk length"},
		{"large array", "*2147483647\r\n", protocol + "invalid multibulk length"},
		{"beyond the limit", "*1048577\r\n", protocol + "invalid multibulk length"},
		{"no number", "*x\r\n", protocol + "invalid multibulk length"},
		{"endless number", "*" + strings.Repeat("1", 100000), protocol + "too big mbulk count string"},
		{"no bulk", "*1\r\n:1\r\n", protocol + "expected '$', got ':'"},
		{"wrong length", "*1\r\n$3\r\nPINGPING\r\n", protocol + "invalid bulk length"},
		{"endless line", strings.Repeat("x", 70000), protocol + "too big inline request"},
		{"quotes", "SET \"a b\r\n", protocol + "unbalanced quotes in request"},
		{"web page", "POST / HTTP/1.1\r\nHost: localhost:6379\r\nContent-Length: 10\r\n\r\nFLUSHALL\r\n",
			protocol + "this is not an HTTP server"},
		{"web page, GET", "Host: localhost:6379\r\n", protocol + "this is not an HTTP server"},
	}
	s := startServer(t)
	other := s.dial()
	other.want(":1", "CINCRBY", "witness", "op", "1")
	for _, a := range attacks {
		c := s.dial()
		c.SetDeadline(time.Now().Add(patience))
		go io.WriteString(c, a.input) // the server may hang up half way
		if got := c.reply(); got != a.reply {
			t.Errorf("%s: %s, want %s", a.name, got, a.reply)
		}
		c.wantClosed()
		other.want(":1", "CINCRBY", "witness", "op", "1")
	}
	// Commands before the nonsense are carried out and answered.
	c := s.dial()
	c.send("SET k 5\r\nGET k\r\n*1\r\n$x\r\nSET k 6\r\n")
	for _, want := range []string{"+OK", `"5"`, protocol + "invalid bulk length"} {
		if got := c.reply(); got != want {
			t.Errorf("before nonsense: %s, want %s", got, want)
		}
	}
	c.wantClosed()
	other.want(`"5"`, "GET", "k")
}

// TestGarbage sends random bytes, as they are and spliced into valid commands,
// on many connections, while a client works undisturbed.
func TestGarbage(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := s.dial()
	random := rand.New(rand.NewPCG(1, 2))
	valid := frame("CINCRBY", "garbage", "op", "1") + frame("FBF.ADD", "f", "x") + "PING\r\n"
	for i := range 400 {
		garbage := make([]byte, random.IntN(200)+1)
		for j := range garbage {
			garbage[j] = byte(random.Uint32())
		}
		input := string(garbage)
		if i%2 == 0 { // valid but for a few bytes
			b := []byte(strings.Repeat(valid, 3))
			for range 1 + random.IntN(4) {
				b[random.IntN(len(b))] = garbage[0]
			}
			input = string(b)
		}
		c := s.dial()
		c.send(input)
		c.Close()
	}
	for range 100 {
		client.want("+PONG", "PING")
	}
}

// TestSlowClients holds connections open with half a command each, and one that
// sends byte by byte, and one that never reads its replies; others are served.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	for range 200 {
		s.dial().send("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000\r\nx")
	}
	deaf := s.dial()
	go io.WriteString(deaf, strings.Repeat(frame("ECHO", strings.Repeat("x", 60000)), 500))
	slow := s.dial()
	for _, b := range []byte(frame("CINCRBY", "slow", "op", "7")) {
		slow.send(string(b))
		time.Sleep(time.Millisecond)
	}
	if got := slow.reply(); got != ":7" {
		t.Errorf("byte by byte: %s", got)
	}
	other := s.dial()
	for range 200 {
		other.want("+PONG", "PING")
	}
}
