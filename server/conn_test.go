package server

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fbfkv/fbfkv/commands"
	"github.com/fbfkv/fbfkv/internal/testwait"
)

func TestPipelineIsAnsweredInOrder(t *testing.T) {
	s := start(t, "appendfsync", "always")
	c := s.dial(t)
	const n = 5000 // several batches, several buffers
	var b strings.Builder
	for i := range n {
		switch i % 4 {
		case 0:
			b.WriteString(frame("ECHO", fmt.Sprint(i)))
		case 1:
			b.WriteString(frame("CINCRBY", "k", fmt.Sprint("id-", i), "1"))
		case 2:
			b.WriteString(frame("NOSUCH", "x"))
		case 3:
			b.WriteString("PING " + fmt.Sprint(i) + "\r\n")
		}
	}
	go c.Write([]byte(b.String()))
	for i := range n {
		want := fmt.Sprint(i)
		switch i % 4 {
		case 1:
			want = fmt.Sprint(":", i/4+1)
		case 2:
			want = "-ERR unknown command 'NOSUCH', with args beginning with: 'x' "
		}
		if got := c.reply(); got != want {
			t.Fatalf("reply %d: %q, want %q", i, got, want)
		}
	}
}

// TestRequestsInPieces sends requests a byte at a time.
func TestRequestsInPieces(t *testing.T) {
	s := start(t)
	c := s.dial(t)
	for _, b := range []byte(frame("CINCRBY", "k", "id", "5") + "CGET k\r\n") {
		c.send(string(b))
	}
	c.expectReply(":5")
	c.expectReply(":5")
}

func TestProtocolErrorsAreToldThenTheConnectionCloses(t *testing.T) {
	for _, loop := range loops {
		s := startLoop(t, loop, Options{Store: openStore(t), Logger: quiet})
		for _, tt := range []struct{ send, want string }{
			{"*1\r\n$9223372036854775807\r\n", "-ERR Protocol error: invalid bulk length"},
			{"*9223372036854775807\r\n", "-ERR Protocol error: invalid multibulk length"},
			{"*1\r\n+PING\r\n", "-ERR Protocol error: expected '$', got '+'"},
			{"PING \"\r\n", "-ERR Protocol error: unbalanced quotes in request"},
			{"POST / HTTP/1.1\r\nHost: x\r\n\r\nFLUSHALL\r\n", "-ERR Protocol error: this is not an " +
				"HTTP server"},
			{strings.Repeat("x", 70000), "-ERR Protocol error: too big inline request"},
		} {
			c := s.dial(t)
			c.sent = time.Now()
			go c.Write([]byte("PING\r\n" + tt.send + strings.Repeat("PING\r\n", 1000))) // the server may close before it has all
			c.expectReply("+PONG")
			c.expectLast(tt.want)
		}
		s.dial(t).expect("+PONG", "PING")
	}
}

func TestQuitAnswersThenCloses(t *testing.T) {
	s := start(t)
	c := s.dial(t)
	c.send(frame("PING") + frame("QUIT") + frame("CINCRBY", "k", "id", "1"))
	c.expectReply("+PONG")
	c.expectReply("+OK")
	c.expectReply("EOF")
	s.dial(t).expect("$-1", "CGET", "k")
}

// TestLimitsBeforeAuthentication: what a stranger sends is bounded more tightly,
// and the bounds are lifted within the pipeline that logs in.
func TestLimitsBeforeAuthentication(t *testing.T) {
	s := start(t, "requirepass", "secret")
	many := frame("MGET", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j")
	long := frame("ECHO", strings.Repeat("x", 16<<10+1))

	c := s.dial(t)
	c.send(many)
	c.expectLast("-ERR Protocol error: unauthenticated multibulk length")

	c = s.dial(t)
	c.send(long)
	c.expectLast("-ERR Protocol error: unauthenticated bulk length")

	c = s.dial(t)
	c.expect("-NOAUTH Authentication required.", "GET", "a")
	c.send(frame("AUTH", "secret") + many + long)
	c.expectReply("+OK")
	c.expectReply("[$-1 $-1 $-1 $-1 $-1 $-1 $-1 $-1 $-1 $-1]")
	if got := c.reply(); len(got) != 16<<10+1 {
		t.Errorf("long ECHO: %.100q", got)
	}
}

func TestClientOutputBufferLimit(t *testing.T) {
	s := start(t, "client-output-buffer-limit", "normal 1mb 0 0", "proto-max-bulk-len", "2mb")
	c := s.dial(t)
	c.send(frame("ECHO", strings.Repeat("x", 3<<19)))
	c.expectReply("EOF")

	// It bounds a reply, not what a pipeline is answered over time.
	c = s.dial(t)
	half := strings.Repeat("x", 1<<19)
	go c.Write([]byte(strings.Repeat(frame("ECHO", half), 20)))
	for range 20 {
		c.expectReply(half)
	}
}

// TestPanicEndsOneConnectionOnly has a bug in a command.
func TestPanicEndsOneConnectionOnly(t *testing.T) {
	log, logged := record()
	l, err := Listen(configWith(t, "port", "0"))
	if err != nil {
		t.Fatal(err)
	}
	s := &running{
		Server:  New(Options{Logger: log, Fatal: func(err error) { t.Errorf("fatal: %v", err) }}),
		address: l[0].Addr().String(),
		served:  make(chan error, 1),
	}
	s.Server.commands.Sessions = func() []*commands.Session { panic("a bug") }
	go func() { s.served <- s.Serve(l...) }()
	defer s.wait(t)
	defer s.Stop(true)

	bystander := s.dial(t)
	bystander.expect("+PONG", "PING")
	s.dial(t).expect("EOF", "CLIENT", "LIST")
	bystander.expect("+PONG", "PING")
	s.dial(t).expect("+PONG", "PING")
	eventually(t, "one connection is gone", func() bool { return len(s.sessions()) == 2 })
	for _, want := range []string{"panic while serving a client", "a bug", "goroutine "} {
		if !strings.Contains(logged(), want) {
			t.Errorf("the log lacks %q: %s", want, logged())
		}
	}
}

// TestPanicInTheStoreIsFatal uses a server without a store, so that every method
// of it panics.
func TestPanicInTheStoreIsFatal(t *testing.T) {
	fatal := make(chan error, 1)
	s := startWith(t, Options{Logger: quiet, Fatal: func(err error) { fatal <- err }})
	s.dial(t).expect("EOF", "CINCRBY", "k", "id", "1")
	select {
	case err := <-fatal:
		if !strings.Contains(err.Error(), "panic in the store") {
			t.Errorf("fatal: %v", err)
		}
	case <-time.After(testwait.Limit):
		t.Error("the process goes on")
	}
}

// record returns a logger and what returns its text so far.
func record() (*slog.Logger, func() string) {
	var mu sync.Mutex
	var text bytes.Buffer
	handler := slog.NewTextHandler(writerFunc(func(b []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return text.Write(b)
	}), nil)
	return slog.New(handler), func() string {
		mu.Lock()
		defer mu.Unlock()
		return text.String()
	}
}

// writerFunc is an io.Writer in a func.
type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func TestIdleClientsAreDisconnected(t *testing.T) {
	ticks := make(chan time.Time)
	s := startWith(t, Options{Store: openStore(t), Logger: quiet, ticks: ticks}, "timeout", "60")
	before := time.Now()
	idle, busy := s.dial(t), s.dial(t)
	trickle := s.dial(t) // one that never completes a request is idle too
	eventually(t, "all are connected", func() bool { return len(s.sessions()) == 3 })
	after := time.Now()
	busy.expect("+PONG", "PING")
	asked := s.received()
	trickle.send("a")
	eventually(t, "what trickles is read", func() bool { return s.received() > asked })
	tick(ticks, before.Add(60*time.Second))
	busy.expect("+PONG", "PING")
	if n := len(s.sessions()); n != 3 {
		t.Errorf("%d clients at the end of the timeout, want 3", n)
	}
	tick(ticks, after.Add(60*time.Second+1))
	idle.expectReply("EOF")
	eventually(t, "the trickling client is gone", func() bool {
		tick(ticks, after.Add(60*time.Second+1)) // what it sent may have been in hand
		return len(s.sessions()) == 1
	})
	busy.expect("+PONG", "PING")
	eventually(t, "the busy client is gone once it does nothing", func() bool {
		tick(ticks, time.Now().Add(61*time.Second))
		return len(s.sessions()) == 0
	})
}

// TestClientsThatDoNotReadAreDisconnected also holds that their replies do not pile up.
func TestClientsThatDoNotReadAreDisconnected(t *testing.T) {
	ticks := make(chan time.Time)
	s := startWith(t, Options{Store: openStore(t), Logger: quiet, ticks: ticks})
	deaf, bystander := s.dial(t), s.dial(t)
	request := []byte(strings.Repeat(frame("ECHO", strings.Repeat("x", 1000)), 1000))
	go func() {
		for {
			if _, err := deaf.Write(request); err != nil {
				return
			}
		}
	}()
	s.waitUntilStuck(t)
	s.mu.Lock()
	for _, c := range s.conns {
		if c.out.Load() > 64<<20 {
			t.Errorf("%d bytes written to a client that does not read", c.out.Load())
		}
	}
	s.mu.Unlock()
	tick(ticks, s.started.Add(60*time.Second)) // the server's clock stood still meanwhile
	bystander.expect("+PONG", "PING")
	if n := len(s.sessions()); n != 2 {
		t.Errorf("%d clients at the end of the timeout, want 2", n)
	}
	now := s.started
	eventually(t, "the client is gone", func() bool {
		now = now.Add(60*time.Second + 1) // more than once if the system took some more
		tick(ticks, now)
		return len(s.sessions()) == 1
	})
	bystander.expect("+PONG", "PING")
}

// TestSlowReadersOfLargeRepliesAreServed: the write timeout is for a client
// that does not get on at all.
func TestSlowReadersOfLargeRepliesAreServed(t *testing.T) {
	ticks := make(chan time.Time)
	s := startWith(t, Options{Store: openStore(t), Logger: quiet, ticks: ticks},
		"proto-max-bulk-len", "64mb")
	c := s.dial(t)
	if err := c.Conn.(*net.TCPConn).SetReadBuffer(64 << 10); err != nil {
		t.Fatal(err)
	}
	const size, piece = 48 << 20, 64 << 10
	go c.Write([]byte(frame("ECHO", strings.Repeat("x", size))))
	now := s.started
	for got := 0; got < size; got += piece {
		if n, err := io.CopyN(io.Discard, c, piece); err != nil {
			t.Fatalf("after %d bytes and %v: %v", got+int(n), now.Sub(s.started), err)
		}
		if got%(size/8) == 0 && got < size*3/4 { // behind that all may have been written
			eventually(t, "it has got on since the last tick", func() bool {
				return s.waitingSince() == now.UnixNano()
			})
			now = now.Add(29 * time.Second)
			tick(ticks, now)
		}
	}
	if took := now.Sub(s.started); took <= time.Minute {
		t.Errorf("the reply took %v only, with a timeout of a minute", took)
	}
}

// TestRoundsDoNotAllocate counts the allocations of the whole process while a
// client sends pipelines, of requests that the store does not see and of new
// operations in the default mode, EXACT, which it decides, logs and remembers.
// Work in the background and what grows by doubling allocate now and then: of some
// slices of the load the one with the fewest counts, in which even one allocation
// for each pipeline would be too many.
func TestRoundsDoNotAllocate(t *testing.T) {
	const pipeline, repeats = 64, 1000
	for _, tt := range []struct {
		name, request, reply string
		opidAt               int // where an opid's eight digits are in a request; 0 for none
	}{
		{"PING", frame("PING"), "+PONG\r\n", 0},
		{"CINCRBY", frame("CINCRBY", "a", "00000000", "1"), ":1000000000\r\n", len(frame("CINCRBY", "a")) +
			len("$8\r\n")},
	} {
		s := start(t)
		c := s.dial(t)
		c.expect("+OK", "SET", "a", "1000000000")
		request := []byte(strings.Repeat(tt.request, pipeline))
		reply := make([]byte, pipeline*len(tt.reply))
		opid := 0
		round := func() {
			for at := tt.opidAt; tt.opidAt > 0 && at < len(request); at += len(tt.request) {
				opid++
				for rest, digit := opid, at+7; digit >= at; rest, digit = rest/10, digit-1 {
					request[digit] = '0' + byte(rest%10)
				}
			}
			if _, err := c.Write(request); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(c.Conn, reply); err != nil {
				t.Fatal(err)
			}
		}
		for range 300 {
			round()
		}
		// The server's periodic work allocates, and falls into more of the rounds the slower they
		// are: so each is counted alone, and most may allocate.
		counts := make([]uint64, repeats)
		for i := range counts {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			round()
			runtime.ReadMemStats(&after)
			counts[i] = after.Mallocs - before.Mallocs
		}
		slices.Sort(counts)
		if counts[repeats/4] > 0 {
			t.Errorf("%s: a pipeline allocates %d times at the median, %d at the first quartile", tt.name,
				counts[repeats/2], counts[repeats/4])
		}
		if got := c.do("GET", "a"); got != strconv.Itoa(1_000_000_000+opid) {
			t.Errorf("%s: the counter is %s after %d operations", tt.name, got, opid)
		}
	}
}

// TestAnnouncedArgumentsCostNothing: many clients announce huge requests and send
// no more of them, which costs each a buffer and a goroutine.
func TestAnnouncedArgumentsCostNothing(t *testing.T) {
	s := start(t)
	bystander := s.dial(t)
	bystander.expect("+PONG", "PING")
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const clients = 200
	for i := range clients {
		c := s.dial(t)
		if i%2 == 0 {
			c.send("*1048576\r\n$3\r\nGET\r\n")
		} else {
			c.send("*2\r\n$1048576\r\n")
		}
	}
	eventually(t, "all has arrived", func() bool { return s.Figures().NetInputBytes > clients*15 })
	runtime.GC()
	runtime.ReadMemStats(&after)
	if n := int64(after.HeapAlloc) - int64(before.HeapAlloc); n > clients*32<<10 {
		t.Errorf("%d clients hold %d bytes", clients, n)
	}
	bystander.expect("+PONG", "PING")
}
